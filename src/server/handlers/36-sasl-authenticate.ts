/**
 * SaslAuthenticate: a token of the client's authentication, and what the broker says to it.
 *
 * The client must have named its mechanism before; the rest is the session's.
 */
import { errors } from '../../protocol/errors.ts';
import {
  SaslAuthenticateRequest,
  SaslAuthenticateResponse,
} from '../../protocol/messages/36-sasl-authenticate.ts';
import { apiHandler } from '../api-handler.ts';

/** API 36. */
export const saslAuthenticate = apiHandler({
  request: SaslAuthenticateRequest,
  response: SaslAuthenticateResponse,
  versions: '0-2',
  handle: async (_services, { authBytes }, { session }) => {
    if (session !== undefined) return await session.authenticate(authBytes);
    return {
      errorCode: errors.ILLEGAL_SASL_STATE.code,
      errorMessage: 'This listener has no SASL.',
      authBytes: new Uint8Array(0),
    };
  },
});
