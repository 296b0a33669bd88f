/**
 * The rebalance of classic groups: from "somebody must join again" to "all have an assignment".
 *
 * Owned by the group shard; the classic membership starts rebalances, timers end them. Three
 * timers per group and one per member exist only while they are needed:
 * join (initial delay, then the rebalance timeout), sync (members that never ask for their
 * assignment) and a heartbeat per member (session timeout).
 *
 * - A member that waits for an answer cannot expire, unless it has never had one.
 * - Static members outlive a join phase they missed; dynamic ones are removed.
 * - Every answer a member waits for is given exactly once.
 */
import type { Logger } from '../base/logger.ts';
import type { Clock } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { JoinGroupResponse } from '../protocol/messages/11-join-group.ts';
import type { SyncGroupResponse } from '../protocol/messages/14-sync-group.ts';
import type { ClassicGroup, ClassicMember } from './classic-group.ts';
import type { GroupConfig } from './group-config.ts';
import { groupRecord } from './group-records.ts';
import type { Decision } from './runtime.ts';

/** How long a member may wait for its first JoinGroup answer before it is dropped. */
export const NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000;

/** Records to write for a change of a group; the answer travels on its own. */
export type GroupWrite = Decision<undefined>;
/** Nothing to write. */
export const NO_WRITE: GroupWrite = { records: [], response: undefined };

/** The timers of the shard a group lives in. */
export interface GroupTimers {
  schedule(key: string, delayMs: number, decide: () => GroupWrite): void;
  cancel(key: string): void;
}

/** What membership and rebalances share. */
export interface GroupSurroundings {
  readonly groups: Map<string, ClassicGroup>;
  readonly timers: GroupTimers;
  readonly clock: Clock;
  readonly config: GroupConfig;
  readonly logger: Logger;
}

const joinKey = (groupId: string): string => `join\0${groupId}`;
const syncKey = (groupId: string): string => `sync\0${groupId}`;
/** The length keeps `a` + `bc` apart from `ab` + `c`. */
const heartbeatKey = (groupId: string, memberId: string): string =>
  `heartbeat\0${groupId.length}\0${groupId}${memberId}`;

/** A JoinGroup answer without members; `error` 0 or the reason. */
export function joinAnswer(error: ErrorCode, memberId: string): JoinGroupResponse {
  return {
    throttleTimeMs: 0,
    errorCode: error,
    generationId: -1,
    protocolType: null,
    protocolName: null,
    leader: '',
    skipAssignment: false,
    memberId,
    members: [],
  };
}

/** A JoinGroup answer with the present generation; `withMembers` for who shall assign. */
export function joinedAnswer(
  group: ClassicGroup,
  memberId: string,
  withMembers: boolean,
): JoinGroupResponse {
  const members = withMembers ? [...group.members.values()] : [];
  return {
    ...joinAnswer(errors.NONE.code, memberId),
    generationId: group.generationId,
    protocolType: group.protocolType,
    protocolName: group.protocolName,
    leader: group.leaderId ?? '',
    members: members.map((member) => ({
      memberId: member.memberId,
      groupInstanceId: member.groupInstanceId,
      metadata: group.metadataOf(member),
    })),
  };
}

/** A SyncGroup answer without an assignment. */
export function syncError(error: ErrorCode): SyncGroupResponse {
  return {
    throttleTimeMs: 0,
    errorCode: error,
    protocolType: null,
    protocolName: null,
    assignment: new Uint8Array(0),
  };
}

/** A SyncGroup answer with the member's assignment. */
export function syncAnswer(group: ClassicGroup, member: ClassicMember): SyncGroupResponse {
  return {
    throttleTimeMs: 0,
    errorCode: errors.NONE.code,
    protocolType: group.protocolType,
    protocolName: group.protocolName,
    assignment: member.assignment,
  };
}

/** Answers the JoinGroup the member waits on, if it does. */
export function completeJoin(member: ClassicMember, response: JoinGroupResponse): void {
  const answer = member.awaitingJoin;
  member.awaitingJoin = undefined;
  answer?.(response);
}

/** Answers the SyncGroup the member waits on; false when it waits on none. */
export function completeSync(member: ClassicMember, response: SyncGroupResponse): boolean {
  const answer = member.awaitingSync;
  member.awaitingSync = undefined;
  answer?.(response);
  return answer !== undefined;
}

/** Drives groups from one generation to the next. */
export class ClassicRebalance {
  readonly #around: GroupSurroundings;

  constructor(around: GroupSurroundings) {
    this.#around = around;
  }

  /** (Re)starts the session timeout of a member. */
  rescheduleHeartbeat(
    group: ClassicGroup,
    member: ClassicMember,
    timeoutMs = member.sessionTimeoutMs,
  ): void {
    this.scheduleExpiry(group, member.memberId, timeoutMs);
  }

  /** The same for a member id that has only been handed out. */
  scheduleExpiry(group: ClassicGroup, memberId: string, timeoutMs: number): void {
    const { groupId } = group;
    this.#around.timers.schedule(heartbeatKey(groupId, memberId), timeoutMs, () =>
      this.#expireHeartbeat(groupId, memberId),
    );
  }

  cancelHeartbeat(group: ClassicGroup, memberId: string): void {
    this.#around.timers.cancel(heartbeatKey(group.groupId, memberId));
  }

  /** Stops every timer of a group that is no more. */
  cancelAll(group: ClassicGroup): void {
    this.#around.timers.cancel(joinKey(group.groupId));
    this.#around.timers.cancel(syncKey(group.groupId));
    for (const id of group.members.keys()) this.cancelHeartbeat(group, id);
    for (const id of group.pendingJoinMembers) this.cancelHeartbeat(group, id);
  }

  /** Starts a rebalance where the state allows it, else completes one that is ready. */
  maybePrepareOrCompleteJoin(group: ClassicGroup, reason: string): GroupWrite {
    if (group.isInState('Stable', 'CompletingRebalance', 'Empty')) {
      return this.prepare(group, reason);
    }
    return this.maybeCompleteJoin(group);
  }

  /** Everybody must join again; the first rebalance of a group waits for company first. */
  prepare(group: ClassicGroup, reason: string): GroupWrite {
    if (group.isInState('CompletingRebalance')) {
      this.resetAssignment(group, errors.REBALANCE_IN_PROGRESS.code);
    }
    group.pendingSyncMembers.clear();
    this.#around.timers.cancel(syncKey(group.groupId));
    const isInitial = group.isInState('Empty');
    const { initialRebalanceDelayMs } = this.#around.config;
    group.transitionTo('PreparingRebalance', this.#around.clock.wallMs());
    this.#around.logger.info('group prepares to rebalance', {
      groupId: group.groupId,
      generationId: group.generationId,
      reason,
    });
    if (isInitial) {
      const remainingMs = Math.max(group.rebalanceTimeoutMs() - initialRebalanceDelayMs, 0);
      this.#scheduleInitial(group, initialRebalanceDelayMs, remainingMs);
      return NO_WRITE;
    }
    if (group.hasAllMembersJoined()) return this.#completeJoin(group);
    this.#scheduleJoinTimeout(group);
    return NO_WRITE;
  }

  /** Ends the join phase when all have joined; an initial one ends by its timer only. */
  maybeCompleteJoin(group: ClassicGroup): GroupWrite {
    if (!group.isInState('PreparingRebalance') || group.previousState === 'Empty') return NO_WRITE;
    return group.hasAllMembersJoined() ? this.#completeJoin(group) : NO_WRITE;
  }

  #scheduleInitial(group: ClassicGroup, delayMs: number, remainingMs: number): void {
    const { groupId } = group;
    this.#around.timers.schedule(joinKey(groupId), delayMs, () => {
      const current = this.#around.groups.get(groupId);
      if (current === undefined) return NO_WRITE;
      if (!current.newMemberAdded || remainingMs === 0) return this.#completeJoin(current);
      current.newMemberAdded = false;
      const nextDelayMs = Math.min(this.#around.config.initialRebalanceDelayMs, remainingMs);
      this.#scheduleInitial(current, nextDelayMs, Math.max(remainingMs - delayMs, 0));
      return NO_WRITE;
    });
  }

  #scheduleJoinTimeout(group: ClassicGroup): void {
    const { groupId } = group;
    this.#around.timers.schedule(joinKey(groupId), group.rebalanceTimeoutMs(), () => {
      const current = this.#around.groups.get(groupId);
      return current?.isInState('PreparingRebalance') ? this.#completeJoin(current) : NO_WRITE;
    });
  }

  #completeJoin(group: ClassicGroup): GroupWrite {
    this.#around.timers.cancel(joinKey(group.groupId));
    for (const member of [...group.members.values()]) {
      if (member.awaitingJoin !== undefined || member.groupInstanceId !== null) continue;
      group.remove(member.memberId);
      this.cancelHeartbeat(group, member.memberId);
    }
    if (group.members.size > 0 && !group.electJoinedLeader()) {
      // Only static members are left and none came: wait for them until their sessions end.
      this.#scheduleJoinTimeout(group);
      return NO_WRITE;
    }
    group.newMemberAdded = false;
    group.initNextGeneration(this.#around.clock.wallMs());
    const { groupId, generationId } = group;
    this.#around.logger.info('group completed its join phase', {
      groupId,
      generationId,
      members: group.members.size,
    });
    if (group.isInState('Empty')) {
      // Should this write fail, the older generation comes back after a restart and times out.
      return { ...NO_WRITE, records: [groupRecord(group, new Map())] };
    }
    for (const member of group.members.values()) {
      completeJoin(member, joinedAnswer(group, member.memberId, group.isLeader(member.memberId)));
      this.rescheduleHeartbeat(group, member);
      member.isNew = false;
      group.pendingSyncMembers.add(member.memberId);
    }
    this.#around.timers.schedule(syncKey(groupId), group.rebalanceTimeoutMs(), () =>
      this.#expireSync(groupId, generationId),
    );
    return NO_WRITE;
  }

  #expireSync(groupId: string, generationId: number): GroupWrite {
    const group = this.#around.groups.get(groupId);
    if (group === undefined || group.generationId !== generationId) return NO_WRITE;
    if (!group.isInState('CompletingRebalance', 'Stable')) return NO_WRITE;
    if (group.pendingSyncMembers.size === 0) return NO_WRITE;
    const late = [...group.pendingSyncMembers];
    for (const memberId of late) {
      group.remove(memberId);
      this.cancelHeartbeat(group, memberId);
    }
    return this.prepare(group, `no SyncGroup from ${late.join(', ')} in time`);
  }

  #expireHeartbeat(groupId: string, memberId: string): GroupWrite {
    const group = this.#around.groups.get(groupId);
    if (group === undefined) return NO_WRITE;
    const member = group.members.get(memberId);
    if (member === undefined) {
      if (!group.pendingJoinMembers.delete(memberId)) return NO_WRITE;
      return this.#completeJoinIfReady(group);
    }
    const waits = member.awaitingJoin !== undefined || member.awaitingSync !== undefined;
    if (waits && !member.isNew) return NO_WRITE;
    this.#around.logger.info('group member expired', { groupId, memberId });
    this.removeMember(group, member);
    if (group.isInState('Stable', 'CompletingRebalance')) {
      return this.prepare(group, `session of ${memberId} expired`);
    }
    return this.#completeJoinIfReady(group);
  }

  #completeJoinIfReady(group: ClassicGroup): GroupWrite {
    if (!group.isInState('PreparingRebalance') || !group.hasAllMembersJoined()) return NO_WRITE;
    return this.#completeJoin(group);
  }

  /** Takes a member out; one that waits is told UNKNOWN_MEMBER_ID, so that it starts over. */
  removeMember(group: ClassicGroup, member: ClassicMember): void {
    this.cancelHeartbeat(group, member.memberId);
    completeJoin(member, joinAnswer(errors.UNKNOWN_MEMBER_ID.code, ''));
    completeSync(member, syncError(errors.UNKNOWN_MEMBER_ID.code));
    group.remove(member.memberId);
  }

  /** Gives every member its assignment; the group is Stable. */
  assign(group: ClassicGroup, assignments: ReadonlyMap<string, Uint8Array>): void {
    for (const member of group.members.values()) {
      member.assignment = assignments.get(member.memberId) ?? new Uint8Array(0);
      // An expiry that fell into the wait was ignored, so the session starts again here.
      if (completeSync(member, syncAnswer(group, member))) this.rescheduleHeartbeat(group, member);
    }
    group.transitionTo('Stable', this.#around.clock.wallMs());
  }

  /** Takes all assignments back and answers who waits for one with `error`. */
  resetAssignment(group: ClassicGroup, error: ErrorCode): void {
    for (const member of group.members.values()) {
      member.assignment = new Uint8Array(0);
      if (completeSync(member, syncError(error))) this.rescheduleHeartbeat(group, member);
    }
  }
}
