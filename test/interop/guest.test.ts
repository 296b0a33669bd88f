/**
 * twinlog as a guest of a real Apache Kafka cluster: the hard topic lands on every Apache replica,
 * clients read it through the guest and are refused to write, and after the failover the topic is
 * the cluster's own.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { clients, guest, guestCluster, hardTopic, javaClient, sourceCluster } from './clusters.ts';
import { type CompareOptions, compareSequences, dumpSegments } from './compare.ts';
import { GUEST_ID } from './guest.ts';
import { awaitReplicas, memberIds, placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { readTopic } from './raw-log.ts';

const skip = await interopSkipReason();
const MIRROR = 'dc1';
const FAR = 'far';
const FAR_START = 999_900;

/** Brokers of the cluster that are no guests; the mirror topic has a replica on each. */
const APACHE_IDS = [1, 2, 3];

/** How a batch may differ from the source's here: by the tag in its producer id, which is read. */
async function differs(topic: string): Promise<CompareOptions> {
  // Its log start moves until the first batch of the source has come.
  const { partitions } = await until('the mirror', async () => {
    const read = await readTopic((await guest()).bootstrap, topic);
    return read.partitions.every(({ batches }) => batches.length > 0) ? read : undefined;
  });
  const tags = partitions
    .flatMap(({ batches }) => batches)
    .filter(({ producerId }) => producerId >= 0n)
    .map(({ producerId }) => Number(producerId >> 40n));
  const [tag = 0] = tags;
  assert.ok(tag >= 1 && tag <= 4095, `tag ${tag}`);
  assert.ok(
    tags.every((each) => each === tag),
    'one tag per source',
  );
  return { upTo: 'lastStable', producerIds: { tag }, topicIds: 'own' };
}

if (skip === false) {
  before(async () => {
    const { topic } = await hardTopic();
    const broker = await guest();
    await broker.mirrors('create', MIRROR, '--source', (await sourceCluster()).bootstrap);
    await broker.mirrors('add', MIRROR, topic);
    await awaitState(broker, MIRROR, topic, 'MIRRORING');
  });
}

test('G12 G18: the guest alone is in sync, Apache brokers follow', { skip }, async () => {
  const { topic } = await hardTopic();
  const cluster = await guestCluster();
  const placed = await until('an ISR of guests', async () => {
    const partitions = await placement(cluster, topic);
    return partitions.every(({ isr }) => isr.length === 1) ? partitions : undefined;
  });
  for (const { leader, replicas, isr } of placed) {
    assert.equal(leader, GUEST_ID);
    assert.deepEqual(isr, [GUEST_ID]);
    assert.equal(replicas[0], GUEST_ID);
    assert.deepEqual([...replicas].sort(), [...APACHE_IDS, GUEST_ID].sort());
  }
});

test('G13 G14 G20: every Apache replica holds the source batch by batch', { skip }, async () => {
  const { topic } = await hardTopic();
  const source = await readTopic((await sourceCluster()).bootstrap, topic);
  const cluster = await guestCluster();
  await awaitReplicas(source, cluster, topic, await differs(topic));
  const { gaps } = await dumpSegments((await sourceCluster()).broker(1).dataDir, topic);
  for (const { dataDir, id } of cluster.brokers) {
    const { complaints } = await dumpSegments(dataDir, topic, { allowedGaps: gaps });
    assert.deepEqual(complaints, [], `broker ${id}`);
  }
});

test('F8 G15: a log that starts near offset 1,000,000 starts there on replicas', {
  skip,
}, async () => {
  const source = await sourceCluster();
  const java = await javaClient();
  await java.createTopic(source.bootstrap, FAR, 1);
  const load = { bootstrap: source.bootstrap, topic: FAR, partitions: 1, compression: 'none' };
  await java.request('fill', { ...load, records: FAR_START + 1_000, size: 8 }, 60_000);
  await java.deleteRecords(source.bootstrap, FAR, { 0: FAR_START });
  await (await guest()).mirrors('add', MIRROR, FAR);
  const read = await until('all of it at the guest', async () => {
    const topic = await readTopic((await guest()).bootstrap, FAR);
    return topic.partitions[0]?.end === BigInt(FAR_START + 1_000) ? topic : undefined;
  });
  assert.equal(read.partitions[0]?.logStart, BigInt(FAR_START));
  const there = await readTopic(source.bootstrap, FAR);
  await awaitReplicas(there, await guestCluster(), FAR, await differs(FAR));
});

for (const isolation of ['read_uncommitted', 'read_committed'] as const) {
  test(`G21: every client reads through the guest, ${isolation}`, { skip }, async () => {
    const { topic, openTransaction } = await hardTopic();
    const source = (await sourceCluster()).bootstrap;
    const { partition: held, firstOffset } = openTransaction;
    for (const client of await clients()) {
      const all = await client.readAll(source, topic, isolation);
      const expected = all.filter((r) => r.partition !== held || r.offset < firstOffset);
      const read = await client.readAll((await guest()).bootstrap, topic, isolation);
      assert.deepEqual(compareSequences(expected, read), [], client.name);
    }
  });
}

test('R2 R3: every client is refused at once, at any broker', { skip }, async () => {
  const { topic } = await hardTopic();
  for (const bootstrap of [(await guest()).bootstrap, (await guestCluster()).bootstrap]) {
    for (const client of await clients()) {
      const attempt = await client.tryProduce(bootstrap, topic);
      assert.equal(attempt.offset, undefined, client.name);
      assert.equal(attempt.attempts, 1, `${client.name}: ${JSON.stringify(attempt)}`);
      assert.match(String(attempt.error), /policy.?violation/i, client.name);
    }
  }
});

test('D4 G24: after the failover the topic is the own of its cluster', { skip }, async () => {
  const { topic } = await hardTopic();
  const cluster = await guestCluster();
  const java = await javaClient();
  const ends = await java.offsets((await guest()).bootstrap, topic);
  const started = performance.now();
  await (await guest()).mirrors('remove', MIRROR, topic);
  const seconds = (performance.now() - started) / 1000;
  const first = await java.tryProduce(cluster.bootstrap, topic);
  console.log(`failover ${seconds.toFixed(2)} s, first write ${first.elapsedMs} ms`);
  assert.equal(first.offset, ends[0]?.latest);
  for (const { leader, replicas, isr } of await placement(cluster, topic)) {
    assert.ok(APACHE_IDS.includes(leader), `leader ${leader}`);
    assert.deepEqual([...replicas].sort(), APACHE_IDS);
    assert.deepEqual([...isr].sort(), APACHE_IDS);
  }
  let next = first.offset ?? Number.NaN;
  for (const client of await clients()) {
    const attempt = await client.tryProduce(cluster.bootstrap, topic);
    assert.equal(attempt.offset, ++next, `${client.name}: ${JSON.stringify(attempt)}`);
  }
});

test('G6: a guest that stops is told to nobody any more', { skip }, async () => {
  const cluster = await guestCluster();
  assert.deepEqual(await memberIds(cluster), [...APACHE_IDS, GUEST_ID]);
  await (await guest()).stop();
  assert.deepEqual(await memberIds(cluster), APACHE_IDS);
});
