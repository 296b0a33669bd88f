/**
 * The short main path of a guest on every other Apache Kafka that can be its home: join, mirror,
 * read, refuse writes, stay free of strays, fail over, write, leave. Three controllers where the
 * newest runs. TWINLOG_TEST=full only: the version that all other tests run on has them.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { compareSequences } from './compare.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { awaitMirrored } from './guest-faults.ts';
import { memberIds, placement } from './guest-watch.ts';
import { interopSkipReason, type KafkaVersion, otherPassReason } from './kafka-jars.ts';
import { awaitProgress, awaitState, until } from './mirror-watch.ts';
import { readTopic } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

const isFull = process.env.TWINLOG_TEST === 'full';
const skip =
  otherPassReason() || (isFull ? await interopSkipReason() : 'TWINLOG_TEST=full runs it');
const VERSIONS: readonly (readonly [KafkaVersion, controllers: number])[] = [
  ['4.1.2', 1],
  ['4.3.1', 1],
  ['4.4.0', 3],
];
const MIRROR = 'dc1';
const PARTITIONS = 3;
const RECORDS = 30;
const APACHE_IDS = [1, 2, 3];

const sorted = (ids: readonly number[]): number[] => [...ids].sort((a, b) => a - b);

for (const [version, controllers] of VERSIONS) {
  const name = `a guest of Apache Kafka ${version}, ${controllers} controller(s)`;
  describe(name, { skip }, () => mainPath(version, controllers));
}

/** Committed and aborted records, in batches of some records each. */
async function write(bootstrap: string, topic: string): Promise<void> {
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, PARTITIONS);
  await java.openProducer(bootstrap, topic, { 'transactional.id': topic });
  for (const [round, end] of (['commit', 'abort', 'commit'] as const).entries()) {
    await java.begin(topic);
    const records = Array.from({ length: PARTITIONS * RECORDS }, (_, i) => {
      return { topic, partition: i % PARTITIONS, key: `k${i}`, value: `${round}-${i}` };
    });
    await java.produceAll(topic, records.slice(0, RECORDS), records.slice(RECORDS));
    await java[end](topic);
  }
  await java.closeProducer(topic);
}

function mainPath(version: KafkaVersion, controllers: number): void {
  const topic = `versions-${version}`;
  let target: KafkaCluster;
  let guest: TwinlogBroker;
  let source: string;

  before(async () => {
    await ensureAppCds();
    source = (await sourceCluster()).bootstrap;
    target = await startKafka({ name: topic, version, brokers: 3, controllers });
    guest = await startGuest({ name: `guest-${version}`, cluster: target });
    await write(source, topic);
    await guest.mirrors('create', MIRROR, '--source', source);
    await guest.mirrors('add', MIRROR, topic);
    await awaitState(guest, MIRROR, topic, 'MIRRORING');
    await awaitProgress(source, guest, topic);
  });

  after(async () => {
    await guest?.destroy();
    await target?.destroy();
  });

  test('G14 G21: replicas and clients have what the source has', async () => {
    const java = await javaClient();
    const there = await readTopic(source, topic);
    const offsets = there.partitions.map(({ end }) => Number(end));
    const mirrored = { source: there, offsets, topic, bootstrap: guest.bootstrap };
    await awaitMirrored(target.brokers, mirrored);
    for (const isolation of ['read_uncommitted', 'read_committed'] as const) {
      const expected = await java.readAll(source, topic, isolation);
      const read = await java.readAll(guest.bootstrap, topic, isolation);
      assert.ok(expected.length >= 2 * PARTITIONS * RECORDS);
      assert.deepEqual(compareSequences(expected, read), [], isolation);
    }
  });

  test('R3 G18: nobody writes, and only the guest is in sync', async () => {
    const { offset, error } = await (await javaClient()).tryProduce(target.bootstrap, topic);
    assert.equal(offset, undefined);
    assert.match(String(error), /PolicyViolation/);
    await until('an ISR of the guest alone', async () => {
      const placed = await placement(target, topic);
      const isAlone = placed.every(({ isr }) => isr.length === 1 && isr[0] === GUEST_ID);
      return isAlone ? true : undefined;
    });
  });

  test('G7 G8: no foreign partition stays on the guest', async () => {
    const java = await javaClient();
    await java.createTopic(target.bootstrap, 'foreign', 12);
    const placed = await until('twelve times three replicas elsewhere', async () => {
      const partitions = await placement(target, 'foreign');
      const isRight = partitions.every(({ replicas }) => {
        return replicas.length === 3 && !replicas.includes(GUEST_ID);
      });
      return isRight ? partitions : undefined;
    });
    assert.equal(placed.length, 12);
    assert.equal((await java.tryProduce(target.bootstrap, 'foreign')).offset, 0);
  });

  test('G24: it fails over, and the first write has the next offset', async () => {
    const ends = (await readTopic(source, topic)).partitions.map(({ end }) => Number(end));
    await guest.mirrors('remove', MIRROR, topic);
    const java = await javaClient();
    for (const [partition, end] of ends.entries()) {
      assert.equal((await java.tryProduce(target.bootstrap, topic, partition)).offset, end);
    }
    for (const { leader, replicas, isr } of await placement(target, topic)) {
      assert.ok(APACHE_IDS.includes(leader), `leader ${leader}`);
      assert.deepEqual(sorted(replicas), APACHE_IDS);
      assert.deepEqual(sorted(isr), APACHE_IDS);
    }
  });

  test('G6: it leaves', async () => {
    await guest.stop();
    assert.deepEqual(await memberIds(target), APACHE_IDS);
  });
}
