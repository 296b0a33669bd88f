/**
 * AddTopicsToMirror: makes topics members of a mirror (A3).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../../protocol/messages/12791-add-topics-to-mirror.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12791. */
export const addTopicsToMirror = apiHandler({
  request: AddTopicsToMirrorRequest,
  response: AddTopicsToMirrorResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.addTopics(request),
});
