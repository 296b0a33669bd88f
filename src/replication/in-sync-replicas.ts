/**
 * The replicas of a partition as its leader sees them: who is in sync, how far each has fetched,
 * how far the high watermark may go, and which ISR to ask the controller for.
 *
 * Owned by `Partition`, which feeds it metadata, fetches and the log end. Invariants:
 * - The ISR is what the controller committed; a change asked for is `pending` until answered or
 *   overtaken by newer metadata, and only one is.
 * - The high watermark waits for committed *and* pending members (the maximal ISR), so it is right
 *   whichever way the controller decides.
 * - Follower states start empty with each leader epoch.
 */
import type { Uuid } from '../base/uuid.ts';
import type { PartitionRegistration } from '../metadata/image.ts';
import { type FollowerFetch, FollowerState, UNKNOWN_OFFSET } from './follower-state.ts';
import type { IsrOutcome, IsrUpdates } from './isr-updates.ts';

/** What ISR changes need of the broker. */
export interface IsrContext {
  readonly brokerId: number;
  readonly isrUpdates: IsrUpdates;
  /** replica.lag.time.max.ms. */
  readonly replicaLagTimeMaxMs: number;
  /** The epoch of a registered broker that may be in an ISR; undefined for any other. */
  readonly activeBrokerEpoch: (brokerId: number) => number | undefined;
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
  #pendingIsr: readonly number[] | undefined;
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

  /** Takes the committed lists; a pending change is settled by that. */
  apply(registration: Pick<PartitionRegistration, 'replicas' | 'isr'>): void {
    this.#replicas = registration.replicas;
    this.#isr = registration.isr;
    this.#pendingIsr = undefined;
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
    this.#pendingIsr = undefined;
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
    for (const id of this.#pendingIsr ?? [])
      least = Math.min(least, this.#endOf(id, leaderEndOffset));
    return least;
  }

  /** Whether every ISR member reported, in this epoch, an end at or below the leader's (T6). */
  allReportedUpTo(leaderEndOffset: number): boolean {
    return this.#isr.every((id) => {
      const end = this.#endOf(id, leaderEndOffset);
      return end !== UNKNOWN_OFFSET && end <= leaderEndOffset;
    });
  }

  /** Asks for `replicaId` in the ISR if it is at the high watermark and past the epoch's start. */
  maybeExpand(replicaId: number, position: LeaderPosition): void {
    if (this.#pendingIsr !== undefined || this.#isr.includes(replicaId)) return;
    const follower = this.#followers.get(replicaId);
    if (follower === undefined) return;
    const { logEndOffset, brokerEpoch } = follower;
    if (logEndOffset < position.highWatermark || logEndOffset < position.epochStartOffset) return;
    const active = this.#context.activeBrokerEpoch(replicaId);
    if (active === undefined || (brokerEpoch >= 0 && brokerEpoch !== active)) return;
    this.#propose([...this.#isr, replicaId], position);
  }

  /** Asks for an ISR without those that lag too long. */
  maybeShrink(position: LeaderPosition, nowMs: number): void {
    if (this.#pendingIsr !== undefined) return;
    const maxLagMs = this.#context.replicaLagTimeMaxMs;
    const kept = this.#isr.filter((id) => {
      return !this.#followers.get(id)?.isOutOfSync(position.logEndOffset, nowMs, maxLagMs);
    });
    if (kept.length < this.#isr.length) this.#propose(kept, position);
  }

  #propose(isr: readonly number[], position: LeaderPosition): void {
    this.#pendingIsr = isr;
    const { leaderEpoch, partitionEpoch } = position;
    const members = isr.map((brokerId) => {
      return { brokerId, brokerEpoch: this.#context.activeBrokerEpoch(brokerId) ?? -1 };
    });
    const change = { topicId: this.#topicId, partition: this.#partition, leaderEpoch };
    this.#context.isrUpdates.submit({ ...change, partitionEpoch, isr: members }, (outcome) => {
      this.#onOutcome(partitionEpoch, outcome);
    });
  }

  /** The controller's answer: the committed ISR, or undefined when it refused. */
  settle(isr: readonly number[] | undefined): void {
    this.#pendingIsr = undefined;
    if (isr !== undefined) this.#isr = isr;
  }

  #endOf(replicaId: number, leaderEndOffset: number): number {
    if (replicaId === this.#context.brokerId) return leaderEndOffset;
    return this.#followers.get(replicaId)?.logEndOffset ?? UNKNOWN_OFFSET;
  }
}
