/**
 * All guests gone for good and the source destroyed: `twinlog guest rescue` makes native topics of
 * what the Apache brokers have, and says what may be missing.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { processRuntime } from '../../src/cli/broker-process.ts';
import { ClusterClient } from '../../src/guest/cluster-client.ts';
import { abortOpenTransactions } from '../../src/guest/rescue/rescue-transactions.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import type { KafkaCluster } from './apache-kafka.ts';
import { guest, guestCluster, javaClient, sourceCluster } from './clusters.ts';
import { GUEST_ID, guestCommand, rescuePlan } from './guest.ts';
import { memberIds, placement, replicaBatches } from './guest-watch.ts';
import type { ProduceRecord } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { readTopic } from './raw-log.ts';

const skip = await interopSkipReason();
const MIRROR = 'dc1';
const TOPIC = 'accounts';
const PARTITIONS = 2;
const APACHE_IDS = [1, 2, 3];
/** Records per partition that every replica has, and that one missed. */
const [ALL_HAVE, ONE_LACKS] = [200, 100];

async function write(from: number, count: number): Promise<void> {
  const [java, { bootstrap }] = [await javaClient(), await sourceCluster()];
  const records = Array.from({ length: PARTITIONS * count }, (_, index): ProduceRecord => {
    const number = from + Math.floor(index / PARTITIONS);
    return { topic: TOPIC, partition: index % PARTITIONS, key: 'k', value: `v${number}` };
  });
  const name = `writer-${from}`;
  await java.openProducer(bootstrap, name, {});
  const { results } = await java.produce(name, records);
  assert.deepEqual(
    results.filter(({ error }) => error !== undefined),
    [],
  );
  await java.closeProducer(name);
}

/** Waits until these brokers have every partition up to `end`. */
async function awaitEnds(cluster: KafkaCluster, ids: readonly number[], end: number) {
  await until(`brokers ${ids} at ${end}`, async () => {
    const ends = ids.flatMap((id) =>
      Array.from({ length: PARTITIONS }, (_, partition) => {
        const last = replicaBatches(cluster.broker(id), TOPIC, partition).at(-1);
        return last === undefined ? 0 : Number(last.lastOffset) + 1;
      }),
    );
    return ends.every((each) => each === end) ? true : undefined;
  });
}

test('G18a: rescue takes the longest replica, and says what may be missing', { skip }, async () => {
  const [cluster, java, broker] = [await guestCluster(), await javaClient(), await guest()];
  const source = await sourceCluster();
  await java.createTopic(source.bootstrap, TOPIC, PARTITIONS, { 'max.message.bytes': '500000' });
  await write(0, ALL_HAVE);
  await broker.mirrors('create', MIRROR, '--source', source.bootstrap);
  await broker.mirrors('add', MIRROR, TOPIC);
  await awaitState(broker, MIRROR, TOPIC, 'MIRRORING');
  await awaitEnds(cluster, APACHE_IDS, ALL_HAVE);
  // The broker that the controller would elect by itself is the one that lacks records.
  const first = (await placement(cluster, TOPIC))[0]?.replicas.find((id) => id !== GUEST_ID) ?? 0;
  await cluster.broker(first).stop();
  await write(ALL_HAVE, ONE_LACKS);
  const others = APACHE_IDS.filter((id) => id !== first);
  const end = ALL_HAVE + ONE_LACKS;
  await awaitEnds(cluster, others, end);
  const refused = await guestCommand(cluster, 'rescue').then(
    () => assert.fail('a guest runs'),
    (error: Error) => error.message,
  );
  assert.match(refused, /Guest 201 runs: fail over with/);

  await broker.kill9();
  await source.destroy();
  await cluster.broker(first).launch();
  await cluster.awaitReady();
  await until('the controller noticing', async () => {
    const placed = await placement(cluster, TOPIC);
    return placed.every(({ leader }) => leader === -1) ? true : undefined;
  });
  const plan = await rescuePlan(cluster);
  for (const each of plan) {
    assert.deepEqual([each.event, each.state, each.end], ['plan', 'MIRRORING', end]);
    const ends = new Map(each.replicas.map((replica) => [replica.brokerId, replica.end]));
    assert.deepEqual(ends, new Map(APACHE_IDS.map((id) => [id, id === first ? ALL_HAVE : end])));
    assert.ok(others.includes(each.elect), `elects ${each.elect}`);
    assert.deepEqual(each.missing, [
      `what the lost guest had mirrored from ${end} on, if anything`,
      `broker(s) ${first} at ${ALL_HAVE} catch up from the leader`,
    ]);
  }
  assert.equal(plan.length, PARTITIONS);
  for (const { leader } of await placement(cluster, TOPIC)) assert.equal(leader, -1);

  const text = await guestCommand(cluster, 'rescue', '--yes');
  assert.match(text, new RegExp(`accounts-0: STOPPED, writable, led by .*mirrored up to ${end}`));
  for (const { leader, replicas, isr } of await placement(cluster, TOPIC)) {
    assert.ok(others.includes(leader), `leader ${leader}`);
    assert.deepEqual([...replicas].sort(), APACHE_IDS);
    assert.ok(isr.includes(leader));
  }
  const attempt = await java.tryProduce(cluster.bootstrap, TOPIC);
  assert.equal(attempt.offset, end, JSON.stringify(attempt));
  const configs = await java.describeConfigs(cluster.bootstrap, 'TOPIC', TOPIC);
  assert.equal(configs['max.message.bytes'], '500000');
  assert.equal(configs['unclean.leader.election.enable'], undefined);
  assert.equal(configs['min.insync.replicas'], '2', 'as the brokers have it');
  const read = await java.readAll(cluster.bootstrap, TOPIC, 'read_committed');
  const values = read.filter(({ partition }) => partition === 1).map(({ value }) => String(value));
  assert.deepEqual(
    values,
    Array.from({ length: end }, (_, index) => `v${index}`),
  );
});

/** Transactions of a source's producers whose ends never came, a record each, in a locked topic. */
async function leaveOpen(
  cluster: KafkaCluster,
  topic: string,
  producerIds: readonly bigint[],
): Promise<void> {
  const java = await javaClient();
  // Nobody here began them: brokers must not ask the coordinator.
  const unverified = { 'transaction.partition.verification.enable': 'false' };
  await java.alterConfigs(cluster.bootstrap, 'BROKER', '', unverified);
  await java.createTopic(cluster.bootstrap, topic, 1);
  const client = clusterClient(cluster);
  const records = [
    { key: null, value: Buffer.from('undecided'), timestamp: Date.now(), headers: [] },
  ];
  for (const producerId of producerIds) {
    const producer = { producerId, producerEpoch: 3, baseSequence: 0, isTransactional: true };
    const partitionData = [{ index: 0, records: buildRecordBatch({ records, ...producer }) }];
    const value = { transactionalId: 'of the source', acks: -1, timeoutMs: 10_000 };
    const { responses } = await client.call(
      { to: 'leader', topic, partition: 0 },
      ProduceRequest,
      ProduceResponse,
      { ...value, topicData: [{ name: topic, partitionData }] },
      { maxVersion: 11 },
    );
    assert.equal(responses[0]?.partitionResponses[0]?.errorCode, 0);
  }
  client.close();
  const lock = { 'max.message.bytes': '78', 'compression.type': 'gzip' };
  await java.alterConfigs(cluster.bootstrap, 'TOPIC', topic, lock);
}

function clusterClient(cluster: KafkaCluster): ClusterClient {
  const bootstrap = cluster.brokers.map(({ host, port }) => ({ host, port }));
  const options = { clientId: 'test', bootstrap: () => bootstrap };
  return new ClusterClient(processRuntime('silent'), options);
}

test('G18a G24a: transactions left open are aborted in order, through the lock', {
  skip,
}, async () => {
  const [cluster, java] = [await guestCluster(), await javaClient()];
  const topic = 'undecided';
  // Their ids are in another order than they are.
  const ids = [9n, 2n, 5n].map((each) => 2n ** 40n + each);
  await leaveOpen(cluster, topic, ids);
  const { 0: before } = await java.offsets(cluster.bootstrap, topic);
  assert.deepEqual([before?.latest, before?.lastStable], [3, 0]);
  const client = clusterClient(cluster);
  const closed = await abortOpenTransactions(client, [{ topic, partition: 0 }]);
  const again = await abortOpenTransactions(client, [{ topic, partition: 0 }]);
  client.close();
  const expected = ids.map((producerId, firstOffset) => ({
    producerId: String(producerId),
    producerEpoch: 3,
    firstOffset,
  }));
  assert.deepEqual([...closed], [['undecided-0', expected]]);
  assert.deepEqual([...again], [['undecided-0', []]]);
  await until('the markers being committed', async () => {
    const { 0: after } = await java.offsets(cluster.bootstrap, topic);
    return after?.latest === 6 && after.lastStable === 6 ? true : undefined;
  });
  const { partitions } = await readTopic(cluster.bootstrap, topic);
  const batches = partitions.flatMap((each) => each.batches);
  assert.deepEqual(
    batches.map(({ baseOffset, producerId }) => [Number(baseOffset), producerId]),
    [...ids, ...ids].map((producerId, offset) => [offset, producerId]),
  );
  assert.deepEqual(await java.readAll(cluster.bootstrap, topic, 'read_committed'), []);
});

test('G18a: a rescue is repeatable, and the lost guest can leave', { skip }, async () => {
  const cluster = await guestCluster();
  assert.match(await guestCommand(cluster, 'rescue', '--yes'), /Nothing to rescue/);
  const leave = await guestCommand(cluster, 'leave', '--node-id', String(GUEST_ID));
  assert.match(leave, /Guest 201 has left/);
  assert.deepEqual(await memberIds(cluster), APACHE_IDS);
});
