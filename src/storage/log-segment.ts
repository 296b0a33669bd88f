/**
 * One segment: a .log file of whole batches and its three indexes.
 *
 * The log appends to the last segment only; all others are closed for writing. Sizes are kept here,
 * not asked of the disk, so a partially failed write leaves junk behind the size that nobody reads;
 * recovery cuts it.
 *
 * Time index invariant: its last entry, together with the batches from the last offset index entry
 * on, gives the largest timestamp of the segment.
 */
import { BATCH_HEADER_BYTES } from '../protocol/record-batch.ts';
import { BatchHeader } from './batch-header.ts';
import { type LogConfig, maxSegmentMs } from './log-config.ts';
import { OffsetIndex } from './offset-index.ts';
import type { FileSlot, OpenFiles } from './open-files.ts';
import { fromHalves, isAbove, numberFromHalves, TimeIndex } from './time-index.ts';
import { TransactionIndex } from './transaction-index.ts';

/** Largest relative offset in the indexes. */
export const MAX_OFFSET_SPAN = 0x7fff_ffff;
/** Files of a deleted segment get this suffix before they are removed. */
export const DELETED_FILE_SUFFIX = '.deleted';
/** Digits of a base offset in file names. */
const OFFSET_DIGITS = 20;
/** Files of a segment that compaction writes, and that recovery throws away. */
export const CLEANED_FILE_SUFFIX = '.cleaned';
/** Files of a compacted segment that are about to take the place of others. */
export const SWAP_FILE_SUFFIX = '.swap';
/** Bytes read at a time when looking for a batch. */
const SCAN_BYTES = 8 * 1024;

/** Where a batch lies in its segment. */
export interface BatchPosition {
  readonly position: number;
  readonly size: number;
  readonly baseOffset: number;
}

/** Says which file names a directory has. */
export type PresentNames = Pick<ReadonlySet<string>, 'has'>;

/** A directory that was just made. */
export const NO_NAMES: ReadonlySet<string> = new Set<string>();

const scanBuffer = Buffer.alloc(SCAN_BYTES);
const scanHeader = new BatchHeader();

/** The path of a segment's files without suffix. */
export function segmentPath(directory: string, baseOffset: number): string {
  return `${directory}/${String(baseOffset).padStart(OFFSET_DIGITS, '0')}`;
}

/** A segment of a log. */
export class LogSegment {
  readonly baseOffset: number;
  readonly offsetIndex: OffsetIndex;
  readonly timeIndex: TimeIndex;
  readonly transactionIndex: TransactionIndex;
  readonly #files: OpenFiles;
  readonly #log: FileSlot;
  readonly #createdMs: number;
  #size: number;
  /** Up to here batches were noted in the indexes. */
  #notedTo = 0;
  #bytesSinceIndexEntry = 0;
  #maxTimestampHigh = -1;
  #maxTimestampLow = 0xffff_ffff;
  #offsetOfMaxTimestamp: number;
  /** Of the first batch; undefined: not read yet. */
  #firstTimestampMs: number | undefined;
  /** What an earlier process wrote may not be durable either. */
  #unsynced = true;
  #writes = 0;

  /**
   * A segment whose files may or may not exist yet; none is opened. `present` names the files of
   * the directory, so that absent ones are not asked for.
   */
  constructor(
    files: OpenFiles,
    directory: string,
    baseOffset: number,
    config: LogConfig,
    nowMs: number,
    present?: PresentNames,
    suffix = '',
  ) {
    const path = segmentPath(directory, baseOffset);
    const nameAt = path.length - OFFSET_DIGITS;
    const file = (type: string): { path: string; isAbsent: boolean } => {
      const name = `${path}.${type}${suffix}`;
      return { path: name, isAbsent: present?.has(name.slice(nameAt)) === false };
    };
    const [log, index, timeIndex] = [file('log'), file('index'), file('timeindex')];
    const transactionIndex = file('txnindex');
    const maxBytes = config.segmentIndexBytes;
    this.baseOffset = baseOffset;
    this.#files = files;
    this.#log = files.slot(log.path);
    this.offsetIndex = new OffsetIndex(files, index.path, baseOffset, maxBytes, index.isAbsent);
    this.timeIndex = new TimeIndex(files, timeIndex.path, baseOffset, maxBytes, timeIndex.isAbsent);
    const { path: transactionPath, isAbsent } = transactionIndex;
    this.transactionIndex = new TransactionIndex(files, transactionPath, isAbsent);
    this.#createdMs = nowMs;
    this.#size = log.isAbsent ? 0 : (files.disk.fileSize(log.path) ?? 0);
    this.#offsetOfMaxTimestamp = baseOffset;
  }

  get path(): string {
    return this.#log.path;
  }

  get size(): number {
    return this.#size;
  }

  /** Largest timestamp of the segment in ms (−1: none), read from the index when not in memory. */
  get maxTimestampMs(): number {
    this.#loadMaxTimestamp();
    return numberFromHalves(this.#maxTimestampHigh, this.#maxTimestampLow);
  }

  /** Whether every timestamp of the segment is below the one given as halves. */
  isAllBelow(high: number, low: number): boolean {
    this.#loadMaxTimestamp();
    return isAbove(high, low, this.#maxTimestampHigh, this.#maxTimestampLow);
  }

  /** The largest timestamp and the last offset of the batch that has it; undefined: none. */
  maxTimestamp(): { timestamp: bigint; offset: number } | undefined {
    this.#loadMaxTimestamp();
    if (this.#maxTimestampHigh < 0) return undefined;
    const timestamp = fromHalves(this.#maxTimestampHigh, this.#maxTimestampLow);
    return { timestamp, offset: this.#offsetOfMaxTimestamp };
  }

  hasLaterTimestampThan(other: LogSegment): boolean {
    this.#loadMaxTimestamp();
    return other.isAllBelow(this.#maxTimestampHigh, this.#maxTimestampLow);
  }

  get createdMs(): number {
    return this.#createdMs;
  }

  /** Creates the .log file and the indexes that every segment has. */
  create(): void {
    if (this.#size > 0) this.#files.use(this.#log).truncate(0);
    else this.#files.make(this.#log);
    this.#size = 0;
    this.offsetIndex.file.ensureFile();
    this.timeIndex.file.ensureFile();
    this.#touch();
  }

  /** Reads file bytes at `position`; returns how many. */
  read(target: Uint8Array, position: number): number {
    const limit = Math.min(target.length, this.#size - position);
    if (limit <= 0) return 0;
    const bounded = limit === target.length ? target : target.subarray(0, limit);
    return this.#files.use(this.#log).read(bounded, position);
  }

  /** Writes `byteCount` bytes of whole batches at the end. Each is to be noted then, in order. */
  append(chunks: readonly Uint8Array[], byteCount: number): void {
    this.#touch();
    this.#files.use(this.#log).write(chunks, this.#size);
    this.#size += byteCount;
  }

  /** Takes the next batch behind the last noted one into the indexes. */
  note(header: BatchHeader, indexIntervalBytes: number): void {
    const { lastOffset, maxTimestampHigh, maxTimestampLow } = header;
    if (isAbove(maxTimestampHigh, maxTimestampLow, this.#maxTimestampHigh, this.#maxTimestampLow)) {
      this.#maxTimestampHigh = maxTimestampHigh;
      this.#maxTimestampLow = maxTimestampLow;
      this.#offsetOfMaxTimestamp = lastOffset;
    }
    if (this.#notedTo === 0) {
      this.#firstTimestampMs = numberFromHalves(maxTimestampHigh, maxTimestampLow);
    }
    if (this.#bytesSinceIndexEntry > indexIntervalBytes) {
      this.offsetIndex.append(lastOffset, this.#notedTo);
      this.#noteTime();
      this.#bytesSinceIndexEntry = 0;
    }
    this.#notedTo += header.size;
    this.#bytesSinceIndexEntry += header.size;
  }

  /** Whether `byteCount` bytes, behind `pendingBytes` yet to be written, need a new segment. */
  mustRoll(
    pendingBytes: number,
    byteCount: number,
    lastOffset: number,
    config: LogConfig,
    rollAgeMs: number,
  ): boolean {
    if (lastOffset - this.baseOffset > MAX_OFFSET_SPAN) return true;
    const size = this.#size + pendingBytes;
    if (size === 0) return false;
    return (
      size > config.segmentBytes - byteCount ||
      this.offsetIndex.file.isFull ||
      this.timeIndex.file.isFull ||
      rollAgeMs > maxSegmentMs(config)
    );
  }

  /** How old the segment is for a batch of the given timestamp, in ms. */
  rollAgeMs(timestampMs: number, nowMs: number): number {
    if (this.#size === 0) return 0;
    const first = this.firstTimestampMs;
    return first >= 0 && timestampMs >= 0 ? timestampMs - first : nowMs - this.#createdMs;
  }

  /** Noting goes on at `position`; the first entry that is added puts an index into memory. */
  becomeActive(position: number, bytesSinceIndexEntry: number): void {
    this.#loadMaxTimestamp();
    this.#notedTo = position;
    this.#bytesSinceIndexEntry = bytesSinceIndexEntry;
  }

  /** Lets go of the indexes' memory while nothing is appended. */
  unloadIndexes(): void {
    for (const file of this.#indexFiles()) file.unload();
  }

  /** Completes the indexes and lets go of their memory. */
  becomeInactive(): void {
    this.#noteTime();
    for (const file of [this.offsetIndex.file, this.timeIndex.file]) {
      file.ensureFile();
      file.unload();
    }
    this.transactionIndex.file.unload();
  }

  /** Where the batch lies that holds `offset`, or the first one behind it; undefined: none does. */
  find(offset: number): BatchPosition | undefined {
    let position = this.offsetIndex.lookup(offset);
    while (position < this.#size) {
      const length = this.read(scanBuffer, position);
      let at = 0;
      while (length - at >= BATCH_HEADER_BYTES) {
        if (scanHeader.read(scanBuffer, at, length) !== undefined) return undefined;
        const { size, baseOffset, lastOffset } = scanHeader;
        if (lastOffset >= offset) return { position: position + at, size, baseOffset };
        at += size;
      }
      if (at === 0) return undefined;
      position += at;
    }
    return undefined;
  }

  /**
   * Cuts the file and its indexes: batches from `position`, which begin at `offset`, are gone. The
   * segment must then be made active again.
   */
  truncate(position: number, offset: number): void {
    this.truncateIndexes(position, offset);
    this.cutJunk(position);
  }

  /** Drops what the indexes say of batches from `position`, which begin at `offset`. */
  truncateIndexes(position: number, offset: number): void {
    this.offsetIndex.truncate(offset, position);
    this.timeIndex.truncate(offset);
    this.transactionIndex.truncate(offset);
    this.#maxTimestampHigh = -1;
    this.#maxTimestampLow = 0xffff_ffff;
    this.#offsetOfMaxTimestamp = this.baseOffset;
    this.#notedTo = 0;
    if (position === 0) this.#firstTimestampMs = undefined;
  }

  /** Cuts the file behind the last batch that counts; the indexes know nothing of the rest. */
  cutJunk(position: number): void {
    this.#touch();
    this.#files.use(this.#log).truncate(position);
    this.#size = position;
  }

  /** Follows a changed `segment.index.bytes`. */
  setIndexBytes(maxBytes: number): void {
    this.offsetIndex.file.setMaxBytes(maxBytes);
    this.timeIndex.file.setMaxBytes(maxBytes);
  }

  /** Writes pending index entries into their files; whether that made a new file. */
  writeIndexes(): boolean {
    return this.#indexFiles()
      .map((file) => file.write())
      .includes(true);
  }

  /** Makes the segment durable as far as it is written. */
  async sync(): Promise<void> {
    const { offsetIndex, timeIndex, transactionIndex } = this;
    const writes = this.#writes;
    const syncs = [offsetIndex.file.sync(), timeIndex.file.sync(), transactionIndex.file.sync()];
    if (this.#unsynced) syncs.push(this.#files.sync(this.#log));
    await Promise.all(syncs);
    if (this.#writes === writes) this.#unsynced = false;
  }

  /** The files are as an orderly stop left them: durable. */
  markSynced(): void {
    for (const file of this.#indexFiles()) file.markSynced();
    this.#unsynced = false;
  }

  /** The same as `sync`, blocking. */
  syncNow(): void {
    for (const file of this.#indexFiles()) file.syncNow();
    if (this.#unsynced) this.#files.use(this.#log).syncNow();
    this.#unsynced = false;
  }

  /** Closes the files. */
  close(): void {
    for (const file of this.#indexFiles()) file.close();
    this.#files.close(this.#log);
  }

  /** Gives the files the suffix of deleted ones; returns their new paths. */
  renameDeleted(): string[] {
    const { disk } = this.#files;
    this.close();
    const paths = [this.path, ...this.#indexFiles().map((file) => file.path)];
    const present = paths.filter((path) => disk.fileSize(path) !== undefined);
    for (const path of present) disk.rename(path, path + DELETED_FILE_SUFFIX);
    return present.map((path) => path + DELETED_FILE_SUFFIX);
  }

  /** Gives the files that are there another suffix, the .log file first. */
  changeSuffix(from: string, to: string): void {
    const { disk } = this.#files;
    const renamed = (path: string): string => {
      const name = path.slice(0, path.length - from.length) + to;
      if (disk.fileSize(path) !== undefined) disk.rename(path, name);
      return name;
    };
    this.#log.path = renamed(this.#log.path);
    for (const file of this.#indexFiles()) file.renamed(renamed(file.path));
  }

  /** Removes the files. */
  remove(): void {
    this.close();
    const { disk } = this.#files;
    for (const path of [this.path, ...this.#indexFiles().map((file) => file.path)]) {
      disk.remove(path);
    }
  }

  #indexFiles() {
    return [this.offsetIndex.file, this.timeIndex.file, this.transactionIndex.file];
  }

  #touch(): void {
    this.#unsynced = true;
    this.#writes++;
  }

  #noteTime(): void {
    this.#loadMaxTimestamp();
    this.timeIndex.maybeAppend(
      this.#maxTimestampHigh,
      this.#maxTimestampLow,
      this.#offsetOfMaxTimestamp,
    );
  }

  /** A segment that was closed for writing has its largest timestamp in its last time entry. */
  #loadMaxTimestamp(): void {
    if (this.#maxTimestampHigh !== -1 || this.#maxTimestampLow !== 0xffff_ffff) return;
    const last = this.timeIndex.file.count - 1;
    if (last < 0) return;
    this.#maxTimestampHigh = this.timeIndex.highAt(last);
    this.#maxTimestampLow = this.timeIndex.lowAt(last);
    this.#offsetOfMaxTimestamp = this.timeIndex.offsetAt(last);
  }

  /** Largest timestamp of the first batch in ms; −1: there is none. */
  get firstTimestampMs(): number {
    if (this.#firstTimestampMs !== undefined) return this.#firstTimestampMs;
    const bytes = Buffer.alloc(BATCH_HEADER_BYTES);
    const header = new BatchHeader();
    const got = this.read(bytes, 0);
    const bad = got < BATCH_HEADER_BYTES || header.read(bytes, 0) !== undefined;
    const { maxTimestampHigh, maxTimestampLow } = header;
    this.#firstTimestampMs = bad ? -1 : numberFromHalves(maxTimestampHigh, maxTimestampLow);
    return this.#firstTimestampMs;
  }
}
