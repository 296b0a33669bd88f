/**
 * Tells the group coordinator what it must know of leadership and of deleted topics.
 *
 * Built by `broker.ts`: the listener goes to the replica manager, the publisher to the metadata
 * loader. Only partitions of the coordinator's own internal topic are passed on.
 */
import { GROUP_METADATA_TOPIC, type GroupCoordinator } from '../coordinator/group-coordinator.ts';
import type { MetadataDelta } from '../metadata/image-delta.ts';
import type { MetadataPublisher } from '../metadata/metadata-loader.ts';
import type { Partition } from '../replication/partition.ts';
import type { LeadershipListener } from '../replication/replica-manager.ts';
import type { TopicPartition } from '../storage/topic-partition.ts';

/** The part of a coordinator that follows leadership. */
export interface LedByPartition {
  onBecomeLeader(partition: number, leaderEpoch: number): void;
  onLoseLeadership(partition: number): void;
}

/** Forwards the leadership of one internal topic to its coordinator. */
export function coordinatorLeadership(
  internalTopic: string,
  coordinator: LedByPartition,
): LeadershipListener {
  return {
    onBecomeLeader: ({ topicPartition, leaderEpoch }: Partition) => {
      if (topicPartition.topic !== internalTopic) return;
      coordinator.onBecomeLeader(topicPartition.partition, leaderEpoch);
    },
    onLoseLeadership: ({ topic, partition }: TopicPartition) => {
      if (topic === internalTopic) coordinator.onLoseLeadership(partition);
    },
  };
}

/** Removes the committed offsets of deleted topics. */
export function deletedTopicsPublisher(groups: GroupCoordinator): MetadataPublisher {
  return {
    name: 'deleted topics',
    publish: ({ deletedTopics }: MetadataDelta) => {
      if (deletedTopics.length === 0) return;
      void groups.onTopicsDeleted(deletedTopics.map(({ name }) => name));
    },
  };
}

/** Leadership of `__consumer_offsets`. */
export function groupLeadership(groups: GroupCoordinator): LeadershipListener {
  return coordinatorLeadership(GROUP_METADATA_TOPIC, groups);
}
