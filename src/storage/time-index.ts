/**
 * The sparse time index of a segment: from a timestamp to the offset where to start looking.
 *
 *     byte 0  timestamp        int64   largest timestamp of the segment up to and with that offset
 *     byte 8  relative offset  uint32  last offset of the batch that holds it
 *
 * Timestamps are kept as their two halves, exact over the whole range without bigints: `high` is a
 * signed, `low` an unsigned 32-bit integer. Timestamps ascend strictly, offsets do not descend.
 */
import { IndexFile } from './index-file.ts';
import type { OpenFiles } from './open-files.ts';

const ENTRY_SIZE = 12;
const TWO_32 = 0x1_0000_0000;

/** Timestamp to offset. */
export class TimeIndex {
  readonly file: IndexFile;
  readonly baseOffset: number;

  constructor(
    files: OpenFiles,
    path: string,
    baseOffset: number,
    maxBytes: number,
    isAbsent = false,
  ) {
    this.file = new IndexFile(files, path, ENTRY_SIZE, maxBytes, isAbsent);
    this.baseOffset = baseOffset;
  }

  highAt(index: number): number {
    const at = this.file.locate(index);
    return this.file.bytes.readInt32BE(at);
  }

  lowAt(index: number): number {
    const at = this.file.locate(index);
    return this.file.bytes.readUInt32BE(at + 4);
  }

  offsetAt(index: number): number {
    const at = this.file.locate(index);
    return this.baseOffset + this.file.bytes.readUInt32BE(at + 8);
  }

  /** Adds an entry when its timestamp is above the last one (and above −1, "none"). */
  maybeAppend(high: number, low: number, offset: number): void {
    const last = this.file.count - 1;
    if (last < 0 ? high < 0 : !isAbove(high, low, this.highAt(last), this.lowAt(last))) return;
    const at = this.file.append();
    const bytes = this.file.bytes;
    bytes.writeInt32BE(high, at);
    bytes.writeUInt32BE(low, at + 4);
    bytes.writeUInt32BE(offset - this.baseOffset, at + 8);
  }

  /** The indexed offset up to which every timestamp is below the given one; undefined: none is. */
  offsetBelow(timestamp: bigint): number | undefined {
    const count = this.#countBelow(timestamp);
    return count === 0 ? undefined : this.offsetAt(count - 1);
  }

  /** Drops entries at and above `offset`. */
  truncate(offset: number): void {
    let count = this.file.count;
    while (count > 0 && this.offsetAt(count - 1) >= offset) count--;
    this.file.truncate(count);
  }

  /** Whether the file can be the time index of its segment. */
  isSane(): boolean {
    if (!this.file.isWhole()) return false;
    const { count } = this.file;
    if (count < 2) return true;
    const [last, before] = [count - 1, count - 2];
    return (
      this.offsetAt(before) <= this.offsetAt(last) &&
      isAbove(this.highAt(last), this.lowAt(last), this.highAt(before), this.lowAt(before))
    );
  }

  #countBelow(timestamp: bigint): number {
    const { high, low } = halves(timestamp);
    let from = 0;
    let to = this.file.count;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (isAbove(high, low, this.highAt(middle), this.lowAt(middle))) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}

/** Whether timestamp a is greater than b, both as halves. */
export function isAbove(aHigh: number, aLow: number, bHigh: number, bLow: number): boolean {
  return aHigh > bHigh || (aHigh === bHigh && aLow > bLow);
}

/** A 64-bit value as its signed upper and unsigned lower half. */
export function halves(value: bigint): { high: number; low: number } {
  return { high: Number(value >> 32n), low: Number(value & 0xffff_ffffn) };
}

/** The 64-bit value of two halves. */
export function fromHalves(high: number, low: number): bigint {
  return (BigInt(high) << 32n) | BigInt(low);
}

/** The nearest number to a 64-bit value: exact below 2^53. */
export function numberFromHalves(high: number, low: number): number {
  return high * TWO_32 + low;
}
