/**
 * A classic consumer group: its members, their votes, its generation and its state.
 *
 * Owned by the group shard, driven by the classic membership. This is soft state (who waits for
 * which answer, who has rejoined); what must survive is written as a group record when a
 * generation is assigned or the group empties, and read back by `restoreGroup`.
 *
 *   Empty → PreparingRebalance → CompletingRebalance → Stable; each rebalance starts over at
 *   PreparingRebalance, from where a group without members becomes Empty. Dead: unloaded.
 *
 * - The leader is a member, or null when there is none.
 * - Every member supports at least one protocol that all others support.
 */
import { assert, present } from '../base/assert.ts';
import { ByteReader, MalformedBytes } from '../base/bytes.ts';
import type { JoinGroupRequest, JoinGroupResponse } from '../protocol/messages/11-join-group.ts';
import type { SyncGroupResponse } from '../protocol/messages/14-sync-group.ts';
import type { GroupMetadataValue } from './records/group-metadata.ts';

/** Kafka's names of the states, as clients see them. */
export type ClassicGroupState =
  | 'Empty'
  | 'PreparingRebalance'
  | 'CompletingRebalance'
  | 'Stable'
  | 'Dead';

const VALID_PREVIOUS: Readonly<Record<ClassicGroupState, readonly ClassicGroupState[]>> = {
  Empty: ['PreparingRebalance'],
  PreparingRebalance: ['Stable', 'CompletingRebalance', 'Empty'],
  CompletingRebalance: ['PreparingRebalance'],
  Stable: ['CompletingRebalance'],
  Dead: ['Empty', 'PreparingRebalance', 'CompletingRebalance', 'Stable', 'Dead'],
};

/** Protocol type of consumers, whose metadata the coordinator can read. */
export const CONSUMER_PROTOCOL_TYPE = 'consumer';

/** An assignment strategy a member offers, best first, with its opaque subscription. */
export type GroupProtocol = JoinGroupRequest['protocols'][number];

/** One member; changed only through {@link ClassicGroup} and the membership. */
export interface ClassicMember {
  readonly memberId: string;
  readonly groupInstanceId: string | null;
  readonly clientId: string;
  readonly clientHost: string;
  readonly protocolType: string;
  rebalanceTimeoutMs: number;
  sessionTimeoutMs: number;
  protocols: readonly GroupProtocol[];
  assignment: Uint8Array;
  /** Has not got its first JoinGroup answer: expires even while it waits. */
  isNew: boolean;
  awaitingJoin: ((response: JoinGroupResponse) => void) | undefined;
  awaitingSync: ((response: SyncGroupResponse) => void) | undefined;
}

const NO_BYTES = new Uint8Array(0);

function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && Buffer.compare(a, b) === 0;
}

/** Whether both offer the same protocols with the same metadata in the same order. */
export function sameProtocols(a: readonly GroupProtocol[], b: readonly GroupProtocol[]): boolean {
  if (a.length !== b.length) return false;
  return a.every((protocol, i) => {
    const other = b[i];
    return (
      other !== undefined &&
      protocol.name === other.name &&
      equalBytes(protocol.metadata, other.metadata)
    );
  });
}

/** Members and state of one group. */
export class ClassicGroup {
  readonly groupId: string;
  readonly members = new Map<string, ClassicMember>();
  /** Member ids by group.instance.id. */
  readonly staticMembers = new Map<string, string>();
  /** Member ids handed out (MEMBER_ID_REQUIRED) whose second JoinGroup has not come yet. */
  readonly pendingJoinMembers = new Set<string>();
  /** Members of the generation whose SyncGroup has not come yet. */
  readonly pendingSyncMembers = new Set<string>();
  generationId = 0;
  protocolType: string | null = null;
  protocolName: string | null = null;
  leaderId: string | null = null;
  /** Members joined during the initial delay: prolong it. */
  newMemberAdded = false;
  /** Undefined while unknown: not consumers, or metadata that does not parse. */
  subscribedTopics: ReadonlySet<string> | undefined;
  #state: ClassicGroupState = 'Empty';
  #previousState: ClassicGroupState = 'Dead';
  #stateSinceMs: number;

  constructor(groupId: string, nowMs: number) {
    this.groupId = groupId;
    this.#stateSinceMs = nowMs;
  }

  get state(): ClassicGroupState {
    return this.#state;
  }

  get previousState(): ClassicGroupState {
    return this.#previousState;
  }

  /** Milliseconds since 1970 when the state was entered; −1 unknown. */
  get stateSinceMs(): number {
    return this.#stateSinceMs;
  }

  isInState(...states: ClassicGroupState[]): boolean {
    return states.includes(this.#state);
  }

  transitionTo(state: ClassicGroupState, nowMs: number): void {
    assert(
      VALID_PREVIOUS[state].includes(this.#state),
      `group ${this.groupId} cannot go from ${this.#state} to ${state}`,
    );
    this.#previousState = this.#state;
    this.#state = state;
    this.#stateSinceMs = nowMs;
  }

  /** Sets the state as replayed from the log. */
  restoreState(state: 'Empty' | 'Stable', sinceMs: number): void {
    this.#state = state;
    this.#stateSinceMs = sinceMs;
  }

  get usesConsumerProtocol(): boolean {
    return this.protocolType === CONSUMER_PROTOCOL_TYPE;
  }

  isLeader(memberId: string): boolean {
    return this.leaderId === memberId;
  }

  add(member: ClassicMember): void {
    if (member.groupInstanceId !== null) {
      assert(!this.staticMembers.has(member.groupInstanceId), 'static member added twice');
      this.staticMembers.set(member.groupInstanceId, member.memberId);
    }
    if (this.members.size === 0) this.protocolType = member.protocolType;
    this.leaderId ??= member.memberId;
    this.members.set(member.memberId, member);
    this.pendingJoinMembers.delete(member.memberId);
  }

  /** Also forgets a member id that was only handed out; the next member becomes leader. */
  remove(memberId: string): void {
    const removed = this.members.get(memberId);
    this.members.delete(memberId);
    if (removed?.groupInstanceId != null) this.staticMembers.delete(removed.groupInstanceId);
    if (this.leaderId === memberId) {
      const next = this.members.keys().next();
      this.leaderId = next.done === true ? null : next.value;
    }
    this.pendingJoinMembers.delete(memberId);
    this.pendingSyncMembers.delete(memberId);
  }

  /** Puts a member of the same instance id in the place of `oldMemberId`. */
  replaceStatic(oldMemberId: string, newMemberId: string): ClassicMember {
    const old = present(this.members.get(oldMemberId), 'static member to replace');
    this.members.delete(oldMemberId);
    const member: ClassicMember = {
      ...old,
      memberId: newMemberId,
      isNew: false,
      awaitingJoin: undefined,
      awaitingSync: undefined,
    };
    this.members.set(newMemberId, member);
    this.staticMembers.set(present(old.groupInstanceId, 'group.instance.id'), newMemberId);
    if (this.leaderId === oldMemberId) this.leaderId = newMemberId;
    return member;
  }

  joiningCount(): number {
    let count = 0;
    for (const member of this.members.values()) if (member.awaitingJoin !== undefined) count++;
    return count;
  }

  hasAllMembersJoined(): boolean {
    return this.pendingJoinMembers.size === 0 && this.joiningCount() === this.members.size;
  }

  /** True when the leader has rejoined or one that has was made leader; false: nobody has. */
  electJoinedLeader(): boolean {
    if (this.leaderId === null) return false;
    if (this.members.get(this.leaderId)?.awaitingJoin !== undefined) return true;
    for (const member of this.members.values()) {
      if (member.awaitingJoin === undefined) continue;
      this.leaderId = member.memberId;
      return true;
    }
    return false;
  }

  /** The longest of all members'. */
  rebalanceTimeoutMs(): number {
    let timeoutMs = 0;
    for (const member of this.members.values()) {
      timeoutMs = Math.max(timeoutMs, member.rebalanceTimeoutMs);
    }
    return timeoutMs;
  }

  /** Whether a member with these protocols can be part of the group. */
  supports(protocolType: string, protocols: readonly GroupProtocol[]): boolean {
    if (this.#state === 'Empty') return protocolType !== '' && protocols.length > 0;
    if (this.protocolType !== protocolType) return false;
    const common = this.#commonProtocols();
    return protocols.some(({ name }) => this.members.size === 0 || common.has(name));
  }

  #commonProtocols(): Set<string> {
    const counts = new Map<string, number>();
    for (const member of this.members.values()) {
      for (const name of new Set(member.protocols.map((protocol) => protocol.name))) {
        counts.set(name, (counts.get(name) ?? 0) + 1);
      }
    }
    const common = new Set<string>();
    for (const [name, count] of counts) if (count === this.members.size) common.add(name);
    return common;
  }

  /** Each member votes for its first protocol that all support; most votes win. */
  selectProtocol(): string {
    const common = this.#commonProtocols();
    const votes = new Map<string, number>();
    for (const member of this.members.values()) {
      const vote = present(
        member.protocols.find(({ name }) => common.has(name)),
        'a protocol that all members support',
      ).name;
      votes.set(vote, (votes.get(vote) ?? 0) + 1);
    }
    let selected: string | undefined;
    for (const [name, count] of votes) {
      if (selected === undefined || count > (votes.get(selected) ?? 0)) selected = name;
    }
    return present(selected, 'a member to vote');
  }

  /** The subscription a member sent for the selected protocol. */
  metadataOf(member: ClassicMember): Uint8Array {
    return member.protocols.find(({ name }) => name === this.protocolName)?.metadata ?? NO_BYTES;
  }

  /** The next generation: CompletingRebalance, or Empty without members. */
  initNextGeneration(nowMs: number): void {
    this.generationId++;
    this.protocolName = this.members.size > 0 ? this.selectProtocol() : null;
    this.updateSubscribedTopics();
    this.transitionTo(this.members.size > 0 ? 'CompletingRebalance' : 'Empty', nowMs);
    this.pendingSyncMembers.clear();
  }

  updateSubscribedTopics(): void {
    this.subscribedTopics = undefined;
    if (!this.usesConsumerProtocol) return;
    if (this.members.size > 0 && this.protocolName === null) return;
    const topics = new Set<string>();
    for (const member of this.members.values()) {
      const subscribed = subscriptionTopics(this.metadataOf(member));
      if (subscribed === undefined) return;
      for (const topic of subscribed) topics.add(topic);
    }
    this.subscribedTopics = topics;
  }

  /** Unknown subscriptions of consumers count as subscribed: their offsets must stay. */
  isSubscribedTo(topic: string): boolean {
    return this.subscribedTopics?.has(topic) ?? this.usesConsumerProtocol;
  }
}

/** Topics of a consumer's subscription (version 0 is a prefix of all); undefined if malformed. */
function subscriptionTopics(metadata: Uint8Array): string[] | undefined {
  try {
    const reader = new ByteReader(metadata);
    reader.int16();
    const count = reader.int32();
    const topics: string[] = [];
    for (let i = 0; i < count; i++) topics.push(reader.string());
    return topics;
  } catch (problem) {
    if (problem instanceof MalformedBytes) return undefined;
    throw problem;
  }
}

/** The group as its last record has it: Stable with members, else Empty. Bytes are copied. */
export function restoreGroup(groupId: string, value: GroupMetadataValue): ClassicGroup {
  const group = new ClassicGroup(groupId, value.currentStateTimestamp);
  group.generationId = value.generation;
  group.protocolName = value.protocol;
  for (const member of value.members) {
    group.add({
      memberId: member.memberId,
      groupInstanceId: member.groupInstanceId,
      clientId: member.clientId,
      clientHost: member.clientHost,
      protocolType: value.protocolType,
      rebalanceTimeoutMs:
        member.rebalanceTimeout === -1 ? member.sessionTimeout : member.rebalanceTimeout,
      sessionTimeoutMs: member.sessionTimeout,
      protocols: [{ name: value.protocol ?? '', metadata: new Uint8Array(member.subscription) }],
      assignment: new Uint8Array(member.assignment),
      isNew: false,
      awaitingJoin: undefined,
      awaitingSync: undefined,
    });
  }
  group.protocolType = value.protocolType === '' ? null : value.protocolType;
  group.leaderId = value.leader;
  group.restoreState(value.members.length > 0 ? 'Stable' : 'Empty', value.currentStateTimestamp);
  group.updateSubscribedTopics();
  return group;
}
