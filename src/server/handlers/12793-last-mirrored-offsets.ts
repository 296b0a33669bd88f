/**
 * LastMirroredOffsets: where mirroring from the asker ended (T2, B2).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  LastMirroredOffsetsRequest,
  LastMirroredOffsetsResponse,
} from '../../protocol/messages/12793-last-mirrored-offsets.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12793. */
export const lastMirroredOffsets = apiHandler({
  request: LastMirroredOffsetsRequest,
  response: LastMirroredOffsetsResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.lastMirroredOffsets(request),
});
