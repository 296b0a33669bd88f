/**
 * One fetch: an answer at once when there is enough, else a long poll.
 *
 * Kafka's rule: answer when `minBytes` are there, when a partition has an error or a divergence,
 * when nothing was asked or the wait is 0, or when `maxWaitMs` is over. While it waits, a change of
 * one partition costs one look at that partition's counters; the log is read again only when the
 * answer is due. The answer itself is put off to the end of the running turn, so that a produce to
 * several partitions is answered with all of it.
 */
import type { Clock, Timer } from '../io/runtime.ts';
import type { FetchEntry, FetchSet, SetWaiter } from './fetch-set.ts';
import { type FetchParams, type FetchResult, isolationOf } from './fetch-types.ts';

/** Answers by entry: of all partitions read since the fetch began. */
export type FetchResults = ReadonlyMap<FetchEntry, FetchResult>;

/** Runs one fetch over `set`; only one at a time per set. */
export function fetchFrom(clock: Clock, set: FetchSet, params: FetchParams): Promise<FetchResults> {
  const results = new Map<FetchEntry, FetchResult>();
  const { bytes, urgent } = set.read(params, results);
  const enough = urgent || set.size === 0 || params.maxWaitMs <= 0 || bytes >= params.minBytes;
  if (enough) return Promise.resolve(results);
  return new Promise((resolve) => {
    new DelayedFetch(clock, set, params, results, bytes, resolve);
  });
}

class DelayedFetch implements SetWaiter {
  readonly #clock: Clock;
  readonly #set: FetchSet;
  readonly #params: FetchParams;
  readonly #results: Map<FetchEntry, FetchResult>;
  readonly #resolve: (results: FetchResults) => void;
  readonly #timer: Timer;
  #availableBytes: number;
  /** Enough has come; the answer is on its way. */
  #due = false;
  #done = false;

  constructor(
    clock: Clock,
    set: FetchSet,
    params: FetchParams,
    results: Map<FetchEntry, FetchResult>,
    availableBytes: number,
    resolve: (results: FetchResults) => void,
  ) {
    this.#clock = clock;
    this.#set = set;
    this.#params = params;
    this.#results = results;
    this.#availableBytes = availableBytes;
    this.#resolve = resolve;
    this.#timer = clock.setTimer(params.maxWaitMs, () => this.#complete());
    set.waitWith(this);
  }

  entryChanged(entry: FetchEntry): void {
    if (this.#due) return;
    if (this.#isUrgent(entry)) {
      this.#becomeDue();
      return;
    }
    const before = entry.available;
    entry.available = countAvailable(entry, this.#params);
    this.#availableBytes += entry.available - before;
    if (this.#availableBytes >= this.#params.minBytes) this.#becomeDue();
  }

  abandoned(): void {
    if (this.#done) return;
    this.#done = true;
    this.#timer.cancel();
    this.#resolve(this.#results);
  }

  #isUrgent(entry: FetchEntry): boolean {
    const { partition, request } = entry;
    if (partition === undefined || partition.role === 'deleted') return true;
    return partition.fetchError(request, this.#params) !== 0;
  }

  #becomeDue(): void {
    this.#due = true;
    this.#timer.cancel();
    this.#clock.defer(() => this.#complete());
  }

  #complete(): void {
    if (this.#done) return;
    this.#done = true;
    this.#due = true;
    this.#set.stopWaiting();
    this.#set.read(this.#params, this.#results);
    this.#resolve(this.#results);
  }
}

/** Bytes that a read of the entry would bring; at least 1 when it would bring any. */
function countAvailable(entry: FetchEntry, params: FetchParams): number {
  const { partition, request } = entry;
  if (partition === undefined) return 0;
  const isolation = isolationOf(params);
  if (partition.upperBound(isolation) <= request.fetchOffset) return 0;
  if (partition.log.isElsewhere(request.fetchOffset)) return 0;
  const counted = entry.baselineBytes + partition.visibleBytes(isolation) - entry.baseline;
  return Math.max(1, Math.min(counted, request.maxBytes));
}
