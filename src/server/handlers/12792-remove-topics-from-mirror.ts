/**
 * RemoveTopicsFromMirror: stops mirroring topics (A3, D7).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../../protocol/messages/12792-remove-topics-from-mirror.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12792. */
export const removeTopicsFromMirror = apiHandler({
  request: RemoveTopicsFromMirrorRequest,
  response: RemoveTopicsFromMirrorResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.removeTopics(request),
});
