/**
 * What is asked before mirroring and when histories may have parted.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import { MirrorFailure } from '../../src/mirror/causes.ts';
import type { MirrorRole } from '../../src/mirror/driver-context.ts';
import type { MirrorStateStore } from '../../src/mirror/mirror-coordinator.ts';
import {
  checkAddedTopicId,
  checkSourceCluster,
  checkTopicId,
  compareBelow,
  findDivergence,
  isMirrorOf,
  truncationOffset,
} from '../../src/mirror/prepare.ts';
import { embeddedMapping } from '../../src/mirror/producer-id-mapping.ts';
import { rewriteBatches } from '../../src/mirror/rewrite.ts';
import type { MirrorStateRow } from '../../src/mirror/state-row.ts';
import { errors } from '../../src/protocol/errors.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { topicId } from '../coordinator/harness.ts';
import { batch, mirrored, startTestBroker } from '../replication/harness.ts';
import { row, ScriptedSource } from './harness.ts';

const ID = topicId(1);

function store(...rows: MirrorStateRow[]): MirrorStateStore {
  const keyed = rows.map((each, index) => ({
    key: { mirror: `m${index}`, topicId: ID, partition: 0 },
    row: each,
  }));
  return {
    read: async () => ({ error: 0, row: undefined }),
    rowsOfPartition: async () => ({ error: 0, rows: keyed }),
    write: async () => 0,
    discard: async () => 0,
  };
}

function ask(
  source: ScriptedSource,
  rows: MirrorStateStore,
  role: Pick<MirrorRole, 'peerLastMirroredOffset'> = {},
): Promise<number> {
  return truncationOffset(source.asSource(), rows, {
    mirror: 'm0',
    topic: { name: 't', id: source.topicId, partitions: new Map() },
    topicId: ID,
    partition: 0,
    clusterId: 'here',
    role,
  });
}

function cause(expected: string) {
  return (error: unknown): true => {
    assert.ok(error instanceof MirrorFailure, String(error));
    assert.equal(error.mirrorCause, expected);
    return true;
  };
}

test('T2 an Apache source: the own newest row of that source cluster, else 0', async () => {
  const source = new ScriptedSource(ID);
  assert.equal(await ask(source, store()), 0);
  const fields = { sourceClusterId: 'source', lastMirroredOffset: 7, membershipOffset: 5 };
  const older = row('STOPPED', { ...fields, lastMirroredOffset: 9, membershipOffset: 4 });
  assert.equal(await ask(source, store(older, row('STOPPED', fields))), 7);
  const elsewhere = row('STOPPED', { ...fields, sourceClusterId: 'other' });
  assert.equal(await ask(source, store(elsewhere)), 0);
});

test('T2 a source without topic ids: 0, as the topic may be another', async () => {
  const source = new ScriptedSource(ZERO_UUID);
  const known = row('STOPPED', { sourceClusterId: 'source', lastMirroredOffset: 7 });
  assert.equal(await ask(source, store(known)), 0);
});

test('T2 a twinlog source: its answer; an error is no answer', async () => {
  const source = new ScriptedSource(ID);
  source.servesLastMirrored = true;
  source.lastMirrored = { errorCode: 0, offset: 42 };
  const known = row('STOPPED', { sourceClusterId: 'source', lastMirroredOffset: 7 });
  assert.equal(await ask(source, store(known)), 42);
  source.lastMirrored = { errorCode: errors.COORDINATOR_LOAD_IN_PROGRESS.code, offset: -1 };
  await assert.rejects(ask(source, store(known)), cause('SOURCE_ERROR'));
});

test('G22 T2 a source without the API but with rows: where they say, if they say', async () => {
  const source = new ScriptedSource(ID);
  const known = row('STOPPED', { sourceClusterId: 'source', lastMirroredOffset: 7 });
  const asked: unknown[] = [];
  const peer = (answer: number | 'none') => ({
    peerLastMirroredOffset: async (...question: unknown[]) => {
      asked.push(question);
      return answer;
    },
  });
  assert.equal(await ask(source, store(known), peer(31)), 31);
  assert.equal(await ask(source, store(known), peer(0)), 0);
  assert.equal(await ask(source, store(known), peer('none')), 7);
  assert.deepEqual(asked[0], ['m0', 't', 0]);
  const failing = {
    peerLastMirroredOffset: () => Promise.reject(new MirrorFailure('SOURCE_ERROR', 'no')),
  };
  await assert.rejects(ask(source, store(known), failing), cause('SOURCE_ERROR'));
  source.servesLastMirrored = true;
  source.lastMirrored = { errorCode: 0, offset: 42 };
  assert.equal(await ask(source, store(known), peer(31)), 42);
});

test('G12 a topic with an id of its own is still the one that was added', () => {
  const topic = (id: Uuid) => ({ name: 't', id, partitions: new Map() });
  checkAddedTopicId(topic(ID), ID);
  checkAddedTopicId(topic(ID), ZERO_UUID);
  checkAddedTopicId(topic(ZERO_UUID), ID);
  assert.throws(() => checkAddedTopicId(topic(topicId(2)), ID), cause('INCONSISTENT_TOPIC_ID'));
});

test('T2 a twinlog source without a record: the own row, else 0', async () => {
  const source = new ScriptedSource(ID);
  source.servesLastMirrored = true;
  const known = row('STOPPED', { sourceClusterId: 'source', lastMirroredOffset: 7 });
  assert.equal(await ask(source, store(known)), 7);
  assert.equal(await ask(source, store()), 0);
});

test('O3 another id at the source is refused with both ids; a zero id is not compared', () => {
  const topic = (id: Uuid) => ({ name: 't', id, partitions: new Map() });
  checkTopicId(topic(ID), ID);
  checkTopicId(topic(ZERO_UUID), ID);
  assert.throws(
    () => checkTopicId(topic(topicId(2)), ID),
    (error) => {
      assert.match(String(error), new RegExp(`${ID}.*${topicId(2)}`));
      return cause('INCONSISTENT_TOPIC_ID')(error);
    },
  );
});

test('O4 another cluster than the recorded one is refused', () => {
  checkSourceCluster('', 'a');
  checkSourceCluster('a', 'a');
  assert.throws(() => checkSourceCluster('a', 'b'), cause('SOURCE_CLUSTER_CHANGED'));
});

const NOWHERE = { brokerId: 1, address: { host: 's', port: 1 }, leaderEpoch: 9 };

/** What F10 finds with a local log of `end` offsets and the given source epochs. */
async function diverge(
  t: TestContext,
  end: number,
  epochs: readonly [number, number][],
  ends: readonly [number, number, number][],
  start = 0,
) {
  const broker = await startTestBroker(t);
  broker.gate.set('t', { topic: 't', mirror: 'm', state: 'MIRRORING' });
  broker.createTopic('t');
  const partition = broker.partition('t');
  partition.appendMirrored([mirrored(0, end)], 0);
  partition.followLogStart(start, 0);
  const source = new ScriptedSource(partition.topicId);
  for (const [asked, leaderEpoch, endOffset] of ends) {
    source.epochEnds.set(asked, { leaderEpoch, endOffset });
  }
  const known = epochs.map(([epoch, startOffset]) => ({ epoch, startOffset }));
  const found = await findDivergence(source.asSource(), NOWHERE, partition, known);
  return { found, asked: source.askedEpochs };
}

test('F10 an emptied log is judged by the history that its readers had', async (t) => {
  const lost = await diverge(t, 10, [[1, 0]], [[1, 1, 4]], 10);
  assert.deepEqual(lost.found, { kind: 'diverged', commonOffset: 4 });
  const kept = await diverge(t, 10, [[1, 0]], [[1, 1, 10]], 10);
  assert.deepEqual(kept.found, { kind: 'same' });
});

test('F10 the source has all of our newest epoch: nothing is asked beyond it', async (t) => {
  const { found, asked } = await diverge(
    t,
    10,
    [
      [1, 0],
      [4, 6],
    ],
    [[4, 4, 25]],
  );
  assert.deepEqual(found, { kind: 'same' });
  assert.deepEqual(asked, [4]);
});

test('F10 an end of our newest epoch below our log end: the source lost records', async (t) => {
  const { found } = await diverge(
    t,
    10,
    [
      [1, 0],
      [4, 6],
    ],
    [[4, 4, 8]],
  );
  assert.deepEqual(found, { kind: 'diverged', commonOffset: 8 });
});

test('F10 an epoch the source does not know is walked back from', async (t) => {
  const epochs: [number, number][] = [
    [1, 0],
    [2, 3],
    [4, 6],
  ];
  const back = await diverge(t, 10, epochs, [[4, 2, 5]]);
  // The source names 2 as its newest at or below 4, then knows neither 2 nor 1.
  assert.deepEqual(back.asked, [4, 2, 1]);
  assert.deepEqual(back.found, { kind: 'unknown' });
});

test('F10 both sides agree at an older epoch: common up to the lower of both ends', async (t) => {
  const epochs: [number, number][] = [
    [1, 0],
    [2, 3],
    [4, 6],
  ];
  const ends: [number, number, number][] = [
    [4, 2, 5],
    [2, 2, 5],
  ];
  const { found, asked } = await diverge(t, 10, epochs, ends);
  assert.deepEqual(asked, [4, 2]);
  assert.deepEqual(found, { kind: 'diverged', commonOffset: 5 });
});

test('F10 no epoch in common', async (t) => {
  const { found, asked } = await diverge(
    t,
    10,
    [
      [3, 0],
      [4, 6],
    ],
    [],
  );
  assert.deepEqual(asked, [4, 3]);
  assert.deepEqual(found, { kind: 'unknown' });
});

test('F10 without data or without recorded epochs there is nothing to ask', async (t) => {
  const { found, asked } = await diverge(t, 10, [], []);
  assert.deepEqual([found, asked], [{ kind: 'same' }, []]);
});

test('T3 a batch is recognised whichever side mirrored it, and a different one is not', () => {
  const fields = { producerId: 5n, producerEpoch: 0, baseSequence: 0, baseOffset: 3 };
  const original = new RecordBatch(batch(2, fields));
  const copy = new RecordBatch(batch(2, fields));
  rewriteBatches(copy.bytes, 8, embeddedMapping);
  assert.equal(isMirrorOf(copy, original), true);
  assert.equal(isMirrorOf(original, copy), true);
  const other = new RecordBatch(batch(2, { ...fields, producerId: 6n }));
  assert.equal(isMirrorOf(copy, other), false);
  const moved = new RecordBatch(batch(2, { ...fields, baseOffset: 4 }));
  assert.equal(isMirrorOf(copy, moved), false);
  const values = new RecordBatch(batch(2, fields));
  values.bytes[values.bytes.length - 2] = 0x7a;
  assert.equal(isMirrorOf(copy, values), false);
});

test('T3 a last batch below X that differs from the source is SOURCE_DIVERGED', async (t) => {
  const broker = await startTestBroker(t);
  broker.gate.set('t', { topic: 't', mirror: 'm', state: 'PREPARING' });
  broker.createTopic('t');
  const partition = broker.partition('t');
  partition.appendMirrored([mirrored(0, 3)], 0);
  partition.appendMirrored([mirrored(3, 2)], 0);
  const source = new ScriptedSource(partition.topicId);
  const topic = { name: 't', id: partition.topicId, partitions: new Map() };
  const compare = (offset: number) => compareBelow(source.asSource(), partition, topic, offset);
  source.fetched = { errorCode: 0, records: mirrored(3, 2, 6) };
  await compare(5);
  const different = mirrored(3, 2, 6);
  different[different.length - 2] = 0x7a;
  source.fetched = { errorCode: 0, records: different };
  await assert.rejects(compare(5), cause('SOURCE_DIVERGED'));
  source.fetched = { errorCode: errors.OFFSET_OUT_OF_RANGE.code, records: new Uint8Array(0) };
  await compare(5);
  await compare(0);
});
