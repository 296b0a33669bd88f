/**
 * Producers that keep writing while a test breaks things: idempotent ones and transactional ones
 * that commit and abort in turn. Every acknowledged record is remembered with its offset.
 *
 * - A record's value is unique, so that a duplicate is found by its value.
 * - A producer whose request failed for good is replaced: its transaction is ended by its
 *   successor, so after `stop` no transaction is open.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { JavaClient, ProduceRecord } from './java-client.ts';

/** What one producer sends, over and over. */
export interface LiveProducerOptions {
  readonly bootstrap: string;
  readonly topic: string;
  readonly partitions: number;
  /** Makes it transactional. */
  readonly transactional?: boolean;
  /** Batches per round; a round of a transactional producer is one transaction. */
  readonly batches?: number;
  /** Bytes of every value, at least. */
  readonly valueBytes?: number;
  readonly pauseMs?: number;
  readonly config?: Readonly<Record<string, string>>;
}

/** A record that the cluster said it has. */
export interface Acknowledged {
  readonly partition: number;
  readonly offset: number;
  readonly value: string;
}

const RECORDS_PER_BATCH = 3;
const REOPEN_PAUSE_MS = 200;
/** A producer that cannot be replaced in this many tries ends the test. */
const MAX_REOPENS = 100;

let producers = 0;

/** One producer at work. */
export class LiveProducer {
  readonly acknowledged: Acknowledged[] = [];
  /** Why rounds failed, as a whole or in part. */
  readonly failures: string[] = [];
  readonly #java: JavaClient;
  readonly #options: LiveProducerOptions;
  readonly #name: string;
  readonly #work: Promise<void>;
  #round = 0;
  #stopping = false;

  constructor(java: JavaClient, options: LiveProducerOptions) {
    this.#java = java;
    this.#options = options;
    this.#name = `${options.topic}/live-${++producers}`;
    this.#work = this.#run();
    this.#work.catch(() => undefined); // `stop` tells
  }

  /** Rounds so far. */
  get rounds(): number {
    return this.#round;
  }

  /** Waits until so many more rounds are done, or throws what ended the producer. */
  async more(rounds: number, boundMs = 60_000): Promise<void> {
    const until = this.#round + rounds;
    const deadline = Date.now() + boundMs;
    while (this.#round < until) {
      if (Date.now() > deadline) throw new Error(`${this.#name} makes no progress`);
      await Promise.race([sleep(20), this.#work]);
    }
  }

  /** Ends after the round that is under way; no transaction stays open. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#work;
  }

  async #run(): Promise<void> {
    await this.#open();
    while (!this.#stopping) {
      try {
        await this.#send();
      } catch (error) {
        // Failed for good (time-out, fenced, aborted by the coordinator): a new producer goes on.
        this.failures.push((error as Error).message);
        await this.#java.closeProducer(this.#name, true).catch(() => undefined);
        await this.#open();
      }
      this.#round++;
      await sleep(this.#options.pauseMs ?? 20);
    }
    await this.#java.closeProducer(this.#name);
  }

  async #open(): Promise<void> {
    const { bootstrap, transactional = false, config } = this.#options;
    const id = transactional ? { 'transactional.id': this.#name } : {};
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#java.openProducer(bootstrap, this.#name, { ...id, ...config });
        return;
      } catch (error) {
        if (attempt >= MAX_REOPENS) throw error;
      }
      await sleep(REOPEN_PAUSE_MS);
    }
  }

  #lists(): ProduceRecord[][] {
    const { topic, partitions, batches = 2, valueBytes = 20 } = this.#options;
    return Array.from({ length: batches }, (_, batch) =>
      Array.from({ length: RECORDS_PER_BATCH }, (_, index) => ({
        topic,
        // A transaction is wide and deep: all its batches but the last are of one partition.
        partition: (this.#round + (batch === batches - 1 ? 1 : 0)) % partitions,
        key: `k${index}`,
        value: `${this.#name} ${this.#round}.${batch}.${index} `.padEnd(valueBytes, '.'),
      })),
    );
  }

  async #send(): Promise<void> {
    const { transactional = false } = this.#options;
    const lists = this.#lists();
    if (transactional) await this.#java.begin(this.#name);
    const { results } = await this.#java.produce(this.#name, ...lists);
    const sent = lists.flat();
    for (const [index, { partition, offset }] of results.entries()) {
      if (offset === undefined || partition === undefined) continue;
      this.acknowledged.push({ partition, offset, value: String(sent[index]?.value) });
    }
    const failed = results.find(({ error }) => error !== undefined);
    if (failed !== undefined) throw new Error(`${failed.error}: ${failed.message}`);
    if (!transactional) return;
    if (this.#round % 4 === 3) await this.#java.abort(this.#name);
    else await this.#java.commit(this.#name);
  }
}
