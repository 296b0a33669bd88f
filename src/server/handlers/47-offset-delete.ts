/**
 * OffsetDelete: removes a group's positions in topics it does not consume.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import {
  OffsetDeleteRequest,
  OffsetDeleteResponse,
} from '../../protocol/messages/47-offset-delete.ts';
import { apiHandler } from '../api-handler.ts';

/** API 47. */
export const offsetDelete = apiHandler({
  request: OffsetDeleteRequest,
  response: OffsetDeleteResponse,
  versions: '0',
  handle: ({ groups }, request) => groups.offsetDelete(request),
});
