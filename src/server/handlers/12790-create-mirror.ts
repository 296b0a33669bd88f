/**
 * CreateMirror: checks the source and stores a mirror's settings (A2).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../../protocol/messages/12790-create-mirror.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12790. */
export const createMirror = apiHandler({
  request: CreateMirrorRequest,
  response: CreateMirrorResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.createMirror(request),
});
