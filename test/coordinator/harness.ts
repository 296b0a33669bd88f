/**
 * A group coordinator over a log in memory and a clock moved by hand, for tests.
 *
 * Every answer is encoded and decoded at its version, so a test sees what a client would.
 */
import { setImmediate as immediate } from 'node:timers/promises';
import { silentLogger } from '../../src/base/logger.ts';
import { seededRandom } from '../../src/base/random.ts';
import { parseUuid, type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import {
  DEFAULT_GROUP_CONFIG,
  type GroupConfig,
  type TopicResolver,
} from '../../src/coordinator/group-config.ts';
import { GroupCoordinator } from '../../src/coordinator/group-coordinator.ts';
import type { CoordinatorLog, CoordinatorRecord } from '../../src/coordinator/runtime.ts';
import type { Clock, Runtime, Timer } from '../../src/io/runtime.ts';
import { codec } from '../../src/protocol/codec.ts';
import { type ErrorCode, errors } from '../../src/protocol/errors.ts';
import {
  type OffsetCommitRequest,
  OffsetCommitResponse,
} from '../../src/protocol/messages/08-offset-commit.ts';
import { OffsetFetchResponse } from '../../src/protocol/messages/09-offset-fetch.ts';
import { JoinGroupResponse } from '../../src/protocol/messages/11-join-group.ts';
import { LeaveGroupResponse } from '../../src/protocol/messages/13-leave-group.ts';
import { SyncGroupResponse } from '../../src/protocol/messages/14-sync-group.ts';
import { DescribeGroupsResponse } from '../../src/protocol/messages/15-describe-groups.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import { noCrypto } from '../../src/sim/sim-crypto.ts';

interface Scheduled {
  readonly atMs: number;
  readonly order: number;
  readonly callback: () => void;
}

/** Time that stands still until told otherwise. */
export class ManualClock implements Clock {
  #nowMs = 1_700_000_000_000;
  #order = 0;
  readonly #timers = new Set<Scheduled>();

  wallMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = { atMs: this.#nowMs + delayMs, order: this.#order++, callback };
    this.#timers.add(timer);
    return { cancel: () => this.#timers.delete(timer) };
  }

  defer(callback: () => void): void {
    queueMicrotask(callback);
  }

  pendingTimers(): number {
    return this.#timers.size;
  }

  /** Moves time on, running what falls due in order. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms;
    for (;;) {
      await immediate();
      const due = [...this.#timers]
        .filter((timer) => timer.atMs <= endMs)
        .sort((a, b) => a.atMs - b.atMs || a.order - b.order)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      this.#nowMs = Math.max(this.#nowMs, due.atMs);
      due.callback();
    }
    this.#nowMs = endMs;
  }
}

interface StoredRecord extends CoordinatorRecord {
  readonly leaderEpoch: number;
}

/** A log in memory. `hold` keeps appends uncommitted until `release`. */
export class MemoryLog implements CoordinatorLog {
  readonly partitions = new Map<number, StoredRecord[]>();
  /** The next append is refused with this. */
  failNextAppend: ErrorCode | undefined;
  /** Loads fail while set. */
  failLoads = false;
  #held: { resolve: () => void; reject: (cause: Error) => void }[] | undefined;

  append(
    _topic: string,
    partition: number,
    leaderEpoch: number,
    records: CoordinatorRecord[],
  ): { offset: number; committed: Promise<void> } | { error: ErrorCode } {
    if (this.failNextAppend !== undefined) {
      const error = this.failNextAppend;
      this.failNextAppend = undefined;
      return { error };
    }
    const log = this.records(partition);
    log.push(...records.map((record) => ({ ...record, leaderEpoch })));
    const held = this.#held;
    const committed =
      held === undefined
        ? Promise.resolve()
        : new Promise<void>((resolve, reject) => {
            held.push({ resolve, reject });
          });
    return { offset: log.length, committed };
  }

  async load(
    _topic: string,
    partition: number,
    onRecord: (offset: number, key: Uint8Array, value: Uint8Array | null) => void,
  ): Promise<void> {
    await immediate();
    if (this.failLoads) throw new Error('disk is gone');
    for (const [offset, { key, value }] of this.records(partition).entries()) {
      onRecord(offset, key, value);
    }
  }

  records(partition: number): StoredRecord[] {
    let log = this.partitions.get(partition);
    if (log === undefined) {
      log = [];
      this.partitions.set(partition, log);
    }
    return log;
  }

  hold(): void {
    this.#held = [];
  }

  release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const { resolve } of held) resolve();
  }

  /** What is held will never be committed; it is gone from the log. */
  reject(partition: number, keep: number): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    this.records(partition).length = keep;
    for (const { reject } of held) reject(new Error('truncated'));
  }
}

/** An id whose text shows its number. */
export function topicId(n: number): Uuid {
  const id = parseUuid(`topic${String(n).padStart(16, '0')}A`);
  if (id === undefined) throw new Error('not a uuid');
  return id;
}

/** Topics of a test, each with four partitions unless deleted. */
export class TestTopics implements TopicResolver {
  readonly #ids = new Map<string, Uuid>();
  add(name: string, id: Uuid): void {
    this.#ids.set(name, id);
  }
  delete(name: string): void {
    this.#ids.delete(name);
  }
  idOf(name: string): Uuid | undefined {
    return this.#ids.get(name);
  }
  nameOf(id: Uuid): string | undefined {
    for (const [name, known] of this.#ids) if (known === id) return name;
    return undefined;
  }
  exists(name: string, partition: number): boolean {
    return this.#ids.has(name) && partition < 4;
  }
}

/** A runtime with only time, chance and a log sink. */
export function testRuntime(clock: Clock): Runtime {
  const unavailable = new Proxy(
    {},
    {
      get: () => {
        throw new Error('not part of this test');
      },
    },
  );
  return {
    clock,
    random: seededRandom(7),
    disk: unavailable as Runtime['disk'],
    network: unavailable as Runtime['network'],
    compression: unavailable as Runtime['compression'],
    crypto: noCrypto,
    logger: silentLogger,
  };
}

/** Encodes and decodes: what the client gets. */
export function onWire<M extends Message>(
  schema: M,
  version: number,
  value: EncodableOf<M>,
): MessageOf<M> {
  return codec(schema, version).decode(codec(schema, version).encodeToBytes(value));
}

/** A consumer's subscription, version 1 of the consumer protocol. */
export function subscription(...topics: string[]): Uint8Array {
  const parts = [Buffer.from([0, 1, 0, 0, 0, topics.length])];
  for (const topic of topics) {
    parts.push(Buffer.from([0, topic.length]), Buffer.from(topic));
  }
  const end = Buffer.from([255, 255, 255, 255, 0, 0, 0, 0]);
  return new Uint8Array(Buffer.concat([...parts, end]));
}

/** Overrides of a JoinGroup. */
export interface JoinOptions {
  memberId?: string;
  groupInstanceId?: string | null;
  protocols?: { name: string; metadata: Uint8Array }[];
  protocolType?: string;
  version?: number;
  sessionTimeoutMs?: number;
  rebalanceTimeoutMs?: number;
  clientId?: string;
  groupId?: string;
}

/** One coordinator with its surroundings; one partition, so that all groups live in it. */
export class Harness {
  readonly clock = new ManualClock();
  readonly log = new MemoryLog();
  readonly topics = new TestTopics();
  readonly config: GroupConfig;
  coordinator: GroupCoordinator;
  leaderEpoch = 0;

  constructor(config: Partial<GroupConfig> = {}) {
    this.config = { ...DEFAULT_GROUP_CONFIG, ...config };
    this.topics.add('orders', topicId(1));
    this.topics.add('bills', topicId(2));
    this.coordinator = this.#newCoordinator();
  }

  #newCoordinator(): GroupCoordinator {
    return new GroupCoordinator(testRuntime(this.clock), {
      config: this.config,
      log: this.log,
      topics: this.topics,
      partitionCount: () => 1,
    });
  }

  static async loaded(config: Partial<GroupConfig> = {}): Promise<Harness> {
    const harness = new Harness(config);
    await harness.lead();
    return harness;
  }

  async lead(): Promise<void> {
    this.coordinator.onBecomeLeader(0, ++this.leaderEpoch);
    await this.clock.advance(0);
    await this.clock.advance(0);
  }

  /** The process ends and another starts over the same log. */
  async restart(): Promise<void> {
    this.coordinator.close();
    this.coordinator = this.#newCoordinator();
    await this.lead();
  }

  async join(options: JoinOptions = {}): Promise<JoinGroupResponse> {
    const version = options.version ?? 9;
    const response = await this.coordinator.joinGroup(
      {
        groupId: options.groupId ?? 'g',
        sessionTimeoutMs: options.sessionTimeoutMs ?? 10_000,
        rebalanceTimeoutMs: options.rebalanceTimeoutMs ?? 60_000,
        memberId: options.memberId ?? '',
        groupInstanceId: options.groupInstanceId ?? null,
        protocolType: options.protocolType ?? 'consumer',
        protocols: options.protocols ?? [{ name: 'range', metadata: subscription('orders') }],
        reason: null,
      },
      version,
      { clientId: options.clientId ?? 'client', clientHost: '/127.0.0.1' },
    );
    return onWire(JoinGroupResponse, version, response);
  }

  /** Both steps of a new dynamic member's join. */
  async joinNew(options: JoinOptions = {}): Promise<JoinGroupResponse> {
    const first = await this.join(options);
    if (first.errorCode !== errors.MEMBER_ID_REQUIRED.code) return first;
    return this.join({ ...options, memberId: first.memberId });
  }

  async sync(
    member: { memberId: string; generationId: number },
    assignments: Record<string, string> = {},
    groupInstanceId: string | null = null,
  ): Promise<SyncGroupResponse> {
    const response = await this.coordinator.syncGroup({
      groupId: 'g',
      generationId: member.generationId,
      memberId: member.memberId,
      groupInstanceId,
      protocolType: null,
      protocolName: null,
      assignments: Object.entries(assignments).map(([memberId, text]) => ({
        memberId,
        assignment: Buffer.from(text),
      })),
    });
    return onWire(SyncGroupResponse, 5, response);
  }

  async heartbeat(
    member: { memberId: string; generationId: number },
    groupInstanceId: string | null = null,
  ): Promise<number> {
    const { memberId, generationId } = member;
    const request = { groupId: 'g', generationId, memberId, groupInstanceId };
    return (await this.coordinator.heartbeat(request)).errorCode;
  }

  async leave(
    members: { memberId?: string; groupInstanceId?: string }[],
    version = 5,
  ): Promise<LeaveGroupResponse> {
    const request = {
      groupId: 'g',
      memberId: members[0]?.memberId ?? '',
      members: members.map((member) => ({
        memberId: member.memberId ?? '',
        groupInstanceId: member.groupInstanceId ?? null,
        reason: null,
      })),
    };
    const response = await this.coordinator.leaveGroup(request, version);
    return onWire(LeaveGroupResponse, version, response);
  }

  /** Commits for one partition; returns its error code. */
  async commit(offset: number, options: CommitOptions = {}): Promise<number | undefined> {
    const version = options.version ?? 9;
    const request: OffsetCommitRequest = {
      groupId: options.groupId ?? 'g',
      generationIdOrMemberEpoch: options.generationId ?? -1,
      memberId: options.memberId ?? '',
      groupInstanceId: null,
      retentionTimeMs: options.retentionTimeMs ?? -1,
      topics: [
        {
          name: options.topic ?? 'orders',
          topicId: options.topicId ?? ZERO_UUID,
          partitions: [
            {
              partitionIndex: options.partition ?? 0,
              committedOffset: offset,
              committedLeaderEpoch: options.leaderEpoch ?? -1,
              committedMetadata: options.metadata ?? null,
            },
          ],
        },
      ],
    };
    const response = await this.coordinator.commitOffsets(request, version);
    return onWire(OffsetCommitResponse, version, response).topics[0]?.partitions[0]?.errorCode;
  }

  /** Everything a group has committed, as `topic-partition` → offset. */
  async offsets(groupId = 'g'): Promise<Record<string, number>> {
    const response = await this.coordinator.fetchOffsets(
      {
        groupId: '',
        topics: null,
        groups: [{ groupId, memberId: null, memberEpoch: -1, topics: null }],
        requireStable: true,
      },
      9,
    );
    const group = onWire(OffsetFetchResponse, 9, response).groups[0];
    if (group === undefined || group.errorCode !== 0) throw new Error(`${group?.errorCode}`);
    const offsets: Record<string, number> = {};
    for (const { name, partitions } of group.topics) {
      for (const { partitionIndex, committedOffset } of partitions) {
        offsets[`${name}-${partitionIndex}`] = committedOffset;
      }
    }
    return offsets;
  }

  async describe(groupId = 'g'): Promise<DescribeGroupsResponse['groups'][number]> {
    const response = await this.coordinator.describeGroups(
      { groups: [groupId], includeAuthorizedOperations: false },
      6,
    );
    const group = onWire(DescribeGroupsResponse, 6, response).groups[0];
    if (group === undefined) throw new Error('no group described');
    return group;
  }

  /** A stable group of one member who has been assigned `text`. */
  async stableMember(options: JoinOptions = {}, text = 'all'): Promise<JoinGroupResponse> {
    const joining = this.joinNew(options);
    await this.clock.advance(this.config.initialRebalanceDelayMs);
    const member = await joining;
    await this.sync(member, { [member.memberId]: text });
    return member;
  }
}

/** Overrides of an OffsetCommit. */
export interface CommitOptions {
  groupId?: string;
  memberId?: string;
  generationId?: number;
  topic?: string;
  topicId?: Uuid;
  partition?: number;
  leaderEpoch?: number;
  metadata?: string;
  retentionTimeMs?: number;
  version?: number;
}
