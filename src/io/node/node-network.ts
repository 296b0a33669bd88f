/**
 * TCP behind the Network port; with TLS over it, `node-tls.ts` makes the sockets.
 *
 * A connect that fails, for whatever reason, is an answer and never a rejection; a listen that
 * fails rejects with the address in its message. Nagle's algorithm is off (Kafka's frames are
 * whole), keep-alive on (a peer that vanished is noticed).
 */
import net from 'node:net';
import type { Logger } from '../../base/logger.ts';
import type {
  CloseReason,
  Connection,
  Listener,
  Network,
  TlsClientOptions,
  TlsServerOptions,
} from '../runtime.ts';
import { closeReason, type DirectReads, NodeConnection } from './node-connection.ts';
import { connectTls, tlsServer } from './node-tls.ts';

/** Idle time before the first keep-alive probe, in ms. */
const KEEP_ALIVE_DELAY_MS = 60_000;
/** With several addresses for a name, each gets this share of the time-out, at least 1 s. */
const ADDRESS_TIMEOUT_SHARE = 1 / 3;
const MIN_ADDRESS_TIMEOUT_MS = 1000;

const SOCKET_OPTIONS = {
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: KEEP_ALIVE_DELAY_MS,
};

function createServer(
  logger: Logger,
  onConnection: (connection: Connection) => void,
  tls: TlsServerOptions | undefined,
): net.Server {
  if (tls !== undefined) return tlsServer(logger, SOCKET_OPTIONS, tls, onConnection);
  return net.createServer({ ...SOCKET_OPTIONS, pauseOnConnect: true }, (socket) =>
    onConnection(acceptedConnection(socket)),
  );
}

function listen(
  logger: Logger,
  host: string,
  port: number,
  onConnection: (connection: Connection) => void,
  tls: TlsServerOptions | undefined,
): Promise<Listener> {
  return new Promise((resolve, reject) => {
    const server = createServer(logger, onConnection, tls);
    const refuse = (error: Error): void => {
      const code = (error as NodeJS.ErrnoException).code ?? error.message;
      reject(new Error(`cannot listen on ${host}:${port}: ${code}`, { cause: error }));
    };
    server.once('error', refuse);
    server.listen({ host, port, exclusive: true }, () => {
      server.off('error', refuse);
      server.on('error', (error) => logger.warn('accept failed', { host, port, error }));
      const close = (): Promise<void> =>
        new Promise((closed) => {
          server.close(); // its callback would wait for the open connections too
          setImmediate(closed);
        });
      resolve({ host, port: (server.address() as net.AddressInfo).port, close });
    });
  });
}

/** Reads of a socket go where the connection, once there, says. */
function directReads(connection: () => NodeConnection | undefined): DirectReads {
  const nowhere = new Uint8Array(1);
  return {
    buffer: () => connection()?.lendBuffer() ?? nowhere,
    callback: (length, buffer) => {
      connection()?.directRead(length, buffer);
      return true;
    },
  };
}

/**
 * Node offers `onread` for sockets that connect only; an accepted one allocates and copies every
 * read, which is a third of what a produce costs. A second Socket over the same handle, made as
 * Node itself makes the first, has it. Should a version of Node have no such handle, reads are
 * copied.
 */
function acceptedConnection(accepted: net.Socket): NodeConnection {
  const inside = accepted as net.Socket & { _handle?: object | null };
  const handle = inside._handle;
  if (handle === undefined || handle === null) return new NodeConnection(accepted, 'copied');
  let connection: NodeConnection | undefined;
  const onread = directReads(() => connection);
  inside._handle = null;
  const options = { handle, onread, readable: true, writable: true, pauseOnCreate: true };
  const socket = new net.Socket(options as net.SocketConstructorOpts);
  connection = new NodeConnection(socket, 'direct');
  return connection;
}

/** Opens a paused socket whose reads go where the connection, once there, says. */
function openSocket(
  host: string,
  port: number,
  timeoutMs: number,
  connection: () => NodeConnection | undefined,
): net.Socket {
  const socket = net.connect({
    ...SOCKET_OPTIONS,
    host,
    port,
    autoSelectFamilyAttemptTimeout: Math.max(
      MIN_ADDRESS_TIMEOUT_MS,
      Math.floor(timeoutMs * ADDRESS_TIMEOUT_SHARE),
    ),
    onread: directReads(connection),
  });
  socket.pause();
  return socket;
}

function connect(
  host: string,
  port: number,
  timeoutMs: number,
  tls: TlsClientOptions | undefined,
): Promise<Connection | CloseReason> {
  const peer = `${host}:${port}`;
  if (!Number.isInteger(port) || port < 1 || port > 65535) {
    return Promise.resolve({ cause: 'EINVAL', message: `${peer}: not a port number` });
  }
  if (tls !== undefined) {
    return connectTls({ host, port, timeoutMs, socketOptions: SOCKET_OPTIONS }, tls);
  }
  return new Promise((resolve) => {
    let connection: NodeConnection | undefined;
    const socket = openSocket(host, port, timeoutMs, () => connection);
    const timer = setTimeout(() => {
      socket.destroy();
      resolve({ cause: 'timeout', message: `${peer}: no connection within ${timeoutMs} ms` });
    }, timeoutMs);
    const failed = (error: Error): void => {
      clearTimeout(timer);
      resolve(closeReason(error, peer));
    };
    socket.once('error', failed);
    socket.once('connect', () => {
      clearTimeout(timer);
      connection = new NodeConnection(socket, 'direct');
      socket.off('error', failed);
      resolve(connection);
    });
  });
}

/** The real network; errors of accepting go to `logger`. */
export function nodeNetwork(logger: Logger): Network {
  return {
    listen: (host, port, onConnection, tls) => listen(logger, host, port, onConnection, tls),
    connect,
  };
}
