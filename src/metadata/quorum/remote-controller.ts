/**
 * The controller of an Apache Kafka cluster behind the controller port: what a guest asks.
 *
 * Made by the composition root of a guest, which closes it. Every request goes to the active
 * controller, wherever that moves, and is tried again until it answers or its time is over; then
 * the promise rejects with QuorumUnavailable. A request whose connection ended may have been done:
 * its second try then meets what the first one made. Heartbeats, the metadata, ISR changes, what
 * clients ask and what the guest asks each have a connection of their own (rule G5).
 */
import { present } from '../../base/assert.ts';
import type { Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { apiName } from '../../protocol/api-keys.ts';
import { codec } from '../../protocol/codec.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import { errorMessage, errorName, errors } from '../../protocol/errors.ts';
import type { ApiRange } from '../../protocol/kafka-connection.ts';
import {
  AlterPartitionRequest,
  AlterPartitionResponse,
} from '../../protocol/messages/56-alter-partition.ts';
import { EnvelopeRequest, EnvelopeResponse } from '../../protocol/messages/58-envelope.ts';
import {
  BrokerRegistrationRequest,
  BrokerRegistrationResponse,
} from '../../protocol/messages/62-broker-registration.ts';
import {
  BrokerHeartbeatRequest,
  BrokerHeartbeatResponse,
} from '../../protocol/messages/63-broker-heartbeat.ts';
import {
  AllocateProducerIdsRequest,
  AllocateProducerIdsResponse,
} from '../../protocol/messages/67-allocate-producer-ids.ts';
import type { EncodableOf, Message, MessageOf } from '../../protocol/schema.ts';
import type {
  ControllerPort,
  ElectionResult,
  ForwardContext,
  MetadataBatchListener,
  MetadataSnapshotListener,
  ProducerIdBlock,
} from '../controller-port.ts';
import type { MetadataImage } from '../image.ts';
import { MetadataLoader } from '../metadata-loader.ts';
import { addressBytes, enclosedRequest, enclosedResponse, principalBytes } from './envelope.ts';
import { MetadataObserver, type ObserverOptions } from './metadata-observer.ts';
import type { HostPort } from './probe.ts';
import {
  NotAuthenticated,
  QuorumClient,
  type QuorumSendOptions,
  QuorumUnavailable,
} from './quorum-client.ts';

/** How long a heartbeat is tried, and one try of it, in ms: below half a broker session. */
const HEARTBEAT_LIMITS = { timeoutMs: 4_500, tryTimeoutMs: 2_000 } as const;
/** Leader epochs that fencing and unfencing a partition's leader add. */
const EPOCHS_PER_REFENCE = 2;

/** The schemas of an API that is forwarded. */
export interface ForwardedSchemas {
  readonly request: Message;
  readonly response: Message;
}

/** What a {@link RemoteController} is made of. */
export interface RemoteControllerOptions {
  readonly bootstrapControllers: readonly HostPort[];
  /** How connections to controllers are secured; absent: not at all. */
  readonly security?: ConnectionSecurity | undefined;
  /** Undefined: that of the first controller that answers; see `clusterId`. */
  readonly clusterId: string | undefined;
  readonly nodeId: number;
  readonly directoryId: Uuid;
  /** Fences and unfences this broker; resolves when it is unfenced. */
  readonly refence: () => Promise<void>;
  /** What clients' requests are made of, by API key; undefined: not forwarded. */
  readonly schemasOf: (apiKey: number) => ForwardedSchemas | undefined;
  /** The leader epoch of a partition as the metadata has it; default: unknown. */
  readonly leaderEpochOf?: (topicId: Uuid, partition: number) => number | undefined;
  /** The metadata can no longer be followed: stop the process. */
  readonly onFatal: (error: Error) => void;
}

/** The controller refused an Envelope itself, not the request in it. */
export class EnvelopeRefused extends Error {
  override readonly name = 'EnvelopeRefused';
  readonly errorCode: number;
  constructor(errorCode: number, message: string) {
    super(message);
    this.errorCode = errorCode;
  }
}

/** See the file header. */
export class RemoteController implements ControllerPort {
  readonly #runtime: Runtime;
  readonly #options: RemoteControllerOptions;
  readonly #client: QuorumClient;
  readonly #clientId: string;
  #nextCorrelationId = 0;

  constructor(runtime: Runtime, options: RemoteControllerOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#clientId = `twinlog-guest-${options.nodeId}`;
    this.#client = new QuorumClient(runtime, {
      bootstrapControllers: options.bootstrapControllers,
      security: options.security,
      clusterId: options.clusterId,
      clientId: this.#clientId,
    });
  }

  /** The cluster's id, asked for when it was not given; rejects when it cannot be had. */
  async clusterId(): Promise<string> {
    const client = this.#client;
    return await client.retry(undefined, async () => {
      if (client.clusterId === undefined) await this.#firstContact();
      if (client.clusterId !== undefined) return client.clusterId;
      throw new QuorumUnavailable('the controllers do not tell the cluster id: give it');
    });
  }

  /** Who cannot authenticate at the start has wrong settings: waiting would not help. */
  async #firstContact(): Promise<void> {
    try {
      await this.#client.connect('requests');
    } catch (error) {
      if (!(error instanceof NotAuthenticated)) throw error;
      throw new NotAuthenticated(error.message, true);
    }
  }

  /** Node ids of the controllers heard of, for the check that this node's is none (rule G11). */
  get controllerIds(): readonly number[] {
    return this.#client.controllerIds;
  }

  /** The APIs that the active controller serves, by API key; rejects when there is none. */
  async apis(): Promise<ReadonlyMap<number, ApiRange>> {
    const client = this.#client;
    return await client.retry(undefined, async () => {
      const { connection } = await client.connect('requests');
      return connection.apis;
    });
  }

  /** The cluster's feature levels when the active controller was first asked for something. */
  async featureLevels(): Promise<ReadonlyMap<string, number>> {
    const client = this.#client;
    return await client.retry(undefined, async () => {
      const { connection } = await client.connect('requests');
      return connection.featureLevels;
    });
  }

  /** Stops following the metadata and ends all connections. */
  close(): void {
    this.#client.close();
  }

  registerBroker(request: BrokerRegistrationRequest): Promise<BrokerRegistrationResponse> {
    const purpose = 'heartbeat';
    return this.#client.send(
      purpose,
      BrokerRegistrationRequest,
      BrokerRegistrationResponse,
      request,
    );
  }

  brokerHeartbeat(request: BrokerHeartbeatRequest): Promise<BrokerHeartbeatResponse> {
    return this.#client.send(
      'heartbeat',
      BrokerHeartbeatRequest,
      BrokerHeartbeatResponse,
      request,
      HEARTBEAT_LIMITS,
    );
  }

  alterPartition(request: AlterPartitionRequest): Promise<AlterPartitionResponse> {
    const isr = 'isr';
    return this.#client.send(isr, AlterPartitionRequest, AlterPartitionResponse, request);
  }

  async allocateProducerIds(brokerId: number, brokerEpoch: number): Promise<ProducerIdBlock> {
    const answer = await this.send(AllocateProducerIdsRequest, AllocateProducerIdsResponse, {
      brokerId,
      brokerEpoch,
    });
    if (answer.errorCode !== errors.NONE.code) return { error: answer.errorCode };
    return { error: 0, firstProducerId: answer.producerIdStart, length: answer.producerIdLen };
  }

  async electSameLeader(
    topicId: Uuid,
    partition: number,
    leaderEpoch: number,
  ): Promise<ElectionResult> {
    const { leaderEpochOf, refence } = this.#options;
    const current = leaderEpochOf?.(topicId, partition) ?? leaderEpoch;
    if (current !== leaderEpoch) {
      const error = errors.FENCED_LEADER_EPOCH.code;
      return { error, message: `The leader epoch is ${current}, not ${leaderEpoch}.` };
    }
    await refence();
    const seen = leaderEpochOf?.(topicId, partition) ?? leaderEpoch;
    return { error: 0, leaderEpoch: Math.max(seen, leaderEpoch + EPOCHS_PER_REFENCE) };
  }

  /** A request of this broker's own to the active controller (not for heartbeats). */
  send<Q extends Message, R extends Message>(
    request: Q,
    response: R,
    value: EncodableOf<Q>,
    options: QuorumSendOptions = {},
  ): Promise<MessageOf<R>> {
    return this.#client.send('requests', request, response, value, options);
  }

  /**
   * Forwards in the highest version not above the client's that the controller knows. Rejects with
   * {@link EnvelopeRefused} when this broker may not forward.
   */
  async forward(
    apiKey: number,
    version: number,
    request: unknown,
    context: ForwardContext,
  ): Promise<unknown> {
    const schemas = this.#options.schemasOf(apiKey);
    if (schemas === undefined) {
      throw new RangeError(`API ${apiKey} cannot be forwarded to a controller`);
    }
    const served = await this.#servedVersion(schemas.request, version);
    // The codec of that API key made the request.
    const body = codec(schemas.request, served).encodeToBytes(request as EncodableOf<Message>);
    const answer = await this.forwardRaw(apiKey, served, body, context);
    return codec(schemas.response, served).decode(answer);
  }

  async #servedVersion(request: Message, maxVersion: number): Promise<number> {
    const version = await this.#client.retry(undefined, async () => {
      const { connection } = await this.#client.connect('forward');
      return connection.version(request, maxVersion);
    });
    if (version !== undefined) return version;
    const { code } = errors.UNSUPPORTED_VERSION;
    throw new EnvelopeRefused(code, `the controller does not serve ${request.name}`);
  }

  /** The same with the bytes of request and response, which are nobody's business here. */
  async forwardRaw(
    apiKey: number,
    apiVersion: number,
    body: Uint8Array,
    context: ForwardContext,
  ): Promise<Uint8Array> {
    const correlationId = this.#nextCorrelationId;
    this.#nextCorrelationId = (correlationId + 1) & 0x7fffffff;
    const { clientId = this.#clientId } = context;
    const header = { apiKey, apiVersion, correlationId, clientId };
    const answer = await this.#client.send('forward', EnvelopeRequest, EnvelopeResponse, {
      requestData: enclosedRequest(header, body),
      requestPrincipal: principalBytes(context),
      clientHostAddress: addressBytes(context.clientAddress),
    });
    if (answer.errorCode !== errors.NONE.code || answer.responseData === null) {
      throw this.#refusedEnvelope(apiKey, answer.errorCode);
    }
    return enclosedResponse(header, answer.responseData);
  }

  #refusedEnvelope(apiKey: number, errorCode: number): EnvelopeRefused {
    const right =
      errorCode === errors.CLUSTER_AUTHORIZATION_FAILED.code
        ? ': this broker needs CLUSTER_ACTION on the cluster'
        : '';
    const message =
      `the controller refuses ${apiName(apiKey)} in an envelope: ${errorName(errorCode)}, ` +
      `${errorMessage(errorCode)}${right}`;
    this.#runtime.logger.warn('request not forwarded', { reason: message });
    return new EnvelopeRefused(errorCode, message);
  }

  subscribe(
    fromOffset: number,
    onBatch: MetadataBatchListener,
    onSnapshot?: MetadataSnapshotListener,
  ): Promise<void> {
    return this.#observer('metadata', { fromOffset, onBatch, onSnapshot }).start();
  }

  #observer(
    purpose: string,
    wish: Pick<ObserverOptions, 'fromOffset' | 'onBatch'> & {
      readonly onSnapshot: MetadataSnapshotListener | undefined;
      readonly onFailure?: (error: Error) => void;
    },
  ): MetadataObserver {
    const { nodeId, directoryId, onFatal } = this.#options;
    const { fromOffset, onBatch, onFailure = onFatal } = wish;
    return new MetadataObserver(this.#runtime, {
      client: this.#client,
      purpose,
      nodeId,
      directoryId,
      fromOffset,
      onBatch,
      onSnapshot: (records, lastOffset, epoch) =>
        present(wish.onSnapshot, 'listener for metadata snapshots')(records, lastOffset, epoch),
      onFailure,
    });
  }

  /** The metadata as of now, read once: for checks before this broker registers (rule G11). */
  async readImage(): Promise<MetadataImage> {
    const loader = new MetadataLoader(await this.clusterId(), []);
    const observers: MetadataObserver[] = [];
    try {
      await loader.start({
        subscribe: async (fromOffset, onBatch, onSnapshot) => {
          // A failure rejects `start`, and is the caller's.
          const wish = { fromOffset, onBatch, onSnapshot, onFailure: () => {} };
          const observer = this.#observer('first-look', wish);
          observers.push(observer);
          await observer.start();
        },
      });
    } finally {
      for (const observer of observers) observer.close();
    }
    return loader.image;
  }
}
