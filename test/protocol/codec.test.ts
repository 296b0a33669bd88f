/** Compiled codecs against the interpreter, and what they refuse. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ByteReader, MalformedBytes, UnencodableValue } from '../../src/base/bytes.ts';
import { type Codec, codec } from '../../src/protocol/codec.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import { ApiVersionsRequest } from '../../src/protocol/messages/18-api-versions.ts';
import { CreateTopicsRequest } from '../../src/protocol/messages/19-create-topics.ts';
import {
  array,
  int32,
  type Message,
  message,
  nullable,
  string,
  struct,
  tagged,
} from '../../src/protocol/schema.ts';
import { propertyRuns } from '../property-runs.ts';
import { allSchemas } from './all-schemas.ts';
import { arbitraryMessage } from './arbitrary-message.ts';
import { Interpreter, type Value } from './interpreter.ts';

const schemas = await allSchemas();

interface LooseCodec {
  decode(bytes: Uint8Array): Value;
  encode(value: Value): Uint8Array[];
  encodeToBytes(value: Value): Uint8Array;
  read(reader: ByteReader): Value;
}

function looseCodec(schema: Message, version: number): LooseCodec {
  return codec(schema, version) as unknown as LooseCodec;
}

function* everyVersion(): Generator<[Message, number]> {
  for (const schema of schemas) {
    for (let v = schema.versions.min; v <= schema.versions.max; v++) yield [schema, v];
  }
}

/** The result, or undefined for malformed bytes; anything else that is thrown fails the test. */
function attempt(decode: () => Value): Value | undefined {
  try {
    return decode();
  } catch (error) {
    if (error instanceof MalformedBytes) return undefined;
    throw error;
  }
}

describe('codec', () => {
  it('round trips and agrees with the interpreter, every schema and version', () => {
    for (const [schema, version] of everyVersion()) {
      const compiled = looseCodec(schema, version);
      const interpreter = new Interpreter(schema, version);
      const property = fc.property(arbitraryMessage(schema, version), (value) => {
        const bytes = new Uint8Array(Buffer.concat(compiled.encode(value)));
        const reader = new ByteReader(bytes);
        assert.deepEqual(compiled.read(reader), value);
        assert.equal(reader.remaining, 0);
        assert.deepEqual(Buffer.from(interpreter.encode(value)), Buffer.from(bytes));
        assert.deepEqual(interpreter.decode(bytes), value);
      });
      fc.assert(property, propertyRuns(15));
    }
  });

  it('either decodes or reports malformed bytes, whatever it is given', () => {
    for (const [schema, version] of everyVersion()) {
      const compiled = looseCodec(schema, version);
      const interpreter = new Interpreter(schema, version);
      const random = fc.uint8Array({ maxLength: 60 });
      const mutated = fc
        .tuple(arbitraryMessage(schema, version), fc.nat(), fc.nat(255), fc.boolean())
        .map(([value, where, byte, cut]) => {
          const bytes = new Uint8Array(compiled.encodeToBytes(value));
          const at = bytes.length === 0 ? 0 : where % bytes.length;
          if (cut) return bytes.slice(0, at);
          bytes[at] = byte;
          return bytes;
        });
      const property = fc.property(fc.oneof(random, mutated), (bytes) => {
        const decoded = attempt(() => compiled.decode(bytes));
        assert.deepEqual(
          attempt(() => interpreter.decode(bytes)),
          decoded,
        );
      });
      fc.assert(property, propertyRuns(30));
    }
  });

  it('gives missing fields their default and decodes absent ones as it', () => {
    const value = { maxWaitMs: 1, minBytes: 2, topics: [] };
    const decoded = codec(FetchRequest, 4).decode(codec(FetchRequest, 4).encodeToBytes(value));
    assert.equal(decoded.maxBytes, 0x7fffffff);
    assert.equal(decoded.sessionEpoch, -1);
    assert.deepEqual(decoded.replicaState, { replicaId: -1, replicaEpoch: -1 });
    assert.equal(decoded.clusterId, null);
    assert.equal(decoded.unknownTags, undefined);
  });

  it('P3: the mirror fetch tag is carried, and left out when false', () => {
    const fetch = codec(FetchRequest, 18);
    const value = { maxWaitMs: 1, minBytes: 2, topics: [] };
    const plain = fetch.encodeToBytes(value);
    const marked = fetch.encodeToBytes({ ...value, mirrorFetch: true });
    assert.equal(fetch.decode(plain).mirrorFetch, false);
    assert.equal(fetch.decode(marked).mirrorFetch, true);
    assert.equal(Buffer.from(marked).toString('hex').endsWith('ff090101'), true);
    assert.equal(marked.length, plain.length + 4);
  });

  it('A1: CreateTopics v8 carries MirrorInfo; v7 drops it silently', () => {
    const topic = {
      name: 't',
      numPartitions: 1,
      replicationFactor: 1,
      assignments: [],
      configs: [],
      mirrorInfo: { topicId: 'qqqqqqqqqqqqqqqqqqqqqg' as never },
    };
    const value = { topics: [topic], timeoutMs: 1 };
    const v8 = codec(CreateTopicsRequest, 8);
    assert.deepEqual(v8.decode(v8.encodeToBytes(value)).topics[0]?.mirrorInfo, topic.mirrorInfo);
    const v7 = codec(CreateTopicsRequest, 7);
    assert.equal(v7.decode(v7.encodeToBytes(value)).topics[0]?.mirrorInfo, null);
  });

  it('refuses a non-default value that the version lacks, unless it is ignorable', () => {
    const schema = message({
      name: 'Sample',
      type: 'data',
      validVersions: '0-2',
      flexibleVersions: '2+',
      fields: {
        hard: int32('1+', { default: 3 }),
        soft: int32('1+', { ignorable: true }),
        parts: struct('1+', { a: string('1+'), b: array('1+', int32) }),
      },
    });
    const v0 = codec(schema, 0);
    assert.equal(v0.encodeToBytes({ soft: 9, hard: 3, parts: { a: '', b: [] } }).length, 0);
    assert.throws(() => v0.encodeToBytes({ hard: 4 }), UnencodableValue);
    assert.throws(() => v0.encodeToBytes({ parts: { a: '', b: [1] } }), UnencodableValue);
    assert.throws(() => codec(schema, 1).encodeToBytes({ parts: null as never }), UnencodableValue);
  });

  it('keeps unknown tags, in ascending order between known ones', () => {
    const fields = { a: tagged(int32('0+'), 1, '0+'), b: tagged(int32('0+'), 5, '0+') };
    const declare = (more: Record<string, never>) =>
      message({
        name: 'T',
        type: 'data',
        validVersions: '0',
        flexibleVersions: '0+',
        fields: { ...fields, ...more },
      });
    const sample: Codec<ReturnType<typeof declare>> = codec(declare({}), 0);
    const unknownTags = [
      { tag: 9, bytes: new Uint8Array([1]) },
      { tag: 3, bytes: new Uint8Array([2]) },
    ];
    const bytes = sample.encodeToBytes({ a: 1, b: 2, unknownTags });
    const hex = Buffer.from(bytes).toString('hex');
    assert.equal(hex, '04010400000001030102050400000002090101');
    assert.deepEqual(
      sample.decode(bytes).unknownTags?.map((each) => each.tag),
      [3, 9],
    );
    const known = [{ tag: 5, bytes: new Uint8Array(4) }];
    assert.throws(() => sample.encodeToBytes({ unknownTags: known }), UnencodableValue);
  });

  it('refuses a tag whose value does not fill its size', () => {
    const fields = { a: tagged(nullable(string('0+'), '0+'), 0, '0+') };
    const declaration = {
      name: 'T',
      type: 'data',
      validVersions: '0',
      flexibleVersions: '0+',
    } as const;
    const sample = codec(message({ ...declaration, fields }), 0);
    assert.equal(sample.decode(Buffer.from('0100020278', 'hex')).a, 'x');
    assert.throws(() => sample.decode(Buffer.from('010003027800', 'hex')), MalformedBytes);
  });

  it('sends records by reference and leaves bytes behind the last field unread', () => {
    const records = [new Uint8Array(4000).fill(1), new Uint8Array(2000).fill(2)];
    const partition = { partitionIndex: 0, errorCode: 0, highWatermark: 6, records };
    const response = {
      responses: [{ partitions: [{ ...partition, abortedTransactions: null }] }],
    };
    const fetch = codec(FetchResponse, 12);
    const chunks = fetch.encode(response);
    assert.equal(chunks[1], records[0]);
    assert.equal(chunks[2], records[1]);
    const decoded = fetch.decode(Buffer.concat([...chunks, Buffer.from('more')]));
    assert.deepEqual(
      new Uint8Array(decoded.responses[0]?.partitions[0]?.records ?? []),
      new Uint8Array(Buffer.concat(records)),
    );
  });

  it('is compiled once per version and knows no others', () => {
    assert.equal(codec(ApiVersionsRequest, 3), codec(ApiVersionsRequest, 3));
    assert.throws(() => codec(ApiVersionsRequest, 99), /has no version 99/);
  });
});
