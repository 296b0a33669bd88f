/**
 * Bounds-checked reading and growing writing of Kafka's primitive types (big-endian, varints).
 *
 * Every decoder and encoder of the product goes through these two classes. Invariants:
 * - A reader throws {@link MalformedBytes} and nothing else, never reads outside its bytes, and
 *   never allocates more than a constant times the bytes it was given: lengths are checked against
 *   what remains first.
 * - Byte fields are read as views of the input, not as copies.
 * - A writer throws {@link UnencodableValue} for a value its type cannot hold; it never wraps.
 */
import { type Uuid, uuidFromBytes, uuidToBytes } from './uuid.ts';

/** Bytes that are not what they claim to be: input from outside, never a {@link Fault}. */
export class MalformedBytes extends Error {
  override readonly name = 'MalformedBytes';
  /** Where in the reader's bytes the unreadable item starts. */
  readonly position: number;
  constructor(problem: string, position: number) {
    super(`${problem} at byte ${position}`);
    this.position = position;
  }
}

/** A value handed to an encoder that its wire type cannot hold: a mistake of the caller. */
export class UnencodableValue extends Error {
  override readonly name = 'UnencodableValue';
}

/** Longest string Kafka's protocol carries, in bytes, whatever the length prefix could say. */
export const MAX_STRING_BYTES = 0x7fff;
/** Longest byte field, records or array that a length prefix may announce. */
export const MAX_LENGTH = 0x7fffffff;

const TWO_32 = 0x1_0000_0000;
const MIN_HIGH = -0x20_0000;
const MAX_HIGH = 0x1f_ffff;

/** Reads from the front of `bytes` to their end. */
export class ByteReader {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  readonly #end: number;
  #text: Buffer | undefined;
  #position: number;

  constructor(bytes: Uint8Array, position = 0, end = bytes.length) {
    if (position < 0 || end > bytes.length || position > end) {
      throw new RangeError(`reader range ${position}..${end} outside 0..${bytes.length}`);
    }
    this.bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#position = position;
    this.#end = end;
  }

  /** Index into `bytes` of what is read next. */
  get position(): number {
    return this.#position;
  }

  /** Bytes not yet read. */
  get remaining(): number {
    return this.#end - this.#position;
  }

  /** Claims `length` bytes of a `what`; returns where they start. */
  #take(length: number, what: string): number {
    const position = this.#position;
    if (length > this.#end - position) this.#short(length, what);
    this.#position = position + length;
    return position;
  }

  #short(length: number, what: string): never {
    const had = this.#end - this.#position;
    throw new MalformedBytes(`${what} needs ${length} bytes, ${had} remain`, this.#position);
  }

  skip(length: number, what = 'skipped bytes'): void {
    if (length < 0) throw new MalformedBytes(`negative length of ${what}`, this.#position);
    this.#take(length, what);
  }

  bool(): boolean {
    return this.#view.getInt8(this.#take(1, 'bool')) !== 0;
  }

  int8(): number {
    return this.#view.getInt8(this.#take(1, 'int8'));
  }

  int16(): number {
    return this.#view.getInt16(this.#take(2, 'int16'));
  }

  uint16(): number {
    return this.#view.getUint16(this.#take(2, 'uint16'));
  }

  int32(): number {
    return this.#view.getInt32(this.#take(4, 'int32'));
  }

  uint32(): number {
    return this.#view.getUint32(this.#take(4, 'uint32'));
  }

  /** Refuses values beyond ±2^53: no offset, epoch or size of ours gets there. */
  int64(): number {
    const position = this.#take(8, 'int64');
    const high = this.#view.getInt32(position);
    const low = this.#view.getUint32(position + 4);
    if (high < MIN_HIGH || high > MAX_HIGH || (high === MIN_HIGH && low === 0)) {
      throw new MalformedBytes('int64 beyond 2^53', position);
    }
    return high * TWO_32 + low;
  }

  /** The full range, where Kafka gives it a meaning (producer ids, timestamps). */
  int64Exact(): bigint {
    return this.#view.getBigInt64(this.#take(8, 'int64'));
  }

  float64(): number {
    return this.#view.getFloat64(this.#take(8, 'float64'));
  }

  uuid(): Uuid {
    return uuidFromBytes(this.bytes, this.#take(16, 'uuid'));
  }

  /** An unsigned varint of at most 32 bits. */
  uvarint(): number {
    const start = this.#position;
    let value = 0;
    let shift = 0;
    for (let position = start; position < this.#end; position++) {
      const byte = this.bytes[position] as number;
      // The fifth byte may carry the top four bits only.
      if (shift === 28 && byte > 0x0f) throw new MalformedBytes('uvarint beyond 32 bits', start);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) {
        this.#position = position + 1;
        return value >>> 0;
      }
      shift += 7;
    }
    return this.#short(this.remaining + 1, 'uvarint');
  }

  /** A zigzag varint of at most 32 bits. */
  varint(): number {
    const raw = this.uvarint();
    return (raw >>> 1) ^ -(raw & 1);
  }

  /** A zigzag varint of at most 64 bits, refused beyond ±2^53. */
  varlong(): number {
    const start = this.#position;
    let low = 0;
    let scale = 1;
    for (let position = start; position < this.#end && position < start + 10; position++) {
      const byte = this.bytes[position] as number;
      low += (byte & 0x7f) * scale;
      if (byte < 0x80) {
        if (low > Number.MAX_SAFE_INTEGER) break;
        this.#position = position + 1;
        return low % 2 === 0 ? low / 2 : -(low + 1) / 2;
      }
      scale *= 128;
    }
    // Rare: the exact reading decides whether the value is too large, malformed or cut off.
    const exact = this.varlongExact();
    if (exact > 0x1f_ffff_ffff_ffffn || exact < -0x1f_ffff_ffff_ffffn) {
      throw new MalformedBytes('varlong beyond 2^53', start);
    }
    return Number(exact);
  }

  /** A zigzag varint of at most 64 bits. */
  varlongExact(): bigint {
    const start = this.#position;
    // Nearly all are one byte long; the loop below works on bigints.
    const first = start < this.#end ? (this.bytes[start] as number) : 0x80;
    if (first < 0x80) {
      this.#position = start + 1;
      return BigInt((first >>> 1) ^ -(first & 1));
    }
    let value = 0n;
    let shift = 0n;
    for (let position = start; position < this.#end; position++) {
      const byte = this.bytes[position] as number;
      if (shift === 63n && byte > 1) throw new MalformedBytes('varlong beyond 64 bits', start);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) {
        this.#position = position + 1;
        return (value >> 1n) ^ -(value & 1n);
      }
      shift += 7n;
    }
    return this.#short(this.remaining + 1, 'varlong');
  }

  /** The next `length` bytes as a view. */
  view(length: number, what = 'bytes'): Uint8Array {
    if (length < 0) throw new MalformedBytes(`negative length of ${what}`, this.#position);
    const position = this.#take(length, what);
    return new Uint8Array(this.bytes.buffer, this.bytes.byteOffset + position, length);
  }

  #string(length: number): string {
    if (length > MAX_STRING_BYTES) {
      throw new MalformedBytes(`string of ${length} bytes`, this.#position);
    }
    const position = this.#take(length, 'string');
    if (length === 0) return '';
    const { buffer, byteOffset, byteLength } = this.bytes;
    this.#text ??= Buffer.from(buffer, byteOffset, byteLength);
    return this.#text.toString('utf8', position, position + length);
  }

  #present<T>(value: T | null, start: number, what: string): T {
    if (value === null) throw new MalformedBytes(`null ${what} where none is allowed`, start);
    return value;
  }

  /** A string with an int16 length. */
  string(): string {
    const start = this.#position;
    return this.#present(this.nullableString(), start, 'string');
  }

  nullableString(): string | null {
    const length = this.int16();
    return length < 0 ? null : this.#string(length);
  }

  /** A string with an unsigned varint length + 1. */
  compactString(): string {
    const start = this.#position;
    return this.#present(this.nullableCompactString(), start, 'string');
  }

  nullableCompactString(): string | null {
    const length = this.uvarint() - 1;
    return length < 0 ? null : this.#string(length);
  }

  /** Bytes with an int32 length, as a view. */
  byteField(): Uint8Array {
    const start = this.#position;
    return this.#present(this.nullableByteField(), start, 'bytes');
  }

  nullableByteField(): Uint8Array | null {
    const length = this.int32();
    return length < 0 ? null : this.view(length);
  }

  /** Bytes with an unsigned varint length + 1, as a view. */
  compactByteField(): Uint8Array {
    const start = this.#position;
    return this.#present(this.nullableCompactByteField(), start, 'bytes');
  }

  nullableCompactByteField(): Uint8Array | null {
    const length = this.uvarint() - 1;
    return length < 0 ? null : this.view(length);
  }

  /** An int32 array length, −1 for null; refused when `minimumSize` bytes each cannot remain. */
  arrayLength(minimumSize: number): number {
    const start = this.#position;
    return this.#checkedLength(this.int32(), minimumSize, start);
  }

  /** An unsigned varint array length + 1, −1 for null; checked like {@link arrayLength}. */
  compactArrayLength(minimumSize: number): number {
    const start = this.#position;
    return this.#checkedLength(this.uvarint() - 1, minimumSize, start);
  }

  #checkedLength(length: number, minimumSize: number, start: number): number {
    if (length < 0) return -1;
    if (length * minimumSize > this.#end - this.#position) {
      throw new MalformedBytes(`array of ${length} in ${this.remaining} bytes`, start);
    }
    return length;
  }
}

/** First buffer of a writer; most messages fit. */
const INITIAL_CAPACITY = 256;
/** Byte fields shorter than this are copied when a reference is asked for: cheaper than a chunk. */
const REFERENCE_MIN_BYTES = 1024;

function badValue(type: string, value: unknown): never {
  throw new UnencodableValue(`not a value of ${type}: ${String(value)}`);
}

/** Writes to growing memory of its own; large byte fields can be carried by reference. */
export class ByteWriter {
  #bytes: Buffer;
  #position = 0;
  /** Finished chunks before `#bytes`, and how many bytes they hold. */
  #chunks: Uint8Array[] | undefined;
  #chunkBytes = 0;
  /** Where in `#bytes` the unfinished chunk starts. */
  #chunkStart = 0;

  constructor(capacity = INITIAL_CAPACITY) {
    this.#bytes = Buffer.allocUnsafe(capacity);
  }

  /** Bytes written so far, referenced ones included. */
  get length(): number {
    return this.#chunkBytes + this.#position - this.#chunkStart;
  }

  /** Makes room for `length` bytes and claims them; returns where they start. */
  #claim(length: number): number {
    const position = this.#position;
    if (position + length > this.#bytes.length) return this.#grow(length);
    this.#position = position + length;
    return position;
  }

  #grow(length: number): number {
    const used = this.#position - this.#chunkStart;
    const grown = Buffer.allocUnsafe(Math.max(INITIAL_CAPACITY, used * 2, used + length));
    this.#bytes.copy(grown, 0, this.#chunkStart, this.#position);
    this.#bytes = grown;
    this.#chunkStart = 0;
    this.#position = used + length;
    return used;
  }

  #put16(position: number, value: number): void {
    this.#bytes[position] = value >>> 8;
    this.#bytes[position + 1] = value;
  }

  #put32(position: number, value: number): void {
    const bytes = this.#bytes;
    bytes[position] = value >>> 24;
    bytes[position + 1] = value >>> 16;
    bytes[position + 2] = value >>> 8;
    bytes[position + 3] = value;
  }

  bool(value: boolean): void {
    if (value !== true && value !== false) badValue('bool', value);
    const position = this.#claim(1);
    this.#bytes[position] = value ? 1 : 0;
  }

  int8(value: number): void {
    if ((value << 24) >> 24 !== value) badValue('int8', value);
    const position = this.#claim(1);
    this.#bytes[position] = value;
  }

  int16(value: number): void {
    if ((value << 16) >> 16 !== value) badValue('int16', value);
    const position = this.#claim(2);
    this.#put16(position, value);
  }

  uint16(value: number): void {
    if ((value & 0xffff) !== value) badValue('uint16', value);
    const position = this.#claim(2);
    this.#put16(position, value);
  }

  int32(value: number): void {
    if ((value | 0) !== value) badValue('int32', value);
    const position = this.#claim(4);
    this.#put32(position, value);
  }

  uint32(value: number): void {
    if (value >>> 0 !== value) badValue('uint32', value);
    const position = this.#claim(4);
    this.#put32(position, value);
  }

  int64(value: number): void {
    if (!Number.isSafeInteger(value)) badValue('int64', value);
    const position = this.#claim(8);
    this.#put32(position, Math.floor(value / TWO_32));
    this.#put32(position + 4, value >>> 0);
  }

  int64Exact(value: bigint): void {
    if (typeof value !== 'bigint' || BigInt.asIntN(64, value) !== value) badValue('int64', value);
    const position = this.#claim(8);
    this.#bytes.writeBigInt64BE(value, position);
  }

  float64(value: number): void {
    if (typeof value !== 'number') badValue('float64', value);
    const position = this.#claim(8);
    this.#bytes.writeDoubleBE(value, position);
  }

  uuid(value: Uuid): void {
    const bytes = uuidToBytes(value);
    if (bytes.length !== 16) badValue('uuid', value);
    const position = this.#claim(16);
    this.#bytes.set(bytes, position);
  }

  /** An unsigned varint of at most 32 bits. */
  uvarint(value: number): void {
    if (value >>> 0 !== value) badValue('uvarint', value);
    let rest = value;
    while (rest > 0x7f) {
      const position = this.#claim(1);
      this.#bytes[position] = (rest & 0x7f) | 0x80;
      rest >>>= 7;
    }
    const position = this.#claim(1);
    this.#bytes[position] = rest;
  }

  /** A zigzag varint of 32 bits. */
  varint(value: number): void {
    if ((value | 0) !== value) badValue('varint', value);
    this.uvarint(((value << 1) ^ (value >> 31)) >>> 0);
  }

  /** A zigzag varint of a value within ±2^53. */
  varlong(value: number): void {
    if ((value << 1) >> 1 === value) this.varint(value);
    else if (!Number.isSafeInteger(value)) badValue('varlong', value);
    else this.varlongExact(BigInt(value));
  }

  /** A zigzag varint of 64 bits. */
  varlongExact(value: bigint): void {
    if (BigInt.asIntN(64, value) !== value) badValue('varlong', value);
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    while (rest > 0x7fn) {
      const position = this.#claim(1);
      this.#bytes[position] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    const position = this.#claim(1);
    this.#bytes[position] = Number(rest);
  }

  /** Copies bytes, without a length. */
  raw(bytes: Uint8Array): void {
    const position = this.#claim(bytes.length);
    this.#bytes.set(bytes, position);
  }

  /** Carries large bytes by reference, without a length: leave them untouched until sent. */
  reference(bytes: Uint8Array): void {
    if (bytes.length < REFERENCE_MIN_BYTES) {
      this.raw(bytes);
      return;
    }
    this.#chunks ??= [];
    if (this.#position > this.#chunkStart) {
      this.#chunks.push(this.#piece());
      this.#chunkBytes += this.#position - this.#chunkStart;
      this.#chunkStart = this.#position;
    }
    this.#chunks.push(bytes);
    this.#chunkBytes += bytes.length;
  }

  #text(value: string, length: number): void {
    const position = this.#claim(length);
    this.#bytes.write(value, position, length, 'utf8');
  }

  #textLength(value: string): number {
    if (typeof value !== 'string') badValue('string', value);
    const length = Buffer.byteLength(value, 'utf8');
    if (length > MAX_STRING_BYTES) {
      throw new UnencodableValue(`string of ${length} bytes, at most ${MAX_STRING_BYTES}`);
    }
    return length;
  }

  /** A string with an int16 length. */
  string(value: string): void {
    const length = this.#textLength(value);
    this.int16(length);
    this.#text(value, length);
  }

  nullableString(value: string | null): void {
    if (value === null) this.int16(-1);
    else this.string(value);
  }

  /** A string with an unsigned varint length + 1. */
  compactString(value: string): void {
    const length = this.#textLength(value);
    this.uvarint(length + 1);
    this.#text(value, length);
  }

  nullableCompactString(value: string | null): void {
    if (value === null) this.uvarint(0);
    else this.compactString(value);
  }

  /** Bytes with an int32 length; large ones by reference. */
  byteField(value: Uint8Array): void {
    this.int32(value.length);
    this.reference(value);
  }

  nullableByteField(value: Uint8Array | null): void {
    if (value === null) this.int32(-1);
    else this.byteField(value);
  }

  /** Bytes with an unsigned varint length + 1; large ones by reference. */
  compactByteField(value: Uint8Array): void {
    this.uvarint(value.length + 1);
    this.reference(value);
  }

  nullableCompactByteField(value: Uint8Array | null): void {
    if (value === null) this.uvarint(0);
    else this.compactByteField(value);
  }

  /** An int32 array length (−1: null). */
  arrayLength(length: number): void {
    this.int32(length);
  }

  /** An unsigned varint array length + 1 (−1: null). */
  compactArrayLength(length: number): void {
    this.uvarint(length + 1);
  }

  #piece(): Uint8Array {
    const { buffer, byteOffset } = this.#bytes;
    const length = this.#position - this.#chunkStart;
    return new Uint8Array(buffer, byteOffset + this.#chunkStart, length);
  }

  /** What was written, in order, in as few chunks as references allow; the writer is then spent. */
  chunks(): Uint8Array[] {
    const last = this.#piece();
    if (this.#chunks === undefined) return [last];
    return last.length === 0 ? this.#chunks : [...this.#chunks, last];
  }

  /** What was written as one piece; the writer is then spent. */
  toBytes(): Uint8Array {
    const chunks = this.chunks();
    return chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks, this.length);
  }
}
