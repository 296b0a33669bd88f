/**
 * Who the client of one connection is, and how it came to be that (KIP-152, KIP-368).
 *
 * Made by the socket server for each connection, asked by the request handler before each request,
 * changed by SaslHandshake and SaslAuthenticate. Invariants:
 * - Without a principal a client may ask for versions and authenticate, nothing else.
 * - After a refusal the connection ends, and the refusal itself comes late: guessing is slow.
 * - A client that authenticates again stays who it was. No message holds a secret.
 */
import type { Runtime } from '../io/runtime.ts';
import { errors } from '../protocol/errors.ts';
import { SCRAM_HASHES, type ScramCredential, ScramError, ScramServer } from '../protocol/scram.ts';
import type { ListenerSecurity } from './listener-security.ts';

/** The name of a client that proved none. */
export const ANONYMOUS = 'User:ANONYMOUS';

/** What a listener's sessions share. */
export interface SessionContext {
  readonly runtime: Pick<Runtime, 'clock' | 'crypto'>;
  readonly security: ListenerSecurity;
  /** As the cluster has it now; undefined: there is none. */
  readonly scramCredential: (mechanism: string, user: string) => ScramCredential | undefined;
}

/** The answer to a handshake. */
export interface HandshakeAnswer {
  readonly errorCode: number;
  readonly mechanisms: readonly string[];
}

/** The answer to a token. */
export interface TokenAnswer {
  readonly errorCode: number;
  readonly errorMessage: string | null;
  readonly authBytes: Uint8Array;
  readonly sessionLifetimeMs: number;
}

/** One authentication under way. */
interface Exchange {
  readonly mechanism: string;
  readonly scram: ScramServer | undefined;
  isFirst: boolean;
}

const NOTHING: Uint8Array = new Uint8Array(0);

/** The client is not who it says. */
class Refused extends Error {
  override readonly name = 'Refused';
}

/** See the file header. */
export class ClientSession {
  readonly #context: SessionContext;
  #principal: string | undefined;
  #exchange: Exchange | undefined;
  #expiresAtMs = Number.POSITIVE_INFINITY;
  #isOver = false;
  #takesRawTokens = false;

  /** `peerSubject`: the name in the certificate that the client showed. */
  constructor(context: SessionContext, peerSubject: string | undefined) {
    this.#context = context;
    const { sasl, principalOf } = context.security;
    if (sasl !== undefined) return;
    const name = peerSubject === undefined ? undefined : principalOf(peerSubject);
    if (peerSubject === undefined) this.#principal = ANONYMOUS;
    else if (name === undefined) this.#isOver = true;
    else this.#principal = `User:${name}`;
  }

  /** Undefined: it has to authenticate before anything else. */
  get principal(): string | undefined {
    const { clock } = this.#context.runtime;
    return clock.monotonicMs() < this.#expiresAtMs ? this.#principal : undefined;
  }

  /** The connection ends with the answer to the present request. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Frames are tokens without a header: what follows a SaslHandshake of version 0. */
  get takesRawTokens(): boolean {
    return this.#takesRawTokens;
  }

  /** Chooses the mechanism. */
  handshake(mechanism: string, version: number): HandshakeAnswer {
    const { security, runtime, scramCredential } = this.#context;
    const { sasl } = security;
    const mayRepeat = sasl !== undefined && sasl.maxReauthMs > 0;
    if (sasl === undefined || this.#exchange !== undefined || (this.#principal && !mayRepeat)) {
      return { errorCode: errors.ILLEGAL_SASL_STATE.code, mechanisms: [] };
    }
    if (!sasl.mechanisms.some((each) => each === mechanism)) {
      this.#isOver = true;
      const errorCode = errors.UNSUPPORTED_SASL_MECHANISM.code;
      return { errorCode, mechanisms: sasl.mechanisms };
    }
    const hash = SCRAM_HASHES[mechanism];
    const credentialOf = (user: string) => scramCredential(mechanism, user);
    const scram = hash && new ScramServer(runtime.crypto, hash, credentialOf);
    this.#exchange = { mechanism, scram, isFirst: true };
    this.#takesRawTokens = version === 0;
    return { errorCode: errors.NONE.code, mechanisms: sasl.mechanisms };
  }

  /** Takes a token of the client; a refusal is answered late. */
  async authenticate(token: Uint8Array): Promise<TokenAnswer> {
    const exchange = this.#exchange;
    if (exchange === undefined) {
      return this.#answer(errors.ILLEGAL_SASL_STATE.code, 'SaslHandshake comes first.');
    }
    try {
      return this.#step(exchange, token);
    } catch (error) {
      if (!(error instanceof Refused || error instanceof ScramError)) throw error;
      this.#exchange = undefined;
      this.#isOver = true;
      await this.#pause();
      const text = `Authentication by ${exchange.mechanism} failed: user or password is wrong.`;
      return this.#answer(errors.SASL_AUTHENTICATION_FAILED.code, text);
    }
  }

  #step(exchange: Exchange, token: Uint8Array): TokenAnswer {
    const { scram } = exchange;
    if (scram === undefined) return this.#accept(this.#plainUser(token), NOTHING);
    if (exchange.isFirst) {
      exchange.isFirst = false;
      return this.#answer(errors.NONE.code, null, scram.first(token));
    }
    const { user, message } = scram.final(token);
    return this.#accept(user, message);
  }

  /** RFC 4616: whom to act for, user, password. */
  #plainUser(token: Uint8Array): string {
    const [actsFor, user = '', password = '', more] = Buffer.from(token)
      .toString('utf8')
      .split('\0');
    const port = this.#context.runtime.crypto;
    const expected = this.#context.security.sasl?.plainUsers.get(user);
    const digest = (text: string): Uint8Array => port.hash('sha256', Buffer.from(text, 'utf8'));
    const isRight = port.equal(digest(expected ?? ''), digest(password)) && expected !== undefined;
    const isSelf = actsFor === '' || actsFor === user;
    if (!isRight || !isSelf || more !== undefined || user === '') throw new Refused(user);
    return user;
  }

  #accept(user: string, authBytes: Uint8Array): TokenAnswer {
    const principal = `User:${user}`;
    if (this.#principal !== undefined && this.#principal !== principal) throw new Refused(user);
    this.#principal = principal;
    this.#exchange = undefined;
    this.#takesRawTokens = false;
    const lifetimeMs = this.#context.security.sasl?.maxReauthMs ?? 0;
    if (lifetimeMs > 0) {
      this.#expiresAtMs = this.#context.runtime.clock.monotonicMs() + lifetimeMs;
    }
    return { ...this.#answer(errors.NONE.code, null, authBytes), sessionLifetimeMs: lifetimeMs };
  }

  #answer(errorCode: number, errorMessage: string | null, authBytes = NOTHING): TokenAnswer {
    return { errorCode, errorMessage, authBytes, sessionLifetimeMs: 0 };
  }

  #pause(): Promise<void> {
    const delayMs = this.#context.security.sasl?.failureDelayMs ?? 0;
    return new Promise((resolve) => {
      this.#context.runtime.clock.setTimer(delayMs, resolve);
    });
  }
}
