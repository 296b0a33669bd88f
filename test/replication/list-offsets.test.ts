/** ListOffsets, OffsetForLeaderEpoch and DeleteRecords. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { errors } from '../../src/protocol/errors.ts';
import { OffsetSpec } from '../../src/replication/list-offsets.ts';
import { settle } from './fakes.ts';
import {
  batch,
  fetchParams,
  marker,
  OTHER_BROKER,
  replicaPartition,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
  transactional,
  watch,
} from './harness.ts';

/** Offsets 0..2 of epoch 1 at 1000.., 3..4 in an open transaction of epoch 2 at 1000... */
async function brokerWithOffsets(t: TestContext): Promise<TestBroker> {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, { leaderEpoch: 1 });
  broker.partition('a').append('client', batch(3), 1);
  broker.changePartition('a', 0, { leaderEpoch: 2 });
  broker.partition('a').append('client', transactional(7n, 2), 1);
  return broker;
}

function ask(broker: TestBroker, timestamp: bigint, readCommitted = false, replicaId = -1) {
  const query = { topic: 'a', topicId: ZERO_UUID, partition: 0, currentLeaderEpoch: -1, timestamp };
  const [answer] = broker.replicas.listOffsets({ replicaId, readCommitted }, [query]);
  assert.ok(answer);
  return answer;
}

test('latest: the high watermark, the LSO for READ_COMMITTED, the end for replicas', async (t) => {
  const broker = await brokerWithOffsets(t);
  const latest = { error: 0, timestamp: -1n, leaderEpoch: 2 };
  assert.deepEqual(ask(broker, OffsetSpec.LATEST), { ...latest, offset: 5 });
  assert.deepEqual(ask(broker, OffsetSpec.LATEST, true), { ...latest, offset: 3 });
  assert.deepEqual(ask(broker, OffsetSpec.LATEST, true, OTHER_BROKER), { ...latest, offset: 5 });
  broker.partition('a').append('marker', marker(7n, true), 1);
  assert.deepEqual(ask(broker, OffsetSpec.LATEST, true), { ...latest, offset: 6 });
});

test('earliest and earliest local are the log start, with its epoch', async (t) => {
  const broker = await brokerWithOffsets(t);
  const first = { error: 0, offset: 0, timestamp: -1n, leaderEpoch: 1 };
  assert.deepEqual(ask(broker, OffsetSpec.EARLIEST), first);
  assert.deepEqual(ask(broker, OffsetSpec.EARLIEST_LOCAL), first);
  await broker.replicas.deleteRecords(0, [{ topic: 'a', partition: 0, offset: 4 }]);
  assert.deepEqual(ask(broker, OffsetSpec.EARLIEST), { ...first, offset: 4, leaderEpoch: 2 });
});

test('by timestamp: the first record at or after it, below what the reader may see', async (t) => {
  const broker = await brokerWithOffsets(t);
  const hit = { error: 0, offset: 1, timestamp: 1001n, leaderEpoch: 1 };
  assert.deepEqual(ask(broker, 1001n), hit);
  assert.deepEqual(ask(broker, 0n), { ...hit, offset: 0, timestamp: 1000n });
  const nothing = { error: 0, offset: -1, timestamp: -1n, leaderEpoch: -1 };
  assert.deepEqual(ask(broker, 1003n), nothing);
  assert.deepEqual(ask(broker, OffsetSpec.LATEST_TIERED), nothing);
  assert.deepEqual(ask(broker, OffsetSpec.MAX_TIMESTAMP), { ...hit, offset: 2, timestamp: 1002n });
  assert.deepEqual(ask(broker, OffsetSpec.EARLIEST_PENDING_UPLOAD), nothing);
  assert.equal(ask(broker, -7n).error, errors.INVALID_REQUEST.code);
});

test('epochs are checked, and their ends told', async (t) => {
  const broker = await brokerWithOffsets(t);
  const query = (leaderEpoch: number, currentLeaderEpoch = -1, topic = 'a') => {
    const key = { topic, topicId: ZERO_UUID, partition: 0 };
    return broker.replicas.offsetsForLeaderEpoch([{ ...key, leaderEpoch, currentLeaderEpoch }])[0];
  };
  assert.deepEqual(query(1), { error: 0, leaderEpoch: 1, endOffset: 3 });
  assert.deepEqual(query(2), { error: 0, leaderEpoch: 2, endOffset: 5 });
  const none = { leaderEpoch: -1, endOffset: -1 };
  assert.deepEqual(query(1, 1), { error: errors.FENCED_LEADER_EPOCH.code, ...none });
  assert.deepEqual(query(1, 3), { error: errors.UNKNOWN_LEADER_EPOCH.code, ...none });
  const unknown = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  assert.deepEqual(query(1, -1, 'nosuch'), { error: unknown, ...none });
});

test('a leader that is not at its epoch start yet answers OFFSET_NOT_AVAILABLE', async (t) => {
  const broker = await startTestBroker(t);
  const replicas = [THIS_BROKER, OTHER_BROKER];
  broker.createTopic('a', 1, { replicas, isr: replicas });
  broker.partition('a').append('client', batch(2), 1);
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  assert.equal(ask(broker, OffsetSpec.LATEST).error, errors.OFFSET_NOT_AVAILABLE.code);
  assert.equal(ask(broker, OffsetSpec.LATEST, false, OTHER_BROKER).offset, 2);
});

test('DeleteRecords: bounds, -1 for the high watermark, policy of compacted topics', async (t) => {
  const broker = await brokerWithOffsets(t);
  broker.configs.set('compacted', { cleanupPolicy: 'compact' });
  broker.createTopic('compacted');
  const remove = async (topic: string, offset: number) => {
    const [result] = await broker.replicas.deleteRecords(0, [{ topic, partition: 0, offset }]);
    return [result?.error, result?.lowWatermark];
  };
  assert.deepEqual(await remove('a', 2), [0, 2]);
  assert.deepEqual(await remove('a', 1), [0, 2], 'never goes back');
  assert.deepEqual(await remove('a', 6), [errors.OFFSET_OUT_OF_RANGE.code, -1]);
  assert.deepEqual(await remove('a', -1), [0, 5]);
  assert.deepEqual(await remove('compacted', 0), [errors.POLICY_VIOLATION.code, -1]);
  assert.deepEqual(await remove('nosuch', 0), [errors.UNKNOWN_TOPIC_OR_PARTITION.code, -1]);
});

test('DeleteRecords waits for the log start of live followers', async (t) => {
  const broker = await startTestBroker(t);
  const replicas = [THIS_BROKER, OTHER_BROKER];
  broker.createTopic('a', 1, { replicas, isr: replicas });
  broker.partition('a').append('client', batch(4), 1);
  const fetchAsFollower = (logStartOffset: number) =>
    broker.replicas.fetch(fetchParams({ replicaId: OTHER_BROKER, maxWaitMs: 0 }), [
      replicaPartition('a', 0, 4, { logStartOffset }),
    ]);
  await fetchAsFollower(0);
  const entry = { topic: 'a', partition: 0, offset: 3 };
  const waiting = watch(broker.replicas.deleteRecords(1000, [entry]));
  await settle();
  assert.equal(waiting.done, false);
  await fetchAsFollower(3);
  await settle();
  assert.deepEqual(
    waiting.value?.map((each) => [each.error, each.lowWatermark]),
    [[0, 3]],
  );
});
