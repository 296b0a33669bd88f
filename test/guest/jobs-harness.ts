/**
 * What the tests of the guest's jobs share: a cluster in memory with a controller that knows
 * topics, configs, reassignments and elections, the real rows behind a store in memory, and a
 * process that can be killed before or after each of its effects.
 */
import assert from 'node:assert/strict';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import { isCordoned } from '../../src/guest/guest-brokers.ts';
import { Handover, type HandoverOptions } from '../../src/guest/jobs/handover.ts';
import { GuestIsrRule } from '../../src/guest/jobs/isr-rule.ts';
import { JobOwnership } from '../../src/guest/jobs/job-ownership.ts';
import type { JobContext, JobController, JobStore } from '../../src/guest/jobs/job-ports.ts';
import { GuestMirrorAdmin } from '../../src/guest/jobs/mirror-admin.ts';
import { TopicRows } from '../../src/guest/jobs/topic-rows.ts';
import type { DescribedConfig } from '../../src/guest/jobs/topic-settings.ts';
import {
  type CatalogKey,
  decodeCatalogKey,
  encodeCatalogKey,
  encodeJobs,
  encodeSettings,
  encodeTopic,
  MirrorCatalog,
  type MirrorJobsRow,
  type MirrorSettingsRow,
  type MirrorTopicRow,
} from '../../src/guest/state/catalog.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  type PartitionRegistration,
} from '../../src/metadata/image.ts';
import { applyRecords } from '../../src/metadata/image-delta.ts';
import { QuorumUnavailable } from '../../src/metadata/quorum/quorum-client.ts';
import { type MetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import { type KeyedRow, MirrorShard } from '../../src/mirror/coordinator-shard.ts';
import type { MirrorStateRow, RowKey } from '../../src/mirror/state-row.ts';
import { type MirrorStateName, stateName } from '../../src/mirror/states.ts';
import { ApiKey } from '../../src/protocol/api-keys.ts';
import { type ErrorCode, errors } from '../../src/protocol/errors.ts';
import type {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import type {
  ElectLeadersRequest,
  ElectLeadersResponse,
} from '../../src/protocol/messages/43-elect-leaders.ts';
import type {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../src/protocol/messages/44-incremental-alter-configs.ts';
import type {
  AlterPartitionReassignmentsRequest,
  AlterPartitionReassignmentsResponse,
} from '../../src/protocol/messages/45-alter-partition-reassignments.ts';
import type { Message, MessageOf } from '../../src/protocol/schema.ts';
import { broker, config, id, imageOf, testRuntime, VALIDATORS } from '../metadata/harness.ts';
import { row } from '../mirror/harness.ts';

/** The guest whose jobs are tested; a second one, and three Apache brokers. */
export const GUEST = 201;
export const OTHER_GUEST = 202;
export const APACHE = [1, 2, 3] as const;
export const MIRROR = 'm';
export const SOURCE_ID = id(900);

const { TOPIC, BROKER } = ConfigResourceType;

/** The process was killed: nothing after this happened. */
export class Killed extends Error {
  override readonly name = 'Killed';
}

/** Where a process is killed: before (`early`) or after (`late`) so many effects. */
export interface KillPoint {
  readonly effects: number;
  readonly when: 'early' | 'late';
}

type CreatableTopic = CreateTopicsRequest['topics'][number];

/** A cluster: its metadata, its mirror state, and all that was asked of either, in order. */
export class TestCluster {
  image: MetadataImage;
  readonly runtime = testRuntime();
  readonly catalog = new MirrorCatalog();
  readonly shard = new MirrorShard();
  /** Effects in order. */
  readonly trace: string[] = [];
  /** Topic configs that the controller refuses, with its message. */
  readonly refusedConfigs = new Map<string, string>();
  /** Answers instead of acting, once, by API key. */
  readonly failures = new Map<number, ErrorCode | 'unreachable' | 'done, unanswered'>();
  /** What the next write of a row is answered instead of being made. */
  failNextWrite: ErrorCode | undefined;
  /** What reading the rows to their end is answered. */
  failRead: ErrorCode | undefined;
  /** Happens while the rows are read to their end. */
  onRead = (): void => {};
  /** Metadata records that are decided, but not shown to brokers yet. */
  held: MetadataRecord[] | undefined;
  #kill: KillPoint | undefined;
  #effects = 0;
  #nextTopicId = 700;

  constructor(...records: MetadataRecord[]) {
    this.image = imageOf([
      ...APACHE.map((brokerId) => broker(brokerId, { rack: `r${brokerId}` })),
      broker(GUEST),
      config(BROKER, String(GUEST), 'twinlog.guest', 'true'),
      ...records,
    ]);
  }

  /** How many effects there were since the last start. */
  get effects(): number {
    return this.#effects;
  }

  /** A process starts, to be killed at a point or never. */
  restart(kill?: KillPoint): void {
    this.#kill = kill;
    this.#effects = 0;
  }

  /** Performs one effect, unless the process dies before it. */
  effect<T>(what: string, act: () => T): T {
    const at = this.#effects++;
    const { effects: last = Infinity, when = 'late' } = this.#kill ?? {};
    if (at > last || (at === last && when === 'early')) throw new Killed(what);
    this.trace.push(what);
    const result = act();
    if (at === last) throw new Killed(what);
    return result;
  }

  commit(...records: MetadataRecord[]): void {
    if (this.held === undefined) this.image = imageOf(records, this.image);
    else this.held.push(...records);
  }

  release(): void {
    const held = this.held ?? [];
    this.held = undefined;
    this.commit(...held);
  }

  partition(topic: string, partition = 0): PartitionRegistration {
    const found = this.image.topicsByName.get(topic)?.partitions.get(partition);
    assert.ok(found !== undefined, `there is no ${topic}-${partition}`);
    return found;
  }

  overrides(topic: string): Record<string, string> {
    const configs = new Map(this.image.configs(TOPIC, topic));
    configs.delete('mirror.name');
    return Object.fromEntries([...configs].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  // --- what happens to brokers ------------------------------------------------------------------

  fence(brokerId: number, fenced: boolean): void {
    const brokerEpoch = this.image.brokers.get(brokerId)?.epoch ?? -1;
    this.commit(
      metadataRecord('BrokerRegistrationChangeRecord', {
        brokerId,
        brokerEpoch,
        fenced: fenced ? 1 : -1,
      }),
    );
  }

  /** Cordons the directories of a broker, or none of them. */
  cordon(brokerId: number, cordoned: boolean): void {
    const { epoch: brokerEpoch, logDirs } = this.image.brokers.get(brokerId) ?? assert.fail();
    const cordonedLogDirs = cordoned ? [...logDirs] : [];
    const change = { brokerId, brokerEpoch, cordonedLogDirs };
    this.commit(metadataRecord('BrokerRegistrationChangeRecord', change));
  }

  setConfig(topic: string, name: string, value: string | null): void {
    this.commit(config(TOPIC, topic, name, value));
  }

  /** The leader changed the ISR; a reassignment that waited for it is completed. */
  setIsr(topic: string, partition: number, isr: readonly number[]): void {
    const current = this.partition(topic, partition);
    const target = current.replicas.filter((each) => !current.removingReplicas.includes(each));
    const isMoving = current.addingReplicas.length + current.removingReplicas.length > 0;
    if (isMoving && target.every((each) => isr.includes(each))) {
      this.commit(this.#completed(current, target, isr));
      return;
    }
    this.#change(current, { isr: [...isr] });
  }

  setLeader(topic: string, partition: number, leader: number, isr?: readonly number[]): void {
    const current = this.partition(topic, partition);
    this.#change(current, { leader, ...(isr === undefined ? {} : { isr: [...isr] }) });
  }

  #change(current: PartitionRegistration, fields: object): void {
    const { topicId, partition: partitionId } = current;
    this.commit(metadataRecord('PartitionChangeRecord', { topicId, partitionId, ...fields }));
  }

  #completed(
    { topicId, partition: partitionId, leader }: PartitionRegistration,
    target: readonly number[],
    isr: readonly number[],
  ): MetadataRecord {
    const left = isr.filter((each) => target.includes(each));
    const next = target.find((each) => left.includes(each)) ?? -1;
    return metadataRecord('PartitionChangeRecord', {
      topicId,
      partitionId,
      replicas: [...target],
      isr: left,
      addingReplicas: [],
      removingReplicas: [],
      leader: left.includes(leader) ? leader : next,
    });
  }

  // --- the controller ---------------------------------------------------------------------------

  readonly controller: JobController = {
    send: async <Q extends Message, R extends Message>(
      request: Q,
      _response: R,
      value: unknown,
    ): Promise<MessageOf<R>> => {
      // Effects happen between turns of the event loop, as over a network.
      await Promise.resolve();
      const key = request.apiKey ?? -1;
      const failure = this.failures.get(key);
      const isAsking = key === ApiKey.CreateTopics && (value as CreateTopicsRequest).validateOnly;
      if (!isAsking) this.failures.delete(key);
      if (failure === 'unreachable' && !isAsking) throw new QuorumUnavailable('no controller');
      const answer = this.#handle(key, value, isAsking ? undefined : failure);
      if (failure === 'done, unanswered' && !isAsking) throw new QuorumUnavailable('timed out');
      return answer as MessageOf<R>;
    },
  };

  #handle(key: number, value: unknown, failure: ErrorCode | string | undefined): unknown {
    const code = typeof failure === 'number' ? failure : undefined;
    switch (key) {
      case ApiKey.CreateTopics:
        return this.#createTopics(value as CreateTopicsRequest, code);
      case ApiKey.IncrementalAlterConfigs:
        return this.#alterConfigs(value as IncrementalAlterConfigsRequest, code);
      case ApiKey.AlterPartitionReassignments:
        return this.#reassign(value as AlterPartitionReassignmentsRequest, code);
      case ApiKey.ElectLeaders:
        return this.#elect(value as ElectLeadersRequest, code);
      default:
        return assert.fail(`nobody should send API ${key}`);
    }
  }

  #createTopics(request: CreateTopicsRequest, code: ErrorCode | undefined): CreateTopicsResponse {
    const topics = request.topics.map((topic) => {
      const problem = code === undefined ? this.#problem(topic) : { code, message: 'as told' };
      const topicId = id(this.#nextTopicId);
      if (problem === undefined && !request.validateOnly) {
        this.#nextTopicId++;
        const lists = topic.assignments.map(({ brokerIds }) => `[${brokerIds.join(',')}]`);
        const what = `create ${topic.name} ${lists.join(' ')}`;
        this.effect(what, () => this.commit(...this.#topicRecords(topic, topicId)));
      }
      return {
        name: topic.name,
        topicId,
        errorCode: problem?.code ?? 0,
        errorMessage: problem?.message ?? null,
        topicConfigErrorCode: 0,
        numPartitions: topic.numPartitions,
        replicationFactor: topic.replicationFactor === -1 ? 3 : topic.replicationFactor,
        configs: null,
      };
    });
    return { throttleTimeMs: 0, topics };
  }

  #problem(topic: CreatableTopic): { code: ErrorCode; message: string } | undefined {
    if (this.image.topicsByName.has(topic.name)) {
      return { code: errors.TOPIC_ALREADY_EXISTS.code, message: 'it exists' };
    }
    const bad = topic.configs.find(({ name }) => this.refusedConfigs.has(name));
    if (bad !== undefined) {
      const message = this.refusedConfigs.get(bad.name) ?? '';
      return { code: errors.INVALID_CONFIG.code, message };
    }
    const named = topic.assignments.flatMap(({ brokerIds }) => brokerIds);
    if (named.some((each) => isCordoned(this.image, each))) {
      return { code: errors.INVALID_REPLICA_ASSIGNMENT.code, message: 'it is cordoned' };
    }
    const live = [...this.image.brokers.values()].filter(({ fenced }) => !fenced).length;
    const wanted = topic.replicationFactor === -1 ? 3 : topic.replicationFactor;
    if (topic.assignments.length > 0 || wanted <= live) return undefined;
    return { code: errors.INVALID_REPLICATION_FACTOR.code, message: 'too few brokers' };
  }

  #topicRecords(topic: CreatableTopic, topicId: Uuid): MetadataRecord[] {
    return [
      metadataRecord('TopicRecord', { name: topic.name, topicId }),
      ...topic.configs.map(({ name, value }) => config(TOPIC, topic.name, name, value)),
      ...topic.assignments.map(({ partitionIndex, brokerIds }) => {
        const isr = brokerIds.filter((each) => this.image.brokers.get(each)?.fenced === false);
        return metadataRecord('PartitionRecord', {
          partitionId: partitionIndex,
          topicId,
          replicas: brokerIds,
          isr,
          removingReplicas: [],
          addingReplicas: [],
          leader: isr[0] ?? -1,
          leaderEpoch: 0,
          partitionEpoch: 0,
          directories: brokerIds.map(() => id(3000)),
        });
      }),
    ];
  }

  #alterConfigs(
    request: IncrementalAlterConfigsRequest,
    code: ErrorCode | undefined,
  ): IncrementalAlterConfigsResponse {
    const responses = request.resources.map(({ resourceType, resourceName, configs }) => {
      assert.equal(resourceType, TOPIC);
      const texts = configs.map(({ name, configOperation, value }) =>
        configOperation === 1 ? `-${name}` : `${name}=${value}`,
      );
      if (code === undefined) {
        this.effect(`configs ${resourceName} ${texts.join(' ')}`, () => {
          for (const { name, configOperation, value } of configs) {
            this.setConfig(resourceName, name, configOperation === 1 ? null : value);
          }
        });
      }
      const errorMessage = code === undefined ? null : 'as told';
      return { errorCode: code ?? 0, errorMessage, resourceType, resourceName };
    });
    return { throttleTimeMs: 0, responses };
  }

  #reassign(
    request: AlterPartitionReassignmentsRequest,
    failure: ErrorCode | undefined,
  ): AlterPartitionReassignmentsResponse {
    const responses = request.topics.map(({ name, partitions }) => ({
      name,
      partitions: partitions.map(({ partitionIndex, replicas }) => {
        const isRefused = (replicas ?? []).some((each) => isCordoned(this.image, each));
        const code = isRefused ? errors.INVALID_REPLICA_ASSIGNMENT.code : failure;
        if (code === undefined && replicas === null) this.#cancel(name, partitionIndex);
        else if (code === undefined) this.#reassignOne(name, partitionIndex, replicas ?? []);
        const errorMessage = code === undefined ? null : 'as told';
        return { partitionIndex, errorCode: code ?? 0, errorMessage };
      }),
    }));
    const nothing = { throttleTimeMs: 0, errorCode: 0, errorMessage: null };
    return { ...nothing, allowReplicationFactorChange: true, responses };
  }

  #cancel(topic: string, partition: number): void {
    this.effect(`cancel ${topic}-${partition}`, () => {
      const current = this.partition(topic, partition);
      const { addingReplicas } = current;
      this.#change(current, {
        replicas: current.replicas.filter((each) => !addingReplicas.includes(each)),
        isr: current.isr.filter((each) => !addingReplicas.includes(each)),
        removingReplicas: [],
        addingReplicas: [],
      });
    });
  }

  /**
   * As Apache Kafka's controller: done at once when all that are to have it are in sync. That of
   * 4.4 waits for what one before it adds, too, unless this one adds something itself.
   */
  #reassignOne(topic: string, partition: number, target: readonly number[]): void {
    this.effect(`reassign ${topic}-${partition} [${target.join(',')}]`, () => {
      const current = this.partition(topic, partition);
      const removing = current.replicas.filter((each) => !target.includes(each));
      const fresh = target.filter((each) => !current.replicas.includes(each));
      const pending = current.addingReplicas.filter((each) => target.includes(each));
      const added = [...fresh, ...pending];
      const adding = added.length > 0 ? added : current.addingReplicas;
      if ([...target, ...adding].every((each) => current.isr.includes(each))) {
        this.commit(this.#completed(current, target, current.isr));
        return;
      }
      this.#change(current, {
        replicas: [...target, ...removing],
        removingReplicas: removing,
        addingReplicas: adding,
        directories: [...target, ...removing].map(() => id(3000)),
      });
    });
  }

  #elect(request: ElectLeadersRequest, code: ErrorCode | undefined): ElectLeadersResponse {
    const replicaElectionResults = (request.topicPartitions ?? []).map(({ topic, partitions }) => ({
      topic,
      partitionResult: partitions.map((partitionId) => {
        this.effect(`elect ${topic}-${partitionId}`, () => {
          const { replicas } = this.partition(topic, partitionId);
          this.setLeader(topic, partitionId, replicas[0] ?? -1);
        });
        return { partitionId, errorCode: 0, errorMessage: null };
      }),
    }));
    return { throttleTimeMs: 0, errorCode: code ?? 0, replicaElectionResults };
  }

  // --- the mirror state -------------------------------------------------------------------------

  /** The store as one guest sees it. */
  storeOf(guestId: number): JobStore {
    const { catalog, shard } = this;
    const writeCatalog = (what: string, key: CatalogKey, value: Uint8Array | null) =>
      this.#write(what, () => this.#replayCatalog(key, value));
    return {
      mirrors: () => catalog.mirrors(),
      settings: (mirror) => catalog.settings(mirror),
      topic: (name) => catalog.topic(name),
      topics: (mirror) => catalog.topics(mirror),
      jobs: (mirror): MirrorJobsRow | undefined => catalog.jobs(mirror),
      read: async (key) => {
        await Promise.resolve();
        this.onRead();
        return { error: this.failRead ?? 0, row: shard.row(key) };
      },
      rows: (mirror): KeyedRow[] => shard.rows().filter(({ key }) => key.mirror === mirror),
      write: (key, next) =>
        this.#write(
          `row ${next?.topicName ?? ''}-${key.partition} ${next ? stateName(next.state) : 'gone'}`,
          () => this.#writeRow(key, next),
        ),
      writeSettings: (mirror, settings: MirrorSettingsRow) =>
        writeCatalog(
          `row mirror ${mirror}`,
          { type: 'settings', mirror },
          encodeSettings(settings),
        ),
      writeTopic: (topic, topicRow) =>
        writeCatalog(
          `row ${topic} ${describe(topicRow)}`,
          { type: 'topic', topic },
          encodeTopic(topicRow),
        ),
      deleteTopic: (topic) => writeCatalog(`row ${topic} gone`, { type: 'topic', topic }, null),
      claimJobs: (mirror) =>
        writeCatalog(
          `row jobs ${mirror} ${guestId}`,
          { type: 'jobs', mirror },
          encodeJobs({ guestId, claimedAtMs: 1 }),
        ),
    };
  }

  async #write(what: string, act: () => ErrorCode): Promise<ErrorCode> {
    await Promise.resolve();
    const failure = this.failNextWrite;
    this.failNextWrite = undefined;
    return failure ?? this.effect(what, act);
  }

  #replayCatalog(key: CatalogKey, value: Uint8Array | null): ErrorCode {
    assert.deepEqual(decodeCatalogKey(encodeCatalogKey(key)), key);
    const overlay = this.catalog.replay(key, value);
    const { offset, epoch } = this.image;
    this.image = applyRecords(this.image, overlay, offset, epoch).image;
    return errors.NONE.code;
  }

  #writeRow(key: RowKey, next: MirrorStateRow | null): ErrorCode {
    const { records, response } = this.shard.decideWrite([{ key, row: next }]);
    for (const record of records) this.shard.replay(0, record.key, record.value);
    return response[0] ?? errors.NONE.code;
  }

  /** Puts a row there as if a driver had written it. */
  setRow(
    topic: string,
    partition: number,
    state: MirrorStateName,
    fields: Partial<MirrorStateRow>,
  ) {
    const topicId = this.image.topicsByName.get(topic)?.id ?? ZERO_UUID;
    const key = { mirror: MIRROR, topicId, partition };
    const before = this.shard.row(key);
    if (before !== undefined) this.#writeRow(key, null);
    assert.equal(this.#writeRow(key, row('PREPARING', { topicName: topic, partition })), 0);
    const chain: MirrorStateName[] = ['MIRRORING', 'STOPPING', 'STOPPED'];
    let stateEpoch = 1;
    for (const next of state === 'PREPARING' ? [] : chain.slice(0, chain.indexOf(state) + 1)) {
      stateEpoch++;
      const extra = next === state ? fields : {};
      const made = row(next, { topicName: topic, partition, stateEpoch, ...extra });
      assert.equal(this.#writeRow(key, made), 0, `row ${next}`);
    }
  }

  rowOf(topic: string, partition = 0, topicId?: Uuid): MirrorStateRow | undefined {
    const ofTopic = topicId ?? this.image.topicsByName.get(topic)?.id ?? ZERO_UUID;
    return this.shard.row({ mirror: MIRROR, topicId: ofTopic, partition });
  }

  // --- processes --------------------------------------------------------------------------------

  /** What the jobs of a freshly started guest are given. */
  context(brokerId: number = GUEST): JobContext {
    const store = this.storeOf(brokerId);
    const { runtime, controller } = this;
    const image = (): MetadataImage => this.image;
    return { runtime, brokerId, controller, store, topicRows: new TopicRows(store), image };
  }

  /** A freshly started guest's mirror admin, over a source with these configs per topic. */
  admin(source: Readonly<Record<string, readonly DescribedConfig[]>> = {}): GuestMirrorAdmin {
    const context = this.context();
    return new GuestMirrorAdmin({
      context,
      ownership: new JobOwnership(context),
      sourceConfigs: async (_mirror, topic) => source[topic] ?? [],
      replicationFactor: () => undefined,
      whileUncordoned: (action) => action(),
      validators: VALIDATORS,
    });
  }

  /** A freshly started guest's handover. Every follower fetches unless told otherwise. */
  handover(wish: Partial<HandoverOptions> & { readonly brokerId?: number } = {}): Handover {
    const context = this.context(wish.brokerId);
    return new Handover({
      context,
      ownership: new JobOwnership(context),
      isrRule: new GuestIsrRule({ image: () => this.image, inMaintenance: () => false }),
      fetchedRecently: () => true,
      reviewIsr: () => {},
      ...wish,
    });
  }

  /** Makes the mirror known, as CreateMirror does, with this guest as owner. */
  async withMirror(): Promise<this> {
    const store = this.storeOf(GUEST);
    await store.claimJobs(MIRROR);
    const configs = new Map([['bootstrap.servers', 'h:1']]);
    await store.writeSettings(MIRROR, { configs, producerIdTag: 7 });
    this.trace.length = 0;
    return this;
  }
}

function describe({ mirrorName, removed, topicId }: MirrorTopicRow): string {
  const name = removed ? `${mirrorName}.removed` : mirrorName;
  return `${name} ${topicId === ZERO_UUID ? 'without id' : 'with id'}`;
}

/** A config that is an override of its topic at the source. */
export function override(name: string, value: string, wish: Partial<DescribedConfig> = {}) {
  return {
    name,
    value,
    readOnly: false,
    configSource: 1,
    isSensitive: false,
    synonyms: [],
    configType: 0,
    documentation: null,
    ...wish,
  };
}

/** Every point at which a run of `count` effects can be cut short. */
export function killPoints(count: number): KillPoint[] {
  const points: KillPoint[] = [];
  for (let effects = 0; effects < count; effects++) {
    points.push({ effects, when: 'early' }, { effects, when: 'late' });
  }
  return points;
}

/** Runs something to its end, or to its kill. */
export async function untilKilled(run: () => Promise<unknown>): Promise<boolean> {
  try {
    await run();
    return false;
  } catch (error) {
    if (error instanceof Killed) return true;
    throw error;
  }
}
