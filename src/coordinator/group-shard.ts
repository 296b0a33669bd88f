/**
 * The groups and offsets of one partition of `__consumer_offsets`.
 *
 * Made by the group coordinator for each partition it leads, run by the coordinator runtime.
 *
 * - Offsets and the existence of groups follow the log: they change in `replay` only.
 * - Members of classic groups are soft state ahead of the log. A group record is what a restart
 *   finds, so it is applied while loading and not on the broker that wrote it; after a load every
 *   member has one session timeout to show up again.
 * - Timers exist only for groups with members, and one for expiry while there is any group.
 */
import type { Runtime } from '../io/runtime.ts';
import { errors } from '../protocol/errors.ts';
import type {
  OffsetCommitRequest,
  OffsetCommitResponse,
} from '../protocol/messages/08-offset-commit.ts';
import type { HeartbeatRequest } from '../protocol/messages/12-heartbeat.ts';
import type { LeaveGroupRequest, LeaveGroupResponse } from '../protocol/messages/13-leave-group.ts';
import type { SyncGroupRequest, SyncGroupResponse } from '../protocol/messages/14-sync-group.ts';
import type { DescribeGroupsResponse } from '../protocol/messages/15-describe-groups.ts';
import type { ListGroupsRequest, ListGroupsResponse } from '../protocol/messages/16-list-groups.ts';
import type { DeleteGroupsResponse } from '../protocol/messages/42-delete-groups.ts';
import type {
  OffsetDeleteRequest,
  OffsetDeleteResponse,
} from '../protocol/messages/47-offset-delete.ts';
import { ClassicGroup, restoreGroup } from './classic-group.ts';
import { ClassicMembership, type Join } from './classic-membership.ts';
import {
  ClassicRebalance,
  completeJoin,
  completeSync,
  type GroupWrite,
  joinAnswer,
  NO_WRITE,
  syncError,
} from './classic-rebalance.ts';
import type { GroupConfig } from './group-config.ts';
import { decodeGroupRecord, groupTombstone, offsetTombstone } from './group-records.ts';
import {
  commitError,
  decideCommit,
  decideDeleteAllOffsets,
  decideDeleteTopics,
  decideExpireOffsets,
  decideLowerOffsets,
  type LoweredGroupOffset,
  type LoweredPartition,
} from './offset-operations.ts';
import { type GroupOffsets, OffsetStore } from './offset-store.ts';
import type { CoordinatorRecord, CoordinatorShard, Decision, ShardContext } from './runtime.ts';

/** Tombstones written in one batch by expiry and topic deletion; the rest follows. */
export const MAX_TOMBSTONES_PER_WRITE = 5_000;
/** Offsets lowered in one batch, each with up to offset.metadata.max.bytes; the rest follows. */
export const MAX_LOWERED_PER_WRITE = 100;
/** Pause before what {@link MAX_TOMBSTONES_PER_WRITE} left over is expired. */
const EXPIRY_CONTINUE_MS = 100;

const EXPIRY_TIMER = 'expiry';
/** "Not asked for": the server fills authorized operations in. */
const NO_AUTHORIZED_OPERATIONS = -2147483648;

type DescribedGroup = DescribeGroupsResponse['groups'][number];
type ListedGroup = ListGroupsResponse['groups'][number];
type DeletedGroup = DeleteGroupsResponse['results'][number];

/** State machine of one partition of `__consumer_offsets`. */
export class GroupShard implements CoordinatorShard {
  readonly #runtime: Runtime;
  readonly #config: GroupConfig;
  readonly #context: ShardContext<GroupShard>;
  readonly #groups = new Map<string, ClassicGroup>();
  readonly #offsets = new OffsetStore();
  readonly #rebalance: ClassicRebalance;
  readonly #membership: ClassicMembership;
  #loaded = false;
  #expiryScheduled = false;
  readonly #foreignRecordTypes = new Set<number>();

  constructor(runtime: Runtime, config: GroupConfig, context: ShardContext<GroupShard>) {
    this.#runtime = runtime;
    this.#config = config;
    this.#context = context;
    const around = {
      groups: this.#groups,
      timers: context,
      clock: runtime.clock,
      config,
      logger: runtime.logger,
    };
    this.#rebalance = new ClassicRebalance(around);
    this.#membership = new ClassicMembership(around, runtime.random, this.#rebalance);
  }

  replay(_offset: number, key: Uint8Array, value: Uint8Array | null): void {
    const record = decodeGroupRecord(key, value);
    if (record.type === 'other') {
      this.#foreignRecordTypes.add(record.recordType);
      return;
    }
    const { groupId } = record;
    if (record.type === 'offset') {
      const { topic, partition } = record;
      if (record.value === undefined) {
        this.#offsets.remove(groupId, topic, partition);
        return;
      }
      // Who commits without joining makes a simple group: empty, no protocol type, no record.
      if (!this.#groups.has(groupId)) this.#groups.set(groupId, this.#newGroup(groupId));
      this.#offsets.put(groupId, topic, partition, record.value);
    } else if (record.value === undefined) {
      const group = this.#groups.get(groupId);
      if (group !== undefined) this.#rebalance.cancelAll(group);
      this.#groups.delete(groupId);
    } else if (!this.#loaded) {
      this.#groups.set(groupId, restoreGroup(groupId, record.value));
    }
    this.#maybeScheduleExpiry();
  }

  #newGroup(groupId: string): ClassicGroup {
    return new ClassicGroup(groupId, this.#runtime.clock.wallMs());
  }

  onLoaded(): void {
    this.#loaded = true;
    if (this.#foreignRecordTypes.size > 0) {
      this.#runtime.logger.warn('records of group types not served here were passed over', {
        partition: this.#context.partition,
        recordTypes: [...this.#foreignRecordTypes],
      });
    }
    for (const group of this.#groups.values()) {
      for (const member of group.members.values()) {
        this.#rebalance.rescheduleHeartbeat(group, member);
      }
      if (group.members.size > this.#config.maxSize) {
        // From Stable, with nobody waiting, this only sets a timer.
        this.#rebalance.prepare(group, 'loaded group is over group.max.size');
      }
    }
    this.#maybeScheduleExpiry();
  }

  onUnloaded(): void {
    const error = errors.NOT_COORDINATOR.code;
    for (const group of this.#groups.values()) {
      group.transitionTo('Dead', this.#runtime.clock.wallMs());
      for (const member of group.members.values()) {
        completeJoin(member, joinAnswer(error, member.memberId));
        completeSync(member, syncError(error));
      }
    }
  }

  decideJoin(join: Join): GroupWrite {
    const write = this.#membership.join(join);
    this.#maybeScheduleExpiry();
    return write;
  }

  decideSync(request: SyncGroupRequest, answer: (r: SyncGroupResponse) => void): GroupWrite {
    return this.#membership.sync(request, answer);
  }

  /** The error code is the whole answer; only timers move. */
  heartbeat(request: HeartbeatRequest): number {
    return this.#membership.heartbeat(request);
  }

  decideLeave(
    groupId: string,
    members: LeaveGroupRequest['members'],
  ): Decision<LeaveGroupResponse['members']> {
    const { results, write } = this.#membership.leave(groupId, members);
    return { ...write, response: results };
  }

  /** Topics have both name and id here, and exist. */
  decideCommit(
    request: OffsetCommitRequest,
    version: number,
  ): Decision<OffsetCommitResponse['topics'] | { groupError: number }> {
    const group = this.#groups.get(request.groupId);
    const error = commitError(group, request, version);
    if (error !== errors.NONE.code) return { records: [], response: { groupError: error } };
    // A commit is a sign of life, too.
    const member = group?.members.get(request.memberId);
    if (group !== undefined && member !== undefined) {
      this.#rebalance.rescheduleHeartbeat(group, member);
    }
    const nowMs = this.#runtime.clock.wallMs();
    const { records, topics } = decideCommit(request, this.#config, nowMs);
    return { records, response: topics };
  }

  /** Committed offsets of a group; empty when it is not known. */
  offsetsOf(groupId: string): GroupOffsets {
    return this.#offsets.group(groupId);
  }

  /** Filters as given in the request; empty means all. States ignore case. */
  list(request: ListGroupsRequest): ListedGroup[] {
    const states = new Set(request.statesFilter.map((state) => state.toLowerCase()));
    const types = new Set(request.typesFilter.map((type) => type.toLowerCase()));
    if (types.size > 0 && !types.has('classic')) return [];
    const listed: ListedGroup[] = [];
    for (const group of this.#groups.values()) {
      if (states.size > 0 && !states.has(group.state.toLowerCase())) continue;
      listed.push({
        groupId: group.groupId,
        protocolType: group.protocolType ?? '',
        groupState: group.state,
        groupType: 'classic',
      });
    }
    return listed;
  }

  /** `missing` is the error for unknown groups, 0 where an old version only says Dead. */
  describe(groupId: string, missing: number): DescribedGroup {
    const group = this.#groups.get(groupId);
    if (group === undefined) {
      const message = missing === 0 ? null : `Group ${groupId} not found.`;
      return deadGroup(groupId, missing, message);
    }
    const isStable = group.isInState('Stable');
    return {
      ...deadGroup(groupId, 0, null),
      groupState: group.state,
      protocolType: group.protocolType ?? '',
      protocolData: isStable ? (group.protocolName ?? '') : '',
      members: [...group.members.values()].map((member) => ({
        memberId: member.memberId,
        groupInstanceId: member.groupInstanceId,
        clientId: member.clientId,
        clientHost: member.clientHost,
        memberMetadata: isStable ? group.metadataOf(member) : new Uint8Array(0),
        memberAssignment: member.assignment,
      })),
    };
  }

  decideDeleteGroups(groupIds: readonly string[]): Decision<DeletedGroup[]> {
    const records: CoordinatorRecord[] = [];
    const response = groupIds.map((groupId) => {
      const group = this.#groups.get(groupId);
      if (group === undefined) return { groupId, errorCode: errors.GROUP_ID_NOT_FOUND.code };
      if (!group.isInState('Empty')) return { groupId, errorCode: errors.NON_EMPTY_GROUP.code };
      records.push(...decideDeleteAllOffsets(this.#offsets, groupId), groupTombstone(groupId));
      return { groupId, errorCode: errors.NONE.code };
    });
    return { records, response };
  }

  decideOffsetDelete(
    request: OffsetDeleteRequest,
  ): Decision<OffsetDeleteResponse['topics'] | { groupError: number }> {
    const { groupId } = request;
    const group = this.#groups.get(groupId);
    if (group === undefined) {
      return { records: [], response: { groupError: errors.GROUP_ID_NOT_FOUND.code } };
    }
    if (!group.isInState('Empty') && !group.usesConsumerProtocol) {
      return { records: [], response: { groupError: errors.NON_EMPTY_GROUP.code } };
    }
    const records: CoordinatorRecord[] = [];
    const response = request.topics.map(({ name, partitions }) => {
      const errorCode = group.isSubscribedTo(name)
        ? errors.GROUP_SUBSCRIBED_TO_TOPIC.code
        : errors.NONE.code;
      for (const { partitionIndex } of partitions) {
        const committed = this.#offsets.get(groupId, name, partitionIndex);
        if (errorCode !== errors.NONE.code || committed === undefined) continue;
        records.push(offsetTombstone(groupId, name, partitionIndex));
      }
      return {
        name,
        partitions: partitions.map(({ partitionIndex }) => ({ partitionIndex, errorCode })),
      };
    });
    return { records, response };
  }

  /** The response says whether more is left to delete. */
  decideDeleteTopics(topics: ReadonlySet<string>): Decision<boolean> {
    const records = decideDeleteTopics(this.#offsets, topics, MAX_TOMBSTONES_PER_WRITE);
    return { records, response: records.length === MAX_TOMBSTONES_PER_WRITE };
  }

  /** With members or without: what they hold is above the log end. */
  decideLowerOffsets(
    partition: LoweredPartition,
    offset: number,
  ): Decision<readonly LoweredGroupOffset[]> {
    const { records, lowered } = decideLowerOffsets(
      this.#offsets,
      partition,
      offset,
      MAX_LOWERED_PER_WRITE,
    );
    return { records, response: lowered };
  }

  #maybeScheduleExpiry(): void {
    if (!this.#loaded || this.#expiryScheduled || this.#groups.size === 0) return;
    this.#scheduleExpiry(this.#config.offsetsRetentionCheckIntervalMs);
  }

  #scheduleExpiry(delayMs: number): void {
    this.#expiryScheduled = true;
    this.#context.schedule(EXPIRY_TIMER, delayMs, () => {
      this.#expiryScheduled = false;
      return this.#groups.size === 0 ? NO_WRITE : this.#decideExpiry();
    });
  }

  #decideExpiry(): GroupWrite {
    const nowMs = this.#runtime.clock.wallMs();
    const records: CoordinatorRecord[] = [];
    let complete = true;
    for (const group of this.#groups.values()) {
      if (records.length >= MAX_TOMBSTONES_PER_WRITE) {
        complete = false;
        break;
      }
      const { offsetsRetentionMs } = this.#config;
      const expired = decideExpireOffsets(this.#offsets, group, offsetsRetentionMs, nowMs);
      records.push(...expired.records);
      const isUnused = group.isInState('Empty') && group.pendingJoinMembers.size === 0;
      if (expired.all && isUnused) records.push(groupTombstone(group.groupId));
    }
    const delayMs = complete ? this.#config.offsetsRetentionCheckIntervalMs : EXPIRY_CONTINUE_MS;
    this.#scheduleExpiry(delayMs);
    if (records.length > 0) {
      this.#runtime.logger.info('expired group offsets', {
        partition: this.#context.partition,
        tombstones: records.length,
      });
    }
    return { ...NO_WRITE, records };
  }
}

/** What is said of a group that does not exist. */
export function deadGroup(
  groupId: string,
  errorCode: number,
  errorMessage: string | null,
): DescribedGroup {
  return {
    errorCode,
    errorMessage,
    groupId,
    groupState: 'Dead',
    protocolType: '',
    protocolData: '',
    members: [],
    authorizedOperations: NO_AUTHORIZED_OPERATIONS,
  };
}
