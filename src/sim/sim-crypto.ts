/**
 * Cryptography in a world where nobody authenticates: every call is a RangeError.
 *
 * Simulated brokers listen without security; what is tested of it is tested on real sockets.
 */
import type { Crypto } from '../io/runtime.ts';

function refuse(): never {
  throw new RangeError('cryptography is not simulated');
}

/** See the file header. */
export const noCrypto: Crypto = {
  hash: refuse,
  hmac: refuse,
  pbkdf2: refuse,
  equal: refuse,
  randomBytes: refuse,
};
