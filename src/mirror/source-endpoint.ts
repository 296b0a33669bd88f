/**
 * The data connection to one source broker: the leader endpoint of a mirror's fetcher loop.
 *
 * Opened at the first fetch (F3), one fetch in flight, an incremental fetch session where the
 * source grants one, so an idle partition costs nothing. Fetches are a consumer's, READ_COMMITTED
 * (F1), marked as a mirror's by tagged field 1279 (P3), by topic id where the source has ids.
 * Responses are received into one reused buffer: records are valid during `onPartition` only (F14).
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { addressText } from '../protocol/connection-pool.ts';
import { errors } from '../protocol/errors.ts';
import { ConnectionError, KafkaConnection } from '../protocol/kafka-connection.ts';
import type { FetchRequest, FetchResponse } from '../protocol/messages/01-fetch.ts';
import type { EncodableOf } from '../protocol/schema.ts';
import {
  exchangeFetch,
  LARGEST_BATCH_BYTES,
  SESSION_ERRORS,
} from '../replication/fetch-exchange.ts';
import { FetchSessionClient, type SessionFetch } from '../replication/fetch-session-client.ts';
import type {
  EndpointEpochEnd,
  EndpointOffset,
  EpochQuestion,
  FetchChanges,
  FetchedPartition,
  FetchOutcome,
  FetchTarget,
  LeaderEndpoint,
  OffsetQuestion,
} from '../replication/leader-endpoint.ts';
import { failureOf } from './causes.ts';
import type { HostPort, MirrorBrokerSettings } from './settings.ts';
import {
  type SourceClient,
  type SourceConnectionSettings,
  sourceFailure,
} from './source-client.ts';

/** What one partition is asked for at least; larger pieces leave the CPU caches (measured). */
const NEAR_FETCH_BYTES = 1024 * 1024;
/** What one partition is asked for per ms of round trip, so that distance does not cap it. */
const FETCH_BYTES_PER_ROUND_TRIP_MS = 256 * 1024;
/** Fetch versions above this name topics by id only. */
const LAST_VERSION_BY_NAME = 12;
const READ_COMMITTED = 1;
const NO_RECORDS = new Uint8Array(0);

/** What a {@link SourceEndpoint} is made of. */
export interface SourceEndpointOptions {
  readonly address: HostPort;
  readonly clientId: string;
  readonly settings: SourceConnectionSettings;
  readonly limits: Pick<
    MirrorBrokerSettings,
    'fetchWaitMaxMs' | 'fetchMinBytes' | 'fetchResponseMaxBytes'
  >;
  /** For questions beside the data. */
  readonly client: SourceClient;
}

type RequestTopics = NonNullable<EncodableOf<typeof FetchRequest>['topics']>;

/** Groups targets by topic, as requests want them. */
function requestTopics(targets: Iterable<FetchTarget>, maxBytes: number): RequestTopics {
  const topics = new Map<string, FetchTarget[]>();
  for (const target of targets) {
    const list = topics.get(target.topic);
    if (list === undefined) topics.set(target.topic, [target]);
    else list.push(target);
  }
  return [...topics.values()].map((list) => ({
    topic: list[0]?.topic ?? '',
    topicId: list[0]?.topicId ?? ZERO_UUID,
    partitions: list.map((target) => ({
      partition: target.partition,
      currentLeaderEpoch: target.currentLeaderEpoch,
      fetchOffset: target.fetchOffset,
      lastFetchedEpoch: target.lastFetchedEpoch,
      partitionMaxBytes: Math.min(target.maxBytes, maxBytes),
    })),
  }));
}

/** See the file header. */
export class SourceEndpoint implements LeaderEndpoint {
  readonly description: string;
  readonly #runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'logger'>;
  readonly #options: SourceEndpointOptions;
  readonly #session = new FetchSessionClient(true);
  /** Ids by name: up to version 12 answers carry names only. */
  readonly #ids = new Map<string, Uuid>();
  /** Some topic has no id: fetches are by name. */
  #byName = false;
  #connection: KafkaConnection | undefined;
  #closed = false;

  constructor(
    runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'logger'>,
    options: SourceEndpointOptions,
  ) {
    this.#runtime = runtime;
    this.#options = options;
    this.description = addressText(options.address);
  }

  async fetch(
    changes: FetchChanges,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome> {
    for (const { topic, topicId } of changes.updated) {
      this.#ids.set(topic, topicId);
      if (topicId === ZERO_UUID) this.#byName = true;
    }
    try {
      if (this.#connection?.ended !== undefined) this.#drop();
      // Told of the changes before anything can fail: the session keeps every target.
      const fetch = this.#session.next(changes);
      const connection = this.#connection ?? (await this.#open());
      return await this.#exchange(connection, fetch, onPartition);
    } catch (error) {
      this.#drop();
      const failure =
        error instanceof ConnectionError
          ? sourceFailure(error)
          : failureOf(error, this.#runtime.logger);
      return { kind: 'failed', cause: failure.mirrorCause, message: failure.message };
    }
  }

  listOffsets(questions: readonly OffsetQuestion[]): Promise<EndpointOffset[]> {
    return this.#options.client.listOffsets(this.#options.address, questions);
  }

  offsetsForLeaderEpoch(questions: readonly EpochQuestion[]): Promise<EndpointEpochEnd[]> {
    return this.#options.client.offsetsForLeaderEpoch(this.#options.address, questions);
  }

  close(): void {
    this.#closed = true;
    this.#drop();
  }

  async #open(): Promise<KafkaConnection> {
    const { address, clientId, settings, limits } = this.#options;
    const connection = await KafkaConnection.connect(this.#runtime, {
      ...address,
      clientId,
      security: settings.security,
      connectTimeoutMs: settings.connectionSetupTimeoutMs,
      requestTimeoutMs: settings.requestTimeoutMs + limits.fetchWaitMaxMs,
      maxResponseBytes: limits.fetchResponseMaxBytes + LARGEST_BATCH_BYTES,
      reuseFrameBuffer: true,
    });
    if (this.#closed) {
      connection.close();
      throw new ConnectionError('closed', 'the endpoint is closed');
    }
    this.#connection = connection;
    return connection;
  }

  #drop(): void {
    this.#connection?.close();
    this.#connection = undefined;
    this.#session.reset();
  }

  #request(connection: KafkaConnection, fetch: SessionFetch): EncodableOf<typeof FetchRequest> {
    const { limits } = this.#options;
    const perDistance = Math.round(connection.roundTripMs * FETCH_BYTES_PER_ROUND_TRIP_MS);
    const maxBytes = Math.max(NEAR_FETCH_BYTES, perDistance);
    const forgotten = requestTopics(fetch.forgotten, maxBytes);
    return {
      maxWaitMs: limits.fetchWaitMaxMs,
      minBytes: limits.fetchMinBytes,
      maxBytes: limits.fetchResponseMaxBytes,
      isolationLevel: READ_COMMITTED,
      sessionId: fetch.sessionId,
      sessionEpoch: fetch.sessionEpoch,
      topics: requestTopics(fetch.partitions, maxBytes),
      forgottenTopicsData: forgotten.map(({ topic, topicId, partitions }) => ({
        topic,
        topicId,
        partitions: partitions.map(({ partition }) => partition),
      })),
      mirrorFetch: true,
    };
  }

  #exchange(
    connection: KafkaConnection,
    fetch: SessionFetch,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome> {
    const options = this.#byName ? { maxVersion: LAST_VERSION_BY_NAME } : {};
    const request = this.#request(connection, fetch);
    return exchangeFetch(this.#runtime.clock, connection, request, options, (response) =>
      this.#closed ? this.#gone() : this.#take(response, onPartition),
    );
  }

  #gone(): FetchOutcome {
    return { kind: 'failed', cause: 'SOURCE_UNREACHABLE', message: 'the endpoint is closed' };
  }

  #take(
    response: FetchResponse,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): FetchOutcome {
    const { errorCode } = response;
    if (SESSION_ERRORS.has(errorCode)) {
      this.#session.reset();
      return { kind: 'sessionLost', errorCode };
    }
    if (errorCode !== errors.NONE.code) {
      this.#session.reset();
      const message = `Fetch failed at ${this.description} with error ${errorCode}`;
      return { kind: 'failed', cause: 'SOURCE_ERROR', message };
    }
    this.#session.answered(response.sessionId);
    for (const { topic, topicId, partitions } of response.responses) {
      const id = topicId === ZERO_UUID ? (this.#ids.get(topic) ?? ZERO_UUID) : topicId;
      for (const partition of partitions) {
        const target = this.#session.target(id, topic, partition.partitionIndex);
        if (target === undefined) continue;
        onPartition(target, {
          errorCode: partition.errorCode,
          highWatermark: partition.highWatermark,
          lastStableOffset: partition.lastStableOffset,
          logStartOffset: partition.logStartOffset,
          currentLeader: partition.currentLeader,
          records: partition.records ?? NO_RECORDS,
        });
      }
    }
    return { kind: 'ok' };
  }
}
