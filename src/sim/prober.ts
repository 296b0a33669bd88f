/**
 * A client of the destination that never stops trying to write to the mirrored topics (R1).
 *
 * What it wrote carries a mark, by which the invariants know a write of the destination's own. Here
 * only the answers are judged: a refusal must be one that clients understand, a read-only one must
 * say so as R3 has it, and what was acknowledged must be in the log.
 */
import { assert } from '../base/assert.ts';
import type { SeededRandom } from '../base/random.ts';
import { errorName, errors } from '../protocol/errors.ts';
import { ProduceRequest, ProduceResponse } from '../protocol/messages/00-produce.ts';
import {
  DeleteRecordsRequest,
  DeleteRecordsResponse,
} from '../protocol/messages/21-delete-records.ts';
import { buildRecordBatch } from '../protocol/record.ts';
import type { WatchedTopic } from './mirror-invariants.ts';
import type { SimClient } from './sim-client.ts';

/** In the value of everything that the prober of a mirror writes. */
export function probeMark(mirror: string): string {
  return `written-at-the-destination-of-${mirror} `;
}

/** Pause between two probes, in ms. */
const PAUSE_MS = { min: 5, max: 120 };

/** What a stock client expects from a broker that starts, stops or fails. */
const EXPECTED: ReadonlySet<number> = new Set<number>([
  errors.UNKNOWN_TOPIC_OR_PARTITION.code,
  errors.NOT_LEADER_OR_FOLLOWER.code,
  errors.LEADER_NOT_AVAILABLE.code,
  errors.KAFKA_STORAGE_ERROR.code,
  errors.REQUEST_TIMED_OUT.code,
]);

/** Whether the prober of a mirror wrote this batch. */
export function isProbe(batch: Uint8Array, mirror: string): boolean {
  return Buffer.from(batch.buffer, batch.byteOffset, batch.length).includes(probeMark(mirror));
}

/** See the file header. */
export class Prober {
  readonly #client: SimClient;
  readonly #random: SeededRandom;
  readonly #mirror: string;
  readonly #topics: readonly WatchedTopic[];
  #stopped = false;
  #accepted = 0;
  #refused = 0;

  constructor(
    client: SimClient,
    random: SeededRandom,
    mirror: string,
    topics: readonly WatchedTopic[],
  ) {
    this.#client = client;
    this.#random = random;
    this.#mirror = mirror;
    this.#topics = topics;
  }

  /** Answers so far: taken, and refused as read-only. */
  get answers(): { readonly accepted: number; readonly refused: number } {
    return { accepted: this.#accepted, refused: this.#refused };
  }

  stop(): void {
    this.#stopped = true;
  }

  /** Probes until `stop`. */
  async run(): Promise<void> {
    for (let i = 0; !this.#stopped; i++) {
      const topic = this.#topics[this.#random.below(this.#topics.length)]!;
      const index = this.#random.below(topic.partitions);
      if (this.#random.chance(0.1)) await this.#deleteRecords(topic.name, index);
      else await this.#produce(topic.name, index, i);
      const { min, max } = PAUSE_MS;
      await this.#client.sleep(min + this.#random.fraction() * (max - min));
    }
  }

  async #produce(topic: string, index: number, number: number): Promise<void> {
    const value = Buffer.from(`${probeMark(this.#mirror)}${number}`);
    const timestamp = this.#client.runtime.clock.wallMs();
    const records = buildRecordBatch({ records: [{ key: null, value, timestamp }] });
    const response = await this.#client.send(ProduceRequest, ProduceResponse, {
      transactionalId: null,
      acks: -1,
      timeoutMs: 2_000,
      topicData: [{ name: topic, partitionData: [{ index, records }] }],
    });
    const answer = response?.responses[0]?.partitionResponses[0];
    if (answer === undefined) return;
    if (answer.errorCode === errors.NONE.code) this.#accepted++;
    else this.#judge(topic, answer.errorCode, answer.errorMessage);
  }

  /** Below offset 0 there is nothing to delete: what matters is whether it is allowed. */
  async #deleteRecords(topic: string, partitionIndex: number): Promise<void> {
    const response = await this.#client.send(DeleteRecordsRequest, DeleteRecordsResponse, {
      topics: [{ name: topic, partitions: [{ partitionIndex, offset: 0 }] }],
      timeoutMs: 1_000,
    });
    const errorCode = response?.topics[0]?.partitions[0]?.errorCode;
    if (errorCode === undefined || errorCode === errors.NONE.code) return;
    if (errorCode !== errors.POLICY_VIOLATION.code) this.#judge(topic, errorCode, '');
  }

  #judge(topic: string, errorCode: number, message: string | null): void {
    if (errorCode === errors.POLICY_VIOLATION.code) {
      this.#refused++;
      const says = message?.startsWith('ReadOnlyTopicException:') && message.includes(topic);
      assert(says === true, `R3: a read-only topic answers '${message}'`);
      return;
    }
    const name = errorName(errorCode);
    assert(EXPECTED.has(errorCode), `a producer is answered ${name}: ${message}`);
  }
}
