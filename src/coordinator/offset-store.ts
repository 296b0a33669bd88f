/**
 * Committed offsets of the groups of one shard.
 *
 * Owned by the group shard; changed only by replaying records. Empty inner maps are removed, so
 * that memory and iteration follow what is committed.
 */
import type { CommittedOffset } from './group-records.ts';

/** Offsets of one group: by topic name, then partition. */
export type GroupOffsets = ReadonlyMap<string, ReadonlyMap<number, CommittedOffset>>;

const NO_OFFSETS: GroupOffsets = new Map();

/** All committed offsets of a shard. */
export class OffsetStore {
  readonly #groups = new Map<string, Map<string, Map<number, CommittedOffset>>>();

  put(groupId: string, topic: string, partition: number, value: CommittedOffset): void {
    let topics = this.#groups.get(groupId);
    if (topics === undefined) {
      topics = new Map();
      this.#groups.set(groupId, topics);
    }
    let partitions = topics.get(topic);
    if (partitions === undefined) {
      partitions = new Map();
      topics.set(topic, partitions);
    }
    partitions.set(partition, value);
  }

  remove(groupId: string, topic: string, partition: number): void {
    const topics = this.#groups.get(groupId);
    const partitions = topics?.get(topic);
    if (topics === undefined || partitions === undefined) return;
    partitions.delete(partition);
    if (partitions.size === 0) topics.delete(topic);
    if (topics.size === 0) this.#groups.delete(groupId);
  }

  get(groupId: string, topic: string, partition: number): CommittedOffset | undefined {
    return this.#groups.get(groupId)?.get(topic)?.get(partition);
  }

  group(groupId: string): GroupOffsets {
    return this.#groups.get(groupId) ?? NO_OFFSETS;
  }

  groupIds(): IterableIterator<string> {
    return this.#groups.keys();
  }
}
