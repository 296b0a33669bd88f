/**
 * API 75, DescribeTopicPartitions.
 *
 * Pages through topics and their partitions (KIP-966).
 */
import {
  array,
  bool,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  struct,
  uuid,
} from '../schema.ts';

/** Request of API 75, version 0. */
export const DescribeTopicPartitionsRequest = message({
  apiKey: 75,
  name: 'DescribeTopicPartitionsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    topics: array('0+', {
      name: string('0+'),
    }),
    responsePartitionLimit: int32('0+', { default: 2000 }),
    cursor: nullable(
      struct('0+', {
        topicName: string('0+'),
        partitionIndex: int32('0+'),
      }),
      '0+',
      { default: null },
    ),
  },
});
/** A decoded {@link DescribeTopicPartitionsRequest}. */
export type DescribeTopicPartitionsRequest = MessageOf<typeof DescribeTopicPartitionsRequest>;

/** Response of API 75. */
export const DescribeTopicPartitionsResponse = message({
  apiKey: 75,
  name: 'DescribeTopicPartitionsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { ignorable: true }),
    topics: array('0+', {
      errorCode: int16('0+'),
      name: nullable(string('0+'), '0+'),
      topicId: uuid('0+', { ignorable: true }),
      isInternal: bool('0+', { default: false, ignorable: true }),
      partitions: array('0+', {
        errorCode: int16('0+'),
        partitionIndex: int32('0+'),
        leaderId: int32('0+'),
        leaderEpoch: int32('0+', { default: -1, ignorable: true }),
        replicaNodes: array('0+', int32),
        isrNodes: array('0+', int32),
        eligibleLeaderReplicas: nullable(array('0+', int32), '0+', { default: null }),
        lastKnownElr: nullable(array('0+', int32), '0+', { default: null }),
        offlineReplicas: array('0+', int32, { ignorable: true }),
      }),
      topicAuthorizedOperations: int32('0+', { default: -2147483648 }),
    }),
    nextCursor: nullable(
      struct('0+', {
        topicName: string('0+'),
        partitionIndex: int32('0+'),
      }),
      '0+',
      { default: null },
    ),
  },
});
/** A decoded {@link DescribeTopicPartitionsResponse}. */
export type DescribeTopicPartitionsResponse = MessageOf<typeof DescribeTopicPartitionsResponse>;
