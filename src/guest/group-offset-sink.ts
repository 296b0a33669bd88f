/**
 * The groups of the guest's own Apache Kafka cluster, as the place that offsets are copied to (Y6)
 * and lowered in (G32).
 *
 * Which groups there are and who is in them is asked of every Apache broker; what they committed is
 * asked of the broker that listed them, some groups at a time; commits go to their coordinator.
 * Invariants:
 * - Every request is sent once: whoever asked looks again soon, with fresh answers.
 * - A commit has no member and leader epoch −1 (G27), and is decided when the connection is there.
 * - What is to be lowered in many partitions at once costs one look at the groups.
 */
import type { Runtime } from '../io/runtime.ts';
import { byTopic, resultOf } from '../mirror/group-offsets/commit.ts';
import type {
  CommitResult,
  GroupOffsetSink,
  HeldGroup,
  HeldOffset,
  LoweredOffset,
  LowerResult,
  OffsetToCommit,
  PartitionHere,
} from '../mirror/group-offsets/ports.ts';
import type { BrokerAddress } from '../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { errors } from '../protocol/errors.ts';
import {
  OffsetCommitRequest,
  OffsetCommitResponse,
} from '../protocol/messages/08-offset-commit.ts';
import { OffsetFetchRequest, OffsetFetchResponse } from '../protocol/messages/09-offset-fetch.ts';
import { ListGroupsRequest, ListGroupsResponse } from '../protocol/messages/16-list-groups.ts';
import { partitionKey } from '../storage/topic-partition.ts';
import { ClusterClient, ClusterError, type ClusterTarget } from './cluster-client.ts';

/** How long one answer may take, in ms: below the interval that matters to consumers who wait. */
export const SINK_REQUEST_TIMEOUT_MS = 5_000;
/** How long a list of groups serves several looks of one pass, in ms. */
export const GROUP_LIST_MAX_AGE_MS = 250;
/** Groups asked about in one OffsetFetch. */
export const MAX_GROUPS_PER_FETCH = 100;
/** OffsetFetch of several groups, topics by name. */
const FETCH_VERSION = 9;
/** States of a group without members. */
const WITHOUT_MEMBERS: ReadonlySet<string> = new Set(['Empty', 'Dead']);
/** They keep no offsets in `__consumer_offsets`. */
const SHARE_TYPE = 'share';

const COORDINATOR_ERRORS: ReadonlySet<number> = new Set<number>([
  errors.COORDINATOR_LOAD_IN_PROGRESS.code,
  errors.COORDINATOR_NOT_AVAILABLE.code,
  errors.NOT_COORDINATOR.code,
]);

const NO_GROUP: HeldGroup = { errorCode: 0, hasMembers: false, offsets: new Map() };

/** What {@link ClusterGroupOffsetSink} uses. */
export interface ClusterGroupOffsetSinkOptions {
  /** See {@link groupOffsetClient}. */
  readonly cluster: Pick<ClusterClient, 'call' | 'inspect'>;
  /** The live Apache brokers of the cluster, asked at each need. */
  readonly brokerIds: () => readonly number[];
}

interface ListedGroup {
  readonly brokerId: number;
  readonly hasMembers: boolean;
}

interface GroupList {
  readonly groups: ReadonlyMap<string, ListedGroup>;
  /** Why it may not be all; 0: it is. */
  readonly errorCode: number;
}

interface Lowering {
  readonly partition: PartitionHere;
  readonly offset: number;
  readonly resolve: (result: LowerResult) => void;
  readonly reject: (error: unknown) => void;
}

/** The error code that tells an unanswered request; anything unexpected is thrown on. */
function codeOf(error: unknown): number {
  if (!(error instanceof ClusterError)) throw error;
  switch (error.kind) {
    case 'refused':
      return error.errorCode;
    case 'timedOut':
      return errors.REQUEST_TIMED_OUT.code;
    case 'unsupported':
      return errors.UNSUPPORTED_VERSION.code;
    default:
      return errors.NETWORK_EXCEPTION.code;
  }
}

/** The client that a sink needs: it sends everything once. */
export function groupOffsetClient(
  runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'random'>,
  guestId: number,
  bootstrap: () => readonly BrokerAddress[],
  security?: ConnectionSecurity,
): ClusterClient {
  return new ClusterClient(runtime, {
    clientId: `broker-${guestId}-group-offsets`,
    security,
    bootstrap,
    requestTimeoutMs: SINK_REQUEST_TIMEOUT_MS,
    retryBoundMs: 0,
  });
}

/** The error in a commit's answer that means another coordinator is to be asked. */
function coordinatorError({ topics }: OffsetCommitResponse): number {
  const code = topics[0]?.partitions[0]?.errorCode ?? errors.NONE.code;
  return COORDINATOR_ERRORS.has(code) ? code : errors.NONE.code;
}

/** See the file header. */
export class ClusterGroupOffsetSink implements GroupOffsetSink {
  readonly #clock: Runtime['clock'];
  readonly #options: ClusterGroupOffsetSinkOptions;
  #list: { readonly takenMs: number; readonly groups: Promise<GroupList> } | undefined;
  #lowerings: Lowering[] = [];
  #isLowering = false;

  constructor(runtime: Pick<Runtime, 'clock'>, options: ClusterGroupOffsetSinkOptions) {
    this.#clock = runtime.clock;
    this.#options = options;
  }

  // --- reading ----------------------------------------------------------------------------------

  async read(groupIds: readonly string[]): Promise<ReadonlyMap<string, HeldGroup>> {
    const list = await this.#groups();
    const held = new Map<string, HeldGroup>();
    const byBroker = new Map<number, string[]>();
    for (const groupId of groupIds) {
      const listed = list.groups.get(groupId);
      if (listed === undefined) {
        held.set(groupId, { ...NO_GROUP, errorCode: list.errorCode });
        continue;
      }
      byBroker.set(listed.brokerId, [...(byBroker.get(listed.brokerId) ?? []), groupId]);
    }
    const fetches = [...byBroker].map(async ([brokerId, ids]) => {
      for (const [groupId, group] of await this.#fetch(brokerId, ids)) {
        const hasMembers = list.groups.get(groupId)?.hasMembers ?? false;
        held.set(groupId, { ...group, hasMembers });
      }
    });
    await Promise.all(fetches);
    return held;
  }

  /** The groups of the cluster; several who ask in one pass share an answer. */
  #groups(): Promise<GroupList> {
    const nowMs = this.#clock.monotonicMs();
    if (this.#list === undefined || nowMs - this.#list.takenMs > GROUP_LIST_MAX_AGE_MS) {
      this.#list = { takenMs: nowMs, groups: this.#listAll() };
    }
    return this.#list.groups;
  }

  async #listAll(): Promise<GroupList> {
    const groups = new Map<string, ListedGroup>();
    let errorCode = 0;
    const asked = this.#options.brokerIds().map(async (brokerId) => {
      const target: ClusterTarget = { to: 'broker', id: brokerId };
      try {
        const answer = await this.#options.cluster.call(
          target,
          ListGroupsRequest,
          ListGroupsResponse,
          {},
        );
        if (answer.errorCode !== errors.NONE.code) errorCode = answer.errorCode;
        for (const { groupId, groupState, groupType } of answer.groups) {
          if (groupType.toLowerCase() === SHARE_TYPE) continue;
          groups.set(groupId, { brokerId, hasMembers: !WITHOUT_MEMBERS.has(groupState) });
        }
      } catch (error) {
        errorCode = codeOf(error);
      }
    });
    await Promise.all(asked);
    // No broker that could be asked: that there are no groups is not known.
    if (asked.length === 0) errorCode = errors.COORDINATOR_NOT_AVAILABLE.code;
    return { groups, errorCode };
  }

  /** What groups have committed; whether they have members is not filled in. */
  async #fetch(brokerId: number, groupIds: readonly string[]): Promise<Map<string, HeldGroup>> {
    const held = new Map<string, HeldGroup>();
    for (let from = 0; from < groupIds.length; from += MAX_GROUPS_PER_FETCH) {
      const some = groupIds.slice(from, from + MAX_GROUPS_PER_FETCH);
      for (const groupId of some) {
        held.set(groupId, { ...NO_GROUP, errorCode: errors.UNKNOWN_SERVER_ERROR.code });
      }
      try {
        const { groups } = await this.#options.cluster.call(
          { to: 'broker', id: brokerId },
          OffsetFetchRequest,
          OffsetFetchResponse,
          { groups: some.map((groupId) => ({ groupId, topics: null })) },
          { maxVersion: FETCH_VERSION },
        );
        for (const group of groups) {
          if (held.has(group.groupId)) held.set(group.groupId, heldGroup(group));
        }
      } catch (error) {
        const errorCode = codeOf(error);
        for (const groupId of some) held.set(groupId, { ...NO_GROUP, errorCode });
      }
    }
    return held;
  }

  // --- committing -------------------------------------------------------------------------------

  async commit(groupId: string, offsets: () => readonly OffsetToCommit[]): Promise<CommitResult> {
    const target: ClusterTarget = { to: 'coordinator', of: 'group', key: groupId };
    const { cluster } = this.#options;
    try {
      // From the look-up and the dial on nothing takes time any more but the request itself.
      await cluster.inspect(target, () => undefined);
      const asked = offsets();
      if (asked.length === 0) return { kind: 'done', failed: [] };
      const value = {
        groupId,
        generationIdOrMemberEpoch: -1,
        memberId: '',
        topics: byTopic(asked),
      };
      const response = await cluster.call(
        target,
        OffsetCommitRequest,
        OffsetCommitResponse,
        value,
        { errorCode: coordinatorError },
      );
      return resultOf(asked, response);
    } catch (error) {
      return { kind: 'failed', errorCode: codeOf(error) };
    }
  }

  // --- lowering ---------------------------------------------------------------------------------

  lower(partition: PartitionHere, offset: number): Promise<LowerResult> {
    return new Promise((resolve, reject) => {
      this.#lowerings.push({ partition, offset, resolve, reject });
      if (!this.#isLowering) void this.#lowerAll();
    });
  }

  async #lowerAll(): Promise<void> {
    this.#isLowering = true;
    while (this.#lowerings.length > 0) {
      // Partitions that stop together ask together.
      await new Promise<void>((resolve) => this.#clock.defer(resolve));
      const lowerings = this.#lowerings;
      this.#lowerings = [];
      await this.#lowerSome(lowerings).then(
        (results) => {
          for (const [index, { resolve }] of lowerings.entries()) {
            const unknown = { errorCode: errors.UNKNOWN_SERVER_ERROR.code, lowered: [] };
            resolve(results[index] ?? unknown);
          }
        },
        (error: unknown) => {
          for (const { reject } of lowerings) reject(error);
        },
      );
    }
    this.#isLowering = false;
  }

  async #lowerSome(lowerings: readonly Lowering[]): Promise<LowerResult[]> {
    const results = lowerings.map(() => ({ errorCode: 0, lowered: [] as LoweredOffset[] }));
    const fail = (errorCode: number): void => {
      for (const result of results) result.errorCode ||= errorCode;
    };
    this.#list = undefined;
    const list = await this.#groups();
    if (list.errorCode !== errors.NONE.code) {
      fail(list.errorCode);
      return results;
    }
    for (const [groupId, held] of await this.read([...list.groups.keys()])) {
      if (held.errorCode !== errors.NONE.code) {
        fail(held.errorCode);
        continue;
      }
      const tooHigh = lowerings.flatMap(({ partition, offset }, index) => {
        const here = held.offsets.get(partitionKey(partition.topic, partition.partition));
        if (here === undefined || here.offset <= offset) return [];
        return [{ index, from: here.offset, commit: { ...here, ...partition, offset } }];
      });
      if (tooHigh.length === 0) continue;
      const result = held.hasMembers
        ? ({ kind: 'members' } as const)
        : await this.commit(groupId, () => tooHigh.map(({ commit }) => commit));
      for (const { index, from, commit } of tooHigh) {
        const into = results[index];
        if (into === undefined) continue;
        const failed = errorOf(result, commit);
        if (result.kind === 'members') {
          into.lowered.push({ groupId, from, left: 'it has members, which commit for themselves' });
        } else if (failed === errors.NONE.code) into.lowered.push({ groupId, from });
        else into.errorCode ||= failed;
      }
    }
    return results;
  }
}

/** What a commit says of one of its offsets; 0: it is committed, or left to the members. */
function errorOf(result: CommitResult, { topic, partition }: PartitionHere): number {
  if (result.kind === 'failed') return result.errorCode;
  if (result.kind === 'members') return errors.NONE.code;
  const failed = result.failed.find((each) => each.topic === topic && each.partition === partition);
  return failed?.errorCode ?? errors.NONE.code;
}

function heldGroup({ errorCode, topics }: OffsetFetchResponse['groups'][number]): HeldGroup {
  const offsets = new Map<string, HeldOffset>();
  for (const { name, partitions } of topics) {
    for (const { partitionIndex, committedOffset, metadata } of partitions) {
      const held = { offset: committedOffset, metadata: metadata ?? '' };
      if (committedOffset >= 0) offsets.set(partitionKey(name, partitionIndex), held);
    }
  }
  return { errorCode, hasMembers: false, offsets };
}
