/** Reading: bounds, long polls, limits, errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import { settle } from './fakes.ts';
import {
  baseOffsets,
  batch,
  fetchParams,
  fetchPartition,
  marker,
  OTHER_BROKER,
  startTestBroker,
  THIS_BROKER,
  transactional,
  watch,
} from './harness.ts';

test('readers are bounded by the high watermark, committed ones by the LSO', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  const partition = broker.partition('a');
  partition.append('client', batch(2), 1);
  partition.append('client', transactional(7n, 2), 1);
  partition.append('client', batch(1), 1);
  const [uncommitted] = await broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]);
  assert.ok(uncommitted);
  assert.deepEqual(baseOffsets(uncommitted), [0, 2, 4]);
  assert.deepEqual([uncommitted.highWatermark, uncommitted.lastStableOffset], [5, 2]);
  assert.equal(uncommitted.abortedTransactions, undefined);
  const committed = fetchParams({ readCommitted: true });
  const [stable] = await broker.replicas.fetch(committed, [fetchPartition('a', 0, 0)]);
  assert.ok(stable);
  assert.deepEqual(baseOffsets(stable), [0]);
  assert.deepEqual(stable.abortedTransactions, []);
  partition.append('marker', marker(7n, false), 1);
  const [aborted] = await broker.replicas.fetch(committed, [fetchPartition('a', 0, 0)]);
  assert.ok(aborted);
  assert.deepEqual(baseOffsets(aborted), [0, 2, 4, 5]);
  assert.deepEqual(
    aborted.abortedTransactions?.map(({ producerId, firstOffset }) => [producerId, firstOffset]),
    [[7n, 2]],
  );
});

test('records above the high watermark are not handed out', async (t) => {
  const broker = await startTestBroker(t);
  const replicas = [THIS_BROKER, OTHER_BROKER];
  broker.createTopic('a', 1, { replicas, isr: replicas });
  broker.partition('a').append('client', batch(2), 1);
  const params = fetchParams({ maxWaitMs: 0 });
  const [result] = await broker.replicas.fetch(params, [fetchPartition('a', 0, 0)]);
  assert.deepEqual([result?.error, result?.bytes, result?.highWatermark], [0, 0, 0]);
});

test('a long poll wakes at an append to its partition, not at others', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 2);
  broker.createTopic('b');
  const poll = watch(broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]));
  await settle();
  broker.partition('a', 1).append('client', batch(), 1);
  broker.partition('b').append('client', batch(), 1);
  await settle();
  assert.equal(poll.done, false);
  broker.partition('a', 0).append('client', batch(2), 1);
  await settle();
  assert.deepEqual(poll.value?.map(baseOffsets), [[0]]);
  assert.equal(broker.partition('a', 0).watchers.size, 0);
  assert.equal(broker.clock.pendingTimers, 1, 'only the ISR check is left');
});

test('a long poll ends empty when its time is over', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  const poll = watch(broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]));
  await broker.clock.advance(499);
  assert.equal(poll.done, false);
  await broker.clock.advance(1);
  assert.deepEqual(
    poll.value?.map((each) => [each.error, each.bytes]),
    [[0, 0]],
  );
});

test('a READ_COMMITTED poll sleeps through open data and wakes at the commit marker', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  const partition = broker.partition('a');
  const params = fetchParams({ readCommitted: true });
  const poll = watch(broker.replicas.fetch(params, [fetchPartition('a', 0, 0)]));
  partition.append('client', transactional(7n, 2), 1);
  partition.append('client', batch(), 1);
  await settle();
  assert.equal(poll.done, false);
  partition.append('marker', marker(7n, true), 1);
  await settle();
  assert.deepEqual(poll.value?.map(baseOffsets), [[0, 2, 3]]);
});

test('minBytes is counted over all partitions of a fetch', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 3);
  const size = batch().length;
  const params = fetchParams({ minBytes: 3 * size });
  const asked = [0, 1, 2].map((partition) => fetchPartition('a', partition, 0));
  broker.partition('a', 0).append('client', batch(), 1);
  const poll = watch(broker.replicas.fetch(params, asked));
  await settle();
  assert.equal(poll.done, false);
  broker.partition('a', 1).append('client', batch(), 1);
  await settle();
  assert.equal(poll.done, false);
  broker.partition('a', 2).append('client', batch(), 1);
  await settle();
  assert.deepEqual(poll.value?.map(baseOffsets), [[0], [0], [0]]);
});

test('bytes below minBytes are handed out when the time is over', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  const params = fetchParams({ minBytes: 1_000_000 });
  const poll = watch(broker.replicas.fetch(params, [fetchPartition('a', 0, 0)]));
  broker.partition('a').append('client', batch(), 1);
  await settle();
  assert.equal(poll.done, false);
  await broker.clock.advance(500);
  assert.deepEqual(poll.value?.map(baseOffsets), [[0]]);
});

test('maxBytes bounds the response, but the first data is at least one batch', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 3);
  for (const partition of [1, 2]) {
    broker.partition('a', partition).append('client', batch(), 1);
    broker.partition('a', partition).append('client', batch(), 1);
  }
  const asked = [0, 1, 2].map((partition) => fetchPartition('a', partition, 0));
  const tiny = await broker.replicas.fetch(fetchParams({ maxBytes: 1 }), asked);
  assert.deepEqual(tiny.map(baseOffsets), [[], [0], []]);
  const three = fetchParams({ maxBytes: 3 * batch().length });
  const some = await broker.replicas.fetch(three, asked);
  assert.deepEqual(some.map(baseOffsets), [[], [0, 1], [0]]);
  const small = asked.map((each) => ({ ...each, maxBytes: batch().length }));
  const bounded = await broker.replicas.fetch(fetchParams(), small);
  assert.deepEqual(bounded.map(baseOffsets), [[], [0], [0]]);
});

test('an error in one partition answers at once, with what the others have', async (t) => {
  const broker = await startTestBroker(t);
  const topicId = broker.createTopic('a');
  const other = {
    ...fetchPartition('', 0, 0),
    topicId: `${topicId.slice(0, -2)}AA` as typeof topicId,
  };
  const results = await broker.replicas.fetch(fetchParams(), [
    fetchPartition('a', 0, 0),
    fetchPartition('a', 9, 0),
    fetchPartition('nosuch', 0, 0),
    other,
    fetchPartition('a', 0, 0, { topicId, topic: '' }),
  ]);
  assert.deepEqual(
    results.map((each) => each.error),
    [
      0,
      errors.UNKNOWN_TOPIC_OR_PARTITION.code,
      errors.UNKNOWN_TOPIC_OR_PARTITION.code,
      errors.UNKNOWN_TOPIC_ID.code,
      0,
    ],
  );
});

test('offsets and epochs outside the log are errors; KIP-951 names the leader', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, { leaderEpoch: 5 });
  broker.createTopic('led-elsewhere', 1, {
    leader: OTHER_BROKER,
    leaderEpoch: 4,
    replicas: [OTHER_BROKER, THIS_BROKER],
  });
  broker.partition('a').append('client', batch(3), 1);
  await broker.replicas.deleteRecords(0, [{ topic: 'a', partition: 0, offset: 3 }]);
  const ask = async (topic: string, fetchOffset: number, currentLeaderEpoch = -1) => {
    const request = fetchPartition(topic, 0, fetchOffset, { currentLeaderEpoch });
    const [result] = await broker.replicas.fetch(fetchParams({ maxWaitMs: 0 }), [request]);
    assert.ok(result);
    return result;
  };
  assert.equal((await ask('a', 4)).error, errors.OFFSET_OUT_OF_RANGE.code);
  assert.equal((await ask('a', 2)).error, errors.OFFSET_OUT_OF_RANGE.code);
  assert.equal((await ask('a', 3)).error, 0);
  assert.equal((await ask('a', 3)).logStartOffset, 3);
  const fenced = await ask('a', 3, 4);
  assert.equal(fenced.error, errors.FENCED_LEADER_EPOCH.code);
  assert.deepEqual(fenced.currentLeader, { leaderId: THIS_BROKER, leaderEpoch: 5 });
  assert.equal((await ask('a', 3, 6)).error, errors.UNKNOWN_LEADER_EPOCH.code);
  const moved = await ask('led-elsewhere', 0);
  assert.equal(moved.error, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.deepEqual(moved.currentLeader, { leaderId: OTHER_BROKER, leaderEpoch: 4 });
});

test('a long poll ends when the partition moves away or is deleted', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  broker.createTopic('b');
  const first = watch(broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]));
  const second = watch(broker.replicas.fetch(fetchParams(), [fetchPartition('b', 0, 0)]));
  broker.changePartition('a', 0, { leaderEpoch: 1, leader: OTHER_BROKER });
  broker.deleteTopic('b');
  await settle();
  assert.equal(first.value?.[0]?.error, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(second.value?.[0]?.error, errors.UNKNOWN_TOPIC_OR_PARTITION.code);
});

test('F8 a long poll ends when the log start passes its offset', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  broker.gate.set('a', { topic: 'a', mirror: 'm', state: 'MIRRORING' });
  const poll = watch(broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]));
  broker.partition('a').followLogStart(50, 0);
  await settle();
  assert.equal(poll.value?.[0]?.error, errors.OFFSET_OUT_OF_RANGE.code);
});
