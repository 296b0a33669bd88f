/**
 * SCRAM (RFC 5802, RFC 7677) as Kafka speaks it: SHA-256 and SHA-512, no channel binding.
 *
 * Both sides use it: a connection that authenticates itself, and a listener that checks others.
 * Pure but for the primitives it is given. As in Apache Kafka, passwords are UTF-8 without further
 * preparation. Invariants: a client proves its password only to a server that it answers with the
 * nonce of this exchange, and believes a server only by the signature over the whole exchange.
 */
import type { Crypto, HashAlgorithm } from '../io/runtime.ts';

/** Rounds below this are too few to protect a password; Apache Kafka refuses them, too. */
export const MIN_SCRAM_ITERATIONS = 4096;
/** Rounds above this would keep a thread busy for seconds at a server's word. */
const MAX_SCRAM_ITERATIONS = 10_000_000;
const NONCE_BYTES = 24;
/** The client binds to no channel, and says so in base64. */
const NO_BINDING = 'n,,';
const NO_BINDING_BASE64 = 'biws';

/** Hash functions by mechanism. */
export const SCRAM_HASHES: Readonly<Record<string, HashAlgorithm>> = {
  'SCRAM-SHA-256': 'sha256',
  'SCRAM-SHA-512': 'sha512',
};

/** The exchange broke its rules, or one side is not who it says. Holds no secrets. */
export class ScramError extends Error {
  override readonly name = 'ScramError';
}

/** What a server keeps of a user. */
export interface ScramCredential {
  readonly salt: Uint8Array;
  readonly storedKey: Uint8Array;
  readonly serverKey: Uint8Array;
  readonly iterations: number;
}

function utf8(text: string): Uint8Array {
  return Buffer.from(text, 'utf8');
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64');
}

function fromBase64(text: string): Uint8Array {
  return Buffer.from(text, 'base64');
}

function xor(a: Uint8Array, b: Uint8Array): Uint8Array {
  return a.map((byte, i) => byte ^ (b[i] ?? 0));
}

/** A fresh nonce; printable, without commas. */
export function scramNonce(primitives: Crypto): string {
  return Buffer.from(primitives.randomBytes(NONCE_BYTES)).toString('base64url');
}

/** What a server would keep of this password. */
export async function scramCredential(
  primitives: Crypto,
  hash: HashAlgorithm,
  password: string,
  salt: Uint8Array,
  iterations: number,
): Promise<ScramCredential & { readonly clientKey: Uint8Array }> {
  const salted = await primitives.pbkdf2(hash, utf8(password), salt, iterations);
  const clientKey = primitives.hmac(hash, salted, utf8('Client Key'));
  const storedKey = primitives.hash(hash, clientKey);
  const serverKey = primitives.hmac(hash, salted, utf8('Server Key'));
  return { salt, storedKey, serverKey, iterations, clientKey };
}

function saslName(name: string): string {
  return name.replaceAll('=', '=3D').replaceAll(',', '=2C');
}

function unSaslName(name: string): string {
  if (/=(?!2C|3D)/.test(name)) throw new ScramError('the user name is written in a wrong way');
  return name.replaceAll('=2C', ',').replaceAll('=3D', '=');
}

/** The client's side of one exchange. */
export class ScramClient {
  readonly #crypto: Crypto;
  readonly #hash: HashAlgorithm;
  readonly #password: string;
  readonly #nonce: string;
  readonly #firstBare: string;
  #serverSignature: Uint8Array | undefined;

  constructor(
    primitives: Crypto,
    hash: HashAlgorithm,
    user: { readonly username: string; readonly password: string },
    nonce = scramNonce(primitives),
  ) {
    this.#crypto = primitives;
    this.#hash = hash;
    this.#password = user.password;
    this.#nonce = nonce;
    this.#firstBare = `n=${saslName(user.username)},r=${nonce}`;
  }

  first(): Uint8Array {
    return utf8(`${NO_BINDING}${this.#firstBare}`);
  }

  /** The proof, for the server's first message. */
  async final(serverFirst: Uint8Array): Promise<Uint8Array> {
    const text = Buffer.from(serverFirst).toString('utf8');
    const match = /^(?:m=[^,]*,)?r=([^,]+),s=([A-Za-z0-9+/=]+),i=(\d+)(?:,|$)/.exec(text);
    if (match === null || text.startsWith('m=')) {
      throw new ScramError('the first answer of the server is none of SCRAM');
    }
    const [, nonce = '', salt = '', rounds = ''] = match;
    if (!nonce.startsWith(this.#nonce) || nonce === this.#nonce) {
      throw new ScramError('the server answers with a nonce of another exchange');
    }
    const iterations = Number(rounds);
    if (iterations < MIN_SCRAM_ITERATIONS || iterations > MAX_SCRAM_ITERATIONS) {
      const range = `${MIN_SCRAM_ITERATIONS} to ${MAX_SCRAM_ITERATIONS}`;
      throw new ScramError(`the server asks for ${iterations} iterations, legal are ${range}`);
    }
    const withoutProof = `c=${NO_BINDING_BASE64},r=${nonce}`;
    const authMessage = utf8(`${this.#firstBare},${text},${withoutProof}`);
    const keys = await scramCredential(
      this.#crypto,
      this.#hash,
      this.#password,
      fromBase64(salt),
      iterations,
    );
    const signature = this.#crypto.hmac(this.#hash, keys.storedKey, authMessage);
    this.#serverSignature = this.#crypto.hmac(this.#hash, keys.serverKey, authMessage);
    return utf8(`${withoutProof},p=${base64(xor(keys.clientKey, signature))}`);
  }

  /** Throws {@link ScramError} unless the server's last message proves that it knows the user. */
  verify(serverFinal: Uint8Array): void {
    const text = Buffer.from(serverFinal).toString('utf8');
    const error = /^e=([^,]*)/.exec(text)?.[1];
    if (error !== undefined) throw new ScramError(`the server says ${error}`);
    const signature = /^v=([A-Za-z0-9+/=]+)(?:,|$)/.exec(text)?.[1];
    const expected = this.#serverSignature;
    const isRight =
      signature !== undefined &&
      expected !== undefined &&
      this.#crypto.equal(fromBase64(signature), expected);
    if (!isRight) throw new ScramError('the server does not prove that it knows this user');
  }
}

/** The server's side of one exchange. */
export class ScramServer {
  readonly #crypto: Crypto;
  readonly #hash: HashAlgorithm;
  readonly #credentialOf: (user: string) => ScramCredential | undefined;
  readonly #nonce: string;
  #state:
    | {
        readonly user: string;
        readonly credential: ScramCredential;
        readonly soFar: string;
        readonly nonce: string;
      }
    | undefined;

  constructor(
    primitives: Crypto,
    hash: HashAlgorithm,
    credentialOf: (user: string) => ScramCredential | undefined,
    nonce = scramNonce(primitives),
  ) {
    this.#crypto = primitives;
    this.#hash = hash;
    this.#credentialOf = credentialOf;
    this.#nonce = nonce;
  }

  /** Salt and rounds of the user that the client names; throws {@link ScramError}. */
  first(clientFirst: Uint8Array): Uint8Array {
    const text = Buffer.from(clientFirst).toString('utf8');
    const match = /^n,(a=[^,]*)?,(n=([^,]+),r=([^,]+)(?:,.*)?)$/s.exec(text);
    if (match === null) throw new ScramError('the first message is none of SCRAM');
    const [, authorization, bare = '', name = '', clientNonce = ''] = match;
    const user = unSaslName(name);
    if (authorization !== undefined && unSaslName(authorization.slice(2)) !== user) {
      throw new ScramError('a user may act for nobody else');
    }
    const credential = this.#credentialOf(user);
    if (credential === undefined) throw new ScramError('the user has no such credential');
    const nonce = `${clientNonce}${this.#nonce}`;
    const answer = `r=${nonce},s=${base64(credential.salt)},i=${credential.iterations}`;
    this.#state = { user, credential, soFar: `${bare},${answer}`, nonce };
    return utf8(answer);
  }

  /** The user, proved, and what proves the server to the client; throws {@link ScramError}. */
  final(clientFinal: Uint8Array): { readonly user: string; readonly message: Uint8Array } {
    const state = this.#state;
    this.#state = undefined;
    const text = Buffer.from(clientFinal).toString('utf8');
    const match = /^(c=([A-Za-z0-9+/=]+),r=([^,]+)(?:,.*)?),p=([A-Za-z0-9+/=]+)$/s.exec(text);
    if (match === null || state === undefined) {
      throw new ScramError('the last message is none of SCRAM');
    }
    const [, withoutProof = '', binding = '', nonce = '', proof = ''] = match;
    const flag = Buffer.from(fromBase64(binding)).toString('utf8');
    if (!/^n,(a=[^,]*)?,$/.test(flag) || nonce !== state.nonce) {
      throw new ScramError('the last message belongs to another exchange');
    }
    const { storedKey, serverKey } = state.credential;
    const authMessage = utf8(`${state.soFar},${withoutProof}`);
    const signature = this.#crypto.hmac(this.#hash, storedKey, authMessage);
    const clientKey = xor(signature, fromBase64(proof));
    if (!this.#crypto.equal(this.#crypto.hash(this.#hash, clientKey), storedKey)) {
      throw new ScramError('the password is wrong');
    }
    const proves = this.#crypto.hmac(this.#hash, serverKey, authMessage);
    return { user: state.user, message: utf8(`v=${base64(proves)}`) };
  }
}
