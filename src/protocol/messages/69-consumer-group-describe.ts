/**
 * API 69, ConsumerGroupDescribe.
 *
 * State and members of consumer groups (KIP-848).
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  struct,
  uuid,
} from '../schema.ts';

/** Request of API 69, versions 0-1. */
export const ConsumerGroupDescribeRequest = message({
  apiKey: 69,
  name: 'ConsumerGroupDescribeRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    groupIds: array('0+', string),
    includeAuthorizedOperations: bool('0+'),
  },
});
/** A decoded {@link ConsumerGroupDescribeRequest}. */
export type ConsumerGroupDescribeRequest = MessageOf<typeof ConsumerGroupDescribeRequest>;

const topicPartitionsFields = {
  topicId: uuid('0+'),
  topicName: string('0+'),
  partitions: array('0+', int32),
} as const;

const assignmentFields = {
  topicPartitions: array('0+', topicPartitionsFields),
} as const;

/** Response of API 69. */
export const ConsumerGroupDescribeResponse = message({
  apiKey: 69,
  name: 'ConsumerGroupDescribeResponse',
  type: 'response',
  validVersions: '0-1',
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
      assignorName: string('0+'),
      members: array('0+', {
        memberId: string('0+'),
        instanceId: nullable(string('0+'), '0+', { default: null }),
        rackId: nullable(string('0+'), '0+', { default: null }),
        memberEpoch: int32('0+'),
        clientId: string('0+'),
        clientHost: string('0+'),
        subscribedTopicNames: array('0+', string),
        subscribedTopicRegex: nullable(string('0+'), '0+', { default: null }),
        assignment: struct('0+', assignmentFields),
        targetAssignment: struct('0+', assignmentFields),
        memberType: int8('1+', { default: -1, ignorable: true }),
      }),
      authorizedOperations: int32('0+', { default: -2147483648 }),
    }),
  },
});
/** A decoded {@link ConsumerGroupDescribeResponse}. */
export type ConsumerGroupDescribeResponse = MessageOf<typeof ConsumerGroupDescribeResponse>;
