/**
 * The receiving end of one mirrored partition: takes what a fetcher brought and appends it.
 *
 * Made by the partition driver for one leadership and one stay in MIRRORING; called by the mirror's
 * fetcher loop, synchronously, inside the response. Invariants:
 * - The fetch offset is always the local log end (F1).
 * - Nothing of an answer is written unless all its batches verify (F5); what is written is one
 *   append, batches unchanged but for leader epoch and producer id (F6, P1, G20).
 * - A batch of a source epoch that is not recorded durably is not appended: the driver records it
 *   and fetches again (F10).
 * - The source's high watermark is used for lag only (F7).
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import type { Clock } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { SinkAction } from '../replication/fetcher.ts';
import type { FetchedPartition, FetchTarget } from '../replication/leader-endpoint.ts';
import type { Partition } from '../replication/partition.ts';
import type { MirrorCause } from './causes.ts';
import type { ProducerIdMapping } from './producer-id-mapping.ts';
import { type BatchProblem, type BatchScan, rewriteBatches, scanBatches } from './rewrite.ts';
import type { SourceEpoch } from './state-row.ts';

/** Times a damaged batch is fetched again before the partition fails (F5). */
export const MAX_CORRUPT_TRIES = 3;
/** Trouble that lasts this long, in ms, makes the partition FAILED; until then it is only shown. */
export const TROUBLE_LIMIT_MS = 30_000;
/** Answers without data before an offset gap is known to be the source's end (F15). */
const QUIET_ANSWERS = 2;

/** The parts of a partition that mirroring uses. */
export type MirroredPartition = Pick<
  Partition,
  'topic' | 'partition' | 'topicId' | 'leaderEpoch' | 'appendMirrored' | 'followLogStart'
> & {
  readonly log: Pick<Partition['log'], 'logStartOffset' | 'logEndOffset'>;
};

/** What the driver does about what a fetch brought to light. */
export interface FetchEvents {
  /** Record these source epochs durably, then fetch on (F10). */
  learn(epochs: readonly SourceEpoch[]): void;
  /** The partition cannot go on. */
  fail(cause: MirrorCause, message: string): void;
  /** The source does not have the local log end (F9). */
  outOfRange(): void;
  /** The source batch at the log start begins below it: restart the empty log there. */
  startInside(baseOffset: number): void;
  /** Another topic of that name by now, at a source without topic ids (F12). */
  recreated(reason: string): void;
  /** This broker does not lead any more, or the topic is not mirrored any more. */
  lost(): void;
}

/** What holds a partition up at present. */
export interface Trouble {
  readonly cause: MirrorCause;
  readonly message: string;
  /** Wall time. */
  readonly sinceMs: number;
  /** Wall time of the next try, −1 when it is not known. */
  readonly nextRetryMs: number;
}

/** How far mirroring is, for DescribeMirrors; −1: not known (A4). */
export interface FetchProgress {
  readonly sourceHighWatermark: number;
  readonly sourceLastStableOffset: number;
  readonly lag: number;
  readonly lagMs: number;
  readonly gapAtEnd: boolean;
  readonly bytes: number;
  readonly records: number;
}

/** What a {@link PartitionFetch} is made of. */
export interface PartitionFetchOptions {
  /** Zero: the source has no topic ids, fetches are by name. */
  readonly sourceTopicId: Uuid;
  readonly maxBytes: number;
  /** Newest source epoch in the durable row, −1 for none. */
  readonly knownEpoch: number;
  readonly producerIds: ProducerIdMapping;
  readonly events: FetchEvents;
}

/** Errors that mean: ask the metadata again, then there (F4). */
const MOVED: ReadonlySet<number> = new Set<ErrorCode>([
  errors.NOT_LEADER_OR_FOLLOWER.code,
  errors.FENCED_LEADER_EPOCH.code,
  errors.UNKNOWN_LEADER_EPOCH.code,
  errors.LEADER_NOT_AVAILABLE.code,
  errors.UNKNOWN_TOPIC_OR_PARTITION.code,
  errors.UNKNOWN_TOPIC_ID.code,
  errors.INCONSISTENT_TOPIC_ID.code,
  errors.REPLICA_NOT_AVAILABLE.code,
]);

/** Causes that are the connection's, so that any answer on it ends them. */
const LOOP_CAUSES: ReadonlySet<MirrorCause> = new Set<MirrorCause>([
  'SOURCE_UNREACHABLE',
  'SOURCE_TIMED_OUT',
]);

/** See the file header. */
export class PartitionFetch {
  readonly partition: MirroredPartition;
  readonly sourceTopicId: Uuid;
  readonly #clock: Clock;
  readonly #maxBytes: number;
  readonly #events: FetchEvents;
  readonly #producerIds: ProducerIdMapping;
  readonly #leaderEpoch: number;
  #knownEpoch: number;
  /** Source leader epoch for requests: from the source's metadata, else 0 (F4). */
  #sourceLeaderEpoch = 0;
  #target: FetchTarget | undefined;
  #corruptTries = 0;
  #failed = false;
  #trouble: Trouble | undefined;
  #quietAnswers = 0;
  #answered = false;
  #highWatermark = -1;
  #lastStableOffset = -1;
  #gapAtEnd = false;
  #lastTimestampMs = -1;
  #bytes = 0;
  #records = 0;

  constructor(clock: Clock, partition: MirroredPartition, options: PartitionFetchOptions) {
    this.#clock = clock;
    this.partition = partition;
    this.sourceTopicId = options.sourceTopicId;
    this.#maxBytes = options.maxBytes;
    this.#events = options.events;
    this.#producerIds = options.producerIds;
    this.#leaderEpoch = partition.leaderEpoch;
    this.#knownEpoch = options.knownEpoch;
  }

  get sourceLeaderEpoch(): number {
    return this.#sourceLeaderEpoch;
  }

  get trouble(): Trouble | undefined {
    return this.#trouble;
  }

  /** Something came from the source in this stay. */
  get progressed(): boolean {
    return this.#answered;
  }

  /** These epochs are durable now. */
  learned(epoch: number): void {
    this.#knownEpoch = epoch;
  }

  /** The leader epoch that the source's metadata names; −1 there becomes 0 (F4). */
  leads(sourceLeaderEpoch: number): void {
    this.#sourceLeaderEpoch = Math.max(0, sourceLeaderEpoch);
  }

  /** What to fetch next; the same object while nothing of it changed. */
  target(): FetchTarget {
    const { logStartOffset, logEndOffset } = this.partition.log;
    // Restarted inside a batch, the log ends below its start (F9); the source begins at the start.
    const fetchOffset = Math.max(logStartOffset, logEndOffset);
    const current = this.#target;
    if (
      current !== undefined &&
      current.fetchOffset === fetchOffset &&
      current.currentLeaderEpoch === this.#sourceLeaderEpoch
    ) {
      return current;
    }
    this.#target = {
      topic: this.partition.topic,
      topicId: this.sourceTopicId,
      partition: this.partition.partition,
      fetchOffset,
      currentLeaderEpoch: this.#sourceLeaderEpoch,
      lastFetchedEpoch: -1,
      logStartOffset: -1,
      maxBytes: this.#maxBytes,
    };
    return this.#target;
  }

  progress(): FetchProgress {
    const known = this.#answered;
    const behind = known ? Math.max(0, this.#highWatermark - this.partition.log.logEndOffset) : -1;
    const lag = this.#gapAtEnd ? 0 : behind;
    const unknownAge = lag > 0 && this.#lastTimestampMs < 0;
    const age = Math.max(0, this.#clock.wallMs() - this.#lastTimestampMs);
    return {
      sourceHighWatermark: known ? this.#highWatermark : -1,
      sourceLastStableOffset: known ? this.#lastStableOffset : -1,
      lag,
      lagMs: lag < 0 || unknownAge ? -1 : lag === 0 ? 0 : age,
      gapAtEnd: this.#gapAtEnd,
      bytes: this.#bytes,
      records: this.#records,
    };
  }

  /** The partition cannot be fetched for a reason outside it. True: it has failed for good. */
  troubled(cause: MirrorCause, message: string, retryInMs: number): boolean {
    const now = this.#clock.wallMs();
    const sinceMs = this.#trouble?.sinceMs ?? now;
    const nextRetryMs = retryInMs < 0 ? -1 : now + retryInMs;
    this.#trouble = { cause, message, sinceMs, nextRetryMs };
    if (now - sinceMs < TROUBLE_LIMIT_MS) return false;
    this.fail(cause, message);
    return true;
  }

  /** The loop is answered again; an idle partition hears nothing else. */
  recovered(): void {
    if (this.#trouble !== undefined && LOOP_CAUSES.has(this.#trouble.cause)) {
      this.#trouble = undefined;
    }
  }

  /** The partition cannot go on; told to the driver once. */
  fail(cause: MirrorCause, message: string): void {
    if (this.#failed) return;
    this.#failed = true;
    this.#events.fail(cause, message);
  }

  /** Whether `answered` is to be told of the next answers (F15). */
  get watchesForGap(): boolean {
    return this.#quietAnswers > 0;
  }

  /** The fetch that asked for this partition was answered; `room`: the answer was not full. */
  answered(room: boolean): void {
    if (this.#quietAnswers > 0 && room && --this.#quietAnswers === 0) this.#gapAtEnd = true;
  }

  /** Takes one answer; `moved` is told by 'pause' and {@link FetchEvents} by calls. */
  onFetched(fetched: FetchedPartition): SinkAction | { readonly kind: 'moved' } {
    if (fetched.errorCode !== 0) return this.#onError(fetched.errorCode);
    this.#trouble = undefined;
    this.#answered = true;
    this.#highWatermark = fetched.highWatermark;
    this.#lastStableOffset = fetched.lastStableOffset;
    const action = fetched.records.length === 0 ? undefined : this.#take(fetched.records);
    if (action !== undefined) return action;
    this.#watchForGap();
    const followed = this.#followLogStart(fetched.logStartOffset);
    if (followed !== 0) return this.#appendFailed(followed, 'following the log start failed');
    return { kind: 'continue', target: this.target() };
  }

  #onError(errorCode: number): SinkAction | { readonly kind: 'moved' } {
    if (MOVED.has(errorCode)) {
      const cause: MirrorCause =
        errorCode === errors.UNKNOWN_TOPIC_OR_PARTITION.code ||
        errorCode === errors.UNKNOWN_TOPIC_ID.code
          ? 'SOURCE_TOPIC_MISSING'
          : 'SOURCE_LEADER_UNKNOWN';
      const failed = this.troubled(cause, `the source answers error ${errorCode}`, -1);
      return failed ? { kind: 'pause' } : { kind: 'moved' };
    }
    switch (errorCode) {
      case errors.OFFSET_OUT_OF_RANGE.code:
        this.#events.outOfRange();
        return { kind: 'pause' };
      case errors.OFFSET_MOVED_TO_TIERED_STORAGE.code:
        this.fail('TIERED_STORAGE', 'the source has moved the data to tiered storage');
        return { kind: 'pause' };
      case errors.CORRUPT_MESSAGE.code:
        return this.#bad({
          cause: 'CORRUPT_SOURCE_BATCH',
          message: 'the source cannot read its log (CORRUPT_MESSAGE)',
        });
      default: {
        const denied = errorCode === errors.TOPIC_AUTHORIZATION_FAILED.code;
        const cause = denied ? 'SOURCE_AUTHORIZATION_FAILED' : 'SOURCE_ERROR';
        const failed = this.troubled(cause, `the source answers error ${errorCode}`, -1);
        return { kind: failed ? 'pause' : 'retry' };
      }
    }
  }

  /** Undefined: appended, or nothing to append. */
  #take(records: Uint8Array): SinkAction | undefined {
    const { log } = this.partition;
    const scan = scanBatches(records, log.logEndOffset, this.#knownEpoch, this.#producerIds);
    if (scan.problem !== undefined) return this.#bad(scan.problem);
    if (scan.batches === 0) {
      return this.#bad({ cause: 'SOURCE_ERROR', message: 'the answer holds no whole batch' });
    }
    if (scan.firstOffset < log.logEndOffset) return this.#beginsBelow(scan.firstOffset);
    const older = scan.epochs.find(({ epoch }) => epoch < this.#knownEpoch);
    if (older !== undefined) return this.#isOlder(older);
    const failed = this.#append(records.subarray(0, scan.bytesOfKnownEpoch), scan);
    if (failed !== undefined) return failed;
    if (scan.epochs.length === 0) return undefined;
    // One at a time: the next fetch begins with this epoch's batches, which must not look old.
    this.#events.learn(scan.epochs.slice(0, 1));
    return { kind: 'pause' };
  }

  /** A topic's epochs never go backwards: without ids, that is how a new topic shows (F12). */
  #isOlder({ epoch, startOffset }: SourceEpoch): SinkAction {
    const message =
      `offset ${startOffset} at the source is of leader epoch ${epoch}, ` +
      `older than epoch ${this.#knownEpoch} of what is mirrored before it`;
    if (this.sourceTopicId === ZERO_UUID) this.#events.recreated(message);
    else this.fail('SOURCE_DIVERGED', message);
    return { kind: 'pause' };
  }

  #beginsBelow(baseOffset: number): SinkAction {
    const { log } = this.partition;
    if (log.logStartOffset === log.logEndOffset) this.#events.startInside(baseOffset);
    else {
      this.fail(
        'SOURCE_DIVERGED',
        `the source's batch at ${baseOffset} reaches across the local log end ${log.logEndOffset}`,
      );
    }
    return { kind: 'pause' };
  }

  #append(records: Uint8Array, scan: BatchScan): SinkAction | undefined {
    if (records.length === 0) return undefined;
    rewriteBatches(records, this.#leaderEpoch, this.#producerIds);
    const result = this.partition.appendMirrored([records], this.#leaderEpoch);
    if (result.error !== 0) return this.#appendFailed(result.error, result.message);
    this.#corruptTries = 0;
    this.#bytes += records.length;
    this.#records += scan.records;
    this.#lastTimestampMs = scan.maxTimestampMs;
    return undefined;
  }

  #appendFailed(error: ErrorCode, message: string): SinkAction {
    if (error === errors.KAFKA_STORAGE_ERROR.code) {
      this.fail('STORAGE_BUSY', message);
      return { kind: 'pause' };
    }
    if (
      error === errors.FENCED_LEADER_EPOCH.code ||
      error === errors.NOT_LEADER_OR_FOLLOWER.code ||
      error === errors.UNKNOWN_TOPIC_OR_PARTITION.code ||
      error === errors.INVALID_REQUEST.code
    ) {
      this.#events.lost();
      return { kind: 'remove' };
    }
    this.fail('SOURCE_ERROR', `append refused with error ${error}: ${message}`);
    return { kind: 'pause' };
  }

  #bad(problem: BatchProblem): SinkAction {
    const again = problem.cause === 'CORRUPT_SOURCE_BATCH' || problem.cause === 'SOURCE_ERROR';
    if (again && ++this.#corruptTries < MAX_CORRUPT_TRIES) return { kind: 'retry' };
    this.fail(problem.cause, problem.message);
    return { kind: 'pause' };
  }

  #watchForGap(): void {
    this.#gapAtEnd = false;
    const gap =
      this.#highWatermark > this.partition.log.logEndOffset &&
      this.#lastStableOffset === this.#highWatermark;
    this.#quietAnswers = gap ? QUIET_ANSWERS : 0;
  }

  /** A start beyond the log end is F9's business: the next fetch is out of range. */
  #followLogStart(offset: number): ErrorCode {
    const { log } = this.partition;
    if (offset <= log.logStartOffset || offset > log.logEndOffset) return 0;
    return this.partition.followLogStart(offset, this.#leaderEpoch);
  }
}
