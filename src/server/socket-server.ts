/**
 * Listening sockets and the connections on them: frames in, frames out, one request at a time.
 *
 * As in Apache Kafka, a connection's requests are handled strictly one after the other, so
 * responses leave in the order of their requests. Invariants:
 * - A connection that holds {@link MAX_QUEUED_REQUESTS} requests or {@link MAX_QUEUED_BYTES} is not
 *   read until half of that is answered; what the last read brought comes on top.
 * - A response that the peer does not take stops that connection alone.
 * - A bad frame closes its connection with a log line; no other connection notices.
 */
import type { BufferPool } from '../base/buffer-pool.ts';
import type { Logger } from '../base/logger.ts';
import type { CloseReason, Connection, Listener, Runtime, Timer } from '../io/runtime.ts';
import { BadFrameSize, FrameReader } from '../protocol/frame.ts';
import type { ListenerAddress } from './broker-config.ts';
import { ClientSession, type SessionContext } from './client-session.ts';

/** Requests that may wait on one connection before it is no longer read. */
export const MAX_QUEUED_REQUESTS = 64;
/** Bytes of requests that may wait on one connection before it is no longer read. */
export const MAX_QUEUED_BYTES = 8 * 1024 * 1024;

/** The largest request of a client that has not authenticated (as in Apache Kafka). */
export const MAX_UNAUTHENTICATED_BYTES = 512 * 1024;

/** A request without an answer that a client could read: its connection is closed. */
export class UnanswerableRequest extends Error {
  override readonly name = 'UnanswerableRequest';
}

/** What a connection tells the request handler about itself. */
export interface ConnectionContext {
  readonly connectionId: number;
  readonly listenerName: string;
  readonly clientHost: string;
  /** Who the client is; undefined: nobody authenticates here. */
  readonly session?: ClientSession | undefined;
}

/**
 * Answers a frame: chunks to send, undefined for no answer. A rejection closes the connection: with
 * {@link UnanswerableRequest} the client is to blame, anything else is a defect of this broker.
 */
export type FrameHandler = (
  frame: Uint8Array,
  context: ConnectionContext,
) => Promise<readonly Uint8Array[] | undefined>;

/** What a {@link SocketServer} needs. */
export interface SocketServerOptions {
  readonly maxRequestBytes: number;
  /** Connections without a request for so long are closed; negative: never. */
  readonly maxIdleMs: number;
  readonly handleFrame: FrameHandler;
  /** How a listener is secured; absent: no listener is. */
  readonly securityOf?: (listenerName: string) => SessionContext;
  /** Memory for large requests; that of responses goes back there once they are sent. */
  readonly buffers: BufferPool;
  /** The connection is gone: drop what belongs to it (fetch sessions). */
  readonly connectionClosed: (connectionId: number) => void;
}

/** One client connection. */
class ServerConnection {
  readonly #connection: Connection;
  readonly #context: ConnectionContext;
  readonly #options: SocketServerOptions;
  readonly #logger: Logger;
  readonly #reader: FrameReader;
  readonly #onClosed: (connection: ServerConnection) => void;
  readonly #queue: Uint8Array[] = [];
  #queuedBytes = 0;
  #busy = false;
  #paused = false;
  #blocked = false;
  #closed = false;
  /** Whether a request came since the idle sweep looked last. */
  active = true;

  constructor(
    connection: Connection,
    context: ConnectionContext,
    options: SocketServerOptions,
    logger: Logger,
    onClosed: (connection: ServerConnection) => void,
  ) {
    this.#connection = connection;
    this.#context = context;
    this.#options = options;
    this.#logger = logger;
    this.#onClosed = onClosed;
    this.#reader = new FrameReader((frame) => this.#frame(frame), {
      maxFrameBytes: () => this.#maxFrameBytes,
      allocate: (length) => options.buffers.take(length),
    });
    connection.start({
      receiveBuffer: () => this.#reader.receiveBuffer(),
      received: (length) => this.#received(length),
      writable: () => {
        this.#blocked = false;
        this.#next();
      },
      closed: (reason) => this.#ended(reason),
    });
  }

  /** A client that has not authenticated yet cannot take much memory. */
  get #maxFrameBytes(): number {
    const { session } = this.#context;
    const { maxRequestBytes } = this.#options;
    const isKnown = session === undefined || session.principal !== undefined;
    return isKnown ? maxRequestBytes : Math.min(maxRequestBytes, MAX_UNAUTHENTICATED_BYTES);
  }

  get busy(): boolean {
    return this.#busy;
  }

  close(): void {
    if (this.#closed) return;
    this.#connection.close();
    this.#ended({ cause: 'closed', message: 'closed by this broker' });
  }

  #received(length: number): void {
    try {
      this.#reader.received(length);
    } catch (error) {
      if (!(error instanceof BadFrameSize)) throw error;
      this.#logger.warn('closing connection: bad frame', {
        client: this.#context.clientHost,
        reason: error.message,
        hint: 'the client does not speak Kafka, or socket.request.max.bytes is too low',
      });
      this.close();
    }
  }

  #frame(frame: Uint8Array): void {
    this.active = true;
    this.#queue.push(frame);
    this.#queuedBytes += frame.length;
    const full = this.#queue.length >= MAX_QUEUED_REQUESTS || this.#queuedBytes >= MAX_QUEUED_BYTES;
    if (full && !this.#paused) {
      this.#paused = true;
      this.#connection.pause();
    }
    this.#next();
  }

  /** Starts the next request when the last one is answered and the answer is on its way. */
  #next(): void {
    if (this.#busy || this.#blocked || this.#closed) return;
    const frame = this.#queue.shift();
    if (frame === undefined) return;
    this.#queuedBytes -= frame.length;
    const isHalfEmpty =
      this.#queue.length < MAX_QUEUED_REQUESTS / 2 && this.#queuedBytes < MAX_QUEUED_BYTES / 2;
    if (this.#paused && isHalfEmpty) {
      this.#paused = false;
      this.#connection.resume();
    }
    this.#busy = true;
    this.#options.handleFrame(frame, this.#context).then(
      (chunks) => this.#answer(chunks),
      (error: unknown) => this.#fail(error),
    );
  }

  #answer(chunks: readonly Uint8Array[] | undefined): void {
    this.#busy = false;
    // A long poll that has just been answered is not idle.
    this.active = true;
    if (this.#closed) return;
    const isOver = this.#context.session?.isOver === true;
    if (chunks !== undefined) this.#send(chunks, isOver);
    else if (isOver) this.close();
    if (!isOver) this.#next();
  }

  /** `isLast`: the connection ends once they are sent. */
  #send(chunks: readonly Uint8Array[], isLast: boolean): void {
    const { buffers } = this.#options;
    const sent = (): void => {
      for (const chunk of chunks) buffers.give(chunk);
      if (isLast) this.close();
    };
    if (!this.#connection.write(chunks, sent)) this.#blocked = true;
  }

  #fail(error: unknown): void {
    this.#busy = false;
    if (this.#closed) return;
    const client = this.#context.clientHost;
    if (error instanceof UnanswerableRequest) {
      this.#logger.warn('closing connection: request has no answer', {
        client,
        reason: error.message,
      });
    } else {
      this.#logger.error('closing connection: request could not be handled', {
        client,
        error: error instanceof Error ? (error.stack ?? error.message) : String(error),
      });
    }
    this.close();
  }

  #ended(reason: CloseReason): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#reader.stop();
    this.#queue.length = 0;
    this.#logger.debug('connection closed', {
      client: this.#context.clientHost,
      cause: reason.cause,
    });
    this.#options.connectionClosed(this.#context.connectionId);
    this.#onClosed(this);
  }
}

/** All listeners of a broker. */
export class SocketServer {
  readonly #runtime: Runtime;
  readonly #options: SocketServerOptions;
  readonly #connections = new Set<ServerConnection>();
  readonly #listeners: Listener[] = [];
  #nextConnectionId = 1;
  #idleTimer: Timer | undefined;

  constructor(runtime: Runtime, options: SocketServerOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  /** Listens; answers the address with its real port. Rejects when the address is not to be had. */
  async listen(address: ListenerAddress): Promise<ListenerAddress> {
    const secured = this.#options.securityOf?.(address.name);
    const listener = await this.#runtime.network.listen(
      address.host,
      address.port,
      (connection) => this.#accept(connection, address.name, secured),
      secured?.security.tls,
    );
    this.#listeners.push(listener);
    if (this.#idleTimer === undefined && this.#options.maxIdleMs > 0) this.#armIdleSweep();
    return { ...address, port: listener.port };
  }

  #accept(connection: Connection, listenerName: string, secured: SessionContext | undefined): void {
    const session = secured && new ClientSession(secured, connection.peerSubject);
    if (session?.isOver === true) {
      const { remoteAddress: client, peerSubject: subject } = connection;
      const fields = { listener: listenerName, client, subject };
      this.#runtime.logger.info('ssl.principal.mapping.rules know no such client', fields);
      connection.close();
      return;
    }
    const context = {
      ...(session === undefined ? {} : { session }),
      connectionId: this.#nextConnectionId++,
      listenerName,
      clientHost: connection.remoteAddress,
    };
    const accepted = new ServerConnection(
      connection,
      context,
      this.#options,
      this.#runtime.logger,
      (closed) => this.#connections.delete(closed),
    );
    this.#connections.add(accepted);
  }

  /** One timer for all connections: those without a request since the last sweep are closed. */
  #armIdleSweep(): void {
    this.#idleTimer = this.#runtime.clock.setTimer(this.#options.maxIdleMs, () => {
      for (const connection of this.#connections) {
        if (!connection.active && !connection.busy) connection.close();
        connection.active = false;
      }
      this.#armIdleSweep();
    });
  }

  /** Stops listening and closes every connection. */
  async close(): Promise<void> {
    this.#idleTimer?.cancel();
    await Promise.all(this.#listeners.map((listener) => listener.close()));
    for (const connection of [...this.#connections]) connection.close();
  }
}
