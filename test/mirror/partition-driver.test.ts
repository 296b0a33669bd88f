/**
 * A partition driven through its states, over a real log, rows in memory and a scripted source.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { type MirrorStateName, stateName } from '../../src/mirror/states.ts';
import { settle } from '../replication/fakes.ts';
import { mirrored } from '../replication/harness.ts';
import { MEMBER, REMOVED, stage } from './driver-stage.ts';

test('T1 S2 membership leads to MIRRORING, each state durable before it acts', async (t) => {
  const s = await stage(t);
  s.rows.log.hold();
  s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'UNKNOWN');
  assert.equal(s.source.registered.size, 0);
  s.rows.log.release();
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  const found = await s.row();
  assert.equal(stateName(found?.state ?? -1), 'MIRRORING');
  assert.equal(found?.membershipOffset, 10);
  assert.equal(found?.sourceClusterId, 'source');
  assert.equal(found?.sourceTopicId, s.partition.topicId);
  assert.equal(found?.reachedMirroring, true);
  assert.equal(s.source.registered.size, 1);
  assert.deepEqual(s.illegal, []);
});

test('F10 source epochs are durable before the fetch goes on', async (t) => {
  const s = await stage(t);
  s.drive(MEMBER);
  await settle();
  const fetch = s.fetch();
  assert.equal(s.deliver(mirrored(0, 3, 2)), 'pause');
  assert.equal(s.partition.log.logEndOffset, 0);
  await settle();
  assert.deepEqual((await s.row())?.sourceEpochs, [{ epoch: 2, startOffset: 0 }]);
  assert.deepEqual(s.source.resumed, [fetch]);
  assert.equal(s.deliver(mirrored(0, 3, 2)), 'continue');
  assert.equal(s.partition.log.logEndOffset, 3);
});

test('D1 removal stops the fetch, then STOPPED and LMO become durable in one row', async (t) => {
  const s = await stage(t);
  const driver = s.drive(MEMBER);
  await settle();
  s.deliver(mirrored(0, 3, 2));
  await settle();
  s.deliver(mirrored(0, 3, 2));
  driver.membershipIs(REMOVED);
  await settle();
  assert.equal(s.source.registered.size, 0);
  const found = await s.row();
  assert.equal(stateName(found?.state ?? -1), 'STOPPED');
  assert.deepEqual([found?.lastMirroredOffset, found?.membershipOffset], [3, 20]);
  assert.equal(s.gate(), 'STOPPED');
  assert.deepEqual(s.illegal, []);
});

test('S7 under .removed a definite "no row" goes to STOPPED without an LMO', async (t) => {
  const s = await stage(t);
  s.drive(REMOVED);
  await settle();
  const found = await s.row();
  assert.equal(stateName(found?.state ?? -1), 'STOPPED');
  assert.equal(found?.lastMirroredOffset, -1);
});

test('S7 a STOPPED row of the same membership stays STOPPED across restarts', async (t) => {
  const s = await stage(t);
  await s.recorded('STOPPED', { lastMirroredOffset: 3 });
  const driver = s.drive(MEMBER);
  await settle();
  driver.membershipIs(MEMBER);
  await settle();
  assert.equal(s.gate(), 'STOPPED');
  assert.equal((await s.row())?.lastMirroredOffset, 3);
});

test('S7 a STOPPED row that a newer membership has overtaken opens nothing', async (t) => {
  const s = await stage(t);
  await s.recorded('STOPPED', { membershipOffset: 5, lastMirroredOffset: 0 });
  const shown: MirrorStateName[] = [];
  const set = s.states.set.bind(s.states);
  s.states.set = (topicId, partition, mirror, state) => {
    shown.push(state);
    set(topicId, partition, mirror, state);
  };
  s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  assert.ok(!shown.includes('STOPPED'));
});

test('S3 every durable state is claimed and entered again after a restart', async (t) => {
  for (const [state, ends] of [
    ['PREPARING', 'MIRRORING'],
    ['MIRRORING', 'MIRRORING'],
    ['STOPPING', 'STOPPED'],
    ['STOPPED', 'STOPPED'],
  ] as const) {
    const s = await stage(t);
    await s.recorded(state, { reachedMirroring: state !== 'PREPARING' });
    const before = await s.row();
    s.drive(state === 'STOPPING' || state === 'STOPPED' ? REMOVED : MEMBER);
    await settle();
    const found = await s.row();
    assert.equal(stateName(found?.state ?? -1), ends, state);
    assert.ok((found?.stateEpoch ?? 0) > (before?.stateEpoch ?? 0), state);
    assert.deepEqual(s.illegal, [], state);
  }
});

test('S6 a driver whose leadership is lost writes and appends nothing more', async (t) => {
  const s = await stage(t);
  const driver = s.drive(MEMBER);
  await settle();
  driver.close();
  const before = await s.row();
  driver.membershipIs(REMOVED);
  await settle();
  assert.deepEqual(await s.row(), before);
  assert.equal(s.source.registered.size, 0);
});

test('S4 a driver that was fenced reads its row again and goes on from there', async (t) => {
  const s = await stage(t);
  const driver = s.drive(MEMBER);
  await settle();
  const before = await s.row();
  assert.ok(before);
  const other = { ...before, stateEpoch: before.stateEpoch + 1 };
  assert.equal(await s.rows.coordinator.write(s.key, other), 0);
  driver.membershipIs(REMOVED);
  await s.broker.clock.advance(10_000);
  assert.equal(s.gate(), 'STOPPED');
  assert.ok(((await s.row())?.stateEpoch ?? 0) > other.stateEpoch);
});

test('D3 a state write that fails is retried until it succeeds', async (t) => {
  const s = await stage(t);
  const driver = s.drive(MEMBER);
  await settle();
  s.rows.log.failNextAppend = 56;
  driver.membershipIs(REMOVED);
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  await s.broker.clock.advance(1000);
  assert.equal(s.gate(), 'STOPPED');
});

test('D3 a partition whose source is dead stops, also from FAILED', async (t) => {
  const s = await stage(t);
  s.source.unreachable();
  const driver = s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'FAILED');
  driver.membershipIs(REMOVED);
  await settle();
  assert.equal(s.gate(), 'STOPPED');
  assert.equal((await s.row())?.lastMirroredOffset, -1);
});

test('S5 a failure shows its next retry and ends when the source answers', async (t) => {
  const s = await stage(t);
  s.source.unreachable();
  const driver = s.drive(MEMBER);
  await settle();
  const { state, cause, nextRetryMs } = driver.status();
  assert.deepEqual([state, cause], ['FAILED', 'SOURCE_UNREACHABLE']);
  assert.ok(nextRetryMs > s.broker.clock.wallMs());
  await s.broker.clock.advance(5_000);
  assert.equal(s.gate(), 'FAILED');
  s.source.failure = undefined;
  await s.broker.clock.advance(10_000);
  assert.equal(s.gate(), 'MIRRORING');
  assert.equal(driver.status().cause, '');
});

test('T3 X = 0 with a log that is not empty fails and cuts nothing', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  const driver = s.drive(MEMBER);
  await settle();
  assert.deepEqual([s.gate(), driver.status().cause], ['FAILED', 'WOULD_DISCARD_ALL']);
  assert.equal(s.partition.log.logEndOffset, 4);
  await s.broker.clock.advance(400_000);
  assert.equal(s.gate(), 'FAILED');
});

test('T2 T5 a topic added again is cut to its LMO, and a new epoch follows', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  s.partition.appendMirrored([mirrored(4, 4)], 0);
  const lmo = { lastMirroredOffset: 4, sourceClusterId: 'source', membershipOffset: 5 };
  await s.recorded('STOPPED', lmo);
  s.source.fetched = { errorCode: 0, records: mirrored(0, 4) };
  s.drive(MEMBER);
  await settle();
  assert.equal(s.partition.log.logEndOffset, 4);
  assert.deepEqual(s.elected, [0]);
  // The new epoch brings a new driver; this one has nothing left to do.
  assert.equal(s.gate(), 'PREPARING');
});

test('D2 a stop after a cut into a gap drops nothing, and claims no more', async (t) => {
  const s = await stage(t);
  for (const at of [0, 10]) s.partition.appendMirrored([mirrored(at, 4)], 0);
  s.partition.truncateForMirror(8, 0);
  await s.recorded('STOPPING', { lastMirroredOffset: 8 });
  s.drive(REMOVED);
  await settle();
  const found = await s.row();
  assert.equal(stateName(found?.state ?? -1), 'STOPPED');
  assert.deepEqual([found?.lastMirroredOffset, s.partition.log.logEndOffset], [4, 4]);
});

test('D2 a stop before MIRRORING cuts nothing', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  const driver = s.drive(MEMBER);
  await settle();
  driver.membershipIs(REMOVED);
  await settle();
  assert.equal(s.gate(), 'STOPPED');
  assert.equal(s.partition.log.logEndOffset, 4);
  assert.equal((await s.row())?.lastMirroredOffset, -1);
});

test('O4 a source with another cluster id than the row records is not mirrored', async (t) => {
  const s = await stage(t);
  await s.recorded('PREPARING', { sourceClusterId: 'other' });
  const driver = s.drive(MEMBER);
  await settle();
  assert.deepEqual([s.gate(), driver.status().cause], ['FAILED', 'SOURCE_CLUSTER_CHANGED']);
});

test('F12 a recreated source topic stops the partition and keeps its data', async (t) => {
  const s = await stage(t);
  const driver = s.drive(MEMBER);
  await settle();
  s.deliver(mirrored(0, 3, 0));
  await settle();
  s.deliver(mirrored(0, 3, 0));
  const [listener] = s.source.registered.values();
  listener?.recreated(s.partition.topicId);
  await settle();
  driver.membershipIs(MEMBER);
  await settle();
  const found = await s.row();
  assert.equal(stateName(found?.state ?? -1), 'STOPPED');
  assert.equal(found?.cause, 'SOURCE_TOPIC_RECREATED');
  assert.equal(s.partition.log.logEndOffset, 3);
  assert.equal(s.gate(), 'STOPPED');
});

test('F9 a log end that the source has deleted: the log starts over there', async (t) => {
  const s = await stage(t);
  s.drive(MEMBER);
  await settle();
  s.source.range = { earliest: 50, latest: 90 };
  const out = { highWatermark: -1, lastStableOffset: -1, logStartOffset: -1 };
  s.fetch().onFetched({ errorCode: 1, ...out, records: new Uint8Array(0) });
  await settle();
  assert.deepEqual([s.partition.log.logStartOffset, s.partition.log.logEndOffset], [50, 50]);
  assert.deepEqual(s.source.resumed, [s.fetch()]);
});

test('F10 after records were lost at the source the log is cut to what is common', async (t) => {
  const s = await stage(t);
  s.drive(MEMBER);
  await settle();
  for (const [offset, epoch] of [
    [0, 1],
    [3, 2],
  ] as const) {
    s.deliver(mirrored(offset, 3, epoch));
    await settle();
    assert.equal(s.deliver(mirrored(offset, 3, epoch)), 'continue');
  }
  assert.equal(s.partition.log.logEndOffset, 6);
  s.source.epochEnds.set(2, { leaderEpoch: 1, endOffset: 3 });
  s.source.epochEnds.set(1, { leaderEpoch: 1, endOffset: 3 });
  const [listener] = s.source.registered.values();
  const address = { host: 's', port: 1 };
  assert.equal(await listener?.verify({ brokerId: 1, address, leaderEpoch: 3 }), false);
  await settle();
  assert.equal(s.partition.log.logEndOffset, 3);
  const row = await s.row();
  assert.deepEqual(row?.sourceEpochs, [{ epoch: 1, startOffset: 0 }]);
  assert.deepEqual([row?.cutOffset, row?.cutLeaderEpoch], [3, 0], 'replicas may be away (G18a)');
  assert.deepEqual(s.elected, [0]);
});

test('B2 S7 a topic made again is mirrored over a row of its former life', async (t) => {
  for (const state of ['STOPPED', 'MIRRORING', 'PREPARING', 'STOPPING', 'FAILED'] as const) {
    const s = await stage(t);
    // Broker restarts had raised the leader epoch to 5; the new life begins at 0 again.
    const old = { leaderEpoch: 5, membershipOffset: 4, lastMirroredOffset: 70 };
    await s.recorded(state, { ...old, reachedMirroring: true, sourceClusterId: 'source' });
    const driver = s.drive(MEMBER);
    await s.broker.clock.advance(1_000);
    assert.equal(s.gate(), 'MIRRORING', state);
    const found = await s.row();
    assert.deepEqual([found?.leaderEpoch, found?.membershipOffset], [0, 10], state);
    assert.equal(s.deliver(mirrored(0, 3, 1)), 'pause', state);
    await settle();
    assert.equal(s.deliver(mirrored(0, 3, 1)), 'continue', state);
    driver.membershipIs(REMOVED);
    await settle();
    assert.equal((await s.row())?.lastMirroredOffset, 3, state);
  }
});

test('B2 S7 a topic made again and removed at once stops over such a row', async (t) => {
  for (const state of ['MIRRORING', 'STOPPING', 'STOPPED'] as const) {
    const s = await stage(t);
    await s.recorded(state, { leaderEpoch: 5, membershipOffset: 4, reachedMirroring: true });
    s.drive(REMOVED);
    await s.broker.clock.advance(1_000);
    assert.equal(s.gate(), 'STOPPED', state);
    const found = await s.row();
    assert.deepEqual([found?.leaderEpoch, found?.membershipOffset], [0, 20], state);
  }
});

test('S4 S5 a driver that is fenced for good says so instead of looking STOPPED', async (t) => {
  const s = await stage(t);
  // The same membership under a newer leader epoch: another leader is at work.
  await s.recorded('STOPPED', { leaderEpoch: 5, lastMirroredOffset: 3 });
  const driver = s.drive(MEMBER);
  await s.broker.clock.advance(30_000);
  const { state, cause, message } = driver.status();
  assert.deepEqual([state, cause], ['UNKNOWN', 'DESTINATION_BUSY']);
  assert.match(message, /leader epoch 5.*leader epoch 0/);
  assert.equal(s.gate(), 'UNKNOWN');
});

test('S4 a leadership of a former life claims no row of a newer one', async (t) => {
  const s = await stage(t);
  await s.recorded('MIRRORING', { leaderEpoch: 0, membershipOffset: 30, reachedMirroring: true });
  const before = await s.row();
  const driver = s.drive(MEMBER);
  await s.broker.clock.advance(1_000);
  assert.deepEqual(await s.row(), before);
  assert.match(driver.status().message, /membership 30/);
  driver.membershipIs({ ...MEMBER, offset: 30 });
  await s.broker.clock.advance(10_000);
  assert.equal(s.gate(), 'MIRRORING');
});

test('S5 a row that cannot be read is shown as the reason', async (t) => {
  const s = await stage(t);
  s.rows.coordinator.close();
  const driver = s.drive(MEMBER);
  await s.broker.clock.advance(1_000);
  const { state, cause, message } = driver.status();
  assert.deepEqual([state, cause], ['UNKNOWN', 'DESTINATION_BUSY']);
  assert.match(message, /NOT_COORDINATOR/);
  s.rows.lead(1);
  await s.broker.clock.advance(10_000);
  assert.equal(s.gate(), 'MIRRORING');
  assert.equal(driver.status().cause, '');
});

test('F10 epochs above a log that power loss has cut are neither known nor kept', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  // Durable with the batches of epoch 7, which were not: the log ends at 4 again.
  const sourceEpochs = [
    { epoch: 1, startOffset: 0 },
    { epoch: 7, startOffset: 4 },
    { epoch: 9, startOffset: 60 },
  ];
  await s.recorded('MIRRORING', { reachedMirroring: true, sourceEpochs });
  s.drive(MEMBER);
  await settle();
  // The source lost epochs 7 and 9, too, and goes on in epoch 3.
  assert.equal(s.deliver(mirrored(4, 2, 3)), 'pause');
  await settle();
  const known = [
    { epoch: 1, startOffset: 0 },
    { epoch: 3, startOffset: 4 },
  ];
  assert.deepEqual((await s.row())?.sourceEpochs, known);
  assert.equal(s.deliver(mirrored(4, 2, 3)), 'continue');
  assert.equal(s.partition.log.logEndOffset, 6);
  assert.equal(s.gate(), 'MIRRORING');
});

test('F10 an epoch that was recorded but never came is not held against what does', async (t) => {
  const s = await stage(t);
  s.drive(MEMBER);
  await settle();
  s.deliver(mirrored(0, 3, 1));
  await settle();
  s.deliver(mirrored(0, 3, 1));
  assert.equal(s.deliver(mirrored(3, 3, 5)), 'pause');
  await settle();
  // Recorded; then the source's leader changes to one that never had epoch 5.
  s.source.epochEnds.set(1, { leaderEpoch: 1, endOffset: 5 });
  const [listener] = s.source.registered.values();
  const address = { host: 's', port: 1 };
  assert.equal(await listener?.verify({ brokerId: 1, address, leaderEpoch: 6 }), true);
  assert.equal(s.deliver(mirrored(3, 2, 1)), 'continue');
  assert.deepEqual([s.partition.log.logEndOffset, s.gate()], [5, 'MIRRORING']);
});

test('F10 T2 PREPARING keeps no epoch above the log end, whatever X is', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  const sourceEpochs = [
    { epoch: 1, startOffset: 0 },
    { epoch: 7, startOffset: 50 },
  ];
  const lmo = { lastMirroredOffset: 80, sourceClusterId: 'source', membershipOffset: 5 };
  await s.recorded('STOPPED', { ...lmo, sourceEpochs });
  s.source.fetched = { errorCode: 0, records: mirrored(0, 4) };
  s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  assert.deepEqual((await s.row())?.sourceEpochs, [{ epoch: 1, startOffset: 0 }]);
});

test('F12 without topic ids, epochs that go backwards stop the partition', async (t) => {
  for (const seenIn of ['batches', 'metadata'] as const) {
    const s = await stage(t);
    s.source.topicId = ZERO_UUID;
    s.drive(MEMBER);
    await settle();
    s.deliver(mirrored(0, 3, 4));
    await settle();
    s.deliver(mirrored(0, 3, 4));
    const [listener] = s.source.registered.values();
    const address = { host: 's', port: 1 };
    // The new topic of that name has a shorter log, which would look like lost records.
    s.source.epochEnds.set(4, { leaderEpoch: 1, endOffset: 2 });
    const leader = { brokerId: 1, address, leaderEpoch: 1 };
    if (seenIn === 'batches') s.deliver(mirrored(3, 3, 1));
    else assert.equal(await listener?.verify(leader), false);
    await settle();
    const found = await s.row();
    assert.equal(stateName(found?.state ?? -1), 'STOPPED', seenIn);
    assert.equal(found?.cause, 'SOURCE_TOPIC_RECREATED');
    assert.deepEqual([found?.lastMirroredOffset, s.partition.log.logEndOffset], [3, 3]);
  }
});

test('T5 F10 after a cut nothing is fetched until its new epoch has begun', async (t) => {
  const s = await stage(t);
  s.electionErrors.push(7, 7);
  s.drive(MEMBER);
  await settle();
  for (const [offset, epoch] of [
    [0, 1],
    [3, 2],
  ] as const) {
    s.deliver(mirrored(offset, 3, epoch));
    await settle();
    s.deliver(mirrored(offset, 3, epoch));
  }
  s.source.epochEnds.set(2, { leaderEpoch: 1, endOffset: 3 });
  s.source.epochEnds.set(1, { leaderEpoch: 1, endOffset: 3 });
  const [listener] = s.source.registered.values();
  const address = { host: 's', port: 1 };
  assert.equal(await listener?.verify({ brokerId: 1, address, leaderEpoch: 3 }), false);
  await settle();
  assert.deepEqual([s.gate(), s.partition.log.logEndOffset], ['FAILED', 3]);
  await s.broker.clock.advance(10_000);
  assert.equal(s.source.registered.size, 0);
  assert.deepEqual(s.elected, [0, 0, 0]);
});

test('S5 an error that nobody expected is shown and tried again', async (t) => {
  for (const method of ['leader', 'register'] as const) {
    const s = await stage(t);
    const source = s.source.asSource();
    const works = source[method];
    source[method] = () => {
      throw new TypeError('a defect');
    };
    s.source.asSource = () => source;
    const driver = s.drive(MEMBER);
    await settle();
    const { cause, message } = driver.status();
    assert.deepEqual([cause, message], ['INTERNAL_ERROR', 'TypeError: a defect'], method);
    Object.assign(source, { [method]: works });
    await s.broker.clock.advance(60_000);
    assert.deepEqual([s.gate(), driver.status().cause], ['MIRRORING', ''], method);
    assert.equal(s.source.registered.size, 1, method);
  }
});
