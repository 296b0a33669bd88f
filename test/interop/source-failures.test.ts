/**
 * The source breaks while it is mirrored and written to: it is restarted, killed, its leaders move,
 * it loses records. The mirror goes on by itself: nothing is missing, nothing is there twice.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { javaClient, twoBrokerSource } from './clusters.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LiveProducer } from './live-producers.ts';
import {
  awaitProgress,
  awaitState,
  differencesWhenCaughtUp,
  lostOrDoubled,
  partitionsOf,
  until,
} from './mirror-watch.ts';
import { topicMetadata } from './raw-log.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const MIRROR = 'two-brokers';
const PARTITIONS = 2;
/** Replicas by partition: each broker leads one. */
const SPREAD = { 0: [1, 2], 1: [2, 1] };

let twinlog: TwinlogBroker;

if (skip === false) {
  before(async () => {
    const { bootstrap } = await twoBrokerSource();
    twinlog = await startTwinlog({ name: 'source-failures' });
    await twinlog.mirrors('create', MIRROR, '--source', bootstrap);
  });
  after(() => twinlog?.destroy());
}

/** A mirrored topic with an idempotent and a transactional producer at work. */
async function mirroredTopic(topic: string): Promise<LiveProducer[]> {
  const { bootstrap } = await twoBrokerSource();
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, PARTITIONS, {}, SPREAD);
  await twinlog.mirrors('add', MIRROR, topic);
  const common = { bootstrap, topic, partitions: PARTITIONS };
  const producers = [
    new LiveProducer(java, common),
    new LiveProducer(java, { ...common, transactional: true, valueBytes: 1_000 }),
  ];
  await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
  await Promise.all(producers.map((producer) => producer.more(3)));
  return producers;
}

/** The producers write on, and the mirror passes what the source had by then. */
async function assertGoesOn(topic: string, producers: readonly LiveProducer[]): Promise<void> {
  await Promise.all(producers.map((producer) => producer.more(3)));
  await awaitProgress((await twoBrokerSource()).bootstrap, twinlog, topic);
}

/** Ends the producers; all that they were told is written must be here once, and nothing else. */
async function assertEqual(topic: string, producers: readonly LiveProducer[]): Promise<void> {
  await Promise.all(producers.map((producer) => producer.stop()));
  const { bootstrap } = await twoBrokerSource();
  assert.deepEqual(await differencesWhenCaughtUp(bootstrap, twinlog, topic), []);
  const java = await javaClient();
  const read = await java.readAll(twinlog.bootstrap, topic, 'read_uncommitted');
  const acknowledged = producers.flatMap((producer) => producer.acknowledged);
  assert.ok(acknowledged.length > 50);
  assert.deepEqual(lostOrDoubled(read, acknowledged), []);
  for (const { state } of await awaitState(twinlog, MIRROR, topic, 'MIRRORING')) {
    assert.equal(state, 'MIRRORING');
  }
}

/** While the source is away, every partition says so. */
async function awaitUnreachable(topic: string): Promise<void> {
  await until('the partitions telling that the source is away', async () => {
    const causes = (await partitionsOf(twinlog, MIRROR, topic)).map(({ cause }) => cause);
    return causes.every((cause) => cause === 'SOURCE_UNREACHABLE') ? true : undefined;
  });
}

test('F4: the source is restarted in good order', { skip }, async () => {
  const topic = 'restarted';
  const source = await twoBrokerSource();
  const producers = await mirroredTopic(topic);
  await source.stop();
  await awaitUnreachable(topic);
  await source.start();
  await assertGoesOn(topic, producers);
  await assertEqual(topic, producers);
});

test('F4: all of the source is killed at once', { skip }, async () => {
  const topic = 'killed';
  const source = await twoBrokerSource();
  const producers = await mirroredTopic(topic);
  await Promise.all(source.nodes.map((node) => node.kill9()));
  await awaitUnreachable(topic);
  await source.start();
  await assertGoesOn(topic, producers);
  await assertEqual(topic, producers);
});

async function leaders(topic: string): Promise<number[]> {
  const { bootstrap } = await twoBrokerSource();
  const { partitions } = await (await javaClient()).describeTopic(bootstrap, topic);
  return partitions.map(({ leader }) => leader);
}

test('F3 F4: leaders move by election and by reassignment', { skip }, async () => {
  const topic = 'moved';
  const { bootstrap } = await twoBrokerSource();
  const java = await javaClient();
  const producers = await mirroredTopic(topic);
  await java.reassign(bootstrap, topic, { 0: [2, 1], 1: [1, 2] });
  for (const partition of [0, 1]) await java.electPreferredLeader(bootstrap, topic, partition);
  await assertGoesOn(topic, producers);
  assert.deepEqual(await leaders(topic), [2, 1]);
  // Both partitions on one broker, then on the other: the old leader has no replica any more.
  for (const broker of [1, 2]) {
    await java.reassign(bootstrap, topic, { 0: [broker], 1: [broker] });
    await assertGoesOn(topic, producers);
  }
  await java.reassign(bootstrap, topic, { 0: [1, 2], 1: [1, 2] });
  await java.electPreferredLeader(bootstrap, topic, 0);
  await assertGoesOn(topic, producers);
  await assertEqual(topic, producers);
});

test('F3 F4: a broker stops, the other one dies, and both come back', { skip }, async () => {
  const topic = 'failed-over';
  const source = await twoBrokerSource();
  const producers = await mirroredTopic(topic);
  await source.broker(1).stop();
  await assertGoesOn(topic, producers);
  await source.start();
  await inSync(topic);
  await source.broker(2).kill9();
  await assertGoesOn(topic, producers);
  await source.start();
  await assertGoesOn(topic, producers);
  await assertEqual(topic, producers);
});

/** Waits until every replica of the topic is in sync. */
async function inSync(topic: string): Promise<void> {
  const { bootstrap } = await twoBrokerSource();
  const java = await javaClient();
  await until('all replicas in sync', async () => {
    const { partitions } = await java.describeTopic(bootstrap, topic);
    return partitions.every(({ isr }) => isr.length === 2) ? true : undefined;
  });
}

/** Directories of kept tails of partition 0, as `<from>-<to>`. */
function keptTails(topic: string): string[] {
  const root = join(twinlog.dataDir, 'lost-and-found');
  const names = existsSync(root) ? readdirSync(root) : [];
  const ours = names.filter((name) => name.startsWith(`${topic}-`) && name.endsWith('-0'));
  return ours
    .flatMap((name) => readdirSync(join(root, name)))
    .map((name) => name.split('-').slice(0, 2).join('-'));
}

test('F10 T4: records that the source lost are cut here and kept', { skip }, async () => {
  const topic = 'unclean';
  const source = await twoBrokerSource();
  const java = await javaClient();
  const configs = { 'unclean.leader.election.enable': 'true' };
  await java.createTopic(source.bootstrap, topic, 1, configs, { 0: [1, 2] });
  await twinlog.mirrors('add', MIRROR, topic);
  const write = async (text: string, count: number): Promise<number[]> => {
    await java.openProducer(source.bootstrap, `${topic}/${text}`);
    const lists = Array.from({ length: count }, (_, n) => [{ topic, value: `${text} ${n}` }]);
    const offsets = await java.produceAll(`${topic}/${text}`, ...lists);
    await java.closeProducer(`${topic}/${text}`);
    return offsets;
  };
  await write('both brokers have', 6);
  await inSync(topic);
  await source.broker(2).stop();
  const lost = await write('one broker has', 5);
  await awaitProgress(source.bootstrap, twinlog, topic);
  await source.broker(1).kill9();
  await source.broker(2).launch();
  await until('an unclean election', async () => {
    const { topic: described } = await topicMetadata(source.bootstrap, topic);
    return described.partitions[0]?.leader === 2 ? true : undefined;
  });
  const instead = await write('instead of them', 3);
  assert.deepEqual(instead, lost.slice(0, 3));
  await source.start();
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
  assert.deepEqual(keptTails(topic), [`${lost[0]}-${(lost.at(-1) ?? 0) + 1}`]);
  await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
});
