/**
 * The group coordinator: one method per API of classic consumer groups.
 *
 * Called by the server's handlers with decoded requests; answers decoded responses that fit the
 * version. Finds the partition of `__consumer_offsets` that owns a group, validates what needs no
 * state, resolves topics, and runs the rest on that partition's shard.
 *
 * - Authorization and throttling are the server's: names it refuses never get here.
 * - A group belongs to partition abs(Java String.hashCode of its id) mod partitions, as in
 *   Apache Kafka, so that groups keep their home when brokers of both kinds share a cluster.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type {
  OffsetCommitRequest,
  OffsetCommitResponse,
} from '../protocol/messages/08-offset-commit.ts';
import type {
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../protocol/messages/09-offset-fetch.ts';
import type { JoinGroupRequest, JoinGroupResponse } from '../protocol/messages/11-join-group.ts';
import type { HeartbeatRequest, HeartbeatResponse } from '../protocol/messages/12-heartbeat.ts';
import type { LeaveGroupRequest, LeaveGroupResponse } from '../protocol/messages/13-leave-group.ts';
import type { SyncGroupRequest, SyncGroupResponse } from '../protocol/messages/14-sync-group.ts';
import type {
  DescribeGroupsRequest,
  DescribeGroupsResponse,
} from '../protocol/messages/15-describe-groups.ts';
import type { ListGroupsRequest, ListGroupsResponse } from '../protocol/messages/16-list-groups.ts';
import type {
  DeleteGroupsRequest,
  DeleteGroupsResponse,
} from '../protocol/messages/42-delete-groups.ts';
import type {
  OffsetDeleteRequest,
  OffsetDeleteResponse,
} from '../protocol/messages/47-offset-delete.ts';
import { groupErrorOf, MAX_INSTANCE_ID_LENGTH } from './classic-membership.ts';
import { joinAnswer, syncError } from './classic-rebalance.ts';
import type { GroupConfig, GroupRequestContext, TopicResolver } from './group-config.ts';
import { deadGroup, GroupShard, MAX_LOWERED_PER_WRITE } from './group-shard.ts';
import { fetchGroupOffsets } from './offset-fetch.ts';
import type { LoweredGroupOffset, LoweredPartition } from './offset-operations.ts';
import { type CoordinatorLog, CoordinatorRuntime, isCoordinatorError } from './runtime.ts';

/** The internal topic of groups and their offsets. */
export const GROUP_METADATA_TOPIC = '__consumer_offsets';

/** From this JoinGroup version on a missing protocol name is null instead of empty. */
const NULLABLE_PROTOCOL_VERSION = 7;
/** From this LeaveGroup version on several members leave at once. */
const LEAVE_BATCH_VERSION = 3;
/** From this OffsetFetch version on requests carry several groups. */
const FETCH_BATCH_VERSION = 8;
/** From this OffsetFetch version on (below the batched ones) errors have a field of their own. */
const FETCH_GROUP_ERROR_VERSION = 2;
/** From this version on OffsetCommit and OffsetFetch name topics by id. */
const TOPIC_ID_VERSION = 10;
/** From this DescribeGroups version on a missing group is an error. */
const DESCRIBE_NOT_FOUND_VERSION = 6;

/** What a {@link GroupCoordinator} is made of. */
export interface GroupCoordinatorOptions {
  readonly config: GroupConfig;
  readonly log: CoordinatorLog;
  readonly topics: TopicResolver;
  /** Partitions of `__consumer_offsets`: those it has, or will be created with. */
  readonly partitionCount: () => number;
}

type CommitTopics = OffsetCommitResponse['topics'];
type GroupOffsetsAnswer = OffsetFetchResponse['groups'][number];

/** Java's String.hashCode: over UTF-16 units, 32 bits. */
export function javaHashCode(text: string): number {
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(31, hash) + text.charCodeAt(i)) | 0;
  return hash;
}

/** Kafka's abs: the most negative integer becomes 0. */
function javaAbs(value: number): number {
  return value === -0x8000_0000 ? 0 : Math.abs(value);
}

/** The partition of a coordinator's topic that a key belongs to, as Apache Kafka hashes it. */
export function partitionOfKey(key: string, partitions: number): number {
  return javaAbs(javaHashCode(key)) % partitions;
}

/** Serves classic consumer groups and committed offsets. */
export class GroupCoordinator {
  readonly #options: GroupCoordinatorOptions;
  readonly #runtime: CoordinatorRuntime<GroupShard>;

  constructor(runtime: Runtime, options: GroupCoordinatorOptions) {
    this.#options = options;
    this.#runtime = new CoordinatorRuntime<GroupShard>(runtime, {
      topic: GROUP_METADATA_TOPIC,
      log: options.log,
      newShard: (_partition, context) => new GroupShard(runtime, options.config, context),
      commitTimeoutMs: options.config.offsetCommitTimeoutMs,
    });
  }

  /** The partition of `__consumer_offsets` that owns the group. */
  partitionFor(groupId: string): number {
    return partitionOfKey(groupId, this.#options.partitionCount());
  }

  onBecomeLeader(partition: number, leaderEpoch: number): void {
    this.#runtime.onBecomeLeader(partition, leaderEpoch);
  }

  onLoseLeadership(partition: number, leaderEpoch?: number): void {
    this.#runtime.onLoseLeadership(partition, leaderEpoch);
  }

  close(): void {
    this.#runtime.close();
  }

  /** API 11. Answers when the join phase ends. */
  joinGroup(
    request: JoinGroupRequest,
    version: number,
    context: GroupRequestContext,
  ): Promise<JoinGroupResponse> {
    return new Promise((resolve) => {
      const answer = (response: JoinGroupResponse): void => {
        const { protocolName } = response;
        const fits = version >= NULLABLE_PROTOCOL_VERSION || protocolName !== null;
        resolve(fits ? response : { ...response, protocolName: '' });
      };
      const { minSessionTimeoutMs, maxSessionTimeoutMs } = this.#options.config;
      const { groupId, memberId, sessionTimeoutMs } = request;
      if (groupId === '') {
        answer(joinAnswer(errors.INVALID_GROUP_ID.code, memberId));
        return;
      }
      if (sessionTimeoutMs < minSessionTimeoutMs || sessionTimeoutMs > maxSessionTimeoutMs) {
        answer(joinAnswer(errors.INVALID_SESSION_TIMEOUT.code, memberId));
        return;
      }
      const { groupInstanceId } = request;
      if (groupInstanceId !== null && !isInstanceId(groupInstanceId)) {
        answer(joinAnswer(errors.INVALID_REQUEST.code, memberId));
        return;
      }
      // Version 0 has one timeout for both.
      const rebalanceTimeoutMs = version === 0 ? sessionTimeoutMs : request.rebalanceTimeoutMs;
      const join = { request: { ...request, rebalanceTimeoutMs }, version, context, answer };
      const written = this.#runtime.write(this.partitionFor(groupId), (shard) =>
        shard.decideJoin(join),
      );
      this.#onError(written, (error) => answer(joinAnswer(error, memberId)));
    });
  }

  /** API 14. Answers when the leader's assignment is committed. */
  syncGroup(request: SyncGroupRequest): Promise<SyncGroupResponse> {
    const { groupId } = request;
    if (groupId === '') return Promise.resolve(syncError(errors.INVALID_GROUP_ID.code));
    return new Promise((resolve) => {
      const written = this.#runtime.write(this.partitionFor(groupId), (shard) =>
        shard.decideSync(request, resolve),
      );
      this.#onError(written, (error) => resolve(syncError(error)));
    });
  }

  /** Tells a request that is answered on its own way that its write failed. */
  #onError(written: Promise<unknown>, answer: (error: ErrorCode) => void): void {
    void written.then((result) => {
      if (isCoordinatorError(result)) answer(groupErrorOf(result.error));
    });
  }

  /** API 12. A loading coordinator answers 0, so that members do not rejoin needlessly. */
  heartbeat(request: HeartbeatRequest): Promise<HeartbeatResponse> {
    const answer = (errorCode: number): Promise<HeartbeatResponse> =>
      Promise.resolve({ throttleTimeMs: 0, errorCode });
    const { groupId } = request;
    if (groupId === '') return answer(errors.INVALID_GROUP_ID.code);
    const result = this.#runtime.read(this.partitionFor(groupId), (shard) =>
      shard.heartbeat(request),
    );
    if (typeof result === 'number') return answer(result);
    const isLoading = result.error === errors.COORDINATOR_LOAD_IN_PROGRESS.code;
    return answer(isLoading ? errors.NONE.code : result.error);
  }

  /** API 13. */
  async leaveGroup(request: LeaveGroupRequest, version: number): Promise<LeaveGroupResponse> {
    const { groupId } = request;
    if (groupId === '') return leaveError(errors.INVALID_GROUP_ID.code);
    const batched = version >= LEAVE_BATCH_VERSION;
    const members = batched
      ? request.members
      : [{ memberId: request.memberId, groupInstanceId: null, reason: null }];
    const answer = await this.#runtime.write(this.partitionFor(groupId), (shard) =>
      shard.decideLeave(groupId, members),
    );
    if (isCoordinatorError(answer)) return leaveError(groupErrorOf(answer.error));
    if (batched) return { throttleTimeMs: 0, errorCode: errors.NONE.code, members: answer };
    return leaveError(answer[0]?.errorCode ?? errors.NONE.code);
  }

  /** API 8. Unknown topics and partitions fail alone. */
  async commitOffsets(
    request: OffsetCommitRequest,
    version: number,
  ): Promise<OffsetCommitResponse> {
    const byId = version >= TOPIC_ID_VERSION;
    const answered: CommitTopics = [];
    const known: OffsetCommitRequest['topics'] = [];
    for (const topic of request.topics) {
      const resolved = this.#resolve(topic.name, topic.topicId, byId);
      const named = { ...topic, ...resolved.topic };
      if (resolved.error !== errors.NONE.code) {
        answered.push(commitFailure(named, resolved.error));
        continue;
      }
      const exists = (partition: { partitionIndex: number }): boolean =>
        this.#options.topics.exists(named.name, partition.partitionIndex);
      const missing = named.partitions.filter((partition) => !exists(partition));
      const valid = named.partitions.filter(exists);
      if (valid.length > 0) known.push({ ...named, partitions: valid });
      if (missing.length === 0) continue;
      const failed = { ...named, partitions: missing };
      answered.push(commitFailure(failed, errors.UNKNOWN_TOPIC_OR_PARTITION.code));
    }
    if (known.length > 0)
      answered.push(...(await this.#commit({ ...request, topics: known }, version)));
    return { throttleTimeMs: 0, topics: mergeTopics(request.topics, answered, byId) };
  }

  async #commit(request: OffsetCommitRequest, version: number): Promise<CommitTopics> {
    const answer = await this.#runtime.write(this.partitionFor(request.groupId), (shard) =>
      shard.decideCommit(request, version),
    );
    if (Array.isArray(answer)) return answer;
    const error = 'groupError' in answer ? answer.groupError : groupErrorOf(answer.error);
    return request.topics.map((topic) => commitFailure(topic, error));
  }

  /** Completes a topic given by name or id; UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION. */
  #resolve(name: string, topicId: Uuid, byId: boolean): ResolvedTopic {
    const { topics } = this.#options;
    if (!byId) {
      const id = topics.idOf(name);
      if (id !== undefined) return { topic: { name, topicId: id }, error: errors.NONE.code };
      const error = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
      return { topic: { name, topicId: ZERO_UUID }, error };
    }
    const found = topicId === ZERO_UUID ? undefined : topics.nameOf(topicId);
    if (found !== undefined) return { topic: { name: found, topicId }, error: errors.NONE.code };
    return { topic: { name: '', topicId }, error: errors.UNKNOWN_TOPIC_ID.code };
  }

  /** API 9. Offsets are answered once they are committed, which is what requireStable asks for. */
  async fetchOffsets(request: OffsetFetchRequest, version: number): Promise<OffsetFetchResponse> {
    if (version >= FETCH_BATCH_VERSION) {
      const byId = version >= TOPIC_ID_VERSION;
      const groups = await Promise.all(
        request.groups.map(({ groupId, topics }) => this.#fetchGroup(groupId, topics, byId)),
      );
      return { throttleTimeMs: 0, topics: [], errorCode: errors.NONE.code, groups };
    }
    const { groupId } = request;
    const asked = request.topics?.map((topic) => ({ ...topic, topicId: ZERO_UUID })) ?? null;
    const { topics, errorCode } = await this.#fetchGroup(groupId, asked, false);
    const answer = { throttleTimeMs: 0, topics, errorCode, groups: [] };
    if (errorCode === errors.NONE.code || version >= FETCH_GROUP_ERROR_VERSION) return answer;
    const failed = (asked ?? []).map(({ name, partitionIndexes }) => ({
      name,
      partitions: partitionIndexes.map((partitionIndex) => ({
        partitionIndex,
        committedOffset: -1,
        committedLeaderEpoch: -1,
        metadata: '',
        errorCode,
      })),
    }));
    return { ...answer, topics: failed };
  }

  async #fetchGroup(
    groupId: string,
    topics: OffsetFetchRequest['groups'][number]['topics'],
    byId: boolean,
  ): Promise<GroupOffsetsAnswer> {
    const answer = await this.#runtime.readCommitted(this.partitionFor(groupId), (shard) =>
      fetchGroupOffsets(shard.offsetsOf(groupId), topics, byId, this.#options.topics),
    );
    if (!isCoordinatorError(answer)) {
      return { groupId, topics: answer, errorCode: errors.NONE.code };
    }
    return { groupId, topics: [], errorCode: groupErrorOf(answer.error) };
  }

  /** API 16: the groups of all partitions led here; any that loads makes it fail. */
  async listGroups(request: ListGroupsRequest): Promise<ListGroupsResponse> {
    if (this.#runtime.isLoading()) {
      const errorCode = errors.COORDINATOR_LOAD_IN_PROGRESS.code;
      return { throttleTimeMs: 0, errorCode, groups: [] };
    }
    const answers = await Promise.all(
      this.#runtime
        .activePartitions()
        .map((partition) => this.#runtime.readCommitted(partition, (shard) => shard.list(request))),
    );
    const groups: ListGroupsResponse['groups'] = [];
    for (const answer of answers) {
      if (Array.isArray(answer)) groups.push(...answer);
      // A partition that moved away meanwhile is listed by its new leader.
      else if (answer.error !== errors.NOT_COORDINATOR.code) {
        return { throttleTimeMs: 0, errorCode: groupErrorOf(answer.error), groups: [] };
      }
    }
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, groups };
  }

  /** API 15. */
  async describeGroups(
    request: DescribeGroupsRequest,
    version: number,
  ): Promise<DescribeGroupsResponse> {
    const missing =
      version >= DESCRIBE_NOT_FOUND_VERSION ? errors.GROUP_ID_NOT_FOUND.code : errors.NONE.code;
    const groups = await Promise.all(
      request.groups.map(async (groupId) => {
        const answer = await this.#runtime.readCommitted(this.partitionFor(groupId), (shard) =>
          shard.describe(groupId, missing),
        );
        if (!isCoordinatorError(answer)) return answer;
        return { ...deadGroup(groupId, groupErrorOf(answer.error), null), groupState: '' };
      }),
    );
    return { throttleTimeMs: 0, groups };
  }

  /** API 42. Groups of one partition are deleted in one batch. */
  async deleteGroups(request: DeleteGroupsRequest): Promise<DeleteGroupsResponse> {
    const byPartition = new Map<number, string[]>();
    for (const groupId of new Set(request.groupsNames)) {
      const partition = this.partitionFor(groupId);
      const groupIds = byPartition.get(partition);
      if (groupIds === undefined) byPartition.set(partition, [groupId]);
      else groupIds.push(groupId);
    }
    const results = await Promise.all(
      [...byPartition].map(async ([partition, groupIds]) => {
        const answer = await this.#runtime.write(partition, (shard) =>
          shard.decideDeleteGroups(groupIds),
        );
        if (Array.isArray(answer)) return answer;
        const errorCode = groupErrorOf(answer.error);
        return groupIds.map((groupId) => ({ groupId, errorCode }));
      }),
    );
    return { throttleTimeMs: 0, results: results.flat() };
  }

  /** API 47. */
  async offsetDelete(request: OffsetDeleteRequest): Promise<OffsetDeleteResponse> {
    const { groupId } = request;
    if (groupId === '') return offsetDeleteError(errors.INVALID_GROUP_ID.code);
    const unknown = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
    const { topics } = this.#options;
    const known = request.topics.map(({ name, partitions }) => ({
      name,
      partitions: partitions.filter(({ partitionIndex }) => topics.exists(name, partitionIndex)),
    }));
    const answer = await this.#runtime.write(this.partitionFor(groupId), (shard) =>
      shard.decideOffsetDelete({ ...request, topics: known }),
    );
    if (isCoordinatorError(answer)) return offsetDeleteError(groupErrorOf(answer.error));
    if ('groupError' in answer) return offsetDeleteError(answer.groupError);
    const response = request.topics.map(({ name, partitions }, i) => {
      const results = new Map(
        answer[i]?.partitions.map(({ partitionIndex, errorCode }) => [partitionIndex, errorCode]),
      );
      return {
        name,
        partitions: partitions.map(({ partitionIndex }) => ({
          partitionIndex,
          errorCode: results.get(partitionIndex) ?? unknown,
        })),
      };
    });
    return { errorCode: errors.NONE.code, throttleTimeMs: 0, topics: response };
  }

  /**
   * Lowers to `offset` what any group committed above it for a partition (B1); answers once it is
   * committed. An error when a partition of `__consumer_offsets` is not coordinated here by now:
   * then only what is named is lowered.
   */
  async lowerOffsets(
    partition: LoweredPartition,
    offset: number,
  ): Promise<{ errorCode: ErrorCode; lowered: LoweredGroupOffset[] }> {
    const lowered: LoweredGroupOffset[] = [];
    const { topics, partitionCount } = this.#options;
    for (let shardOf = 0; shardOf < partitionCount(); shardOf++) {
      if (!topics.exists(GROUP_METADATA_TOPIC, shardOf)) continue;
      let more = true;
      while (more) {
        const answer = await this.#runtime.write(shardOf, (shard) =>
          shard.decideLowerOffsets(partition, offset),
        );
        if (isCoordinatorError(answer)) return { errorCode: groupErrorOf(answer.error), lowered };
        lowered.push(...answer);
        more = answer.length === MAX_LOWERED_PER_WRITE;
      }
    }
    return { errorCode: errors.NONE.code, lowered };
  }

  /** Removes the offsets of deleted topics from all groups coordinated here. */
  async onTopicsDeleted(names: readonly string[]): Promise<void> {
    const topics = new Set(names);
    if (topics.size === 0) return;
    for (const partition of this.#runtime.activePartitions()) {
      let more = true;
      while (more) {
        const answer = await this.#runtime.write(partition, (shard) =>
          shard.decideDeleteTopics(topics),
        );
        more = answer === true;
      }
    }
  }
}

interface ResolvedTopic {
  readonly topic: { readonly name: string; readonly topicId: Uuid };
  readonly error: ErrorCode;
}

/** Same rule as for topic names. */
function isInstanceId(text: string): boolean {
  if (text.length > MAX_INSTANCE_ID_LENGTH || text === '.' || text === '..') return false;
  return /^[a-zA-Z0-9._-]+$/.test(text);
}

function leaveError(errorCode: number): LeaveGroupResponse {
  return { throttleTimeMs: 0, errorCode, members: [] };
}

function offsetDeleteError(errorCode: number): OffsetDeleteResponse {
  return { errorCode, throttleTimeMs: 0, topics: [] };
}

function commitFailure(
  topic: OffsetCommitRequest['topics'][number],
  errorCode: number,
): CommitTopics[number] {
  return {
    name: topic.name,
    topicId: topic.topicId,
    partitions: topic.partitions.map(({ partitionIndex }) => ({ partitionIndex, errorCode })),
  };
}

/** One entry per topic asked for, in that order, with its partitions in their order. */
function mergeTopics(
  asked: OffsetCommitRequest['topics'],
  answered: CommitTopics,
  byId: boolean,
): CommitTopics {
  const results = new Map<string, Map<number, number>>();
  const keyOf = (topic: { name: string; topicId: Uuid }): string =>
    byId ? topic.topicId : topic.name;
  for (const topic of answered) {
    const partitions = results.get(keyOf(topic)) ?? new Map<number, number>();
    for (const { partitionIndex, errorCode } of topic.partitions) {
      partitions.set(partitionIndex, errorCode);
    }
    results.set(keyOf(topic), partitions);
  }
  return asked.map((topic) => ({
    name: topic.name,
    topicId: topic.topicId,
    partitions: topic.partitions.map(({ partitionIndex }) => ({
      partitionIndex,
      errorCode: results.get(keyOf(topic))?.get(partitionIndex) ?? errors.NONE.code,
    })),
  }));
}
