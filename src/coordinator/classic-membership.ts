/**
 * JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups.
 *
 * Owned by the group shard. Each request is validated in Apache Kafka's order, changes the group's
 * soft state, and returns what must be written; answers that come later (a join phase completes,
 * the leader's assignment is committed) go through the `answer` callback of the request.
 *
 * - A member is identified by its member id, a static one also by its group.instance.id, which
 *   the newest joiner owns: older ids are fenced (KIP-345).
 * - An assignment is handed out only after its group record is committed.
 */
import { present } from '../base/assert.ts';
import type { Random } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { JoinGroupRequest, JoinGroupResponse } from '../protocol/messages/11-join-group.ts';
import type { HeartbeatRequest } from '../protocol/messages/12-heartbeat.ts';
import type { LeaveGroupRequest, LeaveGroupResponse } from '../protocol/messages/13-leave-group.ts';
import type { SyncGroupRequest, SyncGroupResponse } from '../protocol/messages/14-sync-group.ts';
import { ClassicGroup, type ClassicMember, sameProtocols } from './classic-group.ts';
import {
  type ClassicRebalance,
  completeJoin,
  completeSync,
  type GroupSurroundings,
  type GroupWrite,
  joinAnswer,
  joinedAnswer,
  NEW_MEMBER_JOIN_TIMEOUT_MS,
  NO_WRITE,
  syncAnswer,
  syncError,
} from './classic-rebalance.ts';
import type { GroupRequestContext } from './group-config.ts';
import { emptyGroupRecord, groupRecord } from './group-records.ts';

/** From this JoinGroup version on a new dynamic member must join a second time with its id. */
const MEMBER_ID_REQUIRED_VERSION = 4;
/** From this JoinGroup version on a returning static leader can be told to skip assigning. */
const SKIP_ASSIGNMENT_VERSION = 9;

/** Longest group.instance.id, and how much of a client id goes into a member id (KIP-345). */
export const MAX_INSTANCE_ID_LENGTH = 249;
/** Member ids of one group that may be handed out and unused at a time. */
export const MAX_PENDING_JOIN_MEMBERS = 100_000;

/** A JoinGroup request on its way through the coordinator. */
export interface Join {
  readonly request: JoinGroupRequest;
  readonly version: number;
  readonly context: GroupRequestContext;
  readonly answer: (response: JoinGroupResponse) => void;
}

type MemberIdentity = LeaveGroupRequest['members'][number];
type LeaveResult = LeaveGroupResponse['members'][number];

/** What an append or commit error means to a group member. */
export function groupErrorOf(error: ErrorCode): ErrorCode {
  switch (error) {
    case errors.UNKNOWN_TOPIC_OR_PARTITION.code:
    case errors.NOT_ENOUGH_REPLICAS.code:
    case errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND.code:
    case errors.REQUEST_TIMED_OUT.code:
      return errors.COORDINATOR_NOT_AVAILABLE.code;
    case errors.NOT_LEADER_OR_FOLLOWER.code:
    case errors.FENCED_LEADER_EPOCH.code:
    case errors.KAFKA_STORAGE_ERROR.code:
      return errors.NOT_COORDINATOR.code;
    case errors.MESSAGE_TOO_LARGE.code:
    case errors.RECORD_LIST_TOO_LARGE.code:
    case errors.INVALID_FETCH_SIZE.code:
      return errors.UNKNOWN_SERVER_ERROR.code;
    default:
      return error;
  }
}

/** A random UUID of version 4 in its usual text form. */
function uuidText(random: Random): string {
  const bytes = Buffer.from(random.bytes(16));
  bytes[6] = (bytes.readUInt8(6) & 0x0f) | 0x40;
  bytes[8] = (bytes.readUInt8(8) & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ].join('-');
}

/** 0, or why this is not (or no longer) a member of the group. */
export function memberError(
  group: ClassicGroup,
  memberId: string,
  groupInstanceId: string | null,
): ErrorCode {
  if (groupInstanceId !== null) {
    const current = group.staticMembers.get(groupInstanceId);
    if (current === undefined) return errors.UNKNOWN_MEMBER_ID.code;
    if (current !== memberId) return errors.FENCED_INSTANCE_ID.code;
  }
  return group.members.has(memberId) ? errors.NONE.code : errors.UNKNOWN_MEMBER_ID.code;
}

/** Handles the membership requests of the groups of one shard. */
export class ClassicMembership {
  readonly #around: GroupSurroundings;
  readonly #random: Random;
  readonly #rebalance: ClassicRebalance;

  constructor(around: GroupSurroundings, random: Random, rebalance: ClassicRebalance) {
    this.#around = around;
    this.#random = random;
    this.#rebalance = rebalance;
  }

  /** JoinGroup; an unknown group is created for a new member, and written at once. */
  join(join: Join): GroupWrite {
    const { groupId, memberId } = join.request;
    const existing = this.#around.groups.get(groupId);
    if (existing === undefined && memberId !== '') {
      join.answer(joinAnswer(errors.UNKNOWN_MEMBER_ID.code, memberId));
      return NO_WRITE;
    }
    const group = existing ?? new ClassicGroup(groupId, this.#around.clock.wallMs());
    if (existing === undefined) this.#around.groups.set(groupId, group);
    const write = this.#joinGroup(group, join);
    if (existing !== undefined || write.records.length > 0) return write;
    return this.#writeNewGroup(group, join);
  }

  #writeNewGroup(group: ClassicGroup, join: Join): GroupWrite {
    const onCompletion = (error: ErrorCode): void => {
      if (error === errors.NONE.code) return;
      join.answer(joinAnswer(groupErrorOf(error), ''));
      // Not appended at all: as if the request had never come.
      if (error === errors.REQUEST_TIMED_OUT.code) return;
      if (this.#around.groups.get(group.groupId) !== group) return;
      this.#rebalance.cancelAll(group);
      this.#around.groups.delete(group.groupId);
    };
    return { ...NO_WRITE, records: [emptyGroupRecord(group)], onCompletion };
  }

  #joinGroup(group: ClassicGroup, join: Join): GroupWrite {
    const { request, answer } = join;
    const { memberId } = request;
    if (!this.#accepts(group, memberId)) {
      group.remove(memberId);
      answer(joinAnswer(errors.GROUP_MAX_SIZE_REACHED.code, ''));
      return NO_WRITE;
    }
    if (!group.supports(request.protocolType, request.protocols)) {
      answer(joinAnswer(errors.INCONSISTENT_GROUP_PROTOCOL.code, memberId));
      return NO_WRITE;
    }
    return memberId === '' ? this.#joinNew(group, join) : this.#joinKnown(group, join);
  }

  #accepts(group: ClassicGroup, memberId: string): boolean {
    const { maxSize } = this.#around.config;
    const member = group.members.get(memberId);
    switch (group.state) {
      case 'Empty':
      case 'Dead':
        return true;
      case 'PreparingRebalance':
        // Who waits already is in; the rest of an oversized group is turned away as it rejoins.
        return member?.awaitingJoin !== undefined || group.joiningCount() < maxSize;
      case 'CompletingRebalance':
      case 'Stable':
        return member !== undefined || group.members.size < maxSize;
    }
  }

  #joinNew(group: ClassicGroup, join: Join): GroupWrite {
    const { request, context } = join;
    const { groupInstanceId } = request;
    const prefix = (groupInstanceId ?? context.clientId).slice(0, MAX_INSTANCE_ID_LENGTH);
    const memberId = `${prefix}-${uuidText(this.#random)}`;
    if (groupInstanceId !== null) {
      const oldMemberId = group.staticMembers.get(groupInstanceId);
      if (oldMemberId !== undefined) return this.#replaceStatic(group, oldMemberId, memberId, join);
    } else if (join.version >= MEMBER_ID_REQUIRED_VERSION) {
      if (group.pendingJoinMembers.size >= MAX_PENDING_JOIN_MEMBERS) {
        join.answer(joinAnswer(errors.GROUP_MAX_SIZE_REACHED.code, ''));
        return NO_WRITE;
      }
      group.pendingJoinMembers.add(memberId);
      this.#rebalance.scheduleExpiry(group, memberId, request.sessionTimeoutMs);
      join.answer(joinAnswer(errors.MEMBER_ID_REQUIRED.code, memberId));
      return NO_WRITE;
    }
    return this.#addMember(group, memberId, join);
  }

  #addMember(group: ClassicGroup, memberId: string, join: Join): GroupWrite {
    const { request, context } = join;
    const member: ClassicMember = {
      memberId,
      groupInstanceId: request.groupInstanceId,
      clientId: context.clientId,
      clientHost: context.clientHost,
      protocolType: request.protocolType,
      rebalanceTimeoutMs: request.rebalanceTimeoutMs,
      sessionTimeoutMs: request.sessionTimeoutMs,
      protocols: ownedProtocols(request),
      assignment: new Uint8Array(0),
      isNew: true,
      awaitingJoin: join.answer,
      awaitingSync: undefined,
    };
    if (group.isInState('PreparingRebalance') && group.previousState === 'Empty') {
      group.newMemberAdded = true;
    }
    group.add(member);
    // A new member does not know its id yet and cannot heartbeat; if its client gave up, drop it.
    this.#rebalance.rescheduleHeartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS);
    return this.#rebalance.maybePrepareOrCompleteJoin(group, reasonOf(join, `${memberId} is new`));
  }

  #joinKnown(group: ClassicGroup, join: Join): GroupWrite {
    const { request, answer } = join;
    const { memberId } = request;
    if (group.pendingJoinMembers.has(memberId) && request.groupInstanceId === null) {
      return this.#addMember(group, memberId, join);
    }
    const error = memberError(group, memberId, request.groupInstanceId);
    if (error !== errors.NONE.code) {
      answer(joinAnswer(error, memberId));
      return NO_WRITE;
    }
    const member = present(group.members.get(memberId), 'validated member');
    const unchanged = sameProtocols(member.protocols, request.protocols);
    const isLeader = group.isLeader(memberId);
    switch (group.state) {
      case 'PreparingRebalance':
        return this.#rejoin(group, member, join, 'rejoins');
      case 'CompletingRebalance':
        if (!unchanged) return this.#rejoin(group, member, join, 'changed its metadata');
        // It may have missed the first answer.
        answer(joinedAnswer(group, memberId, isLeader));
        return NO_WRITE;
      case 'Stable':
        // A leader rejoins to have the assignment redone, say because a topic grew.
        if (isLeader || !unchanged) return this.#rejoin(group, member, join, 'rejoins');
        answer(joinedAnswer(group, memberId, false));
        return NO_WRITE;
      case 'Empty':
      case 'Dead':
        answer(joinAnswer(errors.UNKNOWN_MEMBER_ID.code, memberId));
        return NO_WRITE;
    }
  }

  #rejoin(group: ClassicGroup, member: ClassicMember, join: Join, why: string): GroupWrite {
    updateMember(member, join);
    return this.#rebalance.maybePrepareOrCompleteJoin(
      group,
      reasonOf(join, `${member.memberId} ${why}`),
    );
  }

  /** A static member came back with no member id: it gets a new one, the old one is fenced. */
  #replaceStatic(
    group: ClassicGroup,
    oldMemberId: string,
    memberId: string,
    join: Join,
  ): GroupWrite {
    const oldLeaderId = group.leaderId;
    const old = present(group.members.get(oldMemberId), 'static member');
    const fenced = errors.FENCED_INSTANCE_ID.code;
    completeJoin(old, joinAnswer(fenced, oldMemberId));
    completeSync(old, syncError(fenced));
    this.#rebalance.cancelHeartbeat(group, oldMemberId);
    const member = group.replaceStatic(oldMemberId, memberId);
    this.#rebalance.rescheduleHeartbeat(group, member);
    updateMember(member, join);
    const reason = reasonOf(join, `static member ${join.request.groupInstanceId} came back`);
    if (group.isInState('CompletingRebalance')) {
      // The leader may be assigning to the old id right now.
      return this.#rebalance.prepare(group, reason);
    }
    if (!group.isInState('Stable')) return this.#rebalance.maybeCompleteJoin(group);
    if (group.selectProtocol() !== group.protocolName) {
      return this.#rebalance.maybePrepareOrCompleteJoin(group, reason);
    }
    return this.#keepGeneration(group, old, member, oldLeaderId, join);
  }

  /** Stable and nothing changes for the others: store the new id, no rebalance. */
  #keepGeneration(
    group: ClassicGroup,
    old: ClassicMember,
    member: ClassicMember,
    oldLeaderId: string | null,
    join: Join,
  ): GroupWrite {
    const { memberId } = member;
    const assignments = assignmentsOf(group);
    const onCompletion = (error: ErrorCode): void => {
      if (error !== errors.NONE.code) {
        member.awaitingJoin = undefined;
        this.#revertStatic(group, member, old);
        join.answer(joinAnswer(groupErrorOf(error), ''));
        return;
      }
      if (join.version < SKIP_ASSIGNMENT_VERSION) {
        // Under its old id as leader: it must not believe that it shall assign.
        const response = joinedAnswer(group, memberId, false);
        completeJoin(member, { ...response, leader: oldLeaderId ?? '' });
        return;
      }
      const isLeader = group.isLeader(memberId);
      const response = joinedAnswer(group, memberId, isLeader);
      completeJoin(member, { ...response, skipAssignment: isLeader });
    };
    return { ...NO_WRITE, records: [groupRecord(group, assignments)], onCompletion };
  }

  #revertStatic(group: ClassicGroup, member: ClassicMember, old: ClassicMember): void {
    if (group.members.get(member.memberId) !== member) return;
    this.#rebalance.cancelHeartbeat(group, member.memberId);
    const reverted = group.replaceStatic(member.memberId, old.memberId);
    reverted.protocols = old.protocols;
    reverted.rebalanceTimeoutMs = old.rebalanceTimeoutMs;
    reverted.sessionTimeoutMs = old.sessionTimeoutMs;
    this.#rebalance.rescheduleHeartbeat(group, reverted);
  }

  /** SyncGroup: the leader's carries the assignment, which all get once it is committed. */
  sync(request: SyncGroupRequest, answer: (response: SyncGroupResponse) => void): GroupWrite {
    const group = this.#around.groups.get(request.groupId);
    const error = group === undefined ? errors.UNKNOWN_MEMBER_ID.code : syncErrorOf(group, request);
    if (group === undefined || error !== errors.NONE.code) {
      answer(syncError(error));
      return NO_WRITE;
    }
    const member = present(group.members.get(request.memberId), 'validated member');
    group.pendingSyncMembers.delete(member.memberId);
    if (group.isInState('Stable')) {
      answer(syncAnswer(group, member));
      return NO_WRITE;
    }
    // A repeated SyncGroup replaces the one before, whose client has given up on it.
    completeSync(member, syncError(errors.REBALANCE_IN_PROGRESS.code));
    member.awaitingSync = answer;
    return group.isLeader(member.memberId) ? this.#storeAssignment(group, request) : NO_WRITE;
  }

  #storeAssignment(group: ClassicGroup, request: SyncGroupRequest): GroupWrite {
    const assignments = new Map<string, Uint8Array>();
    for (const { memberId, assignment } of request.assignments) {
      assignments.set(memberId, new Uint8Array(assignment));
    }
    const onCompletion = (error: ErrorCode): void => {
      // Meanwhile somebody may have joined; then this assignment is void.
      if (this.#around.groups.get(group.groupId) !== group) return;
      if (!group.isInState('CompletingRebalance')) return;
      if (group.generationId !== request.generationId) return;
      if (error === errors.NONE.code) {
        this.#rebalance.assign(group, assignments);
        return;
      }
      const groupError = groupErrorOf(error);
      this.#rebalance.resetAssignment(group, groupError);
      this.#rebalance.prepare(group, `assignment was not stored (error ${groupError})`);
    };
    return { ...NO_WRITE, records: [groupRecord(group, assignments)], onCompletion };
  }

  /** Heartbeat; the error code is the whole answer. */
  heartbeat(request: HeartbeatRequest): ErrorCode {
    const group = this.#around.groups.get(request.groupId);
    if (group === undefined) return errors.UNKNOWN_MEMBER_ID.code;
    const error = memberError(group, request.memberId, request.groupInstanceId);
    if (error !== errors.NONE.code) return error;
    if (request.generationId !== group.generationId) return errors.ILLEGAL_GENERATION.code;
    const member = present(group.members.get(request.memberId), 'validated member');
    this.#rebalance.rescheduleHeartbeat(group, member);
    return group.isInState('PreparingRebalance')
      ? errors.REBALANCE_IN_PROGRESS.code
      : errors.NONE.code;
  }

  /** LeaveGroup of several members; static ones may be named by instance id alone. */
  leave(groupId: string, members: readonly MemberIdentity[]): LeaveOutcome {
    const group = this.#around.groups.get(groupId);
    if (group === undefined) {
      const unknown = errors.UNKNOWN_MEMBER_ID.code;
      return { results: members.map((member) => leaveResult(member, unknown)), write: NO_WRITE };
    }
    const results = members.map((member) => leaveResult(member, this.#leaveOne(group, member)));
    const left = results.filter(({ errorCode }) => errorCode === errors.NONE.code);
    if (left.length === 0) return { results, write: NO_WRITE };
    const reason = `${left.map(({ memberId }) => memberId).join(', ')} left`;
    const write = group.isInState('Stable', 'CompletingRebalance')
      ? this.#rebalance.prepare(group, reason)
      : this.#rebalance.maybeCompleteJoin(group);
    return { results, write };
  }

  #leaveOne(group: ClassicGroup, identity: MemberIdentity): ErrorCode {
    const { groupInstanceId } = identity;
    let { memberId } = identity;
    if (memberId === '' && groupInstanceId !== null) {
      memberId = group.staticMembers.get(groupInstanceId) ?? '';
    } else if (group.pendingJoinMembers.has(memberId)) {
      this.#rebalance.cancelHeartbeat(group, memberId);
      group.remove(memberId);
      return errors.NONE.code;
    }
    const error = memberError(group, memberId, groupInstanceId);
    if (error !== errors.NONE.code) return error;
    const member = present(group.members.get(memberId), 'validated member');
    this.#rebalance.removeMember(group, member);
    return errors.NONE.code;
  }
}

/** Answer per member, and what to write. */
export interface LeaveOutcome {
  readonly results: LeaveResult[];
  readonly write: GroupWrite;
}

function leaveResult(member: MemberIdentity, errorCode: ErrorCode): LeaveResult {
  const { memberId, groupInstanceId } = member;
  return { memberId, groupInstanceId, errorCode };
}

function reasonOf(join: Join, what: string): string {
  const { reason } = join.request;
  return reason === null || reason === '' ? what : `${what}; client reason: ${reason}`;
}

/** The request's bytes live in a network buffer; what a member keeps must be its own. */
function ownedProtocols(request: JoinGroupRequest): JoinGroupRequest['protocols'] {
  return request.protocols.map(({ name, metadata }) => ({
    name,
    metadata: new Uint8Array(metadata),
  }));
}

function updateMember(member: ClassicMember, join: Join): void {
  const { request, answer } = join;
  member.protocols = ownedProtocols(request);
  member.rebalanceTimeoutMs = request.rebalanceTimeoutMs;
  member.sessionTimeoutMs = request.sessionTimeoutMs;
  // A repeated JoinGroup replaces the one before, whose client has given up on it.
  completeJoin(member, joinAnswer(errors.REBALANCE_IN_PROGRESS.code, member.memberId));
  member.awaitingJoin = answer;
}

function assignmentsOf(group: ClassicGroup): Map<string, Uint8Array> {
  return new Map([...group.members].map(([memberId, member]) => [memberId, member.assignment]));
}

function syncErrorOf(group: ClassicGroup, request: SyncGroupRequest): ErrorCode {
  if (group.isInState('Empty')) return errors.UNKNOWN_MEMBER_ID.code;
  if (group.isInState('Dead')) return errors.COORDINATOR_NOT_AVAILABLE.code;
  const error = memberError(group, request.memberId, request.groupInstanceId);
  if (error !== errors.NONE.code) return error;
  if (request.generationId !== group.generationId) return errors.ILLEGAL_GENERATION.code;
  if (
    differs(request.protocolType, group.protocolType) ||
    differs(request.protocolName, group.protocolName)
  ) {
    return errors.INCONSISTENT_GROUP_PROTOCOL.code;
  }
  return group.isInState('PreparingRebalance')
    ? errors.REBALANCE_IN_PROGRESS.code
    : errors.NONE.code;
}

/** Protocol names are compared only where both sides have one. */
function differs(mine: string | null, theirs: string | null): boolean {
  return mine !== null && theirs !== null && mine !== theirs;
}
