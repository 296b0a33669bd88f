/**
 * twinlog mirrors a real Apache Kafka: the hard topic crosses byte for byte, every client reads it
 * alike, writing to it is refused at once, and after its removal it goes on where it ended.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { clients, destination, hardTopic, javaClient, sourceCluster } from './clusters.ts';
import { compareLogs, compareSequences, dumpSegments } from './compare.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { readTopic } from './raw-log.ts';

const skip = await interopSkipReason();
const MIRRORED = { upTo: 'lastStable', producerIds: 'mirrored' } as const;
const MIRROR = 'hard-mirror';
const CATCH_UP_BOUND_MS = 20_000;

/** Waits until the destination is the source, or says after the bound what differs. */
async function awaitEqual(topic: string): Promise<string[]> {
  const source = (await sourceCluster()).bootstrap;
  const { bootstrap } = await destination();
  const deadline = Date.now() + CATCH_UP_BOUND_MS;
  for (;;) {
    let differences: string[];
    try {
      differences = await compareLogs(source, bootstrap, topic, MIRRORED);
    } catch (error) {
      differences = [String(error)]; // the topic is not there yet
    }
    if (differences.length === 0 || Date.now() > deadline) return differences;
    await sleep(100);
  }
}

if (skip === false) {
  before(async () => {
    const { topic } = await hardTopic();
    const twinlog = await destination();
    await twinlog.mirrors('create', MIRROR, '--source', (await sourceCluster()).bootstrap);
    await twinlog.mirrors('add', MIRROR, topic);
  });
}

test('F1 F5 F6 F8 O3 P1: every batch of the hard topic crosses unchanged', { skip }, async () => {
  const { topic } = await hardTopic();
  assert.deepEqual(await awaitEqual(topic), []);
});

test('Apache Kafka reads every segment without complaint', { skip }, async () => {
  const { topic } = await hardTopic();
  const source = await dumpSegments((await sourceCluster()).broker(1).dataDir, topic);
  const options = { allowedGaps: source.gaps };
  const { complaints } = await dumpSegments((await destination()).dataDir, topic, options);
  assert.deepEqual(complaints, []);
});

test('every client reads the mirror as it reads the source', { skip }, async () => {
  const { topic, openTransaction } = await hardTopic();
  const source = (await sourceCluster()).bootstrap;
  const { bootstrap } = await destination();
  for (const client of await clients()) {
    const all = await client.readAll(source, topic, 'read_uncommitted');
    const { partition: held, firstOffset } = openTransaction;
    const expected = all.filter((r) => r.partition !== held || r.offset < firstOffset);
    const read = await client.readAll(bootstrap, topic, 'read_uncommitted');
    assert.deepEqual(compareSequences(expected, read), [], client.name);
  }
});

test('R2 R3: every client is refused at once', { skip }, async () => {
  const { topic } = await hardTopic();
  const { bootstrap } = await destination();
  for (const client of await clients()) {
    const attempt = await client.tryProduce(bootstrap, topic);
    assert.equal(attempt.offset, undefined, client.name);
    assert.equal(attempt.attempts, 1, `${client.name}: ${JSON.stringify(attempt)}`);
    assert.match(String(attempt.error), /policy.?violation/i, client.name);
    if (client.name === 'java') {
      const names = [/^ReadOnlyTopicException:/, new RegExp(topic), new RegExp(MIRROR)];
      for (const name of names) assert.match(String(attempt.message), name);
    }
  }
});

test('F1: what an open transaction held back crosses when it ends', { skip }, async () => {
  const { topic, openTransaction } = await hardTopic();
  await openTransaction.commit();
  assert.deepEqual(await awaitEqual(topic), []);
  const { partitions } = await readTopic((await destination()).bootstrap, topic);
  assert.ok((partitions[2]?.end ?? 0n) > BigInt(openTransaction.firstOffset));
});

test('D4 D5: after the removal all clients write, from the LMO on', { skip }, async () => {
  const { topic } = await hardTopic();
  const twinlog = await destination();
  const before = (await (await javaClient()).offsets(twinlog.bootstrap, topic))[0];
  await twinlog.mirrors('remove', MIRROR, topic);
  let next = before?.latest ?? Number.NaN;
  for (const client of await clients()) {
    const attempt = await client.tryProduce(twinlog.bootstrap, topic);
    assert.equal(attempt.offset, next++, `${client.name}: ${JSON.stringify(attempt)}`);
  }
});
