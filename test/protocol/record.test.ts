/** Records and control records: the same bytes as Kafka, round trips, malformed payloads. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { MalformedBytes } from '../../src/base/bytes.ts';
import type { Compression } from '../../src/io/runtime.ts';
import {
  buildTransactionMarker,
  ControlRecordType,
  controlRecordType,
  parseTransactionMarker,
} from '../../src/protocol/control-record.ts';
import { buildRecordBatch, type DecodedRecord, decodeRecords } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { propertyRuns } from '../property-runs.ts';
import { KAFKA_BATCHES, KAFKA_RECORDS } from './kafka-batches.ts';

const MAX_BYTES = 1 << 20;

const gzipOnly: Compression = {
  compress: (_type, bytes) => new Uint8Array(gzipSync(bytes)),
  decompress: (_type, bytes, maxBytes) => {
    try {
      return new Uint8Array(gunzipSync(bytes, { maxOutputLength: maxBytes }));
    } catch (error) {
      throw new RangeError(String(error));
    }
  },
};

function decode(bytes: Uint8Array, maxBytes = MAX_BYTES): DecodedRecord[] {
  return [...decodeRecords(new RecordBatch(bytes), gzipOnly, maxBytes)];
}

function withOffsets(baseOffset: number): object[] {
  return KAFKA_RECORDS.map((record, i) => ({ offset: baseOffset + i, ...record }));
}

/** The bytes with a valid CRC, so that only what the test broke is broken. */
function broken(bytes: Uint8Array, at: number, byte: number): Uint8Array {
  const copy = new Uint8Array(bytes);
  copy[at] = byte;
  new RecordBatch(copy).updateCrc();
  return copy;
}

describe('records', () => {
  it('decodes what Kafka wrote', () => {
    assert.deepEqual(decode(KAFKA_BATCHES.idempotent), withOffsets(5_000_000_000));
    assert.deepEqual(decode(KAFKA_BATCHES.gzip), withOffsets(3));
  });

  it('builds the bytes that Kafka builds', () => {
    const idempotent = buildRecordBatch({
      baseOffset: 5_000_000_000,
      records: KAFKA_RECORDS,
      partitionLeaderEpoch: 9,
      producerId: 4_294_967_301n,
      producerEpoch: 3,
      baseSequence: 2_147_483_646,
    });
    assert.deepEqual(new Uint8Array(idempotent), KAFKA_BATCHES.idempotent);
    const transactional = buildRecordBatch({
      baseOffset: 7,
      records: KAFKA_RECORDS,
      partitionLeaderEpoch: 2,
      producerId: -4_294_967_303n,
      producerEpoch: 1,
      baseSequence: 0,
      isTransactional: true,
    });
    assert.deepEqual(new Uint8Array(transactional), KAFKA_BATCHES.transactional);
  });

  it('round trips, compressed or not, with gaps between offsets', () => {
    const bytes = fc.option(fc.uint8Array({ maxLength: 40 }));
    const header = fc.record(
      { key: fc.string({ unit: 'binary', maxLength: 9 }), value: bytes },
      { noNullPrototype: true },
    );
    const timestamp = fc.bigInt({ min: -(2n ** 61n), max: 2n ** 61n });
    const record = fc.record(
      {
        timestamp: fc.oneof(timestamp, fc.bigInt({ min: 0n, max: 4_000_000_000_000n })),
        key: bytes,
        value: bytes,
        headers: fc.array(header, { maxLength: 3 }),
        gap: fc.nat(3),
      },
      { noNullPrototype: true },
    );
    const property = fc.property(fc.array(record, { maxLength: 6 }), fc.boolean(), (given, zip) => {
      let next = 100;
      const records = given.map(({ gap, ...rest }) => {
        next += gap + 1;
        return { offset: next, ...rest };
      });
      const batch = buildRecordBatch({
        baseOffset: 100,
        records,
        lastOffset: next + 5,
        ...(zip ? { compression: { type: 'gzip', port: gzipOnly } as const } : {}),
      });
      const view = new RecordBatch(batch);
      assert.equal(view.validCrc(), true);
      assert.deepEqual([view.count, view.lastOffset], [records.length, next + 5]);
      assert.deepEqual(decode(batch), records);
      let highest = records[0]?.timestamp ?? -1n;
      for (const { timestamp } of records) if (timestamp > highest) highest = timestamp;
      assert.equal(view.maxTimestamp, highest);
    });
    fc.assert(property, propertyRuns(100));
  });

  it('gives every record the batch’s time under log append time', () => {
    const bytes = new Uint8Array(KAFKA_BATCHES.gzip);
    new RecordBatch(bytes).setLogAppendTime(5);
    assert.deepEqual(
      decode(bytes).map((record) => record.timestamp),
      [5n, 5n, 5n],
    );
  });

  it('reads on while the view moves', () => {
    const bytes = new Uint8Array(Buffer.concat([KAFKA_BATCHES.idempotent, KAFKA_BATCHES.gzip]));
    const view = new RecordBatch(bytes);
    const records = decodeRecords(view, gzipOnly, MAX_BYTES);
    view.moveTo(view.end);
    assert.deepEqual([...records], withOffsets(5_000_000_000));
  });

  it('reports malformed payloads, and inflates no further than allowed', () => {
    const { idempotent, gzip } = KAFKA_BATCHES;
    assert.throws(() => decode(gzip, 10), MalformedBytes);
    assert.throws(() => decode(broken(gzip, 80, 0xff)), MalformedBytes);
    assert.throws(() => decode(broken(idempotent, 22, 7)), /unknown compression codec/);
    assert.throws(() => decode(broken(idempotent, 60, 2)), /bytes behind the last record/);
    assert.throws(() => decode(broken(idempotent, 61, 0x7f)), MalformedBytes);
    assert.throws(() => decode(broken(idempotent, 61, 0x26)), MalformedBytes);
    const property = fc.property(fc.nat(idempotent.length - 62), fc.nat(255), (at, byte) => {
      try {
        decode(broken(idempotent, 61 + at, byte));
      } catch (error) {
        assert.ok(error instanceof MalformedBytes, String(error));
      }
    });
    fc.assert(property, propertyRuns(300));
  });
});

describe('control records', () => {
  const marker = { producerId: 4001n, producerEpoch: 2, coordinatorEpoch: 8 } as const;
  const when = { timestamp: 1_700_000_001_000, partitionLeaderEpoch: 4 } as const;

  it('builds the transaction markers that Kafka builds, and reads them back', () => {
    const commit = buildTransactionMarker({ ...marker, ...when, commit: true, baseOffset: 12 });
    const abort = buildTransactionMarker({ ...marker, ...when, commit: false, baseOffset: 13 });
    assert.deepEqual(new Uint8Array(commit), KAFKA_BATCHES.commit);
    assert.deepEqual(new Uint8Array(abort), KAFKA_BATCHES.abort);
    for (const bytes of [commit, abort]) {
      const [record] = decode(bytes);
      assert.ok(record !== undefined);
      const expected = { commit: bytes === commit, coordinatorEpoch: 8 };
      assert.deepEqual(parseTransactionMarker(record), expected);
    }
  });

  it('P3: a marker can span the offsets of the batch it stands in for', () => {
    const bytes = buildTransactionMarker({
      ...marker,
      producerId: -4003n,
      timestamp: 1,
      commit: true,
      baseOffset: 20,
      lastOffset: 29,
    });
    const batch = new RecordBatch(bytes);
    assert.deepEqual([batch.baseOffset, batch.lastOffset, batch.count], [20, 29, 1]);
    assert.deepEqual([batch.isControl, batch.compressionType], [true, 'none']);
    assert.equal(batch.validCrc(), true);
  });

  it('tells other control records and plain records from markers', () => {
    const records = [{ key: new Uint8Array([0, 0, 0, 2]), value: new Uint8Array(9), timestamp: 0 }];
    const [leaderChange] = decode(buildRecordBatch({ records, isControl: true }));
    assert.ok(leaderChange !== undefined);
    assert.equal(controlRecordType(leaderChange), ControlRecordType.leaderChange);
    assert.equal(parseTransactionMarker(leaderChange), undefined);
    assert.equal(controlRecordType({ key: null }), undefined);
    assert.throws(() => controlRecordType({ key: new Uint8Array(3) }), MalformedBytes);
  });
});
