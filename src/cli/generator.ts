/**
 * A small producer for the quickstart: writes made-up orders to a topic at a steady rate.
 *
 * Speaks Produce over an ordinary connection, creates the topic first, and waits for every answer,
 * so a rate the broker cannot keep up with slows it down instead of queueing.
 */
import type { Runtime, Timer } from '../io/runtime.ts';
import { errorName, errors } from '../protocol/errors.ts';
import { KafkaConnection } from '../protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../protocol/messages/00-produce.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../protocol/messages/19-create-topics.ts';
import { buildRecordBatch } from '../protocol/record.ts';
import { CommandError } from './output.ts';

const PARTITIONS = 3;
const TICK_MS = 200;
const REQUEST_TIMEOUT_MS = 10_000;
/** Names the topic; later versions name it by id. */
const PRODUCE_BY_NAME_VERSION = 12;
const ITEMS = ['apples', 'bread', 'coffee', 'dates', 'eggs', 'figs'];

/** Produces until stopped. */
export class Generator {
  readonly #runtime: Runtime;
  readonly #connection: KafkaConnection;
  readonly #topic: string;
  readonly #perTick: number;
  /** Fractions of a record that earlier ticks still owe. */
  #owed = 0;
  #timer: Timer | undefined;
  #sending: Promise<void> = Promise.resolve();
  #order = 0;
  #partition = 0;
  #stopped = false;

  private constructor(runtime: Runtime, connection: KafkaConnection, topic: string, rate: number) {
    this.#runtime = runtime;
    this.#connection = connection;
    this.#topic = topic;
    this.#perTick = (rate * TICK_MS) / 1000;
  }

  /** Creates the topic and starts producing `rate` records per second. */
  static async start(
    runtime: Runtime,
    broker: { readonly host: string; readonly port: number },
    topic: string,
    rate: number,
  ): Promise<Generator> {
    const connection = await KafkaConnection.connect(runtime, {
      host: broker.host,
      port: broker.port,
      clientId: 'twinlog-generator',
    });
    const response = await connection.send(CreateTopicsRequest, CreateTopicsResponse, {
      topics: [
        {
          name: topic,
          numPartitions: PARTITIONS,
          replicationFactor: 1,
          assignments: [],
          configs: [],
        },
      ],
      timeoutMs: REQUEST_TIMEOUT_MS,
    });
    const code = response.topics[0]?.errorCode ?? 0;
    if (code !== 0 && code !== errors.TOPIC_ALREADY_EXISTS.code) {
      throw new CommandError(`Topic ${topic} cannot be created: ${errorName(code)}.`);
    }
    const generator = new Generator(runtime, connection, topic, rate);
    if (rate > 0) generator.#tick();
    return generator;
  }

  /** Waits for what is on its way, then ends. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#sending;
    this.#connection.close();
  }

  #tick(): void {
    this.#sending = this.#send().then(
      () => {
        if (this.#stopped) return;
        this.#timer = this.#runtime.clock.setTimer(TICK_MS, () => this.#tick());
      },
      (error: unknown) => this.#fail(error instanceof Error ? error.message : String(error)),
    );
  }

  #fail(reason: string): void {
    this.#stopped = true;
    this.#runtime.logger.error('the generator stops', { reason });
  }

  async #send(): Promise<void> {
    this.#owed += this.#perTick;
    const count = Math.floor(this.#owed);
    if (count === 0) return;
    this.#owed -= count;
    const batch = this.#batch(count);
    this.#partition = (this.#partition + 1) % PARTITIONS;
    const response = await this.#connection.send(
      ProduceRequest,
      ProduceResponse,
      {
        acks: -1,
        timeoutMs: REQUEST_TIMEOUT_MS,
        topicData: [
          { name: this.#topic, partitionData: [{ index: this.#partition, records: batch }] },
        ],
      },
      { maxVersion: PRODUCE_BY_NAME_VERSION },
    );
    const result = response.responses[0]?.partitionResponses[0];
    if (result === undefined || result.errorCode === 0) return;
    this.#fail(`its records are refused: ${result.errorMessage ?? errorName(result.errorCode)}`);
  }

  #batch(count: number): Uint8Array {
    const nowMs = this.#runtime.clock.wallMs();
    const records = Array.from({ length: count }, () => {
      const id = ++this.#order;
      const item = ITEMS[Math.floor(this.#runtime.random.fraction() * ITEMS.length)];
      return {
        key: Buffer.from(`order-${id}`),
        value: Buffer.from(JSON.stringify({ id, item, amount: 1 + (id % 9) })),
        headers: [],
        timestamp: BigInt(nowMs),
      };
    });
    return buildRecordBatch({ baseOffset: 0, records });
  }
}
