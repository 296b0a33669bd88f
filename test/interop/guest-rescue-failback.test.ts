/**
 * A rescue of topics whose guest died amid open transactions (G18a, G24a), and the failback after
 * it (G29): the old source comes back with records that nobody has seen, and takes the topic back.
 *
 * The topic goes from A to B. Partition 0 has two transactions that were decided above the last
 * stable offset, and one that never was; of partition 1 the guest of B mirrored more than any
 * broker of B has; partition 2 is empty at first. Tests build on each other.
 * TWINLOG_TEST=full only.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { KafkaNode } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import type { ClientRecord } from './client.ts';
import { javaClient } from './clusters.ts';
import { compareBatches, compareSequences } from './compare.ts';
import {
  batchesOf,
  below,
  CONFIGS,
  destroySides,
  ends,
  failBack,
  failOver,
  keptTails,
  overrides,
  PARTITIONS,
  SAME,
  type Side,
  settled,
  startSides,
  TAG,
  TOPIC,
  write,
} from './failback-sides.ts';
import { GUEST_ID, guestCommand, rescuePlan, startGuest } from './guest.ts';
import { logLength, whenSaid } from './guest-faults.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, partitionsOf, until } from './mirror-watch.ts';
import type { RawBatch } from './raw-log.ts';
import { hangingTransactions } from './tools.ts';

const isFull = process.env.TWINLOG_TEST === 'full';
const skip = isFull ? await interopSkipReason() : 'TWINLOG_TEST=full runs it';
/** Transactional, control. */
const MARKER_ATTRIBUTES = 0x30;
/** The last stable offsets of A when the brokers of B stood still: all that they have. */
const SHARED = [23, 21, 0];
/** Transactions of partition 0 that are open below: where they begin. */
const OPEN_FROM = [17, 20];
/** What the guest had of partition 1 when it died. */
const GUEST_END = 24;
/** Behind an abort marker for each open transaction. */
const RESCUED_ENDS = [25, 21, 0];
const MEMBER = 'reader';
/** A group that is ahead of what the brokers of B have. */
const IDLE = 'idle';
/** Records that `write` commits in one partition. */
const COMMITTED = 12;
/** Longer than a follower's fetch waits for data. */
const FETCHES_OVER_MS = 1_500;

let a: Side;
let b: Side;
/** What readers of committed data had at A below the shared offsets, and see in both at last. */
let decided: ClientRecord[];
/** The batches of A before it was taken back. */
let held: RawBatch[][];

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    [a, b] = await startSides('rescued', CONFIGS);
  });
  after(() => destroySides(a, b));
}

function three(text: string, partition: number) {
  return [0, 1, 2].map((n) => ({ topic: TOPIC, partition, value: `${text}-${n}` }));
}

async function openTransaction(text: string, ...partitions: readonly number[]): Promise<void> {
  const java = await javaClient();
  // Nothing is to be aborted by its age.
  const config = { 'transactional.id': text, 'transaction.timeout.ms': '600000' };
  await java.openProducer(a.cluster.bootstrap, text, config);
  await java.begin(text);
  for (const partition of partitions) await java.produceAll(text, three(text, partition));
}

async function lastStable({ cluster }: Side): Promise<number[]> {
  const offsets = await (await javaClient()).offsets(cluster.bootstrap, TOPIC);
  return Array.from({ length: PARTITIONS }, (_, index) => offsets[index]?.lastStable ?? -1);
}

async function committed({ cluster }: Side): Promise<ClientRecord[]> {
  return await (await javaClient()).readAll(cluster.bootstrap, TOPIC, 'read_committed');
}

function batchAt(side: Side, partition: number, offset: number): RawBatch {
  const found = batchesOf(side, partition).find(({ baseOffset }) => baseOffset === BigInt(offset));
  assert.ok(found, `a batch begins at ${offset}`);
  return found;
}

/** Waits until the guest of a side has mirrored up to these offsets. */
async function mirrored({ guest, mirror }: Side, ...offsets: readonly number[]): Promise<void> {
  await awaitState(guest, mirror, TOPIC, 'MIRRORING');
  await until(`mirrored up to ${offsets}`, async () => {
    const statuses = await partitionsOf(guest, mirror, TOPIC);
    const there = offsets.map((_, index) => {
      return statuses.find(({ partition }) => partition === index)?.destinationOffset;
    });
    assert.deepEqual(there, offsets);
    return true as const;
  });
}

/** Waits until every broker of a side has its partitions up to these offsets. */
async function replicated(side: Side, ...offsets: readonly number[]): Promise<void> {
  await until(`replicas up to ${offsets}`, async () => {
    const there = offsets.map((_, index) => {
      const last = batchesOf(side, index).at(-1);
      return last === undefined ? 0 : Number(last.lastOffset) + 1;
    });
    assert.deepEqual(there, offsets);
    return true as const;
  });
}

const hanging = ({ cluster }: Side) => hangingTransactions(cluster.bootstrap, TOPIC);

/** All batches as they are under the ids that their producers have where they write. */
function withOwnIds(batches: readonly RawBatch[]): RawBatch[] {
  return batches.map((batch) => {
    const { producerId } = batch;
    return producerId < TAG ? batch : { ...batch, producerId: producerId % TAG };
  });
}

async function awaitLeaderless(side: Side): Promise<void> {
  await until('the controller noticing', async () => {
    const placed = await placement(side.cluster, TOPIC);
    return placed.every(({ leader }) => leader === -1) ? true : undefined;
  });
}

test('the way there, with transactions that end above the last stable offset', {
  skip,
}, async () => {
  const java = await javaClient();
  await write(a, 'first', [0, 1]);
  await openTransaction('early', 0, 1);
  await openTransaction('other', 0);
  await openTransaction('late', 0);
  await java.commit('early');
  await java.abort('other');
  await until('A deciding', async () => {
    assert.deepEqual(await lastStable(a), SHARED);
    return true as const;
  });
  await b.guest.mirrors('add', b.mirror, TOPIC);
  await mirrored(b, ...SHARED);
  await replicated(b, ...SHARED);
  decided = (await committed(a)).filter(({ partition, offset }) => {
    return offset < (partition === 0 ? (OPEN_FROM[0] ?? 0) : (SHARED[partition] ?? 0));
  });
  assert.equal(decided.length, 2 * COMMITTED + 3, 'early is decided in partition 1');
  await java.openMember(b.cluster.bootstrap, MEMBER, MEMBER, TOPIC, {
    'isolation.level': 'read_committed',
    'auto.offset.reset': 'earliest',
  });
  const read = await java.readAsMember(MEMBER, decided.length);
  assert.deepEqual(compareSequences(decided, inOrder(read)), []);
  // It had read through the guest, or its offsets were copied from A.
  await java.commitOffsets(b.cluster.bootstrap, IDLE, TOPIC, { 0: 20, 1: GUEST_END });
});

function inOrder(records: readonly ClientRecord[]): ClientRecord[] {
  return [...records].sort((x, y) => x.partition - y.partition || x.offset - y.offset);
}

/** The guest mirrors what no broker of its cluster gets any more, and both sites are lost. */
async function loseBoth(): Promise<void> {
  const java = await javaClient();
  const brokers = b.cluster.brokers.map(({ pid }) => pid);
  for (const pid of brokers) process.kill(pid, 'SIGSTOP');
  try {
    await sleep(FETCHES_OVER_MS);
    await java.openProducer(a.cluster.bootstrap, 'unseen');
    await java.produceAll('unseen', three('unseen', 1));
    await java.closeProducer('unseen');
    await mirrored(b, SHARED[0] ?? -1, GUEST_END, 0);
    await b.guest.kill9();
  } finally {
    for (const pid of brokers) process.kill(pid, 'SIGCONT');
  }
  await write(a, 'lost', [0, 2]);
  // Begins once the last transaction is complete: else A would write its markers again.
  await java.openProducer(a.cluster.bootstrap, 'lost-again', { 'transactional.id': 'lost' });
  await java.closeProducer('lost-again');
  for (const name of ['early', 'other', 'late']) await java.closeProducer(name, true);
  held = SHARED.map((_, index) => batchesOf(a, index));
  await a.guest.kill9();
  await Promise.all(a.cluster.nodes.map((node) => node.kill9()));
}

test('G18a the plan says what may be missing, open transactions by name', { skip }, async () => {
  await loseBoth();
  await awaitLeaderless(b);
  const before = SHARED.map((_, index) => batchesOf(b, index));
  const plan = await rescuePlan(b.cluster);
  const undecided = OPEN_FROM.map((offset) => {
    const { producerId } = batchAt(b, 0, offset);
    return (
      `the transaction of producer ${producerId} (${producerId % TAG} at the source) from ` +
      `${offset} on is aborted: its end had not been mirrored, whatever it was`
    );
  });
  const found = plan.map(({ event, partition, state, end, missing }) => {
    return [event, partition, state, end, missing];
  });
  assert.deepEqual(
    found,
    SHARED.map((end, index) => {
      const more = `what the lost guest had mirrored from ${end} on, if anything`;
      return ['plan', index, 'MIRRORING', end, [more, ...(index === 0 ? undecided : [])]];
    }),
  );
  assert.deepEqual(
    SHARED.map((_, index) => batchesOf(b, index)),
    before,
    'a plan changes nothing',
  );
});

test('G18a the rescue aborts what was open and names it, and all is writable', {
  skip,
}, async () => {
  const ids = OPEN_FROM.map((offset) => batchAt(b, 0, offset).producerId);
  const text = await guestCommand(b.cluster, 'rescue', '--yes');
  const said = text.split('\n').filter((line) => /: (STOPPED|aborted|lowered)/.test(line));
  const lines = SHARED.flatMap((end, index) => [
    `  ${TOPIC}-${index}: STOPPED, writable, led by N, mirrored up to ${end}`,
    ...(index > 0 ? [] : ids).map(
      (id, at) => `    transaction of producer ${id} from ${OPEN_FROM[at]} on: aborted`,
    ),
    ...(index === 1 ? [`    group idle had committed ${GUEST_END}: lowered to ${end}`] : []),
  ]);
  assert.deepEqual(
    said.map((line) => line.replace(/led by [123]/, 'led by N')),
    lines,
  );
  const java = await javaClient();
  const offsets = await java.groupOffsets(b.cluster.bootstrap, IDLE);
  assert.deepEqual(offsets, { [`${TOPIC}-0`]: 20, [`${TOPIC}-1`]: SHARED[1] });
  assert.deepEqual(await ends(b), RESCUED_ENDS);
  assert.deepEqual(await lastStable(b), RESCUED_ENDS);
  await replicated(b, ...RESCUED_ENDS);
  const markers = batchesOf(b, 0).filter(({ baseOffset }) => baseOffset >= BigInt(SHARED[0] ?? 0));
  assert.deepEqual(
    markers.map(({ baseOffset, producerId, attributes }) => [baseOffset, producerId, attributes]),
    ids.map((id, at) => [BigInt((SHARED[0] ?? 0) + at), id, MARKER_ATTRIBUTES]),
  );
  assert.deepEqual(await hanging(b), []);
  const now = await overrides(b);
  // One setting is never copied (Y4), and the lock is gone.
  const copied = { ...CONFIGS, 'min.insync.replicas': now['min.insync.replicas'] };
  assert.deepEqual(now, copied);
});

test('G18a readers of committed data have all of it, and go on to what is written', {
  skip,
}, async () => {
  assert.deepEqual(compareSequences(decided, await committed(b)), []);
  await write(b, 'second', [0, 1, 2]);
  const all = await committed(b);
  const fresh = all.filter(({ partition, offset }) => offset >= (RESCUED_ENDS[partition] ?? 0));
  assert.equal(fresh.length, PARTITIONS * COMMITTED);
  assert.ok(fresh.every(({ value }) => String(value).startsWith('second-')));
  assert.equal(all.length, decided.length + fresh.length);
  // Who had been reading when the guest died.
  const java = await javaClient();
  const read = await java.readAsMember(MEMBER, fresh.length);
  await java.closeMember(MEMBER);
  assert.deepEqual(compareSequences(fresh, inOrder(read)), []);
});

test('G18a the lost guest, should it return with its data, changes nothing', { skip }, async () => {
  const before = SHARED.map((_, index) => batchesOf(b, index));
  const placed = await placement(b.cluster, TOPIC);
  await b.guest.start();
  const rows = await awaitState(b.guest, b.mirror, TOPIC, 'STOPPED');
  const offsets = rows.map(({ partition, lastMirroredOffset }) => [partition, lastMirroredOffset]);
  assert.deepEqual(
    offsets.sort(),
    SHARED.map((offset, index) => [index, offset]),
  );
  assert.deepEqual(
    SHARED.map((_, index) => batchesOf(b, index)),
    before,
  );
  const now = await placement(b.cluster, TOPIC);
  assert.deepEqual(
    now.map(({ leader, replicas }) => [leader, replicas]),
    placed.map(({ leader, replicas }) => [leader, replicas]),
  );
  await write(b, 'third', [1]);
  await b.guest.stop();
  const left = await guestCommand(b.cluster, 'leave', '--node-id', String(GUEST_ID));
  assert.match(left, /has left/);
  await b.guest.destroy();
  b = { ...b, guest: await startGuest({ name: 'rescued-b-new', cluster: b.cluster }) };
});

/** Waits until A has all of B, byte for byte but for the ids of producers. */
async function isSameAsB(): Promise<void> {
  await until('the offsets of B', async () => {
    assert.deepEqual(await ends(a), await ends(b));
    return true as const;
  });
  await until('equal logs', async () => {
    for (let index = 0; index < PARTITIONS; index++) {
      const [theirs, ours] = [b, a].map((side) => withOwnIds(batchesOf(side, index)));
      assert.deepEqual(compareBatches(theirs ?? [], ours ?? [], SAME), [], `partition ${index}`);
    }
    return true as const;
  });
}

test('G29 A comes back and is cut where both agree, no lower and no higher', { skip }, async () => {
  await a.cluster.start();
  await a.guest.start();
  assert.deepEqual(await ends(a), [45, GUEST_END, 17]);
  assert.deepEqual(
    SHARED.map((_, index) => batchesOf(a, index)),
    held,
  );
  await a.guest.mirrors('add', a.mirror, TOPIC);
  await awaitState(a.guest, a.mirror, TOPIC, 'MIRRORING');
  await isSameAsB();
  await settled(a);
  for (const [index, offset] of SHARED.entries()) {
    const where = `partition ${index}`;
    const tail = (held[index] ?? []).filter(({ baseOffset }) => baseOffset >= BigInt(offset));
    const [[from, kept] = [-1, []], ...others] = keptTails(a, index);
    assert.deepEqual([from, others], [offset, []], where);
    assert.deepEqual(compareBatches(tail, kept, SAME), [], where);
    const shared = below(held[index] ?? [], offset);
    const now = below(batchesOf(a, index), offset);
    assert.deepEqual(compareBatches(shared, now, SAME), [], where);
  }
});

test('G24a what was open ends at A as at B, under the ids that it has there', {
  skip,
}, async () => {
  for (const [at, offset] of OPEN_FROM.entries()) {
    const marker = batchAt(a, 0, (SHARED[0] ?? 0) + at);
    const { producerId } = batchAt(a, 0, offset);
    assert.deepEqual([marker.producerId, marker.attributes], [producerId, MARKER_ATTRIBUTES]);
    assert.ok(producerId < TAG, 'of a producer of A');
  }
  // What the coordinator of A still has to say of a transaction that was cut off.
  const java = await javaClient();
  await java.openProducer(a.cluster.bootstrap, 'late-again', { 'transactional.id': 'late' });
  await java.closeProducer('late-again');
  await isSameAsB();
  assert.deepEqual(await hanging(a), []);
  assert.deepEqual(await lastStable(a), await lastStable(b));
  assert.deepEqual(compareSequences(await committed(b), await committed(a)), []);
});

test('G24 G29 A fails over, and B takes it back like any other', { skip }, async () => {
  const wanted = await ends(b);
  const common = await failOver(a);
  assert.deepEqual(common, wanted);
  assert.deepEqual(await overrides(a), CONFIGS);
  await write(a, 'fourth', [0, 1]);
  await write(b, 'lost-too', [1, 2]);
  await failBack(b, a, common);
  const expected = await committed(a);
  assert.deepEqual(compareSequences(expected, await committed(b)), []);
});

/** A takes the topic back; `away` is killed before the cut, for which B has to answer first. */
async function takeBackWithout(away: KafkaNode): Promise<void> {
  const from = logLength(a.guest);
  const added = a.guest.mirrors('add', a.mirror, TOPIC);
  await whenSaid(a.guest, 'native topic is taken into a mirror', from);
  const source = b.cluster.brokers.map(({ pid }) => pid);
  for (const pid of source) process.kill(pid, 'SIGSTOP');
  try {
    await added;
    await whenSaid(a.guest, 'mirror partition is PREPARING', from);
    await away.kill9();
  } finally {
    for (const pid of source) process.kill(pid, 'SIGCONT');
  }
}

test('T5 G18a a broker that was away while the log was cut is not elected for its tail', {
  skip,
}, async () => {
  const common = await failOver(b);
  await write(a, 'cut', [0]);
  const uncut = batchesOf(a, 0);
  const away = a.cluster.brokers.at(-1);
  assert.ok(away !== undefined);
  await takeBackWithout(away);
  await mirrored(a, ...common);
  await a.guest.kill9();
  await b.guest.kill9();
  await Promise.all(b.cluster.nodes.map((node) => node.kill9()));
  await away.launch();
  await a.cluster.awaitReady();
  await awaitLeaderless(a);
  const [first] = await rescuePlan(a.cluster);
  assert.equal(first?.partition, 0);
  assert.ok(first.elect !== away.id, JSON.stringify(first));
  const [end, tail] = [common[0] ?? -1, Number(uncut.at(-1)?.lastOffset)];
  assert.equal(first.end, end);
  assert.equal(first.replicas.find(({ brokerId }) => brokerId === away.id)?.end, tail + 1);
  assert.deepEqual(first.missing, [
    `what the lost guest had mirrored from ${end} on, if anything`,
    `broker ${away.id} drops ${end} to ${tail}: the mirror had cut them off, and it was away`,
  ]);
  await guestCommand(a.cluster, 'rescue', '--yes');
  assert.deepEqual(await ends(a), common);
  await replicated(a, ...common);
  assert.deepEqual(compareBatches(below(uncut, end), batchesOf(a, 0), SAME), []);
  await write(a, 'after', [0]);
});
