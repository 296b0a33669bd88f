/**
 * The harness on trial, against Apache Kafka alone: the hard topic is as hard as it claims, equal
 * topics compare as equal, and any alteration is found.
 */
import assert from 'node:assert/strict';
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { clients, hardTopic, javaClient, sourceCluster } from './clusters.ts';
import {
  compareLogs,
  compareSequences,
  compareTopics,
  dumpSegments,
  mirroredProducerId,
} from './compare.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { temporaryDirectory } from './processes.ts';
import { type RawBatch, type RawTopic, readTopic } from './raw-log.ts';

const skip = await interopSkipReason();
const SAME = { upTo: 'highWatermark', producerIds: 'same' } as const;
const MIRRORED = { upTo: 'lastStable', producerIds: 'mirrored' } as const;

const TRANSACTIONAL = 0x10;
const CONTROL = 0x20;
const DELETE_HORIZON = 0x40;

test('the hard topic holds what it promises', { skip }, async () => {
  const hard = await hardTopic();
  const { partitions } = await readTopic((await sourceCluster()).bootstrap, hard.topic);
  const [compacted, started, open] = partitions;
  assert.ok(compacted && started && open);
  const all = partitions.flatMap(({ batches }) => batches);
  const codecs = new Set(compacted.batches.map(({ attributes }) => attributes & 7));
  assert.deepEqual([...codecs].sort(), [0, 1, 2, 3, 4]);
  assert.ok(hard.compactedOffsets.length < hard.compactedBelow - 5);
  assert.ok(compacted.batches.some(({ count }) => count === 0));
  assert.ok(compacted.batches.some(({ attributes }) => attributes & DELETE_HORIZON));
  assert.ok(compacted.batches.some(({ records }) => records.length > 900_000));
  assert.ok(new Set(compacted.batches.map(({ leaderEpoch }) => leaderEpoch)).size > 1);
  assert.equal(started.logStart, BigInt(hard.logStart));
  assert.ok(started.batches[0] && started.batches[0].baseOffset < started.logStart);
  assert.equal(open.lastStable, BigInt(hard.openTransaction.firstOffset));
  assert.ok(open.end > open.lastStable);
  assert.ok(all.some(({ attributes }) => attributes & TRANSACTIONAL && attributes & CONTROL));
  assert.ok(all.some(({ producerId, attributes }) => producerId >= 0n && attributes < 8));
  assert.ok(all.some(({ producerId }) => producerId === -1n));
});

test('a topic is equal to itself, and its segments are in order', { skip }, async () => {
  const hard = await hardTopic();
  const source = await sourceCluster();
  assert.deepEqual(await compareLogs(source.bootstrap, source.bootstrap, hard.topic, SAME), []);
  const { gaps } = await dumpSegments(source.broker(1).dataDir, hard.topic);
  assert.ok(gaps.size > 0, 'the compacted region shows as gaps');
  const options = { allowedGaps: gaps };
  const again = await dumpSegments(source.broker(1).dataDir, hard.topic, options);
  assert.deepEqual(again.complaints, []);
  assert.ok(again.segments > 8);
});

test('a damaged segment is found', { skip }, async () => {
  const hard = await hardTopic();
  const { dataDir } = (await sourceCluster()).broker(1);
  const copy = temporaryDirectory('damaged');
  cpSync(join(dataDir, `${hard.topic}-2`), join(copy, `${hard.topic}-2`), { recursive: true });
  assert.deepEqual((await dumpSegments(copy, hard.topic)).complaints, []);
  const segment = join(copy, `${hard.topic}-2`, '00000000000000000000.log');
  const bytes = readFileSync(segment);
  bytes.writeUInt8(bytes.readUInt8(80) ^ 1, 80);
  writeFileSync(segment, bytes);
  assert.match((await dumpSegments(copy, hard.topic)).complaints.join(), /isvalid: false/);
});

/** A copy as a perfect mirror would have it. */
function mirrored(topic: RawTopic): RawTopic {
  const partitions = topic.partitions.map((partition) => {
    const crossed = partition.batches.filter(({ baseOffset }) => baseOffset < partition.lastStable);
    const batches = crossed.map((batch) => ({
      ...batch,
      leaderEpoch: 0,
      producerId: mirroredProducerId(batch.producerId),
    }));
    return { ...partition, end: partition.lastStable, batches };
  });
  return { ...topic, partitions };
}

test('every alteration of a mirrored copy is found (P1, F5, F6)', { skip }, async () => {
  const hard = await hardTopic();
  const source = await readTopic((await sourceCluster()).bootstrap, hard.topic);
  const copy = mirrored(source);
  assert.deepEqual(compareTopics(source, copy, MIRRORED), []);

  const alter = (change: (batch: RawBatch) => Partial<RawBatch>): string[] => {
    const partitions = copy.partitions.map((partition) => {
      const batches = partition.batches.map((batch, index) =>
        index === 3 ? { ...batch, ...change(batch) } : batch,
      );
      return { ...partition, batches };
    });
    return compareTopics(source, { ...copy, partitions }, MIRRORED);
  };
  const flipped = (batch: RawBatch): Buffer => {
    const records = Buffer.from(batch.records);
    records.writeUInt8(records.readUInt8(0) ^ 1, 0);
    return records;
  };
  const alterations: ((batch: RawBatch) => Partial<RawBatch>)[] = [
    (batch) => ({ baseOffset: batch.baseOffset + 1n }),
    (batch) => ({ lastOffsetDelta: batch.lastOffsetDelta + 1 }),
    (batch) => ({ attributes: batch.attributes ^ 8 }),
    (batch) => ({ baseTimestamp: batch.baseTimestamp + 1n }),
    (batch) => ({ maxTimestamp: batch.maxTimestamp - 1n }),
    (batch) => ({ producerId: batch.producerId + 1n }),
    (batch) => ({ producerEpoch: batch.producerEpoch + 1 }),
    (batch) => ({ baseSequence: batch.baseSequence + 1 }),
    (batch) => ({ count: batch.count + 1 }),
    (batch) => ({ records: flipped(batch) }),
    () => ({ crcIsValid: false }),
    () => ({ leaderEpoch: -1 }),
  ];
  for (const alteration of alterations) {
    assert.ok(alter(alteration).length > 0, String(alteration));
  }
});

test('missing and extra batches, ends, starts and ids are found', { skip }, async () => {
  const hard = await hardTopic();
  const source = await readTopic((await sourceCluster()).bootstrap, hard.topic);
  const copy = mirrored(source);
  const first = copy.partitions[0];
  assert.ok(first);
  const withFirst = (change: object): RawTopic => ({
    ...copy,
    partitions: [{ ...first, ...change }, ...copy.partitions.slice(1)],
  });
  const wrong: RawTopic[] = [
    { ...copy, topicId: '0'.repeat(32) },
    { ...copy, partitions: copy.partitions.slice(1) },
    withFirst({ logStart: first.logStart + 1n }),
    withFirst({ end: first.end - 1n }),
    withFirst({ batches: first.batches.slice(0, -1) }),
    withFirst({ batches: first.batches.toSpliced(4, 1) }),
    // What the open transaction holds back must not be there.
    { ...copy, partitions: source.partitions },
  ];
  for (const topic of wrong) assert.notDeepEqual(compareTopics(source, topic, MIRRORED), []);
});

test('all clients read the hard topic alike', { skip }, async () => {
  const hard = await hardTopic();
  const { bootstrap } = await sourceCluster();
  const java = await javaClient();
  for (const isolation of ['read_uncommitted', 'read_committed'] as const) {
    const expected = await java.readAll(bootstrap, hard.topic, isolation);
    assert.ok(expected.length > 100);
    for (const client of await clients()) {
      const read = await client.readAll(bootstrap, hard.topic, isolation);
      const differences = compareSequences(expected, read, client.keepsHeaderOrder);
      assert.deepEqual(differences, [], `${client.name}, ${isolation}`);
    }
    const altered = expected.toSpliced(7, 1);
    assert.notDeepEqual(compareSequences(expected, altered), []);
  }
});

test('all clients write, and a refusal is told with its cost', { skip }, async () => {
  const { bootstrap } = await sourceCluster();
  const java = await javaClient();
  await java.createTopic(bootstrap, 'written', 1);
  await java.createTopic(bootstrap, 'refusing', 1, { 'max.message.bytes': '1' });
  for (const [index, client] of (await clients()).entries()) {
    const written = await client.tryProduce(bootstrap, 'written');
    assert.deepEqual([written.offset, written.attempts], [index, 1], client.name);
    const refused = await client.tryProduce(bootstrap, 'refusing');
    assert.equal(refused.offset, undefined);
    assert.ok(refused.error, client.name);
    assert.ok(refused.attempts >= 1, client.name);
  }
});
