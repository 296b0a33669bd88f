/**
 * Metadata records about topics and their partitions.
 *
 * In the log a frame version, the record type (`apiKey`) and the record version precede each.
 */
import {
  array,
  int8,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  tagged,
  uuid,
} from '../../protocol/schema.ts';

/** Metadata record type 2. */
export const TopicRecord = message({
  apiKey: 2,
  name: 'TopicRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    name: string('0+'),
    topicId: uuid('0+'),
  },
});
/** A decoded {@link TopicRecord}. */
export type TopicRecord = MessageOf<typeof TopicRecord>;

/** Metadata record type 3. */
export const PartitionRecord = message({
  apiKey: 3,
  name: 'PartitionRecord',
  type: 'metadata',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    partitionId: int32('0+', { default: -1 }),
    topicId: uuid('0+'),
    replicas: array('0+', int32),
    isr: array('0+', int32),
    removingReplicas: array('0+', int32),
    addingReplicas: array('0+', int32),
    leader: int32('0+', { default: -1 }),
    leaderRecoveryState: tagged(int8('0+', { default: 0 }), 0, '0+'),
    leaderEpoch: int32('0+', { default: -1 }),
    partitionEpoch: int32('0+', { default: -1 }),
    directories: array('1+', uuid),
    eligibleLeaderReplicas: tagged(nullable(array('2+', int32), '2+', { default: null }), 1, '2+'),
    lastKnownElr: tagged(nullable(array('2+', int32), '2+', { default: null }), 2, '2+'),
  },
});
/** A decoded {@link PartitionRecord}. */
export type PartitionRecord = MessageOf<typeof PartitionRecord>;

/** Metadata record type 5. */
export const PartitionChangeRecord = message({
  apiKey: 5,
  name: 'PartitionChangeRecord',
  type: 'metadata',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    partitionId: int32('0+', { default: -1 }),
    topicId: uuid('0+'),
    isr: tagged(nullable(array('0+', int32), '0+', { default: null }), 0, '0+'),
    leader: tagged(int32('0+', { default: -2 }), 1, '0+'),
    replicas: tagged(nullable(array('0+', int32), '0+', { default: null }), 2, '0+'),
    removingReplicas: tagged(nullable(array('0+', int32), '0+', { default: null }), 3, '0+'),
    addingReplicas: tagged(nullable(array('0+', int32), '0+', { default: null }), 4, '0+'),
    leaderRecoveryState: tagged(int8('0+', { default: -1 }), 5, '0+'),
    directories: tagged(nullable(array('1+', uuid), '1+', { default: null }), 8, '1+'),
    eligibleLeaderReplicas: tagged(nullable(array('2+', int32), '2+', { default: null }), 6, '2+'),
    lastKnownElr: tagged(nullable(array('2+', int32), '2+', { default: null }), 7, '2+'),
  },
});
/** A decoded {@link PartitionChangeRecord}. */
export type PartitionChangeRecord = MessageOf<typeof PartitionChangeRecord>;

/** Metadata record type 9. */
export const RemoveTopicRecord = message({
  apiKey: 9,
  name: 'RemoveTopicRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    topicId: uuid('0+'),
  },
});
/** A decoded {@link RemoveTopicRecord}. */
export type RemoveTopicRecord = MessageOf<typeof RemoveTopicRecord>;

/** Metadata record type 28. An empty name means every topic. */
export const ClearElrRecord = message({
  apiKey: 28,
  name: 'ClearElrRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    topicName: string('0+'),
  },
});
/** A decoded {@link ClearElrRecord}. */
export type ClearElrRecord = MessageOf<typeof ClearElrRecord>;
