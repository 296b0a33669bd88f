/**
 * All partitions of this broker: made, moved and removed as the metadata says, and the way in for
 * produce, fetch, ListOffsets, OffsetForLeaderEpoch and DeleteRecords.
 *
 * Made by the composition root, fed by the metadata loader, called by handlers and coordinators.
 * Invariants:
 * - The first delta is the whole image of a caught-up broker; only then are logs on disk that no
 *   topic id accounts for called strays: renamed away, reported, never served.
 * - Listeners hear of a role change after all partitions of the delta have changed, losses first.
 *   A new epoch under the same leader is `onBecomeLeader` again, without a loss before it.
 * - A partition whose disk failed answers KAFKA_STORAGE_ERROR and counts as lost; others go on.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import { DiskError, type Runtime, type Timer } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  type PartitionRegistration,
  type TopicImage,
} from '../metadata/image.ts';
import type { MetadataDelta } from '../metadata/image-delta.ts';
import type { MetadataPublisher } from '../metadata/metadata-loader.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { Log } from '../storage/log.ts';
import type { LogConfig } from '../storage/log-config.ts';
import type { LogManager } from '../storage/log-manager.ts';
import { directoryName, type TopicPartition } from '../storage/topic-partition.ts';
import { fetchOnce } from './fetch-sessions.ts';
import type { FetchSource } from './fetch-set.ts';
import {
  type FetchParams,
  type FetchPartition,
  type FetchResult,
  isolationOf,
} from './fetch-types.ts';
import { FollowerManager, type FollowOptions } from './follower-manager.ts';
import { EVERYONE_MAY_JOIN, type IsrPolicy } from './isr-policy.ts';
import { ControllerIsrUpdates } from './isr-updates.ts';
import {
  type EpochAnswer,
  type EpochQuery,
  listOffset,
  noOffset,
  type OffsetAnswer,
  type OffsetQuery,
  offsetForLeaderEpoch,
} from './list-offsets.ts';
import type { MirrorGate } from './mirror-gate.ts';
import { Partition, type PartitionContext } from './partition.ts';
import { PartitionTable } from './partition-table.ts';
import { type ProduceEntry, type ProduceParams, type ProduceResult, produce } from './produce.ts';
import { whenPartition } from './purgatory.ts';

/** replica.lag.time.max.ms: how long an ISR member may lag. */
export const REPLICA_LAG_TIME_MAX_MS = 30_000;

/** Learns which partitions this broker leads. Must neither throw nor wait. */
export interface LeadershipListener {
  /** Also for a new leader epoch of a partition that this broker led already. */
  onBecomeLeader(partition: Partition): void;
  /** Also when the disk failed; may come without a `onBecomeLeader` before. */
  onLoseLeadership(topicPartition: TopicPartition, topicId: Uuid): void;
  /** The partition left this broker: topic deleted or reassigned. After `onLoseLeadership`. */
  onDelete?(topicPartition: TopicPartition, topicId: Uuid): void;
}

/** What a {@link ReplicaManager} is made of. */
export interface ReplicaManagerOptions {
  readonly brokerId: number;
  readonly logManager: LogManager;
  readonly controller: ControllerPort;
  readonly mirrorGate: MirrorGate;
  /** {@link EVERYONE_MAY_JOIN} when absent. */
  readonly isrPolicy?: IsrPolicy;
  /** Whether this broker takes a replica, given who leads it (G8). Absent: every one. */
  readonly holds?: (topic: string, leaderId: number) => boolean;
  /** The settings of a topic's logs, from topic overrides and broker defaults as they are now. */
  readonly topicConfig: (topic: string) => LogConfig;
  /** Read at each change; complete before the first delta. */
  readonly onLeadership: readonly LeadershipListener[];
  /** What this broker follows when others lead; absent: nothing. */
  readonly following?: FollowOptions | undefined;
  /** {@link REPLICA_LAG_TIME_MAX_MS} when absent. */
  readonly replicaLagTimeMaxMs?: number;
}

/** An answer of DeleteRecords. */
export interface DeleteRecordsResult {
  readonly topic: string;
  readonly partition: number;
  readonly error: ErrorCode;
  readonly message?: string | undefined;
  /** −1 with an error. */
  readonly lowWatermark: number;
}

/** A request of DeleteRecords; offset −1: up to the high watermark. */
export interface DeleteRecordsEntry {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
}

/** Role changes of one delta, announced when all are done. */
interface RoleChanges {
  readonly gained: Partition[];
  readonly lost: Partition[];
  readonly deleted: Partition[];
}

/** See the file header. */
export class ReplicaManager implements MetadataPublisher {
  readonly name = 'replica-manager';
  readonly #runtime: Runtime;
  readonly #options: ReplicaManagerOptions;
  readonly #context: PartitionContext;
  readonly #isrUpdates: ControllerIsrUpdates;
  readonly #table = new PartitionTable();
  readonly #followers: FollowerManager | undefined;
  /** Directories that could not be renamed away: nothing may be opened in their place. */
  readonly #stuck = new Set<string>();
  /** See {@link #unopened}. */
  #unopenedNames: ReadonlySet<string> | undefined;
  /** Within one delta. */
  #lastConfig: { readonly topic: string; readonly config: LogConfig } | undefined;
  #started = false;
  #shrinkTimer: Timer | undefined;

  constructor(runtime: Runtime, options: ReplicaManagerOptions) {
    this.#runtime = runtime;
    this.#options = options;
    const { brokerId, controller } = options;
    const brokerEpoch = (id: number): number => this.#table.image.brokers.get(id)?.epoch ?? -1;
    this.#isrUpdates = new ControllerIsrUpdates(runtime, controller, brokerId, () => {
      return brokerEpoch(brokerId);
    });
    this.#context = {
      brokerId,
      clock: runtime.clock,
      random: runtime.random,
      gate: options.mirrorGate,
      isrPolicy: options.isrPolicy ?? EVERYONE_MAY_JOIN,
      brokerEpoch,
      isrUpdates: this.#isrUpdates,
      replicaLagTimeMaxMs: options.replicaLagTimeMaxMs ?? REPLICA_LAG_TIME_MAX_MS,
      activeBrokerEpoch: (id) => this.#activeBrokerEpoch(id),
      onStorageFailure: (partition, error) => this.#storageFailed(partition, error),
    };
    const { following } = options;
    const image = (): MetadataImage => this.#table.image;
    this.#followers = following && new FollowerManager(runtime, { ...following, brokerId, image });
  }

  /** What is to be followed, and from where, has changed. */
  reviewFollowing(): void {
    for (const partition of this.#table.all()) this.#followers?.review(partition);
  }

  /** Undefined when this broker does not hold it, or its log could not be opened. */
  partition(topic: string, index: number): Partition | undefined {
    return this.#table.byName(topic, index);
  }

  /** As {@link partition}, by topic id. */
  partitionById(topicId: Uuid, index: number): Partition | undefined {
    return this.#table.byId(topicId, index);
  }

  /** Every partition that this broker holds. */
  partitions(): IterableIterator<Partition> {
    return this.#table.all();
  }

  /** Where fetch sessions find their partitions. */
  get fetchSource(): FetchSource {
    return this.#table;
  }

  /** The ISR policy has changed its mind: members it does not admit any more are taken out. */
  reviewIsr(): void {
    for (const partition of this.#table.all()) partition.reviewIsr();
  }

  /** Stops timers; what waits is answered by its own time-out. */
  close(): void {
    this.#shrinkTimer?.cancel();
    this.#followers?.close();
    this.#isrUpdates.close();
  }

  // --- requests ---------------------------------------------------------------------------------

  /** Appends to several partitions; answers when `acks` are met, in the order of `entries`. */
  produce(params: ProduceParams, entries: readonly ProduceEntry[]): Promise<ProduceResult[]> {
    return produce(this.#runtime.clock, this.#table, params, entries);
  }

  /** A fetch outside any session, with its long poll; answers in the order of `partitions`. */
  fetch(params: FetchParams, partitions: readonly FetchPartition[]): Promise<FetchResult[]> {
    return fetchOnce(this.#runtime, this.#table, params, partitions);
  }

  /** Answers in the order of `queries`; `params` say who asks and with which isolation. */
  listOffsets(
    params: Pick<FetchParams, 'replicaId' | 'readCommitted'>,
    queries: readonly OffsetQuery[],
  ): OffsetAnswer[] {
    const isolation = isolationOf(params);
    return queries.map((query) => {
      const partition = this.#table.find(query);
      if (partition === undefined) return noOffset(this.#table.missingError(query));
      return listOffset(partition, query, isolation);
    });
  }

  /** Answers in the order of `queries`. */
  offsetsForLeaderEpoch(queries: readonly EpochQuery[]): EpochAnswer[] {
    return queries.map((query) => {
      const partition = this.#table.find(query);
      if (partition !== undefined) return offsetForLeaderEpoch(partition, query);
      return { error: this.#table.missingError(query), leaderEpoch: -1, endOffset: -1 };
    });
  }

  /** Deletes below each offset (−1: the high watermark) and waits until live replicas followed. */
  deleteRecords(
    timeoutMs: number,
    entries: readonly DeleteRecordsEntry[],
  ): Promise<DeleteRecordsResult[]> {
    return Promise.all(entries.map((entry) => this.#deleteRecords(timeoutMs, entry)));
  }

  /** 0 once the high watermark reached `offset`, or why it will not in this leader epoch. */
  whenCommitted(partition: Partition, offset: number, timeoutMs?: number): Promise<ErrorCode> {
    const { leaderEpoch } = partition;
    const check = (): ErrorCode | undefined => {
      const notLeader = partition.leaderError(-1);
      if (notLeader !== 0) return notLeader;
      if (partition.leaderEpoch !== leaderEpoch) return errors.NOT_LEADER_OR_FOLLOWER.code;
      return partition.log.highWatermark >= offset ? 0 : undefined;
    };
    const timedOut = (): ErrorCode => errors.REQUEST_TIMED_OUT.code;
    return whenPartition(this.#runtime.clock, partition.watchers, timeoutMs, check, timedOut);
  }

  #deleteRecords(timeoutMs: number, entry: DeleteRecordsEntry): Promise<DeleteRecordsResult> {
    const { topic, partition: index, offset } = entry;
    const failed = (error: ErrorCode, message?: string): DeleteRecordsResult => {
      return { topic, partition: index, error, message, lowWatermark: -1 };
    };
    const partition = this.#table.byName(topic, index);
    if (partition === undefined) {
      const error = this.#table.missingError({ topic, topicId: ZERO_UUID, partition: index });
      return Promise.resolve(failed(error));
    }
    const { error, message } = partition.deleteRecords(offset);
    if (error !== 0) return Promise.resolve(failed(error, message));
    const wanted = offset === -1 ? partition.log.logStartOffset : offset;
    const check = (): DeleteRecordsResult | undefined => {
      const notLeader = partition.leaderError(-1);
      if (notLeader !== 0) return failed(notLeader);
      const lowWatermark = partition.lowWatermark();
      if (lowWatermark < wanted) return undefined;
      return { topic, partition: index, error: 0, lowWatermark };
    };
    const timedOut = (): DeleteRecordsResult => failed(errors.REQUEST_TIMED_OUT.code);
    return whenPartition(this.#runtime.clock, partition.watchers, timeoutMs, check, timedOut);
  }

  // --- metadata ---------------------------------------------------------------------------------

  publish(delta: MetadataDelta): void {
    this.#table.useImage(delta.image);
    this.#unopenedNames = undefined;
    this.#lastConfig = undefined;
    const changes: RoleChanges = { gained: [], lost: [], deleted: [] };
    if (this.#started) {
      for (const topic of delta.deletedTopics) this.#dropTopic(topic, changes);
      for (const id of delta.changedTopics)
        this.#applyTopic(delta.image.topicsById.get(id), changes);
      this.#applyConfigs(delta, changes);
    } else {
      this.#started = true;
      this.#setStraysAside(delta.image);
      for (const topic of delta.image.topicsById.values()) this.#applyTopic(topic, changes);
      this.reviewFollowing();
      this.#scheduleIsrShrink();
    }
    this.#followChanged(delta);
    this.#announce(changes);
  }

  /** A broker that registers anew can have another address. */
  #followChanged({ changedTopics, changedBrokers }: MetadataDelta): void {
    if (this.#followers === undefined) return;
    if (changedBrokers.size > 0) this.reviewFollowing();
    for (const id of changedTopics) {
      for (const partition of this.#table.ofTopic(id)) this.#followers.review(partition);
    }
  }

  #announce({ gained, lost, deleted }: RoleChanges): void {
    for (const listener of this.#options.onLeadership) {
      for (const each of lost) listener.onLoseLeadership(each.topicPartition, each.topicId);
      for (const each of deleted) listener.onDelete?.(each.topicPartition, each.topicId);
      for (const each of gained) listener.onBecomeLeader(each);
    }
  }

  #applyTopic(topic: TopicImage | undefined, changes: RoleChanges): void {
    if (topic === undefined) return;
    for (const registration of topic.partitions.values()) {
      const { topicId, partition: index } = registration;
      if (this.#holds(registration)) {
        this.#applyPartition(registration, changes);
      } else {
        const held = this.#table.byId(topicId, index);
        if (held !== undefined) this.#drop(held, changes);
        this.#table.forgetOffline(topicId, index);
      }
    }
  }

  #holds({ topic, replicas, leader }: PartitionRegistration): boolean {
    const { brokerId, holds } = this.#options;
    return replicas.includes(brokerId) && (holds?.(topic, leader) ?? true);
  }

  #applyPartition(registration: PartitionRegistration, changes: RoleChanges): void {
    const { topicId, partition: index } = registration;
    let partition = this.#table.byId(topicId, index);
    if (partition === undefined) {
      const log = this.#openLog(registration);
      if (log === undefined) return;
      const topicPartition = { topic: registration.topic, partition: index };
      partition = new Partition(topicPartition, topicId, log, this.#context);
      this.#table.add(partition);
    }
    const change = partition.applyRegistration(registration);
    if (change === 'becameLeader') changes.gained.push(partition);
    else if (change === 'lostLeadership') changes.lost.push(partition);
  }

  /** Undefined when the disk refuses: the partition is offline, the others go on. */
  #openLog(registration: PartitionRegistration): Log | undefined {
    const { topic, partition, topicId } = registration;
    const topicPartition = { topic, partition };
    const { logManager } = this.#options;
    const existing = logManager.getLog(topicPartition);
    const isOurs = existing?.topicId === undefined || existing.topicId === topicId;
    if (existing !== undefined && isOurs) {
      existing.updateConfig(this.#configOf(topic));
      return this.#adopt(existing, topicId);
    }
    if (existing !== undefined) this.#setAside(existing, topicId);
    const name = directoryName(topicPartition);
    if (this.#stuck.has(name) || this.#unopened().has(name)) {
      this.#table.markOffline(topicId, partition);
      return undefined;
    }
    const create = (): Log => logManager.createLog(topicPartition, topicId, this.#configOf(topic));
    const log = this.#onDisk(topicPartition, 'log cannot be created', create);
    if (log === undefined) this.#table.markOffline(topicId, partition);
    return log;
  }

  /** A power loss can leave a new log without its topic id. */
  #adopt(log: Log, topicId: Uuid): Log {
    if (log.topicId === undefined) {
      const { logManager } = this.#options;
      this.#onDisk(log.topicPartition, 'topic id cannot be written', () => {
        logManager.adoptLog(log, topicId);
      });
    }
    return log;
  }

  /** Names of partitions whose directory could not be opened at start; asked once per delta. */
  #unopened(): ReadonlySet<string> {
    this.#unopenedNames ??= new Set(this.#options.logManager.offline().map(directoryName));
    return this.#unopenedNames;
  }

  /** Undefined after a disk error, which is logged. */
  #onDisk<T>(topicPartition: TopicPartition, complaint: string, work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      this.#runtime.logger.error(complaint, { ...topicPartition, error: error.message });
      return undefined;
    }
  }

  #dropTopic(topic: TopicImage, changes: RoleChanges): void {
    for (const partition of this.#table.ofTopic(topic.id)) this.#drop(partition, changes);
    for (const partition of topic.partitions.keys()) {
      if (!this.#table.isOffline(topic.id, partition)) continue;
      const topicPartition = { topic: topic.name, partition };
      this.#retire(topicPartition, 'offline log cannot be renamed', () => {
        this.#options.logManager.strayLog(topicPartition);
      });
      this.#table.forgetOffline(topic.id, partition);
    }
  }

  #drop(partition: Partition, changes: RoleChanges): void {
    const { topicPartition } = partition;
    if (partition.isLeader()) changes.lost.push(partition);
    changes.deleted.push(partition);
    this.#table.delete(partition);
    partition.markDeleted();
    this.#followers?.forget(partition);
    const { logManager } = this.#options;
    this.#retire(topicPartition, 'log cannot be deleted', () =>
      logManager.deleteLog(topicPartition),
    );
  }

  /** Renames a directory away; its name must not be used again when that fails. */
  #retire(topicPartition: TopicPartition, complaint: string, rename: () => void): void {
    const renamed = this.#onDisk(topicPartition, complaint, () => {
      rename();
      return true;
    });
    if (renamed === undefined) this.#stuck.add(directoryName(topicPartition));
  }

  #applyConfigs(delta: MetadataDelta, changes: RoleChanges): void {
    for (const { type, name } of delta.changedConfigs) {
      if (type === ConfigResourceType.BROKER) {
        for (const partition of this.#table.all()) this.#updateConfig(partition);
        return;
      }
      if (type !== ConfigResourceType.TOPIC) continue;
      const topic = delta.image.topicsByName.get(name);
      if (topic === undefined) continue;
      for (const partition of this.#table.ofTopic(topic.id)) this.#updateConfig(partition);
      // Whether it is held here may have changed with it.
      if (this.#options.holds !== undefined) this.#applyTopic(topic, changes);
    }
  }

  #updateConfig(partition: Partition): void {
    partition.log.updateConfig(this.#configOf(partition.topic));
  }

  /** One object for all partitions of a topic; they come together. */
  #configOf(topic: string): LogConfig {
    if (this.#lastConfig?.topic !== topic) {
      this.#lastConfig = { topic, config: this.#options.topicConfig(topic) };
    }
    return this.#lastConfig.config;
  }

  /** A directory whose topic the metadata does not know, or knows under another id. */
  #setStraysAside(image: MetadataImage): void {
    for (const log of [...this.#options.logManager.allLogs()]) {
      const { topic, partition } = log.topicPartition;
      const expected = image.topicsByName.get(topic);
      const registration = expected?.partitions.get(partition);
      const here = registration !== undefined && this.#holds(registration);
      const sameId = log.topicId === undefined || log.topicId === expected?.id;
      if (!here || !sameId) this.#setAside(log, expected?.id);
    }
  }

  #setAside(log: Log, expectedTopicId: Uuid | undefined): void {
    const { topic, partition } = log.topicPartition;
    const fields = { topic, partition, topicId: log.topicId, expectedTopicId };
    this.#runtime.logger.warn('stray log set aside: the metadata does not place it here', fields);
    const { logManager } = this.#options;
    this.#retire(log.topicPartition, 'stray log cannot be renamed', () => {
      logManager.strayLog(log.topicPartition);
    });
  }

  #activeBrokerEpoch(brokerId: number): number | undefined {
    const broker = this.#table.image.brokers.get(brokerId);
    if (broker === undefined || broker.fenced || broker.inControlledShutdown) return undefined;
    return broker.epoch;
  }

  /** Comes from inside an append: listeners hear of it when that is over. */
  #storageFailed(partition: Partition, error: DiskError): void {
    const { topicPartition, topicId } = partition;
    const { clock, logger } = this.#runtime;
    logger.error('partition is offline: its disk failed', {
      ...topicPartition,
      error: error.message,
    });
    clock.defer(() => {
      for (const listener of this.#options.onLeadership) {
        listener.onLoseLeadership(topicPartition, topicId);
      }
    });
  }

  #scheduleIsrShrink(): void {
    this.#shrinkTimer = this.#runtime.clock.setTimer(this.#context.replicaLagTimeMaxMs / 2, () => {
      for (const partition of this.#table.all()) {
        partition.checkLog();
        partition.maybeShrinkIsr();
      }
      this.#scheduleIsrShrink();
    });
  }
}
