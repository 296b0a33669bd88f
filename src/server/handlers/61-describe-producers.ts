/**
 * DescribeProducers: the producers that a partition's log remembers, open transactions included.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { errorMessage } from '../../protocol/errors.ts';
import {
  DescribeProducersRequest,
  DescribeProducersResponse,
} from '../../protocol/messages/61-describe-producers.ts';
import { apiHandler, type BrokerServices } from '../api-handler.ts';

function describePartition({ replicas }: BrokerServices, topic: string, index: number) {
  const partition = replicas.partition(topic, index);
  const key = { topic, topicId: ZERO_UUID, partition: index };
  const errorCode = partition?.leaderError(-1) ?? replicas.missingError(key);
  if (partition === undefined || errorCode !== 0) {
    const message = errorMessage(errorCode);
    return { partitionIndex: index, errorCode, errorMessage: message, activeProducers: [] };
  }
  const activeProducers = partition.log.activeProducers().map((producer) => ({
    producerId: producer.producerId,
    producerEpoch: producer.producerEpoch,
    lastSequence: producer.lastSequence,
    lastTimestamp: BigInt(producer.lastTimestamp),
    coordinatorEpoch: producer.coordinatorEpoch,
    currentTxnStartOffset: producer.currentTxnFirstOffset ?? -1,
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
