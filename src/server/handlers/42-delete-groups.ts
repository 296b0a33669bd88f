/**
 * DeleteGroups: removes empty groups with their offsets.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import {
  DeleteGroupsRequest,
  DeleteGroupsResponse,
} from '../../protocol/messages/42-delete-groups.ts';
import { apiHandler } from '../api-handler.ts';

/** API 42. */
export const deleteGroups = apiHandler({
  request: DeleteGroupsRequest,
  response: DeleteGroupsResponse,
  versions: '0-2',
  handle: ({ groups }, request) => groups.deleteGroups(request),
});
