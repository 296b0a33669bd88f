/**
 * The group coordinator in this process as the place that offsets are copied to (rule Y6).
 *
 * `__consumer_offsets` is made when there is a first offset to commit. Between the question what to
 * commit and the write nothing else runs, so a stop that began before is always seen. Groups that
 * another broker coordinates are answered NOT_COORDINATOR.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import {
  GROUP_METADATA_TOPIC,
  type GroupCoordinator,
} from '../../coordinator/group-coordinator.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import { errors } from '../../protocol/errors.ts';
import { partitionKey } from '../../storage/topic-partition.ts';
import type {
  CommitResult,
  FailedOffset,
  GroupOffsetSink,
  HeldGroup,
  HeldOffset,
  LowerResult,
  OffsetToCommit,
  PartitionHere,
} from './ports.ts';

/** OffsetCommit by topic id: a topic made anew meanwhile is not meant. */
const COMMIT_VERSION = 10;
/** OffsetFetch of several groups, topics by name. */
const FETCH_VERSION = 9;
/** DescribeGroups: the last version in which a group that does not exist is just Dead. */
const DESCRIBE_VERSION = 5;
/** States of a group without members. */
const WITHOUT_MEMBERS: ReadonlySet<string> = new Set(['Empty', 'Dead']);

const NO_GROUP: HeldGroup = { errorCode: 0, hasMembers: false, offsets: new Map() };

/** What {@link LocalGroupOffsetSink} uses. */
export interface LocalGroupOffsetSinkOptions {
  readonly groups: Pick<
    GroupCoordinator,
    'describeGroups' | 'fetchOffsets' | 'commitOffsets' | 'lowerOffsets'
  >;
  readonly image: () => MetadataImage;
  /** Makes `__consumer_offsets` if it is missing; 0 or an error code. */
  readonly ensureOffsetsTopic: () => Promise<number>;
}

/** See the file header. */
export class LocalGroupOffsetSink implements GroupOffsetSink {
  readonly #options: LocalGroupOffsetSinkOptions;

  constructor(options: LocalGroupOffsetSinkOptions) {
    this.#options = options;
  }

  #hasGroups(): boolean {
    return this.#options.image().topicsByName.has(GROUP_METADATA_TOPIC);
  }

  async read(groupIds: readonly string[]): Promise<ReadonlyMap<string, HeldGroup>> {
    if (!this.#hasGroups()) return new Map(groupIds.map((groupId) => [groupId, NO_GROUP]));
    const { groups } = this.#options;
    const [described, fetched] = await Promise.all([
      groups.describeGroups(
        { groups: [...groupIds], includeAuthorizedOperations: false },
        DESCRIBE_VERSION,
      ),
      groups.fetchOffsets(
        {
          groupId: '',
          topics: null,
          groups: groupIds.map((groupId) => ({
            groupId,
            memberId: null,
            memberEpoch: -1,
            topics: null,
          })),
          requireStable: false,
        },
        FETCH_VERSION,
      ),
    ]);
    const states = new Map(described.groups.map((group) => [group.groupId, group]));
    return new Map(
      fetched.groups.map(({ groupId, errorCode, topics }) => {
        const state = states.get(groupId);
        const offsets = new Map<string, HeldOffset>();
        for (const { name, partitions } of topics) {
          for (const { partitionIndex, committedOffset, metadata } of partitions) {
            const held = { offset: committedOffset, metadata: metadata ?? '' };
            offsets.set(partitionKey(name, partitionIndex), held);
          }
        }
        const hasMembers = !WITHOUT_MEMBERS.has(state?.groupState ?? '');
        return [groupId, { errorCode: errorCode || (state?.errorCode ?? 0), hasMembers, offsets }];
      }),
    );
  }

  async commit(groupId: string, offsets: () => readonly OffsetToCommit[]): Promise<CommitResult> {
    if (!this.#hasGroups()) {
      const errorCode = await this.#options.ensureOffsetsTopic();
      if (errorCode !== errors.NONE.code) return { kind: 'failed', errorCode };
    }
    const asked = offsets();
    if (asked.length === 0) return { kind: 'done', failed: [] };
    const { topics } = await this.#options.groups.commitOffsets(
      {
        groupId,
        generationIdOrMemberEpoch: -1,
        memberId: '',
        groupInstanceId: null,
        retentionTimeMs: -1,
        topics: byTopic(asked),
      },
      COMMIT_VERSION,
    );
    const names = new Map(asked.map(({ topic, topicId }) => [topicId, topic]));
    const failed = topics.flatMap(({ topicId, partitions }) =>
      partitions
        .filter(({ errorCode }) => errorCode !== errors.NONE.code)
        .map(({ partitionIndex, errorCode }) => ({
          topic: names.get(topicId) ?? '',
          partition: partitionIndex,
          errorCode,
        })),
    );
    return resultOf(failed);
  }

  lower(partition: PartitionHere, offset: number): Promise<LowerResult> {
    return this.#options.groups.lowerOffsets(partition, offset);
  }
}

/** The topics of an OffsetCommit request. */
export function byTopic(offsets: readonly OffsetToCommit[]) {
  const topics = new Map<string, OffsetToCommit[]>();
  for (const each of offsets) {
    const same = topics.get(each.topicId);
    if (same === undefined) topics.set(each.topicId, [each]);
    else same.push(each);
  }
  return [...topics.values()].map((same) => ({
    name: same[0]?.topic ?? '',
    topicId: same[0]?.topicId ?? ZERO_UUID,
    partitions: same.map(({ partition, offset, metadata }) => ({
      partitionIndex: partition,
      committedOffset: offset,
      // The epochs of the source mean nothing here, and a wrong one makes consumers wait (G27).
      committedLeaderEpoch: -1,
      committedMetadata: metadata,
    })),
  }));
}

/** What the errors of a commit's partitions say: a group with members refuses them all. */
export function resultOf(failed: readonly FailedOffset[]): CommitResult {
  const code = errors.UNKNOWN_MEMBER_ID.code;
  if (failed.some(({ errorCode }) => errorCode === code)) return { kind: 'members' };
  return { kind: 'done', failed };
}
