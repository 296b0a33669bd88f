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
import type { PartitionRegistration } from '../metadata/image.ts';
import { type FollowerFetch, FollowerState, UNKNOWN_OFFSET } from './follower-state.ts';

/** See the file header. */
export class InSyncReplicas {
  readonly #brokerId: number;
  #replicas: readonly number[] = [];
  #isr: readonly number[] = [];
  #pendingIsr: readonly number[] | undefined;
  readonly #followers = new Map<number, FollowerState>();

  constructor(brokerId: number) {
    this.#brokerId = brokerId;
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
    this.#followers.clear();
    this.trackFollowers(nowMs);
  }

  /** Keeps one state per remote replica; those known stay as they are. */
  trackFollowers(nowMs: number): void {
    for (const id of this.#followers.keys()) {
      if (!this.#replicas.includes(id)) this.#followers.delete(id);
    }
    for (const id of this.#replicas) {
      if (id === this.#brokerId || this.#followers.has(id)) continue;
      this.#followers.set(id, new FollowerState(id, nowMs, this.#isr.includes(id)));
    }
  }

  /** This broker does not lead any more. */
  stop(): void {
    this.#followers.clear();
    this.#pendingIsr = undefined;
  }

  follower(replicaId: number): FollowerState | undefined {
    return this.#followers.get(replicaId);
  }

  followers(): IterableIterator<FollowerState> {
    return this.#followers.values();
  }

  /** False when the replica is not one of this partition. */
  fetched(fetch: FollowerFetch, leaderEndOffset: number, nowMs: number): boolean {
    const follower = this.#followers.get(fetch.replicaId);
    follower?.fetched(fetch, leaderEndOffset, nowMs);
    return follower !== undefined;
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

  /** The larger ISR to ask for now that `replicaId` is at `highWatermark` or above; or undefined. */
  expansion(replicaId: number, highWatermark: number, epochStart: number): number[] | undefined {
    if (this.#pendingIsr !== undefined || this.#isr.includes(replicaId)) return undefined;
    const end = this.#followers.get(replicaId)?.logEndOffset ?? UNKNOWN_OFFSET;
    if (end < highWatermark || end < epochStart) return undefined;
    return [...this.#isr, replicaId];
  }

  /** The smaller ISR to ask for, without those that lag too long; undefined when none does. */
  shrinkage(leaderEndOffset: number, nowMs: number, maxLagMs: number): number[] | undefined {
    if (this.#pendingIsr !== undefined) return undefined;
    const kept = this.#isr.filter((id) => {
      const follower = this.#followers.get(id);
      return !follower?.isOutOfSync(leaderEndOffset, nowMs, maxLagMs);
    });
    return kept.length === this.#isr.length ? undefined : kept;
  }

  /** The ISR has been asked for. */
  propose(isr: readonly number[]): void {
    this.#pendingIsr = isr;
  }

  /** The controller's answer: the committed ISR, or undefined when it refused. */
  settle(isr: readonly number[] | undefined): void {
    this.#pendingIsr = undefined;
    if (isr !== undefined) this.#isr = isr;
  }

  #endOf(replicaId: number, leaderEndOffset: number): number {
    if (replicaId === this.#brokerId) return leaderEndOffset;
    return this.#followers.get(replicaId)?.logEndOffset ?? UNKNOWN_OFFSET;
  }
}
