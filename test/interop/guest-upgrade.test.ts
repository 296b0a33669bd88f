/**
 * A cluster's metadata.version is raised while a guest is in (G3): the guest goes along, and from
 * the level of Apache Kafka 4.3 on it keeps foreign partitions off by itself (G7).
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { GUEST_ID, guestChecks, startGuest } from './guest.ts';
import { memberIds, placement } from './guest-watch.ts';
import { interopSkipReason, otherPassReason } from './kafka-jars.ts';
import { until } from './mirror-watch.ts';
import { tool } from './tools.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip =
  otherPassReason() ||
  (process.env.TWINLOG_TEST === 'full'
    ? await interopSkipReason()
    : 'part of npm run test:full: it needs Apache Kafka 4.4');

/** Before cordons, and the newest of Apache Kafka 4.4. */
const [OLD_LEVEL, NEW_LEVEL] = [29, 33];
const PARTITIONS = 12;

const started: { cluster?: KafkaCluster; guest?: TwinlogBroker } = {};
after(async () => {
  await started.guest?.destroy();
  await started.cluster?.destroy();
});

/** What the check found, by what it looked at. */
async function found(cluster: KafkaCluster, name: string): Promise<string> {
  return (await guestChecks(cluster)).get(name)?.found ?? `nothing about ${name}`;
}

test('G3 G7: an upgrade of metadata.version with a guest in', { skip }, async () => {
  await ensureAppCds();
  const java = await javaClient();
  const features = { 'metadata.version': OLD_LEVEL };
  const cluster = await startKafka({ name: 'upgrade', brokers: 2, version: '4.4.0', features });
  started.cluster = cluster;
  const level = await found(cluster, 'feature metadata.version');
  assert.equal(level, 'its level is 29; a guest supports 7–33, the controllers 7–33');
  assert.match(await found(cluster, 'foreign partitions'), /some of new topics will be placed/);
  started.guest = await startGuest({ name: 'upgraded', cluster });

  const upgrade = ['upgrade', '--feature', `metadata.version=${NEW_LEVEL}`];
  await tool('features', ['--bootstrap-server', cluster.bootstrap, ...upgrade]);
  await until('the new level', async () => {
    const now = await found(cluster, 'feature metadata.version');
    return now.startsWith(`its level is ${NEW_LEVEL};`) ? true : undefined;
  });
  assert.match(await found(cluster, 'foreign partitions'), /none will be placed on a guest/);
  assert.deepEqual(await memberIds(cluster), [1, 2, GUEST_ID]);
  // The guest tells its cordon with a heartbeat that comes after the level.
  await until('a topic that avoids the guest', async () => {
    const topic = `placed-${process.hrtime.bigint()}`;
    await java.createTopic(cluster.bootstrap, topic, PARTITIONS);
    const placed = await placement(cluster, topic);
    return placed.every(({ replicas }) => !replicas.includes(GUEST_ID)) ? true : undefined;
  });
  started.guest.checkAlive();
});
