/**
 * Group offsets there and back again between two twinlogs: a failover, writes on both sides, and a
 * failback, which cuts the old side's tail and lowers what groups had in it.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { javaClient } from './clusters.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitProgress, awaitState, until } from './mirror-watch.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const TOPIC = 'there-and-back';
const KEY = `${TOPIC}-0`;

let west: TwinlogBroker;
let east: TwinlogBroker;

async function write(broker: TwinlogBroker, from: number, count: number): Promise<void> {
  const java = await javaClient();
  const name = `${broker.name} ${from}`;
  await java.openProducer(broker.bootstrap, name);
  const values = Array.from({ length: count }, (_, index) => `${broker.name} ${from + index}`);
  const offsets = await java.produceAll(name, ...values.map((value) => [{ topic: TOPIC, value }]));
  await java.closeProducer(name);
  assert.deepEqual(
    offsets,
    values.map((_, index) => from + index),
  );
}

async function commit(broker: TwinlogBroker, group: string, offset: number): Promise<void> {
  await (await javaClient()).commitOffsets(broker.bootstrap, group, TOPIC, { 0: offset });
}

async function offsetOf(broker: TwinlogBroker, group: string): Promise<number | undefined> {
  return (await (await javaClient()).groupOffsets(broker.bootstrap, group))[KEY];
}

/** Waits until the group is there. */
async function awaitOffset(broker: TwinlogBroker, group: string, offset: number): Promise<void> {
  const what = `${group} at ${offset} in ${broker.name}`;
  const look = async () => ((await offsetOf(broker, group)) === offset ? true : undefined);
  await until(what, look, 15_000);
}

async function mirror(from: TwinlogBroker, to: TwinlogBroker, name: string): Promise<void> {
  const interval = 'mirror.group.offset.sync.interval.ms=200';
  await to.mirrors('create', name, '--source', from.bootstrap, '--config', interval);
  await to.mirrors('add', name, TOPIC);
  await awaitState(to, name, TOPIC, 'MIRRORING');
  await awaitProgress(from.bootstrap, to, TOPIC);
}

if (skip === false) {
  before(async () => {
    const settings = { 'group.initial.rebalance.delay.ms': '0' };
    west = await startTwinlog({ name: 'west', settings });
    east = await startTwinlog({ name: 'east', settings });
    await (await javaClient()).createTopic(west.bootstrap, TOPIC, 1);
    await write(west, 0, 10);
  });
  after(async () => {
    await west?.destroy();
    await east?.destroy();
  });
}

test('Y6: a twinlog as the source has its groups copied', { skip }, async () => {
  await commit(west, 'app', 8);
  await commit(west, 'slow', 2);
  await mirror(west, east, 'eastward');
  await awaitOffset(east, 'app', 8);
  await awaitOffset(east, 'slow', 2);
});

test('B1: at the failback offsets above the last mirrored one are lowered', { skip }, async () => {
  await east.mirrors('remove', 'eastward', TOPIC);
  // What the old side writes and reads on has never left it.
  await write(west, 10, 5);
  await commit(west, 'app', 15);
  await commit(west, 'west-only', 13);
  await commit(west, 'west-slow', 9);
  await write(east, 10, 7);
  await commit(east, 'app', 12);
  await mirror(east, west, 'westward');
  assert.equal(await offsetOf(west, 'west-only'), 10);
  assert.equal(await offsetOf(west, 'west-slow'), 9);
  await awaitOffset(west, 'app', 12);
  await awaitOffset(west, 'slow', 2);
});

test('B1 Y6: a group goes on behind the cut with what the other side wrote', { skip }, async () => {
  const java = await javaClient();
  await west.mirrors('remove', 'westward', TOPIC);
  const read: (string | undefined)[][] = [];
  for (const group of ['west-only', 'app']) {
    await java.openMember(west.bootstrap, group, group, TOPIC);
    const records = await java.readAsMember(group, 3);
    await java.closeMember(group);
    read.push(records.map(({ value }) => value?.toString()));
  }
  assert.deepEqual(read, [
    ['east 10', 'east 11', 'east 12'],
    ['east 12', 'east 13', 'east 14'],
  ]);
});
