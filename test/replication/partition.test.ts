/** The gate of a partition's log, its high watermark and its ISR. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import { REFUSED_BACKOFF } from '../../src/replication/in-sync-replicas.ts';
import { ALTER_PARTITION_BACKOFF } from '../../src/replication/isr-updates.ts';
import { settle } from './fakes.ts';
import {
  batch,
  fetchParams,
  fetchPartition,
  marker,
  mirrored,
  OTHER_BROKER,
  replicaPartition,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
  transactional,
  watch,
} from './harness.ts';

const TWO_REPLICAS = { replicas: [THIS_BROKER, OTHER_BROKER], isr: [THIS_BROKER, OTHER_BROKER] };

function mirrorTopic(broker: TestBroker, topic: string, state = 'MIRRORING'): void {
  broker.gate.set(topic, { topic, mirror: 'm', state });
}

/** One fetch of the other broker's follower, answered at once. */
async function followerFetch(broker: TestBroker, topic: string, fetchOffset: number) {
  const params = fetchParams({
    replicaId: OTHER_BROKER,
    replicaEpoch: 100 + OTHER_BROKER,
    maxWaitMs: 0,
  });
  const { leaderEpoch } = broker.partition(topic);
  const known = { currentLeaderEpoch: leaderEpoch };
  const request = replicaPartition(topic, 0, fetchOffset, known);
  const [result] = await broker.replicas.fetch(params, [request]);
  assert.ok(result);
  return result;
}

test('R1 R3 a mirrored topic refuses client writes, whatever its state', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  for (const state of ['PREPARING', 'MIRRORING', 'PAUSED', 'STOPPING', 'FAILED']) {
    mirrorTopic(broker, 'a', state);
    const result = broker.partition('a').append('client', batch(), 1);
    assert.equal(result.error, errors.POLICY_VIOLATION.code);
    assert.ok('message' in result);
    assert.ok(result.message.startsWith('ReadOnlyTopicException: '));
    for (const word of ['topic a', 'mirror m', `state ${state}`]) {
      assert.ok(result.message.includes(word), word);
    }
    const coordinator = broker.partition('a').append('coordinator', batch(), -1);
    assert.equal(coordinator.error, errors.POLICY_VIOLATION.code);
  }
  assert.equal(broker.partition('a').log.logEndOffset, 0);
});

test('R1 R3 while its state is not known yet, a topic asks its writers to try again', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  mirrorTopic(broker, 'a', 'UNKNOWN');
  const again = errors.LEADER_NOT_AVAILABLE.code;
  assert.equal(broker.partition('a').append('client', batch(), 1).error, again);
  assert.equal(broker.partition('a').deleteRecords(0).error, again);
  assert.equal(broker.partition('a').log.logEndOffset, 0);
});

test('R1 once the gate opens, the same topic takes writes', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  mirrorTopic(broker, 'a');
  assert.notEqual(broker.partition('a').append('client', batch(), 1).error, 0);
  broker.gate.delete('a');
  const result = broker.partition('a').append('client', batch(3), 1);
  assert.equal(result.error, 0);
  assert.equal(broker.partition('a').log.logEndOffset, 3);
});

test('R2 DeleteRecords is refused on a mirrored topic', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  broker.partition('a').append('client', batch(5), 1);
  mirrorTopic(broker, 'a');
  const [refused] = await broker.replicas.deleteRecords(0, [
    { topic: 'a', partition: 0, offset: 3 },
  ]);
  assert.equal(refused?.error, errors.POLICY_VIOLATION.code);
  assert.ok(refused?.message?.startsWith('ReadOnlyTopicException: '));
  assert.equal(broker.partition('a').log.logStartOffset, 0);
});

test('R2 a marker is written only when its producer has an open transaction here', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  broker.partition('a').append('client', transactional(7n, 2), 1);
  mirrorTopic(broker, 'a');
  const stranger = broker.partition('a').append('marker', marker(8n, true), -1);
  assert.equal(stranger.error, 0);
  assert.equal(broker.partition('a').log.logEndOffset, 2);
  const own = broker.partition('a').append('marker', marker(7n, false), -1);
  assert.equal(own.error, 0);
  assert.equal(broker.partition('a').log.logEndOffset, 3);
  assert.equal(broker.partition('a').log.lastStableOffset, 3);
});

test('F5 F7 a mirrored append keeps offsets and gaps, and commits by the local ISR', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  mirrorTopic(broker, 'a');
  const partition = broker.partition('a');
  assert.equal(partition.appendMirrored([mirrored(0, 3)], 0).error, 0);
  assert.equal(partition.appendMirrored([mirrored(10, 2)], 0).error, 0);
  assert.deepEqual([partition.log.logEndOffset, partition.log.highWatermark], [12, 12]);
});

test('a mirrored append is refused when stale, not mirrored, or not leading', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  const partition = broker.partition('a');
  assert.equal(
    partition.appendMirrored([mirrored(0, 1)], 0).error,
    errors.INVALID_REQUEST.code,
    'not mirrored',
  );
  mirrorTopic(broker, 'a');
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  const stale = partition.appendMirrored([mirrored(0, 1)], 0);
  assert.equal(stale.error, errors.FENCED_LEADER_EPOCH.code);
  broker.changePartition('a', 0, { leaderEpoch: 2, leader: OTHER_BROKER });
  const follower = partition.appendMirrored([mirrored(0, 1)], 2);
  assert.equal(follower.error, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(partition.log.logEndOffset, 0);
});

test('F8 a log start up to the high watermark is followed at once', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  mirrorTopic(broker, 'a');
  const partition = broker.partition('a');
  partition.appendMirrored([mirrored(0, 5)], 0);
  assert.equal(partition.followLogStart(3, 0), 0);
  assert.equal(partition.log.logStartOffset, 3);
  assert.equal(partition.followLogStart(2, 0), 0, 'never goes back');
  assert.equal(partition.log.logStartOffset, 3);
});

test('F8 a log start between high watermark and log end waits for the former', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, TWO_REPLICAS);
  mirrorTopic(broker, 'a');
  const partition = broker.partition('a');
  partition.appendMirrored([mirrored(0, 3)], 0);
  partition.appendMirrored([mirrored(3, 2)], 0);
  assert.equal(partition.log.highWatermark, 0);
  assert.equal(partition.followLogStart(4, 0), 0);
  await followerFetch(broker, 'a', 3);
  assert.deepEqual([partition.log.highWatermark, partition.log.logStartOffset], [3, 0]);
  await followerFetch(broker, 'a', 5);
  assert.deepEqual([partition.log.highWatermark, partition.log.logStartOffset], [5, 4]);
});

test('F8 a log start beyond the log end restarts the log there', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  mirrorTopic(broker, 'a');
  const partition = broker.partition('a');
  partition.appendMirrored([mirrored(0, 5)], 0);
  assert.equal(partition.followLogStart(100, 0), 0);
  const { logStartOffset, logEndOffset, highWatermark } = partition.log;
  assert.deepEqual([logStartOffset, logEndOffset, highWatermark], [100, 100, 100]);
  assert.equal(partition.appendMirrored([mirrored(100, 1)], 0).error, 0);
  assert.equal(partition.log.logEndOffset, 101);
});

test('T5 a cut takes the high watermark along; a new epoch begins at the cut', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  mirrorTopic(broker, 'a');
  const partition = broker.partition('a');
  partition.appendMirrored([mirrored(0, 2)], 0);
  partition.appendMirrored([mirrored(2, 3)], 0);
  assert.deepEqual(partition.truncateForMirror(4, 0), { error: 0, logEndOffset: 2 });
  assert.equal(partition.log.highWatermark, 2);
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  assert.equal(partition.leaderEpochStartOffset, 2);
  const end = partition.log.epochEndOffset(0);
  assert.deepEqual({ ...end }, { leaderEpoch: 0, endOffset: 2 });
  assert.deepEqual(broker.leadership, ['lead 0 a-0', 'lead 1 a-0']);
  assert.deepEqual(partition.truncateForMirror(0, 0), { error: errors.FENCED_LEADER_EPOCH.code });
});

test('T6 the ISR has reached the log end once each member reported in the new epoch', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, TWO_REPLICAS);
  mirrorTopic(broker, 'a');
  const partition = broker.partition('a');
  partition.appendMirrored([mirrored(0, 3)], 0);
  await followerFetch(broker, 'a', 3);
  assert.equal(partition.isrReachedLogEnd(), true);
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  assert.equal(partition.isrReachedLogEnd(), false);
  await followerFetch(broker, 'a', 2);
  assert.equal(partition.isrReachedLogEnd(), true);
});

test('the high watermark is the least log end of the ISR; acks=all waits for it', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, TWO_REPLICAS);
  const id = broker.image.topicsByName.get('a')!.id;
  const entry = { topic: 'a', topicId: id, partition: 0 };
  const params = { timeoutMs: 1000, source: 'client' } as const;
  const one = watch(
    broker.replicas.produce({ ...params, acks: 1 }, [{ ...entry, records: batch(2) }]),
  );
  const all = watch(
    broker.replicas.produce({ ...params, acks: -1 }, [{ ...entry, records: batch(2) }]),
  );
  await settle();
  assert.deepEqual(
    one.value?.map((each) => [each.error, each.baseOffset]),
    [[0, 0]],
  );
  assert.equal(all.done, false);
  await followerFetch(broker, 'a', 3);
  assert.equal(broker.partition('a').log.highWatermark, 3);
  assert.equal(all.done, false);
  await followerFetch(broker, 'a', 4);
  await settle();
  assert.deepEqual(
    all.value?.map((each) => [each.error, each.baseOffset]),
    [[0, 2]],
  );
});

test('acks=all ends with REQUEST_TIMED_OUT, or NOT_LEADER_OR_FOLLOWER at a demotion', async (t) => {
  const broker = await startTestBroker(t);
  const topicId = broker.createTopic('a', 1, TWO_REPLICAS);
  const params = { acks: -1, timeoutMs: 1000, source: 'client' } as const;
  const entry = () => [{ topic: 'a', topicId, partition: 0, records: batch() }];
  const first = watch(broker.replicas.produce(params, entry()));
  await broker.clock.advance(1000);
  assert.equal(first.value?.[0]?.error, errors.REQUEST_TIMED_OUT.code);
  const second = watch(broker.replicas.produce(params, entry()));
  broker.changePartition('a', 0, { leaderEpoch: 1, leader: OTHER_BROKER });
  await settle();
  assert.equal(second.value?.[0]?.error, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(broker.partition('a').watchers.size, 0);
});

test('below min.insync.replicas acks=all is refused and the high watermark stands', async (t) => {
  const broker = await startTestBroker(t);
  broker.configs.set('a', { minInsyncReplicas: 2 });
  broker.createTopic('a', 1, { ...TWO_REPLICAS, isr: [THIS_BROKER] });
  const partition = broker.partition('a');
  const refused = partition.append('client', batch(), -1);
  assert.equal(refused.error, errors.NOT_ENOUGH_REPLICAS.code);
  assert.equal(partition.append('client', batch(), 1).error, 0);
  assert.equal(partition.log.highWatermark, 0);
});

test('a follower that caught up joins the ISR through the controller', async (t) => {
  const broker = await startTestBroker(t);
  const topicId = broker.createTopic('a', 1, { ...TWO_REPLICAS, isr: [THIS_BROKER] });
  const partition = broker.partition('a');
  partition.append('client', batch(2), 1);
  await followerFetch(broker, 'a', 1);
  await settle();
  assert.equal(broker.alterations.length, 0);
  await followerFetch(broker, 'a', 2);
  await followerFetch(broker, 'a', 2);
  await settle();
  assert.equal(broker.alterations.length, 1, 'one in flight');
  assert.deepEqual(broker.alterations[0]?.topics, [
    {
      topicId,
      partitions: [
        {
          partitionIndex: 0,
          leaderEpoch: 0,
          newIsr: [],
          newIsrWithEpochs: [
            { brokerId: 1, brokerEpoch: 101 },
            { brokerId: 2, brokerEpoch: 102 },
          ],
          leaderRecoveryState: 0,
          partitionEpoch: 0,
        },
      ],
    },
  ]);
  assert.deepEqual(partition.isr, [1, 2]);
  assert.equal(partition.partitionEpoch, 1);
});

test('G17 a refused ISR change is asked for again after a pause, not at each fetch', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, { ...TWO_REPLICAS, isr: [THIS_BROKER] });
  broker.alterationError = errors.INELIGIBLE_REPLICA.code;
  for (let i = 0; i < 5; i++) {
    await followerFetch(broker, 'a', 0);
    await settle();
  }
  assert.equal(broker.alterations.length, 1);
  assert.deepEqual(broker.partition('a').isr, [1]);
  broker.alterationError = 0;
  await broker.clock.advance(2 * REFUSED_BACKOFF.initialMs);
  await followerFetch(broker, 'a', 0);
  await settle();
  assert.equal(broker.alterations.length, 2);
  assert.deepEqual(broker.partition('a').isr, [1, 2]);
});

test('newer metadata overtakes an ISR change that is on its way', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, { ...TWO_REPLICAS, isr: [THIS_BROKER] });
  await followerFetch(broker, 'a', 0);
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  await settle();
  assert.equal(broker.alterations[0]?.topics[0]?.partitions[0]?.leaderEpoch, 0);
  assert.deepEqual([broker.partition('a').isr, broker.partition('a').partitionEpoch], [[1], 1]);
});

test('an ISR change is sent again when the controller is lost', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, { ...TWO_REPLICAS, isr: [THIS_BROKER] });
  broker.controllerLost = true;
  await followerFetch(broker, 'a', 0);
  await settle();
  assert.deepEqual(broker.partition('a').isr, [1]);
  broker.controllerLost = false;
  await broker.clock.advance(2 * ALTER_PARTITION_BACKOFF.initialMs);
  assert.equal(broker.alterations.length, 2);
  assert.deepEqual(broker.partition('a').isr, [1, 2]);
});

test('an ISR member that lags too long is taken out, and acks=all goes on', async (t) => {
  const broker = await startTestBroker(t);
  const topicId = broker.createTopic('a', 1, TWO_REPLICAS);
  const waiting = watch(
    broker.replicas.produce({ acks: -1, timeoutMs: 90_000, source: 'client' }, [
      { topic: 'a', topicId, partition: 0, records: batch() },
    ]),
  );
  await broker.clock.advance(29_000);
  assert.equal(broker.alterations.length, 0);
  await broker.clock.advance(17_000);
  assert.deepEqual(broker.alterations[0]?.topics[0]?.partitions[0]?.newIsrWithEpochs, [
    { brokerId: 1, brokerEpoch: 101 },
  ]);
  assert.deepEqual(broker.partition('a').isr, [1]);
  assert.equal(waiting.value?.[0]?.error, 0);
});

test('a follower whose log parts from ours is told where', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, TWO_REPLICAS);
  const partition = broker.partition('a');
  partition.append('client', batch(2), 1);
  broker.changePartition('a', 0, { leaderEpoch: 3 });
  partition.append('client', batch(2), 1);
  const parted = await followerFetch(broker, 'a', 3);
  assert.deepEqual(parted.divergingEpoch, { epoch: 0, endOffset: 2 });
  assert.deepEqual([parted.error, parted.bytes], [0, 0]);
  const same = await followerFetch(broker, 'a', 2);
  assert.equal(same.divergingEpoch, undefined);
  assert.ok(same.bytes > 0);
});

test('fetches of strangers and of stale broker epochs are refused', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, TWO_REPLICAS);
  const ask = async (replicaId: number, replicaEpoch: number) => {
    const params = fetchParams({ replicaId, replicaEpoch, maxWaitMs: 0 });
    const [result] = await broker.replicas.fetch(params, [fetchPartition('a', 0, 0)]);
    return result?.error;
  };
  assert.equal(await ask(3, 103), errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(await ask(OTHER_BROKER, 101), errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(await ask(OTHER_BROKER, 102), 0);
});
