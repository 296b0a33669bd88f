/**
 * The rescue: whose log is taken, in which order things are done, and that it can be cut short
 * before and after each of its effects (G18a).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ClusterError } from '../../../src/guest/cluster-client.ts';
import { finalConfigs } from '../../../src/guest/jobs/topic-settings.ts';
import { Rescue, type RescueBrokers, type Rescued } from '../../../src/guest/rescue/rescue.ts';
import type { ReplicaLog } from '../../../src/guest/rescue/rescue-logs.ts';
import {
  electionOrder,
  liveGuests,
  longest,
  lostPartitions,
  missing,
} from '../../../src/guest/rescue/rescue-plan.ts';
import type { MirrorStateRow } from '../../../src/mirror/state-row.ts';
import type { MirrorStateName } from '../../../src/mirror/states.ts';
import { id, topic } from '../../metadata/harness.ts';
import { row } from '../../mirror/harness.ts';
import { GUEST, killPoints, MIRROR, SOURCE_ID, TestCluster, untilKilled } from '../jobs-harness.ts';

const COPIED = new Map([['retention.ms', '1000']]);
const LOGS: Readonly<Record<number, ReplicaLog>> = {
  1: { brokerId: 1, start: 0, end: 40, lastEpoch: 5 },
  2: { brokerId: 2, start: 0, end: 55, lastEpoch: 5 },
  3: { brokerId: 3, start: 0, end: 90, lastEpoch: 4 },
};
const END = 55;
const OPEN = { producerId: '7696581394433', producerEpoch: 0, firstOffset: 50 };

/** The same in its row. */
const CLOSED = {
  producerId: 7n * 2n ** 40n + 1n,
  originalProducerId: 1n,
  producerEpoch: 0,
  firstOffset: 50,
  markerOffset: END,
};

/** Mirrored topic `t` with two partitions on the guest and all brokers, its guest dead. */
async function lost(
  state: MirrorStateName = 'MIRRORING',
  fields: Partial<MirrorStateRow> = {},
): Promise<TestCluster> {
  const cluster = await new TestCluster().withMirror();
  const topicId = id(116);
  cluster.commit(...topic('t', topicId, [GUEST, 1, 2, 3], [GUEST, 1, 2, 3]));
  const finals = finalConfigs(cluster.image, COPIED);
  cluster.setConfig('t', 'unclean.leader.election.enable', 'false');
  cluster.setConfig('t', 'min.insync.replicas', '1');
  cluster.setConfig('t', 'retention.ms', '1000');
  await cluster.storeOf(GUEST).writeTopic('t', {
    mirrorName: MIRROR,
    removed: false,
    membershipOffset: 5,
    topicId,
    sourceTopicId: SOURCE_ID,
    finalConfigs: finals,
    targetReplicationFactor: 3,
  });
  for (const partition of [0, 1]) {
    const known = { reachedMirroring: true, membershipOffset: 5, ...fields };
    cluster.setRow('t', partition, state, known);
    cluster.setIsr('t', partition, [GUEST]);
    cluster.setLeader('t', partition, -1);
  }
  cluster.fence(GUEST, true);
  cluster.trace.length = 0;
  return cluster;
}

/** Brokers that have these logs; followers catch up with whoever comes to lead. */
class TestBrokers implements RescueBrokers {
  readonly #cluster: TestCluster;
  readonly #open = new Set(['t-1']);
  readonly #guestEpoch: number;
  /** Offsets that were taken after the guest's epochs. */
  byOthers = 0;
  silent: readonly number[] = [];
  /** What the only group has committed, by partition. */
  readonly groups = new Map([
    [0, 30],
    [1, 70],
  ]);
  /** Brokers that do not tell which transactions are open. */
  untold: readonly number[] = [];

  constructor(cluster: TestCluster) {
    this.#cluster = cluster;
    this.#guestEpoch = cluster.rowOf('t')?.leaderEpoch ?? -1;
  }

  async logs(brokerId: number, asked: Parameters<RescueBrokers['logs']>[1]) {
    await Promise.resolve();
    const answer = this.silent.includes(brokerId)
      ? { brokerId, why: 'no answer' }
      : (LOGS[brokerId] as ReplicaLog);
    return new Map(asked.map((each) => [`${each.topic}-${each.partition}`, answer]));
  }

  async epochEnds(_topic: string, epochs: ReadonlyMap<number, number>) {
    await Promise.resolve();
    return new Map(
      [...epochs].map(([partition, epoch]) => [
        partition,
        epoch <= this.#guestEpoch ? END : END + this.byOthers,
      ]),
    );
  }

  async openAt(id: number, partitions: Parameters<RescueBrokers['open']>[0]) {
    const open = await this.open(partitions);
    return this.untold.includes(id) ? new Map<never, never>() : open;
  }

  async open(partitions: Parameters<RescueBrokers['open']>[0]) {
    await Promise.resolve();
    const { producerId, producerEpoch, firstOffset: currentTxnFirstOffset } = OPEN;
    const open = [{ producerId: BigInt(producerId), producerEpoch, currentTxnFirstOffset }];
    const names = partitions.map((each) => `${each.topic}-${each.partition}`);
    return new Map(names.map((name) => [name, this.#open.has(name) ? open : []]));
  }

  async abort(partitions: Parameters<RescueBrokers['abort']>[0]) {
    await Promise.resolve();
    const names = partitions.map((each) => `${each.topic}-${each.partition}`);
    const open = names.filter((name) => this.#open.has(name));
    for (const name of open) {
      this.#cluster.effect(`abort ${name}`, () => this.#open.delete(name));
    }
    return new Map(open.map((name) => [name, [OPEN]]));
  }

  async lowerGroups(logs: Parameters<RescueBrokers['lowerGroups']>[0]) {
    await Promise.resolve();
    const tooHigh = logs.filter(({ partition, end }) => (this.groups.get(partition) ?? 0) > end);
    for (const { topic, partition, end } of tooHigh) {
      this.#cluster.effect(`lower ${topic}-${partition}`, () => this.groups.set(partition, end));
    }
    const groups = [{ groupId: 'readers', from: 70 }];
    return new Map(
      tooHigh.map(({ partition }) => [`t-${partition}`, { groups, problem: undefined }]),
    );
  }

  /** What the leaders do by themselves. */
  catchUp(): void {
    const topicImage = this.#cluster.image.topicsByName.get('t');
    for (const [partition, { leader, replicas, isr }] of topicImage?.partitions ?? []) {
      const natives = replicas.filter((each) => each !== GUEST && !this.silent.includes(each));
      if (leader <= 0 || leader === GUEST || natives.every((each) => isr.includes(each))) continue;
      this.#cluster.setIsr('t', partition, natives);
    }
  }
}

/** A freshly started rescue. */
function rescue(cluster: TestCluster, brokers: TestBrokers, steps: string[] = []): Rescue {
  const { controller } = cluster;
  const { clock } = cluster.runtime;
  const store = {
    ...cluster.storeOf(GUEST),
    known: ({ topicId, partition }: { topicId: string; partition: number }) =>
      cluster.rowOf('t', partition, topicId as ReturnType<typeof id>),
  };
  const look = {
    get image() {
      return cluster.image;
    },
    controller,
    store,
    pause: async (ms = 200) => {
      brokers.catchUp();
      clock.advance(ms);
      await Promise.resolve();
    },
  };
  return new Rescue(cluster.runtime, {
    look,
    brokers,
    inPlaceOf: GUEST,
    mirrors: undefined,
    onStep: (what) => steps.push(what),
  });
}

function assertNative(cluster: TestCluster): void {
  for (const partition of [0, 1]) {
    const { leader, replicas } = cluster.partition('t', partition);
    assert.equal(leader, 2, 'the longest in the newest epoch');
    assert.deepEqual([...replicas].sort(), [1, 2, 3]);
    const { state, lastMirroredOffset } = cluster.rowOf('t', partition) as MirrorStateRow;
    assert.deepEqual([state, lastMirroredOffset], [4, END]);
  }
  const closed = [0, 1].map((partition) => cluster.rowOf('t', partition)?.closedTransactions);
  assert.deepEqual(closed, [[], [CLOSED]]);
  assert.deepEqual(cluster.overrides('t'), { 'retention.ms': '1000' });
  assert.equal(cluster.image.membership('t')?.removed, true);
}

describe('the rescue of mirror topics', () => {
  test('G18a: locks before it elects, records before it ends transactions', async () => {
    const cluster = await lost();
    const brokers = new TestBrokers(cluster);
    const rescued: Rescued[] = await rescue(cluster, brokers).run();
    assertNative(cluster);
    assert.deepEqual([...brokers.groups.values()], [30, END]);
    assert.deepEqual(
      rescued.map(({ partition, lastMirroredOffset, closed, lowered }) => [
        partition,
        lastMirroredOffset,
        closed,
        lowered.groups,
      ]),
      [
        [0, END, [], []],
        [1, END, [OPEN], [{ groupId: 'readers', from: 70 }]],
      ],
    );
    const at = (what: string): number => {
      const found = cluster.trace.findIndex((each) => each.startsWith(what));
      assert.notEqual(found, -1, `${what} in ${cluster.trace.join('; ')}`);
      return found;
    };
    const order = [
      at(`row t ${MIRROR}.removed`),
      at('configs t max.message.bytes=78'),
      at('reassign t-0 [2,1,3,201]'),
      at('elect t-0'),
      at('row t-1 STOPPING'),
      at('abort t-1'),
      at('lower t-1'),
      at('reassign t-0 [2,1,3]'),
      at('configs t -max.message.bytes'),
      at('row t-1 STOPPED'),
    ];
    assert.deepEqual(
      [...order].sort((a, b) => a - b),
      order,
      cluster.trace.join('; '),
    );
  });

  test('G7 G18a: a guest that died cordoned is named nowhere', async () => {
    const cluster = await lost();
    cluster.cordon(GUEST, true);
    await rescue(cluster, new TestBrokers(cluster)).run();
    assertNative(cluster);
    const moves = cluster.trace.filter((each) => each.startsWith('reassign'));
    assert.ok(moves.length > 0);
    assert.deepEqual(
      moves.filter((each) => each.includes(String(GUEST))),
      [],
    );
  });

  test('G18a: a cordoned broker that has a topic is told before anything is changed', async () => {
    const cluster = await lost();
    cluster.trace.length = 0;
    cluster.cordon(2, true);
    await assert.rejects(rescue(cluster, new TestBrokers(cluster)).run(), {
      message: /^Nothing is changed: broker\(s\) 2 are cordoned: uncordon /,
    });
    assert.deepEqual(cluster.trace, []);
  });

  test('G18a: what others wrote after the last epoch of the guest was not mirrored', async () => {
    const cluster = await lost();
    const brokers = new TestBrokers(cluster);
    brokers.byOthers = 1;
    await rescue(cluster, brokers).run();
    assertNative(cluster);
  });

  test('G18a: goes on wherever it was cut short, from any state', async () => {
    for (const state of ['MIRRORING', 'PREPARING'] as const) {
      const whole = await lost(state);
      whole.restart();
      await rescue(whole, new TestBrokers(whole)).run();
      for (const point of killPoints(whole.effects)) {
        const cluster = await lost(state);
        const brokers = new TestBrokers(cluster);
        // Where followers were in sync, one of them led between the guest and the rescue (G19).
        brokers.byOthers = 1;
        cluster.restart(point);
        await untilKilled(() => rescue(cluster, brokers).run());
        cluster.restart();
        const again = rescue(cluster, brokers);
        if ((await again.plan()).length > 0) await again.run();
        if (state === 'MIRRORING') {
          assertNative(cluster);
          assert.deepEqual([...brokers.groups.values()], [30, END]);
        }
        assert.equal((await again.plan()).length, 0, `${point.when} ${point.effects}`);
      }
    }
  });

  test('G24a: where the guest died amid its own markers, mirroring ended below them', async () => {
    const first = { ...CLOSED, producerId: 7n * 2n ** 40n + 2n, originalProducerId: 2n };
    const planned = [
      { ...first, firstOffset: 40, markerOffset: END - 1 },
      { ...CLOSED, markerOffset: END },
    ];
    const fields = { reachedMirroring: true, closedTransactions: planned };
    const cluster = await lost('STOPPING', fields);
    await rescue(cluster, new TestBrokers(cluster)).run();
    const found = cluster.rowOf('t', 1);
    assert.deepEqual([found?.state, found?.lastMirroredOffset], [4, END - 1]);
    assert.deepEqual(found?.closedTransactions, planned);
  });

  test('D2: a partition that never mirrored gets no last mirrored offset', async () => {
    const cluster = await lost('PREPARING');
    await rescue(cluster, new TestBrokers(cluster)).run();
    assert.equal(cluster.rowOf('t')?.lastMirroredOffset, -1);
    assert.equal(cluster.rowOf('t')?.state, 4);
  });

  test('G24: a settled stop keeps its offset, and is lowered where that is lost', async () => {
    for (const [recorded, kept] of [
      [50, 50],
      [70, END],
    ] as const) {
      const settled = { settled: true, lastMirroredOffset: recorded };
      const cluster = await lost('STOPPING', settled);
      await rescue(cluster, new TestBrokers(cluster)).run();
      assert.equal(cluster.rowOf('t')?.lastMirroredOffset, kept);
    }
  });

  test('what nobody has is left alone and named', async () => {
    const cluster = await lost();
    const brokers = new TestBrokers(cluster);
    brokers.silent = [1, 2, 3];
    const work = rescue(cluster, brokers);
    const [first] = await work.plan();
    assert.ok(first !== undefined);
    assert.equal(first.leader, undefined);
    assert.match(String(missing(first)), /none of its Apache replicas answers \(1: no answer/);
    assert.deepEqual(await work.run(), []);
    assert.equal(cluster.partition('t').leader, -1);
    assert.equal(cluster.rowOf('t')?.state, 1);
  });

  test('G18a: a guest that lives is seen, and one that returned stops the rescue', async () => {
    const cluster = await lost();
    cluster.fence(GUEST, false);
    assert.deepEqual(liveGuests(cluster.image), [GUEST]);
    cluster.fence(GUEST, true);
    assert.deepEqual(liveGuests(cluster.image), []);
    cluster.failNextWrite = 16;
    await assert.rejects(rescue(cluster, new TestBrokers(cluster)).run(), /so it lives/);
    const failing = new TestBrokers(cluster);
    failing.epochEnds = () => Promise.reject(new ClusterError('unreachable', 'gone'));
    await assert.rejects(rescue(cluster, failing).run(), /gone/);
  });
});

describe('whose log is taken', () => {
  const log = (brokerId: number, end: number, lastEpoch: number): ReplicaLog => ({
    brokerId,
    start: 0,
    end,
    lastEpoch,
  });

  test('the newest epoch, then the longest, then the spread of leaders', () => {
    assert.equal(longest([log(1, 90, 4), log(2, 55, 5)], [1, 2], undefined)?.brokerId, 2);
    assert.equal(longest([log(1, 54, 5), log(2, 55, 5)], [1, 2], undefined)?.brokerId, 2);
    assert.equal(longest([log(1, 55, 5), log(2, 55, 5)], [2, 1], undefined)?.brokerId, 2);
    assert.equal(longest([], [1], undefined), undefined);
  });

  test('G24: no tail above a settled stop, unless nobody is without', () => {
    const settled = row('STOPPING', { settled: true, lastMirroredOffset: 50 });
    assert.equal(longest([log(1, 50, 4), log(2, 55, 5)], [1, 2], settled)?.brokerId, 1);
    assert.equal(longest([log(1, 60, 5), log(2, 55, 5)], [1, 2], settled)?.brokerId, 2);
  });

  test('G24a: the markers of a settled stop are no tail', () => {
    const closedTransactions = [{ ...CLOSED, markerOffset: 50 }];
    const settled = row('STOPPING', { settled: true, lastMirroredOffset: 50, closedTransactions });
    assert.equal(longest([log(1, 50, 5), log(2, 51, 5)], [1, 2], settled)?.brokerId, 2);
    assert.equal(longest([log(1, 51, 5), log(2, 52, 5)], [1, 2], settled)?.brokerId, 1);
  });

  test('T5 G18a: no tail that a cut of the mirror took off elsewhere', () => {
    const cut = row('MIRRORING', { cutOffset: 50, cutLeaderEpoch: 4 });
    const chosen = (...logs: ReplicaLog[]) => longest(logs, [1, 2], cut)?.brokerId;
    assert.equal(chosen(log(1, 55, 4), log(2, 50, 4)), 2, 'broker 1 was away');
    assert.equal(chosen(log(1, 55, 4), log(2, 20, 3)), 2, 'and there is nobody better');
    assert.equal(chosen(log(1, 55, 6), log(2, 50, 4)), 1, 'mirrored since');
    assert.equal(chosen(log(1, 55, 4), log(2, 52, 4)), 1, 'nobody had cut yet');
  });

  test('a tail that was cut off elsewhere, or nowhere yet, is named', async () => {
    const away = await lost('MIRRORING', { cutOffset: 60, cutLeaderEpoch: 4 });
    const [first] = await rescue(away, new TestBrokers(away)).plan();
    assert.ok(first !== undefined);
    assert.equal(
      missing(first).at(-1),
      'broker 3 drops 55 to 89: the mirror had cut them off, and it was away',
    );
    const nowhere = await lost('MIRRORING', { cutOffset: 30, cutLeaderEpoch: 5 });
    const [other] = await rescue(nowhere, new TestBrokers(nowhere)).plan();
    assert.ok(other !== undefined);
    assert.equal(other.leader?.end, 55);
    assert.equal(
      missing(other).at(-1),
      'nothing of 30 to 54: the mirror was about to cut that off, and it stays',
    );
  });

  test('what may be missing is said of every replica', async () => {
    const cluster = await lost();
    const work = rescue(cluster, new TestBrokers(cluster));
    const [first] = await work.plan();
    assert.ok(first !== undefined);
    assert.deepEqual(electionOrder(first), [2, 1, 3, GUEST]);
    assert.deepEqual(missing(first), [
      'what the lost guest had mirrored from 55 on, if anything',
      'broker(s) 1 at 40 catch up from the leader',
      'broker 3 drops 55 to 89: it has them from epoch 4, the leader is in 5',
    ]);
    const second = (await work.plan())[1];
    assert.ok(second !== undefined);
    assert.equal(
      missing(second)[1],
      `the transaction of producer ${OPEN.producerId} (1 at the source) from 50 on is aborted: ` +
        'its end had not been mirrored, whatever it was',
    );
    const brokers = new TestBrokers(cluster);
    brokers.untold = [2];
    const [unknown] = await rescue(cluster, brokers).plan();
    assert.ok(unknown !== undefined);
    assert.match(String(missing(unknown)[1]), /broker 2 does not tell which transactions will be/);
    const store = cluster.storeOf(GUEST);
    assert.equal(lostPartitions(cluster.image, store, ['other']).length, 0);
    assert.equal(lostPartitions(cluster.image, store, [MIRROR]).length, 2);
  });
});
