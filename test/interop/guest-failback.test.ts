/**
 * Failing back between two real Apache Kafka clusters, each with its guest (G29, G32): what was
 * written on either side after a failover, and where every record is afterwards.
 *
 * The native topic of A is mirrored to B, fails over to B, is written on both sides, and is taken
 * back by A's guest; then the same the other way round. Tests build on each other.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { compareBatches, compareSequences } from './compare.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { placement, replicaBatches } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, partitionsOf, until } from './mirror-watch.ts';
import { parseBatches, type RawBatch } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const TOPIC = 'there-and-back';
const PARTITIONS = 3;
/** Nothing had been written to it by the first failover. */
const EMPTY = 2;
const TAG = 2n ** 40n;
const CONFIGS = { 'min.insync.replicas': '2', 'compression.type': 'lz4', 'retention.ms': '-1' };
const GROUP = 'readers';
const SAME = { upTo: 'highWatermark', producerIds: 'same' } as const;

interface Side {
  readonly cluster: KafkaCluster;
  readonly guest: TwinlogBroker;
  /** Of the mirror that brings the other side's topic here. */
  readonly mirror: string;
}

let a: Side;
let b: Side;
/** Where the sides last agreed, per partition. */
let common: number[];

async function startSide(name: string, brokers: number, mirror: string): Promise<Side> {
  const cluster = await startKafka({ name: `back-${name}`, brokers, controller: 'first' });
  const guest = await startGuest({ name: `back-guest-${name}`, cluster });
  return { cluster, guest, mirror };
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    [a, b] = await Promise.all([startSide('a', 2, 'from-b'), startSide('b', 2, 'from-a')]);
    const java = await javaClient();
    await java.createTopic(a.cluster.bootstrap, TOPIC, PARTITIONS, CONFIGS);
    await java.createTopic(a.cluster.bootstrap, 'plain', 1);
    await b.guest.mirrors('create', b.mirror, '--source', a.cluster.bootstrap);
    await a.guest.mirrors('create', a.mirror, '--source', b.cluster.bootstrap);
  });
  after(async () => {
    for (const side of [a, b]) {
      await side?.guest.destroy();
      await side?.cluster.destroy();
    }
  });
}

/** Batches of three records; transactional and plain ones, to each partition of the list. */
async function write(side: Side, text: string, partitions: readonly number[]): Promise<void> {
  const java = await javaClient();
  const { bootstrap } = side.cluster;
  const three = (partition: number, round: string) =>
    [0, 1, 2].map((n) => ({
      topic: TOPIC,
      partition,
      key: `${text}-${partition}`,
      value: `${text}-${round}-${n}`,
    }));
  await java.openProducer(bootstrap, `${text}-plain`);
  await java.openProducer(bootstrap, `${text}-sure`, { 'transactional.id': text });
  for (const partition of partitions) {
    await java.produceAll(`${text}-plain`, three(partition, 'a'), three(partition, 'b'));
    for (const [round, end] of [
      ['c', 'commit'],
      ['d', 'abort'],
    ] as const) {
      await java.begin(`${text}-sure`);
      await java.produceAll(`${text}-sure`, three(partition, round));
      await java[end](`${text}-sure`);
    }
    await java.produceAll(`${text}-plain`, three(partition, 'e'));
  }
  await java.closeProducer(`${text}-plain`);
  await java.closeProducer(`${text}-sure`);
}

async function ends(side: Side): Promise<number[]> {
  const offsets = await (await javaClient()).offsets(side.cluster.bootstrap, TOPIC);
  return Array.from({ length: PARTITIONS }, (_, index) => offsets[index]?.latest ?? -1);
}

/** Waits until `to` holds all that `from` has. */
async function caughtUp(to: Side, from: Side): Promise<void> {
  await awaitState(to.guest, to.mirror, TOPIC, 'MIRRORING');
  const wanted = await ends(from);
  await until('no lag', async () => {
    const partitions = await partitionsOf(to.guest, to.mirror, TOPIC);
    const isThere = partitions.every(
      ({ partition, destinationOffset }) => destinationOffset === wanted[partition],
    );
    return isThere ? true : undefined;
  });
}

/** What is set on the topic itself. */
async function overrides(side: Side): Promise<Record<string, string>> {
  const java = await javaClient();
  const { bootstrap } = side.cluster;
  const inherited = await java.describeConfigs(bootstrap, 'TOPIC', '__consumer_offsets');
  const all = await java.describeConfigs(bootstrap, 'TOPIC', TOPIC);
  const names = ['min.insync.replicas', 'compression.type', 'retention.ms', 'max.message.bytes'];
  const own = names.filter((name) => name in CONFIGS || all[name] !== inherited[name]);
  return Object.fromEntries(own.map((name) => [name, String(all[name])]));
}

/** The topic leaves the mirror and is native at once: its next offset is the mirror's last. */
async function failOver(side: Side): Promise<number[]> {
  await side.guest.mirrors('remove', side.mirror, TOPIC);
  const at = await ends(side);
  for (const { leader, replicas } of await placement(side.cluster, TOPIC)) {
    assert.ok(leader !== GUEST_ID && !replicas.includes(GUEST_ID), `led by ${leader}`);
  }
  const rows = await partitionsOf(side.guest, side.mirror, TOPIC);
  for (const { partition, lastMirroredOffset } of rows) {
    assert.equal(lastMirroredOffset, at[partition], `partition ${partition}`);
  }
  return at;
}

/** Batches of a partition on every broker of a side, which must be the same everywhere. */
function batchesOf(side: Side, partition: number): RawBatch[] {
  const [first, ...others] = side.cluster.brokers.map((node) =>
    replicaBatches(node, TOPIC, partition),
  );
  for (const other of others) {
    assert.deepEqual(compareBatches(first ?? [], other, SAME), [], `partition ${partition}`);
  }
  return first ?? [];
}

function below(batches: readonly RawBatch[], offset: number): RawBatch[] {
  return batches.filter(({ baseOffset }) => baseOffset < BigInt(offset));
}

/** All that a guest kept of a partition, by the offset that it begins with. */
function kept(side: Side, partition: number): Map<number, RawBatch[]> {
  const root = join(side.guest.dataDir, 'lost-and-found');
  const found = new Map<number, RawBatch[]>();
  const directories = existsSync(root) ? readdirSync(root) : [];
  for (const directory of directories.filter((name) => name.endsWith(`-${partition}`))) {
    for (const tail of readdirSync(join(root, directory))) {
      const from = Number(tail.split('-')[0]);
      assert.ok(!found.has(from), `two tails from ${from}`);
      const [file = ''] = readdirSync(join(root, directory, tail));
      found.set(from, parseBatches(readFileSync(join(root, directory, tail, file))));
    }
  }
  return found;
}

/** Waits until guests alone are in sync and nothing of the lock is left. */
async function settled(side: Side): Promise<void> {
  await until('guests only, unlocked', async () => {
    const partitions = await placement(side.cluster, TOPIC);
    const isAlone = partitions.every(({ isr }) => String(isr) === String(GUEST_ID));
    const { 'max.message.bytes': limit } = await overrides(side);
    return isAlone && limit === undefined ? true : undefined;
  });
}

test('G29 the way there: mirrored, failed over, written on both sides', { skip }, async () => {
  await write(a, 'first', [0, 1]);
  await b.guest.mirrors('add', b.mirror, TOPIC);
  await caughtUp(b, a);
  common = await failOver(b);
  assert.equal(common[EMPTY], 0);
  await write(a, 'lost', [0, 2]);
  await write(b, 'second', [0, 1, 2]);
  const java = await javaClient();
  const past = { 0: (await ends(a))[0] ?? 0, 1: 3 };
  await java.commitOffsets(a.cluster.bootstrap, GROUP, TOPIC, past);
});

/** Takes the topic back, and looks at every record: kept aside, still there, come over. */
async function failBack(to: Side, from: Side): Promise<void> {
  const before = common.map((_, index) => batchesOf(to, index));
  const keptBefore = common.map((_, index) => kept(to, index));
  await to.guest.mirrors('add', to.mirror, TOPIC);
  await caughtUp(to, from);
  await settled(to);
  for (const [index, offset] of common.entries()) {
    const where = `partition ${index}`;
    const tail = (before[index] ?? []).filter(({ baseOffset }) => baseOffset >= BigInt(offset));
    const found = kept(to, index);
    for (const known of keptBefore[index]?.keys() ?? []) found.delete(known);
    assert.deepEqual([...found.keys()], tail.length === 0 ? [] : [offset], where);
    assert.deepEqual(compareBatches(tail, found.get(offset) ?? [], SAME), [], where);
    const source = batchesOf(from, index).filter((batch) => batch.baseOffset >= BigInt(offset));
    const differences = await until(`${where} is the same everywhere`, async () => {
      const now = batchesOf(to, index);
      const end = source.at(-1)?.lastOffset ?? BigInt(offset) - 1n;
      const isWhole = (now.at(-1)?.lastOffset ?? -1n) === end;
      return isWhole ? compareWhole(now, before[index] ?? [], source, offset) : undefined;
    });
    assert.deepEqual(differences, [], where);
  }
}

/** Below the offset all is as it was; from there on all is the source's, with marked ids. */
function compareWhole(
  now: readonly RawBatch[],
  before: readonly RawBatch[],
  source: readonly RawBatch[],
  offset: number,
): string[] {
  const lower = below(now, offset);
  // Of all ids that are new here; zero would mean that they are not marked.
  const [tag = 0n] = now.slice(lower.length).map(({ producerId }) => producerId / TAG);
  const expected = source.map((batch) => {
    const { producerId } = batch;
    const isNew = producerId >= 0n && producerId < TAG;
    return isNew ? { ...batch, producerId: producerId + tag * TAG } : batch;
  });
  assert.ok(lower.length === now.length || (tag >= 1n && tag <= 4095n), `tag ${tag}`);
  return [
    ...compareBatches(below(before, offset), lower, SAME),
    ...compareBatches(expected, now.slice(lower.length), SAME),
  ];
}

test('G29 it is taken back: what was cut is kept, what both had stays', { skip }, async () => {
  await failBack(a, b);
});

test('G32 groups of A that had read what was cut start where the sides agreed', {
  skip,
}, async () => {
  const java = await javaClient();
  const offsets = await java.groupOffsets(a.cluster.bootstrap, GROUP);
  assert.deepEqual(offsets, { [`${TOPIC}-0`]: common[0], [`${TOPIC}-1`]: 3 });
});

for (const isolation of ['read_uncommitted', 'read_committed'] as const) {
  test(`G29 a client of A reads all of it, ${isolation}`, { skip }, async () => {
    const java = await javaClient();
    const expected = await java.readAll(b.cluster.bootstrap, TOPIC, isolation);
    for (const bootstrap of [a.guest.bootstrap, a.cluster.bootstrap]) {
      const read = await java.readAll(bootstrap, TOPIC, isolation);
      assert.deepEqual(compareSequences(expected, read), []);
    }
  });
}

test('G24 it fails over at A: native, with the settings that it had', { skip }, async () => {
  const wanted = await ends(b);
  common = await failOver(a);
  assert.deepEqual(common, wanted);
  assert.deepEqual(await overrides(a), CONFIGS);
  const java = await javaClient();
  const { offset } = await java.tryProduce(a.cluster.bootstrap, TOPIC);
  assert.equal(offset, common[0]);
});

test('G29 and back again to B, twice round', { skip }, async () => {
  await write(a, 'third', [0, 1]);
  await write(b, 'lost-too', [1, 2]);
  await failBack(b, a);
  common = await failOver(b);
  assert.deepEqual(common, await ends(a));
  await write(b, 'fourth', [0, 1, 2]);
  await failBack(a, b);
});
