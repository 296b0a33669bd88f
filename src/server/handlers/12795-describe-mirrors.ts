/**
 * DescribeMirrors: state, offsets and lag of every partition (A4).
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../../protocol/messages/12795-describe-mirrors.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12795. */
export const describeMirrors = apiHandler({
  request: DescribeMirrorsRequest,
  response: DescribeMirrorsResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.describeMirrors(request),
});
