/** B1, G32: when in the life of a partition group offsets are lowered, and what if they cannot. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { settle } from '../../replication/fakes.ts';
import { mirrored } from '../../replication/harness.ts';
import { MEMBER, REMOVED, stage } from '../driver-stage.ts';

const AGAIN = { lastMirroredOffset: 4, sourceClusterId: 'source', membershipOffset: 5 };

test('B1 group offsets are lowered to the cut before the partition mirrors on', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  await s.recorded('STOPPED', AGAIN);
  s.source.fetched = { errorCode: 0, records: mirrored(0, 4) };
  s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  assert.deepEqual(s.lowered, [{ offset: 4, state: 'PREPARING' }]);
});

test('B1 nothing is lowered before the cut has its new leader epoch', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  s.partition.appendMirrored([mirrored(4, 4)], 0);
  await s.recorded('STOPPED', AGAIN);
  s.source.fetched = { errorCode: 0, records: mirrored(0, 4) };
  s.drive(MEMBER);
  await settle();
  assert.deepEqual([s.elected, s.lowered], [[0], []]);
});

test('B1 groups that cannot be lowered hold the partition up, with the reason', async (t) => {
  const s = await stage(t);
  s.loweringProblems.push('group offsets of t-0 above 0: NOT_COORDINATOR');
  const driver = s.drive(MEMBER);
  await settle();
  const { state, cause, message } = driver.status();
  assert.deepEqual([state, cause], ['FAILED', 'DESTINATION_BUSY']);
  assert.equal(message, 'group offsets of t-0 above 0: NOT_COORDINATOR');
  assert.equal(s.source.registered.size, 0);
  await s.broker.clock.advance(5_000);
  assert.equal(s.gate(), 'MIRRORING');
  assert.equal(s.lowered.length, 2);
});

test('G32 D3 at a stop they are lowered to its end; a failure does not hold it up', async (t) => {
  const s = await stage(t);
  const driver = s.drive(MEMBER);
  await settle();
  s.deliver(mirrored(0, 3, 2));
  await settle();
  s.deliver(mirrored(0, 3, 2));
  s.lowered.length = 0;
  s.loweringProblems.push('no coordinator');
  driver.membershipIs(REMOVED);
  await settle();
  assert.deepEqual(s.lowered, [{ offset: 3, state: 'STOPPING' }]);
  assert.equal(s.gate(), 'STOPPED');
  assert.equal((await s.row())?.lastMirroredOffset, 3);
});

test('D2 a stop before MIRRORING has cut nothing and lowers nothing', async (t) => {
  const s = await stage(t);
  s.source.unreachable();
  const driver = s.drive(MEMBER);
  await settle();
  driver.membershipIs(REMOVED);
  await settle();
  assert.equal(s.gate(), 'STOPPED');
  assert.deepEqual(s.lowered, []);
});
