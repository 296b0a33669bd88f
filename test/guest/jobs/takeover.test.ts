/**
 * Taking a native topic over from Apache brokers: order, absence of what must not happen, the way
 * back, and every point at which the guest can die (G29).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { JobOwnership } from '../../../src/guest/jobs/job-ownership.ts';
import { isStray } from '../../../src/guest/jobs/strays.ts';
import { ASK_AGAIN_MS, Takeover } from '../../../src/guest/jobs/takeover.ts';
import { TopicLock } from '../../../src/guest/jobs/topic-lock.ts';
import { finalConfigs } from '../../../src/guest/jobs/topic-settings.ts';
import { ConfigResourceType, type PartitionRegistration } from '../../../src/metadata/image.ts';
import { ApiKey } from '../../../src/protocol/api-keys.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { broker, config, id, topic } from '../../metadata/harness.ts';
import {
  GUEST,
  killPoints,
  MIRROR,
  OTHER_GUEST,
  SOURCE_ID,
  TestCluster,
  untilKilled,
} from '../jobs-harness.ts';

const { BROKER } = ConfigResourceType;
const T = id(1);
const OWN = { 'compression.type': 'lz4', 'min.insync.replicas': '2' };
const LOCKED = { 'compression.type': 'gzip', 'max.message.bytes': '78' };
const FORCED = { 'min.insync.replicas': '1', 'unclean.leader.election.enable': 'false' };

/** A native topic whose addition to the mirror has just been recorded. */
async function taken(
  partitions: readonly (readonly number[])[] = [
    [1, 2],
    [2, 3],
  ],
  takeoverOffsets: readonly number[] = partitions.map((_, index) => 10 + index),
): Promise<TestCluster> {
  const cluster = await new TestCluster().withMirror();
  cluster.commit(...topic('t', T, ...partitions.map((list) => [...list])));
  for (const [name, value] of Object.entries(OWN)) cluster.setConfig('t', name, value);
  await cluster.storeOf(GUEST).writeTopic('t', {
    mirrorName: MIRROR,
    removed: false,
    membershipOffset: 5,
    topicId: T,
    sourceTopicId: SOURCE_ID,
    finalConfigs: finalConfigs(cluster.image, new Map(Object.entries(OWN))),
    targetReplicationFactor: 2,
    ...(takeoverOffsets.length === 0 ? {} : { takeoverOffsets }),
  });
  cluster.trace.length = 0;
  return cluster;
}

/** A guest process with the jobs that matter here, and its own replicas catching up. */
class Process {
  readonly cluster: TestCluster;
  readonly takeover: Takeover;
  readonly #lock: TopicLock;
  /** How often the cordon was lifted. */
  lifted = 0;
  /** Partitions whose copy here lags. */
  readonly lagging = new Set<number>();

  constructor(cluster: TestCluster) {
    this.cluster = cluster;
    const context = cluster.context();
    const ownership = new JobOwnership(context);
    this.#lock = new TopicLock({ context, ownership, inMaintenance: () => false });
    this.takeover = new Takeover({
      context,
      ownership,
      whileUncordoned: (action) => {
        this.lifted++;
        return action();
      },
    });
  }

  async step(): Promise<void> {
    await this.#lock.pass();
    await this.takeover.pass();
    for (const partition of this.partitions()) {
      const { replicas, isr, partition: index } = partition;
      const isHere = replicas.includes(GUEST) && !isr.includes(GUEST);
      if (isHere && !this.lagging.has(index)) this.cluster.setIsr('t', index, [...isr, GUEST]);
    }
    this.cluster.runtime.clock.advance(ASK_AGAIN_MS);
  }

  partitions(): PartitionRegistration[] {
    return [...(this.cluster.image.topicsByName.get('t')?.partitions.values() ?? [])];
  }

  async run(steps = 8): Promise<void> {
    for (let n = 0; n < steps; n++) await this.step();
  }
}

function leaders(process: Process): number[] {
  return process.partitions().map(({ leader }) => leader);
}

describe('a native topic is taken over', () => {
  test('G29 locked, then moved, then led, each partition with what it had', async () => {
    const process = new Process(await taken());
    await process.run();
    assert.deepEqual(process.cluster.trace, [
      'configs t max.message.bytes=78 compression.type=gzip',
      'configs t unclean.leader.election.enable=false min.insync.replicas=1',
      `reassign t-0 [${GUEST},1,2]`,
      `reassign t-1 [${GUEST},2,3]`,
      'elect t-0',
      'elect t-1',
    ]);
    assert.equal(process.lifted, 1);
    assert.deepEqual(leaders(process), [GUEST, GUEST]);
    assert.deepEqual(process.cluster.overrides('t'), { ...LOCKED, ...FORCED });
    assert.deepEqual(process.takeover.explain(), []);
  });

  test('G29 no partition is led before all are in sync, and why is told', async () => {
    const process = new Process(await taken());
    process.lagging.add(1);
    await process.run();
    assert.deepEqual(leaders(process), [1, 2]);
    assert.deepEqual(
      process.takeover.explain().map(({ partition, reason }) => [partition, reason]),
      [
        [0, 'it waits for the other partitions of its topic'],
        [1, `guest ${GUEST} copies it from offset 11 on`],
      ],
    );
    process.lagging.clear();
    await process.run();
    assert.deepEqual(leaders(process), [GUEST, GUEST]);
  });

  test('G29 a cordoned broker that has it is told, and waited for', async () => {
    const process = new Process(await taken());
    process.cluster.cordon(2, true);
    await process.run();
    assert.equal(leaders(process).includes(GUEST), false);
    assert.match(
      process.takeover.explain()[0]?.reason ?? '',
      /^broker\(s\) 2 are cordoned: uncord/,
    );
    process.cluster.cordon(2, false);
    await process.run();
    assert.deepEqual(leaders(process), [GUEST, GUEST]);
  });

  test('G29 leadership that goes back to an Apache broker is taken again', async () => {
    const process = new Process(await taken());
    await process.run();
    process.cluster.setLeader('t', 0, 1, [1, 2]);
    process.cluster.trace.length = 0;
    await process.run();
    assert.deepEqual(process.cluster.trace, ['elect t-0']);
    assert.deepEqual(leaders(process), [GUEST, GUEST]);
  });

  test('G12 so is that of a new topic whose guest was away before it was alone', async () => {
    const process = new Process(await taken([[GUEST, 1, 2]], []));
    const { cluster, takeover } = process;
    for (const [name, value] of Object.entries({ ...LOCKED, ...FORCED })) {
      cluster.setConfig('t', name, value);
    }
    cluster.setLeader('t', 0, 1, [1, 2]);
    process.lagging.add(0);
    await process.run();
    assert.deepEqual(cluster.trace, []);
    assert.deepEqual(
      takeover.explain().map(({ reason }) => reason),
      [`guest ${GUEST} copies it from offset 0 on`],
    );
    process.lagging.clear();
    await process.run();
    assert.deepEqual(cluster.trace, ['elect t-0']);
    assert.deepEqual(leaders(process), [GUEST]);
    assert.deepEqual(takeover.explain(), []);
  });

  test('G23 other live guests are replicas, too', async () => {
    const cluster = await taken([[1, 2]]);
    cluster.commit(
      broker(OTHER_GUEST),
      config(BROKER, String(OTHER_GUEST), 'twinlog.guest', 'true'),
    );
    const process = new Process(cluster);
    process.lagging.add(0);
    await process.run();
    assert.equal(cluster.trace.at(-1), `reassign t-0 [${GUEST},${OTHER_GUEST},1,2]`);
  });

  test('a step that is refused is told, and tried again', async () => {
    const process = new Process(await taken([[1, 2]]));
    const { cluster, takeover } = process;
    cluster.failures.set(
      ApiKey.AlterPartitionReassignments,
      errors.INVALID_REPLICA_ASSIGNMENT.code,
    );
    await process.step();
    await process.step();
    assert.match(takeover.explain()[0]?.reason ?? '', /refuses its reassignment: as told/);
    cluster.failures.set(ApiKey.ElectLeaders, 'unreachable');
    await process.run();
    assert.deepEqual(leaders(process), [GUEST]);
  });

  test('G29 killed at any effect, a new process ends it the same way', async () => {
    const reference = new Process(await taken());
    reference.cluster.restart();
    await reference.run();
    const count = reference.cluster.effects;
    assert.equal(count, 6);
    for (const point of killPoints(count)) {
      const where = `killed ${point.when} at ${point.effects}`;
      const cluster = await taken();
      cluster.restart(point);
      assert.equal(await untilKilled(() => new Process(cluster).run()), true, where);
      cluster.restart();
      const process = new Process(cluster);
      await process.run();
      assert.deepEqual(cluster.trace, reference.cluster.trace, where);
      assert.deepEqual(leaders(process), [GUEST, GUEST], where);
    }
  });
});

describe('a topic leaves the mirror before a guest leads it', () => {
  async function leave(cluster: TestCluster): Promise<void> {
    const store = cluster.storeOf(GUEST);
    const row = store.topic('t');
    assert.ok(row !== undefined);
    await store.writeTopic('t', { ...row, removed: true, membershipOffset: 6 });
    cluster.trace.length = 0;
  }

  test('G29 it goes back to its brokers, with its own settings, and is forgotten', async () => {
    const process = new Process(await taken());
    const { cluster } = process;
    process.lagging.add(0);
    await process.run(3);
    assert.deepEqual(cluster.partition('t', 1).isr, [2, 3, GUEST]);
    await leave(cluster);
    const view = {
      image: cluster.image,
      topicRow: () => cluster.storeOf(GUEST).topic('t'),
      row: () => undefined,
    };
    const [image] = [cluster.image.topicsByName.get('t')];
    assert.ok(image !== undefined);
    assert.equal(isStray(view, image, 0), false, 'the sweeper would add replicas');
    await process.run();
    assert.deepEqual(cluster.trace, [
      'cancel t-0',
      'reassign t-1 [2,3]',
      'configs t -max.message.bytes compression.type=lz4 ' +
        '-unclean.leader.election.enable min.insync.replicas=2',
      'row t-0 STOPPING',
      'row t-0 STOPPING',
      'row t-0 STOPPED',
      'row t-1 STOPPING',
      'row t-1 STOPPING',
      'row t-1 STOPPED',
      `row t ${MIRROR}.removed with id`,
    ]);
    const { lastMirroredOffset, membershipOffset } = cluster.rowOf('t') ?? {};
    assert.deepEqual([lastMirroredOffset, membershipOffset], [-1, 6]);
    assert.deepEqual(cluster.overrides('t'), OWN);
    assert.equal(cluster.storeOf(GUEST).topic('t')?.takeoverOffsets, undefined);
    for (const { replicas, leader } of process.partitions()) {
      assert.equal(replicas.length, 2);
      assert.ok(leader !== GUEST);
    }
  });

  test('G29 killed at any effect on the way back, a new process ends it the same way', async () => {
    const leaving = async (): Promise<TestCluster> => {
      const process = new Process(await taken());
      process.lagging.add(0);
      await process.run(3);
      await leave(process.cluster);
      process.cluster.restart();
      return process.cluster;
    };
    const reference = await leaving();
    await new Process(reference).run();
    assert.equal(reference.effects, 10);
    for (const point of killPoints(reference.effects)) {
      const where = `killed ${point.when} at ${point.effects}`;
      const cluster = await leaving();
      cluster.restart(point);
      assert.equal(await untilKilled(() => new Process(cluster).run()), true, where);
      cluster.restart();
      await new Process(cluster).run();
      assert.deepEqual(cluster.trace, reference.trace, where);
      assert.deepEqual(cluster.overrides('t'), OWN, where);
    }
  });

  test('G24 what an Apache broker came to lead is led by a guest once more', async () => {
    const all = { ...LOCKED, ...FORCED };
    for (const offsets of [[], [10]]) {
      const process = new Process(await taken([[GUEST, 1, 2]], offsets));
      const { cluster } = process;
      for (const [name, value] of Object.entries(all)) cluster.setConfig('t', name, value);
      cluster.setRow('t', 0, 'MIRRORING', {});
      await leave(cluster);
      cluster.setLeader('t', 0, 1, [1, 2]);
      await process.run();
      assert.deepEqual(cluster.trace, ['elect t-0']);
      cluster.setRow('t', 0, 'STOPPING', { settled: true });
      cluster.setLeader('t', 0, 1, [1, 2]);
      await process.run();
      assert.deepEqual(cluster.trace, ['elect t-0'], 'the handover has the rest');
    }
  });

  test('G24 a native topic that was mirrored is left alone', async () => {
    const process = new Process(await taken([[1, GUEST]], []));
    await leave(process.cluster);
    await process.run();
    assert.deepEqual(process.cluster.trace, []);
    assert.deepEqual(process.takeover.explain(), []);
  });

  test('G24 what a guest leads is left to its stop', async () => {
    const process = new Process(await taken());
    await process.run();
    await leave(process.cluster);
    process.cluster.setRow('t', 0, 'STOPPING', {});
    await process.run();
    assert.deepEqual(process.cluster.trace, []);
    assert.deepEqual(
      process.takeover.explain().map(({ reason }) => reason),
      ['its mirroring is being stopped', 'a guest leads it'],
    );
  });
});
