/** The log directory: creating, deleting, checkpoints, retention, failing syncs, many files. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import {
  FLUSH_INTERVAL_MS,
  METADATA_TOPIC,
  RETENTION_INTERVAL_MS,
} from '../../src/storage/log-manager.ts';
import { readMetaProperties, writeMetaProperties } from '../../src/storage/meta-properties.ts';
import { MAX_OPEN_FILES, OpenFiles } from '../../src/storage/open-files.ts';
import { accepted, batchOf, DIRECTORY, follow, readAll, SimHost, TP } from './harness.ts';

const TOPIC_ID = 'c2x9lhyPQ_aBcDeFgHiJkQ' as Uuid;
const OTHER = { topic: 'other.topic-1', partition: 12 };

function append(host: SimHost, count: number): void {
  for (let index = 0; index < count; index++) {
    accepted(host.log.appendAsLeader(batchOf(`r${index}`, 2), 0, 'client'));
  }
  host.log.updateHighWatermark(host.log.logEndOffset);
}

function names(host: SimHost, directory: string): string[] {
  return (host.files().list(directory) ?? []).map((entry) => entry.name);
}

test('a log has its topic id after a power loss once a record of it was flushed', async () => {
  const host = new SimHost();
  const log = host.manager.createLog(OTHER, TOPIC_ID, DEFAULT_LOG_CONFIG);
  accepted(log.appendAsLeader(batchOf('r', 2), 0, 'client'));
  await host.settle(log.flush());
  host.losePower({ unsynced: 'lose', tornTail: false });
  const found = host.manager.getLog(OTHER);
  assert.deepEqual([found?.topicId, found?.logEndOffset], [TOPIC_ID, 2]);
  const text = host.files().readFile(`/data/other.topic-1-12/partition.metadata`);
  assert.equal(Buffer.from(text ?? []).toString(), `version: 0\ntopic_id: ${TOPIC_ID}\n`);
});

test('a log that was never flushed is gone after a power loss, or whole', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const host = new SimHost({}, seed);
    const log = host.manager.createLog(OTHER, TOPIC_ID, DEFAULT_LOG_CONFIG);
    if (seed % 2 === 0) accepted(log.appendAsLeader(batchOf('r', 2), 0, 'client'));
    host.losePower({ unsynced: seed % 3 === 0 ? 'subset' : 'prefix', tornTail: true });
    assert.deepEqual(host.manager.offline(), [], `seed ${seed}`);
    const found = host.manager.getLog(OTHER);
    if (found === undefined) host.manager.createLog(OTHER, TOPIC_ID, DEFAULT_LOG_CONFIG);
    else if (found.topicId === undefined) host.manager.adoptLog(found, TOPIC_ID);
    assert.equal(host.manager.getLog(OTHER)?.topicId, TOPIC_ID, `seed ${seed}`);
  }
});

test('a creation that did not get as far as its id leaves nothing', () => {
  const host = new SimHost();
  host.files().makeDirectory('/data/half-0');
  host.stop();
  host.start();
  assert.equal(host.manager.getLog({ topic: 'half', partition: 0 }), undefined);
  assert(!names(host, '/data').includes('half-0'));
});

test('a deleted log is renamed at once, removed later, and its offsets are forgotten', async () => {
  const host = new SimHost({ fileDeleteDelayMs: 1000 });
  append(host, 5);
  await host.settle(host.log.flush());
  host.manager.start();
  await host.world.simulator.runFor(FLUSH_INTERVAL_MS + 100);
  const { log } = host;
  host.manager.deleteLog(TP);
  assert.equal(host.manager.getLog(TP), undefined);
  assert.equal(log.appendAsLeader(batchOf('x'), 0, 'client').error, 56);
  assert.match(names(host, '/data').join(), /topic-0\.[0-9a-f]{32}-delete/);
  host.manager.createLog(TP, TOPIC_ID, DEFAULT_LOG_CONFIG);
  await host.kill();
  assert.deepEqual([host.log.logEndOffset, host.log.highWatermark], [0, 0]);
  assert.doesNotMatch(names(host, '/data').join(), /-delete/);
});

test('a stray log is kept under another name and not loaded again', async () => {
  const host = new SimHost();
  append(host, 1);
  host.manager.strayLog(TP);
  await host.kill();
  assert.equal(host.manager.getLog(TP), undefined);
  assert.match(names(host, '/data').join(), /topic-0\.[0-9a-f]{32}-stray/);
});

test('the metadata log is no topic: not listed, without retention', async () => {
  const host = new SimHost({ retentionBytes: 0, segmentBytes: 200 });
  const metadata = { topic: METADATA_TOPIC, partition: 0 };
  const config = { ...DEFAULT_LOG_CONFIG, retentionBytes: 0, segmentBytes: 200 };
  const log = host.manager.createLog(metadata, undefined, config);
  for (let n = 0; n < 9; n++) accepted(log.appendAsLeader(batchOf('m'), 1, 'raftLeader'));
  log.updateHighWatermark(9);
  assert.deepEqual(
    [...host.manager.allLogs()].map((each) => each.topicPartition),
    [TP],
  );
  host.manager.start();
  await host.world.simulator.runFor(RETENTION_INTERVAL_MS + 1);
  assert.equal(log.logStartOffset, 0);
  assert.equal(log.latestEpoch, 1);
});

test('retention by size and by time deletes old segments below the HW', async () => {
  const host = new SimHost({ segmentBytes: 400, retentionBytes: 900, fileDeleteDelayMs: 500 });
  append(host, 30);
  const before = host.log.segments();
  host.log.updateHighWatermark(20);
  host.manager.start();
  await host.world.simulator.runFor(RETENTION_INTERVAL_MS + 1);
  const left = host.log.segments();
  const end = before.filter((segment) => segment.baseOffset <= 20).at(-1)?.baseOffset;
  assert.equal(left[0]?.baseOffset, end, 'bounded by the high watermark');
  assert.equal(host.log.logStartOffset, end);
  assert.match(names(host, DIRECTORY).join(), /\.log\.deleted/);
  await host.world.simulator.runFor(1000);
  assert.doesNotMatch(names(host, DIRECTORY).join(), /deleted/);
  assert.equal(host.log.read(0, 10, 'logEnd', true).error, 1);

  host.log.updateHighWatermark(host.log.logEndOffset);
  host.log.updateConfig({ ...host.log.config, retentionBytes: -1, retentionMs: 1000 });
  host.world.jumpWallClock('machine', 10_000_000);
  const logEnd = host.log.logEndOffset;
  assert.equal(host.log.deleteOldSegments(), left.length);
  assert.deepEqual([host.log.logStartOffset, host.log.logEndOffset], [logEnd, logEnd]);
  await host.restart();
  assert.deepEqual([host.log.logStartOffset, host.log.logEndOffset], [logEnd, logEnd]);
});

test('the log start follows DeleteRecords and survives an orderly stop', async () => {
  const host = new SimHost({ segmentBytes: 400 });
  append(host, 20);
  assert.equal(host.log.maybeIncrementLogStartOffset(41), false, 'beyond the high watermark');
  assert.equal(host.log.maybeIncrementLogStartOffset(21), true);
  assert.equal(host.log.maybeIncrementLogStartOffset(20), false);
  assert(host.log.segments()[0] !== undefined && host.log.segments()[0]!.baseOffset > 0);
  await host.restart();
  assert.equal(host.log.logStartOffset, 21);
  assert.equal(readAll(host.log)[0]?.baseOffset, 20);
});

test('a failing fsync takes the log offline; it is never tried again', async () => {
  const host = new SimHost();
  append(host, 3);
  host.disk.failNext('sync', /\.log$/, 'EIO');
  await assert.rejects(host.settle(host.log.flush()), { code: 'EIO' });
  assert.deepEqual([host.log.isOffline, host.log.recoveryPoint], [true, 0]);
  await assert.rejects(host.settle(host.log.flush()), { code: 'EIO' });
  assert.deepEqual(
    host.manager.offline().map((each) => each.topic),
    ['topic'],
  );
  await host.settle(host.manager.close());
  assert.equal(host.files().fileSize('/data/.kafka_cleanshutdown'), undefined);
});

test('a failing rename of a checkpoint leaves the old one', async () => {
  const host = new SimHost();
  append(host, 3);
  host.manager.start();
  host.disk.failNext('rename', /replication-offset/, 'EIO');
  await host.world.simulator.runFor(5001);
  assert.equal(host.files().fileSize('/data/replication-offset-checkpoint'), undefined);
  await host.world.simulator.runFor(5001);
  const text = host.files().readFile('/data/replication-offset-checkpoint');
  assert.equal(Buffer.from(text ?? []).toString(), '0\n1\ntopic 0 6\n');
});

test('the flush interval moves the recovery point and its checkpoint', async () => {
  const host = new SimHost();
  host.manager.start();
  append(host, 3);
  await host.world.simulator.runFor(FLUSH_INTERVAL_MS + 100);
  assert.equal(host.log.recoveryPoint, 6);
  const text = host.files().readFile('/data/recovery-point-offset-checkpoint');
  assert.equal(Buffer.from(text ?? []).toString(), '0\n1\ntopic 0 6\n');
});

test('open files are bounded, and one being synced stays open', async () => {
  const host = new SimHost();
  const files = new OpenFiles(host.runtime.disk, 3);
  host.runtime.disk.makeDirectory('/x');
  const slots = Array.from({ length: 10 }, (_, index) => files.slot(`/x/${index}`));
  const first = slots[0] ?? assert.fail();
  files.use(first).write([new Uint8Array(5)], 0);
  const syncing = files.sync(first);
  for (const slot of slots) files.use(slot);
  assert.equal(files.openCount, 3);
  assert(first.file !== undefined);
  files.close(first);
  assert(first.file !== undefined, 'closed only behind the sync');
  await host.settle(syncing);
  assert.equal(first.file, undefined);
  assert(MAX_OPEN_FILES < 1024);
});

test('timestamps find offsets, across segments and inside batches', async () => {
  const host = new SimHost({ segmentBytes: 300, indexIntervalBytes: 50 });
  for (let index = 0; index < 12; index++)
    follow(host.log, batchOf('t', 3, { baseOffset: index * 5 }));
  follow(host.log, batchOf('end', 4, { baseOffset: 62 }));
  const find = (timestamp: bigint) => {
    const found = host.log.offsetForTimestamp(timestamp);
    return typeof found === 'object' ? found.offset : found;
  };
  assert.equal(find(0n), 0);
  assert.equal(find(1_700_000_000_002n), 2);
  assert.equal(find(1_700_000_000_003n), 65);
  assert.equal(find(1_700_000_000_004n), undefined);
  const max = { offset: 65, timestamp: 1_700_000_000_003n, leaderEpoch: -1 };
  assert.deepEqual(host.log.maxTimestamp(), max);
  await host.restart();
  assert.deepEqual(host.log.maxTimestamp(), max);
  assert.equal(find(1_700_000_000_003n), 65);
});

test('meta.properties is read back, and Apache Kafka’s own form too', () => {
  const host = new SimHost();
  const disk = host.files();
  assert.equal(readMetaProperties(disk, '/data'), undefined);
  const meta = { clusterId: 'abc', nodeId: 7, directoryId: TOPIC_ID };
  writeMetaProperties(disk, '/data', meta);
  assert.deepEqual(readMetaProperties(disk, '/data'), meta);
  const file = disk.open('/data/meta.properties', 'create');
  file.truncate(0);
  const text = '#\n#Mon Jan 01\nnode.id=1\ndirectory.id=bad\nversion=1\ncluster.id=x-Y_z\n';
  file.write([Buffer.from(text)], 0);
  const apache = { clusterId: 'x-Y_z', nodeId: 1, directoryId: undefined };
  assert.deepEqual(readMetaProperties(disk, '/data'), apache);
});
