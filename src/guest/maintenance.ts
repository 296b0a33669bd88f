/**
 * Lets Apache followers stay in sync with what guests lead, for as long as a rolling restart takes
 * (G18, G19): what `twinlog guest maintenance on|off` sets, and what it waits for.
 *
 * Pure but for the one request. The guests' jobs do the work: they lock the mirror topics, then
 * admit followers; afterwards they take the followers out, then lift the lock. Whoever waits looks
 * at the metadata alone, so that a controller or guest that changes meanwhile changes nothing.
 */
import {
  ConfigResourceType,
  type MetadataImage,
  NO_LEADER,
  type TopicImage,
} from '../metadata/image.ts';
import {
  GUEST_MAINTENANCE_CONFIG,
  guestFlag,
  guests,
  isCordoned,
  isGuest,
  isLive,
} from './guest-brokers.ts';
import { setGuestFlag } from './guest-flags.ts';
import { type JobController, nameOf } from './jobs/job-ports.ts';
import { isLocked } from './jobs/topic-settings.ts';

/** A partition that is not yet as it shall be, and why. */
export interface MaintenanceWait {
  readonly partition: string;
  readonly reason: string;
}

/** How far it is. */
export interface MaintenanceProgress {
  /** Partitions of mirror topics. */
  readonly partitions: number;
  readonly waits: readonly MaintenanceWait[];
}

/** The guests that the setting is for: all of them, or the named; a sentence when one is none. */
export function maintenanceGuests(
  image: MetadataImage,
  nodeIds: readonly number[],
): { readonly ids: readonly number[] } | { readonly problem: string } {
  const all = guests(image).map(({ id }) => id);
  if (all.length === 0) return { problem: 'The cluster has no guest.' };
  const strangers = nodeIds.filter((id) => !all.includes(id));
  if (strangers.length > 0) {
    const problem = `Not a guest: ${strangers.join(', ')}. The guests are ${all.join(', ')}.`;
    return { problem };
  }
  return { ids: nodeIds.length > 0 ? nodeIds : all };
}

/** Sets or clears it; answers why it could not be, as a sentence. */
export async function setMaintenance(
  controller: JobController,
  image: MetadataImage,
  ids: readonly number[],
  on: boolean,
): Promise<string | undefined> {
  const changed = ids.filter((id) => guestFlag(image, id, GUEST_MAINTENANCE_CONFIG) !== on);
  if (changed.length === 0) return undefined;
  return await setGuestFlag(controller, changed, GUEST_MAINTENANCE_CONFIG, on);
}

/** What is not yet as it shall be while maintenance is on, or after it. */
export function maintenanceProgress(
  image: MetadataImage,
  ids: readonly number[],
  on: boolean,
): MaintenanceProgress {
  const waits: MaintenanceWait[] = [];
  let partitions = 0;
  for (const topic of image.topicsByName.values()) {
    if (image.membership(topic.name)?.removed !== false) continue;
    const reasons = on ? waitsOn(image, topic, ids) : waitsOff(image, topic, ids);
    partitions += topic.partitions.size;
    for (const [partition, reason] of reasons) {
      waits.push({ partition: nameOf({ topic: topic.name, partition }), reason });
    }
  }
  return { partitions, waits };
}

/** Whether the partition is led by one of the guests in question, or by none. */
function concerns(image: MetadataImage, leader: number, ids: readonly number[]): boolean {
  return !isGuest(image, leader) || ids.includes(leader);
}

function waitsOn(
  image: MetadataImage,
  topic: TopicImage,
  ids: readonly number[],
): Map<number, string> {
  const waits = new Map<number, string>();
  const isOpen = !isLocked(image.configs(ConfigResourceType.TOPIC, topic.name));
  for (const [index, { leader, replicas, isr }] of topic.partitions) {
    if (!concerns(image, leader, ids)) continue;
    const live = replicas.filter((id) => isLive(image, id));
    const missing = live.filter((id) => !isr.includes(id));
    const cordoned = live.filter((id) => isGuest(image, id) && isCordoned(image, id));
    if (leader === NO_LEADER) waits.set(index, 'it has no leader: start its guest');
    else if (isOpen) waits.set(index, 'its topic is not locked against writers yet');
    else if (missing.length > 0) waits.set(index, `not in sync: broker(s) ${missing.join(', ')}`);
    else if (cordoned.length > 0) waits.set(index, `cordoned: guest(s) ${cordoned.join(', ')}`);
  }
  return waits;
}

function waitsOff(
  image: MetadataImage,
  topic: TopicImage,
  ids: readonly number[],
): Map<number, string> {
  const waits = new Map<number, string>();
  const isClosed = isLocked(image.configs(ConfigResourceType.TOPIC, topic.name));
  for (const [index, { leader, isr }] of topic.partitions) {
    if (!concerns(image, leader, ids)) continue;
    const others = isr.filter((id) => !isGuest(image, id));
    if (leader === NO_LEADER) waits.set(index, 'it has no leader: start its guest');
    else if (!isGuest(image, leader)) waits.set(index, `broker ${leader} leads it, no guest`);
    else if (others.length > 0) waits.set(index, `still in sync: broker(s) ${others.join(', ')}`);
    else if (isClosed) waits.set(index, 'the lock of its topic is not lifted yet');
  }
  return waits;
}

/** Partitions of any topic that lack a replica in their ISR: what a rolling restart waits for. */
export function underReplicated(image: MetadataImage): string[] {
  const names: string[] = [];
  for (const { name: topic, partitions } of image.topicsByName.values()) {
    for (const [partition, { replicas, isr }] of partitions) {
      if (isr.length < replicas.length) names.push(nameOf({ topic, partition }));
    }
  }
  return names;
}
