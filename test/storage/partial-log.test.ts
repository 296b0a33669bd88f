/**
 * Logs that begin above their log start, as a guest's that followed from an offset (G29): what lies
 * between is on other replicas, and nothing that happens to such a log may make it look deleted.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { DiskError } from '../../src/io/runtime.ts';
import { ErrorCode } from '../../src/protocol/errors.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { PowerLoss } from '../../src/sim/sim-file.ts';
import { LOCAL_LOG_START_FILE, LOG_START_FILE } from '../../src/storage/checkpoints.ts';
import type { Log } from '../../src/storage/log.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import type { SnapshotEntry } from '../../src/storage/producer-snapshot.ts';
import { propertyRuns } from '../property-runs.ts';
import { counted, ENDINGS, nameOf } from './crash-points.ts';
import { batchOf, follow, marker, readAll, SimHost, TP } from './harness.ts';

const BEGIN = 1000;
const LOG_START = 100;
const EPOCHS = [
  { epoch: 0, startOffset: 0 },
  { epoch: 2, startOffset: 600 },
];
const SMALL = { segmentBytes: 400, indexIntervalBytes: 100 };
const { NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE } = ErrorCode;

/** An open transaction of the leader before. */
function openAt(firstOffset: number, producerId = 7n): SnapshotEntry {
  return {
    producerId,
    producerEpoch: 3,
    lastSequence: 4,
    lastOffset: firstOffset,
    offsetDelta: 0,
    timestamp: 1_700_000_000_000n,
    coordinatorEpoch: 1,
    currentTxnFirstOffset: firstOffset,
  };
}

function append(log: Log, count: number, epoch = 5): void {
  for (let index = 0; index < count; index++) {
    const fields = { baseOffset: log.logEndOffset, partitionLeaderEpoch: epoch };
    follow(log, batchOf(`b${log.logEndOffset}`, 2, fields));
  }
}

/** The end of a transaction of producer 7. */
function end(log: Log, commit: boolean): void {
  const bytes = marker(7n, commit, log.logEndOffset);
  new RecordBatch(bytes).setPartitionLeaderEpoch(5);
  follow(log, bytes);
}

function begun(config: object = SMALL): SimHost {
  const host = new SimHost(config);
  host.log.beginAt(BEGIN, LOG_START, EPOCHS);
  return host;
}

const errorAt = (log: Log, offset: number): number => log.read(offset, 1000, 'logEnd', true).error;

function starts({ logStartOffset, localLogStartOffset, logEndOffset }: Log): number[] {
  return [logStartOffset, localLogStartOffset, logEndOffset];
}

test('G29 a partial log keeps the log start of the others and has nothing below its begin', () => {
  const { log } = begun();
  assert.deepEqual(starts(log), [LOG_START, BEGIN, BEGIN]);
  append(log, 3);
  assert.deepEqual(starts(log), [LOG_START, BEGIN, BEGIN + 6]);
  assert.equal(errorAt(log, LOG_START - 1), OFFSET_OUT_OF_RANGE);
  for (const offset of [LOG_START, 600, BEGIN - 1]) {
    assert.equal(errorAt(log, offset), NOT_LEADER_OR_FOLLOWER);
    assert.equal(log.isElsewhere(offset), true);
  }
  assert.equal(log.isElsewhere(BEGIN), false);
  assert.equal(errorAt(log, BEGIN), 0);
  assert.equal(errorAt(log, BEGIN + 7), OFFSET_OUT_OF_RANGE);
  assert.deepEqual(
    readAll(log, BEGIN).map((batch) => batch.baseOffset),
    [BEGIN, BEGIN + 2, BEGIN + 4],
  );
});

test('G29 the epochs below the begin tell where a log parts from the others', async () => {
  const host = begun();
  append(host.log, 2);
  for (let life = 0; life < 2; life++) {
    const { log } = host;
    assert.deepEqual(log.epochEndOffset(0), { leaderEpoch: 0, endOffset: 600 });
    assert.deepEqual(log.epochEndOffset(1), { leaderEpoch: 0, endOffset: 600 });
    assert.deepEqual(log.epochEndOffset(2), { leaderEpoch: 2, endOffset: BEGIN });
    assert.deepEqual(log.epochEndOffset(5), { leaderEpoch: 5, endOffset: BEGIN + 4 });
    assert.equal(log.epochForOffset(700), 2);
    await (life === 0 ? host.kill() : host.restart());
  }
});

test('G29 a kill, a stop and each kind of power loss leave a partial log one', async () => {
  const losses: PowerLoss['unsynced'][] = ['lose', 'prefix', 'subset'];
  for (const ending of ['kill', 'restart', ...losses] as const) {
    const host = begun();
    append(host.log, 10);
    if (ending === 'kill') await host.kill();
    else if (ending === 'restart') await host.restart();
    else host.losePower({ unsynced: ending, tornTail: true });
    const { log } = host;
    assert.deepEqual(starts(log).slice(0, 2), [LOG_START, BEGIN], ending);
    assert.equal(errorAt(log, BEGIN - 1), NOT_LEADER_OR_FOLLOWER);
    append(log, 1, 6);
    await host.end();
  }
});

test('G29 retention leaves a partial log alone until the log start has passed its begin', () => {
  const { log } = begun({ ...SMALL, retentionBytes: 0, retentionMs: 0 });
  append(log, 20);
  log.updateHighWatermark(log.logEndOffset);
  assert.equal(log.deleteOldSegments(), 0);
  assert.deepEqual(starts(log), [LOG_START, BEGIN, BEGIN + 40]);
  assert.equal(log.maybeIncrementLogStartOffset(700), true);
  assert.deepEqual(starts(log), [700, BEGIN, BEGIN + 40]);
  assert.deepEqual(log.epochEndOffset(0), { leaderEpoch: 0, endOffset: 700 });
  assert.equal(log.maybeIncrementLogStartOffset(BEGIN + 5), true);
  assert.deepEqual(starts(log), [BEGIN + 5, BEGIN + 5, BEGIN + 40]);
  assert.equal(errorAt(log, BEGIN), OFFSET_OUT_OF_RANGE);
  assert(log.deleteOldSegments() > 0);
});

test('G29 cut to its begin, a partial log is empty there and knows what came before', async () => {
  const host = begun();
  host.log.adoptProducers([openAt(950)]);
  append(host.log, 10);
  end(host.log, true);
  assert.deepEqual(host.log.openTransactions(), []);
  host.log.updateHighWatermark(host.log.logEndOffset);
  assert.equal(host.log.truncateTo(BEGIN), true);
  for (const ending of ['none', 'lose', 'kill', 'restart'] as const) {
    if (ending === 'kill') await host.kill();
    if (ending === 'restart') await host.restart();
    if (ending === 'lose') host.losePower({ unsynced: ending, tornTail: false });
    const { log } = host;
    assert.deepEqual(starts(log), [LOG_START, BEGIN, BEGIN], ending);
    log.updateHighWatermark(BEGIN);
    assert.deepEqual([log.highWatermark, log.lastStableOffset], [BEGIN, 950], ending);
    assert.deepEqual(log.openTransactions(), [{ producerId: 7n, firstOffset: 950 }], ending);
    assert.deepEqual(log.epochEndOffset(1), { leaderEpoch: 0, endOffset: 600 }, ending);
    assert.equal(log.latestEpoch, 2);
  }
  append(host.log, 2);
  end(host.log, false);
  host.log.updateHighWatermark(host.log.logEndOffset);
  assert.equal(host.log.lastStableOffset, host.log.logEndOffset);
  const read = host.log.read(BEGIN, 10_000, 'lastStable', true);
  assert(read.error === 0);
  assert.deepEqual(read.abortedTransactions, [
    { producerId: 7n, firstOffset: 950, lastOffset: BEGIN + 4, lastStableOffset: BEGIN + 5 },
  ]);
});

test('G31 cut below its begin, a partial log begins there, above the log start', async () => {
  const host = begun();
  host.log.adoptProducers([openAt(950)]);
  append(host.log, 10);
  assert.equal(host.log.truncateTo(950), true);
  for (let life = 0; life < 2; life++) {
    assert.deepEqual(starts(host.log), [LOG_START, 950, 950]);
    assert.deepEqual(host.log.openTransactions(), []);
    assert.deepEqual(host.log.epochEndOffset(1), { leaderEpoch: 0, endOffset: 600 });
    host.losePower({ unsynced: 'lose', tornTail: false });
  }
  assert.equal(host.log.truncateTo(400), true);
  assert.equal(host.log.latestEpoch, 0);
  assert.deepEqual(starts(host.log), [LOG_START, 400, 400]);
  assert.equal(host.log.truncateTo(50), true);
  assert.deepEqual(starts(host.log), [50, 50, 50]);
  append(host.log, 1);
  await host.kill();
  assert.deepEqual(starts(host.log), [50, 50, 52]);
});

test('G29 starting over elsewhere ends what was partial, and the files say so', async () => {
  const host = begun();
  append(host.log, 5);
  host.log.truncateFullyAndStartAt(BEGIN - 10);
  assert.deepEqual(starts(host.log), [BEGIN - 10, BEGIN - 10, BEGIN - 10]);
  await host.kill();
  assert.deepEqual(starts(host.log), [BEGIN - 10, BEGIN - 10, BEGIN - 10]);
  host.log.beginAt(BEGIN, BEGIN, []);
  await host.kill();
  assert.deepEqual(starts(host.log), [BEGIN, BEGIN, BEGIN]);
});

test('G29 what a partial log cannot know about timestamps, it does not claim', () => {
  const { log } = begun();
  const time = 1_700_000_000_000n;
  assert.equal(log.offsetForTimestamp(time), 'elsewhere');
  assert.equal(log.maxTimestamp(), 'elsewhere');
  append(log, 1);
  const later = [{ key: null, value: null, timestamp: Number(time) + 5000 }];
  follow(log, batchOf('later', 1, { baseOffset: log.logEndOffset, records: later }));
  assert.equal(log.offsetForTimestamp(time), 'elsewhere');
  const found = { offset: BEGIN + 2, timestamp: time + 5000n, leaderEpoch: -1 };
  assert.deepEqual(log.offsetForTimestamp(time + 4000n), found);
  assert.deepEqual(log.maxTimestamp(), found);
  assert.equal(log.offsetForTimestamp(time + 6000n), undefined);
});

test('G29 a damaged checkpoint never makes the begin the log start', async () => {
  for (const damaged of [LOG_START_FILE, LOCAL_LOG_START_FILE]) {
    const host = begun();
    append(host.log, 2);
    await host.settle(host.manager.close());
    const file = host.files().open(`/data/${damaged}`, 'update');
    file.write([Buffer.from('junk')], 0);
    file.close();
    host.stop();
    host.start();
    assert(host.log.logStartOffset <= LOG_START, damaged);
    assert.equal(host.log.localLogStartOffset, BEGIN);
  }
});

/** What a guest's log goes through in a failback, up to `fatal`. */
function failback(log: Log): void {
  log.beginAt(BEGIN, LOG_START, EPOCHS);
  log.adoptProducers([openAt(950)]);
  append(log, 12);
  log.updateHighWatermark(log.logEndOffset);
  log.truncateTo(BEGIN);
  append(log, 3, 7);
  log.truncateTo(950);
  append(log, 3, 9);
}

for (const ending of ENDINGS) {
  test(`G29 ${nameOf(ending)} at every disk call: the log start never moves up`, () => {
    let fatal = 0;
    for (; fatal < 1000; fatal++) {
      const host = new SimHost(SMALL, fatal + 1);
      host.stop();
      let happened = false;
      const crash = () => {
        happened = true;
        if (ending === 'kill') host.world.kill('machine');
        else host.world.losePower('machine', ending);
      };
      const { runtime, state } = counted(host.world.start('machine'), fatal, crash);
      const manager = new LogManager(runtime, { logDir: '/data', defaultConfig: host.config });
      manager.load(() => host.config);
      const log = manager.getLog(TP) ?? manager.createLog(TP, undefined, host.config);
      state.armed = true;
      try {
        failback(log);
      } catch (error) {
        if (!(error instanceof DiskError) || !happened) throw error;
      }
      if (!happened) break;
      host.start();
      const found = host.manager.getLog(TP);
      if (found === undefined) continue;
      const seen = `call ${fatal}: ${starts(found)}`;
      assert(found.logStartOffset <= LOG_START, seen);
      // Below 950 it is the empty log of before, which is begun again.
      if (found.logEndOffset < 950) assert.equal(found.logEndOffset, found.logStartOffset, seen);
      else assert.equal(found.logStartOffset, LOG_START, seen);
      if (found.isElsewhere(960)) assert.deepEqual(found.epochEndOffset(0).endOffset, 600, seen);
    }
    assert(fatal > 60, `${fatal} calls`);
  });
}

type Step =
  | { readonly kind: 'append'; readonly count: number }
  | { readonly kind: 'truncate' | 'raise' | 'begin'; readonly at: number }
  | { readonly kind: 'flush' | 'kill' | 'restart' | 'power' | 'roll' | 'retain' };

const at = fc.double({ min: 0, max: 1, noNaN: true });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ kind: fc.constant('append' as const), count: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ kind: fc.constantFrom('truncate' as const, 'raise' as const), at }),
  fc.record({ kind: fc.constant('begin' as const), at }),
  fc.record({
    kind: fc.constantFrom(
      'flush' as const,
      'kill' as const,
      'restart' as const,
      'power' as const,
      'roll' as const,
      'retain' as const,
    ),
  }),
);

test('G29 whatever happens, only those who raise the log start raise it', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40, size: 'max' }), async (all) => {
      const host = begun({ ...SMALL, retentionMs: 0 });
      let highestStart = LOG_START;
      for (const each of all) {
        const { log } = host;
        const [start, local, end] = starts(log) as [number, number, number];
        if (each.kind === 'append') append(log, each.count, 3 + Math.floor(end / 40));
        else if (each.kind === 'truncate') {
          const offset = start + Math.floor((end - start) * Math.sqrt(each.at));
          const cut = log.truncateTo(offset);
          assert(log.logEndOffset <= Math.max(offset, cut ? 0 : end));
          assert.equal(log.logStartOffset, Math.min(start, log.logEndOffset));
        } else if (each.kind === 'raise') {
          const offset = start + Math.floor((end - start) * each.at ** 2);
          log.updateHighWatermark(end);
          log.maybeIncrementLogStartOffset(offset);
          highestStart = Math.max(highestStart, offset);
        } else if (each.kind === 'begin') {
          // As a follower: only with an empty log, and never below the log start.
          if (local === end) log.beginAt(end + Math.floor(each.at * 50), start, []);
        } else if (each.kind === 'roll') log.roll();
        else if (each.kind === 'retain') {
          log.updateHighWatermark(end);
          if (log.deleteOldSegments() > 0) highestStart = Math.max(highestStart, end);
          if (start < local) assert.equal(log.logStartOffset, start);
        } else if (each.kind === 'flush') await host.settle(log.flush());
        else if (each.kind === 'kill') await host.kill();
        else if (each.kind === 'restart') await host.restart();
        else host.losePower({ unsynced: 'prefix', tornTail: true });
        const now = host.log;
        assert(now.logStartOffset <= highestStart, `${each.kind}: ${starts(now)}`);
        assert(now.localLogStartOffset <= Math.max(now.logEndOffset, now.logStartOffset));
        if (now.logStartOffset < now.localLogStartOffset) {
          assert.equal(errorAt(now, now.localLogStartOffset - 1), NOT_LEADER_OR_FOLLOWER);
        }
        readAll(now, now.localLogStartOffset);
      }
      await host.end();
    }),
    propertyRuns(200),
  );
});
