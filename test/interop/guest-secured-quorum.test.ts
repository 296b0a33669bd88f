/**
 * A guest in a secured Apache Kafka cluster of three controllers and three brokers, with the rights
 * that `twinlog guest check` names and no more: it mirrors while the active controller is stopped,
 * fails over, and the guest of the source, with such rights there, takes the topic back (G29).
 *
 * Tests build on each other. TWINLOG_TEST=full only.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { CertificateAuthority } from '../io/certificates.ts';
import { type ClusterSecurity, type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { compareSequences } from './compare.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { activeController, awaitMirrored } from './guest-faults.ts';
import { memberIds, placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LiveProducer } from './live-producers.ts';
import { awaitProgress, awaitState, partitionsOf, until } from './mirror-watch.ts';
import { freePort, removeDirectory, temporaryDirectory } from './processes.ts';
import { readTopic } from './raw-log.ts';
import {
  grantChecked,
  guestSettings,
  saslClient,
  securityOf,
  settingsFile,
  USERS,
} from './secured.ts';
import type { TwinlogBroker } from './twinlog.ts';

const isFull = process.env.TWINLOG_TEST === 'full';
const skip = isFull ? await interopSkipReason() : 'TWINLOG_TEST=full runs it';
const TOPIC = 'orders';
const THERE = 'dc1';
const BACK = 'dc2';
const PARTITIONS = 2;
const APACHE_IDS = [1, 2, 3];
const ROUNDS = 20;

const directory = temporaryDirectory('guest-secured-quorum');
let security: ClusterSecurity;
let home: KafkaCluster;
let target: KafkaCluster;
/** Of the target. */
let guest: TwinlogBroker;
let homeGuest: TwinlogBroker;
/** Where both sides last agreed, per partition. */
let common: number[];

async function startSecured(name: string, cluster: KafkaCluster): Promise<TwinlogBroker> {
  const port = await freePort();
  const settings = guestSettings({ security, port, securePort: await freePort() });
  return await startGuest({ name, cluster, port, settings });
}

/** A mirror from a cluster, with the source's credentials of the guest. */
async function mirror(to: TwinlogBroker, name: string, from: KafkaCluster): Promise<void> {
  const file = settingsFile(directory, saslClient(security, 'guest'));
  const source = ['--source', from.secureBootstrap, '--source-config', file];
  await to.mirrors('create', name, ...source);
  await to.mirrors('add', name, TOPIC);
  await awaitState(to, name, TOPIC, 'MIRRORING');
}

async function live(cluster: KafkaCluster, isTransactional = false): Promise<LiveProducer> {
  const { bootstrap } = cluster;
  const what = { topic: TOPIC, partitions: PARTITIONS, transactional: isTransactional };
  return new LiveProducer(await javaClient(), { bootstrap, ...what, pauseMs: 50 });
}

async function writeSome(cluster: KafkaCluster): Promise<void> {
  const producer = await live(cluster);
  await producer.more(ROUNDS);
  await producer.stop();
}

async function ends(cluster: KafkaCluster): Promise<number[]> {
  const { partitions } = await readTopic(cluster.bootstrap, TOPIC);
  return partitions.map(({ end }) => Number(end));
}

async function lastMirrored(of: TwinlogBroker, name: string): Promise<number[]> {
  const rows = await partitionsOf(of, name, TOPIC);
  const sorted = rows.sort((a, b) => a.partition - b.partition);
  return sorted.map(({ lastMirroredOffset }) => lastMirroredOffset);
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    const authority = new CertificateAuthority(directory);
    const { keystore } = authority.issue('node', '/CN=node');
    security = { keystore, truststore: authority.file, users: USERS };
    home = await startKafka({ name: 'secured-home', security });
    target = await startKafka({ name: 'secured-target', brokers: 3, controllers: 3, security });
    await (await javaClient()).createTopic(home.bootstrap, TOPIC, PARTITIONS);
  });
}

after(async () => {
  await Promise.all([guest?.destroy(), homeGuest?.destroy()]);
  await Promise.all([home?.destroy(), target?.destroy()]);
  removeDirectory(directory);
});

test('G34: what the check prints is granted at both sides', { skip }, async () => {
  const file = settingsFile(directory, saslClient(security, 'guest', 'PLAIN'));
  for (const cluster of [home, target]) {
    const printed = await grantChecked(cluster, file);
    assert.match(printed, /--allow-principal User:guest --operation ClusterAction --cluster/);
  }
});

test('G5 G34: it mirrors while the active controller is stopped', { skip }, async () => {
  guest = await startSecured('secured-target-guest', target);
  const producers = [await live(home), await live(home, true)];
  await mirror(guest, THERE, home);
  await awaitProgress(home.bootstrap, guest, TOPIC);
  const who = securityOf(saslClient(security, 'guest', 'PLAIN'));
  const stopped = await activeController(target, who);
  await stopped.stop();
  const active = await activeController(target, who);
  assert.notEqual(active.id, stopped.id);
  for (const producer of producers) await producer.more(ROUNDS);
  await awaitProgress(home.bootstrap, guest, TOPIC);
  await awaitState(guest, THERE, TOPIC, 'MIRRORING');
  assert.ok((await memberIds(target)).includes(GUEST_ID));
  for (const { leader, isr } of await placement(target, TOPIC)) {
    assert.deepEqual([leader, isr], [GUEST_ID, [GUEST_ID]]);
  }
  for (const producer of producers) await producer.stop();
});

test('G24 G34: it fails over with two controllers, to three replicas', { skip }, async () => {
  await awaitProgress(home.bootstrap, guest, TOPIC);
  await guest.mirrors('remove', THERE, TOPIC);
  common = await lastMirrored(guest, THERE);
  const source = await readTopic(home.bootstrap, TOPIC);
  assert.deepEqual(
    common,
    source.partitions.map(({ end }) => Number(end)),
  );
  await until('all replicas in sync', async () => {
    const placed = await placement(target, TOPIC);
    return placed.every(({ isr }) => isr.length === APACHE_IDS.length) ? true : undefined;
  });
  for (const { leader, replicas } of await placement(target, TOPIC)) {
    assert.ok(APACHE_IDS.includes(leader), `leader ${leader}`);
    assert.deepEqual([...replicas].sort(), APACHE_IDS);
  }
  const mirrored = { source, offsets: common, topic: TOPIC, bootstrap: target.bootstrap };
  await awaitMirrored(target.brokers, mirrored);
  await target.start();
});

test('G29 G34: a guest with such rights takes the topic back', { skip }, async () => {
  await writeSome(home);
  await writeSome(target);
  homeGuest = await startSecured('secured-home-guest', home);
  await mirror(homeGuest, BACK, target);
  await awaitProgress(target.bootstrap, homeGuest, TOPIC);
  const java = await javaClient();
  const expected = await java.readAll(target.bootstrap, TOPIC, 'read_committed');
  const read = await java.readAll(homeGuest.bootstrap, TOPIC, 'read_committed');
  assert.ok(expected.length > 0);
  assert.deepEqual(compareSequences(expected, read), []);
  const kept = join(homeGuest.dataDir, 'lost-and-found');
  assert.equal(existsSync(kept) ? readdirSync(kept).length : 0, PARTITIONS);
});

test('G24 G29: and fails over there, native again', { skip }, async () => {
  const wanted = await ends(target);
  await homeGuest.mirrors('remove', BACK, TOPIC);
  assert.deepEqual(await lastMirrored(homeGuest, BACK), wanted);
  const java = await javaClient();
  for (const [partition, end] of wanted.entries()) {
    assert.equal((await java.tryProduce(home.bootstrap, TOPIC, partition)).offset, end);
  }
  for (const { leader, replicas } of await placement(home, TOPIC)) {
    assert.deepEqual([leader, replicas], [1, [1]]);
  }
});
