/**
 * The controller inside the process: the only voter of its metadata quorum.
 *
 * Made by the composition root over the opened metadata log; brokers, this process's own included,
 * talk to it through ControllerPort. A request goes decide → records → append → fsync → publish →
 * answer. Invariants:
 * - Decide, append and apply to `#image` happen in one go, so decisions never overlap; `#image`
 *   includes what is not durable yet, therefore answers wait for all they were based on.
 * - One decision is one batch: after a crash all of it is there or nothing.
 * - Subscribers see committed batches only, in order. Requests that arrive during an fsync share
 *   the next one.
 * - A log that fails ends the controller: what is in memory can no longer be trusted.
 */
import { assert } from '../base/assert.ts';
import { randomUuid, type Uuid } from '../base/uuid.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import { ApiKey } from '../protocol/api-keys.ts';
import type {
  AlterPartitionRequest,
  AlterPartitionResponse,
} from '../protocol/messages/56-alter-partition.ts';
import type {
  BrokerRegistrationRequest,
  BrokerRegistrationResponse,
} from '../protocol/messages/62-broker-registration.ts';
import type {
  BrokerHeartbeatRequest,
  BrokerHeartbeatResponse,
} from '../protocol/messages/63-broker-heartbeat.ts';
import { BrokerSessions, SESSION_CHECK_INTERVAL_MS } from './broker-sessions.ts';
import type { ConfigValidators } from './config-validator.ts';
import type {
  ControllerPort,
  ElectionResult,
  ForwardContext,
  MetadataBatchListener,
  ProducerIdBlock,
} from './controller-port.ts';
import type { DecideContext, Decision } from './decide.ts';
import {
  brokerEpochError,
  decideBrokerRegistration,
  decideFence,
  decideHeartbeat,
} from './decide-brokers.ts';
import { decideIncrementalAlterConfigs } from './decide-configs.ts';
import {
  decideAddTopicsToMirror,
  decideCreateMirror,
  decideRemoveTopicsFromMirror,
} from './decide-mirrors.ts';
import { decideAlterPartition, decideElectSameLeader } from './decide-partitions.ts';
import { decideAllocateProducerIds } from './decide-producer-ids.ts';
import { decideCreatePartitions, decideCreateTopics, decideDeleteTopics } from './decide-topics.ts';
import { bootstrapRecords } from './features.ts';
import { emptyImage, type MetadataImage } from './image.ts';
import { applyRecords } from './image-delta.ts';
import { MetadataLog, type MetadataLogStorage } from './metadata-log.ts';
import type { MetadataRecord } from './record-framing.ts';
import { type PlacedRecord, placeRecords, TransactionBuffer } from './transaction-buffer.ts';

/** Default of broker.session.timeout.ms. */
export const BROKER_SESSION_TIMEOUT_MS = 9000;

/** What the controller is made of. */
export interface EmbeddedControllerOptions {
  readonly nodeId: number;
  readonly clusterId: string;
  /** The broker in the same process: an older incarnation of it is dead for sure. */
  readonly localBrokerId: number;
  /** `__cluster_metadata-0`, with retention and compaction off. */
  readonly log: MetadataLogStorage;
  readonly validators: ConfigValidators;
  readonly defaultPartitions: number;
  readonly defaultReplicationFactor: number;
  readonly brokerSessionTimeoutMs?: number;
  /** Called once when the metadata log has failed: the process should stop. */
  readonly onFailure: (error: Error) => void;
}

/** The controller has stopped or failed; nothing is known about what was asked of it. */
export class ControllerUnavailable extends Error {
  override readonly name = 'ControllerUnavailable';
}

type Decide = (context: DecideContext, request: never) => Decision<unknown>;

/** What may be forwarded, by API key. */
const FORWARDED: ReadonlyMap<number, Decide> = new Map<number, Decide>([
  [ApiKey.CreateTopics, decideCreateTopics],
  [ApiKey.DeleteTopics, decideDeleteTopics],
  [ApiKey.CreatePartitions, decideCreatePartitions],
  [ApiKey.IncrementalAlterConfigs, decideIncrementalAlterConfigs],
  [ApiKey.CreateMirror, decideCreateMirror],
  [ApiKey.AddTopicsToMirror, decideAddTopicsToMirror],
  [ApiKey.RemoveTopicsFromMirror, decideRemoveTopicsFromMirror],
]);

interface AppendedBatch {
  readonly records: readonly MetadataRecord[];
  readonly lastOffset: number;
}

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** See the file header. */
export class EmbeddedController implements ControllerPort {
  readonly #runtime: Runtime;
  readonly #options: EmbeddedControllerOptions;
  readonly #log: MetadataLog;
  readonly #sessions: BrokerSessions;
  readonly #subscribers: MetadataBatchListener[] = [];
  #image: MetadataImage;
  #committedOffset: number;
  #appended: AppendedBatch[] = [];
  #waiters: Waiter[] = [];
  #committing = false;
  #localBrokerRegistered = false;
  #checkTimer: Timer | undefined;
  #stopped: ControllerUnavailable | undefined;

  private constructor(
    runtime: Runtime,
    options: EmbeddedControllerOptions,
    log: MetadataLog,
    image: MetadataImage,
  ) {
    this.#runtime = runtime;
    this.#options = options;
    this.#log = log;
    this.#image = image;
    this.#committedOffset = image.offset;
    const timeoutMs = options.brokerSessionTimeoutMs ?? BROKER_SESSION_TIMEOUT_MS;
    this.#sessions = new BrokerSessions(runtime.clock, timeoutMs);
    for (const id of image.brokers.keys()) this.#sessions.start(id);
  }

  /** Replays the log, starts a new epoch, writes a new cluster's first records, and serves. */
  static async open(
    runtime: Runtime,
    options: EmbeddedControllerOptions,
  ): Promise<EmbeddedController> {
    const log = new MetadataLog(runtime, options.log);
    const replayed = replay(log, options.clusterId);
    log.lead(options.nodeId, options.clusterId);
    const bootstrap = replayed.features.size === 0 ? bootstrapRecords() : [];
    if (bootstrap.length > 0) log.append(log.encode(bootstrap));
    await log.commit();
    const lastOffset = log.nextOffset - 1;
    const placed = placeRecords(bootstrap, lastOffset);
    const { image } = applyRecords(replayed, placed, lastOffset, log.epoch);
    runtime.logger.info('metadata log opened', { epoch: log.epoch, lastOffset });
    const controller = new EmbeddedController(runtime, options, log, image);
    controller.#scheduleCheck();
    return controller;
  }

  registerBroker(request: BrokerRegistrationRequest): Promise<BrokerRegistrationResponse> {
    const { brokerId } = request;
    const isOwn = brokerId === this.#options.localBrokerId && !this.#localBrokerRegistered;
    const hasSession = !isOwn && this.#sessions.isAlive(brokerId);
    return this.#run((context) => {
      const decision = decideBrokerRegistration(context, request, hasSession);
      const { refusal } = decision;
      if (refusal === undefined) this.#registered(brokerId);
      else this.#runtime.logger.warn('broker registration refused', { brokerId, ...refusal });
      return decision;
    });
  }

  #registered(brokerId: number): void {
    this.#sessions.start(brokerId);
    if (brokerId === this.#options.localBrokerId) this.#localBrokerRegistered = true;
  }

  brokerHeartbeat(request: BrokerHeartbeatRequest): Promise<BrokerHeartbeatResponse> {
    const { brokerId, brokerEpoch, currentMetadataOffset, wantShutDown } = request;
    const wasStopping = this.#image.brokers.get(brokerId)?.inControlledShutdown === true;
    if (brokerEpochError(this.#image, brokerId, brokerEpoch) === 0) {
      this.#sessions.renew(brokerId, currentMetadataOffset);
    }
    const state = {
      shutdownOffset: this.#sessions.shutdownOffset(brokerId),
      othersOffset: this.#lowestOffsetOfOthers(brokerId),
    };
    const answer = this.#run((context) => decideHeartbeat(context, request, state));
    const isStopping = this.#image.brokers.get(brokerId)?.inControlledShutdown === true;
    if (wantShutDown && isStopping && !wasStopping) {
      this.#sessions.beginShutdown(brokerId, this.#image.offset);
    }
    return answer;
  }

  #lowestOffsetOfOthers(brokerId: number): number {
    let lowest = Number.MAX_SAFE_INTEGER;
    for (const broker of this.#image.brokers.values()) {
      if (broker.id === brokerId || broker.fenced) continue;
      lowest = Math.min(lowest, this.#sessions.metadataOffset(broker.id));
    }
    return lowest;
  }

  alterPartition(request: AlterPartitionRequest): Promise<AlterPartitionResponse> {
    return this.#run((context) => decideAlterPartition(context, request));
  }

  allocateProducerIds(brokerId: number, brokerEpoch: number): Promise<ProducerIdBlock> {
    return this.#run((context) => decideAllocateProducerIds(context, brokerId, brokerEpoch));
  }

  electSameLeader(topicId: Uuid, partition: number, leaderEpoch: number): Promise<ElectionResult> {
    return this.#run((context) => decideElectSameLeader(context, topicId, partition, leaderEpoch));
  }

  forward(
    apiKey: number,
    _version: number,
    request: unknown,
    _context: ForwardContext,
  ): Promise<unknown> {
    const decide = FORWARDED.get(apiKey);
    if (decide === undefined) {
      return Promise.reject(new RangeError(`API ${apiKey} cannot be forwarded to a controller`));
    }
    // The codec of that API key made the request.
    return this.#run((context) => decide(context, request as never));
  }

  subscribe(fromOffset: number, onBatch: MetadataBatchListener): Promise<void> {
    this.#log.forEach(fromOffset, this.#committedOffset + 1, (batch) => {
      onBatch(batch.records, batch.lastOffset, batch.epoch);
    });
    this.#subscribers.push(onBatch);
    return Promise.resolve();
  }

  /** Stops taking requests and ends when what was appended is durable. */
  async close(): Promise<void> {
    this.#checkTimer?.cancel();
    const pending = this.#stopped === undefined ? this.#whenCommitted() : Promise.resolve();
    this.#stopped ??= new ControllerUnavailable('the controller has been closed');
    await pending;
  }

  async #run<R>(decide: (context: DecideContext) => Decision<R>): Promise<R> {
    if (this.#stopped !== undefined) throw this.#stopped;
    const decision = decide(this.#decideContext());
    if (decision.records.length > 0) this.#append(decision.records);
    await this.#whenCommitted();
    return decision.response;
  }

  #decideContext(): DecideContext {
    const { validators, defaultPartitions, defaultReplicationFactor } = this.#options;
    return {
      image: this.#image,
      nextOffset: this.#log.nextOffset,
      validators,
      defaultPartitions,
      defaultReplicationFactor,
      newUuid: () => randomUuid((length) => this.#runtime.random.bytes(length)),
    };
  }

  #append(records: readonly MetadataRecord[]): void {
    const lastOffset = this.#log.nextOffset + records.length - 1;
    // First of all: what cannot be applied or encoded must not get into the log.
    const placed = placeRecords(records, lastOffset);
    const { image } = applyRecords(this.#image, placed, lastOffset, this.#log.epoch);
    const batch = this.#log.encode(records);
    try {
      const written = this.#log.append(batch);
      assert(written === lastOffset, `metadata batch ends at ${written}, not ${lastOffset}`);
    } catch (error) {
      throw this.#fail(error);
    }
    this.#image = image;
    this.#appended.push({ records, lastOffset });
    if (!this.#committing) this.#commitAll();
  }

  /** Resolves when all that has been appended by now is committed. */
  #whenCommitted(): Promise<void> {
    const { offset } = this.#image;
    if (offset <= this.#committedOffset) return Promise.resolve();
    return new Promise((resolve, reject) => {
      this.#waiters.push({ offset, resolve, reject });
    });
  }

  /** Commits until nothing is left; what is appended during an fsync goes with the next. */
  #commitAll(): void {
    this.#committing = true;
    const batches = this.#appended;
    this.#appended = [];
    this.#log.commit().then(
      () => {
        this.#committed(batches);
        if (this.#appended.length > 0) this.#commitAll();
        else this.#committing = false;
      },
      (error: unknown) => {
        this.#fail(error);
      },
    );
  }

  #committed(batches: readonly AppendedBatch[]): void {
    const last = batches.at(-1);
    if (last === undefined) return;
    this.#committedOffset = last.lastOffset;
    // Adjoining batches of one epoch: passed on as one, since each costs every publisher a pass.
    const records = batches.length === 1 ? last.records : batches.flatMap((each) => each.records);
    for (const onBatch of this.#subscribers) onBatch(records, last.lastOffset, this.#log.epoch);
    const due = this.#waiters.filter((waiter) => waiter.offset <= this.#committedOffset);
    this.#waiters = this.#waiters.filter((waiter) => waiter.offset > this.#committedOffset);
    for (const waiter of due) waiter.resolve();
  }

  #fail(cause: unknown): ControllerUnavailable {
    const error = new ControllerUnavailable('the metadata log has failed', { cause });
    this.#runtime.logger.error('the metadata log has failed', { cause: String(cause) });
    this.#checkTimer?.cancel();
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter.reject(error);
    if (this.#stopped === undefined) {
      this.#stopped = error;
      this.#options.onFailure(error);
    }
    return error;
  }

  #scheduleCheck(): void {
    this.#checkTimer = this.#runtime.clock.setTimer(SESSION_CHECK_INTERVAL_MS, () => {
      this.#fenceExpired();
      if (this.#stopped === undefined) this.#scheduleCheck();
    });
  }

  #fenceExpired(): void {
    for (const brokerId of this.#sessions.expired()) {
      if (this.#image.brokers.get(brokerId)?.fenced !== false) continue;
      this.#runtime.logger.warn('broker fenced: no heartbeat', { brokerId });
      const fence = this.#run((context) => ({
        records: decideFence(context.image, brokerId),
        response: undefined,
      }));
      // A failure has been reported by then, and it ended the controller.
      fence.catch((error: unknown) => {
        this.#runtime.logger.debug('fencing failed', { brokerId, error: String(error) });
      });
    }
  }
}

/** The metadata that the log holds, applied at once. */
function replay(log: MetadataLog, clusterId: string): MetadataImage {
  const transaction = new TransactionBuffer();
  const records: PlacedRecord[] = [];
  let last = { offset: -1, epoch: 0 };
  log.forEach(0, log.nextOffset, (batch) => {
    last = { offset: batch.lastOffset, epoch: batch.epoch };
    for (const ready of transaction.add(batch.records, batch.lastOffset) ?? []) records.push(ready);
  });
  return applyRecords(emptyImage(clusterId), records, last.offset, last.epoch).image;
}
