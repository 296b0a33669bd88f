/**
 * Heartbeat: keeps a member in its group.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import { HeartbeatRequest, HeartbeatResponse } from '../../protocol/messages/12-heartbeat.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12. */
export const heartbeat = apiHandler({
  request: HeartbeatRequest,
  response: HeartbeatResponse,
  versions: '0-4',
  handle: ({ groups }, request) => groups.heartbeat(request),
});
