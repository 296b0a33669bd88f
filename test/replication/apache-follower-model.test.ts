/**
 * A model of Apache Kafka's follower against a real leader: whatever a mirror does to its log, the
 * follower ends with the same batches and is never set aside for good (G13 to G16).
 *
 * The model does what Apache's follower does with each answer, and fails where that would mark the
 * partition as failed: a batch below its end, an epoch above its own, a start above its watermark.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Uuid } from '../../src/base/uuid.ts';
import { errors } from '../../src/protocol/errors.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { FetchResult } from '../../src/replication/fetch-types.ts';
import { OffsetSpec } from '../../src/replication/list-offsets.ts';
import { propertyRuns } from '../property-runs.ts';
import { fetchParams, mirrored, OTHER_BROKER, TestBroker, THIS_BROKER } from './harness.ts';

/** Rounds in which a follower that is left alone must have everything. */
const ROUNDS_TO_SETTLE = 30;

interface Held {
  readonly base: number;
  readonly last: number;
  readonly epoch: number;
  readonly hex: string;
}

function batchesOf(records: readonly Uint8Array[]): Held[] {
  const bytes = Buffer.concat(records);
  const found: Held[] = [];
  for (let at = 0; at < bytes.length; ) {
    const each = new RecordBatch(bytes, at);
    const hex = Buffer.from(each.slice()).toString('hex');
    const { baseOffset, lastOffset, partitionLeaderEpoch } = each;
    found.push({ base: baseOffset, last: lastOffset, epoch: partitionLeaderEpoch, hex });
    at = each.end;
  }
  return found;
}

/** The leader: a mirror partition of a guest, with the test as its source. */
class Leader {
  readonly broker = new TestBroker();
  topicId = '' as Uuid;
  written = 0;

  async open(): Promise<void> {
    await this.broker.open();
    this.broker.admits = () => false;
    this.broker.gate.set('t', { topic: 't', mirror: 'm', state: 'MIRRORING' });
    const replicas = [THIS_BROKER, OTHER_BROKER];
    this.topicId = this.broker.createTopic('t', 1, { replicas, isr: [THIS_BROKER] });
  }

  get partition() {
    return this.broker.partition('t');
  }

  append(gap: number, count: number): void {
    const { log, leaderEpoch } = this.partition;
    const base = Math.max(log.logEndOffset, log.logStartOffset) + gap;
    // Each batch differs from any other that was ever at its offset.
    const bytes = mirrored(base, count, leaderEpoch);
    const batch = new RecordBatch(bytes);
    batch.rewriteProducerId(BigInt(++this.written));
    assert.equal(this.partition.appendMirrored([bytes], leaderEpoch).error, 0);
  }

  newEpoch(): void {
    const { leaderEpoch } = this.partition;
    this.broker.changePartition('t', 0, { leaderEpoch: leaderEpoch + 1, leader: -1 });
    const leader = THIS_BROKER;
    this.broker.changePartition('t', 0, { leaderEpoch: leaderEpoch + 2, leader });
  }

  cut(offset: number): void {
    const result = this.partition.truncateForMirror(offset, this.partition.leaderEpoch);
    assert.equal(result.error, 0);
  }

  /** T3: all is dropped, and the log goes on below its start. */
  restartBelow(below: number): void {
    const { log, leaderEpoch } = this.partition;
    const offset = Math.max(0, log.logStartOffset - below);
    assert.equal(this.partition.restartForMirror(offset, offset, leaderEpoch), 0);
  }

  followStart(offset: number): void {
    assert.equal(this.partition.followLogStart(offset, this.partition.leaderEpoch), 0);
  }

  /** F9: the log, which is empty, begins inside a batch that is yet to come. */
  startInside(below: number): void {
    const { log, leaderEpoch } = this.partition;
    const { logStartOffset } = log;
    if (log.logEndOffset !== logStartOffset || logStartOffset === 0) return;
    const base = Math.max(0, logStartOffset - below);
    assert.equal(this.partition.restartForMirror(base, logStartOffset, leaderEpoch), 0);
    const bytes = mirrored(base, logStartOffset - base + 2, leaderEpoch);
    new RecordBatch(bytes).rewriteProducerId(BigInt(++this.written));
    this.pendingInside = bytes;
  }

  pendingInside: Uint8Array | undefined;

  /** The batch that holds the log start arrives. */
  arriveInside(): void {
    const bytes = this.pendingInside;
    this.pendingInside = undefined;
    if (bytes === undefined) return;
    const { leaderEpoch } = this.partition;
    new RecordBatch(bytes).setPartitionLeaderEpoch(leaderEpoch);
    this.partition.appendMirrored([bytes], leaderEpoch);
  }

  held(): Held[] {
    const { log } = this.partition;
    const found: Held[] = [];
    // A read ends with its segment.
    for (let from = log.logStartOffset; from < log.logEndOffset; ) {
      const read = log.read(from, 100_000_000, 'logEnd', true);
      assert.ok(read.error === 0 && read.bytes > 0);
      found.push(...batchesOf(read.records));
      from = (found.at(-1)?.last ?? from) + 1;
    }
    return found;
  }
}

/** What Apache Kafka's follower does, as far as the leader can notice. */
class Follower {
  readonly #leader: Leader;
  #leaderEpoch = 0;
  logStart = 0;
  logEnd = 0;
  #highWatermark = 0;
  batches: Held[] = [];
  #epochs: { epoch: number; start: number }[] = [];

  constructor(leader: Leader) {
    this.#leader = leader;
  }

  /** One fetch and what follows from it. */
  async fetch(maxBytes: number): Promise<void> {
    const params = fetchParams({ replicaId: OTHER_BROKER, replicaEpoch: 102, maxWaitMs: 0 });
    const fetchOffset = this.logEnd;
    const [result] = await this.#leader.broker.replicas.fetch(params, [
      {
        topicId: this.#leader.topicId,
        topic: '',
        partition: 0,
        fetchOffset,
        maxBytes,
        currentLeaderEpoch: this.#leaderEpoch,
        lastFetchedEpoch: this.#epochs.at(-1)?.epoch ?? -1,
        logStartOffset: this.logStart,
      },
    ]);
    assert.ok(result);
    if (result.error === errors.FENCED_LEADER_EPOCH.code) {
      this.#leaderEpoch = this.#leader.partition.leaderEpoch;
    } else if (result.error === errors.OFFSET_OUT_OF_RANGE.code) this.#outOfRange();
    else {
      assert.equal(result.error, 0);
      if (result.divergingEpoch !== undefined) this.#truncateFor(result.divergingEpoch);
      else this.#take(result, fetchOffset);
    }
  }

  #take(result: FetchResult, fetchOffset: number): void {
    assert.ok(fetchOffset >= result.logStartOffset, 'FAILED: fetch offset below the log start');
    for (const batch of batchesOf(result.records)) this.#append(batch);
    this.#highWatermark = Math.max(Math.min(result.highWatermark, this.logEnd), this.logStart);
    if (result.logStartOffset <= this.logStart) return;
    assert.ok(result.logStartOffset <= this.#highWatermark, 'FAILED: log start above the HW');
    this.logStart = result.logStartOffset;
    this.batches = this.batches.filter(({ last }) => last >= this.logStart);
  }

  #append(batch: Held): void {
    assert.ok(batch.epoch >= 0 && batch.epoch <= this.#leaderEpoch, 'FAILED: leader epoch');
    if (batch.base < this.logEnd) {
      const isFirst = this.logEnd === this.logStart && batch.last >= this.logEnd;
      assert.ok(isFirst, `FAILED: batch ${batch.base} below the log end ${this.logEnd}`);
      this.#restartAt(batch.base);
    }
    this.batches.push(batch);
    this.logEnd = batch.last + 1;
    if (this.#epochs.at(-1)?.epoch === batch.epoch) return;
    const older = ({ epoch, start }: { epoch: number; start: number }): boolean =>
      epoch < batch.epoch && start < batch.base;
    this.#epochs = [...this.#epochs.filter(older), { epoch: batch.epoch, start: batch.base }];
  }

  #restartAt(offset: number): void {
    this.batches = [];
    this.#epochs = [];
    this.logStart = offset;
    this.logEnd = offset;
    this.#highWatermark = offset;
  }

  #outOfRange(): void {
    const latest = this.#leaderOffset(OffsetSpec.LATEST);
    if (latest < this.logEnd) {
      this.#truncate(latest);
      return;
    }
    const earliest = this.#leaderOffset(OffsetSpec.EARLIEST);
    if (earliest > this.logEnd) this.#restartAt(earliest);
  }

  #leaderOffset(timestamp: bigint): number {
    const { replicas } = this.#leader.broker;
    const asks = { replicaId: OTHER_BROKER, readCommitted: false };
    const currentLeaderEpoch = this.#leaderEpoch;
    const key = { topic: 't', topicId: this.#leader.topicId, partition: 0 };
    const [answer] = replicas.listOffsets(asks, [{ ...key, currentLeaderEpoch, timestamp }]);
    assert.equal(answer?.error, 0);
    return answer?.offset ?? -1;
  }

  /** Once; if the leader's epoch is not known here, the next fetch diverges again, lower. */
  #truncateFor(diverging: { epoch: number; endOffset: number }): void {
    const after = this.#epochs.find(({ epoch }) => epoch > diverging.epoch);
    const own = this.#epochs.findLast(({ epoch }) => epoch <= diverging.epoch);
    const ownEnd = after?.start ?? this.logEnd;
    if (own === undefined) this.#truncate(Math.min(diverging.endOffset, this.logEnd));
    else if (own.epoch !== diverging.epoch) this.#truncate(Math.min(ownEnd, this.logEnd));
    else this.#truncate(Math.min(ownEnd, diverging.endOffset, this.logEnd));
  }

  #truncate(offset: number): void {
    if (offset < this.logStart) {
      this.#restartAt(offset);
      return;
    }
    this.batches = this.batches.filter(({ last }) => last < offset);
    this.logEnd = Math.min(this.logEnd, offset);
    this.#highWatermark = Math.min(this.#highWatermark, this.logEnd);
    this.#epochs = this.#epochs.filter(({ start }) => start < offset);
  }
}

type Act =
  | { readonly type: 'append'; readonly gap: number; readonly count: number }
  | { readonly type: 'cut'; readonly share: number; readonly fetches: number }
  | { readonly type: 'restart'; readonly below: number; readonly fetches: number }
  | { readonly type: 'epoch' }
  | { readonly type: 'start'; readonly share: number }
  | { readonly type: 'inside'; readonly below: number; readonly fetches: number }
  | { readonly type: 'fetch'; readonly times: number; readonly maxBytes: number };

const gap = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 9 }), fc.constant(2 ** 32));
const act: fc.Arbitrary<Act> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant('append' as const),
      gap,
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('cut' as const),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
      fetches: fc.nat(2),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('restart' as const),
      below: fc.integer({ min: 0, max: 9 }),
      fetches: fc.nat(2),
    }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('epoch' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant('start' as const),
      share: fc.double({ min: 0, max: 1.3, noNaN: true }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant('inside' as const),
      below: fc.integer({ min: 1, max: 5 }),
      fetches: fc.nat(3),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant('fetch' as const),
      times: fc.integer({ min: 1, max: 4 }),
      maxBytes: fc.constantFrom(1, 300, 1_000_000),
    }),
  },
);

async function perform(leader: Leader, follower: Follower, each: Act): Promise<void> {
  const fetch = async (times: number, maxBytes = 300): Promise<void> => {
    for (let i = 0; i < times; i++) await follower.fetch(maxBytes);
  };
  const { logStartOffset, logEndOffset } = leader.partition.log;
  const at = (share: number): number =>
    logStartOffset + Math.floor(share * Math.max(0, logEndOffset - logStartOffset));
  switch (each.type) {
    case 'append':
      leader.append(each.gap, each.count);
      break;
    case 'cut':
      // No append comes between a cut and its epoch (T5).
      leader.cut(at(each.share));
      await fetch(each.fetches);
      leader.newEpoch();
      break;
    case 'restart':
      leader.restartBelow(each.below);
      await fetch(each.fetches);
      leader.newEpoch();
      break;
    case 'epoch':
      leader.newEpoch();
      break;
    case 'start':
      leader.followStart(at(each.share));
      break;
    case 'inside':
      leader.startInside(each.below);
      await fetch(each.fetches);
      leader.arriveInside();
      break;
    case 'fetch':
      await fetch(each.times, each.maxBytes);
      break;
  }
}

const FAR = 2 ** 32;
/** Just above the log start, in the gap below a batch that is {@link FAR} above. */
const ABOVE_START = 1 / FAR;
const farAppend: Act = { type: 'append', gap: FAR, count: 1 };
const nearAppend: Act = { type: 'append', gap: 0, count: 1 };
const fetchOnce: Act = { type: 'fetch', times: 1, maxBytes: 1 };

/** What failed once: each of a replica that has no record, and does not end at our log start. */
const FOUND: [Act[]][] = [
  // The log start lay inside a batch that was cut, and went back with it.
  [
    [
      farAppend,
      { type: 'start', share: ABOVE_START },
      farAppend,
      { type: 'cut', share: 0, fetches: 1 },
      { type: 'inside', below: 1, fetches: 0 },
      { type: 'cut', share: 0, fetches: 0 },
    ],
  ],
  // It had followed a cut into a gap; the next cut went below that.
  [
    [
      farAppend,
      fetchOnce,
      { type: 'cut', share: ABOVE_START, fetches: 0 },
      farAppend,
      { type: 'fetch', times: 2, maxBytes: 1 },
      { type: 'cut', share: 0, fetches: 0 },
    ],
  ],
  // It had begun at a log start that went back.
  [
    [
      nearAppend,
      { type: 'start', share: 1 },
      farAppend,
      fetchOnce,
      { type: 'restart', below: 1, fetches: 0 },
      farAppend,
    ],
  ],
  // It ended at the log start without knowing it for one, and a batch held that offset.
  [
    [
      farAppend,
      fetchOnce,
      { type: 'start', share: ABOVE_START },
      { type: 'restart', below: 0, fetches: 1 },
      nearAppend,
      { type: 'restart', below: 0, fetches: 0 },
      { type: 'inside', below: 1, fetches: 0 },
    ],
  ],
];

test('G13 G14 G15 G16 a follower ends with the leader’s batches, whatever happened', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 5, maxLength: 40 }), async (acts) => {
      const leader = new Leader();
      try {
        await leader.open();
        const follower = new Follower(leader);
        for (const each of acts) await perform(leader, follower, each);
        // A cut can end in a gap, where no batch brings a follower; the next one does.
        leader.append(0, 1);
        const { log } = leader.partition;
        const isSame = (): boolean =>
          follower.logEnd === Math.max(log.logEndOffset, log.logStartOffset) &&
          follower.logStart === log.logStartOffset;
        for (let i = 0; i < ROUNDS_TO_SETTLE || !isSame(); i++) {
          assert.ok(i < acts.length * 6 + ROUNDS_TO_SETTLE, 'the follower does not arrive');
          await follower.fetch(1_000_000);
        }
        assert.deepEqual(follower.batches, leader.held());
      } finally {
        await leader.broker.close();
      }
    }),
    { ...propertyRuns(80, 40), examples: FOUND },
  );
});
