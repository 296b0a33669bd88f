/**
 * Sends ISR changes to the controller: batched, one request in flight.
 *
 * Partitions call `submit` and hear the outcome at most once; a newer change of a partition takes
 * the place of one that waits, as the partition epoch it names is over. While a request is on its
 * way the others gather and go out together. A lost controller, or one that refuses a whole
 * request, is asked again for ever with backoff: the partition gives up by itself when the
 * metadata log moves it on.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import { errors } from '../protocol/errors.ts';
import type {
  AlterPartitionRequest,
  AlterPartitionResponse,
} from '../protocol/messages/56-alter-partition.ts';
import { type BackoffPolicy, backoffMs } from './backoff.ts';

/** Pause before a request that was not answered, or refused as a whole, is sent again. */
export const ALTER_PARTITION_BACKOFF: BackoffPolicy = { initialMs: 50, maxMs: 5_000 };
/** Partitions in one request; the rest go with the next. */
export const MAX_PARTITIONS_PER_REQUEST = 1000;

/** The ISR that a leader wants. */
export interface IsrChange {
  readonly topicId: Uuid;
  readonly partition: number;
  readonly leaderEpoch: number;
  readonly partitionEpoch: number;
  readonly isr: readonly { readonly brokerId: number; readonly brokerEpoch: number }[];
}

/** What became of an {@link IsrChange}. */
export type IsrOutcome =
  | { readonly committed: true; readonly isr: readonly number[]; readonly partitionEpoch: number }
  /** The other fields of the answer mean nothing then. */
  | { readonly committed: false; readonly errorCode: number };

/** Where partitions hand in their changes. */
export interface IsrUpdates {
  submit(change: IsrChange, onOutcome: (outcome: IsrOutcome) => void): void;
}

interface Pending {
  readonly change: IsrChange;
  readonly onOutcome: (outcome: IsrOutcome) => void;
}

type TopicAnswers = AlterPartitionResponse['topics'][number];
type PartitionRequest = AlterPartitionRequest['topics'][number]['partitions'][number];

/** See the file header. */
export class ControllerIsrUpdates implements IsrUpdates {
  readonly #runtime: Runtime;
  readonly #controller: ControllerPort;
  readonly #brokerId: number;
  readonly #brokerEpoch: () => number;
  /** By {@link keyOf}. */
  readonly #waiting = new Map<string, Pending>();
  #inFlight = false;
  #attempts = 0;
  #closed = false;

  constructor(
    runtime: Runtime,
    controller: ControllerPort,
    brokerId: number,
    brokerEpoch: () => number,
  ) {
    this.#runtime = runtime;
    this.#controller = controller;
    this.#brokerId = brokerId;
    this.#brokerEpoch = brokerEpoch;
  }

  submit(change: IsrChange, onOutcome: (outcome: IsrOutcome) => void): void {
    this.#waiting.set(keyOf(change), { change, onOutcome });
    if (!this.#inFlight) this.#runtime.clock.defer(() => this.#send());
  }

  /** Changes still waiting are forgotten. */
  close(): void {
    this.#closed = true;
    this.#waiting.clear();
  }

  #send(): void {
    if (this.#inFlight || this.#closed || this.#waiting.size === 0) return;
    const batch = [...this.#waiting.values()].slice(0, MAX_PARTITIONS_PER_REQUEST);
    for (const { change } of batch) this.#waiting.delete(keyOf(change));
    this.#inFlight = true;
    this.#controller.alterPartition(this.#request(batch)).then(
      (response) => this.#answered(batch, response),
      (reason: unknown) => {
        this.#runtime.logger.warn('AlterPartition found no controller', { reason: String(reason) });
        this.#retry(batch);
      },
    );
  }

  #answered(batch: readonly Pending[], response: AlterPartitionResponse): void {
    if (response.errorCode !== 0) {
      this.#runtime.logger.warn('AlterPartition was refused', { errorCode: response.errorCode });
      this.#retry(batch);
      return;
    }
    this.#inFlight = false;
    this.#attempts = 0;
    const refusals = new Map<number, number>();
    for (const { change, onOutcome } of batch) {
      const outcome = outcomeOf(change, response.topics);
      if (!outcome.committed) {
        refusals.set(outcome.errorCode, (refusals.get(outcome.errorCode) ?? 0) + 1);
      }
      onOutcome(outcome);
    }
    for (const [errorCode, partitions] of refusals) {
      this.#runtime.logger.info('ISR changes were refused', { errorCode, partitions });
    }
    this.#send();
  }

  #retry(batch: readonly Pending[]): void {
    for (const each of batch) {
      const key = keyOf(each.change);
      if (!this.#waiting.has(key)) this.#waiting.set(key, each);
    }
    const { clock, random } = this.#runtime;
    clock.setTimer(backoffMs(ALTER_PARTITION_BACKOFF, ++this.#attempts, random), () => {
      this.#inFlight = false;
      this.#send();
    });
  }

  #request(batch: readonly Pending[]): AlterPartitionRequest {
    const byTopic = new Map<Uuid, PartitionRequest[]>();
    for (const { change } of batch) {
      const partitions = byTopic.get(change.topicId) ?? [];
      byTopic.set(change.topicId, partitions);
      partitions.push({
        partitionIndex: change.partition,
        leaderEpoch: change.leaderEpoch,
        // Of versions below 3 only.
        newIsr: [],
        newIsrWithEpochs: change.isr.map((member) => ({ ...member })),
        leaderRecoveryState: 0,
        partitionEpoch: change.partitionEpoch,
      });
    }
    const topics = [...byTopic].map(([topicId, partitions]) => ({ topicId, partitions }));
    return { brokerId: this.#brokerId, brokerEpoch: this.#brokerEpoch(), topics };
  }
}

function keyOf({ topicId, partition }: IsrChange): string {
  return `${topicId}:${partition}`;
}

function outcomeOf(change: IsrChange, topics: readonly TopicAnswers[]): IsrOutcome {
  const topic = topics.find((each) => each.topicId === change.topicId);
  const answer = topic?.partitions.find((each) => each.partitionIndex === change.partition);
  if (answer === undefined) return refused(errors.UNKNOWN_SERVER_ERROR.code);
  if (answer.errorCode !== 0) return refused(answer.errorCode);
  return { committed: true, isr: answer.isr, partitionEpoch: answer.partitionEpoch };
}

function refused(errorCode: number): IsrOutcome {
  return { committed: false, errorCode };
}
