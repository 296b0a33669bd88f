/**
 * Which partitions this broker holds, by name and by topic id, and why others are not here.
 *
 * Filled by `ReplicaManager`; read by every request. Both maps lead to the same objects.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import { emptyImage, type MetadataImage, type PartitionRegistration } from '../metadata/image.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { FetchSource } from './fetch-set.ts';
import {
  type CurrentLeader,
  type FetchPartition,
  type FetchResult,
  fetchFailure,
} from './fetch-types.ts';
import type { Partition } from './partition.ts';

/** Names a partition in a request: by topic id unless that is zero, else by name. */
export interface PartitionKey {
  readonly topic: string;
  readonly topicId: Uuid;
  readonly partition: number;
}

type PartitionsOfTopic = Map<number, Partition>;

/** See the file header. */
export class PartitionTable implements FetchSource {
  readonly #byName = new Map<string, PartitionsOfTopic>();
  readonly #byId = new Map<Uuid, PartitionsOfTopic>();
  /** Partitions whose log could not be opened: `topicId:partition`. */
  readonly #offline = new Set<string>();
  #image: MetadataImage = emptyImage('');

  /** The metadata as last published. */
  get image(): MetadataImage {
    return this.#image;
  }

  useImage(image: MetadataImage): void {
    this.#image = image;
  }

  byName(topic: string, partition: number): Partition | undefined {
    return this.#byName.get(topic)?.get(partition);
  }

  byId(topicId: Uuid, partition: number): Partition | undefined {
    return this.#byId.get(topicId)?.get(partition);
  }

  /** The partitions held of a topic; a copy. */
  ofTopic(topicId: Uuid): Partition[] {
    return [...(this.#byId.get(topicId)?.values() ?? [])];
  }

  *all(): IterableIterator<Partition> {
    for (const partitions of this.#byId.values()) yield* partitions.values();
  }

  add(partition: Partition): void {
    let partitions = this.#byId.get(partition.topicId);
    if (partitions === undefined) {
      partitions = new Map();
      this.#byId.set(partition.topicId, partitions);
      this.#byName.set(partition.topic, partitions);
    }
    partitions.set(partition.partition, partition);
    this.#offline.delete(offlineKey(partition.topicId, partition.partition));
  }

  delete(partition: Partition): void {
    const partitions = this.#byId.get(partition.topicId);
    partitions?.delete(partition.partition);
    if (partitions?.size !== 0) return;
    this.#byId.delete(partition.topicId);
    if (this.#byName.get(partition.topic) === partitions) this.#byName.delete(partition.topic);
  }

  /** The partition belongs here but its log cannot be opened. */
  markOffline(topicId: Uuid, partition: number): void {
    this.#offline.add(offlineKey(topicId, partition));
  }

  isOffline(topicId: Uuid, partition: number): boolean {
    return this.#offline.has(offlineKey(topicId, partition));
  }

  forgetOffline(topicId: Uuid, partition: number): void {
    this.#offline.delete(offlineKey(topicId, partition));
  }

  find(key: PartitionKey): Partition | undefined {
    if (key.topicId !== ZERO_UUID) return this.byId(key.topicId, key.partition);
    return this.byName(key.topic, key.partition);
  }

  missing(request: FetchPartition): FetchResult {
    return fetchFailure(request, this.missingError(request), this.currentLeader(request));
  }

  /** Who leads by the metadata; undefined for a partition that does not exist. */
  currentLeader(key: PartitionKey): CurrentLeader | undefined {
    const registration = this.#registration(key);
    if (registration === undefined) return undefined;
    return { leaderId: registration.leader, leaderEpoch: registration.leaderEpoch };
  }

  /**
   * Why a partition is not here: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR,
   * or NOT_LEADER_OR_FOLLOWER.
   */
  missingError(key: PartitionKey): ErrorCode {
    const registration = this.#registration(key);
    if (registration !== undefined) {
      const offline = this.isOffline(registration.topicId, key.partition);
      return offline ? errors.KAFKA_STORAGE_ERROR.code : errors.NOT_LEADER_OR_FOLLOWER.code;
    }
    if (key.topicId !== ZERO_UUID && !this.#image.topicsById.has(key.topicId)) {
      return errors.UNKNOWN_TOPIC_ID.code;
    }
    return errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  }

  #registration(key: PartitionKey): PartitionRegistration | undefined {
    const topic =
      key.topicId === ZERO_UUID
        ? this.#image.topicsByName.get(key.topic)
        : this.#image.topicsById.get(key.topicId);
    return topic?.partitions.get(key.partition);
  }
}

function offlineKey(topicId: Uuid, partition: number): string {
  return `${topicId}:${partition}`;
}
