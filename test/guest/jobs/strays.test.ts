/**
 * Partitions that are none of ours: kept off by the cordon, swept off by reassignments (G7, G8).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CORDON_TIMEOUT_MS, Cordon } from '../../../src/guest/jobs/cordon.ts';
import { JobOwnership } from '../../../src/guest/jobs/job-ownership.ts';
import { StraySweeper, SWEEP_AGAIN_MS } from '../../../src/guest/jobs/strays.ts';
import { encodeTopic, type MirrorTopicRow } from '../../../src/guest/state/catalog.ts';
import { ConfigResourceType } from '../../../src/metadata/image.ts';
import { metadataRecord } from '../../../src/metadata/record-framing.ts';
import { ApiKey } from '../../../src/protocol/api-keys.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { broker, config, feature, id, topic } from '../../metadata/harness.ts';
import { APACHE, GUEST, MIRROR, OTHER_GUEST, SOURCE_ID, TestCluster } from '../jobs-harness.ts';

const { BROKER } = ConfigResourceType;

function sweeper(cluster: TestCluster, brokerId: number = GUEST): StraySweeper {
  const context = cluster.context(brokerId);
  return new StraySweeper({ context, ownership: new JobOwnership(context) });
}

function native(name: string, topicId: number, ...partitions: number[][]): TestCluster {
  return new TestCluster(...topic(name, id(topicId), ...partitions));
}

function topicRow(topicId: number, removed: boolean): MirrorTopicRow {
  return {
    mirrorName: MIRROR,
    removed,
    membershipOffset: 5,
    topicId: id(topicId),
    sourceTopicId: SOURCE_ID,
    finalConfigs: [],
    targetReplicationFactor: 0,
  };
}

async function row(cluster: TestCluster, name: string, topicId: number, removed: boolean) {
  await cluster.withMirror();
  await cluster.storeOf(GUEST).writeTopic(name, topicRow(topicId, removed));
  cluster.trace.length = 0;
}

describe('G8: strays are moved to Apache brokers', () => {
  test('replica for replica, and the leadership at once', async () => {
    const cluster = native('n', 1, [GUEST, 1], [1, GUEST, 2], [1, 2, 3], [GUEST]);
    const job = sweeper(cluster);
    await job.pass();
    assert.deepEqual(
      cluster.trace.map((what) => what.replace(/\d\]$/, '_]')),
      ['reassign n-0 [1,_]', 'reassign n-1 [1,2,_]', 'reassign n-3 [_]'],
    );
    for (const index of [0, 1, 3]) {
      const { replicas, addingReplicas, removingReplicas } = cluster.partition('n', index);
      assert.deepEqual(removingReplicas, [GUEST]);
      assert.equal(addingReplicas.length, 1);
      assert.equal(new Set(replicas).size, replicas.length);
    }
    await job.pass();
    assert.deepEqual(cluster.trace.slice(3), ['elect n-0']);
    assert.equal(cluster.partition('n', 0).leader, 1);
    for (const index of [0, 1, 3]) {
      const { replicas } = cluster.partition('n', index);
      cluster.setIsr('n', index, replicas);
    }
    cluster.runtime.clock.advance(SWEEP_AGAIN_MS);
    await job.pass();
    assert.equal(cluster.trace.length, 4);
    assert.deepEqual(job.explain(), []);
    assert.deepEqual(
      [0, 1, 2, 3].map((index) => cluster.partition('n', index).replicas.length),
      [2, 3, 3, 1],
    );
    assert.ok(
      [0, 1, 2, 3].every((index) => !cluster.partition('n', index).replicas.includes(GUEST)),
    );
  });

  test('new replicas go to racks that have none, then to brokers with few', async () => {
    const cluster = native('n', 1, [1, GUEST], [GUEST]);
    cluster.commit(broker(4, { rack: 'r1' }), ...topic('o', id(2), [2], [2], [3], [4], [1]));
    await sweeper(cluster).pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1,3]', 'reassign n-1 [4]']);
  });

  test('before there ever was a mirror, when no mirror state can be read', async () => {
    const cluster = native('n', 1, [GUEST]);
    cluster.failRead = errors.COORDINATOR_NOT_AVAILABLE.code;
    await sweeper(cluster).pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1]']);
  });

  test('a dead broker is not chosen; a dead replica is replaced where one can be', async () => {
    const cluster = native('n', 1, [1, GUEST]);
    cluster.fence(1, true);
    await sweeper(cluster).pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [2,3]']);
  });

  test('one that dies while it is waited for is replaced', async () => {
    const cluster = native('n', 1, [GUEST]);
    const job = sweeper(cluster);
    await job.pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1]']);
    await job.pass();
    assert.deepEqual(job.explain(), [
      { topic: 'n', partition: 0, reason: 'it is being moved; not in sync yet: 1' },
    ]);
    cluster.fence(1, true);
    await job.pass();
    // Apache Kafka 4.4 would wait for the dead one, if its move were not cancelled first.
    assert.deepEqual(cluster.trace.slice(1), ['cancel n-0', 'reassign n-0 [2]']);
    assert.deepEqual(cluster.partition('n').addingReplicas, [2]);
  });

  test('a cordoned broker is not chosen; what has one stays, and is reported', async () => {
    const cluster = native('n', 1, [GUEST], [2, GUEST]);
    cluster.cordon(2, true);
    const job = sweeper(cluster);
    await job.pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1]']);
    assert.deepEqual(
      job
        .explain()
        .map(({ partition, reason }) => [partition, /^broker\(s\) 2 are cor/.test(reason)]),
      [[1, true]],
    );
  });

  test('fewer Apache brokers than replicas: it is moved, and reported', async () => {
    const cluster = native('n', 1, [1, 2, 3, GUEST]);
    const job = sweeper(cluster);
    await job.pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1,2,3]']);
    assert.match(job.explain()[0]?.reason ?? '', /1 replica\(s\) fewer/);
    assert.deepEqual(cluster.partition('n').replicas, [1, 2, 3]);
    await job.pass();
    assert.deepEqual(job.explain(), []);
  });

  test('nobody else is there: it stays, and is reported', async () => {
    const cluster = native('n', 1, [GUEST]);
    for (const each of APACHE) cluster.fence(each, true);
    const job = sweeper(cluster);
    await job.pass();
    assert.deepEqual(cluster.trace, []);
    assert.match(job.explain()[0]?.reason ?? '', /no other live broker/);
  });

  test('refusals are reported and tried again after a pause', async () => {
    const cluster = native('n', 1, [GUEST]);
    const job = sweeper(cluster);
    cluster.failures.set(
      ApiKey.AlterPartitionReassignments,
      errors.CLUSTER_AUTHORIZATION_FAILED.code,
    );
    await job.pass();
    assert.match(job.explain()[0]?.reason ?? '', /as told/);
    await job.pass();
    assert.deepEqual(cluster.trace, []);
    cluster.runtime.clock.advance(SWEEP_AGAIN_MS);
    await job.pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1]']);
  });

  test('one guest sweeps for all: the live one with the lowest id', async () => {
    const cluster = native('n', 1, [OTHER_GUEST]);
    cluster.commit(broker(OTHER_GUEST), config(BROKER, `${OTHER_GUEST}`, 'twinlog.guest', 'true'));
    await sweeper(cluster, OTHER_GUEST).pass();
    assert.deepEqual(cluster.trace, []);
    cluster.fence(GUEST, true);
    await sweeper(cluster, OTHER_GUEST).pass();
    assert.deepEqual(cluster.trace, ['reassign n-0 [1]']);
  });
});

describe('G8: what is never touched', () => {
  test('mirror topics, before and after their id is recorded', async () => {
    for (const topicId of [1, 0]) {
      const cluster = native('t', 1, [GUEST, 1, 2]);
      await row(cluster, 't', topicId, false);
      const current = cluster.catalog.topic('t');
      assert.ok(current !== undefined);
      if (topicId === 0) {
        const zero = 'AAAAAAAAAAAAAAAAAAAAAA' as typeof current.topicId;
        await cluster.storeOf(GUEST).writeTopic('t', { ...current, topicId: zero });
        cluster.trace.length = 0;
      }
      await sweeper(cluster).pass();
      assert.deepEqual(cluster.trace, []);
    }
  });

  test('a removed topic before its row is STOPPED, whoever leads', async () => {
    for (const settled of [false, true]) {
      const cluster = native('t', 1, [GUEST, 1, 2]);
      await row(cluster, 't', 1, true);
      cluster.setRow('t', 0, 'STOPPING', { settled });
      await sweeper(cluster).pass();
      cluster.setLeader('t', 0, 1);
      await sweeper(cluster).pass();
      assert.deepEqual(cluster.trace, []);
    }
  });

  test('a partition without a row that a guest leads: its driver stops it first', async () => {
    const cluster = native('t', 1, [GUEST, 1]);
    await row(cluster, 't', 1, true);
    await sweeper(cluster).pass();
    assert.deepEqual(cluster.trace, []);
  });

  test('a topic whose row was written by another guest and is not read yet', async () => {
    const cluster = await native('t', 1, [GUEST, 1, 2]).withMirror();
    cluster.commit(...topic('__mirror_state', id(99), [1]));
    cluster.failRead = errors.COORDINATOR_NOT_AVAILABLE.code;
    const job = sweeper(cluster);
    await job.pass();
    assert.match(job.explain()[0]?.reason ?? '', /cannot be read: COORDINATOR_NOT_AVAILABLE/);
    cluster.failRead = undefined;
    let reads = 0;
    cluster.onRead = () => {
      reads++;
      cluster.catalog.replay({ type: 'topic', topic: 't' }, encodeTopic(topicRow(1, false)));
    };
    await job.pass();
    await job.pass();
    assert.equal(reads, 1);
    assert.deepEqual(cluster.trace, []);
    assert.deepEqual(job.explain(), []);
  });

  test('but a stray of what was a mirror topic, and a new topic of an old name, are', async () => {
    const stopped = native('t', 1, [1, GUEST], [1, GUEST]);
    await row(stopped, 't', 1, true);
    stopped.setRow('t', 0, 'STOPPED', {});
    await sweeper(stopped).pass();
    assert.deepEqual(stopped.trace, ['reassign t-0 [1,2]', 'reassign t-1 [1,3]']);
    const gone = native('t', 1, [1, GUEST]);
    await row(gone, 't', 1, false);
    gone.setRow('t', 0, 'STOPPED', { membershipOffset: 5 });
    await sweeper(gone).pass();
    assert.deepEqual(gone.trace, ['reassign t-0 [1,2]'], 'Y5');
    const again = native('t', 1, [1, GUEST]);
    await row(again, 't', 1, false);
    again.setRow('t', 0, 'STOPPED', { membershipOffset: 4 });
    await sweeper(again).pass();
    assert.deepEqual(again.trace, [], 'added again since');
    const renewed = native('t', 1, [1, GUEST]);
    await row(renewed, 't', 77, false);
    await sweeper(renewed).pass();
    assert.deepEqual(renewed.trace, ['reassign t-0 [1,2]']);
  });
});

describe('G7: the cordon', () => {
  const DIRECTORY = id(42);

  function cordon(cluster: TestCluster, heartbeatVersion: number | undefined, onBeat = () => {}) {
    return new Cordon(cluster.runtime, {
      brokerId: GUEST,
      controller: cluster.controller,
      image: () => cluster.image,
      logDirs: [DIRECTORY],
      heartbeatVersion: () => heartbeatVersion,
      heartbeatNow: onBeat,
    });
  }

  const levels: [level: number, heartbeat: number | undefined, isCordoned: boolean][] = [
    [29, 2, false],
    [30, 1, false],
    [30, undefined, false],
    [30, 2, true],
    [33, 2, true],
  ];
  for (const [level, heartbeat, isCordoned] of levels) {
    test(`metadata.version ${level}, heartbeat v${heartbeat}: ${isCordoned}`, async () => {
      const cluster = new TestCluster(feature('metadata.version', level));
      const beats: number[] = [];
      const around = cordon(cluster, heartbeat, () => beats.push(1));
      assert.deepEqual(around.cordonedLogDirs(), isCordoned ? [DIRECTORY] : []);
      const seen = await around.whileLifted(async () => around.cordonedLogDirs());
      assert.deepEqual(seen, []);
      assert.deepEqual(around.cordonedLogDirs(), isCordoned ? [DIRECTORY] : []);
      assert.equal(beats.length, isCordoned ? 1 : 0);
    });
  }

  function show(cluster: TestCluster, directories: ReturnType<typeof id>[]): void {
    const { epoch } = cluster.image.brokers.get(GUEST) ?? { epoch: -1 };
    cluster.commit(
      metadataRecord('RegisterBrokerRecord', {
        brokerId: GUEST,
        incarnationId: id(1000 + GUEST),
        brokerEpoch: epoch,
        endPoints: [],
        features: [],
        rack: null,
        fenced: false,
        inControlledShutdown: false,
        logDirs: [DIRECTORY],
        cordonedLogDirs: directories,
      }),
    );
  }

  test('what needs it lifted waits until the metadata shows that, not for ever', async () => {
    const cluster = new TestCluster(feature('metadata.version', 30));
    show(cluster, [DIRECTORY]);
    const beats: string[][] = [];
    const around: Cordon = cordon(cluster, 2, () => beats.push([...around.cordonedLogDirs()]));
    let ran = 0;
    const first = around.whileLifted(async () => void ran++);
    await new Promise(setImmediate);
    assert.equal(ran, 0);
    assert.deepEqual(beats, [[]]);
    show(cluster, []);
    cluster.runtime.clock.advance(20);
    await first;
    assert.equal(ran, 1);
    assert.deepEqual(beats, [[], [DIRECTORY]]);
    show(cluster, [DIRECTORY]);
    const second = around.whileLifted(async () => void ran++);
    for (let i = 0; i <= CORDON_TIMEOUT_MS / 20; i++) {
      await new Promise(setImmediate);
      cluster.runtime.clock.advance(20);
    }
    await second;
    assert.equal(ran, 2);
  });

  test('a failing action leaves it as it was; nested actions share it', async () => {
    const cluster = new TestCluster(feature('metadata.version', 30));
    const around = cordon(cluster, 2);
    await assert.rejects(
      around.whileLifted(() => Promise.reject(new RangeError('no'))),
      RangeError,
    );
    assert.deepEqual(around.cordonedLogDirs(), [DIRECTORY]);
    await around.whileLifted(async () => {
      await around.whileLifted(async () => {});
      assert.deepEqual(around.cordonedLogDirs(), []);
    });
    assert.deepEqual(around.cordonedLogDirs(), [DIRECTORY]);
  });
});
