/**
 * A partition with `flushBeforeCommit`, on a simulated disk: what is committed is durable, several
 * appends share an fsync, and a disk that cannot sync takes the partition offline.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { errors } from '../../src/protocol/errors.ts';
import { EVERYONE_MAY_JOIN } from '../../src/replication/isr-policy.ts';
import { Partition } from '../../src/replication/partition.ts';
import { whenPartition } from '../../src/replication/purgatory.ts';
import { readLog } from '../../src/sim/log-shadow.ts';
import type { LogConfig } from '../../src/storage/log-config.ts';
import { SimHost, TP } from '../storage/harness.ts';
import { batch } from './harness.ts';

const LEADER = 1;
const FOLLOWER = 2;

const unused = (): never => {
  throw new Error('not part of this test');
};

/** The partition on the host's present log, led here; `failures`: disks it was told of. */
function lead(host: SimHost, replicas: readonly number[] = [LEADER]) {
  const failures: string[] = [];
  const { clock, random } = host.runtime;
  const partition = new Partition(TP, ZERO_UUID, host.log, {
    brokerId: LEADER,
    clock,
    random,
    gate: { readOnly: () => undefined },
    isrPolicy: EVERYONE_MAY_JOIN,
    isrUpdates: { submit: unused },
    replicaLagTimeMaxMs: 30_000,
    activeBrokerEpoch: () => 100,
    brokerEpoch: () => 100,
    onStorageFailure: (_partition, error) => failures.push(error.message),
  });
  partition.applyRegistration({
    topicId: ZERO_UUID,
    topic: TP.topic,
    partition: TP.partition,
    replicas,
    isr: replicas,
    removingReplicas: [],
    addingReplicas: [],
    eligibleLeaderReplicas: [],
    lastKnownElr: [],
    leader: LEADER,
    leaderRecoveryState: 0,
    leaderEpoch: 1,
    partitionEpoch: 1,
    directories: [],
  });
  return { partition, failures };
}

function append(partition: Partition, count = 1): void {
  assert.equal(partition.append('coordinator', batch(count), -1).error, 0);
}

/** The high watermark once it has reached `offset`, or the error that ended the wait. */
function reached(host: SimHost, partition: Partition, offset: number): Promise<number> {
  const check = (): number | undefined => {
    const error = partition.leaderError(-1);
    if (error !== 0) return error;
    const { highWatermark } = partition.log;
    return highWatermark >= offset ? highWatermark : undefined;
  };
  const never = () => assert.fail('timed out');
  return host.settle(whenPartition(host.runtime.clock, partition.watchers, 60_000, check, never));
}

const durable: Partial<LogConfig> = { flushBeforeCommit: true };

test('S2: the high watermark stands still until the append is durable', async () => {
  const host = new SimHost(durable);
  const { partition } = lead(host);
  append(partition, 3);
  assert.deepEqual([host.log.logEndOffset, host.log.highWatermark], [3, 0]);
  const early = host.log.read(0, 1_000, 'highWatermark', true);
  assert.deepEqual(early.error === 0 && early.records, [], 'readers see nothing yet');
  assert.equal(await reached(host, partition, 3), 3);
  assert.equal(host.log.recoveryPoint, 3);
  append(partition);
  host.losePower({ unsynced: 'lose', tornTail: false });
  assert.deepEqual(
    readLog(host.log).map(({ baseOffset, nextOffset }) => [baseOffset, nextOffset]),
    [[0, 3]],
  );
});

test('without flushBeforeCommit an append is committed at once', () => {
  const host = new SimHost();
  const { partition } = lead(host);
  append(partition, 3);
  assert.deepEqual([host.log.highWatermark, host.log.recoveryPoint], [3, 0]);
});

test('D6: what is appended during an fsync shares the next one', async () => {
  const host = new SimHost(durable);
  const { partition } = lead(host);
  const watermarks: number[] = [];
  partition.watchers.add({
    partitionChanged: () => {
      const { highWatermark } = host.log;
      if (highWatermark !== (watermarks.at(-1) ?? 0)) watermarks.push(highWatermark);
    },
  });
  for (let i = 0; i < 1_000; i++) append(partition);
  await reached(host, partition, 1_000);
  assert.deepEqual(watermarks, [1, 1_000], 'two fsyncs');
});

test('S2: after a kill the log is made durable before it counts as committed', async () => {
  const host = new SimHost(durable);
  append(lead(host).partition, 2);
  await host.kill();
  const { partition } = lead(host);
  assert.deepEqual([host.log.logEndOffset, host.log.highWatermark], [2, 0]);
  assert.equal(await reached(host, partition, 2), 2);
  host.losePower({ unsynced: 'lose', tornTail: false });
  assert.equal(host.log.logEndOffset, 2);
});

test('S2: followers alone commit nothing that the leader could lose', async () => {
  const host = new SimHost(durable);
  const { partition } = lead(host, [LEADER, FOLLOWER]);
  append(partition);
  const request = { ...TP, topicId: ZERO_UUID, currentLeaderEpoch: 1, lastFetchedEpoch: 1 };
  const params = { replicaId: FOLLOWER, replicaEpoch: 100, maxWaitMs: 0, minBytes: 0 };
  const answer = partition.fetch(
    { ...request, fetchOffset: 1, maxBytes: 1_000, logStartOffset: 0 },
    { ...params, maxBytes: 1_000, readCommitted: false, mirrorFetch: false },
    1_000,
    true,
  );
  assert.deepEqual([answer.error, host.log.highWatermark], [0, 0]);
  assert.equal(await reached(host, partition, 1), 1);
});

test('a disk that cannot sync takes the partition offline; a restart has all', async () => {
  const host = new SimHost(durable);
  const { partition, failures } = lead(host);
  append(partition);
  await reached(host, partition, 1);
  host.disk.failNext('sync', /\.log$/, 'EIO');
  append(partition);
  assert.equal(await reached(host, partition, 2), errors.KAFKA_STORAGE_ERROR.code);
  assert.deepEqual([failures.length, partition.role, host.log.highWatermark], [1, 'offline', 1]);
  assert.equal(partition.append('coordinator', batch(), -1).error, errors.KAFKA_STORAGE_ERROR.code);
  await host.kill();
  const again = lead(host);
  assert.equal(await reached(host, again.partition, 2), 2);
  append(again.partition);
  assert.equal(await reached(host, again.partition, 3), 3);
  assert.deepEqual(again.failures, []);
});
