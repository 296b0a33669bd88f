/**
 * The partitions of one fetch, or of one fetch session, and what is known about each.
 *
 * A partition is *dirty* until a read found nothing new in it, and again as soon as it changes;
 * only dirty ones are read. For a session, whose entries stay subscribed between fetches, a fetch
 * thus costs in proportion to the partitions that moved, not to those that sit idle. Invariants:
 * - A clean entry is subscribed to its partition, and nothing visible of that partition has changed
 *   since its last read. Entries with data, an error or no partition stay dirty.
 * - Dirty entries are read in the order in which they became dirty; one that gave data goes to the
 *   end, so a busy partition does not keep others out of a full response.
 */
import type { Uuid } from '../base/uuid.ts';
import {
  type FetchParams,
  type FetchPartition,
  type FetchResult,
  fetchKey,
  isolationOf,
  type ReadIsolation,
} from './fetch-types.ts';
import type { Partition } from './partition.ts';
import type { Watcher } from './purgatory.ts';

/** How a set finds its partitions and gets answers for those that are not here. */
export interface FetchSource {
  /** The partition, or undefined when this broker does not hold it. */
  find(request: FetchPartition): Partition | undefined;
  /** The answer for a partition that is not here. */
  missing(request: FetchPartition): FetchResult;
}

/** What waits for a set to have enough. */
export interface SetWaiter {
  entryChanged(entry: FetchEntry): void;
  /** The set is gone: answer with what was read. */
  abandoned(): void;
}

/** One partition of a set. Only the set and its waiter touch it. */
export class FetchEntry implements Watcher {
  readonly key: string;
  readonly #set: FetchSet;
  request: FetchPartition;
  partition: Partition | undefined;
  /** What the session's reader was told last; −1 when nothing. */
  sentHighWatermark = -1;
  sentLogStartOffset = -1;
  /** Bytes that a fetch would bring now, as far as counted. */
  available = 0;
  /** The partition's byte counter when `available` was last read exactly, and its value then. */
  baseline = 0;
  baselineBytes = 0;

  constructor(set: FetchSet, key: string, request: FetchPartition) {
    this.#set = set;
    this.key = key;
    this.request = request;
  }

  partitionChanged(): void {
    this.#set.changed(this);
  }
}

/** See the file header. */
export class FetchSet {
  readonly #source: FetchSource;
  readonly #entries = new Map<string, FetchEntry>();
  readonly #dirty = new Set<FetchEntry>();
  #isolation: ReadIsolation | undefined;
  #waiter: SetWaiter | undefined;

  constructor(source: FetchSource) {
    this.#source = source;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Entries that may have something new: the cost of the next fetch. */
  get dirtyCount(): number {
    return this.#dirty.size;
  }

  entries(): IterableIterator<FetchEntry> {
    return this.#entries.values();
  }

  /** Adds a partition or replaces its request. */
  put(request: FetchPartition): void {
    const key = fetchKey(request.topicId, request.topic, request.partition);
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = new FetchEntry(this, key, request);
      this.#entries.set(key, entry);
    }
    entry.request = request;
    this.#dirty.add(entry);
  }

  forget(topicId: Uuid, topic: string, partition: number): void {
    const key = fetchKey(topicId, topic, partition);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    entry.partition?.watchers.delete(entry);
    this.#entries.delete(key);
    this.#dirty.delete(entry);
  }

  /** Ends all subscriptions, and the wait of a fetch. */
  dispose(): void {
    for (const entry of this.#entries.values()) entry.partition?.watchers.delete(entry);
    this.#entries.clear();
    this.#dirty.clear();
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.abandoned();
  }

  /** A watched partition moved. */
  changed(entry: FetchEntry): void {
    this.#dirty.add(entry);
    this.#waiter?.entryChanged(entry);
  }

  /** True while a fetch waits on this set. */
  isWaitedOn(): boolean {
    return this.#waiter !== undefined;
  }

  waitWith(waiter: SetWaiter): void {
    this.#waiter = waiter;
  }

  stopWaiting(): void {
    this.#waiter = undefined;
  }

  /**
   * Reads every dirty entry into `results`, replacing earlier results of the same fetch, within the
   * limits of `params`. Returns the bytes read and whether an answer should not wait.
   */
  read(params: FetchParams, results: Map<FetchEntry, FetchResult>): ReadTotals {
    const isolation = isolationOf(params);
    if (this.#isolation !== isolation) {
      this.#isolation = isolation;
      for (const entry of this.#entries.values()) this.#dirty.add(entry);
    }
    let bytes = 0;
    let urgent = false;
    const gaveData: FetchEntry[] = [];
    for (const entry of [...this.#dirty]) {
      const limit = Math.min(entry.request.maxBytes, Math.max(0, params.maxBytes - bytes));
      const result = this.#readEntry(entry, params, limit, bytes === 0);
      results.set(entry, result);
      bytes += result.bytes;
      if (result.bytes > 0) gaveData.push(entry);
      if (isUrgent(result)) urgent = true;
    }
    for (const entry of gaveData) {
      this.#dirty.delete(entry);
      this.#dirty.add(entry);
    }
    return { bytes, urgent };
  }

  #readEntry(
    entry: FetchEntry,
    params: FetchParams,
    limit: number,
    minOneBatch: boolean,
  ): FetchResult {
    const { request } = entry;
    const isolation = isolationOf(params);
    const partition = this.#source.find(request);
    if (partition !== entry.partition) {
      entry.partition?.watchers.delete(entry);
      entry.partition = partition;
    }
    if (partition === undefined) {
      entry.available = 0;
      return this.#source.missing(request);
    }
    // Subscribed after the read: a follower's fetch changes the partition by itself.
    partition.watchers.delete(entry);
    const result = partition.fetch(request, params, limit, minOneBatch);
    partition.watchers.add(entry);
    if (isExhausted(result, partition, isolation, request.fetchOffset)) this.#dirty.delete(entry);
    entry.available = result.bytes;
    entry.baselineBytes = result.bytes;
    entry.baseline = partition.visibleBytes(isolation);
    return result;
  }
}

/** The sum over a {@link FetchSet.read}. */
export interface ReadTotals {
  readonly bytes: number;
  /** An error or a divergence among the results: answer now. */
  readonly urgent: boolean;
}

/** Whether the reader must hear of a result at once, data or not. */
function isUrgent(result: FetchResult): boolean {
  if (result.error !== 0) return result.isPassing !== true;
  return result.divergingEpoch !== undefined || result.preferredReadReplica !== undefined;
}

/** Whether the read left nothing that another read could bring. */
function isExhausted(
  result: FetchResult,
  partition: Partition,
  isolation: ReadIsolation,
  fetchOffset: number,
): boolean {
  if (result.error !== 0 || result.bytes > 0 || isUrgent(result)) return false;
  return partition.upperBound(isolation) <= fetchOffset;
}
