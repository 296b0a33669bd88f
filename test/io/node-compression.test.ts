import assert from 'node:assert/strict';
import fs from 'node:fs';
import { describe, test } from 'node:test';
import zlib from 'node:zlib';
import fc from 'fast-check';
import lz4 from 'lz4-napi';
import snappy from 'snappy';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import type { CompressionType } from '../../src/io/runtime.ts';
import { propertyRuns } from '../property-runs.ts';

const { compress, decompress } = nodeCompression();
const LIMIT = 10_000_000;
const CODECS: CompressionType[] = ['gzip', 'snappy', 'lz4', 'zstd'];

/** Payload of a batch written by the console producer of Apache Kafka 4.2.0. */
function golden(type: CompressionType): Buffer {
  const file = new URL(`goldens/kafka-4.2-${type}.base64`, import.meta.url);
  return Buffer.from(fs.readFileSync(file, 'latin1'), 'base64');
}

/** The lines the goldens were made from. */
function goldenLines(): string[] {
  const words = ['alpha', 'bravo', 'charlie', 'delta', 'echo', 'foxtrot', 'golf', 'hotel'];
  return Array.from({ length: 1100 }, (_, i) => {
    let line = `record-${i}`;
    for (let j = 0; j < 12; j++) line += ` ${words[(i * (j + 1) + (i >> 3)) & 7]}`;
    return line;
  });
}

function varint(bytes: Uint8Array, at: number): [number, number] {
  let raw = 0;
  for (let i = 0; ; i++) {
    const byte = bytes[at + i]!;
    raw += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) return [raw % 2 === 0 ? raw / 2 : -(raw + 1) / 2, at + i + 1];
  }
}

/** Values of records with a null key and no headers; fails on any other byte. */
function recordValues(bytes: Buffer): string[] {
  const values: string[] = [];
  let at = 0;
  while (at < bytes.length) {
    const [length, start] = varint(bytes, at);
    const [, afterTime] = varint(bytes, start + 1);
    const [offsetDelta, afterOffset] = varint(bytes, afterTime);
    const [keyLength, afterKey] = varint(bytes, afterOffset);
    const [valueLength, valueAt] = varint(bytes, afterKey);
    const [headers, end] = varint(bytes, valueAt + valueLength);
    assert.deepEqual([offsetDelta, keyLength, headers], [values.length, -1, 0]);
    assert.equal(end, start + length);
    values.push(bytes.toString('utf8', valueAt, valueAt + valueLength));
    at = end;
  }
  return values;
}

describe('bytes written by Apache Kafka', () => {
  for (const type of CODECS) {
    test(`${type}: the producer's records come out`, () => {
      const inflated = decompress(type, golden(type), LIMIT);
      assert.deepEqual(recordValues(Buffer.from(inflated)), goldenLines());
      assert.equal(decompress(type, golden(type), inflated.length).length, inflated.length);
    });

    test(`${type}: one byte above the limit, or cut off anywhere, is a RangeError`, () => {
      const bytes = golden(type);
      const size = decompress(type, bytes, LIMIT).length;
      assert.throws(() => decompress(type, bytes, size - 1), RangeError);
      for (const part of [0, 0.01, 0.3, 0.5, 0.9]) {
        const cut = bytes.subarray(0, Math.floor(bytes.length * part));
        assert.throws(() => decompress(type, cut, LIMIT), RangeError, `cut to ${cut.length}`);
      }
      assert.throws(() => decompress(type, bytes.subarray(0, bytes.length - 1), LIMIT), RangeError);
    });
  }
});

const content = fc.oneof(
  fc.uint8Array({ maxLength: 3000 }),
  fc
    .tuple(fc.uint8Array({ minLength: 1, maxLength: 50 }), fc.integer({ min: 1, max: 9000 }))
    .map(([unit, times]) => new Uint8Array(Buffer.alloc(unit.length * times, unit))),
);

describe('our own bytes', () => {
  for (const type of [...CODECS, 'none'] as const) {
    test(`${type}: round trip of any content, at exactly its size`, () => {
      fc.assert(
        fc.property(content, (bytes) => {
          const small = compress(type, bytes);
          assert.deepEqual(Buffer.from(decompress(type, small, bytes.length)), Buffer.from(bytes));
          if (bytes.length === 0) return;
          assert.throws(() => decompress(type, small, bytes.length - 1), RangeError);
        }),
        propertyRuns(60),
      );
    });
  }

  for (const type of CODECS) {
    test(`${type}: arbitrary and damaged bytes give bytes within the limit or a RangeError`, () => {
      const survive = (bytes: Uint8Array): void => {
        try {
          assert.ok(decompress(type, bytes, 5000).length <= 5000);
        } catch (error) {
          assert.ok(error instanceof RangeError, String(error));
        }
      };
      fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), survive), propertyRuns(300));
      const damage = fc.tuple(content, fc.nat(), fc.nat(255)).map(([bytes, at, value]) => {
        const damaged = Uint8Array.from(compress(type, bytes));
        damaged[at % damaged.length] = value;
        return damaged;
      });
      fc.assert(fc.property(damage, survive), propertyRuns(100));
    });
  }
});

test('a bomb is refused by what it would become', () => {
  const zeros = Buffer.alloc(50_000_000);
  for (const type of CODECS) {
    assert.throws(() => decompress(type, compress(type, zeros), 1_000_000), RangeError, type);
  }
  const claim = Uint8Array.of(0xff, 0xff, 0xff, 0xff, 0x0f, 0);
  assert.throws(() => decompress('snappy', claim, 1_000_000), /inflates to 4294967295/);
});

test('snappy without framing (librdkafka) and in concatenated xerial streams', () => {
  const text = Buffer.from('the same again, the same again, the same again');
  const raw = snappy.compressSync(text);
  assert.deepEqual(decompress('snappy', raw, LIMIT), text);
  const framed = compress('snappy', text);
  const twice = Buffer.concat([framed, framed]);
  assert.deepEqual(decompress('snappy', twice, LIMIT), Buffer.concat([text, text]));
});

test('lz4 with every checksum, and bytes behind the frame are not part of it', () => {
  const text = Buffer.from('abcdefgh'.repeat(40_000));
  for (const options of [{ contentChecksum: true }, { blockChecksums: true }]) {
    assert.deepEqual(decompress('lz4', lz4.compressFrameSync(text, options), LIMIT), text);
  }
  const frame = compress('lz4', text);
  const bomb = compress('lz4', Buffer.alloc(20_000_000));
  assert.deepEqual(decompress('lz4', Buffer.concat([frame, bomb]), text.length), text);
});

test('a view into a larger buffer is compressed and inflated alone', () => {
  const padded = Buffer.concat([Buffer.alloc(7, 1), Buffer.from('payload'), Buffer.alloc(9, 2)]);
  const view = new Uint8Array(padded.buffer, padded.byteOffset + 7, 7);
  for (const type of CODECS) {
    const small = compress(type, view);
    const moved = Buffer.concat([Buffer.alloc(5, 3), small]).subarray(5);
    assert.equal(Buffer.from(decompress(type, moved, 7)).toString(), 'payload');
  }
});

test('gzip and zstd output is what any other reader expects', () => {
  const text = Buffer.from('plain text');
  assert.deepEqual(zlib.gunzipSync(compress('gzip', text)), text);
  assert.deepEqual(zlib.zstdDecompressSync(compress('zstd', text)), text);
});
