/**
 * API 11, JoinGroup.
 *
 * Enters a classic group’s rebalance.
 */
import {
  array,
  bool,
  bytes,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 11, versions 0-9. */
export const JoinGroupRequest = message({
  apiKey: 11,
  name: 'JoinGroupRequest',
  type: 'request',
  validVersions: '0-9',
  flexibleVersions: '6+',
  fields: {
    groupId: string('0+'),
    sessionTimeoutMs: int32('0+'),
    rebalanceTimeoutMs: int32('1+', { default: -1, ignorable: true }),
    memberId: string('0+'),
    groupInstanceId: nullable(string('5+'), '5+', { default: null }),
    protocolType: string('0+'),
    protocols: array('0+', {
      name: string('0+'),
      metadata: bytes('0+'),
    }),
    reason: nullable(string('8+', { ignorable: true }), '8+', { default: null }),
  },
});
/** A decoded {@link JoinGroupRequest}. */
export type JoinGroupRequest = MessageOf<typeof JoinGroupRequest>;

/** Response of API 11. */
export const JoinGroupResponse = message({
  apiKey: 11,
  name: 'JoinGroupResponse',
  type: 'response',
  validVersions: '0-9',
  flexibleVersions: '6+',
  fields: {
    throttleTimeMs: int32('2+', { ignorable: true }),
    errorCode: int16('0+'),
    generationId: int32('0+', { default: -1 }),
    protocolType: nullable(string('7+', { ignorable: true }), '7+', { default: null }),
    protocolName: nullable(string('0+'), '7+'),
    leader: string('0+'),
    skipAssignment: bool('9+', { default: false }),
    memberId: string('0+'),
    members: array('0+', {
      memberId: string('0+'),
      groupInstanceId: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
      metadata: bytes('0+'),
    }),
  },
});
/** A decoded {@link JoinGroupResponse}. */
export type JoinGroupResponse = MessageOf<typeof JoinGroupResponse>;
