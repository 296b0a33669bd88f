/**
 * API 77, ShareGroupDescribe.
 *
 * State and members of share groups (KIP-932).
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

/** Request of API 77, version 1. */
export const ShareGroupDescribeRequest = message({
  apiKey: 77,
  name: 'ShareGroupDescribeRequest',
  type: 'request',
  validVersions: '1',
  flexibleVersions: '0+',
  fields: {
    groupIds: array('0+', string),
    includeAuthorizedOperations: bool('0+'),
  },
});
/** A decoded {@link ShareGroupDescribeRequest}. */
export type ShareGroupDescribeRequest = MessageOf<typeof ShareGroupDescribeRequest>;

const topicPartitionsFields = {
  topicId: uuid('0+'),
  topicName: string('0+'),
  partitions: array('0+', int32),
} as const;

const assignmentFields = {
  topicPartitions: array('0+', topicPartitionsFields),
} as const;

/** Response of API 77. */
export const ShareGroupDescribeResponse = message({
  apiKey: 77,
  name: 'ShareGroupDescribeResponse',
  type: 'response',
  validVersions: '1',
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
        rackId: nullable(string('0+'), '0+', { default: null }),
        memberEpoch: int32('0+'),
        clientId: string('0+'),
        clientHost: string('0+'),
        subscribedTopicNames: array('0+', string),
        assignment: struct('0+', assignmentFields),
      }),
      authorizedOperations: int32('0+', { default: -2147483648 }),
    }),
  },
});
/** A decoded {@link ShareGroupDescribeResponse}. */
export type ShareGroupDescribeResponse = MessageOf<typeof ShareGroupDescribeResponse>;
