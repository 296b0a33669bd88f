/**
 * A guest's jobs against real Apache Kafka: strays leave it, a mirror topic is moved under the
 * lock, and a failover ends though a broker was just killed and the guest dies in the middle.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { GUEST_ID, guestCommand, startGuest } from './guest.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const MIRROR = 'dc1';
const TOPIC = 'handed-over';
/** A native topic without settings of its own. */
const PLAIN = 'plain';
const PARTITIONS = 3;
const RECORDS = 20;
const APACHE = [1, 2, 3];
/** A topic's settings at the source; `compression.type` is part of the lock. */
const CONFIGS = { 'retention.ms': '86400000', 'compression.type': 'lz4' };

let source: TwinlogBroker;
let kafka: KafkaCluster;
let guest: TwinlogBroker;

const sorted = (ids: readonly number[]): number[] => [...ids].sort((a, b) => a - b);

async function replicasOf(topic: string): Promise<number[][]> {
  return (await placement(kafka, topic)).map(({ replicas }) => [...replicas]);
}

/** What is set on the topic itself; what all topics of the cluster have is left out. */
async function overrides(topic = TOPIC): Promise<Record<string, string>> {
  const java = await javaClient();
  const inherited = await java.describeConfigs(kafka.bootstrap, 'TOPIC', PLAIN);
  const all = await java.describeConfigs(kafka.bootstrap, 'TOPIC', topic);
  const own = Object.entries(all).filter(([name, value]) => inherited[name] !== value);
  return Object.fromEntries(own);
}

async function awaitGuestsOnly(): Promise<void> {
  await until('an ISR of guests, unlocked', async () => {
    const partitions = await placement(kafka, TOPIC);
    const alone = partitions.every(({ isr }) => isr.length === 1 && isr[0] === GUEST_ID);
    const { 'max.message.bytes': limit } = await overrides();
    return alone && limit === undefined ? true : undefined;
  });
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    source = await startTwinlog({ name: 'handover-source' });
    kafka = await startHost({ name: 'handover-host', brokers: 3 });
    guest = await startGuest({ name: 'handover-guest', cluster: kafka });
    const java = await javaClient();
    await java.createTopic(kafka.bootstrap, PLAIN, 1);
    await java.createTopic(source.bootstrap, TOPIC, PARTITIONS, CONFIGS);
    await java.openProducer(source.bootstrap, 'writer');
    const records = Array.from({ length: PARTITIONS * RECORDS }, (_, index) => ({
      topic: TOPIC,
      partition: index % PARTITIONS,
      value: String(index),
    }));
    await java.produceAll('writer', records);
    await java.closeProducer('writer');
    await guest.mirrors('create', MIRROR, '--source', source.bootstrap);
    await guest.mirrors('add', MIRROR, TOPIC);
    await awaitState(guest, MIRROR, TOPIC, 'MIRRORING');
  });
  after(async () => {
    await guest?.destroy();
    await kafka?.destroy();
    await source?.destroy();
  });
}

test('G12 G25: leaders-to-be are spread, settings are forced, the lock is lifted', {
  skip,
}, async () => {
  await awaitGuestsOnly();
  const replicas = await replicasOf(TOPIC);
  for (const list of replicas) assert.equal(list[0], GUEST_ID);
  assert.deepEqual(sorted(replicas.map((list) => list[1] ?? -1)), APACHE);
  assert.deepEqual(await overrides(), {
    ...CONFIGS,
    'min.insync.replicas': '1',
    'unclean.leader.election.enable': 'false',
  });
});

test('G12: a native topic is not taken, a member is a success', { skip }, async () => {
  const java = await javaClient();
  await java.createTopic(source.bootstrap, 'native', 1);
  await java.createTopic(kafka.bootstrap, 'native', 1);
  await assert.rejects(guest.mirrors('add', MIRROR, 'native'), /was not made by a mirror/);
  assert.deepEqual(await overrides('native'), {});
});

test('G8: what the cluster places on the guest leaves it, replica for replica', {
  skip,
}, async () => {
  const java = await javaClient();
  await java.createTopic(kafka.bootstrap, 'strays', 12);
  const onGuest = java.createTopic(kafka.bootstrap, 'single', 1, {}, { 0: [GUEST_ID] });
  // A cordon refuses what a sweeper would move.
  if (kafka.hasCordons) {
    await assert.rejects(onGuest, /InvalidReplicaAssignment/);
    await java.createTopic(kafka.bootstrap, 'single', 1, {}, { 0: [1] });
  } else await onGuest;
  const placed = await until('no guest among the replicas', async () => {
    const lists = [...(await replicasOf('strays')), ...(await replicasOf('single'))];
    return lists.some((list) => list.includes(GUEST_ID)) ? undefined : lists;
  });
  assert.deepEqual(
    placed.map((list) => list.length),
    [...Array.from({ length: 12 }, () => 3), 1],
  );
  for (const topic of ['strays', 'single']) {
    assert.equal((await java.tryProduce(kafka.bootstrap, topic)).offset, 0, topic);
  }
  for (const list of await replicasOf(TOPIC)) assert.equal(list[0], GUEST_ID, 'mirrors stay');
});

test('G18: an administrator moves a mirror topic, and only guests stay in sync', {
  skip,
}, async () => {
  const java = await javaClient();
  const move = () => java.reassign(kafka.bootstrap, TOPIC, { 0: [GUEST_ID, 3, 2] });
  if (kafka.hasCordons) {
    // Not even a broker that is a replica already may be named.
    await assert.rejects(move, /InvalidReplicaAssignment.*cordoned/);
    await guestCommand(kafka, 'maintenance', 'on');
  }
  await move();
  await until('the new replicas', async () => {
    const [replicas] = await replicasOf(TOPIC);
    return replicas?.join() === [GUEST_ID, 3, 2].join() ? true : undefined;
  });
  if (kafka.hasCordons) await guestCommand(kafka, 'maintenance', 'off');
  await awaitGuestsOnly();
  assert.equal((await overrides())['compression.type'], 'lz4');
});

test('G24 G28: a broker is killed, then the guest amid the failover', { skip }, async () => {
  const java = await javaClient();
  await kafka.broker(3).kill9();
  await guest.mirrors('remove', MIRROR, TOPIC, '--no-wait');
  await guest.kill9();
  await guest.start();
  await awaitState(guest, MIRROR, TOPIC, 'STOPPED');
  for (const { leader, replicas, isr } of await placement(kafka, TOPIC)) {
    assert.ok(leader === 1 || leader === 2, `leader ${leader}`);
    assert.ok(!replicas.includes(GUEST_ID) && !isr.includes(GUEST_ID));
  }
  assert.deepEqual(await overrides(), CONFIGS);
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const { offset } = await java.tryProduce(kafka.bootstrap, TOPIC, partition);
    assert.equal(offset, RECORDS, `partition ${partition}`);
  }
  await kafka.broker(3).launch();
  await until('all replicas in sync', async () => {
    const partitions = await placement(kafka, TOPIC);
    const whole = partitions.every(
      ({ replicas, isr }) => replicas.length === 3 && isr.length === 3,
    );
    return whole ? true : undefined;
  });
  for (const list of await replicasOf(TOPIC)) assert.deepEqual(sorted(list), APACHE);
});
