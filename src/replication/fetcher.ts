/**
 * The fetcher loop: keeps one fetch in flight to one leader for a changing set of partitions.
 *
 * Followers and mirrors share it; they differ in the endpoint (how to ask) and the sink (what to do
 * with an answer). Invariants:
 * - One fetch at a time; its answers are given to the sink synchronously, partition by partition.
 * - A partition that was removed, changed or delayed since the fetch went out is never given to
 *   the sink: once `remove` has returned, nothing of that partition is appended any more.
 * - An error of one partition delays that partition alone; a failed fetch delays the whole loop.
 * - Each turn costs in proportion to the partitions that changed or had data, not to all of them.
 * - A partition that had data goes to the end of the line, so a busy one starves no other.
 */
import type { Runtime, Timer } from '../io/runtime.ts';
import { type BackoffPolicy, backoffMs } from './backoff.ts';
import { fetchKey } from './fetch-types.ts';
import type { FetchedPartition, FetchTarget, LeaderEndpoint } from './leader-endpoint.ts';

/** Default pause after a failed fetch: first and longest, in ms. */
export const FETCH_BACKOFF: BackoffPolicy = { initialMs: 50, maxMs: 1000 };
/** Default pause of a partition whose answer was an error: first and longest, in ms. */
export const PARTITION_BACKOFF: BackoffPolicy = { initialMs: 100, maxMs: 1000 };
/** Lost fetch sessions in a row that are repaired at once; beyond, the loop backs off. */
export const MAX_SESSION_LOSSES = 1;

/** What is to happen with a partition after its answer. */
export type SinkAction =
  /** Go on, with what changed of the target. The same target: nothing changed. */
  | { readonly kind: 'continue'; readonly target: FetchTarget }
  /** Ask again after this partition's own backoff. */
  | { readonly kind: 'retry' }
  /** Ask again after a delay. */
  | { readonly kind: 'delay'; readonly delayMs: number }
  /** Leave it out until `update` (something asynchronous must happen first). */
  | { readonly kind: 'pause' }
  /** It is none of this loop's business any more. */
  | { readonly kind: 'remove' };

/** Takes what a loop fetched. */
export interface FetchSink {
  /** Called within the response; records are valid only during the call. */
  onPartition(target: FetchTarget, fetched: FetchedPartition): SinkAction;
  /** A whole fetch failed; `attempt` counts failures in a row from 1. */
  onFailure(failure: FetchFailure): void;
  /** A fetch was answered (also when every partition was idle). */
  onAnswer(): void;
}

/** Why a fetch brought nothing. */
export interface FetchFailure {
  readonly cause: string;
  readonly message: string;
  readonly attempt: number;
  readonly retryInMs: number;
}

/** Delays of a loop; absent ones are the defaults above. */
export interface FetcherOptions {
  readonly fetchBackoff?: BackoffPolicy;
  readonly partitionBackoff?: BackoffPolicy;
}

/** `ready`: part of each fetch. `delayed`: until its timer. `paused`: until `update`. */
export type TargetState = 'ready' | 'delayed' | 'paused';

interface Entry {
  target: FetchTarget;
  state: TargetState;
  /** Errors in a row. */
  failures: number;
  timer: Timer | undefined;
}

/** See the file header. */
export class FetcherLoop {
  readonly #runtime: Runtime;
  readonly #endpoint: LeaderEndpoint;
  readonly #sink: FetchSink;
  readonly #fetchBackoff: BackoffPolicy;
  readonly #partitionBackoff: BackoffPolicy;
  readonly #entries = new Map<string, Entry>();
  /** Not yet told to the endpoint, in order. */
  #updated = new Map<string, FetchTarget>();
  #removed = new Map<string, FetchTarget>();
  #readyCount = 0;
  #running = false;
  #closed = false;
  #failures = 0;
  #sessionLosses = 0;
  #retryTimer: Timer | undefined;

  constructor(
    runtime: Runtime,
    endpoint: LeaderEndpoint,
    sink: FetchSink,
    options: FetcherOptions = {},
  ) {
    this.#runtime = runtime;
    this.#endpoint = endpoint;
    this.#sink = sink;
    this.#fetchBackoff = options.fetchBackoff ?? FETCH_BACKOFF;
    this.#partitionBackoff = options.partitionBackoff ?? PARTITION_BACKOFF;
  }

  /** Partitions in this loop, whatever their state. */
  get size(): number {
    return this.#entries.size;
  }

  /** Undefined when the partition is not in this loop. */
  stateOf(topic: Pick<FetchTarget, 'topic' | 'topicId' | 'partition'>): TargetState | undefined {
    return this.#entries.get(keyOf(topic))?.state;
  }

  /** Adds a partition or replaces its target, from the next fetch on; ends a delay or pause. */
  update(target: FetchTarget): void {
    if (this.#closed) return;
    const key = keyOf(target);
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { target, state: 'paused', failures: 0, timer: undefined };
      this.#entries.set(key, entry);
    }
    entry.target = target;
    this.#makeReady(key, entry);
    this.#start();
  }

  /** After this nothing of the partition reaches the sink. False when it was not in this loop. */
  remove(topic: Pick<FetchTarget, 'topic' | 'topicId' | 'partition'>): boolean {
    const key = keyOf(topic);
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    this.#unready(key, entry, 'paused');
    this.#entries.delete(key);
    return true;
  }

  /** Ends the loop and its endpoint; nothing reaches the sink after this. */
  close(): void {
    this.#closed = true;
    this.#retryTimer?.cancel();
    for (const entry of this.#entries.values()) entry.timer?.cancel();
    this.#entries.clear();
    this.#endpoint.close();
  }

  #makeReady(key: string, entry: Entry): void {
    entry.timer?.cancel();
    entry.timer = undefined;
    if (entry.state !== 'ready') this.#readyCount++;
    entry.state = 'ready';
    this.#removed.delete(key);
    this.#updated.delete(key);
    this.#updated.set(key, entry.target);
  }

  #unready(key: string, entry: Entry, state: 'delayed' | 'paused'): void {
    entry.timer?.cancel();
    entry.timer = undefined;
    if (entry.state === 'ready') {
      this.#readyCount--;
      this.#updated.delete(key);
      this.#removed.set(key, entry.target);
    }
    entry.state = state;
  }

  #start(): void {
    if (this.#running || this.#closed || this.#readyCount === 0) return;
    this.#running = true;
    // Partitions added in one go share the first fetch.
    this.#runtime.clock.defer(() => this.#fetch());
  }

  #fetch(): void {
    if (this.#closed || this.#readyCount === 0) {
      this.#running = false;
      return;
    }
    const changes = {
      updated: [...this.#updated.values()],
      removed: [...this.#removed.values()],
    };
    this.#updated = new Map();
    this.#removed = new Map();
    const answered = this.#endpoint.fetch(changes, (target, fetched) => {
      this.#deliver(target, fetched);
    });
    void answered.then((outcome) => {
      if (this.#closed) return;
      if (outcome.kind === 'failed') this.#failed(outcome.cause, outcome.message);
      else if (outcome.kind === 'sessionLost') this.#sessionLost(outcome.errorCode);
      else this.#answered();
    });
  }

  #answered(): void {
    this.#failures = 0;
    this.#sessionLosses = 0;
    this.#sink.onAnswer();
    this.#fetch();
  }

  #sessionLost(errorCode: number): void {
    this.#sessionLosses++;
    if (this.#sessionLosses > MAX_SESSION_LOSSES) {
      this.#failed('SESSION', `fetch session lost again and again (error ${errorCode})`);
    } else {
      this.#fetch();
    }
  }

  #failed(cause: string, message: string): void {
    this.#failures++;
    const retryInMs = backoffMs(this.#fetchBackoff, this.#failures, this.#runtime.random);
    this.#retryTimer = this.#runtime.clock.setTimer(retryInMs, () => {
      this.#retryTimer = undefined;
      this.#fetch();
    });
    this.#sink.onFailure({ cause, message, attempt: this.#failures, retryInMs });
  }

  #deliver(target: FetchTarget, fetched: FetchedPartition): void {
    const key = keyOf(target);
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.state !== 'ready' || entry.target !== target) return;
    const action = this.#sink.onPartition(target, fetched);
    // The sink itself may have removed or changed the partition.
    if (this.#entries.get(key) !== entry || entry.target !== target) return;
    this.#act(key, entry, action);
  }

  #act(key: string, entry: Entry, action: SinkAction): void {
    switch (action.kind) {
      case 'continue':
        entry.failures = 0;
        if (action.target !== entry.target) {
          entry.target = action.target;
          this.#makeReady(key, entry);
        }
        return;
      case 'retry':
        entry.failures++;
        this.#delay(
          key,
          entry,
          backoffMs(this.#partitionBackoff, entry.failures, this.#runtime.random),
        );
        return;
      case 'delay':
        this.#delay(key, entry, action.delayMs);
        return;
      case 'pause':
        this.#unready(key, entry, 'paused');
        return;
      case 'remove':
        this.#unready(key, entry, 'paused');
        this.#entries.delete(key);
        return;
    }
  }

  #delay(key: string, entry: Entry, delayMs: number): void {
    this.#unready(key, entry, 'delayed');
    entry.timer = this.#runtime.clock.setTimer(delayMs, () => {
      this.#makeReady(key, entry);
      this.#start();
    });
  }
}

function keyOf(target: Pick<FetchTarget, 'topic' | 'topicId' | 'partition'>): string {
  return fetchKey(target.topicId, target.topic, target.partition);
}
