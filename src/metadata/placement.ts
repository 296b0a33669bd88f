/**
 * Chooses replicas for new partitions, and checks those an administrator chose.
 *
 * Used by the decide functions that create partitions. Automatic placement strides over the
 * brokers, alternating between racks, so that leaders and racks are spread; a fenced broker gets a
 * replica only when there are not enough others, and never the first one.
 */
import type { Uuid } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import { isActive, isRefusal, type Refusal, refuse } from './decide.ts';
import {
  type BrokerRegistrationImage,
  type MetadataImage,
  NO_LEADER,
  UNASSIGNED_DIRECTORY,
} from './image.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';

/** Brokers in an order in which neighbours are in different racks where possible. */
function alternateRacks(brokers: readonly BrokerRegistrationImage[]): BrokerRegistrationImage[] {
  const racks = new Map<string | null, BrokerRegistrationImage[]>();
  for (const broker of [...brokers].sort((a, b) => a.id - b.id)) {
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

function rotate<T>(values: readonly T[], by: number): T[] {
  const start = by % values.length;
  return [...values.slice(start), ...values.slice(0, start)];
}

/** What an automatic placement has to satisfy. */
export interface PlacementWish {
  /** Index of the first new partition. */
  readonly firstPartition: number;
  readonly count: number;
  readonly replicationFactor: number;
  /** Where the stride starts: differs from topic to topic, so that leaders spread. */
  readonly seed: number;
  /** Mirror topics use active brokers only (rule A1). */
  readonly activeOnly: boolean;
}

/** Replica lists for new partitions, in order. */
export function placeReplicas(image: MetadataImage, wish: PlacementWish): number[][] | Refusal {
  const { replicationFactor, count } = wish;
  const brokers = [...image.brokers.values()];
  const active = alternateRacks(brokers.filter(isActive));
  const inactive = wish.activeOnly ? [] : brokers.filter((broker) => !isActive(broker));
  const error = ErrorCode.INVALID_REPLICATION_FACTOR;
  const usable = active.length + inactive.length;
  if (replicationFactor > usable) {
    const what = wish.activeOnly ? 'active' : 'registered';
    return refuse(
      error,
      `Replication factor ${replicationFactor} needs more than the ${usable} ${what} broker(s).`,
    );
  }
  if (active.length === 0) return refuse(error, 'No broker is active: all are fenced.');
  const assignments: number[][] = [];
  for (let i = 0; i < count; i++) {
    const first = wish.seed + wish.firstPartition + i;
    const order = [...rotate(active, first), ...inactive];
    assignments.push(order.slice(0, replicationFactor).map((broker) => broker.id));
  }
  return assignments;
}

/** Checks the replicas that a request names for one partition. */
export function checkAssignment(
  image: MetadataImage,
  partition: number,
  replicas: readonly number[],
  allActive: boolean,
): Refusal | undefined {
  const error = ErrorCode.INVALID_REPLICA_ASSIGNMENT;
  const of = `The manual assignment of partition ${partition}`;
  if (replicas.length === 0) return refuse(error, `${of} has no replica.`);
  if (new Set(replicas).size !== replicas.length) {
    return refuse(error, `${of} names a broker more than once: ${replicas.join(', ')}.`);
  }
  const unknown = replicas.find((id) => !image.brokers.has(id));
  if (unknown !== undefined) {
    return refuse(error, `${of} names broker ${unknown}, which is not registered.`);
  }
  const inactive = replicas.filter((id) => !isActive(image.brokers.get(id)));
  if (inactive.length === replicas.length || (allActive && inactive.length > 0)) {
    return refuse(error, `${of} names fenced or stopping broker(s): ${inactive.join(', ')}.`);
  }
  return undefined;
}

/** The record of a new partition: its in-sync replicas are the active ones, the first leads. */
export function newPartitionRecord(
  image: MetadataImage,
  topicId: Uuid,
  partition: number,
  replicas: readonly number[],
): MetadataRecord {
  const isr = replicas.filter((id) => isActive(image.brokers.get(id)));
  return metadataRecord('PartitionRecord', {
    partitionId: partition,
    topicId,
    replicas,
    isr,
    removingReplicas: [],
    addingReplicas: [],
    leader: isr[0] ?? NO_LEADER,
    leaderEpoch: 0,
    partitionEpoch: 0,
    directories: replicas.map((id) => defaultDirectory(image, id)),
  });
}

/** The broker's log directory when it has exactly one. */
function defaultDirectory(image: MetadataImage, brokerId: number): Uuid {
  const logDirs = image.brokers.get(brokerId)?.logDirs ?? [];
  return logDirs.length === 1 ? (logDirs[0] as Uuid) : UNASSIGNED_DIRECTORY;
}

/** Replica lists for new partitions: those requested, or placed automatically. */
export function assignReplicas(
  image: MetadataImage,
  wish: PlacementWish,
  manual: readonly (readonly number[])[] | undefined,
): readonly (readonly number[])[] | Refusal {
  if (manual === undefined) return placeReplicas(image, wish);
  for (const [index, replicas] of manual.entries()) {
    const problem = checkAssignment(image, wish.firstPartition + index, replicas, wish.activeOnly);
    if (isRefusal(problem)) return problem;
    if (replicas.length !== wish.replicationFactor) {
      return refuse(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        `The manual assignment gives partition ${wish.firstPartition + index} ` +
          `${replicas.length} replica(s), others of the topic have ${wish.replicationFactor}.`,
      );
    }
  }
  return manual;
}
