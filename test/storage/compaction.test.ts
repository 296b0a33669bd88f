/** What compaction keeps and drops, when it runs, and what it leaves alone. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import {
  batchesOf,
  COMPACTED,
  compact,
  keyed,
  left,
  put,
  RECORD_TIME_MS,
  restartFromBatches,
  segmentFiles,
} from './compaction-harness.ts';
import { DIRECTORY, follow, marker, readAll, SimHost, TP } from './harness.ts';

const HOUR_MS = 3_600_000;
const CHECKPOINT = '/data/cleaner-offset-checkpoint';

const transactional = (producerId: bigint, baseSequence: number) => ({
  producerId,
  producerEpoch: 0,
  baseSequence,
  isTransactional: true,
});

function end(host: SimHost, producerId: bigint, commit: boolean): void {
  host.log.appendAsFollower([marker(producerId, commit, host.log.logEndOffset)], {
    verifyCrc: true,
  });
}

test('the newest record of every key stays, with its offset and timestamp', async () => {
  const host = new SimHost(COMPACTED);
  put(host.log, [
    ['a', '1'],
    ['b', '1'],
    ['c', '1'],
  ]);
  put(host.log, [
    ['a', '2'],
    ['d', '1'],
  ]);
  put(
    host.log,
    [
      ['b', '2'],
      ['a', '3'],
    ],
    { baseOffset: 50 },
  );
  const before = readAll(host.log);
  await compact(host);
  assert.deepEqual(left(host), ['2:c=1', '4:d=1', '50:b=2', '51:a=3']);
  const batches = batchesOf(host);
  assert.deepEqual(
    batches.map(({ batch }) => [batch.baseOffset, batch.lastOffset, batch.count]),
    [
      [0, 2, 1],
      [3, 4, 1],
      [50, 51, 2],
    ],
  );
  assert.equal(batches[0]?.records[0]?.timestamp, BigInt(RECORD_TIME_MS + 2));
  assert.equal(readAll(host.log)[2]?.bytes, before[2]?.bytes, 'untouched batches keep their bytes');
  assert.deepEqual([host.log.logStartOffset, host.log.logEndOffset], [0, 52]);
  await restartFromBatches(host);
  assert.deepEqual(left(host), ['2:c=1', '4:d=1', '50:b=2', '51:a=3']);
});

test('every codec is kept, and records without a key go', async () => {
  const host = new SimHost(COMPACTED);
  const port = nodeCompression();
  for (const type of ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const) {
    put(
      host.log,
      [
        ['x', type],
        [type, 'v'.repeat(100)],
        [null, 'no key'],
      ],
      {
        compression: { type, port },
      },
    );
  }
  await compact(host);
  assert.deepEqual(
    batchesOf(host).map(({ batch, records }) => [batch.compressionType, records.length]),
    [
      ['none', 1],
      ['gzip', 1],
      ['snappy', 1],
      ['lz4', 1],
      ['zstd', 2],
    ],
  );
  assert.equal(left(host).at(-2), '12:x=zstd');
});

test('a tombstone stays until its delete horizon, which its batch carries', async () => {
  const host = new SimHost({ ...COMPACTED, deleteRetentionMs: HOUR_MS });
  put(host.log, [
    ['a', '1'],
    ['b', '1'],
  ]);
  put(host.log, [
    ['a', null],
    ['c', '1'],
  ]);
  const nowMs = host.runtime.clock.wallMs();
  await compact(host);
  assert.deepEqual(left(host), ['1:b=1', '2:a=null', '3:c=1']);
  const batch = batchesOf(host)[1]?.batch ?? assert.fail();
  assert.equal(batch.hasDeleteHorizon, true);
  const horizonMs = Number(batch.baseTimestamp);
  assert(horizonMs >= nowMs + HOUR_MS && horizonMs < nowMs + HOUR_MS + 60_000);
  assert.equal(batchesOf(host)[1]?.records[1]?.timestamp, BigInt(RECORD_TIME_MS + 1));

  await host.world.simulator.runFor(HOUR_MS / 2);
  put(host.log, [['d', '1']]);
  await compact(host);
  assert.equal(batchesOf(host)[1]?.batch.baseTimestamp, BigInt(horizonMs), 'set once');
  await host.world.simulator.runFor(HOUR_MS / 2 + 60_000);
  put(host.log, [['d', '2']]);
  await compact(host);
  assert.deepEqual(left(host), ['1:b=1', '3:c=1', '5:d=2']);
});

test('P2: aborted data goes at once, its marker after the horizon; open ones stay', async () => {
  for (const producerId of [7n, -2n, -(2n ** 56n) - 9n]) {
    const host = new SimHost({ ...COMPACTED, deleteRetentionMs: HOUR_MS });
    const control = () =>
      batchesOf(host)
        .filter(({ batch }) => batch.isControl)
        .map(({ batch }) => [batch.baseOffset, batch.hasDeleteHorizon]);
    put(host.log, [
      ['a', '1'],
      ['b', '1'],
    ]);
    put(
      host.log,
      [
        ['a', 'aborted'],
        ['z', 'aborted'],
      ],
      transactional(producerId, 0),
    );
    end(host, producerId, false);
    put(host.log, [['b', 'committed']], transactional(producerId, 2));
    end(host, producerId, true);
    await compact(host);
    assert.deepEqual(left(host), ['0:a=1', '5:b=committed']);
    const met = 'batches of both transactions were met in this run';
    assert.deepEqual(
      control(),
      [
        [4, false],
        [6, false],
      ],
      met,
    );
    put(host.log, [['b', 'open']], transactional(producerId, 3));
    await compact(host);
    assert.deepEqual(left(host), ['0:a=1', '5:b=committed', '7:b=open'], 'nothing above the LSO');
    put(host.log, [['c', '1']]);
    end(host, producerId, true);
    await compact(host);
    assert.deepEqual(left(host), ['0:a=1', '7:b=open', '8:c=1']);
    assert.deepEqual(control(), [
      [4, true],
      [6, false],
      [9, false],
    ]);
    put(host.log, [['c', '2']]);
    await compact(host);
    assert.deepEqual(control(), [
      [4, true],
      [6, true],
      [9, false],
    ]);
    await host.world.simulator.runFor(HOUR_MS + 60_000);
    put(host.log, [['c', '3']]);
    await compact(host);
    assert.deepEqual(control(), [[9, false]]);
    await restartFromBatches(host);
    assert.deepEqual(left(host), ['0:a=1', '7:b=open', '11:c=3']);
    const read = host.log.read(0, 10_000, 'lastStable', true);
    assert(read.error === 0);
    assert.deepEqual(read.abortedTransactions, []);
  }
});

test('an aborted batch with the last sequence stays empty, and its abort indexed', async () => {
  const host = new SimHost(COMPACTED);
  put(host.log, [['a', '1']]);
  put(
    host.log,
    [
      ['a', '2'],
      ['b', '2'],
    ],
    transactional(9n, 0),
  );
  end(host, 9n, false);
  await compact(host);
  const [, empty, abort] = batchesOf(host);
  assert.deepEqual([empty?.batch.baseOffset, empty?.batch.lastOffset], [1, 2]);
  assert.deepEqual([empty?.batch.count, empty?.batch.lastSequence], [0, 1]);
  assert.equal(abort?.batch.hasDeleteHorizon, false, 'a batch of its transaction is left');
  const read = host.log.read(0, 10_000, 'lastStable', true);
  assert(read.error === 0);
  assert.deepEqual(
    read.abortedTransactions?.map(({ producerId, firstOffset }) => [producerId, firstOffset]),
    [[9n, 1]],
  );
});

test('an emptied batch remembers a producer over a restart, and fences as before', async () => {
  const host = new SimHost(COMPACTED);
  const idempotent = { producerId: 5n, producerEpoch: 3, baseSequence: 0 };
  put(
    host.log,
    [
      ['a', '1'],
      ['b', '1'],
    ],
    idempotent,
  );
  put(host.log, [
    ['a', '2'],
    ['b', '2'],
  ]);
  put(
    host.log,
    [
      ['a', '3'],
      ['b', '3'],
    ],
    { producerId: 6n, producerEpoch: 0, baseSequence: 0 },
  );
  put(
    host.log,
    [
      ['a', '4'],
      ['b', '4'],
    ],
    { producerId: 6n, producerEpoch: 0, baseSequence: 2 },
  );
  await compact(host);
  assert.deepEqual(
    batchesOf(host).map(({ batch }) => [batch.baseOffset, batch.count]),
    [
      [0, 0],
      [6, 2],
    ],
  );
  await restartFromBatches(host);
  const again = host.log.appendAsLeader(
    keyed(
      [
        ['a', '1'],
        ['b', '1'],
      ],
      idempotent,
    ),
    0,
    'client',
  );
  assert.deepEqual([again.error, again.error === 0 && again.duplicate], [0, true]);
  const stale = keyed([['a', '9']], { ...idempotent, producerEpoch: 2, baseSequence: 2 });
  assert.equal(host.log.appendAsLeader(stale, 0, 'client').error, 47);
  const next = keyed([['a', '5']], { ...idempotent, baseSequence: 2 });
  assert.equal(host.log.appendAsLeader(next, 0, 'client').error, 0);
});

test('a producer known from a marker alone keeps that marker', async () => {
  const host = new SimHost({ ...COMPACTED, deleteRetentionMs: 0 });
  put(host.log, [['a', '1']]);
  end(host, 8n, true);
  put(host.log, [['a', '2']]);
  for (let round = 0; round < 3; round++) {
    put(host.log, [['b', String(round)]]);
    await compact(host);
    await host.world.simulator.runFor(60_000);
  }
  const control = batchesOf(host).filter(({ batch }) => batch.isControl);
  assert.deepEqual(
    control.map(({ batch }) => [batch.baseOffset, batch.producerId, batch.count]),
    [[1, 8n, 0]],
  );
  await restartFromBatches(host);
  const epochs = () => host.log.activeProducers().map((p) => [p.producerId, p.producerEpoch]);
  assert.deepEqual(epochs(), [[8n, 0]]);
});

test('F5 P2: a mirror takes over batches that the source’s cleaner emptied', () => {
  const host = new SimHost();
  const header = marker(-8n, true);
  const empty = Buffer.from(header.subarray(0, 61));
  empty.writeInt32BE(49, 8);
  empty.writeInt32BE(0, 57);
  new RecordBatch(empty).updateCrc();
  const data = keyed([], { baseOffset: 1, lastOffset: 4, producerId: -9n, producerEpoch: 2 });
  follow(host.log, empty, data);
  assert.deepEqual([host.log.logEndOffset, host.log.openTransactions()], [5, []]);
  assert.deepEqual(
    host.log.activeProducers().map((p) => [p.producerId, p.producerEpoch, p.lastOffset]),
    [
      [-8n, 0, -1],
      [-9n, 2, 4],
    ],
  );
});

test('the last batch below the bound stays, also when nothing of it is left', async () => {
  const host = new SimHost(COMPACTED);
  put(host.log, [['a', '1']]);
  put(host.log, [['b', 'x']], transactional(4n, 0));
  put(host.log, [['b', 'y']], transactional(4n, 1));
  end(host, 4n, false);
  put(host.log, [['c', null]]);
  put(host.log, [[null, 'no key']]);
  await compact(host);
  const last = batchesOf(host).at(-1)?.batch;
  assert.deepEqual([last?.baseOffset, last?.count], [5, 0]);
});

test('the active segment, young segments and what is above the HW stay as they are', async () => {
  const host = new SimHost({ ...COMPACTED, minCompactionLagMs: HOUR_MS });
  const young = host.runtime.clock.wallMs();
  put(host.log, [
    ['a', '1'],
    ['a', '2'],
  ]);
  host.log.roll();
  putNow(host, young);
  host.log.roll();
  put(host.log, [
    ['a', '5'],
    ['a', '6'],
  ]);
  await compact(host);
  assert.deepEqual(left(host), ['1:a=2', '2:a=3', '3:a=4', '4:a=5', '5:a=6']);
  await host.world.simulator.runFor(HOUR_MS + 1);
  await compact(host);
  assert.deepEqual(left(host), ['5:a=6']);

  const held = new SimHost(COMPACTED);
  put(held.log, [
    ['a', '1'],
    ['a', '2'],
  ]);
  held.log.roll();
  put(held.log, [
    ['a', '3'],
    ['a', '4'],
  ]);
  held.log.roll();
  put(held.log, [['a', '5']]);
  held.log.updateHighWatermark(3);
  await held.settle(held.manager.compactNow());
  assert.deepEqual(left(held), ['1:a=2', '2:a=3', '3:a=4', '4:a=5']);
});

/** Two records with the present time. */
function putNow(host: SimHost, timestamp: number): void {
  const { log } = host;
  const records = ['3', '4'].map((value) => {
    return { key: Buffer.from('a'), value: Buffer.from(value), timestamp };
  });
  put(log, [], { records });
}

test('min.cleanable.dirty.ratio decides, max.compaction.lag.ms overrules it', async () => {
  const config = { ...COMPACTED, minCleanableDirtyRatio: 0.5 };
  const host = new SimHost(config);
  for (let n = 0; n < 10; n++) put(host.log, [[`k${n}`, 'v'.repeat(50)]]);
  await compact(host);
  assert.equal(host.log.firstDirtyOffset, 10);
  for (let n = 0; n < 5; n++) put(host.log, [['k0', `${n}${'v'.repeat(50)}`]]);
  await compact(host);
  assert.equal(host.log.firstDirtyOffset, 10, 'a third is not enough');
  host.log.updateConfig({ ...host.log.config, maxCompactionLagMs: HOUR_MS });
  await compact(host);
  assert.equal(host.log.firstDirtyOffset, 15);
  assert.equal(left(host).length, 10);
});

test('neighbouring segments become one as long as it fits', async () => {
  const host = new SimHost({ ...COMPACTED, segmentBytes: 1000 });
  for (let n = 0; n < 60; n++) put(host.log, [[`k${n % 20}`, 'v'.repeat(30)]]);
  const before = host.log.segments().length;
  await compact(host);
  // What was thinned out fits together in the next round.
  put(host.log, [['k0', 'new']]);
  await compact(host);
  const after = host.log.segments();
  assert(after.length < before, `${before} segments became ${after.length}`);
  for (const { sizeBytes } of after) assert(sizeBytes <= 1000);
  assert.equal(left(host).length, 20);
});

test('segments far apart stay apart: offsets must fit into an index', async () => {
  const host = new SimHost(COMPACTED);
  put(host.log, [
    ['a', '1'],
    ['b', '1'],
  ]);
  put(host.log, [['a', '2']], { baseOffset: 2 ** 31 + 10 });
  put(host.log, [['c', '3']], { baseOffset: 2 ** 33 });
  await compact(host);
  assert.deepEqual(left(host), ['1:b=1', `${2 ** 31 + 10}:a=2`, `${2 ** 33}:c=3`]);
  await restartFromBatches(host);
  assert.deepEqual(left(host), ['1:b=1', `${2 ** 31 + 10}:a=2`, `${2 ** 33}:c=3`]);
});

test('a map too small for all keys takes several passes', async () => {
  const host = new SimHost({ ...COMPACTED, segmentBytes: 2000 }, 1, {
    cleaner: { dedupeBufferBytes: 400 },
  });
  for (let round = 0; round < 3; round++) {
    for (let n = 0; n < 40; n++) put(host.log, [[`k${n}`, String(round)]]);
  }
  put(
    host.log,
    Array.from({ length: 60 }, (_, n) => [`big${n}`, 'one batch exceeds the map']),
  );
  await compact(host);
  const keys = left(host).map((record) => record.split(':')[1]);
  assert.equal(keys.length, 100);
  assert.deepEqual(
    keys.slice(0, 40),
    Array.from({ length: 40 }, (_, n) => `k${n}=2`),
  );
});

test('delete,compact: old segments go, newest keys stay', async () => {
  const host = new SimHost({ ...COMPACTED, cleanupPolicy: 'delete,compact', retentionMs: HOUR_MS });
  put(host.log, [['old', '1']]);
  host.log.roll();
  const timestamp = host.runtime.clock.wallMs();
  putNow(host, timestamp);
  await compact(host);
  assert.deepEqual(left(host), ['0:old=1', '2:a=4']);
  assert.equal(host.log.deleteOldSegments(), 0, 'one segment now, as young as its youngest');
  await host.world.simulator.runFor(2 * HOUR_MS);
  assert(host.log.deleteOldSegments() > 0);
  assert.deepEqual([left(host), host.log.logStartOffset], [[], 3]);
});

test('the cleaner offset is written down, follows a cut, and is not above the end', async () => {
  const host = new SimHost({ ...COMPACTED, segmentBytes: 300 });
  for (let n = 0; n < 20; n++) put(host.log, [['a', String(n)]]);
  await compact(host);
  const written = () => Buffer.from(host.files().readFile(CHECKPOINT) ?? []).toString();
  assert.equal(written(), '0\n1\ntopic 0 20\n');
  put(host.log, [['a', 'new']]);
  await host.restart();
  assert.equal(host.log.firstDirtyOffset, 20);
  host.log.truncateTo(10);
  const base = host.log.segments().at(-1)?.baseOffset ?? -1;
  assert.equal(written(), `0\n1\ntopic 0 ${base}\n`, 'before the cut could be noticed');
  await host.kill();
  assert.equal(host.log.firstDirtyOffset, base);
});

test('F5 F8: a mirrored log is neither compacted nor shortened by local settings', async () => {
  const host = new SimHost(COMPACTED);
  put(host.log, [
    ['a', '1'],
    ['a', '2'],
  ]);
  host.log.updateHighWatermark(2);
  host.log.roll();
  put(host.log, [['a', '3']]);
  const config = { ...host.log.config, cleanupPolicy: 'delete,compact' as const, retentionMs: 1 };
  await host.settle(host.manager.close());
  host.stop();
  const runtime = host.world.start('machine');
  let mirrored = true;
  const options = { logDir: '/data', defaultConfig: config, isMirrored: () => mirrored };
  const manager = new LogManager(runtime, options);
  manager.load(() => config);
  manager.start();
  const log = manager.getLog(TP) ?? assert.fail();
  log.updateHighWatermark(3);
  const before = readAll(log);
  await host.world.simulator.runFor(HOUR_MS);
  assert.deepEqual([readAll(log), log.logStartOffset], [before, 0]);
  assert.equal(log.maybeIncrementLogStartOffset(2), true, 'the source’s log start is followed');
  mirrored = false;
  await host.world.simulator.runFor(HOUR_MS);
  assert.deepEqual([readAll(log), log.logStartOffset], [[], 3]);
});

test('appends, reads and a cut go on between the slices of a run', async () => {
  const host = new SimHost({ ...COMPACTED, segmentBytes: 100_000_000 });
  const value = 'v'.repeat(200_000);
  for (let n = 0; n < 10; n++) put(host.log, [['a', `${n}${value}`]]);
  host.log.updateHighWatermark(10);
  host.log.roll();
  const run = host.manager.compactNow();
  await host.world.simulator.runFor(1);
  put(host.log, [['a', 'appended meanwhile']]);
  await host.settle(run);
  assert.deepEqual(
    left(host).map((row) => row.slice(0, 25)),
    [`9:a=9${value}`.slice(0, 25), '10:a=appended meanwhile'.slice(0, 25)],
  );

  for (let n = 0; n < 10; n++) put(host.log, [['a', `${n}${value}`]]);
  host.log.updateHighWatermark(21);
  host.log.roll();
  const cut = host.manager.compactNow();
  host.log.truncateTo(15);
  await host.settle(cut);
  assert.equal(host.log.logEndOffset, 15);
  assert.equal(left(host).at(-1)?.slice(0, 6), '14:a=3');
  assert.doesNotMatch(segmentFiles(host).join(), /cleaned|swap/);
});

test('a full disk or a failing sync leaves the log as it was, and it is tried again', async () => {
  for (const operation of ['write', 'sync', 'open'] as const) {
    const host = new SimHost(COMPACTED);
    put(host.log, [
      ['a', '1'],
      ['a', '2'],
      ['b', '1'],
    ]);
    const before = readAll(host.log);
    host.disk.failNext(operation, /\.cleaned$/, 'ENOSPC');
    await compact(host);
    assert.deepEqual(readAll(host.log), before);
    assert.doesNotMatch(segmentFiles(host).join(), /cleaned|swap/);
    await compact(host);
    assert.deepEqual(left(host), ['1:a=2', '2:b=1']);
  }
});

test('a damaged batch stops compaction of that log alone', async () => {
  const host = new SimHost(COMPACTED);
  put(host.log, [
    ['a', '1'],
    ['a', '2'],
  ]);
  host.log.updateHighWatermark(2);
  host.log.roll();
  const file = host.files().open(`${DIRECTORY}/00000000000000000000.log`, 'update');
  file.write([new Uint8Array([0xff])], 75);
  file.close();
  const other = host.manager.createLog({ topic: 'z', partition: 0 }, undefined, host.log.config);
  put(other, [
    ['a', '1'],
    ['a', '2'],
  ]);
  other.updateHighWatermark(2);
  other.roll();
  await host.settle(host.manager.compactNow());
  assert.deepEqual([host.log.isOffline, host.log.firstDirtyOffset], [false, undefined]);
  assert.equal(other.firstDirtyOffset, 2);
});

test('replaced files are removed after file.delete.delay.ms', async () => {
  const host = new SimHost({ ...COMPACTED, segmentBytes: 200 });
  for (let n = 0; n < 9; n++) put(host.log, [['a', String(n)]]);
  await compact(host);
  assert(segmentFiles(host).some((name) => name.endsWith('.log.deleted')));
  await host.world.simulator.runFor(1000);
  const names = segmentFiles(host);
  const bases = host.log.segments().map((s) => String(s.baseOffset).padStart(20, '0'));
  assert.deepEqual(
    names.sort(),
    bases.flatMap((base) => [`${base}.index`, `${base}.log`, `${base}.timeindex`]).sort(),
  );
});
