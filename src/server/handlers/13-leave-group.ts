/**
 * LeaveGroup: takes members out of a group.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import { LeaveGroupRequest, LeaveGroupResponse } from '../../protocol/messages/13-leave-group.ts';
import { apiHandler } from '../api-handler.ts';

/** API 13. */
export const leaveGroup = apiHandler({
  request: LeaveGroupRequest,
  response: LeaveGroupResponse,
  versions: '0-5',
  handle: ({ groups }, request, { apiVersion }) => groups.leaveGroup(request, apiVersion),
});
