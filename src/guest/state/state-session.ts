/**
 * A guest's hold of its own transactional id: taken, lost, taken by somebody else, regained.
 *
 * Used by `state-store.ts`, which writes while it is `ready`. Invariants:
 * - One taking at a time: two at once would fence each other.
 * - Ready means, in this order: the id was taken, then `mayOwn` agreed, then everything that was
 *   replicated by then was read. Whoever fenced this guest before had reason to that the metadata
 *   read in between shows, and rows written since are known.
 * - Once fenced it comes back by itself, however long that takes.
 */
import { Fault } from '../../base/assert.ts';
import type { Runtime } from '../../io/runtime.ts';
import { failureOf } from '../../mirror/causes.ts';
import { type BackoffPolicy, backoffMs } from '../../replication/backoff.ts';
import { ClusterError } from '../cluster-client.ts';
import type { StateTopic } from './state-topic.ts';
import { ProducerFenced } from './transactional-producer.ts';

/** Pauses between attempts to take the transactional id back. */
export const REGAIN_BACKOFF: BackoffPolicy = { initialMs: 50, maxMs: 2_000 };

/** What a {@link StateSession} is made of. */
export interface StateSessionOptions {
  readonly nodeId: number;
  readonly topic: StateTopic;
  /** See `GuestStateStoreOptions`. */
  readonly mayOwn: () => Promise<boolean>;
}

/** See the file header. */
export class StateSession {
  readonly #runtime: Pick<Runtime, 'clock' | 'random' | 'logger'>;
  readonly #options: StateSessionOptions;
  #state: 'none' | 'ready' | 'fenced' = 'none';
  #taking: Promise<void> | undefined;
  #closed = false;

  constructor(runtime: Pick<Runtime, 'clock' | 'random' | 'logger'>, options: StateSessionOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  get isFenced(): boolean {
    return this.#state === 'fenced';
  }

  close(): void {
    this.#closed = true;
  }

  /** Ready when this resolves; rejects with a `ClusterError` or {@link ProducerFenced}. */
  async ensure(): Promise<void> {
    if (this.#state !== 'ready') await this.#take();
  }

  /** The same without waiting: what this guest left open before it was restarted is ended. */
  begin(): void {
    if (this.#state !== 'none' || this.#closed) return;
    this.#take().catch((error: unknown) => {
      const { message } = this.#expected(error);
      if (!this.#closed) this.#runtime.logger.info('not writing yet', { reason: message });
    });
  }

  /** A transaction failed, or its outcome is not known: the id must be taken anew. */
  lose(): void {
    if (this.#state === 'ready') this.#state = 'none';
  }

  /** Somebody took the id: nothing is written until it was taken back. */
  fence(reason: string): void {
    this.#runtime.logger.warn('fenced from the mirror state', { reason });
    if (this.#state === 'fenced') return;
    this.#state = 'fenced';
    void this.#regain();
  }

  /** Whether this guest is a member in good standing; no when nobody can tell. */
  async mayOwn(): Promise<boolean> {
    try {
      return await this.#options.mayOwn();
    } catch (error) {
      if (error instanceof Fault) throw error;
      // Without a controller; it is asked again.
      this.#runtime.logger.warn('membership is not known', { error });
      return false;
    }
  }

  #take(): Promise<void> {
    this.#taking ??= this.#takeNow().finally(() => {
      this.#taking = undefined;
    });
    return this.#taking;
  }

  async #takeNow(): Promise<void> {
    const { topic, nodeId } = this.#options;
    await topic.init();
    if (!(await this.mayOwn())) {
      throw new ProducerFenced('this guest is no member in good standing at the moment');
    }
    await topic.readToEnd('highWatermark');
    this.#state = 'ready';
    this.#runtime.logger.info('writing mirror states', { guest: nodeId });
  }

  async #regain(): Promise<void> {
    const { clock, random, logger } = this.#runtime;
    for (let attempts = 1; !this.#closed; attempts++) {
      const pauseMs = backoffMs(REGAIN_BACKOFF, attempts, random);
      await new Promise<void>((resolve) => clock.setTimer(pauseMs, resolve));
      if (this.#closed) return;
      try {
        await this.#take();
        return;
      } catch (error) {
        const { message } = this.#expected(error);
        if (!this.#closed) logger.warn('still fenced from the mirror state', { reason: message });
      }
    }
  }

  /** What is not one of the two is logged with its stack; a Fault is thrown on. */
  #expected(error: unknown): Error {
    if (error instanceof ClusterError || error instanceof ProducerFenced) return error;
    return failureOf(error, this.#runtime.logger);
  }
}
