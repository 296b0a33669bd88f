/**
 * OffsetCommit: stores a group's positions.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import {
  OffsetCommitRequest,
  OffsetCommitResponse,
} from '../../protocol/messages/08-offset-commit.ts';
import { apiHandler } from '../api-handler.ts';

/** API 8. */
export const offsetCommit = apiHandler({
  request: OffsetCommitRequest,
  response: OffsetCommitResponse,
  versions: '2-10',
  handle: ({ groups }, request, { apiVersion }) => groups.commitOffsets(request, apiVersion),
});
