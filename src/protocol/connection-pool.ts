/**
 * One client connection per address, dialled at the first use and kept.
 *
 * Used by whoever asks several brokers of a cluster (a mirror's source, a guest's own cluster).
 * Invariants: those who ask for an address at the same time share one dial; a connection that ended
 * or never came up is dialled anew at the next use; after `close` nothing is dialled, and what was
 * being dialled is closed once it is there. A connection that waits for data (a long poll) delays
 * all that is sent behind it, so such an owner has a pool of its own.
 */
import type { ConnectionSecurity } from './connection-security.ts';
import { ConnectionError, type ConnectionRuntime, KafkaConnection } from './kafka-connection.ts';

/** Where a broker listens. */
export interface BrokerAddress {
  readonly host: string;
  readonly port: number;
}

/** Text of an address. */
export function addressText({ host, port }: BrokerAddress): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** How a {@link ConnectionPool} dials. */
export interface ConnectionPoolOptions {
  readonly clientId: string;
  readonly security?: ConnectionSecurity | undefined;
  readonly connectTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

/** See the file header. */
export class ConnectionPool {
  readonly #runtime: ConnectionRuntime;
  readonly #options: ConnectionPoolOptions;
  readonly #connections = new Map<string, Promise<KafkaConnection>>();
  #closed = false;

  constructor(runtime: ConnectionRuntime, options: ConnectionPoolOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  close(): void {
    this.#closed = true;
    for (const connection of this.#connections.values()) {
      // A connection that never came up has nothing to close.
      void connection.then(
        (established) => established.close(),
        () => {},
      );
    }
    this.#connections.clear();
  }

  /** Whether an address has a connection, or one being made. */
  knows(address: BrokerAddress): boolean {
    return this.#connections.has(addressText(address));
  }

  /** The connection to an address; rejects with a {@link ConnectionError}. */
  async get(address: BrokerAddress): Promise<KafkaConnection> {
    if (this.#closed) throw new ConnectionError('closed', 'closed by this side');
    const key = addressText(address);
    let connection = this.#connections.get(key);
    if (connection === undefined) {
      const made = KafkaConnection.connect(this.#runtime, {
        host: address.host,
        port: address.port,
        ...this.#options,
        onClosed: () => this.#forget(key, made),
      });
      connection = made;
      this.#connections.set(key, made);
      made.catch(() => this.#forget(key, made));
    }
    const established = await connection;
    if (this.#closed) established.close();
    return established;
  }

  #forget(key: string, connection: Promise<KafkaConnection>): void {
    if (this.#connections.get(key) === connection) this.#connections.delete(key);
  }
}
