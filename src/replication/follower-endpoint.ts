/**
 * The way of a follower to the broker that leads: fetches as a replica of this cluster (G14), and
 * the questions beside.
 *
 * One per leader, owned by its fetcher loop. Fetches name topics by id and carry broker id and
 * epoch (KIP-903), so they need Fetch 15, which every Apache Kafka 4 has. Where the leader grants a
 * fetch session an idle partition costs nothing. Questions go over a connection of their own:
 * behind a fetch that waits for data they would wait, too.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { addressText, type BrokerAddress, ConnectionPool } from '../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { errors } from '../protocol/errors.ts';
import { ConnectionError, KafkaConnection } from '../protocol/kafka-connection.ts';
import { FetchRequest, type FetchResponse } from '../protocol/messages/01-fetch.ts';
import { ListOffsetsRequest, ListOffsetsResponse } from '../protocol/messages/02-list-offsets.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../protocol/messages/23-offset-for-leader-epoch.ts';
import {
  DescribeProducersRequest,
  DescribeProducersResponse,
} from '../protocol/messages/61-describe-producers.ts';
import type { EncodableOf } from '../protocol/schema.ts';
import type { SnapshotEntry } from '../storage/producer-snapshot.ts';
import { exchangeFetch, LARGEST_BATCH_BYTES, SESSION_ERRORS } from './fetch-exchange.ts';
import { FetchSessionClient, type SessionFetch } from './fetch-session-client.ts';
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
} from './leader-endpoint.ts';

/** replica.fetch.wait.max.ms, as in Apache Kafka. */
export const REPLICA_FETCH_WAIT_MAX_MS = 500;
/** replica.fetch.response.max.bytes, as in Apache Kafka. */
export const REPLICA_FETCH_RESPONSE_MAX_BYTES = 10 * 1024 * 1024;
/** replica.fetch.max.bytes, as in Apache Kafka; a larger batch comes whole all the same. */
export const REPLICA_FETCH_MAX_BYTES = 1024 * 1024;
/** How long an answer may take, in ms; a fetch may wait in addition. */
export const REPLICA_REQUEST_TIMEOUT_MS = 30_000;
/** replica.socket.timeout.ms of dialling. */
const CONNECT_TIMEOUT_MS = 10_000;
/** First version with broker epoch. */
const FIRST_FETCH_VERSION = 15;
const NO_RECORDS = new Uint8Array(0);

/** Who follows. */
export interface ReplicaIdentity {
  readonly brokerId: number;
  /** As of now: it changes with each registration. */
  readonly brokerEpoch: () => number;
}

/** A leader as a follower sees it. */
export interface FollowedLeader extends LeaderEndpoint {
  /**
   * The producers with an open transaction, which begin where their transaction does. Rejects when
   * there is no answer, or an error.
   */
  openTransactions(topic: string, partition: number): Promise<SnapshotEntry[]>;
}

type RequestTopics = NonNullable<EncodableOf<typeof FetchRequest>['topics']>;

function requestTopics(targets: Iterable<FetchTarget>): RequestTopics {
  const byTopic = Map.groupBy(targets, ({ topicId }) => topicId);
  return [...byTopic].map(([topicId, list]) => ({
    topicId,
    partitions: list.map((target) => ({
      partition: target.partition,
      currentLeaderEpoch: target.currentLeaderEpoch,
      fetchOffset: target.fetchOffset,
      lastFetchedEpoch: target.lastFetchedEpoch,
      logStartOffset: target.logStartOffset,
      partitionMaxBytes: target.maxBytes,
    })),
  }));
}

/** One entry per topic, with the partitions of its questions. */
function byTopic<Q extends { topic: string }, P>(questions: readonly Q[], part: (each: Q) => P) {
  const grouped = Map.groupBy(questions, ({ topic }) => topic);
  return [...grouped].map(([topic, list]) => ({ topic, partitions: list.map(part) }));
}

/** See the file header. */
export class ReplicaEndpoint implements FollowedLeader {
  readonly description: string;
  readonly #runtime: Runtime;
  readonly #address: BrokerAddress;
  readonly #identity: ReplicaIdentity;
  readonly #security: ConnectionSecurity | undefined;
  readonly #questions: ConnectionPool;
  readonly #session = new FetchSessionClient(true);
  #connection: KafkaConnection | undefined;
  #closed = false;

  constructor(
    runtime: Runtime,
    address: BrokerAddress,
    identity: ReplicaIdentity,
    security?: ConnectionSecurity,
  ) {
    this.#runtime = runtime;
    this.#address = address;
    this.#identity = identity;
    this.#security = security;
    this.description = addressText(address);
    this.#questions = new ConnectionPool(runtime, {
      clientId: this.#clientId,
      security,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      requestTimeoutMs: REPLICA_REQUEST_TIMEOUT_MS,
    });
  }

  get #clientId(): string {
    return `twinlog-replica-${this.#identity.brokerId}`;
  }

  async fetch(
    changes: FetchChanges,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome> {
    try {
      if (this.#connection?.ended !== undefined) this.#drop();
      // Told of the changes before anything can fail: the session keeps every target.
      const fetch = this.#session.next(changes);
      const connection = this.#connection ?? (await this.#open());
      return await this.#exchange(connection, fetch, onPartition);
    } catch (error) {
      this.#drop();
      if (!(error instanceof ConnectionError)) throw error;
      return { kind: 'failed', cause: error.cause, message: error.message };
    }
  }

  async #open(): Promise<KafkaConnection> {
    const connection = await KafkaConnection.connect(this.#runtime, {
      ...this.#address,
      clientId: this.#clientId,
      security: this.#security,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      requestTimeoutMs: REPLICA_REQUEST_TIMEOUT_MS + REPLICA_FETCH_WAIT_MAX_MS,
      maxResponseBytes: REPLICA_FETCH_RESPONSE_MAX_BYTES + LARGEST_BATCH_BYTES,
      reuseFrameBuffer: true,
    });
    const version = connection.version(FetchRequest) ?? -1;
    if (this.#closed || version < FIRST_FETCH_VERSION) {
      connection.close();
      if (this.#closed) throw new ConnectionError('closed', 'the endpoint is closed');
      const message = `${this.description} serves Fetch ${version}, replicas need 15`;
      throw new ConnectionError('unsupportedVersion', message);
    }
    this.#connection = connection;
    return connection;
  }

  #drop(): void {
    this.#connection?.close();
    this.#connection = undefined;
    this.#session.reset();
  }

  #request(fetch: SessionFetch): EncodableOf<typeof FetchRequest> {
    const forgotten = requestTopics(fetch.forgotten);
    const replicaId = this.#identity.brokerId;
    return {
      replicaState: { replicaId, replicaEpoch: this.#identity.brokerEpoch() },
      maxWaitMs: REPLICA_FETCH_WAIT_MAX_MS,
      minBytes: 1,
      maxBytes: REPLICA_FETCH_RESPONSE_MAX_BYTES,
      sessionId: fetch.sessionId,
      sessionEpoch: fetch.sessionEpoch,
      topics: requestTopics(fetch.partitions),
      forgottenTopicsData: forgotten.map(({ topicId, partitions }) => ({
        topicId: topicId ?? ZERO_UUID,
        partitions: partitions.map(({ partition }) => partition),
      })),
    };
  }

  #exchange(
    connection: KafkaConnection,
    fetch: SessionFetch,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome> {
    const request = this.#request(fetch);
    return exchangeFetch(this.#runtime.clock, connection, request, {}, (response) =>
      this.#closed ? CLOSED : this.#take(response, onPartition),
    );
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
      return { kind: 'failed', cause: 'LEADER_ERROR', message };
    }
    this.#session.answered(response.sessionId);
    for (const { topicId, partitions } of response.responses) {
      for (const partition of partitions) {
        const target = this.#session.target(topicId, '', partition.partitionIndex);
        if (target !== undefined) onPartition(target, fetchedOf(partition));
      }
    }
    return { kind: 'ok' };
  }

  async listOffsets(questions: readonly OffsetQuestion[]): Promise<EndpointOffset[]> {
    const topics = byTopic(questions, ({ partition, currentLeaderEpoch, timestamp }) => {
      return { partitionIndex: partition, currentLeaderEpoch, timestamp };
    });
    const connection = await this.#questions.get(this.#address);
    const response = await connection.send(ListOffsetsRequest, ListOffsetsResponse, {
      replicaId: this.#identity.brokerId,
      topics: topics.map(({ topic, partitions }) => ({ name: topic, partitions })),
    });
    return questions.map(({ topic, partition }) => {
      const answers = response.topics.find(({ name }) => name === topic)?.partitions;
      const answer = answers?.find(({ partitionIndex }) => partitionIndex === partition);
      return answer ?? { ...NO_OFFSET, timestamp: -1n, offset: -1 };
    });
  }

  async offsetsForLeaderEpoch(questions: readonly EpochQuestion[]): Promise<EndpointEpochEnd[]> {
    const topics = byTopic(questions, ({ partition, currentLeaderEpoch, leaderEpoch }) => {
      return { partition, currentLeaderEpoch, leaderEpoch };
    });
    const connection = await this.#questions.get(this.#address);
    const response = await connection.send(
      OffsetForLeaderEpochRequest,
      OffsetForLeaderEpochResponse,
      { replicaId: this.#identity.brokerId, topics },
    );
    return questions.map(({ topic, partition }) => {
      const answers = response.topics.find((each) => each.topic === topic)?.partitions;
      const answer = answers?.find((each) => each.partition === partition);
      return answer ?? { ...NO_OFFSET, endOffset: -1 };
    });
  }

  async openTransactions(topic: string, partition: number): Promise<SnapshotEntry[]> {
    const connection = await this.#questions.get(this.#address);
    const response = await connection.send(DescribeProducersRequest, DescribeProducersResponse, {
      topics: [{ name: topic, partitionIndexes: [partition] }],
    });
    const answer = response.topics[0]?.partitions[0];
    if (answer === undefined || answer.errorCode !== errors.NONE.code) {
      const error = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
      throw new ConnectionError('DescribeProducers', `DescribeProducers failed: error ${error}`);
    }
    const open = answer.activeProducers.filter((producer) => producer.currentTxnStartOffset >= 0);
    return open.map((producer) => ({
      producerId: producer.producerId,
      producerEpoch: producer.producerEpoch,
      lastSequence: producer.lastSequence,
      lastOffset: producer.currentTxnStartOffset,
      offsetDelta: 0,
      timestamp: producer.lastTimestamp,
      coordinatorEpoch: producer.coordinatorEpoch,
      currentTxnFirstOffset: producer.currentTxnStartOffset,
    }));
  }

  close(): void {
    this.#closed = true;
    this.#questions.close();
    this.#drop();
  }
}

const CLOSED: FetchOutcome = {
  kind: 'failed',
  cause: 'closed',
  message: 'the endpoint is closed',
};

const NO_OFFSET = { errorCode: errors.UNKNOWN_SERVER_ERROR.code, leaderEpoch: -1 };

function fetchedOf(
  partition: FetchResponse['responses'][number]['partitions'][number],
): FetchedPartition {
  const { divergingEpoch } = partition;
  return {
    errorCode: partition.errorCode,
    highWatermark: partition.highWatermark,
    lastStableOffset: partition.lastStableOffset,
    logStartOffset: partition.logStartOffset,
    currentLeader: partition.currentLeader,
    // A tagged field that is absent decodes as its default.
    divergingEpoch: divergingEpoch.epoch < 0 ? undefined : divergingEpoch,
    records: partition.records ?? NO_RECORDS,
  };
}
