/**
 * The offsets of consumer groups, from a real Apache Kafka to a twinlog that mirrors it: groups of
 * every kind go on at the destination where they were, after a failover without a gap or a repeat.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClientRecord } from './client.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { interopSkipReason, unavailable } from './kafka-jars.ts';
import { awaitProgress, awaitState, until } from './mirror-watch.ts';
import { type GroupReader, librdkafkaMember } from './other-clients.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const MIRROR = 'groups-mirror';
const TOPIC = 'groups-topic';
const RECORDS = 60;
/** Of 2 × 60 records, so that the members stop in the middle of a partition. */
const READ_BEFORE = 77;
const INTERVAL_MS = 200;
/** Many intervals: what has not been copied by then is not going to be. */
const QUIET_MS = 8 * INTERVAL_MS;
const EARLIEST = { 'auto.offset.reset': 'earliest' };

let twinlog: TwinlogBroker;
let source: string;

/** Members under test, by the name of their group. */
const members = new Map<string, { readonly there: GroupReader; readonly here: GroupReader }>();
const readBefore = new Map<string, ClientRecord[]>();

function javaMember(config: Readonly<Record<string, string>>): GroupReader {
  return async (bootstrap, topic, group, count) => {
    const java = await javaClient();
    const name = `${group}@${bootstrap}`;
    await java.openMember(bootstrap, name, group, topic, config);
    const records = await java.readAsMember(name, count);
    await java.closeMember(name);
    return records;
  };
}

async function offsetsAt(bootstrap: string, group: string): Promise<Record<string, number>> {
  return await (await javaClient()).groupOffsets(bootstrap, group);
}

/** Waits until the group has these offsets at the destination. */
async function awaitOffsets(group: string, wanted: Record<string, number>): Promise<void> {
  let seen: Record<string, number> = {};
  const look = async (): Promise<true | undefined> => {
    seen = await offsetsAt(twinlog.bootstrap, group);
    return JSON.stringify(sorted(seen)) === JSON.stringify(sorted(wanted)) ? true : undefined;
  };
  await until(`${group} at ${JSON.stringify(wanted)}`, look, 15_000).catch((error: Error) => {
    throw new Error(`${error.message}: it is at ${JSON.stringify(seen)}`, { cause: error });
  });
}

function sorted(offsets: Record<string, number>): [string, number][] {
  return Object.entries(offsets).sort(([a], [b]) => (a < b ? -1 : 1));
}

async function write(bootstrap: string, prefix: string, count: number): Promise<void> {
  const java = await javaClient();
  await java.openProducer(bootstrap, prefix);
  const lists = Array.from({ length: count }, (_, index) =>
    [0, 1].map((partition) => ({ topic: TOPIC, partition, value: `${prefix} ${index}` })),
  );
  await java.produceAll(prefix, ...lists);
  await java.closeProducer(prefix);
}

/** What was read, as `partition@offset`. */
function places(records: readonly ClientRecord[]): string[] {
  return records
    .map(({ partition, offset }) => `${partition}@${String(offset).padStart(4, '0')}`)
    .sort();
}

if (skip === false) {
  before(async () => {
    source = (await sourceCluster()).bootstrap;
    const java = await javaClient();
    await java.createTopic(source, TOPIC, 2);
    await write(source, 'before', RECORDS);
    const classic = javaMember({ ...EARLIEST, 'group.protocol': 'classic' });
    const modern = javaMember({ ...EARLIEST, 'group.protocol': 'consumer' });
    // Without a committed offset these fail at the destination.
    const here = javaMember({ 'group.protocol': 'classic' });
    members.set('java-classic', { there: classic, here });
    members.set('java-consumer', { there: modern, here });
    const rdkafka = await librdkafkaMember();
    if (rdkafka === undefined) unavailable('librdkafka', 'python3 is not installed');
    else members.set('librdkafka', { there: rdkafka, here: rdkafka });
    twinlog = await startTwinlog({
      name: 'groups',
      settings: { 'group.initial.rebalance.delay.ms': '0', 'offsets.topic.num.partitions': '4' },
    });
    const interval = `mirror.group.offset.sync.interval.ms=${INTERVAL_MS}`;
    const filters = ['mirror.groups.exclude=hidden-.*', interval];
    const configs = filters.flatMap((config) => ['--config', config]);
    await twinlog.mirrors('create', MIRROR, '--source', source, ...configs);
    await twinlog.mirrors('add', MIRROR, TOPIC);
    await awaitState(twinlog, MIRROR, TOPIC, 'MIRRORING');
    await awaitProgress(source, twinlog, TOPIC);
  });
  after(() => twinlog?.destroy());
}

test('Y6: groups of every kind have the offsets of the source', { skip }, async () => {
  const reads = [...members].map(async ([group, { there }]) => {
    readBefore.set(group, await there(source, TOPIC, group, READ_BEFORE));
    const committed = await offsetsAt(source, group);
    const positions = Object.values(committed);
    assert.equal(
      positions.reduce((sum, offset) => sum + offset, 0),
      READ_BEFORE,
      `${group} committed behind what it read: ${JSON.stringify(committed)}`,
    );
    await awaitOffsets(group, committed);
  });
  await Promise.all(reads);
});

test('Y6: offset 0 counts, excluded groups and other topics do not', { skip }, async () => {
  const java = await javaClient();
  await java.createTopic(source, 'groups-other', 1);
  await java.commitOffsets(source, 'hidden-1', TOPIC, { 0: 7 });
  await java.commitOffsets(source, 'shown', 'groups-other', { 0: 0 });
  await java.commitOffsets(source, 'shown', TOPIC, { 0: 0, 1: 3 });
  await awaitOffsets('shown', { [`${TOPIC}-0`]: 0, [`${TOPIC}-1`]: 3 });
  await sleep(QUIET_MS);
  assert.deepEqual(await offsetsAt(twinlog.bootstrap, 'hidden-1'), {});
});

test('Y6: offsets go back with the source, and are clamped to the log here', { skip }, async () => {
  const java = await javaClient();
  await java.commitOffsets(source, 'clamped', TOPIC, { 0: 40, 1: 1_000_000 });
  await awaitOffsets('clamped', { [`${TOPIC}-0`]: 40, [`${TOPIC}-1`]: RECORDS });
  await java.commitOffsets(source, 'clamped', TOPIC, { 0: 2, 1: 50 });
  await awaitOffsets('clamped', { [`${TOPIC}-0`]: 2, [`${TOPIC}-1`]: 50 });
  await java.deleteRecords(source, TOPIC, { 0: 5 });
  await awaitOffsets('clamped', { [`${TOPIC}-0`]: 5, [`${TOPIC}-1`]: 50 });
  assert.deepEqual(await offsetsAt(source, 'clamped'), {
    [`${TOPIC}-0`]: 2,
    [`${TOPIC}-1`]: 50,
  });
});

test('Y6: a group with members here is left alone until they leave', { skip }, async () => {
  const java = await javaClient();
  await java.commitOffsets(source, 'live', TOPIC, { 0: 10, 1: 10 });
  await awaitOffsets('live', { [`${TOPIC}-0`]: 10, [`${TOPIC}-1`]: 10 });
  await java.openMember(twinlog.bootstrap, 'live-here', 'live', TOPIC);
  const read = await java.readAsMember('live-here', 30);
  const kept = await offsetsAt(twinlog.bootstrap, 'live');
  assert.ok(read.every(({ offset }) => offset >= 10));
  assert.equal(
    Object.values(kept).reduce((sum, offset) => sum + offset, 0),
    50,
  );
  await java.commitOffsets(source, 'live', TOPIC, { 0: 11, 1: 12 });
  await sleep(QUIET_MS);
  assert.deepEqual(await offsetsAt(twinlog.bootstrap, 'live'), kept);
  await java.closeMember('live-here');
  await awaitOffsets('live', { [`${TOPIC}-0`]: 11, [`${TOPIC}-1`]: 12 });
});

test('Y6 G27: after a failover every group goes on where it was', { skip }, async () => {
  await write(source, 'late', 3);
  await awaitProgress(source, twinlog, TOPIC);
  await twinlog.mirrors('remove', MIRROR, TOPIC);
  await write(twinlog.bootstrap, 'after', 5);
  const perPartition = RECORDS + 3 + 5;
  const all = [0, 1].flatMap((partition) =>
    Array.from({ length: perPartition }, (_, offset) => ({ partition, offset }) as ClientRecord),
  );
  const reads = [...members].map(async ([group, { here }]) => {
    const before = readBefore.get(group) ?? [];
    const rest = await here(twinlog.bootstrap, TOPIC, group, all.length - before.length);
    assert.deepEqual(places([...before, ...rest]), places(all), group);
  });
  await Promise.all(reads);
});

test('Y6: nothing is copied once the topic was stopped', { skip }, async () => {
  const java = await javaClient();
  const kept = await offsetsAt(twinlog.bootstrap, 'shown');
  await java.commitOffsets(source, 'shown', TOPIC, { 0: 20, 1: 20 });
  await sleep(QUIET_MS);
  assert.deepEqual(await offsetsAt(twinlog.bootstrap, 'shown'), kept);
});

test('B1: mirroring again lowers what groups have above the cut', { skip }, async () => {
  const java = await javaClient();
  const lastMirrored = RECORDS + 3;
  await java.commitOffsets(twinlog.bootstrap, 'ours', TOPIC, {
    0: lastMirrored + 4,
    1: lastMirrored - 1,
  });
  await twinlog.mirrors('add', MIRROR, TOPIC);
  await awaitState(twinlog, MIRROR, TOPIC, 'MIRRORING');
  assert.deepEqual(await offsetsAt(twinlog.bootstrap, 'ours'), {
    [`${TOPIC}-0`]: lastMirrored,
    [`${TOPIC}-1`]: lastMirrored - 1,
  });
  for (const group of members.keys()) {
    await awaitOffsets(group, await offsetsAt(source, group));
  }
});
