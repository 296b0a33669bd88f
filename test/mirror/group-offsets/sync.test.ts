/**
 * Y6, B1: the group offset job between two real group coordinators: one is the source, asked over
 * its wire format, and one here. Which partitions are mirrored is told by the test.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emptyImage, type MetadataImage } from '../../../src/metadata/image.ts';
import type { MetadataDelta } from '../../../src/metadata/image-delta.ts';
import { MirrorFailure } from '../../../src/mirror/causes.ts';
import { LocalGroupOffsetSink } from '../../../src/mirror/group-offsets/local-sink.ts';
import { groupOffsetLowering, LOWER_RETRY_MS } from '../../../src/mirror/group-offsets/lowering.ts';
import { planText } from '../../../src/mirror/group-offsets/plan.ts';
import type {
  MirroredPartition,
  MirroredPartitions,
  OffsetRange,
} from '../../../src/mirror/group-offsets/ports.ts';
import type { GroupsSourceCluster } from '../../../src/mirror/group-offsets/source.ts';
import { GroupOffsetSync } from '../../../src/mirror/group-offsets/sync.ts';
import { parseMirrorSettings } from '../../../src/mirror/settings.ts';
import { type ErrorCode, errors } from '../../../src/protocol/errors.ts';
import {
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../../../src/protocol/messages/09-offset-fetch.ts';
import {
  ListGroupsRequest,
  ListGroupsResponse,
} from '../../../src/protocol/messages/16-list-groups.ts';
import type { Message } from '../../../src/protocol/schema.ts';
import { Harness, onWire, testRuntime, topicId } from '../../coordinator/harness.ts';
import { imageWith } from '../harness.ts';

const ORDERS: MirroredPartition = {
  mirror: 'm',
  topic: 'orders',
  topicId: topicId(1),
  sourceTopicId: topicId(1),
  partition: 0,
};

class Desk {
  readonly source: Harness;
  readonly here: Harness;
  readonly image: MetadataImage = imageWith(['m']);
  readonly ranges = new Map<number, OffsetRange>([
    [0, { logStartOffset: 0, logEndOffset: 100 }],
    [1, { logStartOffset: 0, logEndOffset: 100 }],
  ]);
  readonly configs = new Map([['bootstrap.servers', 's:1']]);
  /** Requests that the source got, by name. */
  readonly asked: string[] = [];
  fetchVersion = 10;
  failure: MirrorFailure | undefined;
  owns = true;
  refreshed = 0;
  /** Requests to silent brokers. */
  readonly silent: PromiseWithResolvers<object>[] = [];
  /** Run between the question what is there and each commit. */
  beforeCommit: () => void = () => {};
  readonly sink: LocalGroupOffsetSink;
  readonly sync: GroupOffsetSync;

  private constructor(source: Harness, here: Harness) {
    this.source = source;
    this.here = here;
    here.topics.add('__consumer_offsets', topicId(50));
    const runtime = testRuntime(here.clock);
    const image = { topicsByName: new Map([['__consumer_offsets', {}]]) };
    this.sink = new LocalGroupOffsetSink({
      groups: here.coordinator,
      image: () => image as unknown as MetadataImage,
      ensureOffsetsTopic: async () => 0,
    });
    this.sync = new GroupOffsetSync(runtime, {
      ownsJobs: () => this.owns,
      mirror: () => ({ source: this.#cluster(), settings: parseMirrorSettings(this.configs) }),
      partitions: this.#partitions(),
      sink: {
        read: (groupIds) => this.sink.read(groupIds),
        commit: (groupId, offsets) => {
          this.beforeCommit();
          return this.sink.commit(groupId, offsets);
        },
        lower: (partition, offset) => this.sink.lower(partition, offset),
      },
    });
    this.publish(this.image);
  }

  publish(image: MetadataImage): void {
    this.sync.publish(this.#delta(image));
  }

  /** A broker of the source whose answers come when the test says. */
  addSilentBroker(id: number): void {
    this.#brokers.set(id, { host: 'silent', port: id });
  }

  static async open(): Promise<Desk> {
    return new Desk(await Harness.loaded(), await Harness.loaded());
  }

  #delta(image: MetadataImage): MetadataDelta {
    return {
      image,
      previous: emptyImage('here'),
      changedTopics: new Set(),
      deletedTopics: [],
      changedConfigs: [{ type: 64, name: 'm' }],
      changedBrokers: new Set(),
    };
  }

  #partitions(): MirroredPartitions {
    const range = ({ partition }: MirroredPartition) => this.ranges.get(partition);
    const all = [0, 1].map((partition) => ({ ...ORDERS, partition }));
    return {
      mirroring: async () => all.filter((each) => range(each) !== undefined),
      range,
    };
  }

  readonly #brokers = new Map([[1, { host: 's', port: 1 }]]);
  readonly #made = this.#makeCluster();

  #cluster(): GroupsSourceCluster {
    return this.#made;
  }

  #makeCluster(): GroupsSourceCluster {
    const send = async (
      { host }: { host: string },
      request: Message,
      response: Message,
      value: object,
    ): Promise<object> => {
      if (host === 'silent') {
        const waiting = Promise.withResolvers<object>();
        this.silent.push(waiting);
        return waiting.promise;
      }
      this.asked.push(request.name);
      if (this.failure !== undefined) throw this.failure;
      const { coordinator } = this.source;
      if (request === ListGroupsRequest) {
        const asked = onWire(ListGroupsRequest, 5, value);
        return onWire(ListGroupsResponse, 5, await coordinator.listGroups(asked));
      }
      assert.equal(response, OffsetFetchResponse);
      const asked = onWire(OffsetFetchRequest, this.fetchVersion, value as never);
      const answer = await coordinator.fetchOffsets(asked, this.fetchVersion);
      return onWire(OffsetFetchResponse, this.fetchVersion, answer);
    };
    return {
      brokers: this.#brokers,
      refresh: async () => {
        this.refreshed++;
      },
      client: { send, version: async () => this.fetchVersion },
    } as unknown as GroupsSourceCluster;
  }

  /** Records in the log of the groups here. */
  get written(): number {
    return this.here.log.records(0).length;
  }
}

for (const version of [10, 9, 7]) {
  test(`Y6: offsets are copied once, and when they move (OffsetFetch ${version})`, async () => {
    const desk = await Desk.open();
    desk.fetchVersion = version;
    const { source, here } = desk;
    await source.commit(42, { groupId: 'a', metadata: 'note', leaderEpoch: 7 });
    await source.commit(0, { groupId: 'a', partition: 1 });
    await source.commit(5, { groupId: 'b', topic: 'bills' });
    await desk.sync.run('m');
    assert.deepEqual(await here.offsets('a'), { 'orders-0': 42, 'orders-1': 0 });
    assert.deepEqual(await here.offsets('b'), {});
    const { written } = desk;
    await desk.sync.run('m');
    assert.equal(desk.written, written, 'nothing differs, nothing is written');
    await source.commit(41, { groupId: 'a' });
    await desk.sync.run('m');
    assert.deepEqual(await here.offsets('a'), { 'orders-0': 41, 'orders-1': 0 });
    assert.equal(desk.written, written + 1, 'one offset moved, one is written');
    const { errors: count, lastSuccessMs, lastRunMs } = desk.sync.status('m');
    assert.deepEqual([count, lastSuccessMs >= lastRunMs], [0, true]);
  });
}

test('Y6 G27: the commit carries leader epoch -1 and the metadata of the source', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42, { metadata: 'note', leaderEpoch: 7 });
  await desk.sync.run('m');
  const request = {
    groupId: '',
    topics: null,
    groups: [{ groupId: 'g', memberId: null, memberEpoch: -1, topics: null }],
    requireStable: false,
  };
  const { groups } = await desk.here.coordinator.fetchOffsets(request, 9);
  assert.deepEqual(groups[0]?.topics[0]?.partitions, [
    {
      partitionIndex: 0,
      committedOffset: 42,
      committedLeaderEpoch: -1,
      metadata: 'note',
      errorCode: 0,
    },
  ]);
});

test('Y6: an active group of the source is copied, one with members here is not', async () => {
  const desk = await Desk.open();
  const member = await desk.source.stableMember();
  await desk.source.commit(42, member);
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 42 });
  const local = await desk.here.stableMember();
  await desk.source.commit(50, member);
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 42 });
  assert.deepEqual(planText(await desk.sync.plan('m')), ['g: left alone, it has members here']);
  await desk.here.leave([{ memberId: local.memberId }]);
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 50 });
  assert.equal(desk.sync.status('m').errors, 0);
});

test('Y6: a member that joins between plan and commit refuses it, which is no error', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42);
  const joining = desk.here.joinNew();
  await desk.here.clock.advance(desk.here.config.initialRebalanceDelayMs);
  await joining;
  const { kind } = await desk.sink.commit('g', () => [{ ...ORDERS, offset: 42, metadata: '' }]);
  assert.equal(kind, 'members');
  assert.deepEqual(await desk.here.offsets(), {});
});

test('Y6: nothing is committed once stopping began between plan and commit', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42);
  await desk.source.commit(43, { partition: 1 });
  desk.beforeCommit = () => desk.ranges.delete(0);
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-1': 43 });
  desk.beforeCommit = () => {
    desk.owns = false;
  };
  await desk.source.commit(44, { partition: 1 });
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-1': 43 });
});

test('Y6: the range is that of the moment of the commit', async () => {
  const desk = await Desk.open();
  await desk.source.commit(90);
  desk.beforeCommit = () => desk.ranges.set(0, { logStartOffset: 0, logEndOffset: 80 });
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 80 });
});

test('Y6 C3: who does not own the jobs, or mirrors nothing, asks and writes nothing', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42);
  desk.owns = false;
  await desk.sync.run('m');
  desk.owns = true;
  desk.ranges.clear();
  await desk.sync.run('m');
  assert.deepEqual([desk.asked, desk.refreshed, desk.written], [[], 0, 0]);
});

test('Y6: the plan is told without applying it, and every interval it is applied', async () => {
  const desk = await Desk.open();
  desk.configs.set('mirror.groups.exclude', 'x.*');
  await desk.source.commit(142, { groupId: 'a' });
  await desk.source.commit(42, { groupId: 'x1' });
  const plan = planText(await desk.sync.plan('m'));
  assert.deepEqual(plan, ['a orders-0: none -> 100 (source 142, clamped)']);
  assert.equal(desk.written, 0);
  await desk.here.clock.advance(1_000);
  await desk.here.clock.advance(0);
  assert.deepEqual(await desk.here.offsets('a'), { 'orders-0': 100 });
  assert.deepEqual(await desk.here.offsets('x1'), {});
  desk.sync.close();
  await desk.source.commit(7, { groupId: 'a' });
  await desk.here.clock.advance(5_000);
  assert.deepEqual(await desk.here.offsets('a'), { 'orders-0': 100 });
});

test('Y6: a mirror that is gone has no job any more', async () => {
  const desk = await Desk.open();
  desk.publish(emptyImage('here'));
  await desk.source.commit(42);
  await desk.here.clock.advance(5_000);
  await desk.sync.run('m');
  assert.deepEqual([desk.asked, desk.written], [[], 0]);
});

test('Y6: a broker that does not answer keeps no other waiting, and is asked once', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42);
  desk.addSilentBroker(2);
  const hanging = desk.sync.run('m');
  await desk.here.clock.advance(0);
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 42 });
  await desk.source.commit(43);
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 43 });
  assert.equal(desk.silent.length, 1);
  desk.silent[0]?.reject(new MirrorFailure('SOURCE_TIMED_OUT', 'no answer'));
  await hanging;
  assert.equal(desk.sync.status('m').lastError, 'broker 2 of the source: no answer');
});

test('Y6 M1: errors are counted and shown; a wrong broker list is renewed', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42);
  await desk.sync.run('m');
  const good = desk.sync.status('m');
  desk.failure = new MirrorFailure('SOURCE_UNREACHABLE', 'refused');
  await desk.sync.run('m');
  await desk.sync.run('m');
  const bad = desk.sync.status('m');
  assert.equal(bad.errors, 2);
  assert.equal(bad.lastError, 'broker 1 of the source: refused');
  assert.equal(bad.lastSuccessMs, good.lastSuccessMs);
  assert.equal(desk.refreshed, 2, 'at first, and after the first failure');
  desk.failure = undefined;
  await desk.here.clock.advance(5);
  await desk.sync.run('m');
  assert.ok(desk.sync.status('m').lastSuccessMs > good.lastSuccessMs);
});

test('Y6: a coordinator that loads delays and is no error', async () => {
  const desk = await Desk.open();
  await desk.source.commit(42);
  desk.here.coordinator.onLoseLeadership(0);
  await desk.sync.run('m');
  const { errors: count, lastSuccessMs } = desk.sync.status('m');
  assert.deepEqual([count, lastSuccessMs], [0, -1]);
  await desk.here.lead();
  await desk.sync.run('m');
  assert.deepEqual(await desk.here.offsets(), { 'orders-0': 42 });
});

test('B1 G32: offsets above a cut are lowered to it, whoever has them, and reported', async () => {
  const desk = await Desk.open();
  const { here } = desk;
  const member = await here.stableMember();
  await here.commit(80, { ...member, metadata: 'note' });
  await here.commit(70, { groupId: 'above' });
  await here.commit(50, { groupId: 'at' });
  await here.commit(49, { groupId: 'below' });
  await here.commit(90, { groupId: 'above', partition: 1 });
  const { errorCode, lowered } = await desk.sink.lower(ORDERS, 50);
  assert.equal(errorCode, 0);
  assert.deepEqual(lowered, [
    { groupId: 'g', from: 80 },
    { groupId: 'above', from: 70 },
  ]);
  await here.restart();
  assert.deepEqual(await here.offsets('g'), { 'orders-0': 50 });
  assert.deepEqual(await here.offsets('above'), { 'orders-0': 50, 'orders-1': 90 });
  assert.deepEqual(await here.offsets('at'), { 'orders-0': 50 });
  assert.deepEqual(await here.offsets('below'), { 'orders-0': 49 });
});

test('B1: more groups than one write takes are all lowered', async () => {
  const desk = await Desk.open();
  const names = Array.from({ length: 250 }, (_, index) => `g${index}`);
  for (const groupId of names) await desk.here.commit(9, { groupId });
  const { lowered } = await desk.sink.lower(ORDERS, 3);
  assert.deepEqual(
    lowered.map(({ groupId }) => groupId),
    names,
  );
  for (const groupId of names) {
    assert.deepEqual(await desk.here.offsets(groupId), { 'orders-0': 3 });
  }
});

test('B1: offsets of a topic that had this name before are left alone', async () => {
  const desk = await Desk.open();
  await desk.here.commit(9);
  const { lowered } = await desk.sink.lower({ ...ORDERS, topicId: topicId(7) }, 3);
  assert.deepEqual(lowered, []);
});

test('B1: a coordinator that loads is waited for, one that stays away is told', async () => {
  const desk = await Desk.open();
  const { here } = desk;
  await here.commit(9);
  const lower = groupOffsetLowering(testRuntime(here.clock), desk.sink);
  here.coordinator.onLoseLeadership(0);
  const done = lower(ORDERS, 3);
  await here.clock.advance(400);
  await here.lead();
  await here.clock.advance(400);
  assert.equal(await done, undefined);
  assert.deepEqual(await here.offsets(), { 'orders-0': 3 });

  let attempts = 0;
  const refusing = async (errorCode: ErrorCode) => {
    attempts++;
    return { errorCode, lowered: [] };
  };
  const busy = errors.NOT_COORDINATOR.code;
  const never = groupOffsetLowering(testRuntime(here.clock), { lower: () => refusing(busy) });
  const failed = never(ORDERS, 3, 4 * LOWER_RETRY_MS);
  await here.clock.advance(60_000);
  assert.equal(await failed, 'group offsets of orders-0 above 3: NOT_COORDINATOR');
  assert.equal(attempts, 5);
  const denied = errors.GROUP_AUTHORIZATION_FAILED.code;
  const refused = groupOffsetLowering(testRuntime(here.clock), { lower: () => refusing(denied) });
  assert.match((await refused(ORDERS, 3)) ?? '', /GROUP_AUTHORIZATION_FAILED$/);
  assert.equal(attempts, 6);
});
