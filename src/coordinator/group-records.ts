/**
 * Bytes of the classic group and offset records in `__consumer_offsets`.
 *
 * Used by the group shard, to write and to replay. Written exactly as Apache Kafka 4.2 does: an
 * int16 record type before the key, an int16 version before the value (GroupMetadataValue 3, and
 * OffsetCommitValue 4, or 1 if the commit has its own retention); older versions are read, too.
 */
import { ByteReader } from '../base/bytes.ts';
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import { codec } from '../protocol/codec.ts';
import type { EncodableOf, Message } from '../protocol/schema.ts';
import type { ClassicGroup } from './classic-group.ts';
import { GroupMetadataKey, GroupMetadataValue } from './records/group-metadata.ts';
import { OffsetCommitKey, OffsetCommitValue } from './records/offset-commit.ts';
import type { CoordinatorRecord } from './runtime.ts';

const GROUP_METADATA_VALUE_VERSION = 3;
const OFFSET_COMMIT_VALUE_VERSION = 4;
/** The only value version that has an expire timestamp. */
const OFFSET_COMMIT_EXPIRE_VALUE_VERSION = 1;

/** Record type of offset commits before Kafka 0.9; same layout as type 1. */
const LEGACY_OFFSET_COMMIT_TYPE = 0;
const OFFSET_COMMIT_TYPE = 1;
const GROUP_METADATA_TYPE = 2;

/** An offset as committed; −1 stands for "none" in `leaderEpoch` and `expireTimestampMs`. */
export interface CommittedOffset {
  readonly offset: number;
  readonly leaderEpoch: number;
  readonly metadata: string;
  readonly commitTimestampMs: number;
  readonly expireTimestampMs: number;
  /** All zero when the committer did not know it. */
  readonly topicId: Uuid;
}

/** A record read back; `other` covers the types of group protocols not served here. */
export type GroupRecord =
  | {
      readonly type: 'offset';
      readonly groupId: string;
      readonly topic: string;
      readonly partition: number;
      readonly value: CommittedOffset | undefined;
    }
  | {
      readonly type: 'group';
      readonly groupId: string;
      readonly value: GroupMetadataValue | undefined;
    }
  | { readonly type: 'other'; readonly recordType: number };

function withInt16<M extends Message>(
  prefix: number,
  schema: M,
  version: number,
  value: EncodableOf<M>,
): Uint8Array {
  const body = codec(schema, version).encodeToBytes(value);
  const bytes = new Uint8Array(2 + body.length);
  new DataView(bytes.buffer).setInt16(0, prefix);
  bytes.set(body, 2);
  return bytes;
}

function offsetKey(group: string, topic: string, partition: number): Uint8Array {
  return withInt16(OFFSET_COMMIT_TYPE, OffsetCommitKey, 0, { group, topic, partition });
}

function groupKey(group: string): Uint8Array {
  return withInt16(GROUP_METADATA_TYPE, GroupMetadataKey, 0, { group });
}

/** Commits `value` for one partition. */
export function offsetRecord(
  groupId: string,
  topic: string,
  partition: number,
  value: CommittedOffset,
): CoordinatorRecord {
  const version =
    value.expireTimestampMs === -1
      ? OFFSET_COMMIT_VALUE_VERSION
      : OFFSET_COMMIT_EXPIRE_VALUE_VERSION;
  return {
    key: offsetKey(groupId, topic, partition),
    value: withInt16(version, OffsetCommitValue, version, {
      offset: value.offset,
      leaderEpoch: value.leaderEpoch,
      metadata: value.metadata,
      commitTimestamp: value.commitTimestampMs,
      expireTimestamp: value.expireTimestampMs,
      topicId: value.topicId,
    }),
  };
}

/** Removes the committed offset of one partition. */
export function offsetTombstone(
  groupId: string,
  topic: string,
  partition: number,
): CoordinatorRecord {
  return { key: offsetKey(groupId, topic, partition), value: null };
}

/** The group as it is now, with `assignments` by member id (absent: empty). */
export function groupRecord(
  group: ClassicGroup,
  assignments: ReadonlyMap<string, Uint8Array>,
): CoordinatorRecord {
  const members = [...group.members.values()].map((member) => ({
    memberId: member.memberId,
    groupInstanceId: member.groupInstanceId,
    clientId: member.clientId,
    clientHost: member.clientHost,
    rebalanceTimeout: member.rebalanceTimeoutMs,
    sessionTimeout: member.sessionTimeoutMs,
    subscription: group.metadataOf(member),
    assignment: assignments.get(member.memberId) ?? new Uint8Array(0),
  }));
  return groupValueRecord(group.groupId, {
    protocolType: group.protocolType ?? '',
    generation: group.generationId,
    protocol: group.protocolName,
    leader: group.leaderId,
    currentStateTimestamp: group.stateSinceMs,
    members,
  });
}

/** A group that was just created: generation 0, nobody in it yet. */
export function emptyGroupRecord(group: ClassicGroup): CoordinatorRecord {
  return groupValueRecord(group.groupId, {
    protocolType: '',
    generation: 0,
    protocol: null,
    leader: null,
    currentStateTimestamp: group.stateSinceMs,
    members: [],
  });
}

function groupValueRecord(
  groupId: string,
  value: EncodableOf<typeof GroupMetadataValue>,
): CoordinatorRecord {
  const version = GROUP_METADATA_VALUE_VERSION;
  return {
    key: groupKey(groupId),
    value: withInt16(version, GroupMetadataValue, version, value),
  };
}

/** Deletes the group. */
export function groupTombstone(groupId: string): CoordinatorRecord {
  return { key: groupKey(groupId), value: null };
}

/** Reads a record back; throws MalformedBytes. Byte fields are views of `key` and `value`. */
export function decodeGroupRecord(key: Uint8Array, value: Uint8Array | null): GroupRecord {
  const keyReader = new ByteReader(key);
  const recordType = keyReader.int16();
  switch (recordType) {
    case LEGACY_OFFSET_COMMIT_TYPE:
    case OFFSET_COMMIT_TYPE: {
      const { group, topic, partition } = codec(OffsetCommitKey, 0).read(keyReader);
      return { type: 'offset', groupId: group, topic, partition, value: decodeOffset(value) };
    }
    case GROUP_METADATA_TYPE: {
      const { group } = codec(GroupMetadataKey, 0).read(keyReader);
      return { type: 'group', groupId: group, value: decodeGroup(value) };
    }
    default:
      return { type: 'other', recordType };
  }
}

function decodeOffset(value: Uint8Array | null): CommittedOffset | undefined {
  if (value === null) return undefined;
  const reader = new ByteReader(value);
  const decoded = codec(OffsetCommitValue, reader.int16()).read(reader);
  return {
    offset: decoded.offset,
    leaderEpoch: decoded.leaderEpoch,
    metadata: decoded.metadata,
    commitTimestampMs: decoded.commitTimestamp,
    expireTimestampMs: decoded.expireTimestamp,
    topicId: decoded.topicId ?? ZERO_UUID,
  };
}

function decodeGroup(value: Uint8Array | null): GroupMetadataValue | undefined {
  if (value === null) return undefined;
  const reader = new ByteReader(value);
  return codec(GroupMetadataValue, reader.int16()).read(reader);
}
