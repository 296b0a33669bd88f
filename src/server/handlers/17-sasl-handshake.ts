/**
 * SaslHandshake: the client names the mechanism by which it will authenticate.
 *
 * A listener without SASL answers ILLEGAL_SASL_STATE; the rest is the session's.
 */
import { errors } from '../../protocol/errors.ts';
import {
  SaslHandshakeRequest,
  SaslHandshakeResponse,
} from '../../protocol/messages/17-sasl-handshake.ts';
import { apiHandler } from '../api-handler.ts';

/** API 17. */
export const saslHandshake = apiHandler({
  request: SaslHandshakeRequest,
  response: SaslHandshakeResponse,
  versions: '0-1',
  handle: (_services, { mechanism }, { session, apiVersion }) =>
    session?.handshake(mechanism, apiVersion) ?? {
      errorCode: errors.ILLEGAL_SASL_STATE.code,
      mechanisms: [],
    },
});
