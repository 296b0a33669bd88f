/**
 * The client side of one connection to a Kafka broker.
 *
 * Used by mirrors towards their source and by the command line. `connect` dials, learns the
 * broker's API versions and authenticates; `send` picks the highest version both know. Invariants:
 * - Every request ends exactly once: with its response, or with a {@link ConnectionError}. A
 *   request that times out ends the connection, as later answers would belong to nobody.
 * - A malformed response ends the connection and nothing else.
 * - With `reuseFrameBuffer` byte fields of a response are views of memory that the next response
 *   overwrites: such owners use `exchange`, whose callback runs before anything more is received,
 *   and keep one request in flight.
 * - A connection whose authentication is about to run out ends itself between two requests.
 */
import { assert, present } from '../base/assert.ts';
import { ByteReader, MalformedBytes } from '../base/bytes.ts';
import type { CloseReason, Connection, Runtime, Timer } from '../io/runtime.ts';
import { apiName } from './api-keys.ts';
import { type Codec, codec } from './codec.ts';
import type { ConnectionSecurity, SaslCredentials } from './connection-security.ts';
import { errors } from './errors.ts';
import { BadFrameSize, encodeRequestFrame, FrameReader } from './frame.ts';
import { ApiVersionsRequest, ApiVersionsResponse } from './messages/18-api-versions.ts';
import { readResponseHeader } from './request-header.ts';
import { authenticate, SaslRefused } from './sasl-client.ts';
import type { EncodableOf, Message, MessageOf } from './schema.ts';

/** Requests of one connection that may wait for their answer. */
export const MAX_IN_FLIGHT_REQUESTS = 100;
/** Largest response taken, in bytes, unless the owner says otherwise. */
export const DEFAULT_MAX_RESPONSE_BYTES = 100 * 1024 * 1024;
/** How long dialling may take, in ms, unless the owner says otherwise. */
export const DEFAULT_CONNECT_TIMEOUT_MS = 10_000;
/** How long an answer may take, in ms, unless the owner says otherwise. */
export const DEFAULT_REQUEST_TIMEOUT_MS = 30_000;

/** A connection is given up after this share of the time for which it is authenticated. */
const SESSION_SHARE = 0.85;

const SOFTWARE_NAME = 'twinlog';
const SOFTWARE_VERSION = '0.1';

/**
 * Why a connection or a request failed. `cause` is an errno name (ECONNREFUSED, …), `closed` (the
 * peer ended it in good order, or the owner did), `timeout`, `malformed` (the peer does not speak
 * Kafka), `authentication` (one side does not accept the other: TLS or SASL), `unsupportedVersion`
 * or `overloaded`; the last two leave the connection open.
 */
export class ConnectionError extends Error {
  override readonly name = 'ConnectionError';
  override readonly cause: string;
  constructor(cause: string, message: string) {
    super(message);
    this.cause = cause;
  }
}

/** What a connection needs of the runtime. */
export type ConnectionRuntime = Pick<Runtime, 'clock' | 'network' | 'crypto'>;

/** Whom to connect to, and the limits. */
export interface KafkaConnectionOptions {
  readonly host: string;
  readonly port: number;
  readonly clientId: string;
  /** Absent: plain text, and nobody authenticates. */
  readonly security?: ConnectionSecurity | undefined;
  readonly connectTimeoutMs?: number;
  readonly requestTimeoutMs?: number;
  readonly maxResponseBytes?: number;
  readonly reuseFrameBuffer?: boolean;
  /** Called once when an established connection ends, whoever ended it but the owner. */
  readonly onClosed?: (error: ConnectionError) => void;
}

/** How one request deviates from the connection's settings. */
export interface SendOptions {
  readonly timeoutMs?: number;
  /** No version above this is used. */
  readonly maxVersion?: number;
}

type Settle<R> = (result: R | ConnectionError) => void;

interface InFlight {
  readonly sentMs: number;
  readonly codec: Codec<Message>;
  readonly settle: Settle<unknown>;
  readonly timer: Timer;
}

/** The versions of an API that a broker serves. */
export interface ApiRange {
  readonly minVersion: number;
  readonly maxVersion: number;
}

/** See the file header. */
export class KafkaConnection {
  readonly host: string;
  readonly port: number;
  readonly #clock: Runtime['clock'];
  readonly #options: KafkaConnectionOptions;
  readonly #connection: Connection;
  readonly #reader: FrameReader;
  readonly #inFlight = new Map<number, InFlight>();
  #apis: ReadonlyMap<number, ApiRange> = new Map();
  #features: ReadonlyMap<string, number> = new Map();
  #nextCorrelationId = 0;
  #ended: ConnectionError | undefined;
  #roundTripMs = Number.POSITIVE_INFINITY;
  #sessionTimer: Timer | undefined;
  #isSessionOver = false;

  private constructor(
    clock: Runtime['clock'],
    options: KafkaConnectionOptions,
    connection: Connection,
  ) {
    this.host = options.host;
    this.port = options.port;
    this.#clock = clock;
    this.#options = options;
    this.#connection = connection;
    this.#reader = new FrameReader((frame) => this.#onFrame(frame), {
      maxFrameBytes: options.maxResponseBytes ?? DEFAULT_MAX_RESPONSE_BYTES,
      reuseFrameBuffer: options.reuseFrameBuffer === true,
    });
    connection.start({
      receiveBuffer: () => this.#reader.receiveBuffer(),
      received: (length) => this.#received(length),
      writable: () => {},
      closed: (reason) => this.#onClosed(reason),
    });
  }

  /** Dials and learns the API versions; rejects with a {@link ConnectionError}. */
  static async connect(
    runtime: ConnectionRuntime,
    options: KafkaConnectionOptions,
  ): Promise<KafkaConnection> {
    const { host, port, security } = options;
    const timeoutMs = options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
    const dialled = await runtime.network.connect(host, port, timeoutMs, security?.tls);
    if ('cause' in dialled) {
      throw new ConnectionError(
        dialled.cause,
        `cannot connect to ${host}:${port}: ${dialled.message}`,
      );
    }
    const connection = new KafkaConnection(runtime.clock, options, dialled);
    await connection.#learnVersions();
    if (security?.sasl !== undefined) {
      await connection.#authenticate(runtime.crypto, security.sasl);
    }
    return connection;
  }

  /** Undefined while the connection is usable. */
  get ended(): ConnectionError | undefined {
    return this.#ended;
  }

  /** The shortest time that any answer took, in ms: an upper bound of the network's round trip. */
  get roundTripMs(): number {
    return this.#roundTripMs;
  }

  /** The cluster's finalised level of a feature when this connection was made; 0: none. */
  featureLevel(name: string): number {
    return this.#features.get(name) ?? 0;
  }

  /** All of them that are not 0, as they were then. */
  get featureLevels(): ReadonlyMap<string, number> {
    return this.#features;
  }

  /** What the other side listed in ApiVersions, by API key. */
  get apis(): ReadonlyMap<number, ApiRange> {
    return this.#apis;
  }

  /** The highest version of an API that both sides know; undefined when there is none. */
  version(request: Message, maxVersion = Number.POSITIVE_INFINITY): number | undefined {
    const range = this.#apis.get(present(request.apiKey, 'API key'));
    if (range === undefined) return undefined;
    const version = Math.min(range.maxVersion, request.versions.max, maxVersion);
    return version < Math.max(range.minVersion, request.versions.min) ? undefined : version;
  }

  /** Sends a request; rejects with a {@link ConnectionError}. */
  send<Q extends Message, R extends Message>(
    request: Q,
    response: R,
    value: EncodableOf<Q>,
    options: SendOptions = {},
  ): Promise<MessageOf<R>> {
    return new Promise((resolve, reject) => {
      this.exchange(request, response, value, options, (result) => {
        if (result instanceof ConnectionError) reject(result);
        else resolve(result);
      });
    });
  }

  /** Sends a request; `onResult` runs once, inside the receipt of the response. */
  exchange<Q extends Message, R extends Message>(
    request: Q,
    response: R,
    value: EncodableOf<Q>,
    options: SendOptions,
    onResult: (result: MessageOf<R> | ConnectionError) => void,
  ): void {
    const version = this.version(request, options.maxVersion);
    const refusal = this.#refusal(request, version);
    if (refusal !== undefined || version === undefined) {
      this.#clock.defer(() => onResult(present(refusal, 'reason of a refusal')));
      return;
    }
    this.#request(codec(request, version), codec(response, version), value, options, onResult);
  }

  #refusal(request: Message, version: number | undefined): ConnectionError | undefined {
    if (this.#ended !== undefined) return this.#ended;
    if (this.#inFlight.size >= MAX_IN_FLIGHT_REQUESTS) {
      const message = `${MAX_IN_FLIGHT_REQUESTS} requests wait for an answer already`;
      return new ConnectionError('overloaded', message);
    }
    if (version !== undefined) return undefined;
    const name = apiName(request.apiKey ?? -1) ?? request.name;
    return new ConnectionError(
      'unsupportedVersion',
      `${this.host}:${this.port} does not serve any version of ${name} that twinlog speaks`,
    );
  }

  /** Ends the connection now; what is in flight fails with cause `closed`. */
  close(): void {
    if (this.#ended !== undefined) return;
    this.#end(new ConnectionError('closed', 'closed by this side'), false);
  }

  #request<Q extends Message, R extends Message>(
    request: Codec<Q>,
    response: Codec<R>,
    value: EncodableOf<Q>,
    options: SendOptions,
    onResult: Settle<MessageOf<R>>,
  ): void {
    const correlationId = this.#nextCorrelationId;
    this.#nextCorrelationId = (correlationId + 1) & 0x7fffffff;
    const header = { correlationId, clientId: this.#options.clientId };
    const chunks = encodeRequestFrame(header, request, value);
    const timeoutMs =
      options.timeoutMs ?? this.#options.requestTimeoutMs ?? DEFAULT_REQUEST_TIMEOUT_MS;
    const timer = this.#clock.setTimer(timeoutMs, () => {
      const { host, port } = this;
      this.#end(
        new ConnectionError('timeout', `no answer from ${host}:${port} within ${timeoutMs} ms`),
        true,
      );
    });
    this.#inFlight.set(correlationId, {
      sentMs: this.#clock.monotonicMs(),
      codec: response as unknown as Codec<Message>,
      settle: onResult as Settle<unknown>,
      timer,
    });
    this.#connection.write(chunks);
  }

  #received(length: number): void {
    try {
      this.#reader.received(length);
    } catch (error) {
      if (!(error instanceof BadFrameSize)) throw error;
      this.#end(this.#malformed(error.message), true);
    }
  }

  #malformed(problem: string): ConnectionError {
    const text = `${this.host}:${this.port} does not answer as a Kafka broker: ${problem}`;
    return new ConnectionError('malformed', text);
  }

  #onFrame(frame: Uint8Array): void {
    const correlationId = frame.length < 4 ? -1 : new ByteReader(frame).int32();
    const waiting = this.#inFlight.get(correlationId);
    if (waiting === undefined) {
      this.#end(this.#malformed(`answer to no request (correlation id ${correlationId})`), true);
      return;
    }
    const response = this.#decode(waiting.codec, frame);
    if (response instanceof ConnectionError) {
      this.#end(response, true);
      return;
    }
    this.#inFlight.delete(correlationId);
    waiting.timer.cancel();
    const tookMs = this.#clock.monotonicMs() - waiting.sentMs;
    this.#roundTripMs = Math.min(this.#roundTripMs, tookMs);
    // Before the owner sends the next one.
    if (this.#isSessionOver) this.#endSession();
    waiting.settle(response);
  }

  #decode(response: Codec<Message>, frame: Uint8Array): unknown {
    try {
      const reader = new ByteReader(frame);
      const apiKey = present(response.message.apiKey, 'API key');
      readResponseHeader(reader, apiKey, response.version);
      // A broker that does not know the version of ApiVersions answers in version 0.
      if (response.message === ApiVersionsResponse && response.version > 0) {
        const isV0 = new ByteReader(frame, 4).int16() === errors.UNSUPPORTED_VERSION.code;
        if (isV0) return codec(ApiVersionsResponse, 0).read(reader);
      }
      return response.read(reader);
    } catch (error) {
      if (!(error instanceof MalformedBytes)) throw error;
      return this.#malformed(`${response.message.name} v${response.version}: ${error.message}`);
    }
  }

  #onClosed(reason: CloseReason): void {
    if (this.#ended !== undefined) return;
    const { host, port } = this;
    this.#end(
      new ConnectionError(reason.cause, `connection to ${host}:${port} ended: ${reason.message}`),
      true,
    );
  }

  #end(error: ConnectionError, tellOwner: boolean): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#sessionTimer?.cancel();
    this.#reader.stop();
    this.#connection.close();
    const waiting = [...this.#inFlight.values()];
    this.#inFlight.clear();
    for (const { timer, settle } of waiting) {
      timer.cancel();
      settle(error);
    }
    if (tellOwner) this.#options.onClosed?.(error);
  }

  async #authenticate(crypto: Runtime['crypto'], sasl: SaslCredentials): Promise<void> {
    const timeoutMs = this.#options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
    let lifetimeMs: number;
    try {
      lifetimeMs = await authenticate(
        (request, response, value) => this.send(request, response, value, { timeoutMs }),
        crypto,
        sasl,
      );
    } catch (error) {
      if (!(error instanceof SaslRefused)) {
        this.close();
        throw error;
      }
      const text = `${this.host}:${this.port} does not authenticate ${sasl.username}`;
      const refused = new ConnectionError('authentication', `${text}: ${error.message}`);
      this.#end(refused, false);
      throw refused;
    }
    if (lifetimeMs <= 0) return;
    this.#sessionTimer = this.#clock.setTimer(lifetimeMs * SESSION_SHARE, () => {
      this.#isSessionOver = true;
      this.#endSession();
    });
  }

  /** Unless something waits for its answer; the next connection authenticates anew. */
  #endSession(): void {
    if (this.#inFlight.size > 0) return;
    this.#end(new ConnectionError('closed', 'the time of the authentication is over'), true);
  }

  /** ApiVersions 4, then what the refusal says both know, at least 0. */
  async #learnVersions(): Promise<void> {
    let version = ApiVersionsRequest.versions.max;
    for (;;) {
      const response = await this.#askVersions(version);
      if (response.errorCode === errors.NONE.code) {
        this.#apis = new Map(response.apiKeys.map((api) => [api.apiKey, api]));
        this.#features = new Map(
          response.finalizedFeatures.map(({ name, maxVersionLevel }) => [name, maxVersionLevel]),
        );
        return;
      }
      const own = response.apiKeys.find((api) => api.apiKey === ApiVersionsRequest.apiKey);
      const next = Math.min(own?.maxVersion ?? 0, version - 1);
      if (response.errorCode !== errors.UNSUPPORTED_VERSION.code || next < 0) {
        const error = this.#malformed(`ApiVersions failed with error ${response.errorCode}`);
        this.#end(error, false);
        throw error;
      }
      version = next;
    }
  }

  #askVersions(version: number): Promise<ApiVersionsResponse> {
    assert(this.#inFlight.size === 0, 'the handshake comes first');
    const timeoutMs = this.#options.connectTimeoutMs ?? DEFAULT_CONNECT_TIMEOUT_MS;
    return new Promise((resolve, reject) => {
      this.#request(
        codec(ApiVersionsRequest, version),
        codec(ApiVersionsResponse, version),
        { clientSoftwareName: SOFTWARE_NAME, clientSoftwareVersion: SOFTWARE_VERSION },
        { timeoutMs },
        (result) => {
          if (result instanceof ConnectionError) reject(result);
          else resolve(result);
        },
      );
    });
  }
}
