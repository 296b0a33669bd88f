/**
 * Requests to the brokers of one Apache Kafka cluster: any, one by id, a partition's leader, the
 * coordinator of a group or of a transactional id.
 *
 * Used by a guest towards its own cluster (state rows, group offsets) and towards a peer's. It
 * keeps brokers, leaders and coordinators as the cluster last described them, and asks again when
 * one does not answer or says that it is not the right one. Invariants:
 * - A request is repeated only within its bound, with backoff, and only when it failed in a way
 *   that may pass; who sends what must not be repeated sets the bound to 0.
 * - It ends with the response or with a {@link ClusterError}, never with silence.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { addressText, type BrokerAddress, ConnectionPool } from '../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { errorName, errors, isRetriable } from '../protocol/errors.ts';
import { ConnectionError, type KafkaConnection } from '../protocol/kafka-connection.ts';
import { MetadataRequest, MetadataResponse } from '../protocol/messages/03-metadata.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../protocol/messages/10-find-coordinator.ts';
import type { EncodableOf, Message, MessageOf } from '../protocol/schema.ts';
import { type BackoffPolicy, backoffMs } from '../replication/backoff.ts';

/** How long one answer may take, in ms, unless the owner says otherwise. */
export const CLUSTER_REQUEST_TIMEOUT_MS = 10_000;
/** How long dialling may take, in ms, unless the owner says otherwise. */
export const CLUSTER_CONNECT_TIMEOUT_MS = 5_000;
/** How long a request is repeated, in ms, unless the owner or the call says otherwise. */
export const CLUSTER_RETRY_BOUND_MS = 30_000;
/** Pauses between repetitions. */
export const CLUSTER_BACKOFF: BackoffPolicy = { initialMs: 20, maxMs: 1_000 };
/** FindCoordinator asks for one key up to this version. */
const LAST_SINGLE_KEY_VERSION = 3;

/**
 * Why there is no response: `unreachable` (no connection, or it ended), `timedOut`, `refused` (the
 * cluster answered with `errorCode`, which is SASL_AUTHENTICATION_FAILED where TLS or SASL failed),
 * `unsupported` (no common version), `malformed`, `closed`.
 */
export type ClusterErrorKind =
  | 'unreachable'
  | 'timedOut'
  | 'refused'
  | 'unsupported'
  | 'malformed'
  | 'closed';

/** See {@link ClusterErrorKind}. */
export class ClusterError extends Error {
  override readonly name = 'ClusterError';
  readonly kind: ClusterErrorKind;
  /** Of Kafka; 0 unless refused. */
  readonly errorCode: number;
  constructor(kind: ClusterErrorKind, message: string, errorCode = 0) {
    super(message);
    this.kind = kind;
    this.errorCode = errorCode;
  }
}

/** Whom a request is for. */
export type ClusterTarget =
  | { readonly to: 'any' }
  | { readonly to: 'broker'; readonly id: number }
  | { readonly to: 'leader'; readonly topic: string; readonly partition: number }
  | { readonly to: 'coordinator'; readonly of: CoordinatorType; readonly key: string };

/** Kinds of coordinators, with FindCoordinator's key types. */
export const COORDINATOR_KEY_TYPE = { group: 0, transaction: 1 } as const;
/** A kind of coordinator. */
export type CoordinatorType = keyof typeof COORDINATOR_KEY_TYPE;

/** What a {@link ClusterClient} is made of. */
export interface ClusterClientOptions {
  readonly clientId: string;
  readonly security?: ConnectionSecurity | undefined;
  /** Where to begin, and where to go on when nothing else answers; asked at each need. */
  readonly bootstrap: () => readonly BrokerAddress[];
  readonly requestTimeoutMs?: number;
  readonly connectTimeoutMs?: number;
  readonly retryBoundMs?: number;
}

/** How one request is sent. */
export interface CallOptions<R extends Message> {
  readonly maxVersion?: number;
  readonly requestTimeoutMs?: number;
  /** How long it is repeated, in ms; 0: sent once. */
  readonly retryBoundMs?: number;
  /** The error in a response that decides on a repetition; absent: every response is an answer. */
  readonly errorCode?: (response: MessageOf<R>) => number;
}

/** A topic as its cluster describes it; a leader of −1 means none. */
export interface ClusterTopic {
  readonly name: string;
  readonly id: Uuid;
  readonly leaders: ReadonlyMap<number, number>;
}

/** Sends one broker the part of a question that is about `partitions`, and takes its answers. */
export type LeaderQuestion<T> = (
  broker: number,
  partitions: readonly number[],
  topic: ClusterTopic,
) => Promise<ReadonlyMap<number, { readonly errorCode: number; readonly value: T }>>;

/** The error that a connection's end means. */
function clusterError(error: ConnectionError): ClusterError {
  switch (error.cause) {
    case 'timeout':
      return new ClusterError('timedOut', error.message);
    case 'unsupportedVersion':
      return new ClusterError('unsupported', error.message);
    case 'malformed':
      return new ClusterError('malformed', error.message);
    case 'authentication': {
      const { code } = errors.SASL_AUTHENTICATION_FAILED;
      return new ClusterError('refused', error.message, code);
    }
    default:
      return new ClusterError('unreachable', error.message);
  }
}

/** Whether the same request may succeed later. */
function mayPass({ kind, errorCode }: ClusterError): boolean {
  if (kind === 'refused') return isRetriable(errorCode);
  return kind === 'unreachable' || kind === 'timedOut' || kind === 'malformed';
}

/** See the file header. */
export class ClusterClient {
  readonly #runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'random'>;
  readonly #options: ClusterClientOptions;
  readonly #pool: ConnectionPool;
  readonly #topics = new Map<string, ClusterTopic>();
  readonly #coordinators = new Map<string, BrokerAddress>();
  #brokers: ReadonlyMap<number, BrokerAddress> = new Map();
  #clusterId = '';
  #closed = false;

  constructor(
    runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'random'>,
    options: ClusterClientOptions,
  ) {
    this.#runtime = runtime;
    this.#options = options;
    this.#pool = new ConnectionPool(runtime, {
      clientId: options.clientId,
      security: options.security,
      connectTimeoutMs: options.connectTimeoutMs ?? CLUSTER_CONNECT_TIMEOUT_MS,
      requestTimeoutMs: options.requestTimeoutMs ?? CLUSTER_REQUEST_TIMEOUT_MS,
    });
  }

  /** Empty until the cluster described itself. */
  get clusterId(): string {
    return this.#clusterId;
  }

  /** The brokers as last described, by id. */
  get brokers(): ReadonlyMap<number, BrokerAddress> {
    return this.#brokers;
  }

  close(): void {
    this.#closed = true;
    this.#pool.close();
  }

  /** Sends a request, again if need be; rejects with a {@link ClusterError}. */
  async call<Q extends Message, R extends Message>(
    target: ClusterTarget,
    request: Q,
    response: R,
    value: EncodableOf<Q>,
    options: CallOptions<R> = {},
  ): Promise<MessageOf<R>> {
    const { maxVersion, requestTimeoutMs } = options;
    const sendOptions = {
      ...(maxVersion === undefined ? {} : { maxVersion }),
      ...(requestTimeoutMs === undefined ? {} : { timeoutMs: requestTimeoutMs }),
    };
    return this.#repeat(target, options.retryBoundMs, async (connection) => {
      const answer = await connection.send(request, response, value, sendOptions);
      const errorCode = options.errorCode?.(answer) ?? errors.NONE.code;
      if (!isRetriable(errorCode)) return answer;
      const { host, port } = connection;
      const text = `${request.name} at ${addressText({ host, port })}: ${errorName(errorCode)}`;
      throw new ClusterError('refused', text, errorCode);
    });
  }

  /** Asks a connection to `target` what it knows of the other side. */
  inspect<T>(target: ClusterTarget, look: (connection: KafkaConnection) => T): Promise<T> {
    return this.#repeat(target, undefined, async (connection) => look(connection));
  }

  /**
   * Asks the leaders of partitions, each for its own, until every partition has answered without a
   * passing error; rejects with the first error that stays, once nothing is under way any more.
   */
  async atLeaders<T>(
    name: string,
    partitions: Iterable<number>,
    boundMs: number,
    ask: LeaderQuestion<T>,
  ): Promise<Map<number, T>> {
    const { clock, random } = this.#runtime;
    const deadline = clock.monotonicMs() + boundMs;
    const answers = new Map<number, T>();
    const left = new Set(partitions);
    for (let attempts = 1; left.size > 0; attempts++) {
      const failures = await this.#askLeaders(name, left, answers, ask);
      const lasting = failures.find((failure) => !mayPass(failure));
      if (lasting !== undefined) throw lasting;
      const [failure] = failures;
      if (failure === undefined) continue;
      this.#topics.delete(name);
      const pauseMs = backoffMs(CLUSTER_BACKOFF, attempts, random);
      if (this.#closed || clock.monotonicMs() + pauseMs > deadline) throw failure;
      await new Promise<void>((resolve) => clock.setTimer(pauseMs, resolve));
    }
    return answers;
  }

  /** One round: moves partitions from `left` to `answers`, and tells what went wrong. */
  async #askLeaders<T>(
    name: string,
    left: Set<number>,
    answers: Map<number, T>,
    ask: LeaderQuestion<T>,
  ): Promise<ClusterError[]> {
    const failures: ClusterError[] = [];
    const fail = (error: unknown): void => {
      if (!(error instanceof ClusterError)) throw error;
      failures.push(error);
    };
    const refuse = (partition: number, errorCode: number): void =>
      fail(new ClusterError('refused', `${name}-${partition}: ${errorName(errorCode)}`, errorCode));
    const topic = this.#topics.get(name) ?? (await this.topic(name, 0).catch(fail));
    const groups = new Map<number, number[]>();
    for (const partition of topic === undefined ? [] : left) {
      const leader = topic?.leaders.get(partition);
      if (leader === undefined) refuse(partition, errors.UNKNOWN_TOPIC_OR_PARTITION.code);
      else if (leader < 0) refuse(partition, errors.LEADER_NOT_AVAILABLE.code);
      else groups.set(leader, [...(groups.get(leader) ?? []), partition]);
    }
    const rounds = [...groups].map(async ([leader, partitions]) => {
      const given = await ask(leader, partitions, topic as ClusterTopic).catch(fail);
      for (const partition of given === undefined ? [] : partitions) {
        const answer = given?.get(partition);
        const errorCode = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
        if (answer === undefined || errorCode !== errors.NONE.code) {
          refuse(partition, errorCode);
          continue;
        }
        answers.set(partition, answer.value);
        left.delete(partition);
      }
    });
    await Promise.all(rounds);
    return failures;
  }

  async #repeat<T>(
    target: ClusterTarget,
    boundMs: number | undefined,
    attempt: (connection: KafkaConnection) => Promise<T>,
  ): Promise<T> {
    const { clock, random } = this.#runtime;
    const bound = boundMs ?? this.#options.retryBoundMs ?? CLUSTER_RETRY_BOUND_MS;
    const deadline = clock.monotonicMs() + bound;
    for (let attempts = 1; ; attempts++) {
      const failure = await this.#attempt(target, attempt);
      if ('answer' in failure) return failure.answer;
      this.#forget(target);
      const pauseMs = backoffMs(CLUSTER_BACKOFF, attempts, random);
      const isLate = clock.monotonicMs() + pauseMs > deadline;
      if (this.#closed || isLate || !mayPass(failure.error)) throw failure.error;
      await new Promise<void>((resolve) => clock.setTimer(pauseMs, resolve));
    }
  }

  async #attempt<T>(
    target: ClusterTarget,
    attempt: (connection: KafkaConnection) => Promise<T>,
  ): Promise<{ readonly answer: T } | { readonly error: ClusterError }> {
    try {
      return { answer: await attempt(await this.#connect(target)) };
    } catch (error) {
      if (this.#closed) return { error: new ClusterError('closed', 'closed by this side') };
      if (error instanceof ConnectionError) return { error: clusterError(error) };
      if (error instanceof ClusterError) return { error };
      throw error;
    }
  }

  /** What is known of the target did not help: it is looked up at the next attempt. */
  #forget(target: ClusterTarget): void {
    if (target.to === 'coordinator') this.#coordinators.delete(coordinatorKey(target));
    if (target.to === 'leader') this.#topics.delete(target.topic);
    if (target.to !== 'broker') return;
    this.#brokers = new Map([...this.#brokers].filter(([id]) => id !== target.id));
  }

  async #connect(target: ClusterTarget): Promise<KafkaConnection> {
    switch (target.to) {
      case 'any':
        return this.#anyConnection();
      case 'broker':
        return this.#pool.get(await this.#addressOf(target.id));
      case 'leader':
        return this.#pool.get(await this.#leaderOf(target.topic, target.partition));
      case 'coordinator':
        return this.#pool.get(await this.#coordinatorOf(target));
    }
  }

  /** The first that can be had: known brokers with a connection, bootstrap servers, the rest. */
  async #anyConnection(): Promise<KafkaConnection> {
    const known = [...this.#brokers.values()];
    const candidates = [
      ...known.filter((address) => this.#pool.knows(address)),
      ...this.#options.bootstrap(),
      ...known,
    ];
    let failure = new ConnectionError('ENOTFOUND', 'no broker of the cluster is known');
    for (const address of new Map(candidates.map((each) => [addressText(each), each])).values()) {
      try {
        return await this.#pool.get(address);
      } catch (error) {
        if (!(error instanceof ConnectionError)) throw error;
        failure = error;
      }
    }
    throw failure;
  }

  async #addressOf(id: number): Promise<BrokerAddress> {
    if (!this.#brokers.has(id)) await this.#describe([]);
    const address = this.#brokers.get(id);
    if (address !== undefined) return address;
    throw new ClusterError('unreachable', `broker ${id} is not part of the cluster at the moment`);
  }

  async #leaderOf(topic: string, partition: number): Promise<BrokerAddress> {
    if (!this.#topics.has(topic)) await this.#describeTopic(topic);
    const leader = this.#topics.get(topic)?.leaders.get(partition);
    if (leader === undefined) {
      const { code } = errors.UNKNOWN_TOPIC_OR_PARTITION;
      throw new ClusterError('refused', `no partition ${topic}-${partition}`, code);
    }
    const address = this.#brokers.get(leader);
    if (address !== undefined) return address;
    const { code } = errors.LEADER_NOT_AVAILABLE;
    throw new ClusterError('refused', `partition ${topic}-${partition} has no leader`, code);
  }

  async #coordinatorOf(target: ClusterTarget & { to: 'coordinator' }): Promise<BrokerAddress> {
    const known = this.#coordinators.get(coordinatorKey(target));
    if (known !== undefined) return known;
    const connection = await this.#anyConnection();
    const { errorCode, errorMessage, host, port } = await connection.send(
      FindCoordinatorRequest,
      FindCoordinatorResponse,
      { key: target.key, keyType: COORDINATOR_KEY_TYPE[target.of] },
      { maxVersion: LAST_SINGLE_KEY_VERSION },
    );
    if (errorCode !== errors.NONE.code) {
      const text = errorMessage ?? errorName(errorCode);
      throw new ClusterError('refused', `no coordinator of ${target.key}: ${text}`, errorCode);
    }
    const address = { host, port };
    this.#coordinators.set(coordinatorKey(target), address);
    return address;
  }

  /** A topic as the cluster describes it now; rejects with a {@link ClusterError}. */
  async topic(name: string, retryBoundMs?: number): Promise<ClusterTopic> {
    return this.#repeat({ to: 'any' }, retryBoundMs, (connection) =>
      this.#describeTopic(name, connection),
    );
  }

  async #describeTopic(name: string, connection?: KafkaConnection): Promise<ClusterTopic> {
    const response = await this.#describe([name], connection);
    const topic = response.topics.find((each) => each.name === name);
    const errorCode = topic?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
    if (topic === undefined || errorCode !== errors.NONE.code) {
      throw new ClusterError('refused', `topic ${name}: ${errorName(errorCode)}`, errorCode);
    }
    const leaders = topic.partitions.map(
      ({ partitionIndex, leaderId }) => [partitionIndex, leaderId] as const,
    );
    const described = { name, id: topic.topicId, leaders: new Map(leaders) };
    this.#topics.set(name, described);
    return described;
  }

  /** Brokers, cluster id and the named topics. */
  async #describe(
    topics: readonly string[],
    connection?: KafkaConnection,
  ): Promise<MetadataResponse> {
    const asked = connection ?? (await this.#anyConnection());
    const response = await asked.send(MetadataRequest, MetadataResponse, {
      topics: topics.map((name) => ({ name })),
      allowAutoTopicCreation: false,
    });
    if (response.errorCode !== errors.NONE.code) {
      const text = `Metadata: ${errorName(response.errorCode)}`;
      throw new ClusterError('refused', text, response.errorCode);
    }
    this.#clusterId = response.clusterId ?? '';
    this.#brokers = new Map(
      response.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]),
    );
    return response;
  }
}

function coordinatorKey({ of, key }: ClusterTarget & { to: 'coordinator' }): string {
  return `${of}:${key}`;
}
