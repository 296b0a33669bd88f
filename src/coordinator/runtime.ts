/**
 * Replicated state machines on an internal topic: one shard per partition that this broker leads.
 *
 * Used by the group coordinator (`__consumer_offsets`) and the mirror coordinator
 * (`__mirror_state`). A write runs decide → append → replay in one go, so writes of a shard are
 * serialised and each sees the effects of those before it; its answer waits for the commit.
 *
 * - State that comes from the log changes only by `replay`, and only after the log took the record.
 * - A read sees what is appended; `readCommitted` answers once all it saw is committed.
 * - A shard lives within one leader epoch: losing leadership, a newer epoch or a fenced append drop
 *   it, its timers are cancelled, and all that waits on it is answered with NOT_COORDINATOR.
 */
import { Fault, present } from '../base/assert.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';

/** How long a write may wait for its commit before it is answered with REQUEST_TIMED_OUT. */
export const COMMIT_TIMEOUT_MS = 5_000;
/** Pause before a failed load is tried again. */
export const LOAD_RETRY_MS = 1_000;
/** Pause before the write of a timer that could not be appended is decided again. */
export const TIMER_RETRY_MS = 500;
/** Writes of one shard that may wait for a commit; more are answered COORDINATOR_NOT_AVAILABLE. */
export const MAX_PENDING_WRITES = 100_000;

/** Append errors that mean another broker or epoch owns the partition by now. */
const LEADERSHIP_ERRORS: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  errors.NOT_LEADER_OR_FOLLOWER.code,
  errors.FENCED_LEADER_EPOCH.code,
]);

/** One record for the internal topic; a null value is a tombstone. */
export interface CoordinatorRecord {
  readonly key: Uint8Array;
  readonly value: Uint8Array | null;
  /** Milliseconds since 1970; the time of the append when absent. */
  readonly timestampMs?: number;
}

/** The state machine behind one partition. */
export interface CoordinatorShard {
  /** Applies one record, at load and after each append; `offset` is its place in the log. */
  replay(offset: number, key: Uint8Array, value: Uint8Array | null): void;
  /** The log is replayed; from now on writes and reads arrive. */
  onLoaded?(): void;
  /** The shard is dropped: fail whatever waits on state kept outside the log. */
  onUnloaded?(): void;
}

/** The log of an internal topic, implemented over the replica manager. */
export interface CoordinatorLog {
  /**
   * Appends all records as one batch under `leaderEpoch`. `offset` is the offset after the last
   * record; `committed` resolves when the batch is committed and rejects when it never will be.
   */
  append(
    topic: string,
    partition: number,
    leaderEpoch: number,
    records: CoordinatorRecord[],
  ): { offset: number; committed: Promise<void> } | { error: ErrorCode };
  /** Reads the partition from its log start to its high watermark; rejects when it cannot. */
  load(
    topic: string,
    partition: number,
    onRecord: (offset: number, key: Uint8Array, value: Uint8Array | null) => void,
  ): Promise<void>;
}

/** What a write decided. */
export interface Decision<R> {
  readonly records: CoordinatorRecord[];
  readonly response: R;
  /**
   * Called once, before the answer, when the records are committed (0) or will not be (the error).
   * For effects on state outside the log; such a state must have survived other writes meanwhile.
   */
  readonly onCompletion?: (error: ErrorCode) => void;
}

/** Why a coordinator did not run an operation. */
export interface CoordinatorError {
  readonly error: ErrorCode;
}

/** What a shard may use of its surroundings. Timers end with the shard. */
export interface ShardContext<S> {
  readonly partition: number;
  /** Runs a write after `delayMs`; replaces the timer that has the same key. */
  schedule(key: string, delayMs: number, decide: (shard: S) => Decision<unknown>): void;
  cancel(key: string): void;
}

/** What a {@link CoordinatorRuntime} is made of. */
export interface CoordinatorRuntimeOptions<S extends CoordinatorShard> {
  readonly topic: string;
  readonly log: CoordinatorLog;
  readonly newShard: (partition: number, context: ShardContext<S>) => S;
  /** offsets.commit.timeout.ms and the like; {@link COMMIT_TIMEOUT_MS} when absent. */
  readonly commitTimeoutMs?: number;
}

/** A write (or committed read) that is not answered yet. */
interface PendingOperation {
  readonly settle: (error: ErrorCode) => void;
}

/** One shard in one leader epoch. */
interface Tenure<S> {
  readonly partition: number;
  readonly leaderEpoch: number;
  shard: S | undefined;
  state: 'loading' | 'active' | 'dropped';
  readonly timers: Map<string, Timer>;
  readonly pending: Set<PendingOperation>;
  retry: Timer | undefined;
  /** Settles when everything appended so far is committed; undefined when nothing is open. */
  lastCommit: Promise<void> | undefined;
}

/** True for the answer of an operation that did not run. */
export function isCoordinatorError(answer: unknown): answer is CoordinatorError {
  return (
    typeof answer === 'object' &&
    answer !== null &&
    'error' in answer &&
    typeof answer.error === 'number' &&
    Object.keys(answer).length === 1
  );
}

/** The shards of one internal topic on this broker. */
export class CoordinatorRuntime<S extends CoordinatorShard> {
  readonly #runtime: Runtime;
  readonly #options: CoordinatorRuntimeOptions<S>;
  readonly #commitTimeoutMs: number;
  readonly #tenures = new Map<number, Tenure<S>>();

  constructor(runtime: Runtime, options: CoordinatorRuntimeOptions<S>) {
    this.#runtime = runtime;
    this.#options = options;
    this.#commitTimeoutMs = options.commitTimeoutMs ?? COMMIT_TIMEOUT_MS;
  }

  /** Partitions that this broker coordinates now (loading ones are left out). */
  activePartitions(): number[] {
    const active: number[] = [];
    for (const tenure of this.#tenures.values()) {
      if (tenure.state === 'active') active.push(tenure.partition);
    }
    return active.sort((a, b) => a - b);
  }

  /** True while any partition is being replayed. */
  isLoading(): boolean {
    for (const tenure of this.#tenures.values()) if (tenure.state === 'loading') return true;
    return false;
  }

  /** Starts loading; an epoch not above the present one is a repeated or late notice. */
  onBecomeLeader(partition: number, leaderEpoch: number): void {
    const current = this.#tenures.get(partition);
    if (current !== undefined) {
      if (leaderEpoch <= current.leaderEpoch) return;
      this.#drop(current);
    }
    const tenure: Tenure<S> = {
      partition,
      leaderEpoch,
      shard: undefined,
      state: 'loading',
      timers: new Map(),
      pending: new Set(),
      retry: undefined,
      lastCommit: undefined,
    };
    this.#tenures.set(partition, tenure);
    void this.#load(tenure);
  }

  /** Drops the shard; `leaderEpoch`, when known, guards against a notice older than the shard. */
  onLoseLeadership(partition: number, leaderEpoch?: number): void {
    const tenure = this.#tenures.get(partition);
    if (tenure === undefined) return;
    if (leaderEpoch !== undefined && leaderEpoch < tenure.leaderEpoch) return;
    this.#drop(tenure);
  }

  /** Drops every shard: the broker stops. */
  close(): void {
    for (const tenure of [...this.#tenures.values()]) this.#drop(tenure);
  }

  /**
   * Decides, appends and replays now; the answer comes with the commit. Errors: NOT_COORDINATOR,
   * COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, REQUEST_TIMED_OUT, or the append's.
   */
  async write<R>(
    partition: number,
    decide: (shard: S) => Decision<R>,
  ): Promise<R | CoordinatorError> {
    const tenure = this.#activeTenure(partition);
    if ('error' in tenure) return tenure;
    return this.#write(tenure, decide);
  }

  /** Reads what is appended, committed or not. */
  read<R>(partition: number, f: (shard: S) => R): R | CoordinatorError {
    const tenure = this.#activeTenure(partition);
    if ('error' in tenure) return tenure;
    return f(present(tenure.shard, 'shard'));
  }

  /** Reads now, answers when all that could be seen is committed (at once when nothing is open). */
  async readCommitted<R>(partition: number, f: (shard: S) => R): Promise<R | CoordinatorError> {
    const tenure = this.#activeTenure(partition);
    if ('error' in tenure) return tenure;
    const answer = f(present(tenure.shard, 'shard'));
    const error = await this.#awaitCommit(tenure, undefined);
    return error === errors.NONE.code ? answer : { error };
  }

  #activeTenure(partition: number): Tenure<S> | CoordinatorError {
    const tenure = this.#tenures.get(partition);
    if (tenure === undefined) return { error: errors.NOT_COORDINATOR.code };
    if (tenure.state === 'loading') return { error: errors.COORDINATOR_LOAD_IN_PROGRESS.code };
    return tenure;
  }

  async #write<R>(
    tenure: Tenure<S>,
    decide: (shard: S) => Decision<R>,
  ): Promise<R | CoordinatorError> {
    if (tenure.pending.size >= MAX_PENDING_WRITES) {
      return { error: errors.COORDINATOR_NOT_AVAILABLE.code };
    }
    const shard = present(tenure.shard, 'shard');
    const { records, response, onCompletion } = decide(shard);
    if (records.length > 0) {
      const appendError = this.#append(tenure, shard, records);
      if (appendError !== errors.NONE.code) {
        onCompletion?.(appendError);
        return { error: appendError };
      }
    }
    // Without records of its own an answer may still rest on records that are not committed yet.
    const error = await this.#awaitCommit(tenure, onCompletion);
    return error === errors.NONE.code ? response : { error };
  }

  /** Appends, and replays what the log took; afterwards `lastCommit` covers these records. */
  #append(tenure: Tenure<S>, shard: S, records: CoordinatorRecord[]): ErrorCode {
    const { topic, log } = this.#options;
    const result = log.append(topic, tenure.partition, tenure.leaderEpoch, records);
    if ('error' in result) {
      this.#runtime.logger.warn('coordinator append failed', {
        topic,
        partition: tenure.partition,
        error: result.error,
      });
      if (!LEADERSHIP_ERRORS.has(result.error)) return result.error;
      if (this.#tenures.get(tenure.partition) === tenure) this.#drop(tenure);
      return errors.NOT_COORDINATOR.code;
    }
    const firstOffset = result.offset - records.length;
    for (const [index, record] of records.entries()) {
      shard.replay(firstOffset + index, record.key, record.value);
    }
    this.#trackCommit(tenure, result.committed);
    return errors.NONE.code;
  }

  #trackCommit(tenure: Tenure<S>, committed: Promise<void>): void {
    tenure.lastCommit = committed;
    committed.then(
      () => {
        if (tenure.lastCommit === committed) tenure.lastCommit = undefined;
      },
      (cause: unknown) => {
        // The shard is ahead of its log: forget it and replay what the log really has.
        if (tenure.state !== 'active') return;
        this.#runtime.logger.warn('coordinator records were not committed, loading again', {
          topic: this.#options.topic,
          partition: tenure.partition,
          cause: String(cause),
        });
        this.#drop(tenure);
        this.onBecomeLeader(tenure.partition, tenure.leaderEpoch);
      },
    );
  }

  /** Resolves with 0 when everything appended until now is committed, else with the reason. */
  #awaitCommit(
    tenure: Tenure<S>,
    onCompletion: ((error: ErrorCode) => void) | undefined,
  ): Promise<ErrorCode> {
    const committed = tenure.lastCommit;
    if (committed === undefined) {
      onCompletion?.(errors.NONE.code);
      return Promise.resolve(errors.NONE.code);
    }
    return new Promise((resolve) => {
      const settle = (error: ErrorCode): void => {
        if (!tenure.pending.delete(operation)) return;
        timer.cancel();
        onCompletion?.(error);
        resolve(error);
      };
      const operation: PendingOperation = { settle };
      tenure.pending.add(operation);
      const timer = this.#runtime.clock.setTimer(this.#commitTimeoutMs, () =>
        settle(errors.REQUEST_TIMED_OUT.code),
      );
      committed.then(
        () => settle(errors.NONE.code),
        () => settle(errors.NOT_COORDINATOR.code),
      );
    });
  }

  async #load(tenure: Tenure<S>): Promise<void> {
    const { topic, log, newShard } = this.#options;
    const shard = newShard(tenure.partition, this.#context(tenure));
    const startedMs = this.#runtime.clock.monotonicMs();
    let records = 0;
    const failure = await log
      .load(topic, tenure.partition, (offset, key, value) => {
        if (tenure.state !== 'loading') return;
        shard.replay(offset, key, value);
        records++;
      })
      .then(
        () => undefined,
        (cause: unknown) => ({ cause }),
      );
    if (tenure.state !== 'loading') return;
    const where = { topic, partition: tenure.partition, leaderEpoch: tenure.leaderEpoch };
    if (failure !== undefined) {
      if (failure.cause instanceof Fault) throw failure.cause;
      this.#runtime.logger.warn('coordinator load failed', {
        ...where,
        cause: String(failure.cause),
      });
      tenure.retry = this.#runtime.clock.setTimer(LOAD_RETRY_MS, () => void this.#load(tenure));
      return;
    }
    tenure.shard = shard;
    tenure.state = 'active';
    shard.onLoaded?.();
    const elapsedMs = Math.round(this.#runtime.clock.monotonicMs() - startedMs);
    this.#runtime.logger.info('coordinator loaded', { ...where, records, elapsedMs });
  }

  #drop(tenure: Tenure<S>): void {
    tenure.state = 'dropped';
    this.#tenures.delete(tenure.partition);
    tenure.retry?.cancel();
    for (const timer of tenure.timers.values()) timer.cancel();
    tenure.timers.clear();
    for (const operation of [...tenure.pending]) operation.settle(errors.NOT_COORDINATOR.code);
    tenure.shard?.onUnloaded?.();
  }

  #context(tenure: Tenure<S>): ShardContext<S> {
    const cancel = (key: string): void => {
      tenure.timers.get(key)?.cancel();
      tenure.timers.delete(key);
    };
    return {
      partition: tenure.partition,
      schedule: (key, delayMs, decide) => this.#schedule(tenure, key, delayMs, decide),
      cancel,
    };
  }

  #schedule(
    tenure: Tenure<S>,
    key: string,
    delayMs: number,
    decide: (shard: S) => Decision<unknown>,
  ): void {
    tenure.timers.get(key)?.cancel();
    tenure.timers.delete(key);
    if (tenure.state === 'dropped') return;
    const timer = this.#runtime.clock.setTimer(delayMs, () => {
      tenure.timers.delete(key);
      if (tenure.state === 'active') void this.#runTimer(tenure, key, decide);
    });
    tenure.timers.set(key, timer);
  }

  async #runTimer(
    tenure: Tenure<S>,
    key: string,
    decide: (shard: S) => Decision<unknown>,
  ): Promise<void> {
    const answer = await this.#write(tenure, decide);
    if (!isCoordinatorError(answer) || tenure.state !== 'active') return;
    this.#runtime.logger.warn('coordinator timer could not write, trying again', {
      topic: this.#options.topic,
      partition: tenure.partition,
      key,
      error: answer.error,
    });
    if (tenure.timers.has(key)) return;
    this.#schedule(tenure, key, TIMER_RETRY_MS, decide);
  }
}
