/** Primitive readers and writers: round trips, the exact wire forms, and what is refused. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ByteReader, ByteWriter, MalformedBytes, UnencodableValue } from '../../src/base/bytes.ts';
import { uuidFromBytes } from '../../src/base/uuid.ts';
import { propertyRuns } from '../property-runs.ts';

function written(write: (writer: ByteWriter) => void): Uint8Array {
  const writer = new ByteWriter(1);
  write(writer);
  const bytes = writer.toBytes();
  assert.equal(bytes.length, writer.length);
  return bytes;
}

function hex(write: (writer: ByteWriter) => void): string {
  return Buffer.from(written(write)).toString('hex');
}

function read<T>(text: string, f: (reader: ByteReader) => T): T {
  const reader = new ByteReader(Buffer.from(text, 'hex'));
  const value = f(reader);
  assert.equal(reader.remaining, 0);
  return value;
}

function roundTrip<T>(
  arbitrary: fc.Arbitrary<T>,
  write: (writer: ByteWriter, value: T) => void,
  readBack: (reader: ByteReader) => T,
): void {
  fc.assert(
    fc.property(arbitrary, (value) => {
      const reader = new ByteReader(written((writer) => write(writer, value)));
      assert.deepEqual(readBack(reader), value);
      assert.equal(reader.remaining, 0);
    }),
    propertyRuns(100),
  );
}

const safe = fc.oneof(fc.maxSafeInteger(), fc.integer());
const long = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
const text = fc.string({ unit: 'binary', maxLength: 300 });
const bytes: fc.Arbitrary<Uint8Array> = fc.uint8Array({ maxLength: 3000 });

describe('bytes', () => {
  it('round trips every type', () => {
    roundTrip(
      fc.boolean(),
      (w, v) => w.bool(v),
      (r) => r.bool(),
    );
    roundTrip(
      fc.integer({ min: -128, max: 127 }),
      (w, v) => w.int8(v),
      (r) => r.int8(),
    );
    roundTrip(
      fc.integer({ min: -32768, max: 32767 }),
      (w, v) => w.int16(v),
      (r) => r.int16(),
    );
    roundTrip(
      fc.nat(65535),
      (w, v) => w.uint16(v),
      (r) => r.uint16(),
    );
    roundTrip(
      fc.integer(),
      (w, v) => w.int32(v),
      (r) => r.int32(),
    );
    roundTrip(
      fc.nat(0xffffffff),
      (w, v) => w.uint32(v),
      (r) => r.uint32(),
    );
    roundTrip(
      safe,
      (w, v) => w.int64(v),
      (r) => r.int64(),
    );
    roundTrip(
      long,
      (w, v) => w.int64Exact(v),
      (r) => r.int64Exact(),
    );
    roundTrip(
      fc.double(),
      (w, v) => w.float64(v),
      (r) => r.float64(),
    );
    roundTrip(
      fc.nat(0xffffffff),
      (w, v) => w.uvarint(v),
      (r) => r.uvarint(),
    );
    roundTrip(
      fc.integer(),
      (w, v) => w.varint(v),
      (r) => r.varint(),
    );
    roundTrip(
      safe,
      (w, v) => w.varlong(v),
      (r) => r.varlong(),
    );
    roundTrip(
      long,
      (w, v) => w.varlongExact(v),
      (r) => r.varlongExact(),
    );
    roundTrip(
      text,
      (w, v) => w.string(v),
      (r) => r.string(),
    );
    roundTrip(
      fc.option(text),
      (w, v) => w.nullableString(v),
      (r) => r.nullableString(),
    );
    roundTrip(
      text,
      (w, v) => w.compactString(v),
      (r) => r.compactString(),
    );
    roundTrip(
      fc.option(text),
      (w, v) => w.nullableCompactString(v),
      (r) => r.nullableCompactString(),
    );
    roundTrip(
      bytes,
      (w, v) => w.byteField(v),
      (r) => r.byteField(),
    );
    roundTrip(
      bytes,
      (w, v) => w.compactByteField(v),
      (r) => r.compactByteField(),
    );
    const id = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((b) => uuidFromBytes(b));
    roundTrip(
      id,
      (w, v) => w.uuid(v),
      (r) => r.uuid(),
    );
  });

  it('writes Kafka’s wire forms', () => {
    assert.equal(
      hex((w) => w.varint(-1)),
      '01',
    );
    assert.equal(
      hex((w) => w.varint(64)),
      '8001',
    );
    assert.equal(
      hex((w) => w.varint(-(2 ** 31))),
      'ffffffff0f',
    );
    assert.equal(
      hex((w) => w.varlong(2 ** 31)),
      '8080808010',
    );
    assert.equal(
      hex((w) => w.varlongExact(-(2n ** 63n))),
      'ffffffffffffffffff01',
    );
    assert.equal(
      hex((w) => w.uvarint(300)),
      'ac02',
    );
    assert.equal(
      hex((w) => w.int64(-2)),
      'fffffffffffffffe',
    );
    assert.equal(
      hex((w) => w.string('é')),
      '0002c3a9',
    );
    assert.equal(
      hex((w) => w.compactString('')),
      '01',
    );
    assert.equal(
      hex((w) => w.nullableCompactByteField(null)),
      '00',
    );
    assert.equal(
      hex((w) => w.nullableByteField(null)),
      'ffffffff',
    );
  });

  it('accepts the ends of the number range and refuses what lies beyond', () => {
    assert.equal(
      read('001fffffffffffff', (r) => r.int64()),
      Number.MAX_SAFE_INTEGER,
    );
    assert.equal(
      read('ffe0000000000001', (r) => r.int64()),
      Number.MIN_SAFE_INTEGER,
    );
    const long52 = hex((w) => w.varlongExact(2n ** 52n + 1n));
    assert.equal(
      read(long52, (r) => r.varlong()),
      2 ** 52 + 1,
    );
    const largest = hex((w) => w.varlongExact(BigInt(Number.MAX_SAFE_INTEGER)));
    assert.equal(
      read(largest, (r) => r.varlong()),
      Number.MAX_SAFE_INTEGER,
    );
    const least = hex((w) => w.varlongExact(BigInt(Number.MIN_SAFE_INTEGER)));
    assert.equal(
      read(least, (r) => r.varlong()),
      Number.MIN_SAFE_INTEGER,
    );
    const beyond = hex((w) => w.varlongExact(2n ** 53n));
    for (const [input, f] of [
      ['0020000000000000', (r: ByteReader) => r.int64()],
      ['ffe0000000000000', (r: ByteReader) => r.int64()],
      [beyond, (r: ByteReader) => r.varlong()],
      ['ffffffff1f', (r: ByteReader) => r.uvarint()],
      ['ffffffffffffffffff02', (r: ByteReader) => r.varlongExact()],
      ['ffffffffffffffffffff01', (r: ByteReader) => r.varlong()],
      ['ffff', (r: ByteReader) => r.string()],
      ['00', (r: ByteReader) => r.compactString()],
      ['ffffffff', (r: ByteReader) => r.byteField()],
      ['81800200', (r: ByteReader) => r.compactString()],
    ] as const) {
      assert.throws(() => read(input, f as (r: ByteReader) => unknown), MalformedBytes, input);
    }
  });

  it('says what was read and where, when bytes run out', () => {
    const reader = new ByteReader(new Uint8Array([0, 0, 0, 9, 1]));
    reader.int16();
    assert.throws(() => reader.int32(), {
      name: 'MalformedBytes',
      message: 'int32 needs 4 bytes, 3 remain at byte 2',
      position: 2,
    });
    assert.equal(reader.position, 2);
  });

  it('refuses a lying array length before anything is allocated', () => {
    const reader = new ByteReader(Buffer.from('7fffffff00000000', 'hex'));
    assert.throws(() => reader.arrayLength(4), /array of 2147483647 in 4 bytes/);
    assert.equal(
      read('ffffffff', (r) => r.arrayLength(4)),
      -1,
    );
    assert.equal(
      read('00', (r) => r.compactArrayLength(4)),
      -1,
    );
    assert.equal(
      read('01', (r) => r.compactArrayLength(4)),
      0,
    );
  });

  it('reads inside a range of larger memory only, as views', () => {
    const memory = new Uint8Array([9, 9, 1, 2, 3, 9]);
    const reader = new ByteReader(memory.subarray(1), 1, 4);
    const view = reader.view(3);
    assert.deepEqual([...view], [1, 2, 3]);
    assert.equal(view.buffer, memory.buffer);
    assert.throws(() => reader.int8(), MalformedBytes);
  });

  it('refuses values a type cannot hold', () => {
    for (const write of [
      (w: ByteWriter) => w.int8(128),
      (w: ByteWriter) => w.int16(-32769),
      (w: ByteWriter) => w.uint16(-1),
      (w: ByteWriter) => w.int32(2 ** 31),
      (w: ByteWriter) => w.int32(Number.NaN),
      (w: ByteWriter) => w.uint32(-1),
      (w: ByteWriter) => w.int64(2 ** 53),
      (w: ByteWriter) => w.int64Exact(2n ** 63n),
      (w: ByteWriter) => w.varint(2 ** 31),
      (w: ByteWriter) => w.varlong(0.5),
      (w: ByteWriter) => w.varlongExact(2n ** 63n),
      (w: ByteWriter) => w.uvarint(-1),
      (w: ByteWriter) => w.string('x'.repeat(32768)),
    ]) {
      assert.throws(() => write(new ByteWriter()), UnencodableValue, String(write));
    }
  });

  it('carries large bytes by reference and small ones in between, in order', () => {
    const large = new Uint8Array(5000).fill(7);
    const writer = new ByteWriter();
    writer.int8(1);
    writer.reference(large);
    writer.reference(new Uint8Array([2]));
    writer.raw(new Uint8Array(1000).fill(3));
    writer.reference(large);
    const chunks = writer.chunks();
    assert.deepEqual(
      chunks.map((chunk) => chunk.length),
      [1, 5000, 1001, 5000],
    );
    assert.equal(chunks[1], large);
    assert.equal(chunks[3], large);
    assert.equal(chunks[2]?.[0], 2);
    assert.equal(writer.length, 11_002);
  });
});
