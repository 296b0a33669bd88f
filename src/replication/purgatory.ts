/**
 * Waiting for a partition to change: what Kafka calls the purgatory, keyed by partition.
 *
 * Each partition has one {@link WatcherList}. Produce requests that wait for the high watermark,
 * fetches that wait for data and DeleteRecords register here and nowhere else, so a change costs
 * in proportion to those that wait for this very partition. Watchers look at the partition's state;
 * the notice itself says only that something moved: log end, high watermark, last stable offset,
 * log start, leadership, ISR, or that the partition is gone.
 */
import type { Clock, Timer } from '../io/runtime.ts';

/** Waits at a partition. */
export interface Watcher {
  /** Called inside the change: must neither throw, nor wait, nor change the partition. */
  partitionChanged(): void;
}

/** Who waits at one partition. */
export class WatcherList {
  /** Made for the first one: most partitions never have any. */
  #watchers: Set<Watcher> | undefined;

  get size(): number {
    return this.#watchers?.size ?? 0;
  }

  add(watcher: Watcher): void {
    this.#watchers ??= new Set();
    this.#watchers.add(watcher);
  }

  delete(watcher: Watcher): void {
    this.#watchers?.delete(watcher);
  }

  /** Tells every watcher; one that leaves during the round is not told. */
  notify(): void {
    if (this.#watchers === undefined) return;
    for (const watcher of this.#watchers) watcher.partitionChanged();
  }
}

/** A one-shot wait for `check` to give a result. */
class DelayedCheck<R> implements Watcher {
  readonly #watchers: WatcherList;
  readonly #check: () => R | undefined;
  readonly #resolve: (result: R) => void;
  readonly #timer: Timer | undefined;
  #done = false;

  constructor(
    clock: Clock,
    watchers: WatcherList,
    wait: { timeoutMs: number | undefined; check: () => R | undefined; onTimeout: () => R },
    resolve: (result: R) => void,
  ) {
    this.#watchers = watchers;
    this.#check = wait.check;
    this.#resolve = resolve;
    if (wait.timeoutMs !== undefined) {
      this.#timer = clock.setTimer(wait.timeoutMs, () => this.#finish(wait.onTimeout()));
    }
    watchers.add(this);
  }

  partitionChanged(): void {
    const result = this.#check();
    if (result !== undefined) this.#finish(result);
  }

  #finish(result: R): void {
    if (this.#done) return;
    this.#done = true;
    this.#timer?.cancel();
    this.#watchers.delete(this);
    this.#resolve(result);
  }
}

/**
 * Resolves with the first result of `check`, looked at now and at each change, or with that of
 * `onTimeout` after `timeoutMs` (undefined: wait as long as it takes).
 */
export function whenPartition<R>(
  clock: Clock,
  watchers: WatcherList,
  timeoutMs: number | undefined,
  check: () => R | undefined,
  onTimeout: () => R,
): Promise<R> {
  const now = check();
  if (now !== undefined) return Promise.resolve(now);
  if (timeoutMs !== undefined && timeoutMs <= 0) return Promise.resolve(onTimeout());
  return new Promise((resolve) => {
    new DelayedCheck(clock, watchers, { timeoutMs, check, onTimeout }, resolve);
  });
}
