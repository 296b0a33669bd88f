/**
 * API 76, ShareGroupHeartbeat.
 *
 * Membership and assignment of share groups (KIP-932).
 */
import {
  array,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  struct,
  uuid,
} from '../schema.ts';

/** Request of API 76, version 1. */
export const ShareGroupHeartbeatRequest = message({
  apiKey: 76,
  name: 'ShareGroupHeartbeatRequest',
  type: 'request',
  validVersions: '1',
  flexibleVersions: '0+',
  fields: {
    groupId: string('0+'),
    memberId: string('0+'),
    memberEpoch: int32('0+'),
    rackId: nullable(string('0+'), '0+', { default: null }),
    subscribedTopicNames: nullable(array('0+', string), '0+', { default: null }),
  },
});
/** A decoded {@link ShareGroupHeartbeatRequest}. */
export type ShareGroupHeartbeatRequest = MessageOf<typeof ShareGroupHeartbeatRequest>;

const topicPartitionsFields = {
  topicId: uuid('0+'),
  partitions: array('0+', int32),
} as const;

/** Response of API 76. */
export const ShareGroupHeartbeatResponse = message({
  apiKey: 76,
  name: 'ShareGroupHeartbeatResponse',
  type: 'response',
  validVersions: '1',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+', { default: null }),
    memberId: nullable(string('0+'), '0+', { default: null }),
    memberEpoch: int32('0+'),
    heartbeatIntervalMs: int32('0+'),
    assignment: nullable(
      struct('0+', {
        topicPartitions: array('0+', topicPartitionsFields),
      }),
      '0+',
      { default: null },
    ),
  },
});
/** A decoded {@link ShareGroupHeartbeatResponse}. */
export type ShareGroupHeartbeatResponse = MessageOf<typeof ShareGroupHeartbeatResponse>;
