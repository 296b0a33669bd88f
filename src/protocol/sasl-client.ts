/**
 * Authenticates a new connection to a Kafka broker by SASL (KIP-43, KIP-152).
 *
 * Used by `kafka-connection.ts` before it hands the connection out. The exchange is a handshake
 * that names the mechanism, then tokens in SaslAuthenticate. Invariant: whatever goes wrong is a
 * sentence that holds no secret.
 */
import type { Crypto } from '../io/runtime.ts';
import type { SaslCredentials } from './connection-security.ts';
import { errorName, errors } from './errors.ts';
import { SaslHandshakeRequest, SaslHandshakeResponse } from './messages/17-sasl-handshake.ts';
import {
  SaslAuthenticateRequest,
  SaslAuthenticateResponse,
} from './messages/36-sasl-authenticate.ts';
import type { EncodableOf, Message, MessageOf } from './schema.ts';
import { SCRAM_HASHES, ScramClient, ScramError } from './scram.ts';

/** The broker does not accept this client, or cannot be believed to be the right one. */
export class SaslRefused extends Error {
  override readonly name = 'SaslRefused';
}

/** Sends one request of the exchange. */
export type SaslExchange = <Q extends Message, R extends Message>(
  request: Q,
  response: R,
  value: EncodableOf<Q>,
) => Promise<MessageOf<R>>;

async function handshake(send: SaslExchange, mechanism: string): Promise<void> {
  const { errorCode, mechanisms } = await send(SaslHandshakeRequest, SaslHandshakeResponse, {
    mechanism,
  });
  if (errorCode === errors.NONE.code) return;
  if (errorCode === errors.UNSUPPORTED_SASL_MECHANISM.code) {
    const enabled = mechanisms.length === 0 ? 'none' : mechanisms.join(', ');
    throw new SaslRefused(`the listener does not take ${mechanism}, it takes ${enabled}`);
  }
  const hint = errorCode === errors.ILLEGAL_SASL_STATE.code ? ': the listener has no SASL' : '';
  throw new SaslRefused(`SaslHandshake: ${errorName(errorCode)}${hint}`);
}

async function exchangeToken(
  send: SaslExchange,
  authBytes: Uint8Array,
): Promise<SaslAuthenticateResponse> {
  const response = await send(SaslAuthenticateRequest, SaslAuthenticateResponse, { authBytes });
  if (response.errorCode === errors.NONE.code) return response;
  const why = response.errorMessage ?? '';
  const name = errorName(response.errorCode);
  throw new SaslRefused(why === '' ? name : `${name}: ${why}`);
}

async function scram(
  send: SaslExchange,
  crypto: Crypto,
  { mechanism, ...user }: SaslCredentials,
): Promise<SaslAuthenticateResponse> {
  const hash = SCRAM_HASHES[mechanism];
  if (hash === undefined) throw new SaslRefused(`${mechanism} is none of SCRAM`);
  try {
    const client = new ScramClient(crypto, hash, user);
    const { authBytes } = await exchangeToken(send, client.first());
    const last = await exchangeToken(send, await client.final(authBytes));
    client.verify(last.authBytes);
    return last;
  } catch (error) {
    throw error instanceof ScramError ? new SaslRefused(error.message) : error;
  }
}

/** RFC 4616: authorization identity, user, password. */
function plainToken({ username, password }: SaslCredentials): Uint8Array {
  return Buffer.from(`\0${username}\0${password}`, 'utf8');
}

/**
 * Runs the exchange; answers how long the authentication lasts, in ms (0: as long as the
 * connection). Rejects with {@link SaslRefused}, or with what `send` rejects with.
 */
export async function authenticate(
  send: SaslExchange,
  crypto: Crypto,
  credentials: SaslCredentials,
): Promise<number> {
  await handshake(send, credentials.mechanism);
  const last =
    credentials.mechanism === 'PLAIN'
      ? await exchangeToken(send, plainToken(credentials))
      : await scram(send, crypto, credentials);
  return Number(last.sessionLifetimeMs);
}
