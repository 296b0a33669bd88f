/**
 * The replicas of a partition as its leader sees them: who is in sync, how far each has fetched,
 * how far the high watermark may go, and which ISR to ask the controller for.
 *
 * Owned by `Partition`, which feeds it metadata, fetches and the log end. Invariants:
 * - The ISR is what the controller committed; a change asked for is in flight until answered or
 *   overtaken by newer metadata, and only one is. After a refusal none is asked for before newer
 *   metadata or the end of a pause (G17).
 * - The high watermark waits for committed members and for all that may have become some (the
 *   maximal ISR), so it is right whichever way the controller decided.
 * - Follower states start empty with each leader epoch.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Clock, Random } from '../io/runtime.ts';
import type { PartitionRegistration } from '../metadata/image.ts';
import { errors } from '../protocol/errors.ts';
import { type BackoffPolicy, backoffMs } from './backoff.ts';
import { type FollowerFetch, FollowerState, UNKNOWN_OFFSET } from './follower-state.ts';
import type { IsrPolicy } from './isr-policy.ts';
import type { IsrOutcome, IsrUpdates } from './isr-updates.ts';

/** Pause after a refused change, unless newer metadata comes first. */
export const REFUSED_BACKOFF: BackoffPolicy = { initialMs: 500, maxMs: 30_000 };

/** What ISR changes need of the broker. */
export interface IsrContext {
  readonly brokerId: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly isrPolicy: IsrPolicy;
  readonly isrUpdates: IsrUpdates;
  /** replica.lag.time.max.ms. */
  readonly replicaLagTimeMaxMs: number;
  /** The epoch of a registered broker that may be in an ISR; undefined for any other. */
  readonly activeBrokerEpoch: (brokerId: number) => number | undefined;
  /** The epoch of a registered broker, active or not; −1 for any other. */
  readonly brokerEpoch: (brokerId: number) => number;
}

/** Where the leader stands when it considers another ISR. */
export interface LeaderPosition {
  readonly leaderEpoch: number;
  readonly partitionEpoch: number;
  readonly logEndOffset: number;
  readonly highWatermark: number;
  /** The log end when the leader epoch began. */
  readonly epochStartOffset: number;
}

const NOBODY: readonly number[] = [];
/** A follower whose last fetch is older, in ms, says nothing of now: it fetches twice a second. */
export const CAUGHT_UP_FETCH_AGE_MS = 1_000;

/** Of a partition with one replica, or led elsewhere. Never written to. */
const NO_FOLLOWERS = new Map<number, FollowerState>();

/** See the file header. */
export class InSyncReplicas {
  readonly #topicId: Uuid;
  readonly #partition: number;
  readonly #context: IsrContext;
  readonly #onOutcome: (askedPartitionEpoch: number, outcome: IsrOutcome) => void;
  #replicas: readonly number[] = [];
  #isr: readonly number[] = [];
  /** Members of changes that the controller may have made without our knowing yet. */
  #maybeIsr: readonly number[] = NOBODY;
  #inFlight = false;
  #refusals = 0;
  #proposeFromMs = Number.NEGATIVE_INFINITY;
  #followers = NO_FOLLOWERS;

  /** `onOutcome` hears the controller's answers, with the partition epoch that was current then. */
  constructor(
    topicId: Uuid,
    partition: number,
    context: IsrContext,
    onOutcome: (askedPartitionEpoch: number, outcome: IsrOutcome) => void,
  ) {
    this.#topicId = topicId;
    this.#partition = partition;
    this.#context = context;
    this.#onOutcome = onOutcome;
  }

  get replicas(): readonly number[] {
    return this.#replicas;
  }

  /** As committed by the controller. */
  get isr(): readonly number[] {
    return this.#isr;
  }

  /** Takes the committed lists of newer metadata; that settles any change asked for before. */
  apply(registration: Pick<PartitionRegistration, 'replicas' | 'isr'>): void {
    this.#replicas = registration.replicas;
    this.settle(registration.isr);
  }

  /** A new leader epoch begins here: nothing is known of the followers. */
  startEpoch(nowMs: number): void {
    this.#followers = NO_FOLLOWERS;
    this.trackFollowers(nowMs);
  }

  /** Keeps one state per remote replica; those known stay as they are. */
  trackFollowers(nowMs: number): void {
    for (const id of this.#followers.keys()) {
      if (!this.#replicas.includes(id)) this.#followers.delete(id);
    }
    for (const id of this.#replicas) {
      if (id === this.#context.brokerId || this.#followers.has(id)) continue;
      if (this.#followers === NO_FOLLOWERS) this.#followers = new Map();
      this.#followers.set(id, new FollowerState(id, nowMs, this.#isr.includes(id)));
    }
  }

  /** This broker does not lead any more. */
  stop(): void {
    this.#followers = NO_FOLLOWERS;
    this.settle(this.#isr);
  }

  follower(replicaId: number): FollowerState | undefined {
    return this.#followers.get(replicaId);
  }

  get hasFollowers(): boolean {
    return this.#followers.size > 0;
  }

  followers(): IterableIterator<FollowerState> {
    return this.#followers.values();
  }

  /** True when one of the follower's offsets is new. */
  fetched(fetch: FollowerFetch, leaderEndOffset: number, nowMs: number): boolean {
    return this.#followers.get(fetch.replicaId)?.fetched(fetch, leaderEndOffset, nowMs) === true;
  }

  /** Whether fewer are in sync than `minInsyncReplicas`, or than there are replicas if fewer. */
  isUnderMin(minInsyncReplicas: number): boolean {
    return this.#isr.length < Math.min(minInsyncReplicas, this.#replicas.length);
  }

  /** The least log end over the maximal ISR; {@link UNKNOWN_OFFSET} while a member is unknown. */
  leastLogEnd(leaderEndOffset: number): number {
    let least = leaderEndOffset;
    for (const id of this.#isr) least = Math.min(least, this.#endOf(id, leaderEndOffset));
    for (const id of this.#maybeIsr) least = Math.min(least, this.#endOf(id, leaderEndOffset));
    return least;
  }

  /**
   * Whether the ISR holds only members that may be in it (G18), and each of them reported, in this
   * epoch, an end at or below the leader's (T6).
   */
  allReportedUpTo(leaderEndOffset: number): boolean {
    return this.#isr.every((id) => {
      return this.#mayBeIn(id) && this.#hasReportedUpTo(id, leaderEndOffset);
    });
  }

  /** Assigned replicas that are alive and have not reported such an end (G24). */
  unconfirmed(leaderEndOffset: number): number[] {
    return this.#replicas.filter((id) => {
      const isAlive = this.#context.activeBrokerEpoch(id) !== undefined;
      return isAlive && !this.#hasReportedUpTo(id, leaderEndOffset);
    });
  }

  #hasReportedUpTo(replicaId: number, leaderEndOffset: number): boolean {
    const end = this.#endOf(replicaId, leaderEndOffset);
    return end !== UNKNOWN_OFFSET && end <= leaderEndOffset;
  }

  /** Asks for an ISR without those that may not be in it (G18). */
  maybeExpel(position: LeaderPosition): void {
    if (this.#isr.every((id) => this.#mayBeIn(id)) || !this.#mayPropose()) return;
    const kept = this.#isr.filter((id) => this.#mayBeIn(id));
    if (kept.length > 0) this.#propose(kept, position);
  }

  /**
   * Asks for an ISR without those that may not be in it (G18), and with those that may and have
   * caught up: who waited for the policy alone need not wait for its next fetch, too.
   */
  review(position: LeaderPosition): void {
    if (!this.#mayPropose()) return;
    const kept = this.#isr.filter((id) => this.#mayBeIn(id));
    const nowMs = this.#context.clock.monotonicMs();
    const joining = this.#replicas.filter((id) => {
      return !this.#isr.includes(id) && this.#mayBeIn(id) && this.#hasCaughtUp(id, position, nowMs);
    });
    const isSame = kept.length === this.#isr.length && joining.length === 0;
    const isr = [...kept, ...joining];
    if (!isSame && isr.length > 0) this.#propose(isr, position);
  }

  /** At the high watermark and past the epoch's start, by a fetch of its present registration. */
  #hasCaughtUp(replicaId: number, position: LeaderPosition, nowMs: number): boolean {
    const follower = this.#followers.get(replicaId);
    if (follower === undefined) return false;
    const { logEndOffset, brokerEpoch, lastFetchMs } = follower;
    if (logEndOffset < position.highWatermark || logEndOffset < position.epochStartOffset) {
      return false;
    }
    const active = this.#context.activeBrokerEpoch(replicaId);
    const isActive = active !== undefined && (brokerEpoch < 0 || brokerEpoch === active);
    return isActive && nowMs - lastFetchMs <= CAUGHT_UP_FETCH_AGE_MS;
  }

  #mayBeIn(replicaId: number): boolean {
    const { brokerId, isrPolicy } = this.#context;
    return replicaId === brokerId || isrPolicy.mayJoin(this.#topicId, this.#partition, replicaId);
  }

  #mayPropose(): boolean {
    return !this.#inFlight && this.#context.clock.monotonicMs() >= this.#proposeFromMs;
  }

  /** Asks for an ISR without those that lag too long or may not be in it. */
  maybeShrink(position: LeaderPosition, nowMs: number): void {
    if (!this.#mayPropose()) return;
    const maxLagMs = this.#context.replicaLagTimeMaxMs;
    const kept = this.#isr.filter((id) => {
      if (!this.#mayBeIn(id)) return false;
      return !this.#followers.get(id)?.isOutOfSync(position.logEndOffset, nowMs, maxLagMs);
    });
    if (kept.length > 0 && kept.length < this.#isr.length) this.#propose(kept, position);
  }

  #propose(isr: readonly number[], position: LeaderPosition): void {
    this.#inFlight = true;
    this.#maybeIsr = [...new Set([...this.#maybeIsr, ...isr])];
    const { leaderEpoch, partitionEpoch } = position;
    const members = isr.map((brokerId) => {
      return { brokerId, brokerEpoch: this.#context.activeBrokerEpoch(brokerId) ?? -1 };
    });
    const change = { topicId: this.#topicId, partition: this.#partition, leaderEpoch };
    this.#context.isrUpdates.submit({ ...change, partitionEpoch, isr: members }, (outcome) => {
      this.#onOutcome(partitionEpoch, outcome);
    });
  }

  /** The ISR as committed. */
  settle(isr: readonly number[]): void {
    this.#isr = isr;
    this.#maybeIsr = NOBODY;
    this.#inFlight = false;
    this.#refusals = 0;
    this.#proposeFromMs = Number.NEGATIVE_INFINITY;
  }

  /** The controller refused: it is left alone until newer metadata comes, or for a while. */
  refused(errorCode: number): void {
    const { clock, random } = this.#context;
    this.#inFlight = false;
    // Said only under the partition epoch we named. Any other error can hide that the change was
    // made, and its answer lost, before it was sent again.
    if (errorCode === errors.INELIGIBLE_REPLICA.code) this.#maybeIsr = NOBODY;
    this.#refusals++;
    this.#proposeFromMs = clock.monotonicMs() + backoffMs(REFUSED_BACKOFF, this.#refusals, random);
  }

  #endOf(replicaId: number, leaderEndOffset: number): number {
    if (replicaId === this.#context.brokerId) return leaderEndOffset;
    return this.#followers.get(replicaId)?.logEndOffset ?? UNKNOWN_OFFSET;
  }
}
