/**
 * kill -9 at random moments, while mirroring and while stopping, on the same data ever again: no
 * gap, no duplicate, no acknowledged write lost, and the states go on by themselves.
 *
 * The moments come from a seed that is printed; TWINLOG_SEED=<n> repeats them (as far as a live
 * system repeats anything). TWINLOG_TEST=full: twenty of each.
 */
import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../../src/base/random.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { type Acknowledged, LiveProducer } from './live-producers.ts';
import {
  awaitState,
  differencesBelow,
  differencesWhenCaughtUp,
  lostOrDoubled,
  partitionsOf,
  until,
  withAdmin,
} from './mirror-watch.ts';
import { RawClient } from './raw-client.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const isFull = process.env.TWINLOG_TEST === 'full';
const KILLS = isFull ? 20 : 3;
const seed = Number(process.env.TWINLOG_SEED ?? Date.now() % 1_000_000);
const random = seededRandom(seed);

const MIRROR = 'crash-mirror';
const PARTITIONS = 3;
/** A kill comes at most so long after the broker serves again. */
const MIRRORING_MOMENT_MS = 800;
/** A removal is asked for at most so long after all partitions are MIRRORING. */
const AFTER_MIRRORING_MS = 600;
/** A removal takes some tens of milliseconds; some kills come after it. */
const STOPPING_MOMENT_MS = 120;
/** Starting takes about this long. */
const STARTUP_MOMENT_MS = 900;

let twinlog: TwinlogBroker;

/** A mirror fetch takes less than a transaction, so that a stop finds some of them half copied. */
const SETTINGS = { 'mirror.fetch.max.bytes': '16384', 'mirror.topic.num.partitions': '4' };

if (skip === false) {
  before(async () => {
    twinlog = await startTwinlog({ name: 'crash', settings: SETTINGS });
    await twinlog.mirrors('create', MIRROR, '--source', (await sourceCluster()).bootstrap);
  });
  after(() => twinlog?.destroy());
}

/** Kills the broker and starts it again; now and then it is killed while it starts, too. */
async function killAndRestart(): Promise<void> {
  await twinlog.kill9();
  if (random.chance(0.3)) {
    twinlog.launch();
    await sleep(random.below(STARTUP_MOMENT_MS));
    await twinlog.kill9();
  }
  await twinlog.start();
}

/** An idempotent and a transactional producer at the source. */
async function liveAtSource(topic: string, valueBytes: number): Promise<LiveProducer[]> {
  const { bootstrap } = await sourceCluster();
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, PARTITIONS);
  const common = { bootstrap, topic, partitions: PARTITIONS };
  const transaction = { transactional: true, batches: 4, valueBytes, pauseMs: 40 };
  return [
    new LiveProducer(java, { ...common, config: { 'compression.type': 'lz4' } }),
    new LiveProducer(java, { ...common, ...transaction }),
  ];
}

/** The log ends that a consumer sees. */
async function logEnds(topic: string): Promise<bigint[]> {
  await using client = await RawClient.connect(twinlog.host, twinlog.port);
  const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);
  const found: bigint[] = [];
  for (const partition of partitions) found.push(await client.listOffset(topic, partition, -1));
  return found;
}

async function endAll(producers: readonly LiveProducer[]): Promise<void> {
  await Promise.all(producers.map((producer) => producer.stop()));
}

test(`S3: kill -9 while mirroring, ${KILLS} times`, { skip }, async (t) => {
  t.diagnostic(`TWINLOG_SEED=${seed}`);
  const [topic, local] = ['crash-mirroring', 'crash-local'];
  const source = await sourceCluster();
  const java = await javaClient();
  const atSource = await liveAtSource(topic, 2_000);
  await twinlog.mirrors('add', MIRROR, topic);
  await java.createTopic(twinlog.bootstrap, local, PARTITIONS);
  const here = { bootstrap: twinlog.bootstrap, topic: local, partitions: PARTITIONS };
  const atDestination = new LiveProducer(java, { ...here, pauseMs: 5 });
  for (let kill = 1; kill <= KILLS; kill++) {
    await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
    await sleep(random.below(MIRRORING_MOMENT_MS));
    const ends = await logEnds(topic);
    await killAndRestart();
    const again = await until('serving the topic again', () => logEnds(topic));
    const wentBack = again.filter((end, partition) => end < (ends[partition] ?? 0n));
    assert.deepEqual(wentBack, [], `kill ${kill}: log ends ${ends} became ${again}`);
  }
  await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
  await Promise.all(atSource.map((producer) => producer.more(2)));
  await atDestination.more(2);
  await endAll([...atSource, atDestination]);
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
  const read = await java.readAll(twinlog.bootstrap, local, 'read_uncommitted');
  assert.ok(atDestination.acknowledged.length > 20);
  assert.deepEqual(atDestination.failures, []);
  assert.deepEqual(lostOrDoubled(read, atDestination.acknowledged), []);
});

/** Asks for the removal and kills the broker some moments later. True: it was acknowledged. */
async function killWhileStopping(topic: string): Promise<boolean> {
  let acknowledged = false;
  await withAdmin(twinlog, async (admin) => {
    const asked = admin.removeTopics(MIRROR, [topic]).then(
      ([outcome]) => {
        assert.equal(outcome?.error, null, outcome?.message ?? '');
        acknowledged = true;
      },
      () => undefined, // killed before it answered
    );
    await sleep(random.below(STOPPING_MOMENT_MS));
    await killAndRestart();
    await asked;
  });
  return acknowledged;
}

/** Waits for STOPPED; a removal that was not acknowledged may have to be asked for again. */
async function lastMirroredOffsets(topic: string, acknowledged: boolean): Promise<number[]> {
  if (!acknowledged) {
    const states = ['MIRRORING', 'STOPPING', 'STOPPED'];
    const partitions = await awaitState(twinlog, MIRROR, topic, ...states);
    if (partitions.some(({ state }) => state === 'MIRRORING')) {
      await twinlog.mirrors('remove', MIRROR, topic, '--no-wait');
    }
  }
  const stopped = await awaitState(twinlog, MIRROR, topic, 'STOPPED');
  return stopped.map(({ lastMirroredOffset }) => lastMirroredOffset);
}

/** D4, D5: nothing lies beyond the last mirrored offset, and no transaction is open below it. */
async function assertEndsAt(topic: string, offsets: readonly number[]): Promise<void> {
  await using client = await RawClient.connect(twinlog.host, twinlog.port);
  for (const [partition, offset] of offsets.entries()) {
    const logEnd = await client.listOffset(topic, partition, -1);
    const lastStable = await client.listOffset(topic, partition, -1, 'read_committed');
    const found = { logEnd: Number(logEnd), lastStable: Number(lastStable) };
    assert.deepEqual(found, { logEnd: offset, lastStable: offset }, `${topic}-${partition}`);
  }
}

/** Writes here, kills the broker in between and afterwards; returns what was acknowledged. */
async function writeHere(topic: string): Promise<Acknowledged[]> {
  const where = { bootstrap: twinlog.bootstrap, topic, partitions: PARTITIONS };
  const producer = new LiveProducer(await javaClient(), { ...where, batches: 3, pauseMs: 0 });
  await producer.more(PARTITIONS);
  await sleep(random.below(100));
  await killAndRestart();
  await producer.more(PARTITIONS);
  await producer.stop();
  assert.deepEqual(producer.failures, []);
  if (random.chance(0.5)) await killAndRestart();
  return producer.acknowledged;
}

async function assertWrittenHere(
  topic: string,
  acknowledged: readonly Acknowledged[],
  offsets: readonly number[],
): Promise<void> {
  const java = await javaClient();
  const read = await java.readAll(twinlog.bootstrap, topic, 'read_uncommitted', { ...offsets });
  assert.deepEqual(lostOrDoubled(read, acknowledged), []);
  for (const [partition, offset] of offsets.entries()) {
    const written = acknowledged.filter((each) => each.partition === partition);
    const first = Math.min(...written.map((each) => each.offset));
    assert.equal(first, offset, `the first write to partition ${partition} is at the LMO`);
    const there = read.filter((each) => each.partition === partition).map((each) => each.offset);
    assert.deepEqual(
      there,
      there.map((_, index) => offset + index),
      `no gap behind the LMO of partition ${partition}`,
    );
  }
}

/** One episode: mirroring, a stop with a kill in it, local writes with kills between them. */
async function failOverOnce(t: TestContext, topic: string, round: number): Promise<void> {
  const source = (await sourceCluster()).bootstrap;
  await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
  await sleep(random.below(AFTER_MIRRORING_MS));
  const acknowledged = await killWhileStopping(topic);
  const offsets = await lastMirroredOffsets(topic, acknowledged);
  t.diagnostic(`round ${round}: acknowledged ${acknowledged}, LMO ${offsets}`);
  await assertEndsAt(topic, offsets);
  const written = await writeHere(topic);
  const stopped = await awaitState(twinlog, MIRROR, topic, 'STOPPED');
  const after = stopped.map(({ lastMirroredOffset }) => lastMirroredOffset);
  assert.deepEqual(after, offsets, 'the LMO stays what it was');
  await assertWrittenHere(topic, written, offsets);
  assert.deepEqual(await differencesBelow(source, twinlog.bootstrap, topic, offsets), []);
}

test(`S3 D1 D4 D5: kill -9 while stopping, ${KILLS} times`, { skip }, async (t) => {
  t.diagnostic(`TWINLOG_SEED=${seed}`);
  const topic = 'crash-stopping';
  const source = await sourceCluster();
  const atSource = await liveAtSource(topic, 8_000);
  await Promise.all(atSource.map((producer) => producer.more(4)));
  await twinlog.mirrors('add', MIRROR, topic);
  // A stop with nothing mirrored has LMO 0; adding the topic again would want a full resync (T3).
  await until('the first records', async () =>
    (await logEnds(topic)).every((end) => end > 0n) ? true : undefined,
  );
  for (let round = 1; round <= KILLS; round++) {
    if (round > 1) await twinlog.mirrors('add', MIRROR, topic);
    await failOverOnce(t, topic, round);
  }
  await twinlog.mirrors('add', MIRROR, topic);
  await sleep(random.below(60));
  await killAndRestart();
  await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
  await endAll(atSource);
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
  const states = (await partitionsOf(twinlog, MIRROR, topic)).map(({ state }) => state);
  assert.deepEqual(new Set(states), new Set(['MIRRORING']));
});
