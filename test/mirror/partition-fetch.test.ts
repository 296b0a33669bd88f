/**
 * The receiving end of a mirrored partition, over a real log.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import {
  MAX_CORRUPT_TRIES,
  PartitionFetch,
  TROUBLE_LIMIT_MS,
} from '../../src/mirror/partition-fetch.ts';
import { embeddedMapping } from '../../src/mirror/producer-id-mapping.ts';
import { errors } from '../../src/protocol/errors.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { FetchedPartition } from '../../src/replication/leader-endpoint.ts';
import type { Partition } from '../../src/replication/partition.ts';
import { batch, mirrored, startTestBroker, type TestBroker } from '../replication/harness.ts';

const SOURCE_ID = 'c291cmNlLXNvdXJjZS1zbw' as Uuid;

interface Setup {
  readonly broker: TestBroker;
  readonly partition: Partition;
  readonly fetch: PartitionFetch;
  /** What the driver was told, in order. */
  readonly told: string[];
}

async function setup(
  t: TestContext,
  knownEpoch = 0,
  sourceTopicId: Uuid = SOURCE_ID,
): Promise<Setup> {
  const broker = await startTestBroker(t);
  broker.gate.set('t', { topic: 't', mirror: 'm', state: 'MIRRORING' });
  broker.createTopic('t', 1, { leaderEpoch: 7 });
  const partition = broker.partition('t');
  const told: string[] = [];
  const fetch = new PartitionFetch(broker.clock, partition, {
    sourceTopicId,
    maxBytes: 1000,
    knownEpoch,
    producerIds: embeddedMapping,
    events: {
      learn: (epochs) => told.push(`learn ${JSON.stringify(epochs)}`),
      fail: (cause) => told.push(`fail ${cause}`),
      outOfRange: () => told.push('outOfRange'),
      recreated: () => told.push('recreated'),
      startInside: (base) => told.push(`startInside ${base}`),
      lost: () => told.push('lost'),
    },
  });
  return { broker, partition, fetch, told };
}

function answer(records: Uint8Array, fields: Partial<FetchedPartition> = {}): FetchedPartition {
  return {
    errorCode: 0,
    highWatermark: 100,
    lastStableOffset: 100,
    logStartOffset: 0,
    records: records.slice(),
    ...fields,
  };
}

function joined(...batches: Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(batches));
}

/** Base offset, last offset and leader epoch of every batch in the log. */
function batches(partition: Partition): number[][] {
  const { logStartOffset } = partition.log;
  const read = partition.log.read(logStartOffset, 1_000_000, 'logEnd', true);
  assert.equal(read.error, 0);
  const found: number[][] = [];
  for (const chunk of read.error === 0 ? read.records : []) {
    for (let at = 0; at < chunk.length; at = new RecordBatch(chunk, at).end) {
      const each = new RecordBatch(chunk, at);
      assert.equal(each.validCrc(), true);
      found.push([each.baseOffset, each.lastOffset, each.partitionLeaderEpoch]);
    }
  }
  return found;
}

const EMPTY = new Uint8Array(0);

test('F1 the fetch offset is always the local log end', async (t) => {
  const { fetch } = await setup(t);
  assert.equal(fetch.target().fetchOffset, 0);
  assert.equal(fetch.target(), fetch.target());
  const action = fetch.onFetched(answer(joined(mirrored(0, 3), mirrored(5, 2))));
  assert.equal(action.kind, 'continue');
  assert.equal(fetch.target().fetchOffset, 7);
  assert.equal(fetch.target().lastFetchedEpoch, -1);
});

test('F4 requests carry the epoch of the source, never −1', async (t) => {
  const { fetch } = await setup(t);
  assert.equal(fetch.target().currentLeaderEpoch, 0);
  fetch.leads(-1);
  assert.equal(fetch.target().currentLeaderEpoch, 0);
  fetch.leads(4);
  assert.equal(fetch.target().currentLeaderEpoch, 4);
});

test('F4 a moved leader and a fenced epoch send the partition to the metadata', async (t) => {
  const { fetch, told } = await setup(t);
  for (const { code } of [
    errors.NOT_LEADER_OR_FOLLOWER,
    errors.FENCED_LEADER_EPOCH,
    errors.UNKNOWN_LEADER_EPOCH,
    errors.UNKNOWN_TOPIC_ID,
  ]) {
    assert.deepEqual(fetch.onFetched(answer(EMPTY, { errorCode: code })), { kind: 'moved' });
  }
  const notYet = answer(EMPTY, { errorCode: errors.OFFSET_NOT_AVAILABLE.code });
  assert.deepEqual(fetch.onFetched(notYet), { kind: 'retry' });
  assert.deepEqual(told, []);
});

test('F5 F6 batches keep offsets and gaps and get the local leader epoch', async (t) => {
  const { fetch, partition } = await setup(t);
  fetch.onFetched(answer(joined(mirrored(3, 2), mirrored(9, 1))));
  assert.deepEqual(batches(partition), [
    [3, 4, 7],
    [9, 9, 7],
  ]);
});

test('F5 a damaged batch lets nothing of the answer in, and fails after three tries', async (t) => {
  const { fetch, partition, told } = await setup(t);
  const bad = joined(mirrored(0, 3), mirrored(3, 3));
  bad[bad.length - 1] = (bad[bad.length - 1] ?? 0) ^ 1;
  for (let attempt = 1; attempt < MAX_CORRUPT_TRIES; attempt++) {
    assert.deepEqual(fetch.onFetched(answer(bad)), { kind: 'retry' });
  }
  assert.deepEqual(told, []);
  assert.deepEqual(fetch.onFetched(answer(bad)), { kind: 'pause' });
  assert.deepEqual(told, ['fail CORRUPT_SOURCE_BATCH']);
  assert.equal(partition.log.logEndOffset, 0);
});

test('F5 a good answer between two bad ones starts the count anew', async (t) => {
  const { fetch, told } = await setup(t);
  const bad = mirrored(0, 3);
  bad[bad.length - 1] = (bad[bad.length - 1] ?? 0) ^ 1;
  fetch.onFetched(answer(bad));
  fetch.onFetched(answer(bad));
  fetch.onFetched(answer(mirrored(0, 3)));
  const next = mirrored(3, 3);
  next[next.length - 1] = (next[next.length - 1] ?? 0) ^ 1;
  assert.deepEqual(fetch.onFetched(answer(next)), { kind: 'retry' });
  assert.deepEqual(told, []);
});

test('F8 the log start of the source is followed, also without data', async (t) => {
  const { fetch, partition } = await setup(t);
  fetch.onFetched(answer(joined(mirrored(0, 3), mirrored(3, 3))));
  assert.equal(partition.log.logStartOffset, 0);
  fetch.onFetched(answer(EMPTY, { logStartOffset: 4 }));
  assert.equal(partition.log.logStartOffset, 4);
  fetch.onFetched(answer(EMPTY, { logStartOffset: 2 }));
  assert.equal(partition.log.logStartOffset, 4);
});

test('F9 OFFSET_OUT_OF_RANGE pauses the partition until the range is judged', async (t) => {
  const { fetch, told } = await setup(t);
  const out = answer(EMPTY, { errorCode: errors.OFFSET_OUT_OF_RANGE.code });
  assert.deepEqual(fetch.onFetched(out), { kind: 'pause' });
  assert.deepEqual(told, ['outOfRange']);
});

test('F9 after a restart inside a batch the whole batch comes in', async (t) => {
  const { fetch, partition, told } = await setup(t);
  partition.followLogStart(12, 7);
  assert.equal(fetch.target().fetchOffset, 12);
  assert.deepEqual(fetch.onFetched(answer(mirrored(10, 5))), { kind: 'pause' });
  assert.deepEqual(told, ['startInside 10']);
  partition.restartForMirror(10, 12, 7);
  assert.equal(fetch.target().fetchOffset, 12);
  const again = fetch.onFetched(answer(mirrored(10, 5), { logStartOffset: 12 }));
  assert.equal(again.kind, 'continue');
  assert.deepEqual(
    [partition.log.logStartOffset, partition.log.logEndOffset, fetch.target().fetchOffset],
    [12, 15, 15],
  );
});

test('F10 a batch of a new source epoch waits until the epoch is recorded', async (t) => {
  const { fetch, partition, told } = await setup(t, 2);
  const learn = (epoch: number, startOffset: number): string =>
    `learn ${JSON.stringify([{ epoch, startOffset }])}`;
  const batches = [mirrored(0, 3, 2), mirrored(3, 3, 5), mirrored(6, 1, 6)];
  const from = (index: number) => answer(joined(...batches.slice(index)));
  assert.deepEqual(fetch.onFetched(from(0)), { kind: 'pause' });
  assert.deepEqual(told, [learn(5, 3)]);
  assert.equal(partition.log.logEndOffset, 3);
  fetch.learned(5);
  // Fetched again from the log end: the batches of the recorded epoch go in, the next one waits.
  assert.deepEqual(fetch.onFetched(from(1)), { kind: 'pause' });
  assert.deepEqual(told, [learn(5, 3), learn(6, 6)]);
  assert.equal(partition.log.logEndOffset, 6);
  fetch.learned(6);
  assert.equal(fetch.onFetched(from(2)).kind, 'continue');
  assert.equal(partition.log.logEndOffset, 7);
});

test('F10 a source epoch below what is mirrored means that the source diverged', async (t) => {
  const { fetch, partition, told } = await setup(t, 4);
  assert.deepEqual(fetch.onFetched(answer(mirrored(0, 3, 3))), { kind: 'pause' });
  assert.deepEqual(told, ['fail SOURCE_DIVERGED']);
  assert.equal(partition.log.logEndOffset, 0);
});

test('F12 without topic ids an epoch that goes backwards means another topic', async (t) => {
  const { fetch, partition, told } = await setup(t, 4, ZERO_UUID);
  assert.deepEqual(fetch.onFetched(answer(mirrored(0, 3, 3))), { kind: 'pause' });
  assert.deepEqual(told, ['recreated']);
  assert.equal(partition.log.logEndOffset, 0);
});

test('F11 tiered storage fails the partition', async (t) => {
  const { fetch, told } = await setup(t);
  fetch.onFetched(answer(EMPTY, { errorCode: errors.OFFSET_MOVED_TO_TIERED_STORAGE.code }));
  assert.deepEqual(told, ['fail TIERED_STORAGE']);
});

test('S6 an append under a leadership that is over drops the partition', async (t) => {
  const { broker, fetch, partition, told } = await setup(t);
  broker.changePartition('t', 0, { leaderEpoch: 8 });
  assert.deepEqual(fetch.onFetched(answer(mirrored(0, 3))), { kind: 'remove' });
  assert.deepEqual(told, ['lost']);
  assert.equal(partition.log.logEndOffset, 0);
});

test('S5 trouble is shown at once and fails the partition only when it lasts', async (t) => {
  const { broker, fetch, told } = await setup(t);
  assert.equal(fetch.troubled('SOURCE_UNREACHABLE', 'refused', 50), false);
  const since = broker.clock.wallMs();
  assert.deepEqual(fetch.trouble, {
    cause: 'SOURCE_UNREACHABLE',
    message: 'refused',
    sinceMs: since,
    nextRetryMs: since + 50,
  });
  await broker.clock.advance(TROUBLE_LIMIT_MS - 1);
  assert.equal(fetch.troubled('SOURCE_UNREACHABLE', 'refused', 50), false);
  await broker.clock.advance(1);
  assert.equal(fetch.troubled('SOURCE_UNREACHABLE', 'refused', 50), true);
  assert.equal(fetch.troubled('SOURCE_UNREACHABLE', 'refused', 50), true);
  assert.deepEqual(told, ['fail SOURCE_UNREACHABLE']);
});

test('S5 an answer ends the trouble', async (t) => {
  const { fetch } = await setup(t);
  fetch.troubled('SOURCE_UNREACHABLE', 'refused', 50);
  fetch.onFetched(answer(EMPTY));
  assert.equal(fetch.trouble, undefined);
});

test('A4 lag is unknown until the first answer, then to the source high watermark', async (t) => {
  const { fetch } = await setup(t);
  const before = fetch.progress();
  assert.deepEqual([before.lag, before.lagMs, before.sourceHighWatermark], [-1, -1, -1]);
  fetch.onFetched(answer(mirrored(0, 3), { highWatermark: 10, lastStableOffset: 8 }));
  const { lag, sourceHighWatermark, sourceLastStableOffset } = fetch.progress();
  assert.deepEqual([lag, sourceHighWatermark, sourceLastStableOffset], [7, 10, 8]);
});

test("F15 a gap at the source's end is no lag once a fetch brings nothing", async (t) => {
  const { fetch } = await setup(t);
  fetch.onFetched(answer(mirrored(0, 3), { highWatermark: 10, lastStableOffset: 10 }));
  assert.equal(fetch.watchesForGap, true);
  fetch.answered(true);
  assert.equal(fetch.progress().lag, 7);
  fetch.answered(false);
  assert.equal(fetch.progress().lag, 7);
  fetch.answered(true);
  const { lag, lagMs, gapAtEnd } = fetch.progress();
  assert.deepEqual([lag, lagMs, gapAtEnd], [0, 0, true]);
  fetch.onFetched(answer(mirrored(10, 1), { highWatermark: 11, lastStableOffset: 11 }));
  assert.deepEqual([fetch.progress().lag, fetch.progress().gapAtEnd], [0, false]);
});

test('F15 an open transaction at the source is lag, not a gap', async (t) => {
  const { fetch } = await setup(t);
  fetch.onFetched(answer(mirrored(0, 3), { highWatermark: 10, lastStableOffset: 3 }));
  fetch.answered(true);
  fetch.answered(true);
  assert.equal(fetch.progress().lag, 7);
});

test('F7 the high watermark follows the local replicas, not the source', async (t) => {
  const { fetch, partition } = await setup(t);
  fetch.onFetched(answer(batch(3, { baseOffset: 0, partitionLeaderEpoch: 0 })));
  assert.equal(partition.log.highWatermark, 3);
});
