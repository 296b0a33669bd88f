/**
 * One run of compaction over one log: fill the offset map from the dirty part, write every segment
 * below it anew without superseded records, put the new ones in place; again while dirt is left.
 *
 * Started by the log cleaner through `Log.compact`, one run at a time in a broker. The log is
 * appended to and read meanwhile: work is done in slices, with a pause between any two, and after
 * each pause the run looks whether its segments are still part of the log; if not, it ends.
 * - What is compacted was durable before, and the checkpoint says so: recovery takes a hole above
 *   the recovery point for a lost tail.
 * - Producers are those of the beginning: their last batches are durable, too, when a batch goes
 *   because it is not its producer's last.
 * - A failing disk call while the new files are written leaves the log as it was.
 */
import { MalformedBytes } from '../base/bytes.ts';
import { DiskError } from '../io/runtime.ts';
import { RecordBatch } from '../protocol/record-batch.ts';
import { BatchHeader } from './batch-header.ts';
import { CleanedTransactions } from './cleaned-transactions.ts';
import { CleanerOffsetMap, offsetMapBytes } from './cleaner-offset-map.ts';
import { CompactionFilter } from './compaction-filter.ts';
import { type CompactionPlan, groupSegments, segmentsWithin } from './compaction-plan.ts';
import type { LogContext } from './log-context.ts';
import { abortedTransactions } from './log-reader.ts';
import { CLEANED_FILE_SUFFIX, LogSegment, segmentPath } from './log-segment.ts';
import type { LogStore } from './log-store.ts';
import type { SnapshotEntry } from './producer-snapshot.ts';
import { decompressedPayload, RecordCursor } from './record-cursor.ts';

/** Bytes read between two pauses, unless one batch is larger. */
export const SLICE_BYTES = 256 * 1024;
const FILE_KINDS = ['log', 'index', 'timeindex', 'txnindex'];

/** How a run is carried out. */
export interface CompactionOptions {
  /** Wall time of the run: delete horizons are judged and set by it. */
  readonly nowMs: number;
  /** Largest offset map in bytes; exceeded only for a single batch with more keys than fit. */
  readonly dedupeBufferBytes: number;
  /** 16 random bytes. */
  readonly seed: Uint8Array;
  /** Called after each slice with the bytes that were handled; resolves when work may go on. */
  readonly pause: (bytes: number) => Promise<void>;
  /** Asked after each batch: whether it is time for a pause, however few bytes it were. */
  readonly isSliceOver: () => boolean;
  /** Asked after each pause: whether the run has to end. */
  readonly isCancelled: () => boolean;
}

/** What a run did. */
export interface CompactionResult {
  readonly firstDirtyOffset: number;
  readonly passes: number;
  readonly bytesBefore: number;
  readonly bytesAfter: number;
  readonly recordsRead: number;
  readonly recordsKept: number;
}

/** The run has ended early, because of what else happened to the log; it may be tried again. */
export class CompactionAborted extends Error {
  override readonly name = 'CompactionAborted';
}

/** Sees a batch; false: enough seen. */
type Visit = (bytes: Uint8Array, at: number, header: BatchHeader) => boolean;

/** See the file header. */
export class LogCompaction {
  readonly #context: LogContext;
  readonly #store: LogStore;
  readonly #plan: CompactionPlan;
  readonly #options: CompactionOptions;
  readonly #header = new BatchHeader();
  readonly #truncations: number;
  readonly #producers: ReadonlyMap<bigint, SnapshotEntry>;
  #buffer = Buffer.allocUnsafeSlow(SLICE_BYTES);
  #bytesBefore = 0;
  #bytesAfter = 0;
  #recordsRead = 0;
  #recordsKept = 0;

  constructor(
    context: LogContext,
    store: LogStore,
    plan: CompactionPlan,
    options: CompactionOptions,
  ) {
    this.#context = context;
    this.#store = store;
    this.#plan = plan;
    this.#options = options;
    this.#truncations = store.truncations;
    const producers = store.producers.toSnapshot();
    this.#producers = new Map(producers.map((entry) => [entry.producerId, entry]));
  }

  /** Throws CompactionAborted, DiskError, and MalformedBytes for a damaged batch. */
  async run(): Promise<CompactionResult> {
    const { firstUncleanableOffset } = this.#plan;
    if (this.#store.recoveryPoint < firstUncleanableOffset) await this.#store.flush();
    this.#check();
    if (this.#store.recoveryPoint < firstUncleanableOffset) {
      throw new CompactionAborted('the log is not durable so far');
    }
    this.#context.checkpointRecoveryPoints();
    let dirty = this.#plan.firstDirtyOffset;
    let passes = 0;
    while (dirty < firstUncleanableOffset) {
      const map = await this.#fillMap(dirty);
      await this.#rewriteBelow(map);
      dirty = map.latestOffset + 1;
      this.#store.noteCompacted(dirty);
      passes++;
    }
    return {
      firstDirtyOffset: dirty,
      passes,
      bytesBefore: this.#bytesBefore,
      bytesAfter: this.#bytesAfter,
      recordsRead: this.#recordsRead,
      recordsKept: this.#recordsKept,
    };
  }

  #check(segment?: LogSegment): void {
    const store = this.#store;
    if (this.#options.isCancelled()) throw new CompactionAborted('cancelled');
    if (store.isClosed || store.offline !== undefined) throw new CompactionAborted('closed');
    if (store.truncations !== this.#truncations) throw new CompactionAborted('the log was cut');
    if (segment !== undefined && !store.segments.has(segment)) {
      throw new CompactionAborted('a segment was deleted');
    }
  }

  /** A map of the keys from `start` on, as far as they fit; at least of the first batch. */
  async #fillMap(start: number): Promise<CleanerOffsetMap> {
    const wanted = offsetMapBytes(this.#plan.firstUncleanableOffset - start);
    for (let bytes = this.#options.dedupeBufferBytes; ; bytes *= 2) {
      const map = new CleanerOffsetMap(Math.min(bytes, wanted), this.#options.seed);
      await this.#fill(map, start);
      if (map.latestOffset >= start) return map;
    }
  }

  async #fill(map: CleanerOffsetMap, start: number): Promise<void> {
    const { segments } = this.#store;
    const end = this.#plan.firstUncleanableOffset;
    const transactions = new CleanedTransactions();
    transactions.add(abortedTransactions(segments, start, end));
    const dirty = segmentsWithin(segments, start, end);
    for (const [index, segment] of dirty.entries()) {
      const position = index === 0 ? segment.offsetIndex.lookup(start) : 0;
      const isWhole = await this.#eachBatch(segment, position, (bytes, at, header) => {
        if (header.isControl) transactions.onControl(bytes, at, header, undefined);
        else if (!transactions.onData(header) && header.lastOffset >= start) {
          if (!this.#takeKeys(map, bytes, at, header, start)) return false;
        }
        if (header.lastOffset >= start) map.advanceTo(header.lastOffset);
        return true;
      });
      if (!isWhole) return;
      // There may be a gap before the next segment.
      map.advanceTo((dirty[index + 1]?.baseOffset ?? end) - 1);
    }
  }

  /** Puts the keys of a batch into the map; false: it is full. */
  #takeKeys(
    map: CleanerOffsetMap,
    bytes: Uint8Array,
    at: number,
    header: BatchHeader,
    start: number,
  ): boolean {
    if (header.recordCount === 0) return true;
    const batch = new RecordBatch(bytes, at);
    if (!batch.validCrc()) throw new MalformedBytes('CRC mismatch', at);
    const cursor = new RecordCursor(decompressedPayload(batch, this.#context.compression));
    for (let index = 0; index < header.recordCount; index++) {
      cursor.next();
      const offset = header.baseOffset + cursor.offsetDelta;
      if (cursor.keyStart < 0 || offset < start) continue;
      if (!map.put(cursor.bytes, cursor.keyStart, cursor.keyEnd, offset)) return false;
    }
    return true;
  }

  /** Writes the segments anew up to the one that the map ends in. */
  async #rewriteBelow(map: CleanerOffsetMap): Promise<void> {
    const { config, segments } = this.#store;
    const { firstUncleanableOffset } = this.#plan;
    const transactions = new CleanedTransactions();
    const filter = new CompactionFilter({
      map,
      transactions,
      producers: this.#producers,
      compression: this.#context.compression,
      nowMs: this.#options.nowMs,
      deleteRetentionMs: config.deleteRetentionMs,
      upperBound: firstUncleanableOffset,
    });
    const below = segmentsWithin(segments, 0, map.latestOffset + 1);
    for (const group of groupSegments(below, config, firstUncleanableOffset)) {
      await this.#rewriteGroup(group, transactions, filter);
    }
    this.#recordsRead += filter.recordsRead;
    this.#recordsKept += filter.recordsKept;
  }

  async #rewriteGroup(
    group: readonly LogSegment[],
    transactions: CleanedTransactions,
    filter: CompactionFilter,
  ): Promise<void> {
    const { segments } = this.#store;
    for (const segment of group) this.#check(segment);
    const cleaned = this.#newSegment(group);
    let isChanged = group.length > 1;
    try {
      for (const segment of group) {
        const next = segments.at(segments.floorIndex(segment.baseOffset) + 1);
        const end = next?.baseOffset ?? Infinity;
        transactions.add(abortedTransactions(segments, segment.baseOffset, end));
        if (await this.#copy(segment, cleaned, filter)) isChanged = true;
      }
      cleaned.becomeInactive();
      if (isChanged) await cleaned.sync();
      for (const segment of group) this.#check(segment);
    } catch (error) {
      this.#discard(cleaned);
      throw error;
    }
    for (const segment of group) this.#bytesBefore += segment.size;
    this.#bytesAfter += cleaned.size;
    if (isChanged) this.#store.onDisk(() => this.#store.replaceSegments(group, cleaned));
    else this.#discard(cleaned);
  }

  /** An empty segment under `.cleaned` names, as old as the youngest of the group. */
  #newSegment(group: readonly LogSegment[]): LogSegment {
    const { disk, files } = this.#context;
    const { directory, config } = this.#store;
    const baseOffset = (group[0] as LogSegment).baseOffset;
    const path = segmentPath(directory, baseOffset);
    for (const kind of FILE_KINDS) disk.remove(`${path}.${kind}${CLEANED_FILE_SUFFIX}`);
    const createdMs = (group.at(-1) as LogSegment).createdMs;
    const suffix = CLEANED_FILE_SUFFIX;
    const none = new Set<string>();
    const segment = new LogSegment(files, directory, baseOffset, config, createdMs, none, suffix);
    segment.create();
    segment.becomeActive(0, 0);
    return segment;
  }

  #discard(cleaned: LogSegment): void {
    try {
      cleaned.remove();
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      const reason = error.message;
      this.#context.logger.warn('files of a compaction are left for the next start', { reason });
    }
  }

  /** Copies what stays of a segment; whether that is not all of it. */
  async #copy(
    segment: LogSegment,
    cleaned: LogSegment,
    filter: CompactionFilter,
  ): Promise<boolean> {
    const { indexIntervalBytes } = this.#store.config;
    const written = new BatchHeader();
    let isChanged = false;
    let kept: Uint8Array[] = [];
    const visit: Visit = (bytes, at, header) => {
      const out = filter.filter(bytes, at, header, cleaned.transactionIndex);
      if (out !== undefined) kept.push(out);
      if (out?.buffer !== bytes.buffer) isChanged = true;
      return true;
    };
    await this.#eachBatch(segment, 0, visit, () => {
      const byteCount = kept.reduce((sum, bytes) => sum + bytes.length, 0);
      if (byteCount > 0) cleaned.append(kept, byteCount);
      for (const bytes of kept) {
        written.read(bytes, 0);
        cleaned.note(written, indexIntervalBytes);
      }
      kept = [];
    });
    return isChanged;
  }

  /**
   * Visits the batches of a segment from `position` on, in slices; `afterSlice` comes while their
   * bytes are still there. False: the visitor had seen enough.
   */
  async #eachBatch(
    segment: LogSegment,
    position: number,
    visit: Visit,
    afterSlice?: () => void,
  ): Promise<boolean> {
    const header = this.#header;
    for (let from = position; from < segment.size; ) {
      const length = segment.read(this.#buffer, from);
      let at = 0;
      let problem = header.read(this.#buffer, 0, length);
      while (problem === undefined && at + header.size <= length) {
        if (!visit(this.#buffer, at, header)) return false;
        at += header.size;
        if (this.#options.isSliceOver()) break;
        problem = header.read(this.#buffer, at, length);
      }
      if (at === 0) this.#makeRoom(segment, from, problem === undefined);
      else afterSlice?.();
      from += at;
      await this.#options.pause(at);
      this.#check(segment);
    }
    return true;
  }

  /** For a batch at `position` that does not fit into the buffer, if that is what is wrong. */
  #makeRoom(segment: LogSegment, position: number, hasHeader: boolean): void {
    const { size } = this.#header;
    const fits = hasHeader && position + size <= segment.size && size > this.#buffer.length;
    if (!fits) throw new MalformedBytes(`no batch in ${segment.path}`, position);
    this.#buffer = Buffer.allocUnsafeSlow(size);
  }
}
