/** Leader epochs, producer state and its snapshots, checkpoints: each on its own. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  readOffsetCheckpoint,
  writeEpochCheckpoint,
  writeOffsetCheckpoint,
} from '../../src/storage/checkpoints.ts';
import { LeaderEpochCache } from '../../src/storage/leader-epoch-cache.ts';
import {
  readSnapshot,
  type SnapshotEntry,
  writeSnapshot,
} from '../../src/storage/producer-snapshot.ts';
import { ProducerState } from '../../src/storage/producer-state.ts';
import {
  deletedDirectoryName,
  directoryName,
  isDeletedDirectory,
  parseDirectoryName,
} from '../../src/storage/topic-partition.ts';
import { accepted, batchOf, marker, SimHost } from './harness.ts';

test('a snapshot is read back as it was, and not at all when a byte differs', () => {
  const disk = new SimHost().files();
  const entries: SnapshotEntry[] = [-(2n ** 62n), -2n, 0n, 2n ** 62n].map((producerId, index) => ({
    producerId,
    producerEpoch: index,
    lastSequence: 2 ** 31 - 1 - index,
    lastOffset: index === 2 ? -1 : 2 ** 52 + index,
    offsetDelta: index,
    timestamp: index === 1 ? 2n ** 62n : -1n,
    coordinatorEpoch: index - 1,
    currentTxnFirstOffset: index % 2 === 0 ? -1 : 2 ** 51 + index,
  }));
  const path = '/data/00000000000000000009.snapshot';
  writeSnapshot(disk, path, entries);
  assert.deepEqual(readSnapshot(disk, path), entries);
  const state = new ProducerState();
  state.fromSnapshot(entries);
  assert.deepEqual(
    state.toSnapshot().sort((a, b) => (a.producerId < b.producerId ? -1 : 1)),
    entries.map((entry) =>
      entry.lastOffset < 0 ? { ...entry, lastSequence: -1, offsetDelta: 0 } : entry,
    ),
  );
  assert.equal(state.firstUnstableOffset, 2 ** 51 + 1);
  const size = disk.fileSize(path) ?? 0;
  for (let position = 0; position < size; position++) {
    const file = disk.open(path, 'update');
    const byte = new Uint8Array(1);
    file.read(byte, position);
    file.write([new Uint8Array([(byte[0] ?? 0) ^ 1])], position);
    assert.equal(readSnapshot(disk, path), undefined, `byte ${position}`);
    file.write([byte], position);
  }
  const file = disk.open(path, 'update');
  file.truncate(size - 1);
  assert.equal(readSnapshot(disk, path), undefined);
});

test('idle producers expire, those with an open transaction do not', () => {
  const { log } = new SimHost();
  const base = { producerEpoch: 0, baseSequence: 0 };
  accepted(log.appendAsLeader(batchOf('a', 1, { ...base, producerId: 1n }), 0, 'client'));
  const open = { ...base, producerId: 2n, isTransactional: true };
  accepted(log.appendAsLeader(batchOf('b', 1, open), 0, 'client'));
  assert.equal(log.removeExpiredProducers(1_700_000_000_000), 0);
  assert.equal(log.removeExpiredProducers(1_700_000_000_001), 1);
  assert.deepEqual(
    log.activeProducers().map((each) => each.producerId),
    [2n],
  );
});

test('a marker without open transaction is kept and changes nothing', () => {
  const { log } = new SimHost();
  accepted(log.appendAsLeader(marker(5n, false), 0, 'coordinator'));
  log.updateHighWatermark(1);
  const read = log.read(0, 1000, 'lastStable', true);
  assert(read.error === 0);
  assert.deepEqual([log.lastStableOffset, read.abortedTransactions], [1, []]);
});

test('leader epochs: assignment, contradiction, ends, truncation at both ends', () => {
  const disk = new SimHost().files();
  const cache = new LeaderEpochCache(disk, '/data/topic-0');
  cache.assign(1, 0);
  cache.assign(3, 10);
  cache.assign(3, 12);
  cache.assign(7, 20);
  const end = (epoch: number) => {
    const { leaderEpoch, endOffset } = cache.endOffsetFor(epoch, 30);
    return [leaderEpoch, endOffset];
  };
  assert.deepEqual(
    [end(0), end(1), end(2)],
    [
      [0, 0],
      [1, 10],
      [1, 10],
    ],
  );
  assert.deepEqual(
    [end(3), end(6), end(7), end(8), end(-1)],
    [
      [3, 20],
      [3, 20],
      [7, 30],
      [-1, -1],
      [-1, -1],
    ],
  );
  assert.equal(cache.epochForOffset(19), 3);
  const written = () => new LeaderEpochCache(disk, '/data/topic-0').entries;
  cache.flush(20);
  assert.deepEqual(written(), cache.entries.slice(0, -1), 'without the epoch that has no record');
  cache.flush(21);
  assert.deepEqual(written(), cache.entries);
  cache.truncateFromStart(15);
  assert.deepEqual(cache.entries[0], { epoch: 3, startOffset: 15 });
  cache.truncateFromEnd(20);
  assert.equal(cache.latestEpoch, 3);
  cache.assign(5, 15);
  assert.deepEqual(cache.entries, [{ epoch: 5, startOffset: 15 }]);
});

test('checkpoints that do not parse are refused, never half read', () => {
  const disk = new SimHost().files();
  const path = '/data/some-checkpoint';
  const rows = [{ topic: 'a.b-c', partition: 3, offset: 2 ** 52 }];
  writeOffsetCheckpoint(disk, path, rows);
  assert.deepEqual(readOffsetCheckpoint(disk, path), rows);
  for (const text of [
    '',
    '1\n0\n',
    '0\n2\na 1 2\n',
    '0\n1\na 1\n',
    '0\n1\na x 2\n',
    '0\n1\na 1 1e3\n',
  ]) {
    const file = disk.open(path, 'create');
    file.truncate(0);
    file.write([Buffer.from(text)], 0);
    assert.throws(() => readOffsetCheckpoint(disk, path), { name: 'CorruptCheckpoint' }, text);
  }
  const epochs = [
    { epoch: 4, startOffset: 0 },
    { epoch: 2, startOffset: 9 },
  ];
  writeEpochCheckpoint(disk, '/data/topic-0/leader-epoch-checkpoint', epochs);
  assert.throws(() => new LeaderEpochCache(disk, '/data/topic-0'), { name: 'CorruptCheckpoint' });
});

test('directory names are those of Apache Kafka and cannot leave the log directory', () => {
  assert.deepEqual(parseDirectoryName('a-b.c_d-17'), { topic: 'a-b.c_d', partition: 17 });
  for (const name of [
    'a',
    '-1',
    'a-01',
    'a-1.abc-delete',
    'a-1-stray',
    'a-1-future',
    '..-x',
    'a b-1',
  ]) {
    assert.equal(parseDirectoryName(name), undefined, name);
  }
  for (const topic of ['../x', '..', '.', '', 'a/b']) {
    assert.throws(() => directoryName({ topic, partition: 0 }), { name: 'Fault' }, topic);
  }
  const long = deletedDirectoryName({ topic: 'x'.repeat(249), partition: 3 }, 'f'.repeat(32));
  assert.deepEqual([long.length, isDeletedDirectory(long)], [255, true]);
});
