/**
 * API 88, StreamsGroupHeartbeat.
 *
 * Membership, topology and tasks of streams groups (KIP-1071).
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  struct,
  uint16,
} from '../schema.ts';

const keyValueFields = {
  key: string('0+'),
  value: string('0+'),
} as const;

const topicInfoFields = {
  name: string('0+'),
  partitions: int32('0+'),
  replicationFactor: int16('0+'),
  topicConfigs: array('0+', keyValueFields),
} as const;

const taskIdsFields = {
  subtopologyId: string('0+'),
  partitions: array('0+', int32),
} as const;

const endpointFields = {
  host: string('0+'),
  port: uint16('0+'),
} as const;

const taskOffsetFields = {
  subtopologyId: string('0+'),
  partition: int32('0+'),
  offset: int64('0+'),
} as const;

/** Request of API 88, version 0. */
export const StreamsGroupHeartbeatRequest = message({
  apiKey: 88,
  name: 'StreamsGroupHeartbeatRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    groupId: string('0+'),
    memberId: string('0+'),
    memberEpoch: int32('0+'),
    endpointInformationEpoch: int32('0+'),
    instanceId: nullable(string('0+'), '0+', { default: null }),
    rackId: nullable(string('0+'), '0+', { default: null }),
    rebalanceTimeoutMs: int32('0+', { default: -1 }),
    topology: nullable(
      struct('0+', {
        epoch: int32('0+'),
        subtopologies: array('0+', {
          subtopologyId: string('0+'),
          sourceTopics: array('0+', string),
          sourceTopicRegex: array('0+', string),
          stateChangelogTopics: array('0+', topicInfoFields),
          repartitionSinkTopics: array('0+', string),
          repartitionSourceTopics: array('0+', topicInfoFields),
          copartitionGroups: array('0+', {
            sourceTopics: array('0+', int16),
            sourceTopicRegex: array('0+', int16),
            repartitionSourceTopics: array('0+', int16),
          }),
        }),
      }),
      '0+',
      { default: null },
    ),
    activeTasks: nullable(array('0+', taskIdsFields), '0+', { default: null }),
    standbyTasks: nullable(array('0+', taskIdsFields), '0+', { default: null }),
    warmupTasks: nullable(array('0+', taskIdsFields), '0+', { default: null }),
    processId: nullable(string('0+'), '0+', { default: null }),
    userEndpoint: nullable(struct('0+', endpointFields), '0+', { default: null }),
    clientTags: nullable(array('0+', keyValueFields), '0+', { default: null }),
    taskOffsets: nullable(array('0+', taskOffsetFields), '0+', { default: null }),
    taskEndOffsets: nullable(array('0+', taskOffsetFields), '0+', { default: null }),
    shutdownApplication: bool('0+', { default: false }),
  },
});
/** A decoded {@link StreamsGroupHeartbeatRequest}. */
export type StreamsGroupHeartbeatRequest = MessageOf<typeof StreamsGroupHeartbeatRequest>;

const statusFields = {
  statusCode: int8('0+'),
  statusDetail: string('0+'),
} as const;

const topicPartitionFields = {
  topic: string('0+'),
  partitions: array('0+', int32),
} as const;

/** Response of API 88. */
export const StreamsGroupHeartbeatResponse = message({
  apiKey: 88,
  name: 'StreamsGroupHeartbeatResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+', { default: null }),
    memberId: string('0+'),
    memberEpoch: int32('0+'),
    heartbeatIntervalMs: int32('0+'),
    acceptableRecoveryLag: int32('0+'),
    taskOffsetIntervalMs: int32('0+'),
    status: nullable(array('0+', statusFields), '0+'),
    activeTasks: nullable(array('0+', taskIdsFields), '0+', { default: null }),
    standbyTasks: nullable(array('0+', taskIdsFields), '0+', { default: null }),
    warmupTasks: nullable(array('0+', taskIdsFields), '0+', { default: null }),
    endpointInformationEpoch: int32('0+'),
    partitionsByUserEndpoint: nullable(
      array('0+', {
        userEndpoint: struct('0+', endpointFields),
        activePartitions: array('0+', topicPartitionFields),
        standbyPartitions: array('0+', topicPartitionFields),
      }),
      '0+',
      { default: null },
    ),
  },
});
/** A decoded {@link StreamsGroupHeartbeatResponse}. */
export type StreamsGroupHeartbeatResponse = MessageOf<typeof StreamsGroupHeartbeatResponse>;
