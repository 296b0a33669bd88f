/**
 * Real Apache Kafka brokers that follow partitions which a guest leads (rules G12 to G18).
 *
 * The test appends what a mirror would and compares logs byte for byte, on disk. Tests build on
 * each other: the cluster and the guest live through all of them.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { guestMapping } from '../../src/mirror/producer-id-mapping.ts';
import { rewriteBatches } from '../../src/mirror/rewrite.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { buildRecordBatch, type NewBatch } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { until } from './guest-member.ts';
import { JavaClient } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LEADER_ID, LeadingMember } from './leading-member.ts';

const skip = await interopSkipReason();
const FETCH = 1;
const LIST_OFFSETS = 2;
/** As large as an int32 offset delta. */
const MAX_SPAN = 0x7fff_ffff;
const MANY = 120;
/** Of all records: retention must not count them as old. */
const NOW = Date.now();

let cluster: KafkaCluster;
let java: JavaClient;
let guest: LeadingMember;

const apacheIds = (): number[] => cluster.brokers.map(({ id }) => id);
const all = (): number[] => [LEADER_ID, ...apacheIds()];

/** A batch at its offset, under the leader epoch and the producer ids of the guest. */
function batch(
  topic: string,
  baseOffset: number,
  count: number,
  fields: Partial<NewBatch> = {},
  text = 'value',
): Uint8Array {
  const records = Array.from({ length: count }, (_, i) => ({
    key: Buffer.from(`key-${i}`),
    value: Buffer.from(`${text}-${baseOffset + i}`),
    timestamp: NOW + i,
  }));
  return ours(topic, buildRecordBatch({ records, baseOffset, ...fields }));
}

function ours(topic: string, bytes: Uint8Array): Uint8Array {
  rewriteBatches(bytes, guest.partition(topic).leaderEpoch, guestMapping(7));
  return bytes;
}

function marker(topic: string, baseOffset: number, producerId: bigint, commit: boolean) {
  const producer = { producerId, producerEpoch: 0, coordinatorEpoch: 0 };
  const bytes = buildTransactionMarker({ ...producer, commit, timestamp: NOW });
  new RecordBatch(bytes).setBaseOffset(baseOffset);
  return ours(topic, bytes);
}

async function whenIsr(topic: string, isr: readonly number[], index = 0): Promise<void> {
  await until(`ISR of ${topic}-${index} is [${isr}]`, () => {
    return String([...guest.registered(topic, index).isr].sort()) === String([...isr].sort());
  });
}

describe('Apache Kafka brokers follow a guest', { skip }, () => {
  before(async () => {
    // The guest says that it is alive every two seconds.
    const properties = { 'broker.session.timeout.ms': '9000' };
    cluster = await startHost({ name: 'guest-leader', brokers: 2, properties });
    java = await JavaClient.start();
    guest = await LeadingMember.start(cluster);
  });

  after(async () => {
    await guest?.close();
    await java?.close();
    await cluster?.destroy();
  });

  test('G18 they are out of the ISR at once, and copy all the same', async () => {
    await guest.create('t', [all()]);
    await whenIsr('t', [LEADER_ID]);
    const transaction = { producerId: 41n, producerEpoch: 0, isTransactional: true };
    guest.append(
      't',
      batch('t', 0, 5),
      batch('t', 5, 2, { producerId: 40n, producerEpoch: 3, baseSequence: 0 }),
      batch('t', 7, 3, { ...transaction, baseSequence: 0 }),
      marker('t', 10, 41n, false),
      batch('t', 20, 2, { ...transaction, baseSequence: 3 }),
      marker('t', 30, 41n, true),
    );
    await guest.whenCopied('t', cluster.brokers);
    assert.deepEqual(guest.registered('t').isr, [LEADER_ID]);
    const seen = await java.describeTopic(cluster.bootstrap, 't');
    assert.deepEqual(seen.partitions[0]?.isr, [LEADER_ID]);
    assert.equal(seen.partitions[0]?.leader, LEADER_ID);
  });

  test('G14 an idle partition costs what the long poll does', async () => {
    guest.served.clear();
    await sleep(3_000);
    const fetches = guest.served.get(FETCH) ?? 0;
    const limit = 12 * apacheIds().length;
    assert.ok(fetches > 0 && fetches <= limit, `${fetches} fetches of the followers in 3 s`);
    assert.equal(guest.served.get(LIST_OFFSETS), undefined);
  });

  test('G15 gaps of any size are followed', async () => {
    const bases = [MAX_SPAN - 5, 2 * MAX_SPAN - 5, 5 * MAX_SPAN, 5 * MAX_SPAN + 7];
    guest.append('t', ...bases.map((base) => batch('t', base, 3)));
    await guest.whenCopied('t', cluster.brokers);
  });

  test('G13 T5 what a cut drops goes, of a follower that was away, too', async () => {
    await guest.create('c', [all()]);
    guest.append('c', batch('c', 0, 5), batch('c', 5, 5), batch('c', 10, 5));
    await guest.whenCopied('c', cluster.brokers);
    const away = cluster.broker(2);
    await away.kill9();
    const cut = guest.partition('c').truncateForMirror(7, guest.partition('c').leaderEpoch);
    assert.deepEqual(cut, { error: 0, logEndOffset: 5 }, 'inside a batch: at its base');
    await guest.startNewEpoch('c');
    guest.append('c', batch('c', 5, 1, {}, 'other'), batch('c', 8, 9, {}, 'other'));
    await guest.whenCopied('c', [cluster.broker(1)]);
    await cluster.start();
    await guest.whenCopied('c', cluster.brokers);
    // Nobody was set aside for good: they go on in the same epoch.
    guest.append('c', batch('c', 17, 3));
    await guest.whenCopied('c', cluster.brokers);
  });

  test('G14 a replica that comes late begins at the log start', async () => {
    await guest.create('s', [[LEADER_ID]]);
    guest.append('s', batch('s', 0, 5), batch('s', 5, 5));
    const { leaderEpoch } = guest.partition('s');
    assert.equal(guest.partition('s').followLogStart(7, leaderEpoch), 0);
    guest.admits = (id) => id === 1;
    await guest.reassign('s', [LEADER_ID, 1]);
    await whenIsr('s', [LEADER_ID, 1]);
    guest.append('s', batch('s', 10, 2));
    assert.equal(guest.partition('s').log.highWatermark, 10, 'waits for the new member');
    await until('the high watermark', () => guest.partition('s').log.highWatermark === 12);
    guest.admits = () => false;
    guest.replicas.reviewIsr();
    await whenIsr('s', [LEADER_ID]);
  });

  test('G18 G24 once admitted they join, are handed the partition, and it is theirs', async () => {
    await until('all of t in the logs', () => guest.partition('t').log.logEndOffset > 0);
    const { logEndOffset } = guest.partition('t').log;
    guest.admits = () => true;
    guest.replicas.reviewIsr();
    await whenIsr('t', all());
    await guest.reassign('t', apacheIds());
    await until('led by broker 1', () => guest.registered('t').leader === 1);
    const offsets = await java.offsets(cluster.bootstrap, 't');
    assert.deepEqual(offsets[0], {
      earliest: 0,
      latest: logEndOffset,
      lastStable: logEndOffset,
    });
    const attempt = await java.tryProduce(cluster.bootstrap, 't');
    assert.deepEqual(attempt, { ...attempt, offset: logEndOffset });
    await until('the log is gone here', () => guest.replicas.partition('t', 0) === undefined);
  });

  test('G5 G17 many partitions leave the ISR in a few requests', async () => {
    guest.admits = () => false;
    guest.alterations.length = 0;
    await guest.create(
      'many',
      Array.from({ length: MANY }, () => [LEADER_ID, 1]),
    );
    await until('ISRs without the follower', () => {
      return Array.from({ length: MANY }, (_, index) => guest.registered('many', index)).every(
        ({ isr }) => String(isr) === String(LEADER_ID),
      );
    });
    assert.ok(guest.alterations.length <= 5, `requests of ${guest.alterations} partitions`);
    assert.equal(guest.image.brokers.get(LEADER_ID)?.fenced, false);
    guest.append('many', batch('many', 0, 3));
    await guest.whenCopied('many', [cluster.broker(1)]);
  });
});
