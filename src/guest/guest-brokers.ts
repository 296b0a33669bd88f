/**
 * Who of a cluster's brokers is a guest, and where a mirror topic's replicas belong (G25).
 *
 * A guest says of itself that it is one: the BROKER config `twinlog.guest` of its id (G22), which
 * an Apache controller accepts and keeps. Everything here is a pure function of the metadata image:
 * the same brokers and the same topic give the same targets, so whoever repeats a step, after
 * whatever crash, comes to the same result.
 */
import { isActive } from '../metadata/decide.ts';
import {
  type BrokerRegistrationImage,
  ConfigResourceType,
  type MetadataImage,
} from '../metadata/image.ts';
import { murmur2 } from '../mirror/state-row.ts';

/** The BROKER config that makes a broker a guest; its value is `true`. */
export const GUEST_CONFIG = 'twinlog.guest';

/** The BROKER config of a guest in whose partitions Apache followers stay in sync (G19). */
export const GUEST_MAINTENANCE_CONFIG = 'twinlog.guest.maintenance';

/** The BROKER config of a guest that asks all guests to lift their cordons (G7). */
export const GUEST_UNCORDON_CONFIG = 'twinlog.guest.uncordon';

/** Whether a BROKER config that only guests have is `true`. */
export function guestFlag(image: MetadataImage, brokerId: number, name: string): boolean {
  return image.configs(ConfigResourceType.BROKER, String(brokerId)).get(name) === 'true';
}

/** Whether the broker of this id is a guest, registered or not. */
export function isGuest(image: MetadataImage, brokerId: number): boolean {
  return guestFlag(image, brokerId, GUEST_CONFIG);
}

function sortedBrokers(image: MetadataImage, guest: boolean): BrokerRegistrationImage[] {
  return [...image.brokers.values()]
    .filter(({ id }) => isGuest(image, id) === guest)
    .sort((a, b) => a.id - b.id);
}

/** The registered guests, by id. */
export function guests(image: MetadataImage): BrokerRegistrationImage[] {
  return sortedBrokers(image, true);
}

/** The registered brokers that are no guests, by id. */
export function apacheBrokers(image: MetadataImage): BrokerRegistrationImage[] {
  return sortedBrokers(image, false);
}

/** Whether the broker is registered, unfenced and not shutting down. */
export function isLive(image: MetadataImage, brokerId: number): boolean {
  return isActive(image.brokers.get(brokerId));
}

/** The other guests that are live, by id. */
export function otherLiveGuests(image: MetadataImage, brokerId: number): number[] {
  return guests(image).flatMap(({ id }) => (id !== brokerId && isLive(image, id) ? [id] : []));
}

/**
 * Whether Kafka refuses to name it in a creation or reassignment, though it be a replica already:
 * all its log directories are cordoned (KIP-1066), a guest's by itself (G7).
 */
export function isCordoned(image: MetadataImage, brokerId: number): boolean {
  const { logDirs = [], cordonedLogDirs = [] } = image.brokers.get(brokerId) ?? {};
  return logDirs.length > 0 && logDirs.every((directory) => cordonedLogDirs.includes(directory));
}

/** The brokers that are no guests and may be named, live or not, by id. */
export function uncordonedBrokers(image: MetadataImage): BrokerRegistrationImage[] {
  return apacheBrokers(image).filter(({ id }) => !isCordoned(image, id));
}

/** Those of them that are live. */
export function openBrokers(image: MetadataImage): BrokerRegistrationImage[] {
  return uncordonedBrokers(image).filter(({ id }) => isLive(image, id));
}

/** Which of these brokers must not be named, and what to do; undefined: all of them may be. */
export function cordonProblem(image: MetadataImage, ids: readonly number[]): string | undefined {
  const cordoned = ids.filter((id) => isCordoned(image, id));
  if (cordoned.length === 0) return undefined;
  const who = `broker(s) ${cordoned.join(', ')} are cordoned`;
  return `${who}: uncordon a log directory (cordoned.log.dirs)`;
}

/** Where the stride over the brokers starts for a topic: differs from topic to topic. */
export function topicSeed(topic: string): number {
  return murmur2(Buffer.from(topic, 'utf8')) & 0x7fffffff;
}

/** Brokers in an order in which neighbours are in different racks where possible. */
function alternateRacks(brokers: readonly BrokerRegistrationImage[]): BrokerRegistrationImage[] {
  const racks = new Map<string | null, BrokerRegistrationImage[]>();
  for (const broker of brokers) {
    const rack = racks.get(broker.rack);
    if (rack === undefined) racks.set(broker.rack, [broker]);
    else rack.push(broker);
  }
  const ordered: BrokerRegistrationImage[] = [];
  for (let i = 0; ordered.length < brokers.length; i++) {
    for (const rack of racks.values()) {
      const broker = rack[i];
      if (broker !== undefined) ordered.push(broker);
    }
  }
  return ordered;
}

/** What {@link spreadReplicas} is asked for. */
export interface SpreadWish {
  readonly partitions: number;
  /** Replicas per partition; fewer where there are fewer brokers. */
  readonly replicationFactor: number;
  /** See {@link topicSeed}. */
  readonly seed: number;
}

/**
 * Replica lists, leader first, for the partitions of one topic (G25): leaders go round the brokers,
 * the replicas of a partition are in as many racks as can be, and of what is left the brokers with
 * the least replicas are taken. Empty lists when there is no broker.
 */
export function spreadReplicas(
  brokers: readonly BrokerRegistrationImage[],
  { partitions, replicationFactor, seed }: SpreadWish,
): number[][] {
  const order = alternateRacks([...brokers].sort((a, b) => a.id - b.id));
  const load = new Map<number, number>();
  const lists: number[][] = [];
  for (let partition = 0; partition < partitions; partition++) {
    const chosen: BrokerRegistrationImage[] = [];
    const first = order[(seed + partition) % Math.max(order.length, 1)];
    if (first !== undefined && replicationFactor > 0) chosen.push(first);
    while (chosen.length < Math.min(replicationFactor, order.length)) {
      const shift = seed + partition + chosen.length + Math.floor(partition / order.length);
      chosen.push(nextReplica(order, chosen, load, shift));
    }
    for (const { id } of chosen) load.set(id, (load.get(id) ?? 0) + 1);
    lists.push(chosen.map(({ id }) => id));
  }
  return lists;
}

/** The broker in the least used rack, then with the least replicas, then next in turn. */
function nextReplica(
  order: readonly BrokerRegistrationImage[],
  chosen: readonly BrokerRegistrationImage[],
  load: ReadonlyMap<number, number>,
  shift: number,
): BrokerRegistrationImage {
  const rankOf = (broker: BrokerRegistrationImage): readonly [number, number] => [
    chosen.filter(({ rack }) => rack === broker.rack).length,
    load.get(broker.id) ?? 0,
  ];
  let best: BrokerRegistrationImage | undefined;
  let bestRank: readonly [number, number] = [Infinity, Infinity];
  for (let i = 0; i < order.length; i++) {
    const broker = order[(shift + i) % order.length] as BrokerRegistrationImage;
    if (chosen.includes(broker)) continue;
    const rank = rankOf(broker);
    const isBetter = rank[0] < bestRank[0] || (rank[0] === bestRank[0] && rank[1] < bestRank[1]);
    if (best !== undefined && !isBetter) continue;
    best = broker;
    bestRank = rank;
  }
  return best as BrokerRegistrationImage;
}

/**
 * Where each partition's replicas belong among the registered Apache brokers (G25); cordoned ones
 * are among them only where there are not enough others.
 */
export function topicTargets(
  image: MetadataImage,
  topic: string,
  partitions: number,
  replicationFactor: number,
): readonly (readonly number[])[] {
  const seed = topicSeed(topic);
  const named = uncordonedBrokers(image);
  const brokers = named.length >= replicationFactor ? named : apacheBrokers(image);
  return spreadReplicas(brokers, { partitions, replicationFactor, seed });
}
