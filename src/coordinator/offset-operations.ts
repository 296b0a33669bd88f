/**
 * Committing, reading, deleting and expiring the offsets of the groups of one shard.
 *
 * Owned by the group shard. Functions named `decide…` return records and change nothing; topic
 * names and ids are resolved by the coordinator before. Invariants:
 * - While a group has members only they commit, in their generation; anybody may commit to an
 *   empty group with generation −1, which creates it (a simple group).
 * - An offset committed for another topic id under the same name is as good as absent.
 * - Offsets of subscribed topics neither expire nor can be deleted.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { OffsetCommitRequest } from '../protocol/messages/08-offset-commit.ts';
import type { ClassicGroup } from './classic-group.ts';
import { memberError } from './classic-membership.ts';
import type { GroupConfig } from './group-config.ts';
import { type CommittedOffset, offsetRecord, offsetTombstone } from './group-records.ts';
import type { OffsetStore } from './offset-store.ts';
import type { CoordinatorRecord } from './runtime.ts';

/** From this OffsetCommit version on a missing group is GROUP_ID_NOT_FOUND. */
const GROUP_NOT_FOUND_VERSION = 9;

type CommitTopic = OffsetCommitRequest['topics'][number];
type CommitPartition = CommitTopic['partitions'][number];

/** Whether this member may commit; 0 or the reason why not. */
export function commitError(
  group: ClassicGroup | undefined,
  request: OffsetCommitRequest,
  version: number,
): ErrorCode {
  const { memberId, groupInstanceId, generationIdOrMemberEpoch: generationId } = request;
  if (group === undefined) {
    if (generationId < 0) return errors.NONE.code;
    return version >= GROUP_NOT_FOUND_VERSION
      ? errors.GROUP_ID_NOT_FOUND.code
      : errors.ILLEGAL_GENERATION.code;
  }
  if (group.isInState('Dead')) return errors.COORDINATOR_NOT_AVAILABLE.code;
  if (generationId < 0 && group.isInState('Empty')) return errors.NONE.code;
  if (generationId < 0 && memberId === '' && groupInstanceId === null) {
    return errors.UNKNOWN_MEMBER_ID.code;
  }
  const error = memberError(group, memberId, groupInstanceId);
  if (error !== errors.NONE.code) return error;
  if (generationId !== group.generationId) return errors.ILLEGAL_GENERATION.code;
  // The member knows the new generation but not its assignment yet.
  if (group.isInState('CompletingRebalance')) return errors.REBALANCE_IN_PROGRESS.code;
  return errors.NONE.code;
}

/** Records and per-partition errors of a commit that is allowed. */
export function decideCommit(
  request: OffsetCommitRequest,
  config: GroupConfig,
  nowMs: number,
): { records: CoordinatorRecord[]; topics: CommitResult[] } {
  const records: CoordinatorRecord[] = [];
  const { retentionTimeMs } = request;
  const expireTimestampMs = retentionTimeMs === -1 ? -1 : nowMs + retentionTimeMs;
  const topics = request.topics.map((topic) => ({
    name: topic.name,
    topicId: topic.topicId,
    partitions: topic.partitions.map((partition) => {
      const errorCode = metadataError(partition, config);
      if (errorCode === errors.NONE.code) {
        const value = {
          offset: partition.committedOffset,
          leaderEpoch: partition.committedLeaderEpoch,
          metadata: partition.committedMetadata ?? '',
          commitTimestampMs: nowMs,
          expireTimestampMs,
          topicId: topic.topicId,
        };
        records.push(offsetRecord(request.groupId, topic.name, partition.partitionIndex, value));
      }
      return { partitionIndex: partition.partitionIndex, errorCode };
    }),
  }));
  return { records, topics };
}

/** One topic of an OffsetCommit answer. */
export interface CommitResult {
  readonly name: string;
  readonly topicId: CommitTopic['topicId'];
  readonly partitions: { readonly partitionIndex: number; readonly errorCode: ErrorCode }[];
}

function metadataError(partition: CommitPartition, config: GroupConfig): ErrorCode {
  const length = partition.committedMetadata?.length ?? 0;
  return length > config.offsetMetadataMaxBytes
    ? errors.OFFSET_METADATA_TOO_LARGE.code
    : errors.NONE.code;
}

/** Whether an offset was committed for a topic of another id (all zero: unknown, matches any). */
export function isOfOtherTopic(
  offset: CommittedOffset,
  topicId: CommittedOffset['topicId'],
): boolean {
  return topicId !== ZERO_UUID && offset.topicId !== ZERO_UUID && offset.topicId !== topicId;
}

/** Tombstones of all offsets of a group. */
export function decideDeleteAllOffsets(offsets: OffsetStore, groupId: string): CoordinatorRecord[] {
  const records: CoordinatorRecord[] = [];
  for (const [topic, partitions] of offsets.group(groupId)) {
    for (const partition of partitions.keys()) {
      records.push(offsetTombstone(groupId, topic, partition));
    }
  }
  return records;
}

/** Up to `limit` tombstones of offsets of these topics, in whatever group. */
export function decideDeleteTopics(
  offsets: OffsetStore,
  topics: ReadonlySet<string>,
  limit: number,
): CoordinatorRecord[] {
  const records: CoordinatorRecord[] = [];
  for (const groupId of offsets.groupIds()) {
    for (const [topic, partitions] of offsets.group(groupId)) {
      if (!topics.has(topic)) continue;
      for (const partition of partitions.keys()) {
        if (records.length === limit) return records;
        records.push(offsetTombstone(groupId, topic, partition));
      }
    }
  }
  return records;
}

/** One partition, by name and the id that its topic has now. */
export interface LoweredPartition {
  readonly topic: string;
  readonly topicId: CommittedOffset['topicId'];
  readonly partition: number;
}

/** A group's offset that was above a limit, and is that limit now. */
export interface LoweredGroupOffset {
  readonly groupId: string;
  readonly from: number;
}

/** Up to `limit` offsets of a partition above `offset`, in whatever group, become `offset` (B1). */
export function decideLowerOffsets(
  offsets: OffsetStore,
  { topic, topicId, partition }: LoweredPartition,
  offset: number,
  limit: number,
): { records: CoordinatorRecord[]; lowered: LoweredGroupOffset[] } {
  const records: CoordinatorRecord[] = [];
  const lowered: LoweredGroupOffset[] = [];
  for (const groupId of offsets.groupIds()) {
    const committed = offsets.get(groupId, topic, partition);
    if (committed === undefined || committed.offset <= offset) continue;
    if (isOfOtherTopic(committed, topicId)) continue;
    if (lowered.length === limit) break;
    // The epoch was that of a record which is not there any more.
    const value = { ...committed, offset, leaderEpoch: -1 };
    records.push(offsetRecord(groupId, topic, partition, value));
    lowered.push({ groupId, from: committed.offset });
  }
  return { records, lowered };
}

/** When the retention of an offset began; undefined while it does not run at all. */
function retentionStartMs(group: ClassicGroup, offset: CommittedOffset): number | undefined {
  if (group.protocolType === null) return offset.commitTimestampMs;
  if (group.isInState('Empty')) {
    return group.stateSinceMs === -1 ? offset.commitTimestampMs : group.stateSinceMs;
  }
  const isKnownConsumer = group.usesConsumerProtocol && group.subscribedTopics !== undefined;
  return isKnownConsumer && group.isInState('Stable') ? offset.commitTimestampMs : undefined;
}

/** Tombstones of the group's expired offsets, and whether that is all it has. */
export function decideExpireOffsets(
  offsets: OffsetStore,
  group: ClassicGroup,
  retentionMs: number,
  nowMs: number,
): { records: CoordinatorRecord[]; all: boolean } {
  const records: CoordinatorRecord[] = [];
  let all = true;
  for (const [topic, partitions] of offsets.group(group.groupId)) {
    const subscribed = group.isSubscribedTo(topic);
    for (const [partition, offset] of partitions) {
      const startMs = retentionStartMs(group, offset);
      const expiresMs =
        offset.expireTimestampMs === -1
          ? (startMs ?? Number.POSITIVE_INFINITY) + retentionMs
          : offset.expireTimestampMs;
      if (subscribed || startMs === undefined || nowMs < expiresMs) all = false;
      else records.push(offsetTombstone(group.groupId, topic, partition));
    }
  }
  return { records, all };
}
