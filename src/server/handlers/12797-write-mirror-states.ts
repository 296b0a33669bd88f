/**
 * WriteMirrorStates: changes rows of the mirror state topic (S4).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  WriteMirrorStatesRequest,
  WriteMirrorStatesResponse,
} from '../../protocol/messages/12797-write-mirror-states.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12797. */
export const writeMirrorStates = apiHandler({
  request: WriteMirrorStatesRequest,
  response: WriteMirrorStatesResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.writeMirrorStates(request),
});
