/**
 * API 13, LeaveGroup.
 *
 * Removes members from a classic group.
 */
import { array, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 13, versions 0-5. */
export const LeaveGroupRequest = message({
  apiKey: 13,
  name: 'LeaveGroupRequest',
  type: 'request',
  validVersions: '0-5',
  flexibleVersions: '4+',
  fields: {
    groupId: string('0+'),
    memberId: string('0-2'),
    members: array('3+', {
      memberId: string('3+'),
      groupInstanceId: nullable(string('3+'), '3+', { default: null }),
      reason: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
    }),
  },
});
/** A decoded {@link LeaveGroupRequest}. */
export type LeaveGroupRequest = MessageOf<typeof LeaveGroupRequest>;

/** Response of API 13. */
export const LeaveGroupResponse = message({
  apiKey: 13,
  name: 'LeaveGroupResponse',
  type: 'response',
  validVersions: '0-5',
  flexibleVersions: '4+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    errorCode: int16('0+'),
    members: array('3+', {
      memberId: string('3+'),
      groupInstanceId: nullable(string('3+'), '3+'),
      errorCode: int16('3+'),
    }),
  },
});
/** A decoded {@link LeaveGroupResponse}. */
export type LeaveGroupResponse = MessageOf<typeof LeaveGroupResponse>;
