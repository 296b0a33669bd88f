/**
 * API 14, SyncGroup.
 *
 * Distributes the leader’s assignment in a classic group.
 */
import {
  array,
  bytes,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 14, versions 0-5. */
export const SyncGroupRequest = message({
  apiKey: 14,
  name: 'SyncGroupRequest',
  type: 'request',
  validVersions: '0-5',
  flexibleVersions: '4+',
  fields: {
    groupId: string('0+'),
    generationId: int32('0+'),
    memberId: string('0+'),
    groupInstanceId: nullable(string('3+'), '3+', { default: null }),
    protocolType: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
    protocolName: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
    assignments: array('0+', {
      memberId: string('0+'),
      assignment: bytes('0+'),
    }),
  },
});
/** A decoded {@link SyncGroupRequest}. */
export type SyncGroupRequest = MessageOf<typeof SyncGroupRequest>;

/** Response of API 14. */
export const SyncGroupResponse = message({
  apiKey: 14,
  name: 'SyncGroupResponse',
  type: 'response',
  validVersions: '0-5',
  flexibleVersions: '4+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    errorCode: int16('0+'),
    protocolType: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
    protocolName: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
    assignment: bytes('0+'),
  },
});
/** A decoded {@link SyncGroupResponse}. */
export type SyncGroupResponse = MessageOf<typeof SyncGroupResponse>;
