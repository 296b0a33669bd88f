/**
 * Writes records to a topic of Apache Kafka in transactions, under one transactional id.
 *
 * Used by `state-topic.ts`. `init` fences every earlier holder of the id, ends what it left open
 * and only then returns; `commit` writes one transaction. Invariants:
 * - A transaction is over only when `commit` returned. Anything else, an outcome that is not known
 *   included, ends the session: the next `init` finds out what became of it, by ending it.
 * - Within a session nothing is sent twice with different contents: repeats carry the same
 *   producer id, epoch and sequence, so that the cluster takes them once.
 * - Transactions follow each other; one at a time.
 */
import { errors } from '../../protocol/errors.ts';
import { ProduceRequest, ProduceResponse } from '../../protocol/messages/00-produce.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../../protocol/messages/22-init-producer-id.ts';
import {
  AddPartitionsToTxnRequest,
  AddPartitionsToTxnResponse,
} from '../../protocol/messages/24-add-partitions-to-txn.ts';
import { EndTxnRequest, EndTxnResponse } from '../../protocol/messages/26-end-txn.ts';
import { buildRecordBatch, type NewRecord } from '../../protocol/record.ts';
import { incrementSequence } from '../../protocol/record-batch.ts';
import { type ClusterClient, ClusterError, type ClusterTarget } from '../cluster-client.ts';

/** The coordinator aborts a transaction that takes longer, in ms: what a dead guest left open. */
export const TRANSACTION_TIMEOUT_MS = 10_000;
/** How long each step of a transaction is repeated, in ms. */
export const STEP_BOUND_MS = 8_000;
/** How long a transactional id may be asked for, in ms: an open transaction must end first. */
export const INIT_BOUND_MS = 20_000;
/** How long the leader may wait for its followers, in ms. */
const ACKS_TIMEOUT_MS = 5_000;
const ACKS_ALL = -1;

/** Finalised `transaction.version` from which a transaction ends with a new epoch (KIP-890). */
const EPOCH_PER_TRANSACTION = 2;
/** The last versions of the protocol before that, for clients. */
const BEFORE_V2 = { produce: 11, addPartitions: 3, endTxn: 4 } as const;
/** Later versions are about two-phase commit. */
const LAST_INIT_VERSION = 5;

const FENCED: ReadonlySet<number> = new Set<number>([
  errors.INVALID_PRODUCER_EPOCH.code,
  errors.PRODUCER_FENCED.code,
  errors.INVALID_PRODUCER_ID_MAPPING.code,
]);

/** A producer's right to write under a transactional id. */
interface Session {
  producerId: bigint;
  producerEpoch: number;
  readonly endsWithNewEpoch: boolean;
  /** Next sequence number by partition. */
  readonly sequences: Map<number, number>;
}

/** The session is over: somebody else holds the id, or the coordinator ended a transaction. */
export class ProducerFenced extends Error {
  override readonly name = 'ProducerFenced';
}

/** The coordinator of a transactional id. */
function coordinatorOf(transactionalId: string): ClusterTarget {
  return { to: 'coordinator', of: 'transaction', key: transactionalId };
}

function fencedOr(error: unknown): unknown {
  const isFenced = error instanceof ClusterError && FENCED.has(error.errorCode);
  return isFenced ? new ProducerFenced(error.message) : error;
}

function check(code: number, what: string): void {
  if (code === errors.NONE.code) return;
  if (FENCED.has(code)) throw new ProducerFenced(`${what}: error ${code}`);
  throw new ClusterError('refused', `${what}: error ${code}`, code);
}

/**
 * Takes a transactional id: earlier holders are fenced, their open transaction is ended, and its
 * markers are written, when this resolves. Rejects with a {@link ClusterError}.
 */
export async function takeTransactionalId(
  client: ClusterClient,
  transactionalId: string,
): Promise<{ readonly producerId: bigint; readonly producerEpoch: number }> {
  const response = await client.call(
    coordinatorOf(transactionalId),
    InitProducerIdRequest,
    InitProducerIdResponse,
    { transactionalId, transactionTimeoutMs: TRANSACTION_TIMEOUT_MS },
    {
      maxVersion: LAST_INIT_VERSION,
      retryBoundMs: INIT_BOUND_MS,
      errorCode: ({ errorCode }) => errorCode,
    },
  );
  check(response.errorCode, `InitProducerId of ${transactionalId}`);
  return response;
}

/** See the file header. */
export class TransactionalProducer {
  readonly #client: ClusterClient;
  readonly #transactionalId: string;
  #session: Session | undefined;

  constructor(client: ClusterClient, transactionalId: string) {
    this.#client = client;
    this.#transactionalId = transactionalId;
  }

  /** Begins a session; rejects with a {@link ClusterError}. */
  async init(): Promise<void> {
    this.#session = undefined;
    const taken = await takeTransactionalId(this.#client, this.#transactionalId);
    const level = await this.#client.inspect(coordinatorOf(this.#transactionalId), (connection) =>
      connection.version(EndTxnRequest) === EndTxnRequest.versions.max
        ? connection.featureLevel('transaction.version')
        : 0,
    );
    this.#session = {
      producerId: taken.producerId,
      producerEpoch: taken.producerEpoch,
      endsWithNewEpoch: level >= EPOCH_PER_TRANSACTION,
      sequences: new Map(),
    };
  }

  /**
   * Writes the records of each partition as one batch, all of them in one transaction. Answers the
   * offset of each partition's first record (−1: written, but the cluster did not say where).
   * Rejects with {@link ProducerFenced} or a {@link ClusterError}; then the session is over.
   */
  async commit(
    topic: string,
    records: ReadonlyMap<number, readonly NewRecord[]>,
  ): Promise<Map<number, number>> {
    const session = this.#session;
    if (session === undefined) throw new ProducerFenced('there is no session');
    this.#session = undefined;
    try {
      if (!session.endsWithNewEpoch) await this.#addPartitions(session, topic, records.keys());
      const offsets = await this.#produce(session, topic, records);
      await this.#end(session);
      this.#session = session;
      return offsets;
    } catch (error) {
      throw fencedOr(error);
    }
  }

  async #addPartitions(
    session: Session,
    topic: string,
    partitions: Iterable<number>,
  ): Promise<void> {
    const worst = (response: AddPartitionsToTxnResponse): number => {
      const results = response.resultsByTopicV3AndBelow.flatMap((each) => each.resultsByPartition);
      const codes = results.map(({ partitionErrorCode }) => partitionErrorCode);
      // One that another partition's error kept from being tried says nothing.
      const telling = codes.filter((code) => code !== errors.OPERATION_NOT_ATTEMPTED.code);
      return telling.find((code) => code !== errors.NONE.code) ?? errors.NONE.code;
    };
    const response = await this.#client.call(
      coordinatorOf(this.#transactionalId),
      AddPartitionsToTxnRequest,
      AddPartitionsToTxnResponse,
      {
        v3AndBelowTransactionalId: this.#transactionalId,
        v3AndBelowProducerId: session.producerId,
        v3AndBelowProducerEpoch: session.producerEpoch,
        v3AndBelowTopics: [{ name: topic, partitions: [...partitions] }],
      },
      { maxVersion: BEFORE_V2.addPartitions, retryBoundMs: STEP_BOUND_MS, errorCode: worst },
    );
    check(worst(response), 'AddPartitionsToTxn');
  }

  async #produce(
    session: Session,
    topic: string,
    records: ReadonlyMap<number, readonly NewRecord[]>,
  ): Promise<Map<number, number>> {
    const { producerId, producerEpoch, sequences } = session;
    const batches = new Map<number, Uint8Array>();
    for (const [partition, list] of records) {
      const baseSequence = sequences.get(partition) ?? 0;
      batches.set(
        partition,
        buildRecordBatch({
          records: list,
          producerId,
          producerEpoch,
          baseSequence,
          isTransactional: true,
        }),
      );
      sequences.set(partition, incrementSequence(baseSequence, list.length));
    }
    return this.#client.atLeaders(
      topic,
      batches.keys(),
      STEP_BOUND_MS,
      async (id, partitions, { id: topicId }) => {
        const response = await this.#client.call(
          { to: 'broker', id },
          ProduceRequest,
          ProduceResponse,
          {
            transactionalId: this.#transactionalId,
            acks: ACKS_ALL,
            timeoutMs: ACKS_TIMEOUT_MS,
            topicData: [
              {
                name: topic,
                topicId,
                partitionData: partitions.map((index) => ({
                  index,
                  records: batches.get(index) ?? null,
                })),
              },
            ],
          },
          {
            retryBoundMs: 0,
            ...(session.endsWithNewEpoch ? {} : { maxVersion: BEFORE_V2.produce }),
          },
        );
        const answers = response.responses.flatMap((each) => each.partitionResponses);
        return new Map(
          answers.map(({ index, errorCode, baseOffset }) => [
            index,
            // A repeat of what was appended is what was asked for.
            errorCode === errors.DUPLICATE_SEQUENCE_NUMBER.code
              ? { errorCode: errors.NONE.code, value: -1 }
              : { errorCode, value: baseOffset },
          ]),
        );
      },
    );
  }

  /** Repeated until answered: ending the same transaction again is the same answer. */
  async #end(session: Session): Promise<void> {
    const response = await this.#client.call(
      coordinatorOf(this.#transactionalId),
      EndTxnRequest,
      EndTxnResponse,
      {
        transactionalId: this.#transactionalId,
        producerId: session.producerId,
        producerEpoch: session.producerEpoch,
        committed: true,
      },
      {
        retryBoundMs: STEP_BOUND_MS,
        errorCode: ({ errorCode }) => errorCode,
        ...(session.endsWithNewEpoch ? {} : { maxVersion: BEFORE_V2.endTxn }),
      },
    );
    check(response.errorCode, 'EndTxn');
    if (!session.endsWithNewEpoch) return;
    session.producerId = response.producerId;
    session.producerEpoch = response.producerEpoch;
    session.sequences.clear();
  }
}
