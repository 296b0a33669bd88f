/**
 * API 3, Metadata.
 *
 * Brokers, topics and partition leaders, as clients see them.
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
  uuid,
} from '../schema.ts';

/** Request of API 3, versions 0-13. */
export const MetadataRequest = message({
  apiKey: 3,
  name: 'MetadataRequest',
  type: 'request',
  validVersions: '0-13',
  flexibleVersions: '9+',
  fields: {
    topics: nullable(
      array('0+', {
        topicId: uuid('10+', { ignorable: true }),
        name: nullable(string('0+'), '10+'),
      }),
      '1+',
    ),
    allowAutoTopicCreation: bool('4+', { default: true }),
    includeClusterAuthorizedOperations: bool('8-10'),
    includeTopicAuthorizedOperations: bool('8+'),
  },
});
/** A decoded {@link MetadataRequest}. */
export type MetadataRequest = MessageOf<typeof MetadataRequest>;

/** Response of API 3. */
export const MetadataResponse = message({
  apiKey: 3,
  name: 'MetadataResponse',
  type: 'response',
  validVersions: '0-13',
  flexibleVersions: '9+',
  fields: {
    throttleTimeMs: int32('3+', { ignorable: true }),
    brokers: array('0+', {
      nodeId: int32('0+'),
      host: string('0+'),
      port: int32('0+'),
      rack: nullable(string('1+', { ignorable: true }), '1+', { default: null }),
    }),
    clusterId: nullable(string('2+', { ignorable: true }), '2+', { default: null }),
    controllerId: int32('1+', { default: -1, ignorable: true }),
    topics: array('0+', {
      errorCode: int16('0+'),
      name: nullable(string('0+'), '12+'),
      topicId: uuid('10+', { ignorable: true }),
      isInternal: bool('1+', { default: false, ignorable: true }),
      partitions: array('0+', {
        errorCode: int16('0+'),
        partitionIndex: int32('0+'),
        leaderId: int32('0+'),
        leaderEpoch: int32('7+', { default: -1, ignorable: true }),
        replicaNodes: array('0+', int32),
        isrNodes: array('0+', int32),
        offlineReplicas: array('5+', int32, { ignorable: true }),
      }),
      topicAuthorizedOperations: int32('8+', { default: -2147483648 }),
    }),
    clusterAuthorizedOperations: int32('8-10', { default: -2147483648 }),
    errorCode: int16('13+', { ignorable: true }),
  },
});
/** A decoded {@link MetadataResponse}. */
export type MetadataResponse = MessageOf<typeof MetadataResponse>;
