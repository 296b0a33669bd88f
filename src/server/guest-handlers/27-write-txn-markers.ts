/**
 * WriteTxnMarkers (rule G10): a transaction coordinator of the cluster ends a transaction.
 *
 * It asks every partition that was added to the transaction, whether records came or not. A marker
 * is written only where the producer has a transaction open in the log: one of the cluster's own,
 * from before the partition was mirrored, since mirrored producers have ids that no coordinator
 * knows (rule G20). Otherwise there is nothing to end: NONE, as an error would make the coordinator
 * try for ever. Partitions led elsewhere are NOT_LEADER_OR_FOLLOWER.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { buildTransactionMarker } from '../../protocol/control-record.ts';
import { errors } from '../../protocol/errors.ts';
import {
  WriteTxnMarkersRequest,
  WriteTxnMarkersResponse,
} from '../../protocol/messages/27-write-txn-markers.ts';
import { apiHandler, type BrokerServices } from '../api-handler.ts';

type Marker = WriteTxnMarkersRequest['markers'][number];

/** How long a marker may wait for its replicas; the coordinator asks again. */
const COMMIT_TIMEOUT_MS = 5_000;

/** Why the partition cannot be asked about open transactions, or 0. */
function partitionError({ replicas, metadata }: BrokerServices, topic: string, index: number) {
  const partition = replicas.partition(topic, index);
  if (partition !== undefined) return partition.leaderError(-1);
  const exists = metadata.image.topicsByName.get(topic)?.partitions.has(index) === true;
  return (exists ? errors.NOT_LEADER_OR_FOLLOWER : errors.UNKNOWN_TOPIC_OR_PARTITION).code;
}

async function writeMarker(
  services: BrokerServices,
  marker: Marker,
  topic: string,
  index: number,
): Promise<number> {
  const { producerId, producerEpoch, transactionResult, coordinatorEpoch } = marker;
  const notHere = partitionError(services, topic, index);
  if (notHere !== errors.NONE.code) return notHere;
  const log = services.replicas.partition(topic, index)?.log;
  if (log?.hasOpenTransaction(producerId) !== true) return errors.NONE.code;
  const records = buildTransactionMarker({
    producerId,
    producerEpoch,
    commit: transactionResult,
    coordinatorEpoch,
    timestamp: services.runtime.clock.wallMs(),
  });
  const [result] = await services.replicas.produce(
    { acks: -1, timeoutMs: COMMIT_TIMEOUT_MS, source: 'marker' },
    [{ topic, topicId: ZERO_UUID, partition: index, records }],
  );
  return result?.error ?? errors.UNKNOWN_SERVER_ERROR.code;
}

/** API 27. */
export const writeTxnMarkers = apiHandler({
  request: WriteTxnMarkersRequest,
  response: WriteTxnMarkersResponse,
  versions: '1-2',
  handle: async (services, { markers }) => {
    const answered = markers.map(async (marker) => {
      const topics = marker.topics.map(async ({ name, partitionIndexes }) => {
        const partitions = partitionIndexes.map(async (partitionIndex) => ({
          partitionIndex,
          errorCode: await writeMarker(services, marker, name, partitionIndex),
        }));
        return { name, partitions: await Promise.all(partitions) };
      });
      return { producerId: marker.producerId, topics: await Promise.all(topics) };
    });
    return { markers: await Promise.all(answered) };
  },
});
