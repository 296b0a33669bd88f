/**
 * Failback in a real Apache Kafka cluster (rules G29, G30): a guest joins a partition from an
 * offset, is elected, cuts to that offset and mirrors from there, while what lies below stays on
 * the Apache replicas, byte for byte.
 *
 * The test appends what a mirror would. Tests build on each other.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { guestMapping } from '../../src/mirror/producer-id-mapping.ts';
import { rewriteBatches } from '../../src/mirror/rewrite.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import {
  ElectLeadersRequest,
  ElectLeadersResponse,
} from '../../src/protocol/messages/43-elect-leaders.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { forEachBatch, RecordBatch } from '../../src/protocol/record-batch.ts';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { until } from './guest-member.ts';
import { JavaClient } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LEADER_ID, LeadingMember, logBytes } from './leading-member.ts';

const skip = await interopSkipReason();
const TOPIC = 'back';
const PARTS = 'parts';
/** What is set before a topic is taken back: else who leaves the ISR stays eligible to lead. */
const TAKEN = { 'min.insync.replicas': '1' };
const LOG_START = 20;
const BEGIN = 160;
const FETCH = 1;
/** Election type. */
const PREFERRED = 0;
/** Of all records: retention must not count them as old. */
const NOW = Date.now();

let cluster: KafkaCluster;
let java: JavaClient;
let guest: LeadingMember;
/** What each broker has below {@link BEGIN}. */
let history: Buffer;
let openProducerId: bigint;

function values(count: number, from: number) {
  return Array.from({ length: count }, (_, i) => {
    return { topic: TOPIC, timestamp: NOW, value: `value-${from + i}` };
  });
}

function mirroredBatch(topic: string, baseOffset: number, count: number): Uint8Array {
  const records = Array.from({ length: count }, (_, i) => ({
    key: null,
    value: Buffer.from(`mirrored-${baseOffset + i}`),
    timestamp: NOW,
  }));
  return ours(topic, buildRecordBatch({ records, baseOffset }));
}

function ours(topic: string, bytes: Uint8Array): Uint8Array {
  rewriteBatches(bytes, guest.partition(topic).leaderEpoch, guestMapping(7));
  return bytes;
}

const bytesAt = (broker: number, topic = TOPIC): Buffer => {
  return logBytes(cluster.broker(broker).dataDir, topic, 0) ?? Buffer.alloc(0);
};

/** Base offsets of the batches in log bytes. */
function bases(bytes: Buffer): number[] {
  const found: number[] = [];
  forEachBatch(bytes, 0, bytes.length, (batch) => found.push(batch.baseOffset));
  return found;
}

/** Leader epochs of the batches in log bytes, each with the first offset it has. */
function epochStarts(bytes: Buffer): (readonly [epoch: number, offset: number])[] {
  const found: (readonly [number, number])[] = [];
  forEachBatch(bytes, 0, bytes.length, ({ partitionLeaderEpoch, baseOffset }) => {
    if (found.at(-1)?.[0] !== partitionLeaderEpoch) found.push([partitionLeaderEpoch, baseOffset]);
  });
  return found;
}

async function lead(topic: string, replicas: readonly number[]): Promise<void> {
  await java.reassign(cluster.bootstrap, topic, { 0: replicas });
  await java.electPreferredLeader(cluster.bootstrap, topic, 0);
}

/** Three leader epochs, then a transaction that stays open, then what the mirror never had. */
async function writeHistory(): Promise<void> {
  await java.createTopic(cluster.bootstrap, TOPIC, 1, TAKEN, { 0: [1, 2] });
  await java.openProducer(cluster.bootstrap, 'plain');
  for (const [round, first] of [1, 2, 1].entries()) {
    if (round > 0) await lead(TOPIC, [first, first === 1 ? 2 : 1]);
    for (let n = 0; n < 5; n++) await java.produceAll('plain', values(10, round * 50 + n * 10));
  }
  const patient = { 'transactional.id': 'open', 'transaction.timeout.ms': '600000' };
  await java.openProducer(cluster.bootstrap, 'open', patient);
  await java.begin('open');
  await java.produceAll('open', values(10, 150));
  for (let n = 0; n < 3; n++) await java.produceAll('plain', values(10, BEGIN + n * 10));
  await java.deleteRecords(cluster.bootstrap, TOPIC, { 0: LOG_START });
  await java.createTopic(cluster.bootstrap, PARTS, 1, TAKEN, { 0: [1, 2] });
  const ten = values(10, 0).map((record) => ({ ...record, topic: PARTS }));
  await java.produceAll('plain', ten, ten, ten);
}

/** Elects the preferred leader, which is the guest. */
async function elect(topic: string): Promise<void> {
  const asked = { electionType: PREFERRED, topicPartitions: [{ topic, partitions: [0] }] };
  const answer = await guest.controller.send(ElectLeadersRequest, ElectLeadersResponse, {
    ...asked,
    timeoutMs: 10_000,
  });
  assert.equal(answer.replicaElectionResults[0]?.partitionResult[0]?.errorCode, 0);
  await until('led by the guest', () => guest.partition(topic).isLeader());
}

describe('a guest takes a partition back from Apache Kafka brokers', { skip }, () => {
  before(async () => {
    const properties = { 'broker.session.timeout.ms': '9000' };
    cluster = await startHost({ name: 'guest-follower', brokers: 2, properties });
    java = await JavaClient.start();
    await writeHistory();
    guest = await LeadingMember.start(cluster);
  });

  after(async () => {
    await guest?.close();
    await java?.close();
    await cluster?.destroy();
  });

  test('G29 it joins from an offset, knows what came before, and is in sync', async () => {
    guest.followFrom = BEGIN;
    await guest.reassign(TOPIC, [LEADER_ID, 1, 2]);
    await until('it is here', () => guest.replicas.partition(TOPIC, 0) !== undefined);
    const { log } = guest.partition(TOPIC);
    await until('all is here', () => log.logEndOffset === BEGIN + 30);
    await until('it is in the ISR', () => guest.registered(TOPIC).isr.includes(LEADER_ID));
    assert.deepEqual([log.logStartOffset, log.localLogStartOffset], [LOG_START, BEGIN]);
    const [open] = log.openTransactions();
    assert(open !== undefined);
    assert.equal(open.firstOffset, 150);
    openProducerId = open.producerId;
    const all = bytesAt(1);
    const tail = guest.bytes(TOPIC);
    assert.deepEqual(bases(tail), [BEGIN, BEGIN + 10, BEGIN + 20]);
    assert.ok(tail.equals(all.subarray(all.length - tail.length)));
    history = Buffer.from(all.subarray(0, all.length - tail.length));
    // A leader that is being replaced may take a batch of the next round yet.
    const starts = epochStarts(all);
    assert.equal(starts.length, 3);
    const ends = starts.map(([epoch]) => log.epochEndOffset(epoch).endOffset);
    const [, second, third] = starts.map(([, offset]) => offset);
    assert.deepEqual(ends, [second, third, log.logEndOffset]);
  });

  test('G29 elected, it cuts to that offset, and all that lies below stays', async () => {
    await elect(TOPIC);
    const partition = guest.partition(TOPIC);
    assert.ok(partition.leaderEpoch >= 3);
    const cut = partition.truncateForMirror(BEGIN, partition.leaderEpoch);
    assert.deepEqual(cut, { error: 0, logEndOffset: BEGIN });
    for (const broker of [1, 2]) {
      await until(`broker ${broker} cut`, () => bytesAt(broker).equals(history));
    }
    await until('guests only', () => String(guest.registered(TOPIC).isr) === `${LEADER_ID}`);
    await guest.startNewEpoch(TOPIC);
    assert.equal(guest.partition(TOPIC).log.lastStableOffset, 150);
  });

  test('G29 it mirrors from there, and the others follow without a hot loop', async () => {
    guest.append(TOPIC, mirroredBatch(TOPIC, BEGIN, 10), mirroredBatch(TOPIC, BEGIN + 15, 3));
    const end = buildTransactionMarker({
      producerId: openProducerId,
      producerEpoch: 9,
      coordinatorEpoch: 0,
      commit: false,
      timestamp: NOW,
    });
    new RecordBatch(end).setBaseOffset(BEGIN + 20);
    new RecordBatch(end).setPartitionLeaderEpoch(guest.partition(TOPIC).leaderEpoch);
    guest.append(TOPIC, end);
    const expected = (): Buffer => Buffer.concat([history, guest.bytes(TOPIC)]);
    for (const broker of [1, 2]) {
      await until(`broker ${broker} follows`, () => bytesAt(broker).equals(expected()));
    }
    const { log } = guest.partition(TOPIC);
    assert.deepEqual([log.logStartOffset, log.localLogStartOffset], [LOG_START, BEGIN]);
    const [offsets] = Object.values(await java.offsets(cluster.bootstrap, TOPIC));
    const latest = BEGIN + 21;
    assert.deepEqual(offsets, { earliest: LOG_START, latest, lastStable: latest });
    guest.served.clear();
    guest.append(TOPIC, mirroredBatch(TOPIC, latest, 5));
    for (const broker of [1, 2]) {
      await until(`broker ${broker} follows`, () => bytesAt(broker).equals(expected()));
    }
    const fetches = guest.served.get(FETCH) ?? 0;
    assert.ok(fetches < 20, `${fetches} fetches for one batch`);
  });

  test('G29 consumers read all of it: below from a replica that has it', async () => {
    guest.served.clear();
    const read = await java.readAll(cluster.bootstrap, TOPIC, 'read_uncommitted');
    const offsets = read.map(({ offset }) => offset);
    const range = (from: number, to: number) =>
      Array.from({ length: to - from }, (_, i) => from + i);
    assert.deepEqual(offsets, [
      ...range(LOG_START, BEGIN + 10),
      ...range(BEGIN + 15, BEGIN + 18),
      ...range(BEGIN + 21, BEGIN + 26),
    ]);
    const text = (index: number) => String(read[index]?.value);
    assert.equal(text(0), `value-${LOG_START}`);
    assert.equal(text(BEGIN - LOG_START - 1), `value-${BEGIN - 1}`);
    assert.equal(text(BEGIN - LOG_START), `mirrored-${BEGIN}`);
    const committed = await java.readAll(cluster.bootstrap, TOPIC, 'read_committed');
    assert.deepEqual(
      committed.map(({ offset }) => offset),
      offsets.filter((offset) => offset < 150 || offset >= BEGIN),
      'the transaction of before was aborted at the source',
    );
  });

  test('G24 handed over again, the partition takes writes where the mirror ended', async () => {
    guest.admits = () => true;
    guest.replicas.reviewIsr();
    await until('all in sync', () => guest.registered(TOPIC).isr.length === 3);
    await guest.reassign(TOPIC, [2, 1]);
    await until('led by broker 2', () => guest.registered(TOPIC).leader === 2);
    const attempt = await java.tryProduce(cluster.bootstrap, TOPIC);
    assert.deepEqual(attempt, { ...attempt, offset: BEGIN + 26 });
    await until('both have it', () => bytesAt(1).equals(bytesAt(2)));
    assert.ok(bytesAt(1).subarray(0, history.length).equals(history));
    guest.admits = () => false;
  });

  test('G30 an offset inside a batch: the batch goes as a whole', async () => {
    guest.followFrom = 14;
    await guest.reassign(PARTS, [LEADER_ID, 1, 2]);
    await until('it is in the ISR', () => guest.registered(PARTS).isr.includes(LEADER_ID));
    const { log } = guest.partition(PARTS);
    assert.deepEqual([log.localLogStartOffset, log.logEndOffset], [10, 30]);
    const before = bytesAt(1, PARTS);
    await elect(PARTS);
    const partition = guest.partition(PARTS);
    const cut = partition.truncateForMirror(14, partition.leaderEpoch);
    assert.deepEqual(cut, { error: 0, logEndOffset: 10 });
    await until('guests only', () => String(guest.registered(PARTS).isr) === `${LEADER_ID}`);
    await guest.startNewEpoch(PARTS);
    guest.append(PARTS, mirroredBatch(PARTS, 10, 4), mirroredBatch(PARTS, 14, 2));
    const first = before.subarray(0, before.length / 3);
    for (const broker of [1, 2]) {
      await until(`broker ${broker} follows`, () => {
        return bytesAt(broker, PARTS).equals(Buffer.concat([first, guest.bytes(PARTS)]));
      });
    }
    assert.deepEqual(bases(bytesAt(2, PARTS)), [0, 10, 14]);
  });
});
