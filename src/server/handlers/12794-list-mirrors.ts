/**
 * ListMirrors: the mirrors of this cluster.
 *
 * twinlog's own API; see the contract, section 11, and `mirror/operations.ts`.
 */
import {
  ListMirrorsRequest,
  ListMirrorsResponse,
} from '../../protocol/messages/12794-list-mirrors.ts';
import { apiHandler } from '../api-handler.ts';

/** API 12794. */
export const listMirrors = apiHandler({
  request: ListMirrorsRequest,
  response: ListMirrorsResponse,
  versions: '0',
  handle: ({ mirrors }, request) => mirrors.listMirrors(request),
});
