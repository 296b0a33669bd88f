/**
 * One partition on this broker: its role, its ISR, and the one gate of its log.
 *
 * Made and moved between roles by `ReplicaManager` from the metadata image; the leader's epoch and
 * ISR are always someone else's decision (embedded or Apache controller). Invariants:
 * - Nothing enters the log except through `append` and `appendMirrored`, both only while leading,
 *   and through `followedLog`, only while following.
 * - Client and coordinator writes are refused while the mirror gate says read-only (R1–R3);
 *   mirrored appends are refused while it does not, and under any but the current leader epoch.
 * - The high watermark is the least log end of the (possibly growing) ISR, never lowered except by
 *   a cut, and stands still below min.insync.replicas (KIP-966). See `flushBeforeCommit`.
 * - Every visible change ends with a notice to `watchers`.
 * - A failing disk takes the partition offline: KAFKA_STORAGE_ERROR from then on.
 */
import type { Uuid } from '../base/uuid.ts';
import type { DiskError } from '../io/runtime.ts';
import type { PartitionRegistration } from '../metadata/image.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import { RecordBatch } from '../protocol/record-batch.ts';
import type { AppendResult, Log } from '../storage/log.ts';
import type { SnapshotEntry } from '../storage/producer-snapshot.ts';
import type { TopicPartition } from '../storage/topic-partition.ts';
import {
  type CurrentLeader,
  type FetchParams,
  type FetchPartition,
  type FetchResult,
  fetchFailure,
  type ReadIsolation,
} from './fetch-types.ts';
import type { FollowerState } from './follower-state.ts';
import { InSyncReplicas, type IsrContext, type LeaderPosition } from './in-sync-replicas.ts';
import type { IsrOutcome } from './isr-updates.ts';
import { FIRST_MIRRORED_ID, type MirrorGate, readOnlyRefusal } from './mirror-gate.ts';
import { PartitionLog } from './partition-log.ts';
import { fetchAnswer, rangeError, readPartition } from './partition-read.ts';
import type { WatcherList } from './purgatory.ts';

/** Whose records are to be appended; a marker is a transaction's end. */
export type AppendSource = 'client' | 'coordinator' | 'marker';

/** `offline`: the disk failed. `deleted`: this broker no longer holds the partition. */
export type PartitionRole = 'leader' | 'follower' | 'offline' | 'deleted';

/** What applying new metadata did to the role. */
export type RoleChange = 'becameLeader' | 'lostLeadership' | 'unchanged';

/** What a partition needs of its surroundings. */
export interface PartitionContext extends IsrContext {
  readonly gate: MirrorGate;
  /** Called once, when the disk failed under the partition. */
  readonly onStorageFailure: (partition: Partition, error: DiskError) => void;
}

/** An answer to `truncateForMirror`. */
export type TruncationResult =
  | { readonly error: 0; readonly logEndOffset: number }
  | { readonly error: ErrorCode };

const NOTHING_APPENDED: Extract<AppendResult, { readonly error: 0 }> = {
  error: 0,
  firstOffset: -1,
  lastOffset: -1,
  logAppendTimeMs: -1,
  logStartOffset: -1,
  duplicate: false,
  appendedBytes: 0,
};

/** See the file header. */
export class Partition {
  readonly topicPartition: TopicPartition;
  readonly topicId: Uuid;
  readonly log: Log;
  /** All that wait for a change of this partition. */
  readonly watchers: WatcherList;
  readonly #context: PartitionContext;
  readonly #log: PartitionLog;
  #role: PartitionRole = 'follower';
  #leaderId = -1;
  #leaderEpoch = -1;
  #partitionEpoch = -1;
  readonly #replicas: InSyncReplicas;
  #leaderEpochStartOffset = 0;

  constructor(topicPartition: TopicPartition, topicId: Uuid, log: Log, context: PartitionContext) {
    this.topicPartition = topicPartition;
    this.topicId = topicId;
    this.log = log;
    this.#context = context;
    const { partition } = topicPartition;
    this.#replicas = new InSyncReplicas(topicId, partition, context, (asked, outcome) => {
      this.#isrAnswered(asked, outcome);
    });
    this.#log = new PartitionLog(log, {
      advance: () => this.#advanceHighWatermark(),
      onFailure: (error) => this.#storageFailed(error),
    });
    this.watchers = this.#log.watchers;
  }

  get topic(): string {
    return this.topicPartition.topic;
  }

  /** The partition index. */
  get partition(): number {
    return this.topicPartition.partition;
  }

  get role(): PartitionRole {
    return this.#role;
  }

  /** −1: none. */
  get leaderId(): number {
    return this.#leaderId;
  }

  get leaderEpoch(): number {
    return this.#leaderEpoch;
  }

  get partitionEpoch(): number {
    return this.#partitionEpoch;
  }

  get replicas(): readonly number[] {
    return this.#replicas.replicas;
  }

  /** As committed by the controller. */
  get isr(): readonly number[] {
    return this.#replicas.isr;
  }

  /** The log end when this broker became leader in this epoch. */
  get leaderEpochStartOffset(): number {
    return this.#leaderEpochStartOffset;
  }

  isLeader(): boolean {
    return this.#role === 'leader';
  }

  /** The end of what a reader may see. */
  upperBound(isolation: ReadIsolation): number {
    if (isolation === 'logEnd') return this.log.logEndOffset;
    return isolation === 'lastStable' ? this.log.lastStableOffset : this.log.highWatermark;
  }

  /** A counter of the bytes below {@link upperBound}; only differences mean something. */
  visibleBytes(isolation: ReadIsolation): number {
    return this.#log.bytesUpTo(this.upperBound(isolation));
  }

  // --- role -------------------------------------------------------------------------------------

  /** Takes over newer metadata. Repeated or older metadata changes nothing. */
  applyRegistration(registration: PartitionRegistration): RoleChange {
    if (this.#role === 'offline' || this.#role === 'deleted') return 'unchanged';
    if (registration.partitionEpoch < this.#partitionEpoch) return 'unchanged';
    if (registration.partitionEpoch === this.#partitionEpoch && this.#isKnown(registration)) {
      return 'unchanged';
    }
    const wasLeader = this.isLeader();
    const newEpoch = registration.leaderEpoch !== this.#leaderEpoch;
    this.#leaderId = registration.leader;
    this.#leaderEpoch = registration.leaderEpoch;
    this.#partitionEpoch = registration.partitionEpoch;
    this.#replicas.apply(registration);
    if (registration.leader !== this.#context.brokerId) {
      this.#role = 'follower';
      this.#replicas.stop();
      this.#log.forgetPending();
      this.watchers.notify();
      return wasLeader ? 'lostLeadership' : 'unchanged';
    }
    this.#role = 'leader';
    if (!wasLeader || newEpoch) return this.#becomeLeader();
    this.#replicas.trackFollowers(this.#context.clock.monotonicMs());
    this.#replicas.maybeExpel(this.#leaderPosition());
    this.#log.guarded(() => this.#advanceHighWatermark());
    this.watchers.notify();
    return 'unchanged';
  }

  /** The answer to an ISR change moves the partition epoch before the record itself arrives. */
  #isKnown(registration: PartitionRegistration): boolean {
    const same = (a: readonly number[], b: readonly number[]): boolean =>
      a.length === b.length && a.every((id, i) => id === b[i]);
    return (
      registration.leaderEpoch === this.#leaderEpoch &&
      same(registration.isr, this.isr) &&
      same(registration.replicas, this.replicas)
    );
  }

  /** The partition left this broker (deleted or reassigned); whoever waits is answered. */
  markDeleted(): void {
    this.#role = 'deleted';
    this.#replicas.stop();
    this.watchers.notify();
  }

  #becomeLeader(): RoleChange {
    this.#replicas.startEpoch(this.#context.clock.monotonicMs());
    const done = this.#log.guarded(() => {
      this.#leaderEpochStartOffset = this.log.logEndOffset;
      this.log.assignEpochStart(this.#leaderEpoch, this.#leaderEpochStartOffset);
      this.#advanceHighWatermark();
    });
    // The storage failure is announced on its own.
    if (!done) return 'unchanged';
    this.#replicas.maybeExpel(this.#leaderPosition());
    this.watchers.notify();
    return 'becameLeader';
  }

  /** Notices a log whose disk failed behind our back (a flush). Called now and then. */
  checkLog(): void {
    this.#log.check();
  }

  #storageFailed(error: DiskError): void {
    if (this.#role === 'offline' || this.#role === 'deleted') return;
    this.#role = 'offline';
    this.#context.onStorageFailure(this, error);
    this.watchers.notify();
  }

  // --- the gate ---------------------------------------------------------------------------------

  /**
   * Appends as leader; offsets and the leader epoch are assigned in `records` in place. Errors:
   * NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, POLICY_VIOLATION or LEADER_NOT_AVAILABLE (R3),
   * NOT_ENOUGH_REPLICAS, and the log's. A marker that a read-only partition does not need is a
   * success with offset −1 (R2).
   */
  append(source: AppendSource, records: Uint8Array, requiredAcks: number): AppendResult {
    const notLeader = this.leaderError(-1);
    if (notLeader !== 0) return { error: notLeader, message: 'not the leader' };
    const reason = this.#readOnly();
    if (reason !== undefined) {
      if (source !== 'marker') {
        return readOnlyRefusal(reason);
      }
      if (!this.#endsLocalTransaction(records)) {
        return { ...NOTHING_APPENDED, logStartOffset: this.log.logStartOffset };
      }
    }
    if (requiredAcks === -1 && this.isUnderMinIsr()) {
      const message = `in-sync replicas [${this.isr.join(',')}] are too few`;
      return { error: errors.NOT_ENOUGH_REPLICAS.code, message };
    }
    const origin = source === 'client' ? 'client' : 'coordinator';
    return this.#log.append(() => this.log.appendAsLeader(records, this.#leaderEpoch, origin));
  }

  /**
   * Appends batches of the source as they are, with producer id and leader epoch already rewritten
   * and CRCs verified by the caller (F5, F6). Chunks are written, not kept. Errors:
   * FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, INVALID_REQUEST when the topic is not mirrored
   * any more, KAFKA_STORAGE_ERROR, and the log's.
   */
  appendMirrored(records: readonly Uint8Array[], leaderEpoch: number): AppendResult {
    const refused = this.#mirrorError(leaderEpoch);
    if (refused !== 0) return { error: refused, message: 'not a mirrored partition led here' };
    return this.#log.append(() => this.log.appendAsFollower(records, { verifyCrc: false }));
  }

  /** 0 while this broker leads in the given epoch (−1: any), else why not. */
  leaderError(currentLeaderEpoch: number): ErrorCode {
    if (this.#role === 'deleted') return errors.UNKNOWN_TOPIC_OR_PARTITION.code;
    if (this.#role === 'offline' || this.log.isOffline) return errors.KAFKA_STORAGE_ERROR.code;
    if (currentLeaderEpoch >= 0 && this.#leaderEpoch >= 0) {
      if (currentLeaderEpoch < this.#leaderEpoch) return errors.FENCED_LEADER_EPOCH.code;
      if (currentLeaderEpoch > this.#leaderEpoch) return errors.UNKNOWN_LEADER_EPOCH.code;
    }
    return this.isLeader() ? 0 : errors.NOT_LEADER_OR_FOLLOWER.code;
  }

  /** Whether fewer replicas are in sync than min.insync.replicas (or all, if those are fewer). */
  isUnderMinIsr(): boolean {
    return this.#replicas.isUnderMin(this.log.config.minInsyncReplicas);
  }

  #readOnly() {
    return this.#context.gate.readOnly(this.topicId, this.topic, this.partition);
  }

  #mirrorError(leaderEpoch: number): ErrorCode {
    if (leaderEpoch !== this.#leaderEpoch) return errors.FENCED_LEADER_EPOCH.code;
    const notLeader = this.leaderError(-1);
    if (notLeader !== 0) return notLeader;
    return this.#readOnly() === undefined ? errors.INVALID_REQUEST.code : 0;
  }

  /** R2, G10: whether a producer of this cluster has that transaction open in this log. */
  #endsLocalTransaction(marker: Uint8Array): boolean {
    const { producerId } = new RecordBatch(marker, 0);
    return producerId < FIRST_MIRRORED_ID && this.log.hasOpenTransaction(producerId);
  }

  // --- high watermark, log start, truncation ----------------------------------------------------

  /** True when it or the log start moved. The caller notifies the watchers. */
  #advanceHighWatermark(): boolean {
    if (!this.isLeader() || this.isUnderMinIsr()) return false;
    return this.#log.raiseHighWatermark(this.#replicas.leastLogEnd(this.#log.committableEnd()));
  }

  /** Follows the source's log start (F8). Errors as `appendMirrored`. */
  followLogStart(offset: number, leaderEpoch: number): ErrorCode {
    const refused = this.#mirrorError(leaderEpoch);
    if (refused !== 0) return refused;
    return this.#log.followLogStart(offset) ? 0 : errors.KAFKA_STORAGE_ERROR.code;
  }

  /**
   * Restarts an empty log below its start, at the base offset of the source's batch that holds the
   * start (F9); readers still begin at `logStartOffset`. Errors as `appendMirrored`.
   */
  restartForMirror(offset: number, logStartOffset: number, leaderEpoch: number): ErrorCode {
    const refused = this.#mirrorError(leaderEpoch);
    if (refused !== 0) return refused;
    const done = this.#log.cut(() => {
      this.log.truncateFullyAndStartAt(offset, logStartOffset);
      this.#beginEpochAtEnd();
      return true;
    });
    return done ? 0 : errors.KAFKA_STORAGE_ERROR.code;
  }

  /**
   * Cuts the log at `offset`, or at the base offset of the batch that holds it (T5, D1); what was
   * there must have been saved by the caller (T4). A new leader epoch is to follow. Errors as
   * `appendMirrored`.
   */
  truncateForMirror(offset: number, leaderEpoch: number): TruncationResult {
    const refused = this.#mirrorError(leaderEpoch);
    if (refused !== 0) return { error: refused };
    const done = this.#log.cut(() => {
      if (!this.log.truncateTo(offset)) return false;
      this.#beginEpochAtEnd();
      return true;
    });
    if (!done) return { error: errors.KAFKA_STORAGE_ERROR.code };
    return { error: 0, logEndOffset: this.log.logEndOffset };
  }

  /**
   * What producers had done where an empty partial log begins (G29); to be told again after a cut
   * below. Errors as `appendMirrored`, and INVALID_REQUEST for a log that is not empty.
   */
  adoptProducers(entries: readonly SnapshotEntry[], leaderEpoch: number): ErrorCode {
    const refused = this.#mirrorError(leaderEpoch);
    if (refused !== 0) return refused;
    if (!this.log.isEmpty) return errors.INVALID_REQUEST.code;
    const done = this.#log.guarded(() => this.log.adoptProducers(entries));
    this.watchers.notify();
    return done ? 0 : errors.KAFKA_STORAGE_ERROR.code;
  }

  /**
   * The log, to be changed as a follower of the leader of this epoch; undefined when that is over.
   * Ask again after every wait.
   */
  followedLog(leaderEpoch: number): PartitionLog | undefined {
    const follows = this.#role === 'follower' && leaderEpoch === this.#leaderEpoch;
    return follows && !this.log.isOffline ? this.#log : undefined;
  }

  /**
   * A cut below the start of our own epoch takes that from the epoch table; without it a follower
   * that has more would be told to start over instead of where to cut (G13).
   */
  #beginEpochAtEnd(): void {
    this.#leaderEpochStartOffset = Math.min(this.#leaderEpochStartOffset, this.log.logEndOffset);
    this.log.assignEpochStart(this.#leaderEpoch, this.log.logEndOffset);
  }

  /**
   * Whether the ISR is as it may be (G18) and each member reported, in this leader epoch, a log end
   * no higher than ours (T6); true at once for a single replica.
   */
  isrReachedLogEnd(): boolean {
    if (!this.isLeader() || this.isUnderMinIsr()) return false;
    return this.#replicas.allReportedUpTo(this.#replicaEnd());
  }

  /** Replicas, in the ISR or not, that are alive and have not reported such a log end (G24). */
  unconfirmedReplicas(): number[] {
    return this.#replicas.unconfirmed(this.#replicaEnd());
  }

  /** Where replicas end that have all: restarted inside a batch, the log ends below its start. */
  #replicaEnd(): number {
    return Math.max(this.log.logStartOffset, this.log.logEndOffset);
  }

  /**
   * DeleteRecords up to `offset` (−1: the high watermark). Errors: those of leadership,
   * POLICY_VIOLATION (R2, or a compacted topic), OFFSET_OUT_OF_RANGE.
   */
  deleteRecords(offset: number): { readonly error: ErrorCode; readonly message?: string } {
    const notLeader = this.leaderError(-1);
    if (notLeader !== 0) return { error: notLeader };
    const reason = this.#readOnly();
    if (reason !== undefined) return readOnlyRefusal(reason);
    if (this.log.config.cleanupPolicy === 'compact') {
      return { error: errors.POLICY_VIOLATION.code, message: 'cleanup.policy is compact' };
    }
    const target = offset === -1 ? this.log.highWatermark : offset;
    if (target < 0 || target > this.log.highWatermark) {
      return { error: errors.OFFSET_OUT_OF_RANGE.code };
    }
    const done = this.#log.guarded(() => {
      if (this.log.maybeIncrementLogStartOffset(target)) this.watchers.notify();
    });
    return { error: done ? 0 : errors.KAFKA_STORAGE_ERROR.code };
  }

  /** The least log start of all replicas that are alive: what DeleteRecords answers. */
  lowWatermark(): number {
    let low = this.log.logStartOffset;
    for (const follower of this.#replicas.followers()) {
      if (this.#context.activeBrokerEpoch(follower.replicaId) === undefined) continue;
      low = Math.min(low, follower.logStartOffset);
    }
    return low;
  }

  // --- reading ----------------------------------------------------------------------------------

  /**
   * Reads for a consumer or a follower; a follower's fetch also moves its state, the ISR and the
   * high watermark. `maxBytes` and `minOneBatch` bound the records; 0 bytes reads none. Errors:
   * those of leadership and epoch, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
   */
  fetch(
    request: FetchPartition,
    params: FetchParams,
    maxBytes: number,
    minOneBatch: boolean,
  ): FetchResult {
    const error = this.fetchError(request, params);
    if (error !== 0) return fetchFailure(request, error, this.#currentLeader(error));
    try {
      const read = readPartition(this, request, params, { maxBytes, minOneBatch });
      if (read.error !== 0) {
        const isPassing = this.log.isElsewhere(request.fetchOffset);
        return { ...fetchFailure(request, read.error), isPassing };
      }
      const isFollower = params.replicaId >= 0 && read.divergingEpoch === undefined;
      if (isFollower) this.#followerFetched(request, params);
      return fetchAnswer(this, request, read);
    } catch (reason) {
      this.#log.failed(reason);
      return fetchFailure(request, errors.KAFKA_STORAGE_ERROR.code);
    }
  }

  /** Why a fetch cannot be served now; 0 when it can (it may still have to wait for data). */
  fetchError(request: FetchPartition, params: FetchParams): ErrorCode {
    const notLeader = this.leaderError(request.currentLeaderEpoch);
    if (notLeader !== 0) return notLeader;
    if (params.replicaId >= 0) {
      if (this.#replicas.follower(params.replicaId) === undefined) {
        return errors.NOT_LEADER_OR_FOLLOWER.code;
      }
      const known = this.#context.brokerEpoch(params.replicaId);
      if (params.replicaEpoch >= 0 && params.replicaEpoch < known) {
        return errors.NOT_LEADER_OR_FOLLOWER.code;
      }
    }
    return rangeError(this.log, request);
  }

  /** The live follower with the highest log end that has the record at `offset`. */
  readReplicaFor(offset: number): number | undefined {
    let best: FollowerState | undefined;
    for (const follower of this.#replicas.followers()) {
      const { replicaId, logStartOffset, logEndOffset } = follower;
      if (offset < logStartOffset || offset >= logEndOffset) continue;
      if (this.#context.activeBrokerEpoch(replicaId) === undefined) continue;
      if (best === undefined || logEndOffset > best.logEndOffset) best = follower;
    }
    return best?.replicaId;
  }

  #currentLeader(error: ErrorCode): CurrentLeader | undefined {
    const tell =
      error === errors.NOT_LEADER_OR_FOLLOWER.code || error === errors.FENCED_LEADER_EPOCH.code;
    return tell ? { leaderId: this.#leaderId, leaderEpoch: this.#leaderEpoch } : undefined;
  }

  // --- ISR --------------------------------------------------------------------------------------

  #followerFetched(request: FetchPartition, params: FetchParams): void {
    const fetch = {
      replicaId: params.replicaId,
      replicaEpoch: params.replicaEpoch,
      fetchOffset: request.fetchOffset,
      logStartOffset: request.logStartOffset,
    };
    const now = this.#context.clock.monotonicMs();
    const moved = this.#replicas.fetched(fetch, this.log.logEndOffset, now);
    this.#replicas.review(this.#leaderPosition());
    const advanced = this.#advanceHighWatermark();
    // Also without a new high watermark: DeleteRecords waits for what a follower reports.
    if (moved || advanced) this.watchers.notify();
  }

  #leaderPosition(): LeaderPosition {
    const { logEndOffset, highWatermark } = this.log;
    return {
      leaderEpoch: this.#leaderEpoch,
      partitionEpoch: this.#partitionEpoch,
      logEndOffset,
      highWatermark,
      epochStartOffset: this.#leaderEpochStartOffset,
    };
  }

  /** Asks for an ISR without those that may not be in it (G18). */
  reviewIsr(): void {
    if (this.isLeader()) this.#replicas.review(this.#leaderPosition());
  }

  /** Monotonic time of a follower's last fetch in this leadership; undefined: it is no follower. */
  lastFetchMs(replicaId: number): number | undefined {
    return this.#replicas.follower(replicaId)?.lastFetchMs;
  }

  /** Asks for an ISR without those that lag too long. Called now and then. */
  maybeShrinkIsr(): void {
    if (!this.isLeader() || !this.#replicas.hasFollowers) return;
    this.#replicas.maybeShrink(this.#leaderPosition(), this.#context.clock.monotonicMs());
  }

  #isrAnswered(askedPartitionEpoch: number, outcome: IsrOutcome): void {
    // Newer metadata has settled it meanwhile.
    if (askedPartitionEpoch !== this.#partitionEpoch || !this.isLeader()) return;
    if (outcome.committed) {
      this.#partitionEpoch = Math.max(this.#partitionEpoch, outcome.partitionEpoch);
      this.#replicas.settle(outcome.isr);
      this.#replicas.maybeExpel(this.#leaderPosition());
    } else {
      this.#replicas.refused(outcome.errorCode);
    }
    this.#log.guarded(() => this.#advanceHighWatermark());
    this.watchers.notify();
  }
}
