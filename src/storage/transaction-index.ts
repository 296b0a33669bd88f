/**
 * The aborted transactions that end in a segment, in the order of their markers.
 *
 *     byte  0  version             int16  0
 *     byte  2  producer id         int64
 *     byte 10  first offset        int64  of the transaction
 *     byte 18  last offset         int64  of the abort marker
 *     byte 26  last stable offset  int64  after the marker; below it no later entry counts
 *
 * The file is absent while there is no aborted transaction.
 */
import { IndexFile } from './index-file.ts';
import type { OpenFiles } from './open-files.ts';

const ENTRY_SIZE = 34;
const VERSION = 0;

/** An aborted transaction. */
export interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: number;
  readonly lastOffset: number;
  readonly lastStableOffset: number;
}

/** Aborted transactions of one segment. */
export class TransactionIndex {
  readonly file: IndexFile;

  constructor(files: OpenFiles, path: string, isAbsent = false) {
    this.file = new IndexFile(files, path, ENTRY_SIZE, Number.MAX_SAFE_INTEGER, isAbsent);
  }

  append(aborted: AbortedTransaction): void {
    const at = this.file.append();
    const bytes = this.file.bytes;
    bytes.writeInt16BE(VERSION, at);
    bytes.writeBigInt64BE(aborted.producerId, at + 2);
    bytes.writeBigInt64BE(BigInt(aborted.firstOffset), at + 10);
    bytes.writeBigInt64BE(BigInt(aborted.lastOffset), at + 18);
    bytes.writeBigInt64BE(BigInt(aborted.lastStableOffset), at + 26);
  }

  at(index: number): AbortedTransaction {
    const at = this.file.locate(index);
    const bytes = this.file.bytes;
    return {
      producerId: bytes.readBigInt64BE(at + 2),
      firstOffset: Number(bytes.readBigInt64BE(at + 10)),
      lastOffset: Number(bytes.readBigInt64BE(at + 18)),
      lastStableOffset: Number(bytes.readBigInt64BE(at + 26)),
    };
  }

  /**
   * Adds to `found` what concerns offsets in [from, upTo); true: no later segment can hold more.
   */
  collect(from: number, upTo: number, found: AbortedTransaction[]): boolean {
    for (let index = 0; index < this.file.count; index++) {
      const aborted = this.at(index);
      if (aborted.lastOffset >= from && aborted.firstOffset < upTo) found.push(aborted);
      if (aborted.lastStableOffset >= upTo) return true;
    }
    return false;
  }

  /** Drops transactions whose marker is at or above `offset`. */
  truncate(offset: number): void {
    let count = this.file.count;
    while (count > 0 && this.at(count - 1).lastOffset >= offset) count--;
    this.file.truncate(count);
  }

  /** Whether every entry can belong to a segment that starts at `baseOffset`. */
  isSane(baseOffset: number): boolean {
    if (this.file.count === 0) return true;
    if (!this.file.isWhole()) return false;
    for (let index = 0; index < this.file.count; index++) {
      const at = this.file.locate(index);
      if (this.file.bytes.readInt16BE(at) !== VERSION) return false;
      if (this.at(index).lastOffset < baseOffset) return false;
    }
    return true;
  }
}
