/**
 * ListGroups: names the groups that this broker coordinates.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import { ListGroupsRequest, ListGroupsResponse } from '../../protocol/messages/16-list-groups.ts';
import { apiHandler } from '../api-handler.ts';

/** API 16. */
export const listGroups = apiHandler({
  request: ListGroupsRequest,
  response: ListGroupsResponse,
  versions: '0-5',
  handle: ({ groups }, request) => groups.listGroups(request),
});
