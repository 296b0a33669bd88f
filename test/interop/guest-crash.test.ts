/**
 * Faults in the life of a mirror in a real Apache Kafka cluster (G4, G17, G24, G28): the guest is
 * killed at named points and while it joins, stopped for longer than its session, brokers and the
 * active controller are killed, the source is gone at failover.
 *
 * Each time: what was begun ends when asked for again, a producer that tries all the time has
 * nothing accepted below the last mirrored offset, and every Apache replica equals the source
 * there. TWINLOG_TEST=full: more points, each with several delays, and every broker.
 */
import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../../src/base/random.ts';
import { type KafkaCluster, type KafkaNode, startHost } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { startGuest } from './guest.ts';
import {
  activeController,
  awaitMirrored,
  freeze,
  Intruder,
  killAtPoints,
  repeatUntilDone,
} from './guest-faults.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LiveProducer } from './live-producers.ts';
import { awaitProgress, awaitState, partitionsOf, until, withAdmin } from './mirror-watch.ts';
import { readTopic } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const isFull = process.env.TWINLOG_TEST === 'full';
const seed = Number(process.env.TWINLOG_SEED ?? Date.now() % 1_000_000);
const random = seededRandom(seed);

const PARTITIONS = 2;
const MANY = 100;
const RECORDS_EACH = 64;
const APACHE_IDS = [1, 2, 3];
/** The harness gives a broker a session of 3 s. */
const BEYOND_SESSION_MS = 4_500;
/** A guest's writes to the mirror state are undone by the cluster after 10 s. */
const BEYOND_TRANSACTION_MS = 14_000;
/** A guest takes about so long to join. */
const JOIN_MOMENT_MS = 1_200;
const JOINS = isFull ? 15 : 2;
/** Adding many partitions takes about so long, until they are all mirrored. */
const HANG_MOMENT_MS = 2_000;
const FREEZES = isFull ? 10 : 1;
/** What the guest's log says on the way in, and on the way out. */
const JOBS_TAKEN = 'mirror jobs taken';
const WAY_IN = ['partition is PREPARING', 'partition is MIRRORING'];
const WAY_OUT = ['partition is STOPPING', 'partitions reassigned', 'mirror partition is native'];
/** How long after such a point the guest is killed, in the full tier, in ms. */
const DELAYS_MS = [5, 25, 60, 150, 400];
const QUIET = { 'auto.create.topics.enable': 'false' };

let target: KafkaCluster;
let guest: TwinlogBroker;

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    await sourceCluster();
    const name = 'crash-target';
    target = await startHost({ name, brokers: 3, controllers: 3, properties: QUIET });
    guest = await startGuest({ name: 'crash-guest', cluster: target });
  });
  after(async () => {
    await guest?.destroy();
    await target?.destroy();
  });
}

/** A mirrored topic: written to at the source, and tried to be written to here. */
interface Life {
  readonly topic: string;
  readonly mirror: string;
  readonly producers: readonly LiveProducer[];
  readonly intruder: Intruder;
}

async function beginLife(topic: string): Promise<Life> {
  const { bootstrap } = await sourceCluster();
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, PARTITIONS);
  const common = { bootstrap, topic, partitions: PARTITIONS };
  const producers = [
    new LiveProducer(java, { ...common, config: { 'compression.type': 'lz4' }, pauseMs: 50 }),
    new LiveProducer(java, { ...common, transactional: true, batches: 3, pauseMs: 100 }),
  ];
  const intruder = new Intruder(java, target.bootstrap, topic, PARTITIONS);
  return { topic, mirror: `of-${topic}`, producers, intruder };
}

async function bringIn({ topic, mirror }: Pick<Life, 'topic' | 'mirror'>): Promise<void> {
  const source = (await sourceCluster()).bootstrap;
  const known = await guest.mirrors('list');
  if (!known.includes(mirror)) await guest.mirrors('create', mirror, '--source', source);
  try {
    await guest.mirrors('add', mirror, topic);
  } catch (error) {
    // A3: one that is in already says so.
    if (!/ is (PREPARING|MIRRORING) in mirror/.test(String(error))) throw error;
  }
}

/** Brings a topic in, undisturbed. */
async function mirrored(topic: string): Promise<Life> {
  const life = await beginLife(topic);
  await bringIn(life);
  await awaitState(guest, life.mirror, topic, 'MIRRORING');
  return life;
}

const takeOut = ({ topic, mirror }: Life): Promise<string> =>
  guest.mirrors('remove', mirror, topic);

async function progress({ topic }: Life): Promise<void> {
  await awaitProgress((await sourceCluster()).bootstrap, guest, topic);
}

function assertRefused({ intruder, topic }: Life): void {
  assert.deepEqual(intruder.accepted, [], `${topic}: a write was accepted on the mirror`);
  assert.ok(intruder.refused.size > 0, `${topic}: nobody tried to write`);
}

/** What each broker accepted lies behind the last mirrored offset, where it said. */
async function judgeIntruder({ intruder, topic }: Life, ends: readonly number[]): Promise<void> {
  await until('writes everywhere', async () => {
    const where = new Set(intruder.accepted.map(({ partition }) => partition));
    return where.size === PARTITIONS ? true : undefined;
  });
  await intruder.stop();
  const read = await (await javaClient()).readAll(target.bootstrap, topic, 'read_uncommitted');
  const at = new Map(read.map((each) => [`${each.partition}@${each.offset}`, String(each.value)]));
  for (const { partition, offset, value } of intruder.accepted) {
    assert.equal(at.get(`${partition}@${offset}`), value, `${topic}: lost at ${offset}`);
    assert.ok(offset >= (ends[partition] ?? 0), `${topic}: accepted at ${offset}, ${ends}`);
  }
}

/** The failover is over: what is left must be as if no fault had been. */
async function judge(life: Life, source = readSource): Promise<void> {
  const { topic, mirror, producers } = life;
  const rows = await awaitState(guest, mirror, topic, 'STOPPED');
  await Promise.all(producers.map((producer) => producer.stop()));
  const ends = rows.map(({ lastMirroredOffset }) => lastMirroredOffset);
  assert.ok(
    ends.every((end) => end > 0),
    `${topic} ended at ${ends}`,
  );
  await judgeIntruder(life, ends);
  await until('all replicas in sync', async () => {
    const placed = await placement(target, topic);
    return placed.every(({ isr }) => isr.length === APACHE_IDS.length) ? true : undefined;
  });
  for (const { leader, replicas } of await placement(target, topic)) {
    assert.ok(APACHE_IDS.includes(leader), `leader ${leader}`);
    assert.deepEqual([...replicas].sort(), APACHE_IDS);
  }
  const mirroredTo = { source: await source(topic), offsets: ends, topic };
  await awaitMirrored(target.brokers, { ...mirroredTo, bootstrap: target.bootstrap });
}

async function readSource(topic: string) {
  return await readTopic((await sourceCluster()).bootstrap, topic);
}

async function leaderEpochs(topic: string): Promise<number[]> {
  return (await placement(target, topic)).map(({ leaderEpoch }) => leaderEpoch);
}

async function throughKills(t: TestContext, topic: string, delayMs: () => number): Promise<void> {
  t.diagnostic(`TWINLOG_SEED=${seed}`);
  const life = await beginLife(topic);
  await killAtPoints(guest, [JOBS_TAKEN], () => bringIn(life), delayMs);
  await killAtPoints(guest, WAY_IN, () => bringIn(life), delayMs);
  await repeatUntilDone('adding', () => bringIn(life));
  await awaitState(guest, life.mirror, topic, 'MIRRORING');
  await progress(life);
  const before = await leaderEpochs(topic);
  for (let join = 0; join < JOINS; join++) {
    await guest.kill9();
    guest.launch();
    await sleep(random.below(JOIN_MOMENT_MS));
  }
  await guest.kill9();
  await guest.start();
  await progress(life);
  // A crash forgets which cuts were still without a new epoch, so every start begins one.
  const after = await leaderEpochs(topic);
  for (const [partition, epoch] of before.entries()) assert.ok((after[partition] ?? 0) > epoch);
  assertRefused(life);
  await killAtPoints(guest, WAY_OUT, () => takeOut(life), delayMs);
  await repeatUntilDone('removing', () => takeOut(life));
  await judge(life);
}

test('G4 G24 G28 T5: the guest is killed at every point', { skip }, async (t) => {
  await throughKills(t, 'killed', () => 0);
});

if (isFull) {
  const points = [JOBS_TAKEN, ...WAY_IN, ...WAY_OUT];
  for (const [index, point] of points.entries()) {
    const isIn = !WAY_OUT.includes(point);
    for (const delay of DELAYS_MS) {
      test(`G4 G24 G28: killed ${delay} ms after "${point}"`, { skip }, async () => {
        const life = await beginLife(`killed-${index}-${delay}`);
        const kill = (action: () => Promise<unknown>) =>
          killAtPoints(guest, [point], action, () => delay);
        if (isIn) await kill(() => bringIn(life));
        await repeatUntilDone('adding', () => bringIn(life));
        await awaitState(guest, life.mirror, life.topic, 'MIRRORING');
        await progress(life);
        assertRefused(life);
        if (!isIn) await kill(() => takeOut(life));
        await repeatUntilDone('removing', () => takeOut(life));
        await judge(life);
      });
    }
  }
}

for (const hungMs of isFull ? [BEYOND_SESSION_MS, BEYOND_TRANSACTION_MS] : [BEYOND_SESSION_MS]) {
  test(`G5 G17: a guest that hung for ${hungMs} ms goes on by itself`, { skip }, async () => {
    const life = await mirrored(`hung-${hungMs}`);
    await freeze(guest, hungMs);
    await progress(life);
    await awaitState(guest, life.mirror, life.topic, 'MIRRORING');
    assertRefused(life);
    await takeOut(life);
    await judge(life);
  });
}

/** Partitions that are not mirrored by guests alone up to this offset, with what they are. */
async function unmirrored(topic: string, end: number): Promise<string[]> {
  const partitions = await partitionsOf(guest, topic, topic);
  const placed = await placement(target, topic);
  const wrong = partitions
    .filter(({ state, destinationOffset: at }) => state !== 'MIRRORING' || at !== end)
    .map((each) => JSON.stringify(each));
  const shared = placed.filter(({ isr }) => isr.length !== 1).map((each) => JSON.stringify(each));
  return partitions.length === MANY ? [...wrong, ...shared] : [`${partitions.length} partitions`];
}

async function hangAmidMany(topic: string, momentMs: number): Promise<void> {
  const java = await javaClient();
  const { bootstrap } = await sourceCluster();
  await java.createTopic(bootstrap, topic, MANY);
  const load = { bootstrap, topic, partitions: MANY, compression: 'none' };
  await java.request('fill', { ...load, records: MANY * RECORDS_EACH, size: 100 });
  await guest.mirrors('create', topic, '--source', bootstrap);
  const cutShort = withAdmin(guest, (admin) => admin.addTopics(topic, [topic])).catch(() => []);
  await sleep(momentMs);
  await freeze(guest, BEYOND_SESSION_MS);
  await cutShort;
  await repeatUntilDone('adding', () => bringIn({ topic, mirror: topic }));
  let wrong: string[] = [];
  await until('all mirrored by guests alone', async () => {
    wrong = await unmirrored(topic, RECORDS_EACH);
    return wrong.length === 0 ? true : undefined;
  }).catch((cause) => {
    throw new Error(`frozen after ${momentMs} ms: ${wrong.slice(0, 5)}`, { cause });
  });
  await guest.mirrors('remove', topic, topic);
  const { offset } = await java.tryProduce(target.bootstrap, topic, MANY - 1);
  assert.equal(offset, RECORDS_EACH);
}

for (let freeze = 1; freeze <= FREEZES; freeze++) {
  test(`G5 G17: the same right after adding many partitions, ${freeze}`, { skip }, async (t) => {
    t.diagnostic(`TWINLOG_SEED=${seed}`);
    await hangAmidMany(`hung-many-${freeze}`, random.below(HANG_MOMENT_MS));
  });
}

test('G17 G28: a broker and the active controller are killed while mirroring', {
  skip,
}, async () => {
  const life = await mirrored('brokers-killed');
  for (const broker of isFull ? target.brokers : target.brokers.slice(0, 1)) {
    await broker.kill9();
    await progress(life);
    await target.start();
  }
  await (await activeController(target)).kill9();
  await progress(life);
  await target.start();
  await awaitState(guest, life.mirror, life.topic, 'MIRRORING');
  assertRefused(life);
  await takeOut(life);
  await judge(life);
});

/** Kills what the failover needs in its course; it comes back after it. */
async function failOverAmid(
  life: Life,
  victims: readonly (() => KafkaNode | Promise<KafkaNode>)[],
  source = readSource,
): Promise<void> {
  assertRefused(life);
  const cutShort = takeOut(life).catch(() => undefined);
  for (const victim of victims) await (await victim()).kill9();
  await cutShort;
  await repeatUntilDone('removing', () => takeOut(life));
  await target.start();
  await judge(life, source);
}

if (isFull) {
  for (const id of APACHE_IDS) {
    test(`G28: broker ${id} is killed in a failover`, { skip }, async () => {
      await failOverAmid(await mirrored(`failover-${id}`), [() => target.broker(id)]);
    });
  }
}

test('G28: source, a broker and the active controller die in a failover', { skip }, async () => {
  const life = await mirrored('source-gone');
  await progress(life);
  await Promise.all(life.producers.map((producer) => producer.stop()));
  await progress(life);
  const source = await readSource(life.topic);
  const [broker] = (await sourceCluster()).brokers;
  await broker?.kill9();
  const victims = [() => target.broker(2), () => activeController(target)];
  await failOverAmid(life, victims, async () => source);
});
