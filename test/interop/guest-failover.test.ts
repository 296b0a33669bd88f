/**
 * Failing over to a real Apache Kafka cluster: many partitions at once, and producers whose ids the
 * source had given out, too.
 *
 * How long it takes is printed, not judged: a loaded machine says nothing about the product.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startHost, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { startGuest } from './guest.ts';
import { placement } from './guest-watch.ts';
import type { ProduceRecord } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const MIRROR = 'dc1';
const MANY = 300;
/** Producers of the source, and of the cluster after the failover. */
const PRODUCERS = 12;
const RECORDS_EACH = 834;
const MANY_BOUND_MS = 120_000;
const APACHE_IDS = [1, 2, 3];

let source: KafkaCluster;
let target: KafkaCluster;
let guest: TwinlogBroker;

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    source = await startKafka({ name: 'failover-source' });
    target = await startHost({ name: 'failover-target', brokers: 3 });
    guest = await startGuest({ name: 'failover-guest', cluster: target });
    await guest.mirrors('create', MIRROR, '--source', source.bootstrap);
  });
  after(async () => {
    await guest?.destroy();
    await target?.destroy();
    await source?.destroy();
  });
}

function records(topic: string, who: string, count: number): ProduceRecord[] {
  return Array.from({ length: count }, (_, i) => ({ topic, value: `${who}-${i}` }));
}

/** Every producer idempotent, each third one transactional; a batch of ten records at a time. */
async function writeAll(bootstrap: string, topic: string, side: string): Promise<Set<string>> {
  const java = await javaClient();
  const written = new Set<string>();
  for (let n = 0; n < PRODUCERS; n++) {
    const name = `${side}-${topic}-${n}`;
    const isTransactional = n % 3 === 2;
    const config = isTransactional ? { 'transactional.id': `${topic}-${n}` } : {};
    await java.openProducer(bootstrap, name, config);
    const all = records(topic, name, RECORDS_EACH);
    const batches: ProduceRecord[][] = [];
    for (let i = 0; i < all.length; i += 10) batches.push(all.slice(i, i + 10));
    if (isTransactional) await java.begin(name);
    await java.produceAll(name, ...batches);
    if (isTransactional) await java.commit(name);
    await java.closeProducer(name);
    for (const { value } of all) written.add(String(value));
  }
  return written;
}

test('G20: no write after the failover is swallowed for its producer id', { skip }, async () => {
  const java = await javaClient();
  const topic = 'ids';
  await java.createTopic(source.bootstrap, topic, 1);
  const there = await writeAll(source.bootstrap, topic, 'source');
  await guest.mirrors('add', MIRROR, topic);
  await awaitState(guest, MIRROR, topic, 'MIRRORING');
  const { latest } = (await java.offsets(source.bootstrap, topic))[0] ?? {};
  await until('all copied', async () => {
    const end = (await java.offsets(guest.bootstrap, topic))[0]?.latest;
    return end === latest ? true : undefined;
  });
  await guest.mirrors('remove', MIRROR, topic);
  const here = await writeAll(target.bootstrap, topic, 'target');
  const read = await java.readAll(target.bootstrap, topic, 'read_committed');
  const values = read.map(({ value }) => String(value));
  assert.equal(here.size, PRODUCERS * RECORDS_EACH);
  assert.equal(values.length, there.size + here.size);
  assert.deepEqual(new Set(values), new Set([...there, ...here]));
  assert.ok(here.size >= 10_000);
});

test('G25 G26: 300 partitions fail over, evenly spread', { skip }, async () => {
  const java = await javaClient();
  const topic = 'many';
  await java.createTopic(source.bootstrap, topic, MANY);
  const load = { bootstrap: source.bootstrap, topic, partitions: MANY, compression: 'none' };
  await java.request('fill', { ...load, records: MANY * 64, size: 100 }, MANY_BOUND_MS);
  await guest.mirrors('add', MIRROR, topic);
  const caughtUp = async (): Promise<true | undefined> => {
    const ends = await java.offsets(guest.bootstrap, topic);
    const has = Object.values(ends).filter((end) => end.latest === 64).length;
    return has === MANY ? true : undefined;
  };
  await until('300 partitions copied', caughtUp, MANY_BOUND_MS);
  await until(
    'an ISR of the guest alone',
    async () => {
      const placed = await placement(target, topic);
      return placed.every(({ isr }) => isr.length === 1) ? true : undefined;
    },
    MANY_BOUND_MS,
  );
  const beganMs = performance.now();
  const removed = guest.mirrors('remove', MIRROR, topic);
  const first = await until('a first write', async () => {
    const attempt = await java.tryProduce(target.bootstrap, topic);
    return attempt.offset === undefined ? undefined : attempt;
  });
  const firstMs = performance.now() - beganMs;
  await removed;
  const allMs = performance.now() - beganMs;
  console.log(
    `300 partitions: first write after ${firstMs.toFixed()} ms, all ${allMs.toFixed()} ms`,
  );
  assert.equal(first.offset, 64);
  const led = new Map<number, number>();
  for (const { leader, replicas, isr } of await placement(target, topic)) {
    led.set(leader, (led.get(leader) ?? 0) + 1);
    assert.deepEqual([...replicas].sort(), APACHE_IDS);
    assert.deepEqual([...isr].sort(), APACHE_IDS);
  }
  assert.deepEqual(
    [...led.values()].map((count) => count === MANY / APACHE_IDS.length),
    [true, true, true],
    JSON.stringify([...led]),
  );
});
