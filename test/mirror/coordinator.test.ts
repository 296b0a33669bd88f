/**
 * The mirror coordinator: rows written under fencing, replayed, found by their owner.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import { emptyImage, type MetadataImage, metadataImage } from '../../src/metadata/image.ts';
import { MirrorShard } from '../../src/mirror/coordinator-shard.ts';
import type { RowAnswer } from '../../src/mirror/mirror-coordinator.ts';
import { type MirrorStateRow, rowKeyText } from '../../src/mirror/state-row.ts';
import { MirrorState } from '../../src/mirror/states.ts';
import { errors } from '../../src/protocol/errors.ts';
import { topicId } from '../coordinator/harness.ts';
import { fakeRuntime, ManualClock, settle } from '../replication/fakes.ts';
import { imageWith, row, TestCoordinator } from './harness.ts';

const KEY = { mirror: 'm', topicId: topicId(1), partition: 0 };

/** Writes as the runtime does: decide, then replay what was decided. */
function write(shard: MirrorShard, next: MirrorStateRow, key = KEY): number {
  const { records, response } = shard.decideWrite([{ key, row: next }]);
  for (const record of records) shard.replay(0, record.key, record.value);
  return response[0] ?? -1;
}

function rowOf(answer: RowAnswer): MirrorStateRow | undefined {
  assert.ok('row' in answer, `error ${answer.error}`);
  return answer.row;
}

test('S4 a stale state epoch is refused and changes nothing', () => {
  const shard = new MirrorShard();
  assert.equal(write(shard, row('PREPARING')), 0);
  const next = row('MIRRORING', { stateEpoch: 2 });
  assert.equal(write(shard, next), 0);
  const stale = row('STOPPING', { stateEpoch: 2 });
  assert.equal(write(shard, stale), errors.FENCED_STATE_EPOCH.code);
  const ahead = row('STOPPING', { stateEpoch: 9 });
  assert.equal(write(shard, ahead), errors.FENCED_STATE_EPOCH.code);
  assert.deepEqual(shard.row(KEY), next);
});

test('S4 a stale leader epoch is refused and changes nothing', () => {
  const shard = new MirrorShard();
  const claimed = row('PREPARING', { leaderEpoch: 5 });
  write(shard, claimed);
  const stale = row('MIRRORING', { leaderEpoch: 4, stateEpoch: 2 });
  assert.equal(write(shard, stale), errors.FENCED_LEADER_EPOCH.code);
  assert.deepEqual(shard.row(KEY), claimed);
});

test('S4 S7 a newer membership comes before the leader epoch', () => {
  const shard = new MirrorShard();
  write(shard, row('PREPARING', { leaderEpoch: 5, membershipOffset: 3 }));
  const stale = row('STOPPING', { leaderEpoch: 0, membershipOffset: 3, stateEpoch: 2 });
  assert.equal(write(shard, stale), errors.FENCED_LEADER_EPOCH.code);
  const newer = { ...stale, membershipOffset: 4 };
  assert.equal(write(shard, newer), 0);
  assert.deepEqual(shard.row(KEY), newer);
});

test('B2 only a row of a former life is discarded', () => {
  const shard = new MirrorShard();
  const discard = (membershipOffset: number): number => {
    const { records } = shard.decideDiscard(KEY, membershipOffset);
    for (const record of records) shard.replay(0, record.key, record.value);
    return records.length;
  };
  assert.equal(discard(9), 0);
  write(shard, row('PREPARING', { membershipOffset: 3 }));
  assert.equal(discard(3), 0);
  assert.equal(discard(4), 1);
  assert.equal(shard.row(KEY), undefined);
  write(shard, row('PREPARING', { membershipOffset: 3 }));
  write(shard, row('STOPPING', { membershipOffset: 3, stateEpoch: 2 }));
  write(shard, row('STOPPED', { membershipOffset: 3, stateEpoch: 3 }));
  assert.equal(discard(4), 0);
});

test('S4 an identical repeat of the last write is a success without a record', () => {
  const shard = new MirrorShard();
  write(shard, row('PREPARING'));
  const again = shard.decideWrite([{ key: KEY, row: row('PREPARING') }]);
  assert.deepEqual(again, { records: [], response: [0] });
});

test('S1 a move that the table does not have is refused', () => {
  const shard = new MirrorShard();
  assert.equal(write(shard, row('MIRRORING')), errors.INVALID_REQUEST.code);
  write(shard, row('PREPARING'));
  assert.equal(write(shard, row('STOPPED', { stateEpoch: 2 })), errors.INVALID_REQUEST.code);
});

test('S4 writes of one batch see each other', () => {
  const shard = new MirrorShard();
  const { records, response } = shard.decideWrite([
    { key: KEY, row: row('PREPARING') },
    { key: KEY, row: row('MIRRORING', { stateEpoch: 2 }) },
    { key: KEY, row: row('STOPPING', { stateEpoch: 2 }) },
  ]);
  assert.deepEqual(response, [0, 0, errors.FENCED_STATE_EPOCH.code]);
  assert.equal(records.length, 2);
});

test('C2 rows of one topic under two mirrors are two rows; a null value removes one', () => {
  const shard = new MirrorShard();
  const other = { ...KEY, mirror: 'n' };
  write(shard, row('PREPARING'));
  write(shard, row('PREPARING', { topicName: 'u' }), other);
  const found = shard.rowsOf(KEY.topicId, 0).map(({ key }) => key.mirror);
  assert.deepEqual(found.sort(), ['m', 'n']);
  const { records } = shard.decideWrite([{ key: other, row: null }]);
  for (const record of records) shard.replay(0, record.key, record.value);
  assert.deepEqual(shard.rows(), [{ key: KEY, row: row('PREPARING') }]);
});

test('C4 a new leader has the same rows after replaying the log', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const first = new TestCoordinator(runtime, imageWith(['m'], 5));
  first.lead();
  await settle();
  const keys = [0, 1, 2, 3, 4, 5].map((partition) => ({ ...KEY, partition }));
  const writes = keys.map((key) =>
    first.coordinator.write(key, row('PREPARING', { partition: key.partition })),
  );
  assert.deepEqual(await Promise.all(writes), [0, 0, 0, 0, 0, 0]);
  const second = new TestCoordinator(runtime, imageWith(['m'], 5));
  for (const [partition, records] of first.log.partitions) {
    second.log.partitions.set(partition, records);
  }
  second.lead(1);
  await settle();
  for (const key of keys) {
    const found = rowOf(await second.coordinator.read(key));
    assert.deepEqual(found, row('PREPARING', { partition: key.partition }));
  }
});

test('C4 while loading nothing is answered from memory', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const { coordinator } = new TestCoordinator(runtime, imageWith(['m']));
  assert.deepEqual(await coordinator.read(KEY), { error: errors.NOT_COORDINATOR.code });
  coordinator.onBecomeLeader(coordinator.ownerOf(rowKeyText(KEY)) ?? -1, 0);
  const loading = { error: errors.COORDINATOR_LOAD_IN_PROGRESS.code };
  assert.deepEqual(await coordinator.read(KEY), loading);
  await settle();
  assert.deepEqual(await coordinator.read(KEY), { error: 0, row: undefined });
});

test('C1 before the first CreateMirror there is no coordinator', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const { coordinator } = new TestCoordinator(runtime, emptyImage('here'));
  const unavailable = errors.COORDINATOR_NOT_AVAILABLE.code;
  assert.deepEqual(await coordinator.read(KEY), { error: unavailable });
  assert.equal(await coordinator.write(KEY, row('PREPARING')), unavailable);
});

test('S2 a write is answered when it is durable, not before', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const test = new TestCoordinator(runtime, imageWith(['m']));
  test.lead();
  await settle();
  test.log.hold();
  let answered = -1;
  void test.coordinator.write(KEY, row('PREPARING')).then((error) => {
    answered = error;
  });
  await settle();
  assert.equal(answered, -1);
  test.log.release();
  await settle();
  assert.equal(answered, 0);
});

test('D6 writes of one moment are one batch per shard', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const test = new TestCoordinator(runtime, imageWith(['m'], 1));
  test.lead();
  await settle();
  const appends: number[] = [];
  const append = test.log.append.bind(test.log);
  test.log.append = (topic, partition, epoch, records) => {
    appends.push(records.length);
    return append(topic, partition, epoch, records);
  };
  const writes = Array.from({ length: 250 }, (_, partition) =>
    test.coordinator.write({ ...KEY, partition }, row('PREPARING', { partition })),
  );
  await Promise.all(writes);
  assert.deepEqual(appends, [100, 100, 50]);
});

test('B2 rows of a partition are found under every mirror of the cluster', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const test = new TestCoordinator(runtime, imageWith(['a', 'b'], 7));
  test.lead();
  await settle();
  await test.coordinator.write({ ...KEY, mirror: 'a' }, row('PREPARING'));
  await test.coordinator.write({ ...KEY, mirror: 'b' }, row('PREPARING'));
  const answer = await test.coordinator.rowsOfPartition(KEY.topicId, 0);
  assert.ok('rows' in answer);
  assert.deepEqual(
    answer.rows.map(({ key, row: found }) => [key.mirror, found.state]),
    [
      ['a', MirrorState.PREPARING],
      ['b', MirrorState.PREPARING],
    ],
  );
  const none = await test.coordinator.rowsOfPartition(ZERO_UUID, 0);
  assert.deepEqual(none, { error: 0, rows: [] });
});

/** The image as of `offset`, holding the given topic ids. */
function imageOf(offset: number, ids: readonly Uuid[], partitions = 3): MetadataImage {
  const base = imageWith(['m'], partitions);
  const topicsById = new Map(ids.map((id) => [id, { id, name: id, partitions: new Map() }]));
  return metadataImage({ ...base, offset, topicsById });
}

test('B2 rows of a deleted topic are tombstoned by their owner, others are kept', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const other = { ...KEY, topicId: topicId(2) };
  const test = new TestCoordinator(runtime, imageOf(5, [KEY.topicId, other.topicId], 1));
  test.lead();
  await settle();
  for (let partition = 0; partition < 250; partition++) {
    await test.coordinator.write({ ...KEY, partition }, row('PREPARING', { partition }));
  }
  await test.coordinator.write(other, row('PREPARING'));
  const late = { ...KEY, topicId: topicId(3) };
  await test.coordinator.write(late, row('PREPARING', { membershipOffset: 8 }));
  test.image = imageOf(7, [other.topicId], 1);
  test.coordinator.sweep();
  await settle();
  assert.equal(rowOf(await test.coordinator.read(KEY)), undefined);
  assert.equal(rowOf(await test.coordinator.read({ ...KEY, partition: 249 })), undefined);
  assert.ok(rowOf(await test.coordinator.read(other)));
  // Its membership is newer than this image: the topic is made, we have not heard of it yet.
  assert.ok(rowOf(await test.coordinator.read(late)));
  const tombstones = test.log.records(0).filter(({ value }) => value === null);
  assert.equal(tombstones.length, 250);
});

test('B2 a deletion that was missed, or could not be written, is repaired later', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const first = new TestCoordinator(runtime, imageOf(5, [KEY.topicId], 1));
  first.lead();
  await settle();
  await first.coordinator.write(KEY, row('PREPARING'));
  first.image = imageOf(7, [], 1);
  first.log.failNextAppend = errors.NOT_ENOUGH_REPLICAS.code;
  first.coordinator.sweep();
  await settle();
  assert.ok(rowOf(await first.coordinator.read(KEY)));
  // The next leader heals it when it has loaded.
  const second = new TestCoordinator(runtime, first.image);
  second.log.partitions.set(0, first.log.records(0));
  second.lead(1);
  await settle();
  assert.equal(rowOf(await second.coordinator.read(KEY)), undefined);
});

test('S5 a row that cannot be encoded is refused to its writer alone', async () => {
  const runtime = fakeRuntime(new ManualClock());
  const { coordinator, ...test } = new TestCoordinator(runtime, imageWith(['m'], 1));
  coordinator.onBecomeLeader(0, 0);
  await settle();
  const bad = row('PREPARING', { lastMirroredOffset: Number.NaN });
  assert.equal(await coordinator.write(KEY, bad), errors.UNKNOWN_SERVER_ERROR.code);
  assert.equal(await coordinator.write(KEY, row('PREPARING')), 0);
  assert.equal(test.log.records(0).length, 1);
});
