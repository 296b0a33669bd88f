/**
 * Ends the transactions that a mirror left open in partitions that Apache brokers lead by now
 * (G18a).
 *
 * Their producers are at the source, so no coordinator here will ever end them, and readers of
 * committed data would wait for ever. As `kafka-transactions.sh abort` does, the leaders are asked
 * for open transactions, and sent an abort marker for each. Only of producer ids that come from a
 * source (G20): those of the cluster's own have a coordinator.
 */

import type { ClosedLog } from '../../mirror/transaction-closing.ts';
import { errors } from '../../protocol/errors.ts';
import {
  WriteTxnMarkersRequest,
  WriteTxnMarkersResponse,
} from '../../protocol/messages/27-write-txn-markers.ts';
import {
  DescribeProducersRequest,
  DescribeProducersResponse,
} from '../../protocol/messages/61-describe-producers.ts';
import { type ClusterClient, ClusterError } from '../cluster-client.ts';
import { nameOf, type PartitionName } from '../jobs/job-ports.ts';
import { byTopic } from '../jobs/reassignments.ts';

/** The lowest producer id that a guest maps one of a source to (G20). */
const FIRST_MAPPED_ID = 2n ** 40n;
/** How long leaders are asked again, in ms. */
const LEADER_BOUND_MS = 30_000;
/** How long a broker is asked for a plan, in ms. */
const ASK_BOUND_MS = 5_000;
/** The version whose markers need no newer epoch than the transaction's. */
const MARKERS_VERSION = 1;

/** A transaction that was aborted. */
export interface ClosedTransaction {
  /** As a decimal number. */
  readonly producerId: string;
  readonly producerEpoch: number;
  readonly firstOffset: number;
}

/** A producer whose transaction is open. */
export type OpenProducer = ReturnType<ClosedLog['activeProducers']>[number];

type Producer =
  DescribeProducersResponse['topics'][number]['partitions'][number]['activeProducers'][number];

function openProducer(producer: Producer): OpenProducer {
  const { producerId, producerEpoch, currentTxnStartOffset } = producer;
  return { producerId, producerEpoch, currentTxnFirstOffset: currentTxnStartOffset };
}

/** Finds them, by {@link nameOf}. Rejects with a `ClusterError`. */
export async function findOpenTransactions(
  client: ClusterClient,
  partitions: readonly PartitionName[],
): Promise<Map<string, readonly OpenProducer[]>> {
  const found = new Map<string, readonly OpenProducer[]>();
  for (const [topic, list] of byTopic(partitions)) {
    for (const [partition, producers] of await openTransactions(client, topic, list)) {
      found.set(nameOf({ topic, partition }), producers.map(openProducer));
    }
  }
  return found;
}

/**
 * Finds them in the log of one broker, whether it leads or follows, by {@link nameOf}: what it did
 * not tell is not there.
 */
export async function findOpenAt(
  client: ClusterClient,
  id: number,
  partitions: readonly PartitionName[],
): Promise<Map<string, readonly OpenProducer[]>> {
  try {
    const answers = await openAt(client, id, partitions, ASK_BOUND_MS);
    const told = answers.filter(({ errorCode }) => errorCode === errors.NONE.code);
    return new Map(told.map((each) => [nameOf(each), each.value.map(openProducer)]));
  } catch (error) {
    if (error instanceof ClusterError) return new Map();
    throw error;
  }
}

/** Aborts them; what was aborted, by {@link nameOf}. Rejects with a `ClusterError`. */
export async function abortOpenTransactions(
  client: ClusterClient,
  partitions: readonly PartitionName[],
): Promise<Map<string, readonly ClosedTransaction[]>> {
  const closed = new Map<string, readonly ClosedTransaction[]>();
  for (const [topic, list] of byTopic(partitions)) {
    const open = await openTransactions(client, topic, list);
    for (const [partition, producers] of open) {
      for (const producer of producers) await abort(client, topic, partition, producer);
      closed.set(
        nameOf({ topic, partition }),
        producers.map(({ producerId, producerEpoch, currentTxnStartOffset }) => ({
          producerId: String(producerId),
          producerEpoch,
          firstOffset: currentTxnStartOffset,
        })),
      );
    }
  }
  return closed;
}

/** Producers with an open transaction that nobody here will end, by partition. */
function openTransactions(
  client: ClusterClient,
  topic: string,
  list: readonly PartitionName[],
): Promise<Map<number, Producer[]>> {
  const indexes = list.map(({ partition }) => partition);
  return client.atLeaders(topic, indexes, LEADER_BOUND_MS, async (id, partitions) => {
    const asked = partitions.map((partition) => ({ topic, partition }));
    const answers = await openAt(client, id, asked);
    return new Map(answers.map(({ partition, ...answer }) => [partition, answer]));
  });
}

type OpenAnswer = PartitionName & { readonly errorCode: number; readonly value: Producer[] };

/** The same as one broker's log has it. */
async function openAt(
  client: ClusterClient,
  id: number,
  partitions: readonly PartitionName[],
  retryBoundMs = LEADER_BOUND_MS,
): Promise<OpenAnswer[]> {
  const { topics } = await client.call(
    { to: 'broker', id },
    DescribeProducersRequest,
    DescribeProducersResponse,
    {
      topics: [...byTopic(partitions)].map(([name, list]) => ({
        name,
        partitionIndexes: list.map(({ partition }) => partition),
      })),
    },
    { retryBoundMs },
  );
  return topics.flatMap(({ name: topic, partitions: answers }) =>
    answers.map(({ partitionIndex: partition, errorCode, activeProducers }) => ({
      topic,
      partition,
      errorCode,
      value: activeProducers
        .filter(
          ({ producerId, currentTxnStartOffset }) =>
            producerId >= FIRST_MAPPED_ID && currentTxnStartOffset >= 0,
        )
        // Their markers are listed, and have to come, in this order (G24a).
        .sort((a, b) => a.currentTxnStartOffset - b.currentTxnStartOffset),
    })),
  );
}

async function abort(
  client: ClusterClient,
  topic: string,
  partition: number,
  { producerId, producerEpoch, coordinatorEpoch }: Producer,
): Promise<void> {
  await client.atLeaders(topic, [partition], LEADER_BOUND_MS, async (id) => {
    const { markers } = await client.call(
      { to: 'broker', id },
      WriteTxnMarkersRequest,
      WriteTxnMarkersResponse,
      {
        markers: [
          {
            producerId,
            producerEpoch,
            transactionResult: false,
            topics: [{ name: topic, partitionIndexes: [partition] }],
            coordinatorEpoch: Math.max(coordinatorEpoch, 0),
          },
        ],
      },
      { maxVersion: MARKERS_VERSION },
    );
    const [answer] = markers.flatMap(({ topics }) => topics).flatMap((each) => each.partitions);
    const errorCode = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
    return new Map([[partition, { errorCode, value: true }]]);
  });
}
