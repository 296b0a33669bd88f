/**
 * What a leader knows about one follower, from that follower's fetches.
 *
 * One per remote replica and leader epoch, owned by `Partition`: a new epoch starts with nothing
 * known, so neither the high watermark nor the ISR moves on what an earlier leader believed.
 */

/** A follower's offset before its first fetch in this leader epoch. */
export const UNKNOWN_OFFSET = -1;

/** One accepted fetch of a follower. */
export interface FollowerFetch {
  readonly replicaId: number;
  /** Broker epoch (KIP-903), −1 when the fetch carries none. */
  readonly replicaEpoch: number;
  /** The follower's log end offset. */
  readonly fetchOffset: number;
  /** The follower's log start offset. */
  readonly logStartOffset: number;
}

/** See the file header. Times are monotonic milliseconds. */
export class FollowerState {
  readonly replicaId: number;
  #logEndOffset = UNKNOWN_OFFSET;
  #logStartOffset = UNKNOWN_OFFSET;
  #brokerEpoch = -1;
  #lastFetchMs: number;
  #leaderEndAtLastFetch = UNKNOWN_OFFSET;
  #lastCaughtUpMs: number;

  /** A member of the ISR counts as caught up at the moment the epoch starts. */
  constructor(replicaId: number, nowMs: number, inSync: boolean) {
    this.replicaId = replicaId;
    this.#lastFetchMs = nowMs;
    this.#lastCaughtUpMs = inSync ? nowMs : Number.NEGATIVE_INFINITY;
  }

  /** {@link UNKNOWN_OFFSET} until it fetched in this epoch. */
  get logEndOffset(): number {
    return this.#logEndOffset;
  }

  get logStartOffset(): number {
    return this.#logStartOffset;
  }

  get brokerEpoch(): number {
    return this.#brokerEpoch;
  }

  /** Monotonic time of its last fetch in this epoch; of the epoch's start before the first. */
  get lastFetchMs(): number {
    return this.#lastFetchMs;
  }

  /** True when its log end or start is new to us. */
  fetched(fetch: FollowerFetch, leaderEndOffset: number, nowMs: number): boolean {
    const { fetchOffset, logStartOffset } = fetch;
    const moved = fetchOffset !== this.#logEndOffset || logStartOffset !== this.#logStartOffset;
    if (fetch.fetchOffset >= leaderEndOffset) {
      this.#lastCaughtUpMs = nowMs;
    } else if (fetch.fetchOffset >= this.#leaderEndAtLastFetch) {
      this.#lastCaughtUpMs = Math.max(this.#lastCaughtUpMs, this.#lastFetchMs);
    }
    this.#logEndOffset = fetch.fetchOffset;
    this.#logStartOffset = fetch.logStartOffset;
    this.#brokerEpoch = fetch.replicaEpoch;
    this.#leaderEndAtLastFetch = leaderEndOffset;
    this.#lastFetchMs = nowMs;
    return moved;
  }

  /** Whether it lagged for longer than `replica.lag.time.max.ms`. */
  isOutOfSync(leaderEndOffset: number, nowMs: number, maxLagMs: number): boolean {
    return this.#logEndOffset !== leaderEndOffset && nowMs - this.#lastCaughtUpMs > maxLagMs;
  }
}
