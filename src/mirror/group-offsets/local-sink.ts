/**
 * The group coordinator in this process as the place that offsets are copied to (rule Y6).
 *
 * `__consumer_offsets` is made when there is a first offset to commit. Between the question what to
 * commit and the write nothing else runs, so a stop that began before is always seen. Groups that
 * another broker coordinates are answered NOT_COORDINATOR.
 */
import {
  GROUP_METADATA_TOPIC,
  type GroupCoordinator,
} from '../../coordinator/group-coordinator.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import { errors } from '../../protocol/errors.ts';
import { partitionKey } from '../../storage/topic-partition.ts';
import { byTopic, resultOf } from './commit.ts';
import type {
  CommitResult,
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
    const response = await this.#options.groups.commitOffsets(
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
    return resultOf(asked, response);
  }

  lower(partition: PartitionHere, offset: number): Promise<LowerResult> {
    return this.#options.groups.lowerOffsets(partition, offset);
  }
}
