/**
 * A client of one simulated cluster, on a machine of its own that never fails.
 *
 * Keeps one connection, dials again when it is lost. `send` answers undefined when it is not known
 * what became of the request; that is what clients live with.
 */
import type { Runtime } from '../io/runtime.ts';
import { ConnectionError, KafkaConnection } from '../protocol/kafka-connection.ts';
import type { EncodableOf, Message, MessageOf } from '../protocol/schema.ts';
import { BROKER_PORT, type SimCluster } from './sim-cluster.ts';

/** How long a client waits for a connection or an answer, in ms. */
const CLIENT_TIMEOUT_MS = 3_000;
/** Highest version of Produce and Fetch that names topics. */
export const LAST_VERSION_BY_NAME = 12;

/** See the file header. */
export class SimClient {
  readonly runtime: Runtime;
  readonly cluster: SimCluster;
  readonly #name: string;
  #connection: KafkaConnection | undefined;

  constructor(runtime: Runtime, cluster: SimCluster, name: string) {
    this.runtime = runtime;
    this.cluster = cluster;
    this.#name = name;
  }

  /** Waits in virtual time. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.runtime.clock.setTimer(ms, resolve);
    });
  }

  /** The answer, or undefined: none came, the request may or may not have had its effect. */
  async send<Q extends Message, R extends Message>(
    request: Q,
    response: R,
    value: EncodableOf<Q>,
  ): Promise<MessageOf<R> | undefined> {
    try {
      if (this.#connection === undefined || this.#connection.ended !== undefined) {
        this.#connection = await this.#connect();
      }
      const options = { maxVersion: LAST_VERSION_BY_NAME };
      return await this.#connection.send(request, response, value, options);
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      return undefined;
    }
  }

  #connect(): Promise<KafkaConnection> {
    return KafkaConnection.connect(this.runtime, {
      host: this.cluster.machine,
      port: BROKER_PORT,
      clientId: this.#name,
      connectTimeoutMs: CLIENT_TIMEOUT_MS,
      requestTimeoutMs: CLIENT_TIMEOUT_MS,
    });
  }
}
