/**
 * JoinGroup: makes a client a member; the answer waits for the others to join.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import { JoinGroupRequest, JoinGroupResponse } from '../../protocol/messages/11-join-group.ts';
import { apiHandler } from '../api-handler.ts';

/** API 11. */
export const joinGroup = apiHandler({
  request: JoinGroupRequest,
  response: JoinGroupResponse,
  versions: '0-9',
  handle: ({ groups }, request, { apiVersion, clientId, clientHost }) =>
    groups.joinGroup(request, apiVersion, {
      clientId: clientId ?? '',
      clientHost: `/${clientHost}`,
    }),
});
