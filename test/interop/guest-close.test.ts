/**
 * A failover to a real Apache Kafka cluster while a transaction is open, which is ended by a marker
 * instead of a cut (G24a), and the failback: the marker ends it at the first cluster, too.
 *
 * Tests build on each other.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import type { ClientRecord } from './client.ts';
import { javaClient } from './clusters.ts';
import { compareSequences } from './compare.ts';
import { startGuest } from './guest.ts';
import { killAtPoints } from './guest-faults.ts';
import { replicaBatches } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, partitionsOf, until } from './mirror-watch.ts';
import type { RawBatch } from './raw-log.ts';
import { hangingTransactions, tool } from './tools.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const isFull = process.env.TWINLOG_TEST === 'full';
const TOPIC = 'undecided';
const TAG = 2n ** 40n;
/** Transactional, control. */
const MARKER_ATTRIBUTES = 0x30;
/** Where the source's last stable offset was, in the middle of two transactions. */
const LAST_MIRRORED = 6;

interface Side {
  readonly cluster: KafkaCluster;
  readonly guest: TwinlogBroker;
}

let a: Side;
let b: Side;

async function startSide(name: string): Promise<Side> {
  const cluster = await startHost({ name: `close-${name}` });
  return { cluster, guest: await startGuest({ name: `close-guest-${name}`, cluster }) };
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    [a, b] = await Promise.all([startSide('a'), startSide('b')]);
    const java = await javaClient();
    await java.createTopic(a.cluster.bootstrap, TOPIC, 1);
    await b.guest.mirrors('create', 'from-a', '--source', a.cluster.bootstrap);
    await a.guest.mirrors('create', 'from-b', '--source', b.cluster.bootstrap);
  });
  after(async () => {
    for (const side of [a, b]) {
      await side?.guest.destroy();
      await side?.cluster.destroy();
    }
  });
}

function three(text: string, topic: string) {
  return [0, 1, 2].map((n) => ({ topic, partition: 0, value: `${text}-${n}` }));
}

async function ends({ cluster }: Side, topic = TOPIC): Promise<[latest: number, stable: number]> {
  const { 0: found } = await (await javaClient()).offsets(cluster.bootstrap, topic);
  return [found?.latest ?? -1, found?.lastStable ?? -1];
}

/** The batches that the Apache broker of a side has in its files. */
function batchesOf({ cluster }: Side, topic = TOPIC): RawBatch[] {
  const [node] = cluster.brokers;
  assert.ok(node);
  return replicaBatches(node, topic, 0);
}

function batchAt(side: Side, offset: number): RawBatch {
  const found = batchesOf(side).find(({ baseOffset }) => baseOffset === BigInt(offset));
  assert.ok(found, `a batch begins at ${offset}`);
  return found;
}

async function caughtUp(to: Side, mirror: string, end: number, topic = TOPIC): Promise<void> {
  await awaitState(to.guest, mirror, topic, 'MIRRORING');
  await until(`all up to ${end}`, async () => {
    const [partition] = await partitionsOf(to.guest, mirror, topic);
    return partition?.destinationOffset === end ? true : undefined;
  });
}

async function committed({ cluster }: Side): Promise<ClientRecord[]> {
  return await (await javaClient()).readAll(cluster.bootstrap, TOPIC, 'read_committed');
}

function values(records: readonly ClientRecord[]): string[] {
  return records.map(({ offset, value }) => `${offset} ${value}`);
}

const hanging = ({ cluster }: Side) => hangingTransactions(cluster.bootstrap, TOPIC);

/** Plain records and two transactions; one is decided, its marker above what the other leaves. */
async function writeUndecided(topic: string): Promise<void> {
  const java = await javaClient();
  const { bootstrap } = a.cluster;
  await java.openProducer(bootstrap, `${topic}-plain`);
  await java.produceAll(`${topic}-plain`, three('plain', topic));
  for (const which of ['first', 'second']) {
    const name = `${topic}-${which}`;
    await java.openProducer(bootstrap, name, { 'transactional.id': name });
    await java.begin(name);
    await java.produceAll(name, three(which, topic));
  }
  await java.commit(`${topic}-first`);
  assert.deepEqual(await ends(a, topic), [10, LAST_MIRRORED]);
}

test('G24a what is open at the failover is aborted where mirroring ended', { skip }, async () => {
  await writeUndecided(TOPIC);
  await b.guest.mirrors('add', 'from-a', TOPIC);
  await caughtUp(b, 'from-a', LAST_MIRRORED);
  await until('the Apache broker has it', async () =>
    batchesOf(b).length === 2 ? true : undefined,
  );
  const opened = batchAt(b, 3);
  assert.deepEqual(await hanging(b), [String(opened.producerId)]);
  const output = await b.guest.mirrors(
    ...['remove', 'from-a', TOPIC, '--open-transactions', 'close', '--json'],
  );
  const lines = output.trim().split('\n');
  const [, stopped] = lines.map((line): unknown => JSON.parse(line));
  const partition = { topic: TOPIC, partition: 0, state: 'STOPPED' };
  assert.deepEqual(stopped, { ...partition, lastMirroredOffset: LAST_MIRRORED });
  const end = LAST_MIRRORED + 1;
  assert.deepEqual(await ends(b), [end, end]);
  const marker = batchAt(b, LAST_MIRRORED);
  assert.equal(opened.producerId % TAG, batchAt(a, 3).producerId);
  assert.ok(opened.producerId >= TAG);
  assert.deepEqual(
    [marker.producerId, marker.producerEpoch, marker.attributes, marker.count],
    [opened.producerId, opened.producerEpoch, MARKER_ATTRIBUTES, 1],
  );
});

test('G24a readers of committed data are at the end, and see what comes', { skip }, async () => {
  const java = await javaClient();
  const plain = ['0 plain-0', '1 plain-1', '2 plain-2'];
  assert.deepEqual(values(await committed(b)), plain);
  const { offset } = await java.tryProduce(b.cluster.bootstrap, TOPIC);
  assert.equal(offset, LAST_MIRRORED + 1);
  const read = await committed(b);
  assert.deepEqual(values(read.slice(0, 3)), plain);
  assert.deepEqual(
    read.slice(3).map((record) => record.offset),
    [offset],
  );
});

test("G24a Kafka's own tools find a sound log and nothing that hangs", { skip }, async () => {
  const [node] = b.cluster.brokers;
  assert.ok(node);
  const directory = join(node.dataDir, `${TOPIC}-0`);
  const logs = readdirSync(directory).filter((name) => name.endsWith('.log'));
  const files = logs.map((name) => join(directory, name)).join();
  const dump = await tool('dumpLog', ['--deep-iteration', '--print-data-log', '--files', files]);
  assert.equal(dump.match(/endTxnMarker: ABORT coordinatorEpoch: 0/g)?.length, 1, dump);
  assert.doesNotMatch(dump, /isvalid: false|Mismatch|Non-consecutive|not match/i);
  assert.deepEqual(await hanging(b), []);
});

test('G24a G31 taken back, the marker ends it under its first id', { skip }, async () => {
  const java = await javaClient();
  await java.abort(`${TOPIC}-second`);
  const original = batchAt(a, 3).producerId;
  const [end] = await ends(b);
  await a.guest.mirrors('add', 'from-b', TOPIC);
  await caughtUp(a, 'from-b', end);
  await until('all is there at the Apache broker', async () =>
    batchesOf(a).at(-1)?.lastOffset === BigInt(end) - 1n ? true : undefined,
  );
  const marker = batchAt(a, LAST_MIRRORED);
  assert.deepEqual([marker.producerId, marker.attributes], [original, MARKER_ATTRIBUTES]);
  await a.guest.mirrors('remove', 'from-b', TOPIC);
  assert.deepEqual(await ends(a), [end, end]);
  assert.deepEqual(compareSequences(await committed(b), await committed(a)), []);
  const { offset } = await java.tryProduce(a.cluster.bootstrap, TOPIC);
  assert.equal(offset, end);
});

test('G24a G28 killed before and after the marker, there is one', {
  skip: isFull ? skip : 'runs with TWINLOG_TEST=full',
}, async () => {
  const topic = 'killed';
  await (await javaClient()).createTopic(a.cluster.bootstrap, topic, 1);
  await writeUndecided(topic);
  await b.guest.mirrors('add', 'from-a', topic);
  await caughtUp(b, 'from-a', LAST_MIRRORED, topic);
  const points = ['mirror partition is STOPPING', 'mirror stop: open transactions aborted'];
  await killAtPoints(b.guest, points, () =>
    b.guest.mirrors('remove', 'from-a', topic, '--open-transactions', 'close', '--no-wait'),
  );
  const [stopped] = await awaitState(b.guest, 'from-a', topic, 'STOPPED');
  assert.equal(stopped?.lastMirroredOffset, LAST_MIRRORED);
  const end = LAST_MIRRORED + 1;
  assert.deepEqual(await ends(b, topic), [end, end]);
  const shape = batchesOf(b, topic).map(({ baseOffset, attributes }) => [baseOffset, attributes]);
  assert.deepEqual(shape, [
    [0n, 0],
    [3n, 0x10],
    [BigInt(LAST_MIRRORED), MARKER_ATTRIBUTES],
  ]);
});
