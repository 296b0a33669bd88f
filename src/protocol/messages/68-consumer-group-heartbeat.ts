/**
 * API 68, ConsumerGroupHeartbeat.
 *
 * Membership and assignment of consumer groups (KIP-848).
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

/** Request of API 68, versions 0-1. */
export const ConsumerGroupHeartbeatRequest = message({
  apiKey: 68,
  name: 'ConsumerGroupHeartbeatRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    groupId: string('0+'),
    memberId: string('0+'),
    memberEpoch: int32('0+'),
    instanceId: nullable(string('0+'), '0+', { default: null }),
    rackId: nullable(string('0+'), '0+', { default: null }),
    rebalanceTimeoutMs: int32('0+', { default: -1 }),
    subscribedTopicNames: nullable(array('0+', string), '0+', { default: null }),
    subscribedTopicRegex: nullable(string('1+'), '1+', { default: null }),
    serverAssignor: nullable(string('0+'), '0+', { default: null }),
    topicPartitions: nullable(
      array('0+', {
        topicId: uuid('0+'),
        partitions: array('0+', int32),
      }),
      '0+',
      { default: null },
    ),
  },
});
/** A decoded {@link ConsumerGroupHeartbeatRequest}. */
export type ConsumerGroupHeartbeatRequest = MessageOf<typeof ConsumerGroupHeartbeatRequest>;

const topicPartitionsFields = {
  topicId: uuid('0+'),
  partitions: array('0+', int32),
} as const;

/** Response of API 68. */
export const ConsumerGroupHeartbeatResponse = message({
  apiKey: 68,
  name: 'ConsumerGroupHeartbeatResponse',
  type: 'response',
  validVersions: '0-1',
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
/** A decoded {@link ConsumerGroupHeartbeatResponse}. */
export type ConsumerGroupHeartbeatResponse = MessageOf<typeof ConsumerGroupHeartbeatResponse>;
