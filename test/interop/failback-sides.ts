/**
 * Two real Apache Kafka clusters, each with its guest, and one topic that goes to and fro between
 * them: what is written on either side, and where every record must be after a failback (G29).
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { javaClient } from './clusters.ts';
import { compareBatches } from './compare.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { placement, replicaBatches } from './guest-watch.ts';
import { awaitState, partitionsOf, until } from './mirror-watch.ts';
import { parseBatches, type RawBatch } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

export const TOPIC = 'there-and-back';
export const PARTITIONS = 3;
export const CONFIGS = {
  'min.insync.replicas': '2',
  'compression.type': 'lz4',
  'retention.ms': '-1',
};
/** A native topic without settings of its own. */
const PLAIN = 'plain';
/** Producer ids of a mirror are the source's with a multiple of it added. */
export const TAG = 2n ** 40n;
/** Logs of one side, or of both, under the same ids. */
export const SAME = { upTo: 'highWatermark', producerIds: 'same' } as const;

/** A cluster with its guest. */
export interface Side {
  readonly cluster: KafkaCluster;
  readonly guest: TwinlogBroker;
  /** Of the mirror that brings the other side's topic here. */
  readonly mirror: string;
}

async function startSide(name: string, mirror: string): Promise<Side> {
  const cluster = await startHost({ name, brokers: 2, controller: 'first' });
  return { cluster, guest: await startGuest({ name: `${name}-guest`, cluster }), mirror };
}

/** Two sides with a mirror each way, and the topic, empty, on the first. */
export async function startSides(
  name: string,
  configs: Readonly<Record<string, string>> = CONFIGS,
): Promise<[a: Side, b: Side]> {
  const sides = await Promise.all([
    startSide(`${name}-a`, 'from-b'),
    startSide(`${name}-b`, 'from-a'),
  ]);
  const [a, b] = sides;
  const java = await javaClient();
  for (const { cluster } of sides) await java.createTopic(cluster.bootstrap, PLAIN, 1);
  await java.createTopic(a.cluster.bootstrap, TOPIC, PARTITIONS, configs);
  await b.guest.mirrors('create', b.mirror, '--source', a.cluster.bootstrap);
  await a.guest.mirrors('create', a.mirror, '--source', b.cluster.bootstrap);
  return sides;
}

/** Ends both. */
export async function destroySides(...sides: (Side | undefined)[]): Promise<void> {
  for (const side of sides) {
    await side?.guest.destroy();
    await side?.cluster.destroy();
  }
}

/** Batches of three records; transactional and plain ones, to each partition of the list. */
export async function write(
  side: Side,
  text: string,
  partitions: readonly number[],
): Promise<void> {
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

export async function ends(side: Side): Promise<number[]> {
  const offsets = await (await javaClient()).offsets(side.cluster.bootstrap, TOPIC);
  return Array.from({ length: PARTITIONS }, (_, index) => offsets[index]?.latest ?? -1);
}

/** Waits until `to` holds all that `from` has. */
export async function caughtUp(to: Side, from: Side): Promise<void> {
  await awaitState(to.guest, to.mirror, TOPIC, 'MIRRORING');
  const wanted = String(await ends(from));
  await until(`offsets ${wanted}`, async () =>
    String(await ends(to)) === wanted ? true : undefined,
  );
}

/** What is set on the topic itself. */
export async function overrides(side: Side): Promise<Record<string, string>> {
  const java = await javaClient();
  const { bootstrap } = side.cluster;
  const inherited = await java.describeConfigs(bootstrap, 'TOPIC', PLAIN);
  const all = await java.describeConfigs(bootstrap, 'TOPIC', TOPIC);
  const names = ['min.insync.replicas', 'compression.type', 'retention.ms', 'max.message.bytes'];
  const own = names.filter((name) => name in CONFIGS || all[name] !== inherited[name]);
  return Object.fromEntries(own.map((name) => [name, String(all[name])]));
}

/** The topic leaves the mirror and is native at once: its next offset is the mirror's last. */
export async function failOver(side: Side): Promise<number[]> {
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
export function batchesOf(side: Side, partition: number): RawBatch[] {
  const [first, ...others] = side.cluster.brokers.map((node) =>
    replicaBatches(node, TOPIC, partition),
  );
  for (const other of others) {
    assert.deepEqual(compareBatches(first ?? [], other, SAME), [], `partition ${partition}`);
  }
  return first ?? [];
}

export function below(batches: readonly RawBatch[], offset: number): RawBatch[] {
  return batches.filter(({ baseOffset }) => baseOffset < BigInt(offset));
}

/** All tails that a guest kept of a partition, by the offset that they begin with. */
export function keptTails(side: Side, partition: number): [from: number, batches: RawBatch[]][] {
  const root = join(side.guest.dataDir, 'lost-and-found');
  const directories = existsSync(root) ? readdirSync(root) : [];
  return directories
    .filter((name) => name.endsWith(`-${partition}`))
    .flatMap((name) => readdirSync(join(root, name)).map((tail) => join(root, name, tail)))
    .map((tail) => {
      const [file = ''] = readdirSync(tail);
      return [Number.parseInt(file, 10), parseBatches(readFileSync(join(tail, file)))];
    });
}

/** The same where each of them begins somewhere else. */
function kept(side: Side, partition: number): Map<number, RawBatch[]> {
  const tails = keptTails(side, partition);
  const found = new Map(tails);
  assert.equal(found.size, tails.length, 'two tails from one offset');
  return found;
}

/** Waits until guests alone are in sync and nothing of the lock is left. */
export async function settled(side: Side): Promise<void> {
  await until('guests only, unlocked', async () => {
    const partitions = await placement(side.cluster, TOPIC);
    const isAlone = partitions.every(({ isr }) => String(isr) === String(GUEST_ID));
    const { 'max.message.bytes': limit } = await overrides(side);
    return isAlone && limit === undefined ? true : undefined;
  });
}

/** Takes the topic back, and looks at every record: kept aside, still there, come over. */
export async function failBack(to: Side, from: Side, common: readonly number[]): Promise<void> {
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
    await isSame(to, from, index, offset, before[index] ?? []);
  }
}

/** Waits until all brokers of a side hold what they had below the offset, and the other's above. */
export async function isSame(
  to: Side,
  from: Side,
  partition: number,
  offset: number,
  before: readonly RawBatch[],
): Promise<void> {
  const where = `partition ${partition}`;
  const source = batchesOf(from, partition).filter((batch) => batch.baseOffset >= BigInt(offset));
  const differences = await until(`${where} is the same everywhere`, async () => {
    const now = batchesOf(to, partition);
    const end = source.at(-1)?.lastOffset ?? BigInt(offset) - 1n;
    const isWhole = (now.at(-1)?.lastOffset ?? -1n) === end;
    return isWhole ? compareWhole(now, before, source, offset) : undefined;
  });
  assert.deepEqual(differences, [], where);
}

/** Below the offset all is as it was; from there on all is the source's, with marked ids. */
export function compareWhole(
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
