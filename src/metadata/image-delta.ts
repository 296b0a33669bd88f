/**
 * Applies records of the metadata log to an image: the only code that knows what each record does.
 *
 * Called by the loader (for the broker) and by the embedded controller (for its own view), with the
 * records of whole committed batches. Invariants:
 * - Pure: the previous image is untouched, the same records give equal images.
 * - Copy on first write: a batch pays for what it names plus one shallow copy of each map it
 *   changes, whatever else the cluster holds.
 * - Epochs are derived here: partitionEpoch +1 for every change record, leaderEpoch +1 exactly when
 *   the record sets a leader.
 */
import { assert, present } from '../base/assert.ts';
import type { Uuid } from '../base/uuid.ts';
import {
  type BrokerRegistrationImage,
  type ConfigResource,
  ConfigResourceType,
  configKey,
  type MetadataImage,
  MIRROR_NAME_CONFIG,
  type MirrorMembership,
  metadataImage,
  type PartitionRegistration,
  parseMembership,
  type TopicImage,
} from './image.ts';
import { type MetadataRecord, metadataRecord, type RecordValue } from './record-framing.ts';
import { SecurityBuilder } from './security-image.ts';
import { sharedList } from './shared-lists.ts';
import type { PlacedRecord } from './transaction-buffer.ts';

/** What one or more batches changed. */
export interface MetadataDelta {
  /** The new image. */
  readonly image: MetadataImage;
  readonly previous: MetadataImage;
  /** New topics and those with a new or changed partition. */
  readonly changedTopics: ReadonlySet<Uuid>;
  /** As they were last. */
  readonly deletedTopics: readonly TopicImage[];
  /** Resources with a set or removed override, memberships included; deleted topics are not. */
  readonly changedConfigs: readonly ConfigResource[];
  /** Registered, changed or removed brokers. */
  readonly changedBrokers: ReadonlySet<number>;
}

/** `leader` of a change record that leaves the leader alone. */
export const LEADER_UNCHANGED = -2;
const RECOVERY_STATE_UNCHANGED = -1;

/** A map that is copied from its origin on the first write. */
class CopiedMap<K, V> {
  #map: ReadonlyMap<K, V>;
  #own: Map<K, V> | undefined;

  constructor(origin: ReadonlyMap<K, V>) {
    this.#map = origin;
  }

  get current(): ReadonlyMap<K, V> {
    return this.#map;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  set(key: K, value: V): void {
    this.#writable().set(key, value);
  }

  delete(key: K): void {
    if (this.#map.has(key)) this.#writable().delete(key);
  }

  #writable(): Map<K, V> {
    this.#own ??= new Map(this.#map);
    this.#map = this.#own;
    return this.#own;
  }
}

interface OpenTopic {
  readonly id: Uuid;
  readonly name: string;
  readonly partitions: Map<number, PartitionRegistration>;
}

class ImageBuilder {
  readonly #previous: MetadataImage;
  readonly #byName: CopiedMap<string, TopicImage>;
  readonly #byId: CopiedMap<Uuid, TopicImage>;
  readonly #brokers: CopiedMap<number, BrokerRegistrationImage>;
  readonly #features: CopiedMap<string, number>;
  readonly #configs: CopiedMap<string, ReadonlyMap<string, string>>;
  readonly #memberships: CopiedMap<string, MirrorMembership>;
  #nextProducerId: bigint;
  readonly #security: SecurityBuilder;
  /** Topics and config maps made by this builder, which it may therefore write to. */
  readonly #openTopics = new Map<Uuid, OpenTopic>();
  readonly #openConfigs = new Map<string, Map<string, string>>();
  readonly #deleted: TopicImage[] = [];
  readonly #changedConfigs = new Map<string, ConfigResource>();
  readonly #changedBrokers = new Set<number>();

  constructor(previous: MetadataImage) {
    this.#previous = previous;
    this.#byName = new CopiedMap(previous.topicsByName);
    this.#byId = new CopiedMap(previous.topicsById);
    this.#brokers = new CopiedMap(previous.brokers);
    this.#features = new CopiedMap(previous.features);
    this.#configs = new CopiedMap(previous.configsByResource);
    this.#memberships = new CopiedMap(previous.memberships);
    this.#nextProducerId = previous.nextProducerId;
    this.#security = new SecurityBuilder(previous.security);
  }

  apply(record: MetadataRecord, offset: number): void {
    switch (record.type) {
      case 'TopicRecord':
        this.#createTopic(record.value);
        break;
      case 'PartitionRecord':
        this.#createPartition(record.value);
        break;
      case 'PartitionChangeRecord':
        this.#changePartition(record.value);
        break;
      case 'ClearElrRecord':
        this.#clearElr(record.value.topicName);
        break;
      case 'RemoveTopicRecord':
        this.#removeTopic(record.value.topicId);
        break;
      case 'ConfigRecord':
        this.#changeConfig(record.value, offset);
        break;
      case 'FeatureLevelRecord':
        this.#changeFeature(record.value);
        break;
      case 'RegisterBrokerRecord':
        this.#registerBroker(record.value);
        break;
      case 'BrokerRegistrationChangeRecord':
        this.#changeBroker(record.value);
        break;
      case 'UnregisterBrokerRecord':
        this.#brokers.delete(record.value.brokerId);
        this.#changedBrokers.add(record.value.brokerId);
        break;
      case 'FenceBrokerRecord':
        this.#patchBroker(record.value.id, record.value.epoch, { fenced: true });
        break;
      case 'UnfenceBrokerRecord':
        this.#patchBroker(record.value.id, record.value.epoch, { fenced: false });
        break;
      case 'ProducerIdsRecord':
        this.#nextProducerId = record.value.nextProducerId;
        break;
      case 'AccessControlEntryRecord':
      case 'RemoveAccessControlEntryRecord':
      case 'UserScramCredentialRecord':
      case 'RemoveUserScramCredentialRecord':
      case 'ClientQuotaRecord':
        this.#security.apply(record);
        break;
      default:
        // Records of features that are not served (yet) change nothing here.
        break;
    }
  }

  build(offset: number, epoch: number): MetadataDelta {
    const image = metadataImage({
      offset,
      epoch,
      clusterId: this.#previous.clusterId,
      topicsByName: this.#byName.current,
      topicsById: this.#byId.current,
      brokers: this.#brokers.current,
      features: this.#features.current,
      nextProducerId: this.#nextProducerId,
      configsByResource: this.#configs.current,
      memberships: this.#memberships.current,
      security: this.#security.build(),
    });
    return {
      image,
      previous: this.#previous,
      changedTopics: new Set(this.#openTopics.keys()),
      deletedTopics: this.#deleted,
      changedConfigs: [...this.#changedConfigs.values()],
      changedBrokers: this.#changedBrokers,
    };
  }

  #createTopic(value: RecordValue<'TopicRecord'>): void {
    const { name, topicId: id } = value;
    assert(!this.#byName.current.has(name), `topic ${name} created twice`);
    assert(!this.#byId.current.has(id), `topic id ${id} used twice`);
    const topic: OpenTopic = { id, name, partitions: new Map() };
    this.#openTopics.set(id, topic);
    this.#byName.set(name, topic);
    this.#byId.set(id, topic);
  }

  #openTopic(id: Uuid): OpenTopic {
    const open = this.#openTopics.get(id);
    if (open !== undefined) return open;
    const old = present(this.#byId.get(id), `topic with id ${id}`);
    const topic: OpenTopic = { id, name: old.name, partitions: new Map(old.partitions) };
    this.#openTopics.set(id, topic);
    this.#byName.set(topic.name, topic);
    this.#byId.set(id, topic);
    return topic;
  }

  #createPartition(value: RecordValue<'PartitionRecord'>): void {
    const topic = this.#openTopic(value.topicId);
    topic.partitions.set(value.partitionId, {
      topicId: topic.id,
      topic: topic.name,
      partition: value.partitionId,
      replicas: sharedList(value.replicas),
      isr: sharedList(value.isr),
      removingReplicas: sharedList(value.removingReplicas),
      addingReplicas: sharedList(value.addingReplicas),
      eligibleLeaderReplicas: sharedList(value.eligibleLeaderReplicas),
      lastKnownElr: sharedList(value.lastKnownElr),
      leader: value.leader,
      leaderRecoveryState: value.leaderRecoveryState,
      leaderEpoch: value.leaderEpoch,
      partitionEpoch: value.partitionEpoch,
      directories: sharedList(value.directories),
    });
  }

  #changePartition(value: RecordValue<'PartitionChangeRecord'>): void {
    const topic = this.#openTopic(value.topicId);
    const what = `partition ${topic.name}-${value.partitionId}`;
    const old = present(topic.partitions.get(value.partitionId), what);
    topic.partitions.set(value.partitionId, changePartition(old, value));
  }

  /** As KRaft does it: a change of every partition that has any, partition epoch included. */
  #clearElr(topicName: string): void {
    const cleared = { eligibleLeaderReplicas: [], lastKnownElr: [] };
    const all = topicName === '' ? [...this.#byName.current.values()] : [this.#named(topicName)];
    for (const topic of all) {
      for (const partition of topic.partitions.values()) {
        if (partition.eligibleLeaderReplicas.length + partition.lastKnownElr.length === 0) continue;
        const { topicId, partition: partitionId } = partition;
        const change = metadataRecord('PartitionChangeRecord', {
          topicId,
          partitionId,
          ...cleared,
        });
        this.#changePartition(change.value);
      }
    }
  }

  #named(topicName: string): TopicImage {
    return present(this.#byName.get(topicName), `topic ${topicName}`);
  }

  #removeTopic(id: Uuid): void {
    const topic = present(this.#byId.get(id), `topic with id ${id}`);
    this.#byId.delete(id);
    this.#byName.delete(topic.name);
    this.#openTopics.delete(id);
    const key = configKey(ConfigResourceType.TOPIC, topic.name);
    this.#configs.delete(key);
    this.#openConfigs.delete(key);
    this.#changedConfigs.delete(key);
    this.#memberships.delete(topic.name);
    const previous = this.#previous.topicsById.get(id);
    // A topic made and removed within this delta was never seen by a publisher.
    if (previous !== undefined) this.#deleted.push(previous);
  }

  #changeConfig(value: RecordValue<'ConfigRecord'>, offset: number): void {
    const { resourceType: type, resourceName } = value;
    const key = configKey(type, resourceName);
    const map = this.#openConfig(key);
    if (value.value === null) map.delete(value.name);
    else map.set(value.name, value.value);
    if (map.size === 0) {
      this.#configs.delete(key);
      this.#openConfigs.delete(key);
    }
    this.#changedConfigs.set(key, { type, name: resourceName });
    if (type === ConfigResourceType.TOPIC && value.name === MIRROR_NAME_CONFIG) {
      const membership = parseMembership(value.value ?? '', offset);
      if (membership === undefined) this.#memberships.delete(resourceName);
      else this.#memberships.set(resourceName, membership);
    }
  }

  #openConfig(key: string): Map<string, string> {
    let map = this.#openConfigs.get(key);
    if (map === undefined) {
      map = new Map(this.#configs.get(key));
      this.#openConfigs.set(key, map);
      this.#configs.set(key, map);
    }
    return map;
  }

  #changeFeature(value: RecordValue<'FeatureLevelRecord'>): void {
    if (value.featureLevel === 0) this.#features.delete(value.name);
    else this.#features.set(value.name, value.featureLevel);
  }

  #registerBroker(value: RecordValue<'RegisterBrokerRecord'>): void {
    this.#changedBrokers.add(value.brokerId);
    this.#brokers.set(value.brokerId, {
      id: value.brokerId,
      epoch: value.brokerEpoch,
      incarnationId: value.incarnationId,
      rack: value.rack,
      fenced: value.fenced,
      inControlledShutdown: value.inControlledShutdown,
      listeners: value.endPoints,
      features: value.features,
      logDirs: value.logDirs,
      cordonedLogDirs: value.cordonedLogDirs ?? [],
    });
  }

  #changeBroker(value: RecordValue<'BrokerRegistrationChangeRecord'>): void {
    this.#patchBroker(value.brokerId, value.brokerEpoch, {
      ...(value.fenced === 0 ? {} : { fenced: value.fenced === 1 }),
      ...(value.inControlledShutdown === 0 ? {} : { inControlledShutdown: true }),
      ...(value.logDirs.length === 0 ? {} : { logDirs: value.logDirs }),
      ...(value.cordonedLogDirs === null ? {} : { cordonedLogDirs: value.cordonedLogDirs }),
    });
  }

  #patchBroker(id: number, epoch: number, patch: Partial<BrokerRegistrationImage>): void {
    const old = present(this.#brokers.get(id), `registration of broker ${id}`);
    assert(
      old.epoch === epoch,
      `record for epoch ${epoch} of broker ${id}, which has ${old.epoch}`,
    );
    this.#brokers.set(id, { ...old, ...patch });
    this.#changedBrokers.add(id);
  }
}

/** The partition as it is after a change record. */
export function changePartition(
  old: PartitionRegistration,
  value: RecordValue<'PartitionChangeRecord'>,
): PartitionRegistration {
  const setsLeader = value.leader !== LEADER_UNCHANGED;
  const recovery = value.leaderRecoveryState;
  return {
    ...old,
    replicas: changedList(value.replicas, old.replicas),
    isr: changedList(value.isr, old.isr),
    removingReplicas: changedList(value.removingReplicas, old.removingReplicas),
    addingReplicas: changedList(value.addingReplicas, old.addingReplicas),
    eligibleLeaderReplicas: changedList(value.eligibleLeaderReplicas, old.eligibleLeaderReplicas),
    lastKnownElr: changedList(value.lastKnownElr, old.lastKnownElr),
    directories: changedList(value.directories, old.directories),
    leader: setsLeader ? value.leader : old.leader,
    leaderRecoveryState: recovery === RECOVERY_STATE_UNCHANGED ? old.leaderRecoveryState : recovery,
    leaderEpoch: setsLeader ? old.leaderEpoch + 1 : old.leaderEpoch,
    partitionEpoch: old.partitionEpoch + 1,
  };
}

function changedList<T extends number | string>(
  changed: readonly T[] | null,
  old: readonly T[],
): readonly T[] {
  return changed === null ? old : sharedList(changed);
}

/** Applies records in order; the new image stands at `lastOffset` and `epoch`. */
export function applyRecords(
  previous: MetadataImage,
  records: readonly PlacedRecord[],
  lastOffset: number,
  epoch: number,
): MetadataDelta {
  const builder = new ImageBuilder(previous);
  for (const { record, offset } of records) builder.apply(record, offset);
  return builder.build(lastOffset, epoch);
}
