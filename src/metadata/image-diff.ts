/**
 * Puts a whole new state in the place of an image, and says what is different.
 *
 * Used by the loader when a controller answers with a snapshot instead of the log (rule G1). What
 * is equal keeps its object, so that publishers and later deltas see only what really changed.
 */
import type { Uuid } from '../base/uuid.ts';
import {
  type BrokerRegistrationImage,
  type ConfigResource,
  ConfigResourceType,
  configKey,
  emptyImage,
  type MetadataImage,
  metadataImage,
  type PartitionRegistration,
  type TopicImage,
} from './image.ts';
import { applyRecords, type MetadataDelta } from './image-delta.ts';
import type { PlacedRecord } from './transaction-buffer.ts';

/** The delta from `previous` to what `records` make of nothing; it stands at `lastOffset`. */
export function replaceImage(
  previous: MetadataImage,
  records: readonly PlacedRecord[],
  lastOffset: number,
  epoch: number,
): MetadataDelta {
  const fresh = applyRecords(emptyImage(previous.clusterId), records, lastOffset, epoch).image;
  const topics = sharedTopics(previous, fresh);
  const brokers = sharedBrokers(previous, fresh);
  const image = metadataImage({
    offset: lastOffset,
    epoch,
    clusterId: fresh.clusterId,
    topicsByName: topics.byName,
    topicsById: topics.byId,
    brokers: brokers.all,
    features: fresh.features,
    nextProducerId: fresh.nextProducerId,
    configsByResource: fresh.configsByResource,
    memberships: fresh.memberships,
    security: fresh.security,
  });
  return {
    image,
    previous,
    changedTopics: topics.changed,
    deletedTopics: [...previous.topicsById.values()].filter(({ id }) => !topics.byId.has(id)),
    changedConfigs: changedConfigs(previous, fresh),
    changedBrokers: brokers.changed,
  };
}

function sharedTopics(previous: MetadataImage, fresh: MetadataImage) {
  const byName = new Map<string, TopicImage>();
  const byId = new Map<Uuid, TopicImage>();
  const changed = new Set<Uuid>();
  for (const topic of fresh.topicsById.values()) {
    const old = previous.topicsById.get(topic.id);
    const kept = old !== undefined && sameTopic(old, topic) ? old : topic;
    if (kept !== old) changed.add(topic.id);
    byName.set(topic.name, kept);
    byId.set(topic.id, kept);
  }
  return { byName, byId, changed };
}

function sameTopic(a: TopicImage, b: TopicImage): boolean {
  if (a.name !== b.name || a.partitions.size !== b.partitions.size) return false;
  for (const [index, partition] of a.partitions) {
    const other = b.partitions.get(index);
    if (other === undefined || !samePartition(partition, other)) return false;
  }
  return true;
}

function samePartition(a: PartitionRegistration, b: PartitionRegistration): boolean {
  return (
    a.partitionEpoch === b.partitionEpoch &&
    a.leaderEpoch === b.leaderEpoch &&
    a.leader === b.leader &&
    a.leaderRecoveryState === b.leaderRecoveryState &&
    sameList(a.replicas, b.replicas) &&
    sameList(a.isr, b.isr) &&
    sameList(a.removingReplicas, b.removingReplicas) &&
    sameList(a.addingReplicas, b.addingReplicas) &&
    sameList(a.eligibleLeaderReplicas, b.eligibleLeaderReplicas) &&
    sameList(a.lastKnownElr, b.lastKnownElr) &&
    sameList(a.directories, b.directories)
  );
}

function sameList<T>(a: readonly T[], b: readonly T[]): boolean {
  return a === b || (a.length === b.length && a.every((value, index) => value === b[index]));
}

function sharedBrokers(previous: MetadataImage, fresh: MetadataImage) {
  const all = new Map<number, BrokerRegistrationImage>();
  const changed = new Set<number>();
  for (const broker of fresh.brokers.values()) {
    const old = previous.brokers.get(broker.id);
    const isSame = old !== undefined && comparable(old) === comparable(broker);
    all.set(broker.id, isSame ? old : broker);
    if (!isSame) changed.add(broker.id);
  }
  for (const id of previous.brokers.keys()) if (!all.has(id)) changed.add(id);
  return { all, changed };
}

/** A snapshot lists features and listeners in an order of its own. */
function comparable(broker: BrokerRegistrationImage): string {
  const byName = (a: { readonly name: string }, b: { readonly name: string }): number =>
    a.name < b.name ? -1 : 1;
  const features = [...broker.features].sort(byName);
  return JSON.stringify({ ...broker, features, listeners: [...broker.listeners].sort(byName) });
}

/** Those of topics that are gone are not named, as in any other delta. */
function changedConfigs(previous: MetadataImage, fresh: MetadataImage): ConfigResource[] {
  const changed: ConfigResource[] = [];
  const keys = new Set([
    ...previous.configsByResource.keys(),
    ...fresh.configsByResource.keys(),
    ...[...previous.memberships.keys(), ...fresh.memberships.keys()].map((topic) =>
      configKey(ConfigResourceType.TOPIC, topic),
    ),
  ]);
  for (const key of keys) {
    const at = key.indexOf(':');
    const resource = { type: Number(key.slice(0, at)), name: key.slice(at + 1) };
    if (isOfGoneTopic(previous, fresh, resource)) continue;
    if (!sameConfigs(previous, fresh, resource)) changed.push(resource);
  }
  return changed;
}

function isOfGoneTopic(
  previous: MetadataImage,
  fresh: MetadataImage,
  { type, name }: ConfigResource,
): boolean {
  if (type !== ConfigResourceType.TOPIC) return false;
  return previous.topicsByName.has(name) && !fresh.topicsByName.has(name);
}

function sameConfigs(a: MetadataImage, b: MetadataImage, { type, name }: ConfigResource): boolean {
  if (type === ConfigResourceType.TOPIC) {
    const [one, other] = [a.membership(name), b.membership(name)];
    const isSame =
      one?.mirror === other?.mirror &&
      one?.removed === other?.removed &&
      one?.offset === other?.offset;
    if (!isSame) return false;
  }
  const [one, other] = [a.configs(type, name), b.configs(type, name)];
  if (one.size !== other.size) return false;
  for (const [key, value] of one) if (other.get(key) !== value) return false;
  return true;
}
