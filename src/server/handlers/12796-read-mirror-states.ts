/**
 * ReadMirrorStates: rows of the mirror state topic (C4).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  ReadMirrorStatesRequest,
  ReadMirrorStatesResponse,
} from '../../protocol/messages/12796-read-mirror-states.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12796. */
export const readMirrorStates = apiHandler({
  request: ReadMirrorStatesRequest,
  response: ReadMirrorStatesResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.readMirrorStates(request),
});
