/**
 * OffsetFetch: reads a group's positions.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import {
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../../protocol/messages/09-offset-fetch.ts';
import { apiHandler } from '../api-handler.ts';

/** API 9. */
export const offsetFetch = apiHandler({
  request: OffsetFetchRequest,
  response: OffsetFetchResponse,
  versions: '1-10',
  handle: ({ groups }, request, { apiVersion }) => groups.fetchOffsets(request, apiVersion),
});
