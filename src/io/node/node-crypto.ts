/**
 * Node's cryptography behind the Crypto port.
 *
 * PBKDF2 runs on a thread of the pool: thousands of rounds would hold up the event loop.
 */
import { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Crypto } from '../runtime.ts';

const HASH_BYTES = { sha256: 32, sha512: 64 } as const;

const pbkdf2Async = promisify(pbkdf2);

/** The primitives of the OpenSSL that Node carries. */
export function nodeCrypto(): Crypto {
  return {
    hash: (algorithm, bytes) => createHash(algorithm).update(bytes).digest(),
    hmac: (algorithm, key, bytes) => createHmac(algorithm, key).update(bytes).digest(),
    pbkdf2: (algorithm, password, salt, iterations) =>
      pbkdf2Async(password, salt, iterations, HASH_BYTES[algorithm], algorithm),
    equal: (a, b) => a.length === b.length && timingSafeEqual(a, b),
    randomBytes: (length) => randomBytes(length),
  };
}
