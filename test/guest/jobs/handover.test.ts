/**
 * Handing partitions over to the Apache brokers: order, absence of what must not happen, and every
 * point at which the guest can die (G24, G25, G26, G28).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  ASK_AGAIN_MS,
  type Handover,
  type HandoverOptions,
} from '../../../src/guest/jobs/handover.ts';
import { FETCH_PATIENCE_MS, LAGGING_PATIENCE_MS } from '../../../src/guest/jobs/handover-plan.ts';
import { GuestIsrRule } from '../../../src/guest/jobs/isr-rule.ts';
import { JobOwnership } from '../../../src/guest/jobs/job-ownership.ts';
import { TopicLock } from '../../../src/guest/jobs/topic-lock.ts';
import { creationConfigs, finalConfigs } from '../../../src/guest/jobs/topic-settings.ts';
import { ConfigResourceType, type PartitionRegistration } from '../../../src/metadata/image.ts';
import { metadataRecord } from '../../../src/metadata/record-framing.ts';
import type { MirrorStateRow } from '../../../src/mirror/state-row.ts';
import { MirrorState, type MirrorStateName } from '../../../src/mirror/states.ts';
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
const COPIED = new Map([
  ['retention.ms', '1000'],
  ['min.insync.replicas', '2'],
]);
const LMO = 42;

/** A removed topic, all of whose partitions have a row in this state. */
async function leaving(
  partitions: readonly (readonly number[])[],
  wish: {
    readonly state?: MirrorStateName;
    readonly settled?: boolean;
    readonly name?: string;
    readonly into?: TestCluster;
    readonly targetReplicationFactor?: number;
  } = {},
): Promise<TestCluster> {
  const { state = 'STOPPING', settled = true, name = 't', targetReplicationFactor = 3 } = wish;
  const cluster = wish.into ?? (await new TestCluster().withMirror());
  const topicId = id(name.charCodeAt(0));
  cluster.commit(...topic(name, topicId, ...partitions.map((list) => [...list])));
  for (const partition of partitions.keys()) cluster.setIsr(name, partition, [GUEST]);
  const final = finalConfigs(cluster.image, COPIED);
  for (const [key, value] of creationConfigs(final)) cluster.setConfig(name, key, value);
  await cluster.storeOf(GUEST).writeTopic(name, {
    mirrorName: MIRROR,
    removed: true,
    membershipOffset: 5,
    topicId,
    sourceTopicId: SOURCE_ID,
    finalConfigs: final,
    targetReplicationFactor,
  });
  for (const partition of partitions.keys()) {
    cluster.setRow(name, partition, state, { settled, lastMirroredOffset: LMO + partition });
  }
  cluster.trace.length = 0;
  return cluster;
}

/** A guest process that hands over, with the followers that its leader lets in. */
class Process {
  readonly cluster: TestCluster;
  readonly rule: GuestIsrRule;
  readonly handover: Handover;
  readonly silent = new Set<number>();
  reviews = 0;

  constructor(cluster: TestCluster, wish: Partial<HandoverOptions> & { brokerId?: number } = {}) {
    this.cluster = cluster;
    this.rule = new GuestIsrRule({ image: () => cluster.image, inMaintenance: () => false });
    this.handover = cluster.handover({
      isrRule: this.rule,
      fetchedRecently: (_topicId, _partition, brokerId) => !this.silent.has(brokerId),
      reviewIsr: () => {
        this.reviews++;
      },
      ...wish,
    });
  }

  /** Every live follower that may, and fetches, is in sync a moment later. */
  catchUp(): void {
    const { cluster } = this;
    for (const { partitions } of cluster.image.topicsByName.values()) {
      for (const partition of partitions.values()) {
        const isr = partition.replicas.filter((each) => this.isIn(partition, each));
        if (partition.leader === GUEST && isr.length !== partition.isr.length) {
          cluster.setIsr(partition.topic, partition.partition, isr);
        }
      }
    }
  }

  isIn({ topicId, partition, leader }: PartitionRegistration, each: number): boolean {
    if (each === leader) return true;
    const isLive = this.cluster.image.brokers.get(each)?.fenced === false;
    return isLive && !this.silent.has(each) && this.rule.mayJoin(topicId, partition, each);
  }

  /** Passes and followers in turn, until nothing changes any more. */
  async run(rounds = 12): Promise<void> {
    for (let i = 0; i < rounds; i++) {
      await this.handover.pass();
      this.catchUp();
    }
  }

  reasons(): string[] {
    return this.handover
      .explain()
      .map(({ topic, partition, reason }) => `${topic}-${partition}: ${reason}`);
  }
}

const FINAL = { 'min.insync.replicas': '2', 'retention.ms': '1000' };

describe('G24: the order', () => {
  test('followers in sync, one reassignment, settings, rows, nothing else', async () => {
    const cluster = await leaving([
      [GUEST, 1, 2, 3],
      [GUEST, 2, 3, 1],
    ]);
    const guest = new Process(cluster);
    await guest.handover.pass();
    assert.deepEqual(cluster.trace, [], 'nobody is in sync yet');
    assert.equal(guest.reviews, 1);
    assert.deepEqual(guest.reasons(), [
      't-0: broker(s) 1, 2, 3 are not in sync yet',
      't-1: broker(s) 2, 3, 1 are not in sync yet',
    ]);
    await guest.run();
    assert.deepEqual(cluster.trace, [
      'reassign t-0 [1,2,3]',
      'reassign t-1 [2,3,1]',
      'configs t -max.message.bytes -compression.type -unclean.leader.election.enable ' +
        'min.insync.replicas=2',
      'row t-0 STOPPED',
      'row t-1 STOPPED',
      'row t m.removed with id',
    ]);
    assert.deepEqual(guest.reasons(), []);
    assert.equal(guest.reviews, 1);
    for (const partition of [0, 1]) {
      const { leader, replicas } = cluster.partition('t', partition);
      assert.equal(leader, replicas[0], 'G25: the first target leads');
      assert.equal(cluster.rowOf('t', partition)?.lastMirroredOffset, LMO + partition);
      assert.equal(cluster.rowOf('t', partition)?.state, MirrorState.STOPPED);
    }
    assert.deepEqual(cluster.overrides('t'), FINAL);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 0);
  });

  test('once it is done, a pass does nothing', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    await new Process(cluster).run();
    const { length } = cluster.trace;
    cluster.setConfig('t', 'min.insync.replicas', '1');
    const again = new Process(cluster);
    await again.run();
    cluster.runtime.clock.advance(60_000);
    await again.run();
    assert.equal(cluster.trace.length, length);
    assert.equal(cluster.overrides('t')['min.insync.replicas'], '1');
  });

  test('a topic whose partitions are not all native keeps its settings and rows', async () => {
    const cluster = await leaving([
      [GUEST, 1, 2, 3],
      [GUEST, 2, 3, 1],
    ]);
    cluster.setRow('t', 1, 'STOPPING', { settled: false });
    const guest = new Process(cluster);
    await guest.run();
    assert.deepEqual(cluster.trace, ['reassign t-0 [1,2,3]']);
    assert.deepEqual(guest.reasons(), [
      't-0: it is native and waits for the other partitions of its topic',
      't-1: its stop is not settled: it is STOPPING',
    ]);
    cluster.setRow('t', 1, 'STOPPING', { settled: true, lastMirroredOffset: 7 });
    await guest.run();
    assert.equal(cluster.rowOf('t', 0)?.state, MirrorState.STOPPED);
    assert.equal(cluster.rowOf('t', 1)?.lastMirroredOffset, 7);
  });

  const early: [state: MirrorStateName, settled: boolean][] = [
    ['PREPARING', false],
    ['MIRRORING', false],
    ['STOPPING', false],
  ];
  for (const [state, settled] of early) {
    test(`${state}, not settled: nobody is let in, nothing is asked for`, async () => {
      const cluster = await leaving([[GUEST, 1, 2, 3]], { state, settled });
      const guest = new Process(cluster);
      await guest.run();
      assert.deepEqual(cluster.trace, []);
      assert.deepEqual(cluster.partition('t').isr, [GUEST]);
      assert.equal(guest.rule.mayJoin(id('t'.charCodeAt(0)), 0, 1), false);
      assert.deepEqual(guest.reasons(), [`t-0: its stop is not settled: it is ${state}`]);
    });
  }

  test('a topic that is a member is never handed over, whatever its rows say', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    const row = cluster.catalog.topic('t');
    assert.ok(row !== undefined);
    const member = { ...row, removed: false, membershipOffset: 50 };
    await cluster.storeOf(GUEST).writeTopic('t', member);
    cluster.trace.length = 0;
    const guest = new Process(cluster);
    await guest.run();
    assert.deepEqual(cluster.trace, []);
    assert.deepEqual(cluster.partition('t').isr, [GUEST]);
  });

  test('G26: a thousand partitions are one request', async () => {
    const lists = Array.from({ length: 1_000 }, () => [GUEST, 1, 2, 3]);
    const cluster = await leaving(lists);
    let requests = 0;
    const { send } = cluster.controller;
    const counting: typeof cluster.controller = {
      send: (request, response, value) => {
        if (request.apiKey === ApiKey.AlterPartitionReassignments) requests++;
        return send(request, response, value);
      },
    };
    const guest = new Process(cluster, { context: { ...cluster.context(), controller: counting } });
    await guest.run(4);
    assert.equal(requests, 1);
    assert.equal(cluster.rowOf('t', 999)?.state, MirrorState.STOPPED);
  });
});

describe('G28: killed at every step', () => {
  async function twoTopics(): Promise<TestCluster> {
    const cluster = await leaving([
      [GUEST, 1, 2, 3],
      [GUEST, 2, 3, 1],
    ]);
    return await leaving([[GUEST, 3, 1, 2]], { name: 'u', into: cluster });
  }

  test('what follows goes on where the cluster stands and ends the same', async () => {
    const reference = await twoTopics();
    reference.restart();
    await new Process(reference).run();
    const count = reference.effects;
    assert.equal(count, 10);
    for (const point of killPoints(count)) {
      const where = `killed ${point.when} at ${point.effects}`;
      const cluster = await twoTopics();
      cluster.restart(point);
      assert.equal(await untilKilled(() => new Process(cluster).run()), true, where);
      cluster.restart();
      await new Process(cluster).run();
      assert.deepEqual([...cluster.trace].sort(), [...reference.trace].sort(), where);
      for (const name of ['t', 'u']) {
        assert.deepEqual(cluster.overrides(name), reference.overrides(name), where);
        const ends = (from: TestCluster): unknown =>
          [...(from.image.topicsByName.get(name)?.partitions.values() ?? [])].map((each) => [
            each.leader,
            each.replicas,
            from.rowOf(name, each.partition)?.state,
            from.rowOf(name, each.partition)?.lastMirroredOffset,
          ]);
        assert.deepEqual(ends(cluster), ends(reference), where);
        const at = (what: string): number => cluster.trace.indexOf(what);
        const configs = cluster.trace.findIndex((what) => what.startsWith(`configs ${name}`));
        for (const [index] of cluster.image.topicsByName.get(name)?.partitions ?? []) {
          const moved = cluster.trace.findIndex((what) =>
            what.startsWith(`reassign ${name}-${index}`),
          );
          assert.ok(moved < configs && configs < at(`row ${name}-${index} STOPPED`), where);
        }
      }
    }
  });

  test('the guest died, and a follower it let in leads: the rest is done', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    cluster.setIsr('t', 0, [GUEST, 1, 2]);
    cluster.fence(GUEST, true);
    cluster.setLeader('t', 0, 1, [1, 2]);
    // The guest comes back; it is a follower now and its follower view is empty.
    cluster.fence(GUEST, false);
    const guest = new Process(cluster, { fetchedRecently: () => false });
    await guest.run(2);
    assert.deepEqual(cluster.trace, []);
    assert.deepEqual(guest.reasons(), ['t-0: broker(s) 3 are not in sync yet']);
    cluster.setIsr('t', 0, [1, 2, 3, GUEST]);
    await guest.run();
    assert.deepEqual(cluster.partition('t').replicas, [1, 2, 3]);
    assert.equal(cluster.rowOf('t')?.state, MirrorState.STOPPED);
  });

  test('no guest leads it: nothing is done, and it says so', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    cluster.setLeader('t', 0, -1);
    const guest = new Process(cluster);
    await guest.run();
    assert.deepEqual(cluster.trace, []);
    assert.match(guest.reasons()[0] ?? '', /no guest leads it: 201 must come back/);
  });

  test('refusals are kept, shown, and tried again after a pause', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    const guest = new Process(cluster);
    await guest.handover.pass();
    guest.catchUp();
    cluster.failures.set(ApiKey.AlterPartitionReassignments, errors.REASSIGNMENT_IN_PROGRESS.code);
    await guest.run(3);
    assert.deepEqual(cluster.trace, []);
    assert.match(guest.reasons()[0] ?? '', /refuses its reassignment: as told/);
    cluster.failures.set(ApiKey.IncrementalAlterConfigs, 'unreachable');
    cluster.runtime.clock.advance(ASK_AGAIN_MS);
    await guest.run(3);
    assert.deepEqual(cluster.trace, ['reassign t-0 [1,2,3]']);
    assert.match(guest.reasons()[0] ?? '', /the controller did not answer/);
    cluster.failNextWrite = errors.COORDINATOR_NOT_AVAILABLE.code;
    cluster.runtime.clock.advance(ASK_AGAIN_MS);
    await guest.run(3);
    assert.match(guest.reasons()[0] ?? '', /STOPPED cannot be recorded: COORDINATOR_NOT_AVAIL/);
    assert.notEqual(cluster.rowOf('t')?.state, MirrorState.STOPPED);
    cluster.runtime.clock.advance(ASK_AGAIN_MS);
    await guest.run(3);
    assert.deepEqual(guest.reasons(), []);
    assert.equal(cluster.rowOf('t')?.state, MirrorState.STOPPED);
  });
});

describe('G24: targets that are dead', () => {
  test('a fenced one is left out at once, and added when it is back', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    cluster.fence(2, true);
    const guest = new Process(cluster);
    await guest.run();
    assert.equal(cluster.trace[0], 'reassign t-0 [1,3]');
    assert.equal(cluster.rowOf('t')?.state, MirrorState.STOPPED);
    assert.deepEqual(guest.reasons(), ['t-0: broker(s) 2 must come back for a replica']);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 3);
    cluster.fence(2, false);
    await guest.run();
    const [again] = cluster.trace.slice(-1);
    assert.match(again ?? '', /^reassign t-0 \[(?=.*1)(?=.*2)(?=.*3)[123,]+\]$/);
    assert.match(guest.reasons()[0] ?? '', /its reassignment to .* is under way/);
    cluster.setIsr('t', 0, [1, 3, 2]);
    await guest.run();
    assert.deepEqual([...cluster.partition('t').replicas].sort(), [1, 2, 3]);
    assert.deepEqual(cluster.partition('t').addingReplicas, []);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 0);
    assert.deepEqual(guest.reasons(), []);
  });

  test('one that was just killed looks alive: it is left out when it does not fetch', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    const guest = new Process(cluster);
    guest.silent.add(1);
    await guest.run();
    assert.deepEqual(cluster.trace, []);
    assert.deepEqual(guest.reasons(), ['t-0: broker(s) 1 have not fetched lately']);
    cluster.runtime.clock.advance(FETCH_PATIENCE_MS);
    await guest.run();
    assert.equal(cluster.trace[0], 'reassign t-0 [2,3]');
    assert.equal(cluster.partition('t').leader, 2);
  });

  test('one that lags is waited for, but not for ever', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    const guest = new Process(cluster);
    await guest.handover.pass();
    cluster.setIsr('t', 0, [GUEST, 1, 3]);
    await guest.handover.pass();
    assert.deepEqual(guest.reasons(), ['t-0: broker(s) 2 are not in sync yet']);
    cluster.runtime.clock.advance(LAGGING_PATIENCE_MS);
    await guest.handover.pass();
    assert.deepEqual(cluster.trace, ['reassign t-0 [1,3]']);
  });

  test('none is alive: it waits, then another broker gets a copy', async () => {
    const cluster = await leaving([[GUEST, 2, 3]], { targetReplicationFactor: 2 });
    cluster.fence(2, true);
    cluster.fence(3, true);
    const guest = new Process(cluster);
    await guest.run(2);
    assert.deepEqual(guest.reasons(), ['t-0: no Apache broker that has it is alive: 2, 3']);
    assert.deepEqual(cluster.trace, []);
    cluster.runtime.clock.advance(LAGGING_PATIENCE_MS);
    await guest.handover.pass();
    assert.deepEqual(cluster.trace, ['reassign t-0 [1]']);
    assert.deepEqual(cluster.partition('t').addingReplicas, [1]);
    assert.equal(cluster.partition('t').leader, GUEST);
    guest.catchUp();
    assert.equal(cluster.partition('t').leader, 1);
  });

  test('one dies while the reassignment waits for it: the reassignment is replaced', async () => {
    const cluster = await leaving([[GUEST]], { targetReplicationFactor: 1 });
    const guest = new Process(cluster);
    await guest.handover.pass();
    const [first] = cluster.partition('t').addingReplicas;
    assert.equal(cluster.trace[0], `reassign t-0 [${first}]`);
    cluster.fence(first ?? -1, true);
    await guest.handover.pass();
    cluster.runtime.clock.advance(LAGGING_PATIENCE_MS);
    await guest.handover.pass();
    assert.equal(cluster.trace.length, 3);
    assert.equal(cluster.trace[1], 'cancel t-0', 'Apache Kafka 4.4 would wait for the dead one');
    assert.notEqual(cluster.trace[2], cluster.trace[0]);
    await guest.run();
    assert.equal(cluster.rowOf('t')?.state, MirrorState.STOPPED);
    assert.equal(cluster.partition('t').replicas.includes(GUEST), false);
  });
});

describe('G24: targets that are cordoned, which Kafka refuses to name', () => {
  test('one is left out at once, and added when it is cordoned no longer', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    cluster.cordon(2, true);
    const guest = new Process(cluster);
    await guest.run();
    assert.equal(cluster.trace[0], 'reassign t-0 [1,3]');
    assert.equal(cluster.rowOf('t')?.state, MirrorState.STOPPED);
    assert.match(guest.reasons().join(), /^t-0: broker\(s\) 2 are cordoned: uncordon /);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 3);
    cluster.cordon(2, false);
    await guest.run();
    cluster.setIsr('t', 0, [1, 3, 2]);
    await guest.run();
    assert.deepEqual([...cluster.partition('t').replicas].sort(), [1, 2, 3]);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 0);
  });

  test('another one takes its place where there is one', async () => {
    const cluster = await leaving([[GUEST, 1, 2]], { targetReplicationFactor: 2 });
    cluster.cordon(2, true);
    const guest = new Process(cluster);
    await guest.run();
    cluster.setIsr('t', 0, [1, 3]);
    await guest.run();
    assert.deepEqual([...cluster.partition('t').replicas].sort(), [1, 3]);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 0);
    assert.deepEqual(guest.reasons(), []);
  });

  test('all that have it are: another one gets a copy before they are let go', async () => {
    const cluster = await leaving([[GUEST, 2, 3]], { targetReplicationFactor: 1 });
    for (const each of [2, 3]) cluster.cordon(each, true);
    const guest = new Process(cluster);
    await guest.handover.pass();
    await guest.handover.pass();
    assert.deepEqual(cluster.trace, ['reassign t-0 [1]']);
    assert.deepEqual(cluster.partition('t').addingReplicas, [1]);
    assert.equal(cluster.partition('t').leader, GUEST);
    await guest.run();
    assert.deepEqual(cluster.partition('t').replicas, [1]);
    assert.equal(cluster.rowOf('t')?.state, MirrorState.STOPPED);
  });

  test('every broker is: it waits, and says what to do', async () => {
    const cluster = await leaving([[GUEST, 1, 2, 3]]);
    for (const each of [1, 2, 3]) cluster.cordon(each, true);
    const guest = new Process(cluster);
    await guest.run();
    assert.deepEqual(cluster.trace, []);
    assert.match(guest.reasons().join(), /cordoned: uncordon a log directory/);
    cluster.cordon(3, false);
    await guest.run();
    assert.equal(cluster.trace[0], 'reassign t-0 [3]');
    assert.equal(cluster.partition('t').leader, 3);
  });
});

describe('G23: two guests', () => {
  async function pair(): Promise<TestCluster> {
    const cluster = await leaving([
      [GUEST, OTHER_GUEST, 1, 2],
      [OTHER_GUEST, GUEST, 2, 1],
    ]);
    cluster.commit(
      broker(OTHER_GUEST),
      config(BROKER, `${OTHER_GUEST}`, 'twinlog.guest', 'true'),
      metadataRecord('PartitionChangeRecord', {
        topicId: id('t'.charCodeAt(0)),
        partitionId: 1,
        isr: [OTHER_GUEST],
        leader: OTHER_GUEST,
      }),
    );
    return cluster;
  }

  test('each reassigns what it leads, one does the rest', async () => {
    const cluster = await pair();
    const first = new Process(cluster);
    await first.run();
    assert.deepEqual(cluster.trace, ['reassign t-0 [1,2]']);
    assert.match(first.reasons()[1] ?? '', /t-1: guest 202 hands it over/);
    const second = new Process(cluster, { brokerId: OTHER_GUEST });
    await second.handover.pass();
    cluster.setIsr('t', 1, [OTHER_GUEST, 2, 1]);
    await second.run();
    assert.deepEqual(cluster.trace.slice(1), ['reassign t-1 [2,1]']);
    await first.run();
    assert.equal(cluster.rowOf('t', 0)?.state, MirrorState.STOPPED);
    assert.equal(cluster.rowOf('t', 1)?.state, MirrorState.STOPPED);
    const rows = cluster.trace.filter(
      (what) => what.startsWith('configs') || what.includes('STOPPED'),
    );
    assert.equal(rows.length, 3);
  });
});

test('S7: what was never mirrored keeps what its row knew', async () => {
  const cluster = await leaving([[GUEST, 1, 2, 3]]);
  cluster.setRow('t', 0, 'STOPPING', {
    settled: true,
    lastMirroredOffset: -1,
    reachedMirroring: false,
  });
  await new Process(cluster).run();
  const row = cluster.rowOf('t') as MirrorStateRow;
  assert.equal(row.state, MirrorState.STOPPED);
  assert.equal(row.lastMirroredOffset, -1);
});

describe('Y5: a member whose source is gone', () => {
  async function orphaned(): Promise<TestCluster> {
    const cluster = await leaving([
      [GUEST, 1, 2, 3],
      [GUEST, 2, 3, 1],
    ]);
    const row = cluster.catalog.topic('t');
    assert.ok(row !== undefined);
    await cluster.storeOf(GUEST).writeTopic('t', { ...row, removed: false, membershipOffset: 50 });
    for (const partition of [0, 1]) {
      const fields = { settled: true, membershipOffset: 50, lastMirroredOffset: LMO };
      cluster.setRow('t', partition, 'STOPPING', fields);
    }
    cluster.trace.length = 0;
    return cluster;
  }

  test('is handed over, and stays a member', async () => {
    const cluster = await orphaned();
    await new Process(cluster).run();
    assert.equal(cluster.rowOf('t', 1)?.state, MirrorState.STOPPED);
    assert.deepEqual(cluster.partition('t').replicas, [1, 2, 3]);
    assert.deepEqual(cluster.overrides('t'), FINAL);
    assert.equal(cluster.image.membership('t')?.removed, false);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 0);
  });

  test('the lock is left alone meanwhile and afterwards', async () => {
    const cluster = await orphaned();
    const context = cluster.context();
    const ownership = new JobOwnership(context);
    const lock = new TopicLock({ context, ownership, inMaintenance: () => false });
    const guest = new Process(cluster);
    for (let i = 0; i < 8; i++) {
      await guest.run(1);
      const { length } = cluster.trace;
      await lock.pass();
      assert.equal(cluster.trace.length, length);
    }
    assert.deepEqual(cluster.overrides('t'), FINAL);
  });

  test('one partition that still mirrors keeps the settings as they are', async () => {
    const cluster = await orphaned();
    cluster.setRow('t', 1, 'MIRRORING', { membershipOffset: 50 });
    const guest = new Process(cluster);
    await guest.run();
    assert.deepEqual(cluster.trace, ['reassign t-0 [1,2,3]']);
    assert.deepEqual(cluster.partition('t', 1).isr, [GUEST]);
    assert.match(guest.reasons()[1] ?? '', /t-1: its stop is not settled: it is MIRRORING/);
  });
});
