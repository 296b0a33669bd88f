/** The coordinators' log: what is appended, what is loaded, and when. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import { buildRecordBatch, decodeRecords } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { ReplicaManager } from '../../src/replication/replica-manager.ts';
import { PartitionCoordinatorLog } from '../../src/server/coordinator-log.ts';
import { fakeRuntime, ManualClock, settle } from './fakes.ts';

const TOPIC = '__consumer_offsets';

function batchOf(baseOffset: number, keys: string[], isControl = false): Uint8Array {
  const records = keys.map((key) => ({ key: Buffer.from(key), value: null, timestamp: 5n }));
  return buildRecordBatch({ baseOffset, records, isControl });
}

/** A partition whose log is `batches`, two reads' worth; committed when the test says. */
function setup(batches: readonly Uint8Array[], logStartOffset = 0) {
  const committed = Promise.withResolvers<number>();
  const asked: unknown[] = [];
  const ends = batches.map((bytes) => new RecordBatch(bytes).nextOffset);
  const log = {
    logStartOffset,
    logEndOffset: ends.at(-1) ?? 0,
    highWatermark: 0,
    read: (from: number) => {
      const at = ends.findIndex((end) => end > from);
      return { error: 0, records: batches.slice(at, at + 1) };
    },
  };
  const appended: Uint8Array[] = [];
  const partition = {
    topicPartition: { topic: TOPIC, partition: 3 },
    log,
    leaderError: (epoch: number) => (epoch < 7 ? errors.FENCED_LEADER_EPOCH.code : 0),
    append: (source: string, bytes: Uint8Array, acks: number) => {
      asked.push([source, acks]);
      appended.push(bytes);
      return { error: 0, firstOffset: 20, lastOffset: 21 };
    },
  };
  const replicas = {
    partition: (topic: string, index: number) =>
      topic === TOPIC && index === 3 ? partition : undefined,
    whenCommitted: (_partition: unknown, offset: number) => {
      asked.push(offset);
      return committed.promise;
    },
  } as unknown as ReplicaManager;
  const runtime = fakeRuntime(new ManualClock());
  return {
    coordinatorLog: new PartitionCoordinatorLog(runtime, () => replicas),
    commit: (error = 0) => {
      log.highWatermark = log.logEndOffset;
      committed.resolve(error);
    },
    runtime,
    asked,
    appended,
  };
}

test('loading waits until all is committed, then skips control batches', async () => {
  const { coordinatorLog, commit, asked } = setup(
    [batchOf(0, ['a', 'b', 'c']), batchOf(3, ['marker'], true), batchOf(4, ['d'])],
    1,
  );
  const loaded: [number, string][] = [];
  const loading = coordinatorLog.load(TOPIC, 3, (offset, key) => {
    loaded.push([offset, Buffer.from(key).toString()]);
  });
  await settle();
  assert.deepEqual([loaded, asked], [[], [5]]);
  commit();
  await loading;
  assert.deepEqual(loaded, [
    [1, 'b'],
    [2, 'c'],
    [4, 'd'],
  ]);
});

test('loading fails when the partition is not here or leadership ends first', async () => {
  const { coordinatorLog, commit } = setup([batchOf(0, ['a'])]);
  const unused = () => assert.fail('nothing is loaded');
  await assert.rejects(coordinatorLog.load(TOPIC, 2, unused), /__consumer_offsets-2 is not on/);
  const loading = coordinatorLog.load(TOPIC, 3, unused);
  commit(errors.NOT_LEADER_OR_FOLLOWER.code);
  await assert.rejects(loading, /__consumer_offsets-3 up to 1: NOT_LEADER_OR_FOLLOWER/);
});

test('an append is one batch under its own epoch; its commit is told', async () => {
  const { coordinatorLog, commit, asked, appended, runtime } = setup([]);
  const records = [
    { key: Buffer.from('k'), value: Buffer.from('v'), timestampMs: 9 },
    { key: Buffer.from('gone'), value: null },
  ];
  assert.deepEqual(coordinatorLog.append(TOPIC, 2, 7, records), {
    error: errors.NOT_LEADER_OR_FOLLOWER.code,
  });
  assert.deepEqual(coordinatorLog.append(TOPIC, 3, 6, records), {
    error: errors.FENCED_LEADER_EPOCH.code,
  });
  const result = coordinatorLog.append(TOPIC, 3, 7, records);
  assert.ok('committed' in result);
  assert.deepEqual([result.offset, asked], [22, [['coordinator', -1], 22]]);
  const batch = new RecordBatch(appended[0] ?? assert.fail('nothing appended'));
  const written = decodeRecords(batch, runtime.compression, 1000);
  assert.deepEqual(
    [...written].map(({ timestamp, value }) => [timestamp, value === null]),
    [
      [9n, false],
      [BigInt(runtime.clock.wallMs()), true],
    ],
  );
  commit(errors.NOT_LEADER_OR_FOLLOWER.code);
  await assert.rejects(result.committed, /NOT_LEADER_OR_FOLLOWER/);
});
