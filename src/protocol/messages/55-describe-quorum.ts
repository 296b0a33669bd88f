/**
 * API 55, DescribeQuorum.
 *
 * State of the controller quorum.
 */
import {
  array,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  uint16,
  uuid,
} from '../schema.ts';

/** Request of API 55, versions 0-2. */
export const DescribeQuorumRequest = message({
  apiKey: 55,
  name: 'DescribeQuorumRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    topics: array('0+', {
      topicName: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
      }),
    }),
  },
});
/** A decoded {@link DescribeQuorumRequest}. */
export type DescribeQuorumRequest = MessageOf<typeof DescribeQuorumRequest>;

const replicaStateFields = {
  replicaId: int32('0+'),
  replicaDirectoryId: uuid('2+'),
  logEndOffset: int64('0+'),
  lastFetchTimestamp: int64('1+', { default: -1, ignorable: true }),
  lastCaughtUpTimestamp: int64('1+', { default: -1, ignorable: true }),
} as const;

/** Response of API 55. */
export const DescribeQuorumResponse = message({
  apiKey: 55,
  name: 'DescribeQuorumResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    errorCode: int16('0+'),
    errorMessage: nullable(string('2+', { ignorable: true }), '2+'),
    topics: array('0+', {
      topicName: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('2+', { ignorable: true }), '2+'),
        leaderId: int32('0+'),
        leaderEpoch: int32('0+'),
        highWatermark: int64('0+'),
        currentVoters: array('0+', replicaStateFields),
        observers: array('0+', replicaStateFields),
      }),
    }),
    nodes: array('2+', {
      nodeId: int32('2+'),
      listeners: array('2+', {
        name: string('2+'),
        host: string('2+'),
        port: uint16('2+'),
      }),
    }),
  },
});
/** A decoded {@link DescribeQuorumResponse}. */
export type DescribeQuorumResponse = MessageOf<typeof DescribeQuorumResponse>;
