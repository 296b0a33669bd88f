/**
 * Two guests of a real Apache Kafka cluster (G18, G23): both are in sync, one of them runs a
 * mirror's jobs; when it dies the other leads and takes them over, nothing is lost or doubled, and
 * whoever comes back follows. The tests build on each other.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { awaitMirrored, freeze, Intruder, logLength, saidSince, whenSaid } from './guest-faults.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LiveProducer } from './live-producers.ts';
import { awaitProgress, awaitState, lostOrDoubled, partitionsOf, until } from './mirror-watch.ts';
import { readTopic } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const isFull = process.env.TWINLOG_TEST === 'full';
const MIRROR = 'dc1';
const TOPIC = 'paired';
const PARTITIONS = 2;
const SECOND_ID = GUEST_ID + 1;
const GUEST_IDS = [GUEST_ID, SECOND_ID];
/** The session of 3 s and the 10 s after which the jobs of a guest that is gone are taken. */
const BEYOND_TAKEOVER_MS = 20_000;
const JOBS_TAKEN = 'mirror jobs taken';

let target: KafkaCluster;
let first: TwinlogBroker;
let second: TwinlogBroker;
let producers: LiveProducer[] = [];
let intruder: Intruder;

const apacheIds = (): number[] => target.brokers.map(({ id }) => id);
const sorted = (ids: readonly number[]): number[] => [...ids].sort((a, b) => a - b);

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    const { bootstrap } = await sourceCluster();
    const properties = { 'auto.create.topics.enable': 'false' };
    target = await startHost({ name: 'pair-target', brokers: 2, properties });
    first = await startGuest({ name: 'pair-first', cluster: target });
    second = await startGuest({ name: 'pair-second', cluster: target, nodeId: SECOND_ID });
    const java = await javaClient();
    await java.createTopic(bootstrap, TOPIC, PARTITIONS);
    const common = { bootstrap, topic: TOPIC, partitions: PARTITIONS };
    producers = [
      new LiveProducer(java, { ...common, pauseMs: 50 }),
      new LiveProducer(java, { ...common, transactional: true, batches: 3, pauseMs: 100 }),
    ];
    intruder = new Intruder(java, target.bootstrap, TOPIC, PARTITIONS);
    await first.mirrors('create', MIRROR, '--source', bootstrap);
    await first.mirrors('add', MIRROR, TOPIC);
    await awaitState(first, MIRROR, TOPIC, 'MIRRORING');
  });
  after(async () => {
    await second?.destroy();
    await first?.destroy();
    await target?.destroy();
  });
}

/** Waits until this guest leads every partition, and these are in sync. */
async function awaitLeader(leaderId: number, isr: readonly number[]): Promise<void> {
  let seen: unknown;
  const look = async (): Promise<true | undefined> => {
    const placed = await placement(target, TOPIC);
    seen = placed;
    const isSo = placed.every((each) => {
      return each.leader === leaderId && sorted(each.isr).join() === isr.join();
    });
    return isSo ? true : undefined;
  };
  await until(`guest ${leaderId} leading`, look).catch((cause) => {
    throw new Error(`guest ${leaderId} does not lead: ${JSON.stringify(seen)}`, { cause });
  });
}

const progress = async (leader: TwinlogBroker): Promise<void> =>
  awaitProgress((await sourceCluster()).bootstrap, leader, TOPIC);

test('G18: both guests are replicas and in sync, Apache brokers only follow', {
  skip,
}, async () => {
  await awaitLeader(GUEST_ID, GUEST_IDS);
  for (const { replicas } of await placement(target, TOPIC)) {
    assert.deepEqual(replicas.slice(0, 2), GUEST_IDS);
    assert.deepEqual(sorted(replicas), [...apacheIds(), ...GUEST_IDS]);
  }
  await progress(first);
});

test('G23: the one that does not run the jobs says who does, and tells of the mirror', {
  skip,
}, async () => {
  const owner = new RegExp(`run by guest ${GUEST_ID}`);
  await (await javaClient()).createTopic((await sourceCluster()).bootstrap, 'another', 1);
  await assert.rejects(second.mirrors('add', MIRROR, 'another'), owner);
  await assert.rejects(second.mirrors('remove', MIRROR, TOPIC), owner);
  const told = await partitionsOf(second, MIRROR, TOPIC);
  assert.deepEqual(
    told.map(({ partition, state }) => [partition, state]),
    [0, 1].map((partition) => [partition, 'MIRRORING']),
  );
});

test('G18 G23: the leader is killed, the other leads, mirrors on and takes the jobs', {
  skip,
}, async () => {
  const from = logLength(second);
  await first.kill9();
  await awaitLeader(SECOND_ID, [SECOND_ID]);
  await progress(second);
  await awaitState(second, MIRROR, TOPIC, 'MIRRORING');
  await whenSaid(second, JOBS_TAKEN, from);
});

test('G23: who comes back follows, and leaves the jobs where they are', { skip }, async () => {
  const from = logLength(first);
  await first.start();
  await awaitLeader(SECOND_ID, GUEST_IDS);
  await progress(second);
  const owner = new RegExp(`run by guest ${SECOND_ID}`);
  await assert.rejects(first.mirrors('remove', MIRROR, TOPIC), owner);
  assert.ok(!saidSince(first.log, from).includes(JOBS_TAKEN));
});

test('G23: one that hung, and believes that it leads and owns, does neither', {
  skip: skip || (isFull ? false : 'TWINLOG_TEST=full runs it'),
}, async () => {
  const from = logLength(first);
  const hung = freeze(second, BEYOND_TAKEOVER_MS);
  await awaitLeader(GUEST_ID, [GUEST_ID]);
  await progress(first);
  await whenSaid(first, JOBS_TAKEN, from);
  await hung;
  await awaitLeader(GUEST_ID, GUEST_IDS);
  await progress(first);
  await assert.rejects(second.mirrors('remove', MIRROR, TOPIC), new RegExp(`guest ${GUEST_ID}`));
  await first.kill9();
  await awaitLeader(SECOND_ID, [SECOND_ID]);
  await first.start();
  await awaitLeader(SECOND_ID, GUEST_IDS);
});

test('G18 G24: leadership goes back, and a failover through either leaves it whole', {
  skip,
}, async () => {
  await second.kill9();
  await awaitLeader(GUEST_ID, [GUEST_ID]);
  await progress(first);
  await second.start();
  await awaitLeader(GUEST_ID, GUEST_IDS);
  await Promise.all(producers.map((producer) => producer.stop()));
  await progress(first);
  assert.deepEqual(intruder.accepted, []);
  const java = await javaClient();
  const source = await readTopic((await sourceCluster()).bootstrap, TOPIC);
  const ends = source.partitions.map(({ end }) => Number(end));
  const guests = [
    { id: GUEST_ID, dataDir: first.dataDir },
    { id: SECOND_ID, dataDir: second.dataDir },
  ];
  const mirrored = { source, offsets: ends, topic: TOPIC };
  await awaitMirrored([...target.brokers, ...guests], { ...mirrored, bootstrap: first.bootstrap });
  // Whoever runs the jobs by now is asked; the other one says so.
  await second.mirrors('remove', MIRROR, TOPIC).catch((error) => {
    assert.match(String(error), /run by guest/);
    return first.mirrors('remove', MIRROR, TOPIC);
  });
  const rows = await awaitState(first, MIRROR, TOPIC, 'STOPPED');
  assert.deepEqual(
    rows.map(({ lastMirroredOffset }) => lastMirroredOffset),
    ends,
  );
  await intruder.stop();
  for (const { offset, partition } of intruder.accepted)
    assert.ok(offset >= (ends[partition] ?? 0));
  const read = await java.readAll(target.bootstrap, TOPIC, 'read_uncommitted');
  const acknowledged = producers.flatMap((producer) => producer.acknowledged);
  assert.ok(acknowledged.length > 50);
  assert.deepEqual(lostOrDoubled(read, acknowledged), []);
  for (const { leader, replicas } of await placement(target, TOPIC)) {
    assert.ok(apacheIds().includes(leader));
    assert.deepEqual(sorted(replicas), apacheIds());
  }
});
