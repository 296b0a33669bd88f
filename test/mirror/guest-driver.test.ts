/** A partition driver in a cluster that is not ours: own topic ids, tagged producers, handover. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import type { MirrorRole } from '../../src/mirror/driver-context.ts';
import { guestMapping } from '../../src/mirror/producer-id-mapping.ts';
import { stateName } from '../../src/mirror/states.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { settle } from '../replication/fakes.ts';
import { batch, mirrored, OTHER_BROKER, THIS_BROKER } from '../replication/harness.ts';
import { MEMBER, REMOVED, stage } from './driver-stage.ts';

/** A broker in a cluster that is not ours, with the answers a test gives. */
function guestRole(fields: Partial<MirrorRole> = {}): MirrorRole {
  return {
    producerIds: () => guestMapping(5),
    topicIdentity: 'own',
    sourceTopicIdOf: () => undefined,
    handover: true,
    ...fields,
  };
}

test('G24 in a guest a removal settles: offset durable, partition still shut', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  const driver = s.drive(MEMBER);
  await settle();
  s.deliver(mirrored(0, 3, 2));
  await settle();
  s.deliver(mirrored(0, 3, 2));
  driver.membershipIs(REMOVED);
  await settle();
  const found = await s.row();
  assert.equal(stateName(found?.state ?? -1), 'STOPPING');
  assert.deepEqual([found?.settled, found?.lastMirroredOffset], [true, 3]);
  assert.equal(s.gate(), 'STOPPING');
  driver.membershipIs(REMOVED);
  await settle();
  assert.deepEqual(await s.row(), found);
  assert.deepEqual(s.illegal, []);
});

test('G24 a settled stop is claimed, and nothing of the log is cut again', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  s.partition.appendMirrored([mirrored(0, 3)], 0);
  const open = { producerId: 7n, producerEpoch: 0, baseSequence: 0, isTransactional: true };
  s.partition.appendMirrored([batch(1, { baseOffset: 3, partitionLeaderEpoch: 0, ...open })], 0);
  await s.recorded('STOPPING', { reachedMirroring: true, settled: true, lastMirroredOffset: 4 });
  const before = await s.row();
  s.drive(REMOVED);
  await settle();
  assert.equal(s.partition.log.logEndOffset, 4);
  assert.deepEqual(s.elected, []);
  const found = await s.row();
  assert.deepEqual(found, {
    ...before,
    membershipOffset: 20,
    stateEpoch: (before?.stateEpoch ?? 0) + 1,
  });
});

test('G24 D2 in a guest a stop before MIRRORING settles without an offset', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  s.drive(REMOVED);
  await settle();
  const found = await s.row();
  assert.deepEqual([found?.settled, found?.lastMirroredOffset], [true, -1]);
  assert.equal(s.gate(), 'STOPPING');
});

test('G12 a guest mirrors a topic whose id differs, and fetches it by the source id', async (t) => {
  const s = await stage(t);
  s.source.topicId = 'c291cmNlLXRvcGljLWlkLQ' as Uuid;
  s.role = guestRole({ sourceTopicIdOf: () => s.source.topicId });
  s.drive(MEMBER);
  await settle();
  assert.equal(s.gate(), 'MIRRORING');
  assert.equal((await s.row())?.sourceTopicId, s.source.topicId);
  assert.equal(s.fetch().sourceTopicId, s.source.topicId);
});

test('G12 a topic that was made again at the source since it was added is refused', async (t) => {
  const s = await stage(t);
  s.source.topicId = 'c291cmNlLXRvcGljLWlkLQ' as Uuid;
  s.role = guestRole({ sourceTopicIdOf: () => 'YW5vdGhlci10b3BpYy1pZA' as Uuid });
  const driver = s.drive(MEMBER);
  await settle();
  assert.deepEqual([s.gate(), driver.status().cause], ['FAILED', 'INCONSISTENT_TOPIC_ID']);
});

test('G20 a guest appends under the ids of its tag', async (t) => {
  const s = await stage(t);
  s.role = guestRole();
  s.drive(MEMBER);
  await settle();
  const producer = { producerId: 7n, producerEpoch: 0, baseSequence: 0 };
  const records = batch(2, { baseOffset: 0, partitionLeaderEpoch: 2, ...producer });
  s.deliver(records);
  await settle();
  s.deliver(records);
  const read = s.partition.log.read(0, 1_000_000, 'logEnd', true);
  assert.ok(read.error === 0);
  const [bytes] = read.records;
  assert.ok(bytes);
  assert.equal(new RecordBatch(bytes).producerId, 7n + 5n * (1n << 40n));
});

test('G22 a topic that comes back is cut to what the rows of the other side say', async (t) => {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  s.partition.appendMirrored([mirrored(4, 4)], 0);
  s.role = guestRole({ peerLastMirroredOffset: async () => 4 });
  s.source.fetched = { errorCode: 0, records: mirrored(0, 4) };
  s.drive(MEMBER);
  await settle();
  assert.equal(s.partition.log.logEndOffset, 4);
  assert.deepEqual(s.elected, [0]);
});

/** A topic with one batch that both sides have and one that they do not, taken into the mirror. */
async function takenStage(t: TestContext, takenFrom: number) {
  const s = await stage(t);
  s.partition.appendMirrored([mirrored(0, 4)], 0);
  s.partition.appendMirrored([mirrored(4, 4)], 0);
  s.source.fetched = { errorCode: 0, records: mirrored(takenFrom - 4, 4) };
  const unreachable = () => Promise.reject(new Error('the recorded offset is enough'));
  s.role = guestRole({ takenFrom: () => takenFrom, peerLastMirroredOffset: unreachable });
  return s;
}

test('G29 a native topic is cut to the offset recorded when it was taken', async (t) => {
  const s = await takenStage(t, 4);
  s.drive(MEMBER);
  await settle();
  assert.equal(s.partition.log.logEndOffset, 4);
  assert.deepEqual(s.elected, [0]);
});

test('G29 T3 an offset of zero that was recorded is no lack of memory', async (t) => {
  const s = await takenStage(t, 0);
  const driver = s.drive(MEMBER);
  await settle();
  assert.deepEqual([s.partition.log.logEndOffset, driver.status().cause], [0, '']);
});

test('G29 nothing is cut while somebody is in sync who may not lead', async (t) => {
  const s = await takenStage(t, 4);
  const replicas = [THIS_BROKER, OTHER_BROKER];
  s.broker.changePartition('t', 0, { replicas, isr: replicas });
  s.drive(MEMBER);
  await settle();
  assert.equal(s.partition.log.logEndOffset, 8);
  assert.equal(s.gate(), 'PREPARING');
  s.broker.changePartition('t', 0, { replicas, isr: [THIS_BROKER] });
  await settle();
  assert.equal(s.partition.log.logEndOffset, 4);
  assert.deepEqual(s.elected, [0]);
});

test('F10 G29 the source has what was ours under epochs of its own', async (t) => {
  const epoch = { epoch: 3, startOffset: 0 };
  for (const [takenFrom, expected] of [
    [8, []],
    [4, [epoch]],
  ] as const) {
    const s = await takenStage(t, takenFrom);
    await s.recorded('STOPPED', {
      membershipOffset: 5,
      reachedMirroring: true,
      lastMirroredOffset: 4,
      sourceEpochs: [epoch],
    });
    s.drive(MEMBER);
    await settle();
    assert.deepEqual((await s.row())?.sourceEpochs, expected, `taken from ${takenFrom}`);
  }
});
