/** Partitions as the metadata says: creation, roles, deletion, strays, broken disks. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { randomUuid } from '../../src/base/uuid.ts';
import { errors } from '../../src/protocol/errors.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { settle } from './fakes.ts';
import {
  batch,
  fetchParams,
  fetchPartition,
  OTHER_BROKER,
  replicaPartition,
  startTestBroker,
  TestBroker,
  THIS_BROKER,
} from './harness.ts';

test('creates what is assigned here, leads what the metadata says, once per epoch', async (t) => {
  const broker = await startTestBroker(t);
  const id = broker.createTopic('a', 2);
  broker.createTopic('b', 1, {
    replicas: [OTHER_BROKER],
    isr: [OTHER_BROKER],
    leader: OTHER_BROKER,
  });
  assert.equal(broker.replicas.partitionById(id, 1), broker.partition('a', 1));
  assert.equal(broker.replicas.partition('b', 0), undefined);
  assert.deepEqual(broker.leadership, ['lead 0 a-0', 'lead 0 a-1']);
  broker.changePartition('a', 0, { leaderEpoch: 1, leader: OTHER_BROKER });
  assert.equal(broker.partition('a', 0).isLeader(), false);
  broker.changePartition('a', 0, { leaderEpoch: 2, leader: THIS_BROKER });
  broker.publish([id]);
  assert.deepEqual(broker.leadership.slice(2), ['lose a-0', 'lead 2 a-0']);
});

test('a topic created again under the same name starts empty', async (t) => {
  const broker = await startTestBroker(t);
  const first = broker.createTopic('a');
  broker.partition('a').append('client', batch(3), 1);
  broker.deleteTopic('a');
  assert.deepEqual(broker.leadership.slice(1), ['lose a-0', 'delete a-0']);
  const second = broker.createTopic('a');
  assert.notEqual(first, second);
  assert.equal(broker.partition('a').log.logEndOffset, 0);
  const [old] = await broker.replicas.fetch(fetchParams(), [
    fetchPartition('', 0, 0, { topicId: first }),
  ]);
  assert.equal(old?.error, errors.UNKNOWN_TOPIC_ID.code);
});

test('a partition reassigned away is dropped; asking for it names the leader', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  const elsewhere = { replicas: [OTHER_BROKER], isr: [OTHER_BROKER], leader: OTHER_BROKER };
  broker.changePartition('a', 0, { ...elsewhere, leaderEpoch: 1 });
  assert.equal(broker.replicas.partition('a', 0), undefined);
  const [result] = await broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]);
  assert.equal(result?.error, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.deepEqual(result?.currentLeader, { leaderId: OTHER_BROKER, leaderEpoch: 1 });
});

test('G8: a replica that is not wanted is held only while this broker leads it', async (t) => {
  const broker = await startTestBroker(t);
  const mirrored = new Set(['mine']);
  broker.holds = (topic, leaderId) => leaderId === THIS_BROKER || mirrored.has(topic);
  const both = [OTHER_BROKER, THIS_BROKER];
  broker.createTopic('followed', 1, { replicas: both, isr: both, leader: OTHER_BROKER });
  assert.equal(broker.replicas.partition('followed', 0), undefined);
  broker.createTopic('led', 1, { replicas: both });
  broker.createTopic('mine', 1, { replicas: both, isr: both, leader: OTHER_BROKER });
  assert.equal(broker.partition('led').isLeader(), true);
  assert.equal(broker.partition('mine').isLeader(), false);
  broker.changePartition('led', 0, { isr: both, leader: OTHER_BROKER, leaderEpoch: 1 });
  assert.equal(broker.replicas.partition('led', 0), undefined);
  assert.deepEqual(broker.leadership, ['lead 0 led-0', 'lose led-0', 'delete led-0']);
});

test('logs that the metadata does not account for are set aside, never served', async (t) => {
  const broker = new TestBroker();
  t.after(() => broker.close());
  await broker.logManager.load(() => DEFAULT_LOG_CONFIG);
  const strangerId = randomUuid((length) => broker.runtime.random.bytes(length));
  for (const topic of ['unknown', 'a']) {
    const log = broker.logManager.createLog(
      { topic, partition: 0 },
      strangerId,
      DEFAULT_LOG_CONFIG,
    );
    log.appendAsLeader(batch(5), 0, 'client');
  }
  broker.createTopic('a');
  assert.equal(broker.partition('a').log.logEndOffset, 0);
  assert.equal(broker.replicas.partition('unknown', 0), undefined);
  const directories = readdirSync(broker.directory);
  assert.equal(directories.filter((name) => /^(a|unknown)-0\..*-stray$/.test(name)).length, 2);
});

test('a client cannot write internal topics, nor with odd acks', async (t) => {
  const broker = await startTestBroker(t);
  const topicId = broker.createTopic('__consumer_offsets');
  const entry = { topic: '__consumer_offsets', topicId, partition: 0, records: batch() };
  const params = { acks: 1, timeoutMs: 0, source: 'client' } as const;
  const [refused] = await broker.replicas.produce(params, [entry]);
  assert.equal(refused?.error, errors.INVALID_TOPIC_EXCEPTION.code);
  const [byId] = await broker.replicas.produce(params, [{ ...entry, topic: '' }]);
  assert.equal(byId?.error, errors.INVALID_TOPIC_EXCEPTION.code);
  const [odd] = await broker.replicas.produce({ ...params, acks: 2 }, [entry]);
  assert.equal(odd?.error, errors.INVALID_REQUIRED_ACKS.code);
  const coordinator = await broker.replicas.produce({ ...params, source: 'coordinator' }, [entry]);
  assert.equal(coordinator[0]?.error, 0);
});

test('a failing disk takes that partition offline alone', async (t) => {
  const broker = await startTestBroker(t);
  const [a, b] = [broker.createTopic('a'), broker.createTopic('b')];
  broker.failWritesTo('/a-0/');
  const params = { acks: 1, timeoutMs: 0, source: 'client' } as const;
  const results = await broker.replicas.produce(params, [
    { topic: 'a', topicId: a, partition: 0, records: batch() },
    { topic: 'b', topicId: b, partition: 0, records: batch() },
  ]);
  assert.deepEqual(
    results.map((each) => each.error),
    [errors.KAFKA_STORAGE_ERROR.code, 0],
  );
  await settle();
  assert.deepEqual(broker.leadership.slice(2), ['lose a-0']);
  assert.equal(broker.partition('a').isLeader(), false);
  const [read] = await broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]);
  assert.equal(read?.error, errors.KAFKA_STORAGE_ERROR.code);
});

test('a directory that cannot be renamed away is never opened under another id', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  broker.partition('a').append('client', batch(3), 1);
  broker.failWritesTo('/a-0');
  broker.deleteTopic('a');
  broker.createTopic('a');
  assert.equal(broker.replicas.partition('a', 0), undefined);
  const [read] = await broker.replicas.fetch(fetchParams(), [fetchPartition('a', 0, 0)]);
  assert.equal(read?.error, errors.KAFKA_STORAGE_ERROR.code);
});

test('topic settings reach the open log', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a');
  broker.configs.set('a', { maxMessageBytes: 10 });
  broker.publish([], [], [{ type: 2, name: 'a' }]);
  const refused = broker.partition('a').append('client', batch(), 1);
  assert.equal(refused.error, errors.MESSAGE_TOO_LARGE.code);
});

test('whenCommitted answers at the high watermark or the end of the leader epoch', async (t) => {
  const broker = await startTestBroker(t);
  const replicas = [THIS_BROKER, OTHER_BROKER];
  broker.createTopic('a', 1, { replicas, isr: replicas });
  const partition = broker.partition('a');
  partition.append('coordinator', batch(), -1);
  const committed = broker.replicas.whenCommitted(partition, 1);
  const fenced = broker.replicas.whenCommitted(partition, 2);
  const timedOut = broker.replicas.whenCommitted(partition, 2, 100);
  await broker.replicas.fetch(fetchParams({ replicaId: OTHER_BROKER, maxWaitMs: 0 }), [
    replicaPartition('a', 0, 1),
  ]);
  assert.equal(await committed, 0);
  await broker.clock.advance(100);
  assert.equal(await timedOut, errors.REQUEST_TIMED_OUT.code);
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  assert.equal(await fenced, errors.NOT_LEADER_OR_FOLLOWER.code);
});
