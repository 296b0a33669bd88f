/** P3: what READ_COMMITTED readers get of aborted transactions of mirrored producers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import {
  buildTransactionMarker,
  ControlRecordType,
  controlRecordType,
  parseTransactionMarker,
} from '../../src/protocol/control-record.ts';
import { errors } from '../../src/protocol/errors.ts';
import { buildRecordBatch, decodeRecords } from '../../src/protocol/record.ts';
import { BATCH_HEADER_BYTES, forEachBatch, RecordBatch } from '../../src/protocol/record-batch.ts';
import { hideAbortedBatches } from '../../src/replication/aborted-batches.ts';
import type { FetchParams, FetchResult } from '../../src/replication/fetch-types.ts';
import type { Partition } from '../../src/replication/partition.ts';
import { propertyRuns } from '../property-runs.ts';
import { settle } from './fakes.ts';
import {
  fetchParams,
  fetchPartition,
  OTHER_BROKER,
  replicaPartition,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
  watch,
} from './harness.ts';

const compression = nodeCompression();
const COMMITTED: Partial<FetchParams> = { readCommitted: true, maxWaitMs: 0 };

/** What one step appends. */
type Step =
  | { readonly kind: 'plain'; readonly count: number }
  | {
      readonly kind: 'data';
      readonly producer: number;
      readonly count: number;
      readonly gzip: boolean;
    }
  | { readonly kind: 'end'; readonly producer: number; readonly commit: boolean };

/** Producer ids of the steps: local ones and mirrored ones, of one hop and of two. */
const PRODUCERS = [0n, 7n, -2n, -9n, -9n - 2n ** 56n];

interface Written {
  readonly offset: number;
  readonly transaction:
    | { outcome: 'open' | 'commit' | 'abort'; readonly first: number }
    | undefined;
}

/** The log that the steps make: batches to be appended, and what became of each record. */
interface History {
  readonly batches: readonly Uint8Array[];
  readonly records: readonly Written[];
  readonly end: number;
}

function dataBatch(baseOffset: number, step: Exclude<Step, { kind: 'end' }>): Uint8Array {
  const records = Array.from({ length: step.count }, (_, i) => ({
    key: null,
    value: Buffer.from(`record ${baseOffset + i}`),
    timestamp: 1000 + baseOffset + i,
  }));
  const place = { baseOffset, partitionLeaderEpoch: 0, records };
  if (step.kind === 'plain') return buildRecordBatch(place);
  return buildRecordBatch({
    ...place,
    producerId: PRODUCERS[step.producer] as bigint,
    producerEpoch: 3,
    baseSequence: 0,
    isTransactional: true,
    ...(step.gzip ? { compression: { type: 'gzip', port: compression } } : {}),
  });
}

function markerBatch(baseOffset: number, producer: number, commit: boolean): Uint8Array {
  return buildTransactionMarker({
    commit,
    coordinatorEpoch: 5,
    producerId: PRODUCERS[producer] as bigint,
    producerEpoch: 3,
    timestamp: 2000,
    baseOffset,
    partitionLeaderEpoch: 0,
  });
}

function historyOf(steps: readonly Step[]): History {
  const batches: Uint8Array[] = [];
  const records: Written[] = [];
  const open = new Map<number, NonNullable<Written['transaction']>>();
  let next = 0;
  for (const step of steps) {
    if (step.kind === 'end') {
      batches.push(markerBatch(next++, step.producer, step.commit));
      const transaction = open.get(step.producer);
      if (transaction !== undefined) transaction.outcome = step.commit ? 'commit' : 'abort';
      open.delete(step.producer);
      continue;
    }
    batches.push(dataBatch(next, step));
    let transaction: Written['transaction'];
    if (step.kind === 'data') {
      transaction = open.get(step.producer) ?? { outcome: 'open', first: next };
      open.set(step.producer, transaction);
    }
    for (let i = 0; i < step.count; i++) records.push({ offset: next++, transaction });
  }
  return { batches, records, end: next };
}

function lastStableOffset({ records, end }: History): number {
  const open = records.filter(({ transaction }) => transaction?.outcome === 'open');
  return open[0]?.offset ?? end;
}

/** Offsets that a READ_COMMITTED reader must get, from `from` on. */
function committedOffsets(history: History, from: number): number[] {
  const bound = lastStableOffset(history);
  return history.records
    .filter(({ offset, transaction }) => {
      const visible = transaction === undefined || transaction.outcome === 'commit';
      return visible && offset >= from && offset < bound;
    })
    .map(({ offset }) => offset);
}

const batchesOf = (records: readonly Uint8Array[]): RecordBatch[] => {
  const found: RecordBatch[] = [];
  for (const chunk of records) {
    const scan = forEachBatch(chunk, 0, chunk.length, (batch) => {
      found.push(new RecordBatch(batch.slice()));
    });
    assert.equal(scan.ok, true);
  }
  return found;
};

const decoded = (batch: RecordBatch) => [...decodeRecords(batch, compression, 1_000_000)];

/**
 * A consumer as released clients are: aborted transactions are entered by offset and left at their
 * ABORT markers; control batches are not handed out. `hasProducerId` says which ids it believes in.
 */
function consume(
  fetch: (offset: number) => FetchResult,
  from: number,
  end: number,
  hasProducerId: (id: bigint) => boolean,
): number[] {
  const got: number[] = [];
  let position = from;
  while (position < end) {
    const { error, records, abortedTransactions } = fetch(position);
    assert.equal(error, errors.NONE.code);
    const waiting = [...(abortedTransactions ?? [])].sort((a, b) => a.firstOffset - b.firstOffset);
    const aborting = new Set<bigint>();
    const before = position;
    for (const batch of batchesOf(records)) {
      assert.equal(batch.validCrc(), true);
      assert.ok(batch.lastOffset >= position, 'batches are in order');
      while (waiting[0] !== undefined && waiting[0].firstOffset <= batch.lastOffset) {
        aborting.add((waiting.shift() as { producerId: bigint }).producerId);
      }
      const id = batch.producerId;
      const records = decoded(batch);
      if (batch.isControl) {
        const isAbort = records.some((each) => controlRecordType(each) === ControlRecordType.abort);
        if (isAbort) aborting.delete(id);
      } else if (!(hasProducerId(id) && batch.isTransactional && aborting.has(id))) {
        got.push(...records.map(({ offset }) => offset).filter((offset) => offset >= position));
      }
      position = batch.nextOffset;
    }
    assert.ok(position > before, `no progress at ${before}`);
  }
  return got;
}

/** A mirrored topic with these batches, each appended on its own. */
function mirroredTopic(broker: TestBroker, batches: readonly Uint8Array[], isr?: number[]) {
  const topic = `t${broker.image.topicsByName.size}`;
  // Several segments, so that the aborted transactions of one read lie in several indexes.
  broker.configs.set(topic, { segmentBytes: 700, indexIntervalBytes: 100 });
  broker.gate.set(topic, { topic, mirror: 'm', state: 'MIRRORING' });
  broker.createTopic(topic, 1, isr === undefined ? {} : { replicas: isr, isr });
  const partition = broker.partition(topic);
  for (const batch of batches) {
    assert.equal(partition.appendMirrored([batch], partition.leaderEpoch).error, 0);
  }
  return partition;
}

function fetchOne(
  partition: Partition,
  offset: number,
  fields: Partial<FetchParams> = COMMITTED,
  maxBytes = 1_000_000,
): FetchResult {
  const isReplica = (fields.replicaId ?? -1) >= 0;
  const request = (isReplica ? replicaPartition : fetchPartition)(partition.topic, 0, offset);
  return partition.fetch(request, fetchParams(fields), maxBytes, true);
}

const producerArbitrary = fc.nat({ max: PRODUCERS.length - 1 });
const stepArbitrary: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('plain' as const),
      count: fc.integer({ min: 1, max: 3 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('data' as const),
      producer: producerArbitrary,
      count: fc.integer({ min: 1, max: 4 }),
      gzip: fc.boolean(),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('end' as const),
      producer: producerArbitrary,
      commit: fc.boolean(),
    }),
  },
);

test('P3 P2: every stock consumer gets exactly the committed records', async (t) => {
  const broker = await startTestBroker(t);
  const property = fc.property(
    fc.array(stepArbitrary, { minLength: 1, maxLength: 40 }),
    fc.nat(),
    fc.integer({ min: 1, max: 1500 }),
    (steps, position, maxBytes) => {
      const history = historyOf(steps);
      const partition = mirroredTopic(broker, history.batches);
      const end = lastStableOffset(history);
      assert.equal(partition.log.lastStableOffset, end);
      const from = position % (history.end + 1);
      const expected = committedOffsets(history, from);
      const fetch = (offset: number) => fetchOne(partition, offset, COMMITTED, maxBytes);
      assert.deepEqual(
        consume(fetch, from, end, (id) => id > -1n),
        expected,
      );
      assert.deepEqual(
        consume(fetch, from, end, (id) => id !== -1n),
        expected,
      );
    },
  );
  fc.assert(property, propertyRuns(150));
});

test('P3: mirrors, followers and READ_UNCOMMITTED readers get the log as it is', async (t) => {
  const broker = await startTestBroker(t);
  const property = fc.property(fc.array(stepArbitrary, { maxLength: 25 }), (steps) => {
    const history = historyOf(steps);
    const log = Buffer.concat(history.batches);
    const partition = mirroredTopic(broker, history.batches, [THIS_BROKER, OTHER_BROKER]);
    const read = (fields: Partial<FetchParams>, end: number): Buffer => {
      const chunks: Uint8Array[] = [];
      for (let position = 0; position < end; ) {
        const { records } = fetchOne(partition, position, fields);
        chunks.push(...records);
        position = batchesOf(records).at(-1)?.nextOffset ?? Number.NaN;
      }
      return Buffer.concat(chunks);
    };
    assert.deepEqual(read({ replicaId: OTHER_BROKER }, history.end), log);
    fetchOne(partition, history.end, { replicaId: OTHER_BROKER });
    assert.deepEqual(read({}, history.end), log);
    const stable = lastStableOffset(history);
    const mirrored = read({ ...COMMITTED, mirrorFetch: true }, stable);
    assert.deepEqual(mirrored, log.subarray(0, mirrored.length));
  });
  fc.assert(property, propertyRuns(40));
});

/** An aborted, gzipped batch at 0–3 of a mirrored producer, plain data at 4, the marker at 5. */
const ABORTED: readonly Step[] = [
  { kind: 'data', producer: 3, count: 4, gzip: true },
  { kind: 'plain', count: 1 },
  { kind: 'end', producer: 3, commit: false },
];

test('P3: the stand-in is a COMMIT record over the offsets of the batch', async (t) => {
  const broker = await startTestBroker(t);
  const { batches } = historyOf(ABORTED);
  const partition = mirroredTopic(broker, batches);
  const original = new RecordBatch(batches[0] as Uint8Array);
  const [standIn, plain, marker] = batchesOf(fetchOne(partition, 0).records);
  assert.ok(standIn && plain && marker);
  assert.equal(standIn.validCrc(), true);
  assert.deepEqual([standIn.baseOffset, standIn.lastOffset, standIn.count], [0, 3, 1]);
  assert.deepEqual([standIn.producerId, standIn.producerEpoch], [-9n, 3]);
  assert.deepEqual([standIn.isControl, standIn.isTransactional], [true, true]);
  assert.equal(standIn.compressionType, 'none');
  assert.equal(standIn.partitionLeaderEpoch, original.partitionLeaderEpoch);
  assert.equal(standIn.maxTimestamp, original.maxTimestamp);
  const [record, ...more] = decoded(standIn);
  assert.ok(record);
  assert.deepEqual(more, []);
  // kafkajs goes on behind the last record that it saw.
  assert.equal(record.offset, 3);
  assert.deepEqual(Buffer.from(record.key ?? []), Buffer.from([0, 0, 0, 1]));
  assert.equal(parseTransactionMarker(record)?.commit, true);
  assert.deepEqual(Buffer.from(plain.bytes), Buffer.from(batches[1] as Uint8Array));
  assert.deepEqual(Buffer.from(marker.bytes), Buffer.from(batches[2] as Uint8Array));
});

test('P3: a fetch from within an aborted batch begins with its stand-in', async (t) => {
  const broker = await startTestBroker(t);
  const partition = mirroredTopic(broker, historyOf(ABORTED).batches);
  const [standIn] = batchesOf(fetchOne(partition, 2).records);
  assert.deepEqual([standIn?.isControl, standIn?.baseOffset, standIn?.lastOffset], [true, 0, 3]);
});

test('P3: fetch.min.bytes and byte limits count what is in the log', async (t) => {
  const broker = await startTestBroker(t);
  const { batches } = historyOf(ABORTED);
  const bytes = batches.reduce((sum, batch) => sum + batch.length, 0);
  const partition = mirroredTopic(broker, batches.slice(0, 2));
  const params = fetchParams({ readCommitted: true, minBytes: bytes });
  const asked = [fetchPartition(partition.topic, 0, 0)];
  const poll = watch(broker.replicas.fetch(params, asked));
  await settle();
  assert.equal(poll.done, false);
  partition.appendMirrored([batches[2] as Uint8Array], partition.leaderEpoch);
  await settle();
  const [result] = poll.value ?? [];
  assert.equal(result?.bytes, bytes);
  assert.equal(batchesOf(result?.records ?? []).length, 3);
  const one = fetchOne(partition, 0, COMMITTED, (batches[0] as Uint8Array).length);
  assert.deepEqual(
    batchesOf(one.records).map((batch) => batch.lastOffset),
    [3],
  );
});

test('P3: what is not replaced is handed on by reference, all of it without need', () => {
  const { batches } = historyOf([{ kind: 'plain', count: 2 }, ...ABORTED]);
  const chunk = new Uint8Array(Buffer.concat(batches));
  const chunks = [chunk];
  const local = { producerId: 7n, firstOffset: 2, lastOffset: 7 };
  assert.equal(hideAbortedBatches(chunks, []), chunks);
  assert.equal(hideAbortedBatches(chunks, [local]), chunks);
  const other = [{ producerId: -2n, firstOffset: 2, lastOffset: 7 }];
  assert.deepEqual(hideAbortedBatches(chunks, other), chunks);
  assert.equal(hideAbortedBatches(chunks, other)[0], chunk);
  const mirrored = [{ producerId: -9n, firstOffset: 2, lastOffset: 7 }];
  const served = hideAbortedBatches(chunks, [local, ...mirrored]);
  assert.deepEqual(
    served.map((each) => each.buffer === chunk.buffer),
    [true, false, true],
  );
  assert.ok((served[1]?.length ?? 0) < BATCH_HEADER_BYTES + 30);
});
