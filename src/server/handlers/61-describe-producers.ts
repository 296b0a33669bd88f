/**
 * DescribeProducers: the producers that a partition's log remembers, open transactions included.
 *
 * Answered by the leader only. Ids ≤ −2 are those of mirrored producers (rule P1).
 */
import { errorMessage, errors } from '../../protocol/errors.ts';
import {
  DescribeProducersRequest,
  DescribeProducersResponse,
} from '../../protocol/messages/61-describe-producers.ts';
import { apiHandler, type BrokerServices } from '../api-handler.ts';

function missingError({ metadata }: BrokerServices, topic: string, index: number): number {
  const exists = metadata.image.topicsByName.get(topic)?.partitions.has(index) === true;
  return (exists ? errors.NOT_LEADER_OR_FOLLOWER : errors.UNKNOWN_TOPIC_OR_PARTITION).code;
}

function describePartition(services: BrokerServices, topic: string, index: number) {
  const partition = services.replicas.partition(topic, index);
  const errorCode = partition?.leaderError(-1) ?? missingError(services, topic, index);
  if (partition === undefined || errorCode !== 0) {
    const message = errorMessage(errorCode);
    return { partitionIndex: index, errorCode, errorMessage: message, activeProducers: [] };
  }
  const activeProducers = partition.log.activeProducers().map((producer) => ({
    producerId: producer.producerId,
    producerEpoch: producer.producerEpoch,
    lastSequence: producer.lastSequence,
    lastTimestamp: producer.timestamp,
    coordinatorEpoch: producer.coordinatorEpoch,
    currentTxnStartOffset: producer.currentTxnFirstOffset,
  }));
  return { partitionIndex: index, errorCode, activeProducers };
}

/** API 61. */
export const describeProducers = apiHandler({
  request: DescribeProducersRequest,
  response: DescribeProducersResponse,
  versions: '0',
  handle: (services, request) => ({
    throttleTimeMs: 0,
    topics: request.topics.map(({ name, partitionIndexes }) => ({
      name,
      partitions: partitionIndexes.map((index) => describePartition(services, name, index)),
    })),
  }),
});
