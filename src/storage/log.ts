/**
 * One partition's log: appending, reading, truncating, making durable.
 *
 * Owned by a LogManager, used by `replication/partition.ts` and the metadata controller. All but
 * `flush` and `close` is synchronous. Invariants:
 * - logStartOffset ≤ lastStableOffset ≤ highWatermark ≤ logEndOffset; recoveryPoint ≤ logEndOffset.
 * - An append is checked as a whole before anything is written; a refused one changes nothing.
 * - A cut is durable before it returns.
 * - A *partial* log begins at localLogStartOffset, above its log start: what lies between is on
 *   other replicas only (G29). It is never given out as if there were nothing, and never deleted by
 *   this log's retention, as all other replicas follow a leader's log start.
 * - After a failed disk call the log is offline until the next start.
 */
import { assert } from '../base/assert.ts';
import type { Uuid } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import { RecordBatch } from '../protocol/record-batch.ts';
import { type Refusal, validateClientBatch } from './append-validation.ts';
import type { EpochEntry } from './checkpoints.ts';
import { type CompactionPlan, planCompaction } from './compaction-plan.ts';
import { checkFollowed } from './followed-batches.ts';
import type { EpochEndOffset } from './leader-epoch-cache.ts';
import { type AppendOrigin, checkLed } from './led-batches.ts';
import { type CompactionOptions, type CompactionResult, LogCompaction } from './log-compaction.ts';
import type { LogConfig } from './log-config.ts';
import type { LogContext, NewLog } from './log-context.ts';
import {
  abortedTransactions,
  type FoundTimestamp,
  findBatch,
  findByTimestamp,
  findMaxTimestamp,
  readBatches,
} from './log-reader.ts';
import { deletableSegments } from './log-retention.ts';
import { LogStore } from './log-store.ts';
import type { SnapshotEntry } from './producer-snapshot.ts';
import type { OpenTransaction } from './producer-state.ts';
import type { TopicPartition } from './topic-partition.ts';

/** What became of an append. */
export type AppendResult =
  | Refusal
  | {
      readonly error: 0;
      readonly firstOffset: number;
      readonly lastOffset: number;
      /** −1 unless the topic has log append time. */
      readonly logAppendTimeMs: number;
      readonly logStartOffset: number;
      /** The batch was in the log already; these are its offsets. */
      readonly duplicate: boolean;
      readonly appendedBytes: number;
    };

/** How far a reader may see. */
export type FetchIsolation = 'logEnd' | 'highWatermark' | 'lastStable';

/** An aborted transaction in a fetch response. */
export interface FetchedAbort {
  readonly producerId: bigint;
  readonly firstOffset: number;
  /** Of the ABORT marker; not sent. */
  readonly lastOffset: number;
}

/** What a read found. */
export type ReadResult =
  | { readonly error: Exclude<ErrorCode, 0> }
  | {
      readonly error: 0;
      readonly records: readonly Uint8Array[];
      readonly bytes: number;
      readonly highWatermark: number;
      readonly lastStableOffset: number;
      readonly logStartOffset: number;
      /** Only for reads up to the last stable offset. */
      readonly abortedTransactions?: readonly FetchedAbort[];
    };

type Appended = Extract<AppendResult, { error: 0 }>;

/** A partition's log. */
export class Log {
  readonly topicPartition: TopicPartition;
  #topicId: Uuid | undefined;
  readonly #context: LogContext;
  readonly #store: LogStore;
  #logStartOffset: number;
  #highWatermark: number;
  /** See the file header. */
  #isPartial: boolean;
  /** Where the log is about to begin above its start. */
  #beginning = 0;

  constructor(context: LogContext, log: NewLog) {
    this.#context = context;
    this.#store = new LogStore(context, log);
    this.topicPartition = log.topicPartition;
    this.#topicId = log.topicId;
    this.#logStartOffset = log.loaded.logStartOffset;
    this.#highWatermark = log.loaded.logStartOffset;
    this.#isPartial = this.#logStartOffset < this.#store.segments.first.baseOffset;
  }

  /** Undefined: the directory does not say, and nobody has yet. */
  get topicId(): Uuid | undefined {
    return this.#topicId;
  }

  /** The log has no topic id: this one was durably written beside it. LogManager only. */
  adopt(topicId: Uuid): void {
    this.#topicId ??= topicId;
  }

  get directory(): string {
    return this.#store.directory;
  }

  get config(): LogConfig {
    return this.#store.config;
  }

  get logStartOffset(): number {
    return this.#logStartOffset;
  }

  /** The lowest offset that can be read here; above the log start in a partial log. */
  get localLogStartOffset(): number {
    return Math.max(this.#logStartOffset, this.#store.segments.first.baseOffset);
  }

  get logEndOffset(): number {
    return this.#store.logEndOffset;
  }

  /** Base offset of the first batch that can be read here; undefined: none. May throw DiskError. */
  firstBatchOffset(): number | undefined {
    const { segments, offline } = this.#store;
    if (offline !== undefined) return undefined;
    const from = this.localLogStartOffset;
    return this.#store.onDisk(() => findBatch(segments, from)?.found.baseOffset);
  }

  /** Behind the last batch: where the log ends after a restart, and for whoever copies it. */
  get batchesEnd(): number {
    return this.#store.batchesEnd;
  }

  /** No record is here; in a partial log others may have some. */
  get isEmpty(): boolean {
    return this.#store.logEndOffset === this.#store.segments.first.baseOffset;
  }

  get highWatermark(): number {
    return this.#highWatermark;
  }

  get lastStableOffset(): number {
    const unstable = this.#store.producers.firstUnstableOffset;
    if (unstable === undefined || unstable >= this.#highWatermark) return this.#highWatermark;
    return Math.max(unstable, this.#logStartOffset);
  }

  get latestEpoch(): number | undefined {
    return this.#store.epochs.latestEpoch;
  }

  get sizeBytes(): number {
    return this.#store.segments.all().reduce((sum, segment) => sum + segment.size, 0);
  }

  /** What lies below was made durable. */
  get recoveryPoint(): number {
    return this.#store.recoveryPoint;
  }

  /** Up to where the log is durable; the log end when all of it is. */
  get durableEndOffset(): number {
    const { recoveryPoint, batchesEnd, logEndOffset } = this.#store;
    return recoveryPoint < batchesEnd ? recoveryPoint : logEndOffset;
  }

  /** The recovery point, for its checkpoint; undefined for a log that was never flushed. */
  get checkpointedRecoveryPoint(): number | undefined {
    return this.#store.isNamed ? this.#store.recoveryPoint : undefined;
  }

  /** A disk call failed: everything is answered with KAFKA_STORAGE_ERROR from then on. */
  get isOffline(): boolean {
    return this.#store.offline !== undefined;
  }

  /** The log start, for its checkpoint; undefined when it is where the first segment begins. */
  get checkpointedLogStart(): number | undefined {
    const isInside = this.#logStartOffset > this.#store.segments.first.baseOffset;
    return isInside || this.#isPartial ? this.#logStartOffset : undefined;
  }

  /** Where the first segment of a partial log begins at most, for its checkpoint. */
  get checkpointedLocalLogStart(): number | undefined {
    if (!this.#isPartial) return undefined;
    return Math.max(this.#store.segments.first.baseOffset, this.#beginning);
  }

  updateConfig(config: LogConfig): void {
    this.#store.updateConfig(config);
  }

  /**
   * Appends batches of a client, a coordinator or the controller. Offsets and `leaderEpoch` are
   * patched into `records`, timestamps too with log append time. May throw DiskError.
   */
  appendAsLeader(records: Uint8Array, leaderEpoch: number, origin: AppendOrigin): AppendResult {
    return this.#guarded(() => {
      let bytes = records;
      const nowMs = this.#context.clock.wallMs();
      if (origin === 'client') {
        const { compression } = this.#context;
        const accepted = validateClientBatch(records, {
          config: this.#store.config,
          nowMs,
          compression,
        });
        if (accepted.error !== 0) return accepted;
        bytes = accepted.bytes;
      }
      const { producers, logEndOffset } = this.#store;
      const checked = checkLed(bytes, producers, logEndOffset, origin);
      if (checked.error !== 0) return checked;
      if (checked.duplicate !== undefined) {
        return { ...this.#appended(-1, 0, -1), ...checked.duplicate, duplicate: true };
      }
      const stamped =
        origin !== 'raftLeader' && this.#store.config.messageTimestampType !== 'CreateTime';
      let offset = logEndOffset;
      for (let at = 0; at < bytes.length; ) {
        const batch = new RecordBatch(bytes, at);
        batch.setBaseOffset(offset);
        batch.setPartitionLeaderEpoch(leaderEpoch);
        if (stamped && origin !== 'client') batch.setLogAppendTime(nowMs);
        offset = batch.nextOffset;
        at = batch.end;
      }
      this.#store.append([bytes], bytes.length, offset - 1, checked.lastTimestampMs);
      return this.#appended(logEndOffset, bytes.length, stamped ? nowMs : -1);
    });
  }

  /**
   * Appends what a leader, or the source of a mirror, has: offsets, epochs and bytes stay, gaps are
   * allowed, offsets below the log end are refused. The chunks hold whole batches and are free for
   * reuse when the call returns. May throw DiskError.
   */
  appendAsFollower(
    records: readonly Uint8Array[],
    options: { readonly verifyCrc: boolean },
  ): AppendResult {
    return this.#guarded(() => {
      const checked = checkFollowed(records, this.#store.logEndOffset, options.verifyCrc);
      if (checked.error !== 0) return checked;
      const { firstOffset, nextOffset, byteCount, lastTimestampMs } = checked;
      if (firstOffset < 0) return this.#appended(this.#store.logEndOffset, 0, -1);
      this.#store.append(records, byteCount, nextOffset - 1, lastTimestampMs);
      return this.#appended(firstOffset, byteCount, -1);
    });
  }

  #appended(firstOffset: number, appendedBytes: number, logAppendTimeMs: number): Appended {
    return {
      error: 0,
      firstOffset,
      lastOffset: this.#store.logEndOffset - 1,
      logAppendTimeMs,
      logStartOffset: this.#logStartOffset,
      duplicate: false,
      appendedBytes,
    };
  }

  /** Bytes are whole batches from the one holding `startOffset` on. May throw DiskError. */
  read(
    startOffset: number,
    maxBytes: number,
    isolation: FetchIsolation,
    minOneBatch: boolean,
  ): ReadResult {
    if (this.#store.offline !== undefined) return { error: ErrorCode.KAFKA_STORAGE_ERROR };
    if (startOffset < this.#logStartOffset || startOffset > this.#store.logEndOffset) {
      return { error: ErrorCode.OFFSET_OUT_OF_RANGE };
    }
    if (this.isElsewhere(startOffset)) return { error: ErrorCode.NOT_LEADER_OR_FOLLOWER };
    const lastStableOffset = this.lastStableOffset;
    const logEndOffset = this.#store.logEndOffset;
    const upperOffset =
      isolation === 'logEnd'
        ? logEndOffset
        : isolation === 'highWatermark'
          ? this.#highWatermark
          : lastStableOffset;
    const range = { startOffset, upperOffset, logEndOffset, maxBytes, minOneBatch };
    return this.#store.onDisk(() => {
      const { bytes, endOffset } = readBatches(this.#store.segments, range, this.#context.buffers);
      const result = {
        error: 0 as const,
        records: bytes === undefined ? [] : [bytes],
        bytes: bytes?.length ?? 0,
        highWatermark: this.#highWatermark,
        lastStableOffset,
        logStartOffset: this.#logStartOffset,
      };
      if (isolation !== 'lastStable') return result;
      const aborted =
        bytes === undefined
          ? []
          : abortedTransactions(this.#store.segments, startOffset, endOffset);
      return { ...result, abortedTransactions: aborted };
    });
  }

  /**
   * Whether other replicas have what is to be read at `offset`, and this one has not. Readers are
   * told NOT_LEADER_OR_FOLLOWER then: every client takes it for "ask again later", Apache's
   * followers try again after their backoff without a word in the log (OFFSET_NOT_AVAILABLE is an
   * error line each time), and neither lets go of its position, as with OFFSET_OUT_OF_RANGE.
   */
  isElsewhere(offset: number): boolean {
    if (!this.#isPartial || offset < this.#logStartOffset) return false;
    return offset < this.#store.segments.first.baseOffset;
  }

  /** The first record with this timestamp or a later one. */
  offsetForTimestamp(timestamp: bigint): FoundTimestamp {
    const bounds = { logStartOffset: this.#logStartOffset, isPartial: this.#isPartial };
    return this.#store.onDisk(() =>
      findByTimestamp(this.#store.segments, timestamp, bounds, this.#context.compression),
    );
  }

  /** The first record with the largest timestamp. */
  maxTimestamp(): FoundTimestamp {
    return this.#store.onDisk(() =>
      findMaxTimestamp(this.#store.segments, this.#isPartial, this.#context.compression),
    );
  }

  /** Answer to OffsetForLeaderEpoch. */
  epochEndOffset(requestedEpoch: number): EpochEndOffset {
    return this.#store.epochs.endOffsetFor(requestedEpoch, this.#store.logEndOffset);
  }

  /** The leader epoch of the record at `offset`. */
  epochForOffset(offset: number): number | undefined {
    return this.#store.epochs.epochForOffset(offset);
  }

  /** A leader begins its epoch. */
  assignEpochStart(epoch: number, startOffset: number): void {
    this.#store.epochs.assign(epoch, startOffset);
  }

  /** Epochs without a record: of a leader that appended nothing before another led. */
  forgetEpochsAtEnd(): void {
    this.#store.epochs.truncateFromEnd(this.#store.logEndOffset);
  }

  /** Sets the high watermark, within the log; true when it changed. */
  updateHighWatermark(offset: number): boolean {
    const bounded = Math.min(Math.max(offset, this.#logStartOffset), this.#store.logEndOffset);
    if (bounded === this.#highWatermark) return false;
    this.#highWatermark = bounded;
    this.#store.producers.onHighWatermark(bounded);
    return true;
  }

  /**
   * Records below `offset` no longer count; whole segments of them are deleted. False when `offset`
   * is not above the log start, or beyond the high watermark.
   */
  maybeIncrementLogStartOffset(offset: number): boolean {
    if (offset <= this.#logStartOffset || offset > this.#highWatermark) return false;
    this.#store.onDisk(() => this.#raiseLogStart(offset));
    return true;
  }

  #raiseLogStart(offset: number): void {
    this.#logStartOffset = offset;
    this.#store.epochs.truncateFromStart(offset);
    let count = 0;
    while ((this.#store.segments.at(count + 1)?.baseOffset ?? Infinity) <= offset) count++;
    this.#store.deleteFirst(count);
    this.#isPartial &&= offset < this.#store.segments.first.baseOffset;
  }

  /** Applies retention, except to a partial log; how many segments went. */
  deleteOldSegments(): number {
    if (this.#store.offline !== undefined || this.#isPartial) return 0;
    return this.#store.onDisk(() => {
      const count = deletableSegments(this.#store.segments, {
        config: this.#store.config,
        nowMs: this.#context.clock.wallMs(),
        logStartOffset: this.#logStartOffset,
        logEndOffset: this.#store.logEndOffset,
        highWatermark: this.#highWatermark,
        sizeBytes: this.sizeBytes,
      });
      if (count === 0) return 0;
      if (count === this.#store.segments.count)
        this.#store.roll(this.#store.logEndOffset, this.#store.logEndOffset);
      const start = this.#store.segments.at(count)?.baseOffset ?? this.#store.logEndOffset;
      this.#logStartOffset = Math.max(this.#logStartOffset, start);
      this.#store.epochs.truncateFromStart(this.#logStartOffset);
      this.#store.deleteFirst(count);
      return count;
    });
  }

  /** The log below was compacted; undefined: never. */
  get firstDirtyOffset(): number | undefined {
    return this.#store.firstDirtyOffset;
  }

  /** What compaction could do now. May throw DiskError. */
  planCompaction(): CompactionPlan {
    return this.#store.onDisk(() =>
      planCompaction(this.#store.segments, {
        config: this.#store.config,
        nowMs: this.#context.clock.wallMs(),
        logStartOffset: this.#logStartOffset,
        lastStableOffset: this.lastStableOffset,
        firstDirtyOffset: this.#store.firstDirtyOffset,
      }),
    );
  }

  /**
   * Compacts as planned; one run at a time. Rejects with CompactionAborted, DiskError, and
   * MalformedBytes when a batch is damaged; the log is then as far as the run came.
   */
  compact(plan: CompactionPlan, options: CompactionOptions): Promise<CompactionResult> {
    return new LogCompaction(this.#context, this.#store, plan, options).run();
  }

  /** Begins a new segment. */
  roll(): void {
    if (this.#store.segments.active.size === 0) return;
    this.#store.onDisk(() => this.#store.roll(this.#store.logEndOffset, this.#store.logEndOffset));
  }

  /**
   * Makes `offset` the log end; a batch that holds it goes as a whole. A log start inside that
   * batch stays: offsets below it are not used again. False when `offset` is the log end or beyond.
   * Blocks until the cut is durable.
   */
  truncateTo(offset: number): boolean {
    const store = this.#store;
    if (offset >= store.logEndOffset) return false;
    if (this.isElsewhere(offset)) {
      this.beginAt(offset, this.#logStartOffset, store.epochs.entries);
      return true;
    }
    this.#lowerLogStart(offset);
    const { baseOffset } = store.segments.first;
    // A partial log remembers what it began with: epochs and open transactions below.
    const isWhole = offset < baseOffset || (offset === baseOffset && !this.#isPartial);
    store.onDisk(() => {
      if (isWhole) store.restartAt(offset);
      else store.cut(offset, this.#logStartOffset, this.#highWatermark);
    });
    if (offset < baseOffset) this.#isPartial = false;
    this.#lowerHighWatermark();
    return true;
  }

  /** Drops everything; the log goes on at `offset`. Blocks until that is durable. */
  truncateFullyAndStartAt(offset: number, logStartOffset = offset): void {
    assert(logStartOffset >= offset, 'only beginAt makes a partial log');
    this.#lowerLogStart(logStartOffset);
    this.#store.onDisk(() => this.#store.restartAt(offset));
    this.#logStartOffset = logStartOffset;
    const wasPartial = this.#isPartial;
    this.#isPartial = false;
    if (wasPartial) this.#store.onDisk(() => this.#context.checkpointLogStarts());
    this.#lowerHighWatermark();
  }

  /**
   * Drops everything; the log goes on at `offset` as a partial one, with the log start of the other
   * replicas. `epochs` are those of their records below `offset`; without them nobody could be told
   * where his log parts from theirs. Blocks until that is durable.
   */
  beginAt(offset: number, logStartOffset: number, epochs: readonly EpochEntry[]): void {
    this.#isPartial = logStartOffset < offset;
    this.#logStartOffset = logStartOffset;
    this.#beginning = offset;
    // Before there is a first segment at the new place, or a crash would make it the log start.
    this.#store.onDisk(() => this.#context.checkpointLogStarts());
    this.#store.onDisk(() => this.#store.restartAt(offset, epochs));
    this.#beginning = 0;
    this.#store.onDisk(() => this.#context.checkpointLogStarts());
    this.#lowerHighWatermark();
  }

  /**
   * What producers had done below the begin of a log that is empty, above all transactions that
   * were open there (G29). Replaces what was known; durable when it returns.
   */
  adoptProducers(entries: readonly SnapshotEntry[]): void {
    const store = this.#store;
    assert(this.isEmpty, 'only an empty log adopts producers');
    store.onDisk(() => store.adoptProducers(entries));
    store.producers.onHighWatermark(this.#highWatermark);
  }

  /** A start that goes back must not return with a crash: its checkpoint goes back first. */
  #lowerLogStart(offset: number): void {
    if (offset >= this.#logStartOffset) return;
    this.#logStartOffset = offset;
    this.#store.onDisk(() => this.#context.checkpointLogStarts());
  }

  #lowerHighWatermark(): void {
    const bounded = Math.min(this.#highWatermark, this.#store.logEndOffset);
    this.#highWatermark = Math.max(bounded, this.#logStartOffset);
    this.#store.producers.onHighWatermark(this.#highWatermark);
  }

  /** Makes everything appended so far durable; then the recovery point moves there. */
  flush(): Promise<void> {
    return this.#store.flush();
  }

  /** Completes indexes, takes a producer snapshot, makes all durable, closes the files. */
  close(): Promise<void> {
    return this.#store.close();
  }

  /** Lets go of memory that only appending needs. */
  releaseMemory(): void {
    if (this.#store.offline === undefined) this.#store.onDisk(() => this.#store.releaseMemory());
  }

  /** The directory is about to be renamed for deletion: closes the files; nothing may follow. */
  abandon(): void {
    this.#store.abandon();
  }

  /** Forgets idle producers; how many. */
  removeExpiredProducers(beforeMs: number): number {
    return this.#store.producers.removeExpired(beforeMs);
  }

  /** Every known producer, for DescribeProducers. */
  activeProducers(): readonly SnapshotEntry[] {
    return this.#store.producers.toSnapshot();
  }

  /** Whether the producer has an open transaction here. */
  hasOpenTransaction(producerId: bigint): boolean {
    const entry = this.#store.producers.findById(producerId);
    return entry !== undefined && entry.currentTxnFirstOffset >= 0;
  }

  /** Open transactions by first offset. */
  openTransactions(): OpenTransaction[] {
    return this.#store.producers.openTransactions();
  }

  segments(): { baseOffset: number; path: string; sizeBytes: number }[] {
    return this.#store.segments.all().map((segment) => {
      return { baseOffset: segment.baseOffset, path: segment.path, sizeBytes: segment.size };
    });
  }

  #guarded(append: () => AppendResult): AppendResult {
    if (this.#store.offline !== undefined) {
      return { error: ErrorCode.KAFKA_STORAGE_ERROR, message: this.#store.offline.message };
    }
    return this.#store.onDisk(append);
  }
}
