/**
 * SyncGroup: hands out the leader's assignment.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import { SyncGroupRequest, SyncGroupResponse } from '../../protocol/messages/14-sync-group.ts';
import { apiHandler } from '../api-handler.ts';

/** API 14. */
export const syncGroup = apiHandler({
  request: SyncGroupRequest,
  response: SyncGroupResponse,
  versions: '0-5',
  handle: ({ groups }, request) => groups.syncGroup(request),
});
