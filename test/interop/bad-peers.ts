/**
 * Peers that misbehave: servers that are no Kafka, that stop in mid-frame, that never answer; a
 * proxy that damages what passes; and a bare socket that says whatever a test wants.
 *
 * Everything listens on the loopback address and is closed by its owner.
 */
import { createServer as createHttpServer } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './processes.ts';

/** A server that can be closed with all its connections. */
export interface BadServer {
  readonly port: number;
  readonly address: string;
  /** Connections so far. */
  connections(): number;
  close(): Promise<void>;
}

async function listen(server: Server, sockets: Set<Socket>, port?: number): Promise<BadServer> {
  const wanted = port ?? (await freePort());
  let connections = 0;
  server.on('connection', (socket: Socket) => {
    connections++;
    sockets.add(socket);
    socket.on('error', () => undefined); // the peer went away; that is what these servers are for
    socket.on('close', () => sockets.delete(socket));
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(wanted, '127.0.0.1', resolve);
  });
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  const address = `127.0.0.1:${wanted}`;
  return { port: wanted, address, connections: () => connections, close };
}

/** A web server. */
export async function httpServer(): Promise<BadServer> {
  const server = createHttpServer((_request, response) => response.end('hello'));
  return await listen(server, new Set());
}

/** Accepts, and answers the first bytes with these; `end` closes behind them. */
export async function answering(
  bytes: Uint8Array,
  end: boolean,
  port?: number,
): Promise<BadServer> {
  const server = createServer((socket) => {
    socket.once('data', () => (end ? socket.end(bytes) : socket.write(bytes)));
  });
  return await listen(server, new Set(), port);
}

/** What a {@link FaultyProxy} does to what the upstream sends. */
export type Fault = (chunk: Buffer, upstream: Socket) => Buffer | 'cut';

const faithful: Fault = (chunk) => chunk;

/** Passes connections on to an upstream port, and damages its answers as told. */
export class FaultyProxy {
  readonly server: BadServer;
  fault: Fault = faithful;
  readonly #sockets: Set<Socket>;

  private constructor(server: BadServer, sockets: Set<Socket>) {
    this.server = server;
    this.#sockets = sockets;
  }

  static async start(port: number, upstreamPort: number): Promise<FaultyProxy> {
    const sockets = new Set<Socket>();
    const server = createServer((client) => proxy.#join(client, upstreamPort));
    const proxy: FaultyProxy = new FaultyProxy(await listen(server, sockets, port), sockets);
    return proxy;
  }

  /** From now on everything passes unharmed, on new connections. */
  heal(): void {
    this.fault = faithful;
    for (const socket of this.#sockets) socket.destroy();
  }

  #join(client: Socket, upstreamPort: number): void {
    const upstream = connect({ port: upstreamPort, host: '127.0.0.1', noDelay: true });
    const end = (): void => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) socket.on('error', end).on('close', end);
    client.on('data', (chunk) => upstream.write(chunk));
    upstream.on('data', (chunk) => {
      const passed = this.fault(chunk, upstream);
      if (passed === 'cut') {
        client.write(chunk.subarray(0, chunk.length >> 1), end);
      } else client.write(passed);
    });
  }
}

/** A socket for arbitrary bytes, which remembers what came back. */
export class BareSocket {
  readonly #socket: Socket;
  readonly #chunks: Buffer[] = [];
  #closed = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => this.#chunks.push(chunk));
    socket.on('error', () => undefined); // a reset is one way of being closed
    socket.on('close', () => {
      this.#closed = true;
    });
  }

  static connect(host: string, port: number): Promise<BareSocket> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, noDelay: true });
      socket.once('error', reject);
      socket.once('connect', () => resolve(new BareSocket(socket)));
    });
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  get received(): Buffer {
    return Buffer.concat(this.#chunks);
  }

  write(bytes: Uint8Array | string): void {
    this.#socket.write(bytes);
  }

  destroy(): void {
    this.#socket.destroy();
  }

  /** Waits until `done`, or until the peer has closed; throws at the bound. */
  async wait(what: string, done: () => boolean, boundMs = 20_000): Promise<void> {
    const deadline = Date.now() + boundMs;
    while (!done() && !this.#closed) {
      if (Date.now() > deadline) throw new Error(`${what} did not happen`);
      await sleep(10);
    }
  }
}
