/**
 * Who may be in the ISR of a partition that a guest leads (G18, G24).
 *
 * Given to the replica manager, asked at each follower's fetch; answers from memory. While a topic
 * is mirrored only guests are in sync, so that nobody but a guest can come to lead it. Others are
 * let in
 * - when the partition's stop is settled and it is being handed over (the handover tells which), or
 * - under the write lock: for the targets of an administrator's reassignment, until it is done, and
 *   for everyone in maintenance (G19).
 */
import type { Uuid } from '../../base/uuid.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  type PartitionRegistration,
} from '../../metadata/image.ts';
import type { IsrPolicy } from '../../replication/isr-policy.ts';
import { isGuest } from '../guest-brokers.ts';
import { isLocked } from './topic-settings.ts';

/** What a {@link GuestIsrRule} asks. */
export interface IsrRuleOptions {
  readonly image: () => MetadataImage;
  /** Followers stay in sync and topics stay locked (`twinlog guest maintenance on`). */
  readonly inMaintenance: () => boolean;
}

/** Whether a reassignment of the partition is under way. */
export function isMoving(partition: PartitionRegistration): boolean {
  return partition.addingReplicas.length > 0 || partition.removingReplicas.length > 0;
}

/** The replicas that a partition has, or will have when its reassignment is done. */
export function futureReplicas(partition: PartitionRegistration): readonly number[] {
  const { replicas, removingReplicas } = partition;
  return replicas.filter((id) => !removingReplicas.includes(id));
}

/** See the file header. */
export class GuestIsrRule implements IsrPolicy {
  readonly #options: IsrRuleOptions;
  /** Membership offsets of the rows that say so, by `topicId:partition`. */
  #handedOver: ReadonlyMap<string, number> = new Map();

  constructor(options: IsrRuleOptions) {
    this.#options = options;
  }

  /**
   * Partitions (`topicId:partition`) that are being handed over, with the membership offsets that
   * their rows serve; true: others than before.
   */
  handOver(partitions: ReadonlyMap<string, number>): boolean {
    const before = this.#handedOver;
    this.#handedOver = partitions;
    if (before.size !== partitions.size) return true;
    return [...partitions].some(([key, offset]) => before.get(key) !== offset);
  }

  mayJoin(topicId: Uuid, partition: number, replicaId: number): boolean {
    const image = this.#options.image();
    if (isGuest(image, replicaId)) return true;
    const topic = image.topicsById.get(topicId);
    if (topic === undefined) return false;
    const membership = image.membership(topic.name);
    if (membership === undefined) return true;
    const served = this.#handedOver.get(`${topicId}:${partition}`);
    // A row of a former membership says nothing about a topic that was added again.
    if (served !== undefined && (membership.removed || served >= membership.offset)) return true;
    if (membership.removed) return false;
    if (!isLocked(image.configs(ConfigResourceType.TOPIC, topic.name))) return false;
    if (this.#options.inMaintenance()) return true;
    const registration = topic.partitions.get(partition);
    if (registration === undefined || !isMoving(registration)) return false;
    return futureReplicas(registration).includes(replicaId);
  }
}
