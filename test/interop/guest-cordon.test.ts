/**
 * A guest in a cluster of Apache Kafka 4.4: its log directory is cordoned, so that nothing is
 * placed on it, and mirror topics are made there all the same (G7). Directories of other brokers
 * may be cordoned, too: Kafka refuses to name such a broker, whatever it has already.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason, otherPassReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = otherPassReason() || (await interopSkipReason());
const MIRROR = 'dc1';
const PARTITIONS = 30;

let source: TwinlogBroker;
let kafka: KafkaCluster;
let guest: TwinlogBroker;

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    source = await startTwinlog({ name: 'cordon-source' });
    kafka = await startKafka({ name: 'cordon-host', brokers: 2, version: '4.4.0' });
    guest = await startGuest({ name: 'cordon-guest', cluster: kafka });
    const java = await javaClient();
    for (const topic of ['mirrored', 'later']) await java.createTopic(source.bootstrap, topic, 1);
    await guest.mirrors('create', MIRROR, '--source', source.bootstrap);
  });
  after(async () => {
    await guest?.destroy();
    await kafka?.destroy();
    await source?.destroy();
  });
}

/** Makes a topic and looks at once where it was placed. */
async function placedOnGuest(topic: string): Promise<number> {
  await (await javaClient()).createTopic(kafka.bootstrap, topic, PARTITIONS);
  const placed = await placement(kafka, topic);
  assert.equal(placed.length, PARTITIONS);
  return placed.filter(({ replicas }) => replicas.includes(GUEST_ID)).length;
}

test('G7: nothing is placed on the guest', { skip }, async () => {
  assert.equal(await placedOnGuest('before'), 0);
});

test('G7 G12: a mirror topic is made on the guest', { skip }, async () => {
  await guest.mirrors('add', MIRROR, 'mirrored');
  await awaitState(guest, MIRROR, 'mirrored', 'MIRRORING');
  const [partition] = await placement(kafka, 'mirrored');
  const [first, ...others] = partition?.replicas ?? [];
  assert.deepEqual([first, others.sort()], [GUEST_ID, [1, 2]]);
});

test('G7: and nothing else is placed there afterwards', { skip }, async () => {
  assert.equal(await placedOnGuest('after'), 0);
});

/** Cordons all directories of broker 2, or none. */
async function cordonSecond(all: boolean): Promise<void> {
  const value = all ? '*' : '';
  const java = await javaClient();
  await java.alterConfigs(kafka.bootstrap, 'BROKER', '2', { 'cordoned.log.dirs': value });
}

async function replicasOf(topic: string): Promise<readonly number[]> {
  const [partition] = await placement(kafka, topic);
  return [...(partition?.replicas ?? [])].sort((a, b) => a - b);
}

test('G12 G24: a cordoned broker gets no topic and holds no failover up', { skip }, async () => {
  await cordonSecond(true);
  await guest.mirrors('remove', MIRROR, 'mirrored');
  assert.deepEqual(await replicasOf('mirrored'), [1]);
  await guest.mirrors('add', MIRROR, 'later');
  await awaitState(guest, MIRROR, 'later', 'MIRRORING');
  assert.deepEqual(await replicasOf('later'), [1, GUEST_ID]);
  await cordonSecond(false);
  await until('the replica that it is owed', async () =>
    String(await replicasOf('mirrored')) === '1,2' ? true : undefined,
  );
});
