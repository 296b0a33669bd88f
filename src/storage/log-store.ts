/**
 * The files behind one log: segments, epochs, producer state and what is durable of them.
 *
 * Owned by `log.ts`, which decides what may be appended or cut; here it is done. Invariants:
 * - A new segment begins where the last batch of the one before ended, so that recovery can tell a
 *   lost tail from a gap; where relative offsets do not allow that, the log is synced first.
 * - A cut is durable before it returns, the lowered recovery point even before it begins.
 * - The recovery point moves only when data, indexes, epochs and directory below it are synced. Of
 *   a log without records nothing is: a topic with many partitions would cost as many fsyncs.
 * - After a failed disk call nothing is known of the file: the log is offline until the next start.
 */
import { DiskError, type Timer } from '../io/runtime.ts';
import { BatchHeader } from './batch-header.ts';
import { applyToProducers, scanBatches } from './batch-scan.ts';
import type { EpochEntry } from './checkpoints.ts';
import type { LeaderEpochCache } from './leader-epoch-cache.ts';
import type { LogConfig } from './log-config.ts';
import type { FlushTarget, LogContext, NewLog } from './log-context.ts';
import { loadProducerState, makeNamed } from './log-recovery.ts';
import {
  CLEANED_FILE_SUFFIX,
  LogSegment,
  MAX_OFFSET_SPAN,
  SWAP_FILE_SUFFIX,
} from './log-segment.ts';
import type { LogSegments } from './log-segments.ts';
import {
  listSnapshots,
  type SnapshotEntry,
  snapshotPath,
  writeSnapshot,
} from './producer-snapshot.ts';
import type { ProducerState } from './producer-state.ts';
import { numberFromHalves } from './time-index.ts';
import type { TopicPartition } from './topic-partition.ts';

/** The batch that is looked at; nothing waits while it is. */
const header = new BatchHeader();

/** Segments and what is derived from them. */
export class LogStore implements FlushTarget {
  readonly segments: LogSegments;
  readonly producers: ProducerState;
  readonly epochs: LeaderEpochCache;
  readonly directory: string;
  readonly #topicPartition: TopicPartition;
  readonly #context: LogContext;
  #deletions: Set<Timer> | undefined;
  #config: LogConfig;
  #logEndOffset: number;
  #batchesEnd: number;
  #recoveryPoint: number;
  #firstDirtyOffset: number | undefined;
  #lastSnapshotOffset: number | undefined;
  /** The active segment's share of `segment.jitter.ms`, drawn when it is first needed. */
  #rollJitter: number | undefined;
  /** Truncations so far: a flush that overlaps one proves nothing. */
  #truncations = 0;
  /** Files were created, renamed or removed since the directory was synced. */
  #directoryChanged: boolean;
  /** The directory itself and its topic id are durable. Not before the first flush. */
  #isNamed: boolean;
  #flushing: Promise<void> | undefined;
  #offline: DiskError | undefined;
  #closed = false;

  constructor(context: LogContext, log: NewLog) {
    const { loaded } = log;
    this.#context = context;
    this.#topicPartition = log.topicPartition;
    this.directory = log.directory;
    this.#config = log.config;
    this.segments = loaded.segments;
    this.producers = loaded.producers;
    this.epochs = loaded.epochs;
    this.#logEndOffset = loaded.logEndOffset;
    this.#batchesEnd = loaded.logEndOffset;
    this.#recoveryPoint = loaded.recoveryPoint;
    // Beyond the end is of no log that this is, or was.
    const isKnown = (log.firstDirtyOffset ?? Infinity) <= loaded.logEndOffset;
    this.#firstDirtyOffset = isKnown ? log.firstDirtyOffset : undefined;
    this.#lastSnapshotOffset = loaded.lastSnapshotOffset;
    this.#directoryChanged = !loaded.isDurable;
    this.#isNamed = loaded.isNamed;
  }

  get config(): LogConfig {
    return this.#config;
  }

  get logEndOffset(): number {
    return this.#logEndOffset;
  }

  /** Behind the last batch; below the log end after a cut into an offset gap. */
  get batchesEnd(): number {
    return this.#batchesEnd;
  }

  /** What lies below was made durable. */
  get recoveryPoint(): number {
    return this.#recoveryPoint;
  }

  /** The log below was compacted; undefined: never. */
  get firstDirtyOffset(): number | undefined {
    return this.#firstDirtyOffset;
  }

  /** The log below `offset` holds no key twice. */
  noteCompacted(offset: number): void {
    this.#firstDirtyOffset = offset;
  }

  /** Cuts so far: what was seen of the log before one may be gone. */
  get truncations(): number {
    return this.#truncations;
  }

  /** Whether nothing may be written any more. */
  get isClosed(): boolean {
    return this.#closed;
  }

  /** Whether it was ever flushed: then its recovery point is to be written down, even 0. */
  get isNamed(): boolean {
    return this.#isNamed;
  }

  /** The disk call that took the log offline. */
  get offline(): DiskError | undefined {
    return this.#offline;
  }

  updateConfig(config: LogConfig): void {
    this.#config = config;
    this.segments.active.setIndexBytes(config.segmentIndexBytes);
  }

  /**
   * Writes checked batches that end with `lastOffset`, in as few writes as segments allow.
   * `timestampMs` is the last batch's.
   */
  append(
    chunks: readonly Uint8Array[],
    byteCount: number,
    lastOffset: number,
    timestampMs: number,
  ): void {
    const nowMs = this.#context.clock.wallMs();
    const { active } = this.segments;
    const ageMs = this.#rollAgeMs(timestampMs, nowMs);
    const fits =
      byteCount <= this.#config.segmentBytes &&
      !active.mustRoll(0, byteCount, lastOffset, this.#config, ageMs);
    if (fits) this.#writeRun(chunks, byteCount);
    else this.#appendWithRolls(chunks, nowMs);
    if (this.#logEndOffset - this.#recoveryPoint >= this.#config.flushMessages) this.flushSoon();
    else this.#scheduleFlush();
  }

  /** `flush.ms`: within that time, unless the log already has a term. */
  #scheduleFlush(): void {
    const { flushMs } = this.#config;
    if (flushMs < Number.MAX_SAFE_INTEGER) this.#context.flushes.add(this, flushMs);
  }

  /** Age of the active segment; `segment.jitter.ms` makes it older by a random time. */
  #rollAgeMs(timestampMs: number, nowMs: number): number {
    const { segmentJitterMs, segmentMs } = this.#config;
    const ageMs = this.segments.active.rollAgeMs(timestampMs, nowMs);
    if (segmentJitterMs <= 0) return ageMs;
    this.#rollJitter ??= this.#context.random.fraction();
    return ageMs + Math.floor(this.#rollJitter * Math.min(segmentJitterMs, segmentMs));
  }

  #appendWithRolls(chunks: readonly Uint8Array[], nowMs: number): void {
    let run: Uint8Array[] = [];
    let runBytes = 0;
    for (const chunk of chunks) {
      let from = 0;
      for (let at = 0; at < chunk.length; ) {
        header.read(chunk, at);
        const { size, baseOffset, lastOffset } = header;
        const timestampMs = numberFromHalves(header.maxTimestampHigh, header.maxTimestampLow);
        const { active } = this.segments;
        const ageMs = this.#rollAgeMs(timestampMs, nowMs);
        if (active.mustRoll(runBytes, size, lastOffset, this.#config, ageMs)) {
          if (at > from) run.push(chunk.subarray(from, at));
          if (runBytes > 0) this.#writeRun(run, runBytes);
          run = [];
          runBytes = 0;
          from = at;
          this.roll(baseOffset, lastOffset);
        }
        runBytes += size;
        at += size;
      }
      run.push(from === 0 ? chunk : chunk.subarray(from));
    }
    if (runBytes > 0) this.#writeRun(run, runBytes);
  }

  /** One write into the active segment; then indexes, epochs and producers learn of it. */
  #writeRun(chunks: readonly Uint8Array[], byteCount: number): void {
    const { active } = this.segments;
    const { indexIntervalBytes } = this.#config;
    active.append(chunks, byteCount);
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length; at += header.size) {
        header.read(chunk, at);
        this.epochs.assign(header.leaderEpoch, header.baseOffset);
        active.note(header, indexIntervalBytes);
        applyToProducers(this.producers, active, header, chunk, at);
      }
    }
    this.#batchesEnd = header.lastOffset + 1;
    this.#logEndOffset = this.#batchesEnd;
  }

  /** The files are renamed now and removed after `file.delete.delay.ms`. */
  deleteFirst(count: number): void {
    for (const segment of this.segments.takeFirst(count)) {
      const paths = segment.renameDeleted();
      this.#context.disk.remove(snapshotPath(this.directory, segment.baseOffset));
      this.#directoryChanged = true;
      this.#removeLater(paths);
    }
  }

  #removeLater(paths: readonly string[]): void {
    const { clock, disk, logger } = this.#context;
    const timer = clock.setTimer(this.#config.fileDeleteDelayMs, () => {
      this.#deletions?.delete(timer);
      try {
        for (const path of paths) disk.remove(path);
      } catch (error) {
        if (!(error instanceof DiskError)) throw error;
        logger.warn('deleted segment is left for the next start', { reason: error.message });
      }
    });
    this.#deletions ??= new Set();
    this.#deletions.add(timer);
  }

  /**
   * Puts a compacted segment, durable under its `.cleaned` names, in the place of those it was made
   * of. Whatever a crash leaves, `swap-recovery.ts` makes it the old segments or the new one; only
   * records that have a newer one of their key can be there twice.
   */
  replaceSegments(old: readonly LogSegment[], cleaned: LogSegment): void {
    const { disk } = this.#context;
    this.#directoryChanged = true;
    cleaned.changeSuffix(CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX);
    // From here on the new segment counts.
    disk.syncDirectory(this.directory);
    // The last one first: a value must not be left while the tombstone above it is gone.
    const paths = old.toReversed().flatMap((segment) => segment.renameDeleted());
    cleaned.changeSuffix(SWAP_FILE_SUFFIX, '');
    this.segments.replace(old, cleaned);
    for (const { baseOffset } of old.slice(1))
      disk.remove(snapshotPath(this.directory, baseOffset));
    disk.syncDirectory(this.directory);
    this.#removeLater(paths);
  }

  /** A new segment for a batch of these offsets. */
  roll(firstOffset: number, lastOffset: number): void {
    const old = this.segments.active;
    const isFar = lastOffset - this.#batchesEnd > MAX_OFFSET_SPAN;
    const baseOffset = isFar ? firstOffset : this.#batchesEnd;
    old.becomeInactive();
    this.#takeSnapshot(baseOffset);
    const segment = this.#newSegment(baseOffset);
    this.segments.push(segment);
    this.#batchesEnd = baseOffset;
    if (isFar) this.#makeGapDurable(baseOffset);
    else this.flushSoon();
  }

  #newSegment(baseOffset: number): LogSegment {
    const { files, clock } = this.#context;
    const now = clock.wallMs();
    const segment = new LogSegment(files, this.directory, baseOffset, this.#config, now);
    segment.create();
    segment.becomeActive(0, 0);
    this.#directoryChanged = true;
    this.#rollJitter = undefined;
    return segment;
  }

  /** A segment that does not begin where the last one ended must not look like a lost tail. */
  #makeGapDurable(baseOffset: number): void {
    for (const segment of this.segments.from(this.#recoveryPoint)) {
      if (segment.writeIndexes()) this.#directoryChanged = true;
      segment.syncNow();
    }
    if (this.epochs.flush(this.#logEndOffset)) this.#directoryChanged = true;
    this.#syncDirectory();
    this.#recoveryPoint = baseOffset;
    this.#context.checkpointRecoveryPoints();
  }

  #takeSnapshot(offset: number): void {
    if (this.#lastSnapshotOffset === offset) return;
    const path = snapshotPath(this.directory, offset);
    writeSnapshot(this.#context.disk, path, this.producers.toSnapshot());
    this.#lastSnapshotOffset = offset;
    this.#directoryChanged = true;
  }

  #removeSnapshots(doomed: (offset: number) => boolean): void {
    const { disk } = this.#context;
    for (const offset of listSnapshots(disk, this.directory).filter(doomed)) {
      disk.remove(snapshotPath(this.directory, offset));
    }
    this.#directoryChanged = true;
  }

  #syncDirectory(): void {
    if (!this.#isNamed) makeNamed(this.#context, this.directory);
    else if (this.#directoryChanged) this.#context.disk.syncDirectory(this.directory);
    this.#isNamed = true;
    this.#directoryChanged = false;
  }

  /** Nothing was ever written: what a crash leaves of it is the same when made anew. */
  #isUnused(): boolean {
    const { segments } = this;
    const isEmpty = segments.count === 1 && segments.active.size === 0;
    return !this.#isNamed && isEmpty && this.#logEndOffset === 0;
  }

  /** Lets go of memory that only appending needs; the next append takes it again. */
  releaseMemory(): void {
    this.segments.active.unloadIndexes();
  }

  /** Cuts inside or behind the first segment; see `Log.truncateTo`. */
  cut(offset: number, logStartOffset: number, highWatermark: number): void {
    const index = this.segments.floorIndex(offset);
    const segment = this.segments.at(index) as LogSegment;
    const found = segment.find(offset);
    if (found !== undefined && found.baseOffset < logStartOffset) {
      // The log start lies inside the batch that goes: no record is left.
      this.restartAt(logStartOffset);
      return;
    }
    const target = Math.min(offset, found?.baseOffset ?? offset);
    const durableTo = this.#recoveryPoint;
    // What the first segment begins with is all that is known of what came before.
    const snapshotUpTo = Math.max(this.segments.first.baseOffset, Math.min(highWatermark, target));
    // There may be a gap before the cut: it is not known yet where the batches will end.
    this.#beginCut(segment.baseOffset);
    for (const later of this.segments.takeFrom(index + 1)) later.remove();
    if (found !== undefined) segment.truncate(found.position, found.baseOffset);
    this.#logEndOffset = target;
    this.#reopenActive();
    this.#endCut(target, logStartOffset, snapshotUpTo);
    this.#recoveryPoint = Math.min(durableTo, this.#batchesEnd);
  }

  /** Makes the last segment appendable: its end is looked for behind the last index entry. */
  #reopenActive(): void {
    const { active } = this.segments;
    const entries = active.offsetIndex.file.count;
    const from = entries === 0 ? 0 : active.offsetIndex.positionAt(entries - 1);
    this.#batchesEnd = active.baseOffset;
    active.becomeActive(from, 0);
    scanBatches(active, from, false, (_bytes, _at, header) => {
      active.note(header, this.#config.indexIntervalBytes);
      this.#batchesEnd = header.lastOffset + 1;
      return 'continue';
    });
  }

  /**
   * Drops everything; the log goes on at `offset`. At no moment is there no segment, and whatever a
   * crash leaves is the beginning of the old log or the new one. `epochs`: of records below
   * `offset` that are on other replicas.
   */
  restartAt(offset: number, epochs?: readonly EpochEntry[]): void {
    this.#beginCut(Math.min(offset, this.segments.first.baseOffset));
    this.epochs.reset(epochs?.filter((entry) => entry.startOffset < offset));
    // No batch of the new log could teach them; an old log that is left has them too, or is empty.
    if (epochs !== undefined && this.epochs.flush(offset)) this.#syncDirectory();
    const old = this.segments.takeFrom(0);
    const reused = old.find((segment) => segment.baseOffset === offset);
    const segment = reused ?? this.#newSegment(offset);
    for (const other of old) if (other !== reused) other.remove();
    if (reused !== undefined) {
      reused.truncate(0, offset);
      reused.becomeActive(0, 0);
    }
    this.segments.push(segment);
    this.#logEndOffset = offset;
    this.#batchesEnd = offset;
    this.producers.clear();
    this.#removeSnapshots(() => true);
    this.#endCut(offset, offset, offset);
  }

  /** Of an empty log: what its producers are. Durable when it returns. */
  adoptProducers(entries: readonly SnapshotEntry[]): void {
    const path = snapshotPath(this.directory, this.#logEndOffset);
    writeSnapshot(this.#context.disk, path, entries, true);
    this.#lastSnapshotOffset = this.#logEndOffset;
    this.#directoryChanged = true;
    this.#syncDirectory();
    this.producers.fromSnapshot(entries);
  }

  /** The recovery point is durably below the cut before anything is cut. */
  #beginCut(target: number): void {
    this.#truncations++;
    if (this.#firstDirtyOffset !== undefined && this.#firstDirtyOffset > target) {
      this.#firstDirtyOffset = target;
      this.#context.checkpointCleanedOffsets();
    }
    const isNew = !this.#isNamed;
    // A log whose recovery point is nowhere is taken for one that was never cut.
    if (isNew) this.#syncDirectory();
    if (this.#recoveryPoint <= target && !isNew) return;
    this.#recoveryPoint = Math.min(this.#recoveryPoint, target);
    this.#context.checkpointRecoveryPoints();
  }

  /** Everything that depends on the log end follows; then the cut is made durable. */
  #endCut(target: number, logStartOffset: number, snapshotUpTo: number): void {
    const { disk } = this.#context;
    this.#removeSnapshots((offset) => offset > target);
    loadProducerState(disk, this.directory, this.producers, this.segments, {
      from: logStartOffset,
      to: target,
      snapshotUpTo,
      snapshots: listSnapshots(disk, this.directory),
    });
    this.#lastSnapshotOffset = listSnapshots(disk, this.directory).at(-1);
    this.epochs.truncateFromEnd(target);
    if (this.epochs.flush(this.#logEndOffset)) this.#directoryChanged = true;
    this.segments.active.syncNow();
    this.#directoryChanged = true;
    this.#syncDirectory();
  }

  /** Makes everything appended so far durable; then the recovery point moves there. */
  async flush(): Promise<void> {
    const target = this.#batchesEnd;
    const truncations = this.#truncations;
    while (this.#flushing !== undefined) await this.#flushing;
    if (this.#offline !== undefined) throw this.#offline;
    if (this.#recoveryPoint >= target && this.#truncations === truncations) return;
    this.#flushing = this.#flushNow();
    try {
      await this.#flushing;
    } catch (error) {
      this.#failed(error);
      throw error;
    } finally {
      this.#flushing = undefined;
    }
  }

  async #flushNow(): Promise<void> {
    const target = this.#batchesEnd;
    const truncations = this.#truncations;
    const segments = this.segments.from(this.#recoveryPoint);
    for (const segment of segments) if (segment.writeIndexes()) this.#directoryChanged = true;
    await Promise.all(segments.map((segment) => segment.sync()));
    if (this.epochs.flush(this.#logEndOffset)) this.#directoryChanged = true;
    this.#syncDirectory();
    if (this.#truncations !== truncations) return;
    this.#recoveryPoint = Math.max(this.#recoveryPoint, target);
    this.#context.flushes.delete(this);
    if (this.#recoveryPoint < this.#batchesEnd) this.#scheduleFlush();
  }

  /** A failure takes the log offline and is logged there; nobody waits for the result. */
  flushSoon(): void {
    if (this.#flushing !== undefined || this.#closed) return;
    this.flush().catch((error) => {
      if (!(error instanceof DiskError)) throw error;
    });
  }

  /** Completes indexes, takes a producer snapshot, makes all durable, closes the files. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const timer of this.#deletions ?? []) timer.cancel();
    this.#deletions = undefined;
    if (this.#offline === undefined && !this.#isUnused()) {
      this.onDisk(() => {
        this.segments.active.becomeInactive();
        // An empty log has no producers to remember, or a snapshot from when it became empty.
        if (this.#logEndOffset > this.segments.first.baseOffset) {
          this.#takeSnapshot(this.#logEndOffset);
        }
      });
      while (this.#flushing !== undefined) await this.#flushing;
      // Indexes were completed: there is something to sync even if no record is.
      this.#flushing = this.#flushNow();
      try {
        await this.#flushing;
      } catch (error) {
        this.#failed(error);
        throw error;
      } finally {
        this.#flushing = undefined;
      }
    }
    for (const segment of this.segments.all()) segment.close();
  }

  /** The directory has a new name: the partition is being deleted. Nothing may follow. */
  abandon(): void {
    this.#closed = true;
    for (const timer of this.#deletions ?? []) timer.cancel();
    this.#deletions = undefined;
    for (const segment of this.segments.all()) segment.close();
    this.#offline ??= new DiskError('ENOENT', 'deleted', this.directory);
  }

  /** Runs something that uses the disk; a DiskError takes the log offline and goes on upwards. */
  onDisk<T>(work: () => T): T {
    if (this.#offline !== undefined) throw this.#offline;
    try {
      return work();
    } catch (error) {
      this.#failed(error);
      throw error;
    }
  }

  #failed(error: unknown): void {
    if (!(error instanceof DiskError) || this.#offline !== undefined) return;
    this.#offline = error;
    const { topic, partition } = this.#topicPartition;
    this.#context.logger.error('log is offline', { topic, partition, reason: error.message });
  }
}
