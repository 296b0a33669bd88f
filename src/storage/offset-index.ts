/**
 * The sparse offset index of a segment: from an offset to where in the file to start looking.
 *
 *     byte 0  relative offset  uint32  last offset of a batch, minus the segment's base offset
 *     byte 4  position         uint32  where that batch starts in the .log file
 *
 * One entry at most every `index.interval.bytes` of log; offsets and positions ascend.
 */
import { IndexFile } from './index-file.ts';
import type { OpenFiles } from './open-files.ts';

const ENTRY_SIZE = 8;

/** Offset to file position. */
export class OffsetIndex {
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

  offsetAt(index: number): number {
    const at = this.file.locate(index);
    return this.baseOffset + this.file.bytes.readUInt32BE(at);
  }

  positionAt(index: number): number {
    const at = this.file.locate(index);
    return this.file.bytes.readUInt32BE(at + 4);
  }

  append(lastOffset: number, position: number): void {
    const at = this.file.append();
    const bytes = this.file.bytes;
    bytes.writeUInt32BE(lastOffset - this.baseOffset, at);
    bytes.writeUInt32BE(position, at + 4);
  }

  /** How many entries have an offset below `offset`. */
  countBelow(offset: number): number {
    let low = 0;
    let high = this.file.count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.offsetAt(middle) < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Where the search for `offset` may start: a batch start at or before its batch. */
  lookup(offset: number): number {
    const count = this.countBelow(offset + 1);
    return count === 0 ? 0 : this.positionAt(count - 1);
  }

  /** Start of a batch whose last offset is at or above `offset`; undefined when none is indexed. */
  upperPosition(offset: number): number | undefined {
    const index = this.countBelow(offset);
    return index === this.file.count ? undefined : this.positionAt(index);
  }

  /** Drops entries at and above `offset`, or pointing at or beyond `position`. */
  truncate(offset: number, position: number): void {
    let count = this.countBelow(offset);
    while (count > 0 && this.positionAt(count - 1) >= position) count--;
    this.file.truncate(count);
  }

  /** Whether the file can be an index of a segment of `segmentBytes`. */
  isSane(segmentBytes: number): boolean {
    if (!this.file.isWhole()) return false;
    const { count } = this.file;
    if (count === 0) return true;
    if (this.positionAt(count - 1) >= segmentBytes) return false;
    return count === 1 || this.offsetAt(count - 2) < this.offsetAt(count - 1);
  }
}
