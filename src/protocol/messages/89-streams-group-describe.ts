/**
 * API 89, StreamsGroupDescribe.
 *
 * State, topology and members of streams groups (KIP-1071).
 */
import {
  array,
  bool,
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

/** Request of API 89, version 0. */
export const StreamsGroupDescribeRequest = message({
  apiKey: 89,
  name: 'StreamsGroupDescribeRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    groupIds: array('0+', string),
    includeAuthorizedOperations: bool('0+'),
  },
});
/** A decoded {@link StreamsGroupDescribeRequest}. */
export type StreamsGroupDescribeRequest = MessageOf<typeof StreamsGroupDescribeRequest>;

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

const endpointFields = {
  host: string('0+'),
  port: uint16('0+'),
} as const;

const taskOffsetFields = {
  subtopologyId: string('0+'),
  partition: int32('0+'),
  offset: int64('0+'),
} as const;

const taskIdsFields = {
  subtopologyId: string('0+'),
  partitions: array('0+', int32),
} as const;

const assignmentFields = {
  activeTasks: array('0+', taskIdsFields),
  standbyTasks: array('0+', taskIdsFields),
  warmupTasks: array('0+', taskIdsFields),
} as const;

/** Response of API 89. */
export const StreamsGroupDescribeResponse = message({
  apiKey: 89,
  name: 'StreamsGroupDescribeResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    groups: array('0+', {
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+', { default: null }),
      groupId: string('0+'),
      groupState: string('0+'),
      groupEpoch: int32('0+'),
      assignmentEpoch: int32('0+'),
      topology: nullable(
        struct('0+', {
          epoch: int32('0+'),
          subtopologies: nullable(
            array('0+', {
              subtopologyId: string('0+'),
              sourceTopics: array('0+', string),
              repartitionSinkTopics: array('0+', string),
              stateChangelogTopics: array('0+', topicInfoFields),
              repartitionSourceTopics: array('0+', topicInfoFields),
            }),
            '0+',
            { default: null },
          ),
        }),
        '0+',
        { default: null },
      ),
      members: array('0+', {
        memberId: string('0+'),
        memberEpoch: int32('0+'),
        instanceId: nullable(string('0+'), '0+', { default: null }),
        rackId: nullable(string('0+'), '0+', { default: null }),
        clientId: string('0+'),
        clientHost: string('0+'),
        topologyEpoch: int32('0+'),
        processId: string('0+'),
        userEndpoint: nullable(struct('0+', endpointFields), '0+', { default: null }),
        clientTags: array('0+', keyValueFields),
        taskOffsets: array('0+', taskOffsetFields),
        taskEndOffsets: array('0+', taskOffsetFields),
        assignment: struct('0+', assignmentFields),
        targetAssignment: struct('0+', assignmentFields),
        isClassic: bool('0+'),
      }),
      authorizedOperations: int32('0+', { default: -2147483648 }),
    }),
  },
});
/** A decoded {@link StreamsGroupDescribeResponse}. */
export type StreamsGroupDescribeResponse = MessageOf<typeof StreamsGroupDescribeResponse>;
