/**
 * Stops that end open transactions with ABORT markers, and what the other side makes of those when
 * it mirrors back (G24a, G31): a driver over a real log.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import type { ClosingRole, MirrorRole } from '../../src/mirror/driver-context.ts';
import { guestMapping, guestSourceId } from '../../src/mirror/producer-id-mapping.ts';
import type { ClosedTransaction, MirrorStateRow } from '../../src/mirror/state-row.ts';
import { stateName } from '../../src/mirror/states.ts';
import {
  buildTransactionMarker,
  parseTransactionMarker,
} from '../../src/protocol/control-record.ts';
import { errors } from '../../src/protocol/errors.ts';
import { decodeRecords } from '../../src/protocol/record.ts';
import { forEachBatch, RecordBatch } from '../../src/protocol/record-batch.ts';
import { settle } from '../replication/fakes.ts';
import { batch, marker, mirrored } from '../replication/harness.ts';
import { MEMBER, REMOVED, type Stage, stage } from './driver-stage.ts';

const TAG = 5;
const UNIT = 2n ** 40n;
const A = UNIT * 5n + 7n;
const B = UNIT * 5n + 8n;
/** Given out here. */
const LOCAL = 9n;

interface Wishes {
  readonly closes?: boolean;
  readonly closedAtSource?: readonly ClosedTransaction[] | 'none';
  readonly lastMirroredOffset?: number;
}

function guestRole({ closes = true, closedAtSource = 'none', ...wishes }: Wishes = {}): MirrorRole {
  const closing: ClosingRole = {
    isWanted: () => closes,
    sourceIdOf: (_mirror, id) => guestSourceId(TAG, id),
    closedAtSource: async () => closedAtSource,
  };
  return {
    producerIds: () => guestMapping(TAG),
    topicIdentity: 'own',
    sourceTopicIdOf: () => undefined,
    handover: true,
    peerLastMirroredOffset: async () => wishes.lastMirroredOffset ?? 'none',
    closing,
  };
}

function data(producerId: bigint, baseOffset: number, count: number, producerEpoch = 3) {
  const fields = { producerId, producerEpoch, baseSequence: 0, isTransactional: true };
  return batch(count, { ...fields, baseOffset, partitionLeaderEpoch: 0 });
}

/** B from 0, A from 2, a plain record; and one of this cluster's own producers, if wanted. */
function fill(s: Stage, withLocal = false): void {
  const chunks = [data(B, 0, 2, 1), data(A, 2, 2), mirrored(4, 1)];
  if (withLocal) chunks.push(data(LOCAL, 5, 1, 0));
  assert.equal(s.partition.appendMirrored(chunks, 0).error, 0);
}

const PLAN: readonly ClosedTransaction[] = [
  { producerId: B, originalProducerId: 8n, producerEpoch: 1, firstOffset: 0, markerOffset: 5 },
  { producerId: A, originalProducerId: 7n, producerEpoch: 3, firstOffset: 2, markerOffset: 6 },
];

/** The batches from an offset on: producer, its epoch, offset, leader epoch, how it ended. */
function tail(s: Stage, from: number) {
  const found: unknown[] = [];
  const { log } = s.partition;
  // A read ends where a segment does.
  for (let next = from; next < log.logEndOffset; ) {
    const read = log.read(next, 1_000_000, 'logEnd', true);
    assert.ok(read.error === 0 && read.bytes > 0);
    for (const chunk of read.records) {
      forEachBatch(chunk, 0, chunk.length, (each) => {
        assert.ok(each.validCrc());
        next = each.nextOffset;
        if (each.baseOffset >= from) found.push(described(each));
      });
    }
  }
  return found;
}

function described(of: RecordBatch): unknown[] {
  const { producerId, producerEpoch, baseOffset, partitionLeaderEpoch } = of;
  const records = decodeRecords(new RecordBatch(of.slice()), nodeCompression(), 1_000);
  const [record] = of.isControl ? records : [];
  const end = record && parseTransactionMarker(record);
  return [producerId, producerEpoch, baseOffset, partitionLeaderEpoch, end];
}

const ABORTED = { commit: false, coordinatorEpoch: 0 };
const MARKERS = [
  [B, 1, 5, 0, ABORTED],
  [A, 3, 6, 0, ABORTED],
];

/** A row of a stop that has nothing planned yet. */
function stopping(s: Stage, fields: Partial<MirrorStateRow> = {}): Promise<void> {
  return s.recorded('STOPPING', { reachedMirroring: true, ...fields });
}

/** What a reader of committed data is told to leave out. */
function aborted(s: Stage, from: number): unknown[] {
  const read = s.partition.log.read(from, 1_000_000, 'lastStable', true);
  assert.ok(read.error === 0);
  return (read.abortedTransactions ?? []).map(({ producerId, firstOffset, lastOffset }) => {
    return [producerId, firstOffset, lastOffset];
  });
}

async function closedRow(s: Stage) {
  const row = await s.row();
  return [row?.settled, row?.lastMirroredOffset, row?.closedTransactions];
}

test('G24a open transactions end by a marker each, listed before it; nothing is cut', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  fill(s);
  await stopping(s);
  const writes: unknown[] = [];
  const { coordinator } = s.rows;
  const write = coordinator.write.bind(coordinator);
  coordinator.write = (key, row) => {
    const planned = row?.closedTransactions.length;
    writes.push([row?.settled, planned, s.partition.log.logEndOffset]);
    return write(key, row);
  };
  s.drive(REMOVED);
  await settle();
  assert.deepEqual(writes, [
    [false, 0, 5],
    [false, 2, 5],
    [true, 2, 7],
  ]);
  assert.deepEqual(tail(s, 5), MARKERS);
  assert.deepEqual(await closedRow(s), [true, 5, PLAN]);
  const { log } = s.partition;
  assert.deepEqual([log.lastStableOffset, log.logEndOffset], [7, 7]);
  assert.deepEqual(log.openTransactions(), []);
  assert.deepEqual(aborted(s, 0), [
    [B, 0, 5],
    [A, 2, 6],
  ]);
  assert.deepEqual([s.elected, s.gate()], [[], 'STOPPING']);
  assert.deepEqual(
    s.lowered.map(({ offset }) => offset),
    [7],
  );
  assert.deepEqual(s.illegal, []);
});

test('G24a the default is the cut; without open transactions nothing is appended', async (t) => {
  const cut = await stage(t);
  cut.role = guestRole({ closes: false });
  fill(cut);
  await stopping(cut);
  cut.drive(REMOVED);
  await settle();
  assert.equal(cut.partition.log.logEndOffset, 0);
  assert.deepEqual(cut.elected, [0]);
  const whole = await stage(t);
  whole.role = guestRole();
  assert.equal(whole.partition.appendMirrored([mirrored(0, 4)], 0).error, 0);
  await stopping(whole);
  whole.drive(REMOVED);
  await settle();
  assert.equal(whole.partition.log.logEndOffset, 4);
  assert.deepEqual(await closedRow(whole), [true, 4, []]);
});

/** The stop dies at its n-th row, which is durable or not. */
for (const [count, isDurable] of [
  [2, false],
  [2, true],
  [3, false],
  [3, true],
] as const) {
  const when = isDurable ? 'after' : 'before';
  test(`G24a a crash ${when} row ${count} is durable ends with the same markers`, async (t) => {
    const s = await stage(t);
    s.role = guestRole();
    fill(s);
    await stopping(s);
    const { coordinator } = s.rows;
    const write = coordinator.write.bind(coordinator);
    let written = 0;
    coordinator.write = async (key, row) => {
      written++;
      if (written !== count) return await write(key, row);
      s.driver?.close();
      return isDurable ? await write(key, row) : errors.NOT_COORDINATOR.code;
    };
    s.drive(REMOVED);
    await settle();
    assert.equal(written, count);
    assert.deepEqual(tail(s, 5), count === 2 ? [] : MARKERS);
    s.drive(REMOVED);
    await settle();
    assert.deepEqual(tail(s, 5), MARKERS);
    assert.deepEqual(await closedRow(s), [true, 5, PLAN]);
  });
}

test('G24a a stop that finds one of its markers appends the other as planned', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  fill(s);
  await stopping(s, { closedTransactions: [...PLAN] });
  const first = buildTransactionMarker({
    ...ABORTED,
    producerId: B,
    producerEpoch: 1,
    timestamp: 1,
    baseOffset: 5,
    partitionLeaderEpoch: 0,
  });
  assert.equal(s.partition.appendMirrored([first], 0).error, 0);
  assert.deepEqual(tail(s, 5), MARKERS.slice(0, 1));
  s.drive(REMOVED);
  await settle();
  assert.deepEqual(tail(s, 5), MARKERS);
  assert.deepEqual(await closedRow(s), [true, 5, PLAN]);
});

test('G24a a plan that the log does not reach any more is made anew', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  assert.equal(s.partition.appendMirrored([data(B, 0, 2, 1), data(A, 2, 1)], 0).error, 0);
  await stopping(s, { closedTransactions: [...PLAN] });
  s.drive(REMOVED);
  await settle();
  const plan = PLAN.map((each, index) => ({ ...each, markerOffset: 3 + index }));
  assert.deepEqual(await closedRow(s), [true, 3, plan]);
  assert.deepEqual(tail(s, 3), [
    [B, 1, 3, 0, ABORTED],
    [A, 3, 4, 0, ABORTED],
  ]);
});

test('G10 G24a a transaction of the cluster itself is left to its coordinator', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  fill(s, true);
  await stopping(s);
  s.broker.gate.set('t', { topic: 't', mirror: 'm', state: 'STOPPING' });
  // Nobody but the stop may end a mirrored one.
  assert.equal(s.partition.append('marker', marker(A, true), -1).error, 0);
  assert.equal(s.partition.log.logEndOffset, 6);
  const { coordinator } = s.rows;
  const write = coordinator.write.bind(coordinator);
  let hasEnded = false;
  coordinator.write = async (key, row) => {
    const code = await write(key, row);
    if (row?.closedTransactions.length !== 0 && !hasEnded) {
      hasEnded = true;
      assert.equal(s.partition.append('marker', marker(LOCAL, true), -1).error, 0);
    }
    return code;
  };
  s.drive(REMOVED);
  await settle();
  assert.deepEqual(s.partition.log.openTransactions(), []);
  const plan = PLAN.map((each, index) => ({ ...each, markerOffset: 7 + index }));
  assert.deepEqual(await closedRow(s), [true, 7, plan]);
});

/** The topic is a member again, from where it was left (S7). */
const AGAIN = { mirror: 'm', removed: false, offset: 30 };
const GONE_AGAIN = { mirror: 'm', removed: true, offset: 40 };

/** A stop that closed, and a record that was written since. */
async function closed(s: Stage): Promise<void> {
  const stopped = { reachedMirroring: true, lastMirroredOffset: 5, sourceClusterId: 'source' };
  await s.recorded('STOPPED', { ...stopped, membershipOffset: 20, closedTransactions: [...PLAN] });
  fill(s);
  const markers = PLAN.map(({ producerId, producerEpoch, markerOffset }) =>
    buildTransactionMarker({
      ...ABORTED,
      producerId,
      producerEpoch,
      timestamp: 1,
      baseOffset: markerOffset,
      partitionLeaderEpoch: 0,
    }),
  );
  assert.equal(s.partition.appendMirrored([...markers, mirrored(7, 2)], 0).error, 0);
  s.source.fetched = { errorCode: 0, records: mirrored(4, 1) };
}

/** What follows a cut: the same broker leads again, here with the same epoch. */
async function leadAgain(s: Stage, membership = AGAIN): Promise<void> {
  s.driver?.close();
  s.drive(membership);
  await settle();
}

for (const closes of [true, false]) {
  test(`G31 D2 cut markers come back at a stop before MIRRORING, ${closes}`, async (t) => {
    const s = await stage(t);
    s.role = guestRole({ closes });
    await closed(s);
    s.drive(AGAIN);
    await settle();
    assert.deepEqual(s.elected, [0]);
    assert.deepEqual(tail(s, 5), []);
    assert.deepEqual(
      s.partition.log.openTransactions().map(({ producerId }) => producerId),
      [B, A],
    );
    await leadAgain(s, GONE_AGAIN);
    assert.deepEqual(tail(s, 5), MARKERS);
    assert.deepEqual(await closedRow(s), [true, 5, PLAN]);
  });
}

test('G31 MIRRORING again, the source ends them, or the next stop does', async (t) => {
  for (const closes of [true, false]) {
    const s = await stage(t);
    s.role = guestRole({ closes });
    await closed(s);
    s.drive(AGAIN);
    await settle();
    await leadAgain(s);
    assert.equal(s.gate(), 'MIRRORING');
    assert.deepEqual((await s.row())?.closedTransactions, []);
    const end = buildTransactionMarker({
      commit: true,
      coordinatorEpoch: 2,
      producerId: 8n,
      producerEpoch: 1,
      timestamp: 1,
      baseOffset: 5,
      partitionLeaderEpoch: 0,
    });
    s.deliver(end);
    await settle();
    s.deliver(end);
    assert.deepEqual(tail(s, 5), [[B, 1, 5, 0, { commit: true, coordinatorEpoch: 2 }]]);
    s.driver?.membershipIs(GONE_AGAIN);
    await settle();
    if (closes) {
      const [, planned] = PLAN;
      assert.deepEqual(tail(s, 6), [[A, 3, 6, 0, ABORTED]]);
      assert.deepEqual(await closedRow(s), [true, 6, [{ ...planned, markerOffset: 6 }]]);
    } else {
      // Its marker goes with the cut, so the lower one is open again, and cut as well.
      assert.equal(s.partition.log.logEndOffset, 0);
    }
  }
});

/** The other side: A and B have their first ids there, and were aborted by whoever led here. */
const THEIRS = PLAN.map((each) => ({
  ...each,
  producerId: each.originalProducerId + UNIT * 77n,
  originalProducerId: each.originalProducerId,
}));

/** Its log as it was when it failed over: both have ended above the offset that is common. */
function fillOther(s: Stage): void {
  const end = { producerEpoch: 1, commit: true, coordinatorEpoch: 1, timestamp: 1 };
  const chunks = [
    data(8n, 0, 2, 1),
    data(7n, 2, 2),
    mirrored(4, 1),
    buildTransactionMarker({ ...end, producerId: 8n, baseOffset: 5, partitionLeaderEpoch: 0 }),
    mirrored(6, 3),
  ];
  assert.equal(s.partition.appendMirrored(chunks, 0).error, 0);
  s.source.fetched = { errorCode: 0, records: mirrored(4, 1) };
}

function theirMarker(index: number): Uint8Array {
  const each = THEIRS[index];
  assert.ok(each);
  const { producerId, producerEpoch, markerOffset: baseOffset } = each;
  const at = { timestamp: 1, baseOffset, partitionLeaderEpoch: 0 };
  return buildTransactionMarker({ ...ABORTED, producerId, producerEpoch, ...at });
}

test("G24a mirroring back, the source's abort markers end what is open here", async (t) => {
  const s = await stage(t);
  s.role = guestRole({ closedAtSource: THEIRS, lastMirroredOffset: 5 });
  fillOther(s);
  s.drive(MEMBER);
  await settle();
  assert.deepEqual([s.partition.log.logEndOffset, s.elected], [5, [0]]);
  await leadAgain(s, MEMBER);
  assert.equal(s.gate(), 'MIRRORING');
  assert.deepEqual((await s.row())?.closedAtSource, THEIRS);
  s.deliver(theirMarker(0));
  await settle();
  s.deliver(theirMarker(0));
  // A restart in between finds the ids in the row.
  await leadAgain(s, MEMBER);
  const elsewhere = UNIT * 77n + 6n;
  const other = data(elsewhere, 7, 1);
  s.deliver(Buffer.concat([theirMarker(1), other]));
  assert.deepEqual(tail(s, 5), [
    [8n, 1, 5, 0, ABORTED],
    [7n, 3, 6, 0, ABORTED],
    [elsewhere, 3, 7, 0, undefined],
  ]);
  const open = s.partition.log.openTransactions();
  assert.deepEqual(open, [{ producerId: elsewhere, firstOffset: 7 }]);
});

test('G24a what is open where the source stopped, and not listed, fails by id', async (t) => {
  const s = await stage(t);
  s.role = guestRole({ closedAtSource: THEIRS.slice(1), lastMirroredOffset: 5 });
  fillOther(s);
  s.drive(MEMBER);
  await settle();
  await leadAgain(s, MEMBER);
  assert.equal(s.gate(), 'FAILED');
  const row = await s.row();
  assert.deepEqual(
    [row?.cause, stateName(row?.previousState ?? -1)],
    ['SOURCE_DIVERGED', 'PREPARING'],
  );
  assert.match(row?.message ?? '', /not ended there: producer 8 from 0 on$/);
});

test('G24a a twinlog source has closed nothing, and is not asked for its rows', async (t) => {
  const s = await stage(t);
  const role = guestRole();
  const asked: string[] = [];
  const closedAtSource = async (mirror: string) => {
    asked.push(mirror);
    return THEIRS;
  };
  s.role = { ...role, closing: { ...(role.closing as ClosingRole), closedAtSource } };
  s.source.servesLastMirrored = true;
  s.source.lastMirrored = { errorCode: 0, offset: 5 };
  fillOther(s);
  s.drive(MEMBER);
  await settle();
  await leadAgain(s, MEMBER);
  assert.deepEqual([s.gate(), asked], ['MIRRORING', []]);
});

test("G24a a transaction of the source's own may be open there: it ends as any", async (t) => {
  const s = await stage(t);
  s.role = guestRole({ closedAtSource: [], lastMirroredOffset: 2 });
  assert.equal(s.partition.appendMirrored([data(A, 0, 2), mirrored(2, 2)], 0).error, 0);
  s.source.fetched = { errorCode: 0, records: data(7n, 0, 2) };
  s.drive(MEMBER);
  await settle();
  await leadAgain(s, MEMBER);
  assert.equal(s.gate(), 'MIRRORING');
});

test('G31 stopped before the markers came over, they are appended here', async (t) => {
  const s = await stage(t);
  s.role = guestRole({ closes: false, closedAtSource: THEIRS, lastMirroredOffset: 5 });
  fillOther(s);
  s.drive(MEMBER);
  await settle();
  await leadAgain(s, MEMBER);
  s.deliver(theirMarker(0));
  await settle();
  s.deliver(theirMarker(0));
  s.driver?.membershipIs(REMOVED);
  await settle();
  assert.deepEqual(tail(s, 5), [
    [8n, 1, 5, 0, ABORTED],
    [7n, 3, 6, 0, ABORTED],
  ]);
  const [, theirs] = THEIRS;
  const here = { producerId: 7n, originalProducerId: theirs?.producerId };
  assert.deepEqual(await closedRow(s), [true, 6, [{ ...theirs, ...here }]]);
});

test('G24a G29 a log that begins there learns what is open, and its end', async (t) => {
  const s = await stage(t);
  s.role = guestRole({ closedAtSource: THEIRS, lastMirroredOffset: 5 });
  s.partition.log.beginAt(5, 0, [{ epoch: 0, startOffset: 0 }]);
  s.source.fetched = { errorCode: 0, records: mirrored(4, 1) };
  s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  const { log } = s.partition;
  assert.deepEqual(log.openTransactions(), [
    { producerId: 8n, firstOffset: 0 },
    { producerId: 7n, firstOffset: 2 },
  ]);
  const both = Buffer.concat([theirMarker(0), theirMarker(1)]);
  s.deliver(both);
  await settle();
  s.deliver(both);
  assert.deepEqual([log.openTransactions(), log.lastStableOffset], [[], 7]);
  assert.deepEqual(aborted(s, 5), [
    [8n, 0, 5],
    [7n, 2, 6],
  ]);
});
