/**
 * The mirrors of this broker: which partitions are to be driven, and each mirror's source.
 *
 * A metadata publisher (after the replica manager) and a leadership listener. Level-triggered: a
 * partition that this broker leads and whose topic has membership has a driver, any other has none;
 * every notice, and a pass every `mirror.metadata.refresh.interval.ms`, compares and repairs (T1).
 * Leadership of `__mirror_state` partitions goes to the mirror coordinator.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';
import type { MetadataDelta } from '../metadata/image-delta.ts';
import type { MetadataPublisher } from '../metadata/metadata-loader.ts';
import type { Partition } from '../replication/partition.ts';
import type { LeadershipListener } from '../replication/replica-manager.ts';
import type { TopicPartition } from '../storage/topic-partition.ts';
import { type DriverContext, EMBEDDED_ROLE, type MirrorRole } from './driver-context.ts';
import type { MirrorRows } from './mirror-coordinator.ts';
import { PartitionDriver } from './partition-driver.ts';
import type { MirrorPartitionStates } from './partition-states.ts';
import { type MirrorBrokerSettings, type MirrorSettings, parseMirrorSettings } from './settings.ts';
import { SourceCluster } from './source-cluster.ts';
import { MIRROR_STATE_TOPIC } from './state-row.ts';

/** A mirror with its source, made when a partition or a command first needs it. */
export interface OpenMirror {
  readonly source: SourceCluster;
  readonly settings: MirrorSettings;
}

/** What a {@link MirrorManager} is made of. */
export interface MirrorManagerOptions {
  readonly brokerId: number;
  /** This cluster's id. */
  readonly clusterId: string;
  readonly states: MirrorPartitionStates;
  readonly coordinator: MirrorRows;
  readonly controller: Pick<ControllerPort, 'electSameLeader'>;
  readonly limits: MirrorBrokerSettings;
  /** Absent: there are no groups. */
  readonly lowerGroupOffsets?: DriverContext['lowerGroupOffsets'];
  /** {@link EMBEDDED_ROLE} when absent. */
  readonly role?: MirrorRole;
}

function keyOf(topicId: Uuid, partition: number): string {
  return `${topicId}:${partition}`;
}

/** See the file header. */
export class MirrorManager implements MetadataPublisher, LeadershipListener {
  readonly name = 'mirror manager';
  readonly #runtime: Runtime;
  readonly #options: MirrorManagerOptions;
  readonly #context: DriverContext;
  readonly #led = new Map<string, Partition>();
  readonly #drivers = new Map<string, PartitionDriver>();
  readonly #mirrors = new Map<string, OpenMirror>();
  #image: MetadataImage | undefined;
  #timer: Timer | undefined;
  #illegalEvents = 0;
  #closed = false;

  constructor(runtime: Runtime, options: MirrorManagerOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#context = {
      runtime,
      clusterId: options.clusterId,
      store: options.coordinator,
      states: options.states,
      controller: options.controller,
      limits: options.limits,
      role: options.role ?? EMBEDDED_ROLE,
      mirror: (name) => this.mirror(name),
      lowerGroupOffsets: options.lowerGroupOffsets,
      onIllegal: (message) => {
        this.#illegalEvents++;
        runtime.logger.warn('mirror: event without effect', { message });
      },
    };
  }

  /** Events that the state table does not allow (S1), since the start. */
  get illegalEvents(): number {
    return this.#illegalEvents;
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    for (const driver of this.#drivers.values()) driver.close();
    this.#drivers.clear();
    for (const { source } of this.#mirrors.values()) source.close();
    this.#mirrors.clear();
    this.#options.coordinator.close();
  }

  /** The driver of a partition that this broker mirrors. */
  driver(topicId: Uuid, partition: number): PartitionDriver | undefined {
    return this.#drivers.get(keyOf(topicId, partition));
  }

  /** Those of one mirror. */
  driversOf(mirror: string): PartitionDriver[] {
    return [...this.#drivers.values()].filter(({ key }) => key.mirror === mirror);
  }

  /** A mirror's settings and source; undefined when there is no such mirror. */
  mirror(name: string): OpenMirror | undefined {
    if (this.#closed) return undefined;
    const open = this.#mirrors.get(name);
    if (open !== undefined) return open;
    const configs = this.#image?.configs(ConfigResourceType.MIRROR, name);
    if (configs === undefined || configs.size === 0) return undefined;
    const settings = parseMirrorSettings(configs);
    const { limits, brokerId, clusterId } = this.#options;
    const source = new SourceCluster(this.#runtime, {
      mirror: name,
      settings,
      limits,
      brokerId,
      clusterId,
    });
    const made = { source, settings };
    this.#mirrors.set(name, made);
    return made;
  }

  // --- notices ----------------------------------------------------------------------------------

  publish(delta: MetadataDelta): void {
    this.#image = delta.image;
    for (const { type, name } of delta.changedConfigs) {
      if (type === ConfigResourceType.MIRROR) this.#settingsChanged(name);
    }
    const topics = new Set<string>();
    for (const { type, name } of delta.changedConfigs) {
      if (type === ConfigResourceType.TOPIC) topics.add(name);
    }
    for (const id of delta.changedTopics) {
      const topic = delta.image.topicsById.get(id);
      if (topic !== undefined) topics.add(topic.name);
    }
    if (topics.size > 0) {
      for (const partition of this.#led.values()) {
        if (topics.has(partition.topic)) this.#reconcile(partition);
      }
    }
    if (delta.deletedTopics.length > 0) this.#options.coordinator.sweep();
    this.#timer ??= this.#schedule();
  }

  onBecomeLeader(partition: Partition): void {
    if (partition.topic === MIRROR_STATE_TOPIC) {
      this.#options.coordinator.onBecomeLeader(partition.partition, partition.leaderEpoch);
      return;
    }
    this.#led.set(keyOf(partition.topicId, partition.partition), partition);
    this.#reconcile(partition);
  }

  onLoseLeadership({ topic, partition }: TopicPartition, topicId: Uuid): void {
    if (topic === MIRROR_STATE_TOPIC) {
      this.#options.coordinator.onLoseLeadership(partition);
      return;
    }
    const key = keyOf(topicId, partition);
    this.#led.delete(key);
    this.#drop(key, topicId, partition);
  }

  #schedule(): Timer {
    return this.#runtime.clock.setTimer(this.#options.limits.metadataRefreshIntervalMs, () => {
      for (const partition of this.#led.values()) this.#reconcile(partition);
      this.#options.coordinator.sweep();
      this.#timer = this.#schedule();
    });
  }

  /** A6: connections are made anew, nothing is cut. */
  #settingsChanged(name: string): void {
    const old = this.#mirrors.get(name);
    if (old === undefined) return;
    this.#mirrors.delete(name);
    for (const driver of this.#drivers.values()) {
      if (driver.key.mirror === name) driver.sourceReplaced();
    }
    old.source.close();
  }

  #drop(key: string, topicId: Uuid, partition: number): void {
    this.#drivers.get(key)?.close();
    this.#drivers.delete(key);
    this.#options.states.clear(topicId, partition);
  }

  /** Makes the driver what leadership and membership ask for. */
  #reconcile(partition: Partition): void {
    if (this.#closed) return;
    const key = keyOf(partition.topicId, partition.partition);
    const driver = this.#drivers.get(key);
    const membership = this.#image?.membership(partition.topic);
    if (membership === undefined) {
      if (driver !== undefined) this.#drop(key, partition.topicId, partition.partition);
      return;
    }
    if (
      driver !== undefined &&
      driver.leaderEpoch === partition.leaderEpoch &&
      driver.key.mirror === membership.mirror
    ) {
      driver.membershipIs(membership);
      return;
    }
    this.#drop(key, partition.topicId, partition.partition);
    const made = new PartitionDriver(this.#context, partition, membership);
    this.#drivers.set(key, made);
    made.start();
  }
}
