/**
 * Clients of the source: plain, idempotent and transactional producers, and deletes of records.
 *
 * Everything random comes from the seed. Plain and idempotent batches go over the network; what was
 * acknowledged must be in the log, at the offset that the answer names, exactly once for idempotent
 * ones, repeated or not. The broker does not serve transactions yet, so transactional data and
 * markers are appended inside the source's process, where its coordinator will append them.
 */
import { assert } from '../base/assert.ts';
import type { SeededRandom } from '../base/random.ts';
import type { CompressionType } from '../io/runtime.ts';
import { buildTransactionMarker } from '../protocol/control-record.ts';
import { errorName, errors } from '../protocol/errors.ts';
import { ProduceRequest, ProduceResponse } from '../protocol/messages/00-produce.ts';
import {
  DeleteRecordsRequest,
  DeleteRecordsResponse,
} from '../protocol/messages/21-delete-records.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../protocol/messages/22-init-producer-id.ts';
import { buildRecordBatch, type NewBatch, type NewRecord } from '../protocol/record.ts';
import type { WatchedTopic } from './mirror-invariants.ts';
import type { SimClient } from './sim-client.ts';
import { toyCompression } from './sim-compression.ts';

/** Pause between two writes of one producer, in ms. */
const PAUSE_MS = { min: 2, max: 150 };
/** Pause before a write is repeated, in ms. */
const REPEAT_MS = 200;
/** Transactions of one producer end after at most so many writes. */
const MAX_TRANSACTION_WRITES = 8;

const RETRIABLE: ReadonlySet<number> = new Set<number>([
  errors.UNKNOWN_TOPIC_OR_PARTITION.code,
  errors.NOT_LEADER_OR_FOLLOWER.code,
  errors.LEADER_NOT_AVAILABLE.code,
  errors.KAFKA_STORAGE_ERROR.code,
  errors.REQUEST_TIMED_OUT.code,
]);
/** What an idempotent producer may hear when a power loss took its batches. */
const AFTER_POWER_LOSS: ReadonlySet<number> = new Set<number>([
  errors.OUT_OF_ORDER_SEQUENCE_NUMBER.code,
  errors.DUPLICATE_SEQUENCE_NUMBER.code,
  errors.UNKNOWN_PRODUCER_ID.code,
]);
const CODECS: readonly CompressionType[] = ['gzip', 'snappy', 'lz4', 'zstd'];

/** What the workload asks of its surroundings. */
export interface WorkloadOptions {
  readonly client: SimClient;
  readonly random: SeededRandom;
  readonly topics: readonly WatchedTopic[];
  /** A write was acknowledged; must throw when it is not in the log. */
  readonly onAcknowledged: (
    topic: string,
    index: number,
    baseOffset: number,
    sent: Uint8Array,
  ) => void;
  /** Whether the source may have lost what it acknowledged. */
  readonly mayForget: () => boolean;
}

interface Transaction {
  readonly producerId: bigint;
  readonly topic: string;
  readonly partitions: Set<number>;
  writesLeft: number;
}

/** See the file header. */
export class Workload {
  readonly #options: WorkloadOptions;
  #stopped = false;
  #running = 0;
  #number = 0;
  #acknowledged = 0;

  constructor(options: WorkloadOptions) {
    this.#options = options;
  }

  /** Batches acknowledged so far. */
  get acknowledged(): number {
    return this.#acknowledged;
  }

  /** True once every producer has ended, its transactions with it. */
  get isOver(): boolean {
    return this.#stopped && this.#running === 0;
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Starts the producers of every topic. */
  start(): void {
    for (const topic of this.#options.topics) {
      for (let index = 0; index < topic.partitions; index++) {
        this.#begin(this.#plain(topic.name, index));
      }
      this.#begin(this.#idempotent(topic));
      this.#begin(this.#transactional(topic));
      this.#begin(this.#transactional(topic));
      this.#begin(this.#deletes(topic));
    }
  }

  #begin(producer: Promise<void>): void {
    this.#running++;
    void producer.then(() => {
      this.#running--;
    });
  }

  async #pause(factor = 1): Promise<void> {
    const { min, max } = PAUSE_MS;
    const { client, random } = this.#options;
    await client.sleep(factor * (min + random.fraction() * (max - min)));
  }

  #records(): NewRecord[] {
    const { random, client } = this.#options;
    const now = client.runtime.clock.wallMs();
    return Array.from({ length: 1 + random.below(4) }, (_, i) => ({
      key: random.chance(0.2) ? null : Buffer.from(`key ${random.below(20)}`),
      value: random.chance(0.05)
        ? null
        : Buffer.concat([
            Buffer.from(`value ${this.#number++}.${i} `),
            random.bytes(random.below(random.chance(0.05) ? 4000 : 200)),
          ]),
      timestamp: now - random.below(1000),
      headers: random.chance(0.2) ? [{ key: 'header', value: random.bytes(5) }] : [],
    }));
  }

  #batch(rest: Partial<NewBatch>): Uint8Array {
    const { random } = this.#options;
    const type = CODECS[random.below(CODECS.length)]!;
    const compression = random.chance(0.3) ? { compression: { type, port: toyCompression } } : {};
    return buildRecordBatch({ records: this.#records(), ...compression, ...rest });
  }

  /** One Produce; the error code, or undefined when no answer came. */
  async #produce(topic: string, index: number, records: Uint8Array): Promise<number | undefined> {
    const response = await this.#options.client.send(ProduceRequest, ProduceResponse, {
      transactionalId: null,
      acks: -1,
      timeoutMs: 2_000,
      topicData: [{ name: topic, partitionData: [{ index, records }] }],
    });
    const answer = response?.responses[0]?.partitionResponses[0];
    if (answer?.errorCode === errors.NONE.code) {
      this.#acknowledged++;
      this.#options.onAcknowledged(topic, index, answer.baseOffset, records);
    }
    return answer?.errorCode;
  }

  /** Repeats until an answer other than a passing error; 0 or what else was answered. */
  async #produceSurely(topic: string, index: number, records: Uint8Array): Promise<number> {
    for (;;) {
      const code = await this.#produce(topic, index, records.slice());
      if (code !== undefined && !RETRIABLE.has(code)) return code;
      await this.#options.client.sleep(REPEAT_MS);
    }
  }

  async #plain(topic: string, index: number): Promise<void> {
    while (!this.#stopped) {
      const code = await this.#produce(topic, index, this.#batch({}));
      const fine = code === undefined || code === 0 || RETRIABLE.has(code);
      assert(fine, `a producer is answered ${errorName(code ?? 0)}`);
      await this.#pause();
    }
  }

  /** Undefined only when the workload ends. */
  async #newProducerId(): Promise<bigint | undefined> {
    const { client } = this.#options;
    while (!this.#stopped) {
      const value = { transactionalId: null, transactionTimeoutMs: 60_000 };
      const answer = await client.send(InitProducerIdRequest, InitProducerIdResponse, value);
      if (answer?.errorCode === errors.NONE.code) return answer.producerId;
      await client.sleep(REPEAT_MS);
    }
    return undefined;
  }

  async #idempotent({ name, partitions }: WatchedTopic): Promise<void> {
    let producerId = await this.#newProducerId();
    let sequences = new Map<number, number>();
    while (!this.#stopped && producerId !== undefined) {
      const index = this.#options.random.below(partitions);
      const baseSequence = sequences.get(index) ?? 0;
      const batch = this.#batch({ producerId, producerEpoch: 0, baseSequence });
      const code = await this.#produceSurely(name, index, batch);
      if (code === errors.NONE.code) {
        const count = Buffer.from(batch.buffer, batch.byteOffset).readInt32BE(57);
        sequences.set(index, baseSequence + count);
      } else {
        const excused = this.#options.mayForget() && AFTER_POWER_LOSS.has(code);
        assert(excused, `an idempotent producer is answered ${errorName(code)}`);
        producerId = await this.#newProducerId();
        sequences = new Map();
      }
      await this.#pause();
    }
  }

  async #transactional(topic: WatchedTopic): Promise<void> {
    const { random } = this.#options;
    while (!this.#stopped) {
      const producerId = await this.#newProducerId();
      if (producerId === undefined) return;
      const transaction: Transaction = {
        producerId,
        topic: topic.name,
        partitions: new Set(),
        writesLeft: 1 + random.below(MAX_TRANSACTION_WRITES),
      };
      while (transaction.writesLeft > 0 && !this.#stopped) {
        this.#write(transaction, random.below(topic.partitions));
        await this.#pause();
      }
      await this.#end(transaction, random.chance(0.6));
      await this.#pause(5);
    }
  }

  #write(transaction: Transaction, index: number): void {
    const { topic, producerId } = transaction;
    const partition = this.#options.client.cluster.partition(topic, index);
    if (partition === undefined) return;
    const batch = this.#batch({
      producerId,
      producerEpoch: 0,
      baseSequence: 0,
      isTransactional: true,
    });
    // Also when it fails: the process may end inside the append, with the batch written.
    transaction.partitions.add(index);
    if (partition.append('coordinator', batch, -1).error === 0) transaction.writesLeft--;
  }

  /** Markers reach the partitions one after the other, whatever happens to the broker between. */
  async #end({ producerId, topic, partitions }: Transaction, commit: boolean): Promise<void> {
    const { client } = this.#options;
    for (const index of partitions) {
      for (;;) {
        const timestamp = client.runtime.clock.wallMs();
        const batch = buildTransactionMarker({
          producerId,
          producerEpoch: 0,
          commit,
          coordinatorEpoch: 0,
          timestamp,
        });
        const appended = client.cluster.partition(topic, index)?.append('marker', batch, -1);
        // Without a broker now, the process ended inside the append: nobody knows.
        if (appended?.error === 0 && client.cluster.broker !== undefined) break;
        await client.sleep(REPEAT_MS);
      }
      await this.#pause(0.5);
    }
  }

  async #deletes({ name, partitions }: WatchedTopic): Promise<void> {
    const { client, random } = this.#options;
    while (!this.#stopped) {
      await this.#pause(10 + random.below(40));
      const index = random.below(partitions);
      const log = client.cluster.partition(name, index)?.log;
      if (log === undefined) continue;
      const { logStartOffset, highWatermark } = log;
      const everything = random.chance(0.1);
      const offset = everything
        ? -1
        : logStartOffset + random.below(highWatermark - logStartOffset + 1);
      await client.send(DeleteRecordsRequest, DeleteRecordsResponse, {
        topics: [{ name, partitions: [{ partitionIndex: index, offset }] }],
        timeoutMs: 1_000,
      });
    }
  }
}
