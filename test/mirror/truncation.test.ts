/**
 * Cuts of a mirrored log, over a real log: what is dropped, what is kept, what follows.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { DiskError } from '../../src/io/runtime.ts';
import { MirrorFailure } from '../../src/mirror/causes.ts';
import { keepTail } from '../../src/mirror/lost-and-found.ts';
import {
  type CutContext,
  cutTo,
  cutToLastStable,
  LIVE_REPLICAS_WAIT_MS,
  lowerRows,
  Superseded,
  whenLiveReplicasFollowed,
  whenReplicasFollowed,
} from '../../src/mirror/truncation.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { Partition } from '../../src/replication/partition.ts';
import { settle } from '../replication/fakes.ts';
import {
  batch,
  fetchParams,
  mirrored,
  OTHER_BROKER,
  replicaPartition,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
} from '../replication/harness.ts';
import { imageWith, row, TestCoordinator } from './harness.ts';

interface Setup {
  readonly broker: TestBroker;
  readonly partition: Partition;
  readonly context: CutContext;
  readonly elected: number[];
  readonly rows: TestCoordinator;
}

async function setup(t: TestContext, fields: Partial<CutContext> = {}): Promise<Setup> {
  const broker = await startTestBroker(t);
  broker.gate.set('t', { topic: 't', mirror: 'm', state: 'STOPPING' });
  broker.createTopic('t');
  const rows = new TestCoordinator(broker.runtime, imageWith(['m', 'n']));
  rows.lead();
  await settle();
  const elected: number[] = [];
  const context: CutContext = {
    runtime: broker.runtime,
    store: rows.coordinator,
    controller: {
      electSameLeader: async (_id, _partition, leaderEpoch) => {
        elected.push(leaderEpoch);
        return { error: 0, leaderEpoch: leaderEpoch + 1 };
      },
    },
    keepsTail: false,
    leaderEpoch: 0,
    debt: { owed: false },
    isCurrent: () => true,
    ...fields,
  };
  return { broker, partition: broker.partition('t'), context, elected, rows };
}

function append(partition: Partition, ...batches: Uint8Array[]): void {
  for (const each of batches) {
    const result = partition.appendMirrored([each], 0);
    assert.equal(result.error, 0, 'message' in result ? result.message : '');
  }
}

function inTransaction(baseOffset: number, producerId: bigint): Uint8Array {
  return batch(1, {
    baseOffset,
    producerId,
    producerEpoch: 0,
    baseSequence: 0,
    isTransactional: true,
    partitionLeaderEpoch: 0,
  });
}

function commit(offset: number, producerId: bigint): Uint8Array {
  const marker = buildTransactionMarker({
    producerId,
    producerEpoch: 0,
    commit: true,
    coordinatorEpoch: 0,
    timestamp: 1,
  });
  new RecordBatch(marker).setBaseOffset(offset);
  new RecordBatch(marker).setPartitionLeaderEpoch(0);
  return marker;
}

test('D1 the cut is repeated until the log ends at its last stable offset', async (t) => {
  const { partition, context, elected } = await setup(t);
  // The open transaction of −3 at 2 takes the marker of −2 with it, whose data lies at 1.
  append(partition, mirrored(0, 1), inTransaction(1, -2n), inTransaction(2, -3n), commit(3, -2n));
  append(partition, mirrored(4, 2));
  assert.equal(partition.log.lastStableOffset, 2);
  await assert.rejects(cutToLastStable(context, partition), Superseded);
  assert.deepEqual([partition.log.logEndOffset, partition.log.lastStableOffset], [1, 1]);
  assert.deepEqual(partition.log.openTransactions(), []);
  assert.deepEqual(elected, [0]);
});

test('T5 S3 a refused new epoch is asked for again with nothing left to cut', async (t) => {
  for (const cut of [cutToLastStable, (...[c, p]: [CutContext, Partition]) => cutTo(c, p, 3)]) {
    const answers = [7, 7, 0];
    const controller: CutContext['controller'] = {
      electSameLeader: async () => ({ error: (answers.shift() ?? 0) as 7, message: 'late' }),
    };
    const { partition, context } = await setup(t, { controller });
    append(partition, mirrored(0, 3), inTransaction(3, -2n));
    for (let tries = 0; tries < 2; tries++) {
      await assert.rejects(cut(context, partition), MirrorFailure);
      assert.equal(partition.log.logEndOffset, 3);
    }
    await assert.rejects(cut(context, partition), Superseded);
    assert.deepEqual(answers, []);
  }
});

test('D1 S3 repeated when nothing is left to cut, it does nothing', async (t) => {
  const { partition, context, elected } = await setup(t);
  append(partition, mirrored(0, 3), inTransaction(3, -2n), commit(4, -2n));
  await cutToLastStable(context, partition);
  assert.equal(partition.log.logEndOffset, 5);
  assert.deepEqual(elected, []);
});

test('D5 a transaction whose data the source deleted is forgotten with the stop', async (t) => {
  const { partition, context, elected } = await setup(t);
  append(partition, mirrored(0, 3), inTransaction(3, -2n), mirrored(4, 2));
  assert.equal(partition.followLogStart(6, 0), 0);
  assert.deepEqual([partition.log.lastStableOffset, partition.log.logEndOffset], [6, 6]);
  await cutToLastStable(context, partition);
  assert.deepEqual(partition.log.openTransactions(), []);
  const { logStartOffset, lastStableOffset, logEndOffset } = partition.log;
  assert.deepEqual([logStartOffset, lastStableOffset, logEndOffset], [6, 6, 6]);
  assert.deepEqual(elected, []);
  append(partition, mirrored(6, 2));
  assert.equal(partition.log.lastStableOffset, 8);
});

test('D4 F9 a log that ends below its start stops at its start', async (t) => {
  const { partition, context } = await setup(t);
  assert.equal(partition.followLogStart(12, 0), 0);
  assert.equal(partition.restartForMirror(10, 12, 0), 0);
  assert.deepEqual([partition.log.logStartOffset, partition.log.logEndOffset], [12, 10]);
  await cutToLastStable(context, partition);
  const { logStartOffset, lastStableOffset, logEndOffset } = partition.log;
  assert.deepEqual([logStartOffset, lastStableOffset, logEndOffset], [12, 12, 12]);
});

test('T5 a cut inside a batch is made at its base offset, and a new epoch follows', async (t) => {
  const { partition, context, elected } = await setup(t);
  append(partition, mirrored(0, 5), mirrored(5, 5));
  await assert.rejects(cutTo(context, partition, 7), Superseded);
  assert.equal(partition.log.logEndOffset, 5);
  assert.deepEqual(elected, [0]);
  await cutTo(context, partition, 5);
  assert.deepEqual(elected, [0]);
});

test('F10 an empty log starts over below its start, and a new epoch follows', async (t) => {
  const { partition, context, elected } = await setup(t, { keepsTail: true });
  append(partition, mirrored(0, 10));
  assert.equal(partition.followLogStart(10, 0), 0);
  await assert.rejects(cutTo(context, partition, 4), Superseded);
  const { logStartOffset, highWatermark, logEndOffset } = partition.log;
  assert.deepEqual([logStartOffset, highWatermark, logEndOffset], [4, 4, 4]);
  assert.deepEqual(elected, [0]);
});

test('T4 T5 B1 a tail that begins above the cut is kept whole and dropped', async (t) => {
  const { broker, partition, context, elected } = await setup(t, { keepsTail: true });
  append(partition, mirrored(0, 5), mirrored(5, 5));
  assert.equal(partition.followLogStart(5, 0), 0);
  await assert.rejects(cutTo(context, partition, 3), Superseded);
  const { logStartOffset, highWatermark, logEndOffset } = partition.log;
  assert.deepEqual([logStartOffset, highWatermark, logEndOffset], [3, 3, 3]);
  assert.match(keptFiles(broker).join(), /5-10-\d+\/0+5\.log/);
  assert.deepEqual(elected, [0]);
});

test('T7 high watermark, stable offset, producers and transactions are cut along', async (t) => {
  const { partition, context } = await setup(t);
  const { log } = partition;
  append(partition, mirrored(0, 2), inTransaction(2, -2n), commit(3, -2n), inTransaction(4, -9n));
  assert.deepEqual([log.highWatermark, log.lastStableOffset], [5, 4]);
  await assert.rejects(cutTo(context, partition, 2), Superseded);
  assert.deepEqual([log.highWatermark, log.lastStableOffset, log.logEndOffset], [2, 2, 2]);
  assert.deepEqual(log.openTransactions(), []);
  assert.deepEqual(log.activeProducers(), []);
  assert.deepEqual(log.epochEndOffset(0), { leaderEpoch: 0, endOffset: 2 });
});

test('T5 when no new epoch can be had the cut is a failure that is retried', async (t) => {
  const refused = { error: 41, message: 'not controller' };
  const { partition, context } = await setup(t, {
    controller: { electSameLeader: async () => refused },
  });
  append(partition, mirrored(0, 5));
  await assert.rejects(cutTo(context, partition, 0), (error) => {
    assert.ok(error instanceof MirrorFailure);
    assert.equal(error.mirrorCause, 'DESTINATION_BUSY');
    return true;
  });
});

test('D1 a leadership that is over cuts nothing', async (t) => {
  const { broker, partition, context } = await setup(t);
  append(partition, mirrored(0, 5));
  broker.changePartition('t', 0, { leaderEpoch: 1 });
  await assert.rejects(cutTo(context, partition, 0), Superseded);
  assert.equal(partition.log.logEndOffset, 5);
});

function keptFiles(broker: TestBroker): string[] {
  const root = path.join(broker.directory, 'lost-and-found');
  return (readdirSync(root, { recursive: true }) as string[]).sort();
}

test('T4 what a cut drops is kept first, as a segment, once', async (t) => {
  const { broker, partition, context } = await setup(t, { keepsTail: true });
  append(partition, mirrored(0, 5), mirrored(5, 5), mirrored(10, 2));
  const directory = path.join(broker.directory, 't-0');
  const whole = readFileSync(path.join(directory, '00000000000000000000.log'));
  await keepTail(broker.runtime, partition, 5);
  await assert.rejects(cutTo(context, partition, 5), Superseded);
  assert.equal(partition.log.logEndOffset, 5);
  const [top, range, file, ...more] = keptFiles(broker);
  assert.deepEqual(more, []);
  assert.equal(top, `t-${partition.topicId}-0`);
  assert.match(range ?? '', /\/5-12-\d+$/);
  assert.equal(path.basename(file ?? ''), '00000000000000000005.log');
  const kept = readFileSync(path.join(broker.directory, 'lost-and-found', file ?? ''));
  assert.deepEqual(kept, whole.subarray(whole.length - kept.length));
  assert.equal(new RecordBatch(kept).baseOffset, 5);
});

test('T4 other records at the offsets of an earlier cut are kept, too', async (t) => {
  const { broker, partition, context } = await setup(t, { keepsTail: true });
  const producer = { producerId: -7n, producerEpoch: 0, baseSequence: 0, partitionLeaderEpoch: 0 };
  const [first, other] = [mirrored(5, 5), batch(5, { ...producer, baseOffset: 5 })];
  append(partition, mirrored(0, 5), first);
  await assert.rejects(cutTo(context, partition, 5), Superseded);
  append(partition, other);
  await broker.clock.advance(1);
  await assert.rejects(cutTo(context, partition, 5), Superseded);
  const files = keptFiles(broker).filter((file) => file.endsWith('.log'));
  const kept = files.map((file) =>
    readFileSync(path.join(broker.directory, 'lost-and-found', file)).toString('hex'),
  );
  assert.deepEqual(
    kept,
    [first, other].map((bytes) => Buffer.from(bytes).toString('hex')),
  );
});

test('T4 when the tail cannot be kept nothing is cut', async (t) => {
  const { broker, partition, context } = await setup(t, { keepsTail: true });
  append(partition, mirrored(0, 5));
  broker.failWritesTo('lost-and-found');
  await assert.rejects(cutTo(context, partition, 0), (error) => {
    assert.ok(error instanceof MirrorFailure);
    assert.equal(error.mirrorCause, 'STORAGE_BUSY');
    return true;
  });
  assert.equal(partition.log.logEndOffset, 5);
});

test('T3 rows that remember more than the cut leaves are lowered, of every mirror', async (t) => {
  const { partition, context, rows } = await setup(t);
  const key = (mirror: string) => ({ mirror, topicId: partition.topicId, partition: 0 });
  const write = async (mirror: string, lastMirroredOffset: number) => {
    const error = await rows.coordinator.write(
      key(mirror),
      row('PREPARING', { lastMirroredOffset }),
    );
    assert.equal(error, 0);
  };
  await write('m', 9);
  await write('n', 8);
  const lowered: number[] = [];
  const own = {
    key: key('m'),
    lower: async (offset: number) => {
      lowered.push(offset);
      return true;
    },
  };
  await lowerRows(context, partition, 8, own);
  assert.deepEqual(lowered, [8]);
  await lowerRows(context, partition, 5, own);
  const answer = await rows.coordinator.read(key('n'));
  assert.ok('row' in answer);
  assert.equal(answer.row?.lastMirroredOffset, 5);
});

test('D1 D5 a cut into an offset gap ends behind the last batch, in a new epoch', async (t) => {
  const { partition, context, elected } = await setup(t);
  append(partition, mirrored(0, 5), inTransaction(10, 7n));
  await assert.rejects(cutToLastStable(context, partition), Superseded);
  const { logEndOffset, batchesEnd, lastStableOffset } = partition.log;
  assert.deepEqual([logEndOffset, batchesEnd, lastStableOffset], [5, 5, 5]);
  assert.deepEqual(elected, [0]);
});

test('D1 a log that an earlier cut left in a gap stops behind its last batch, too', async (t) => {
  const { partition, context, elected } = await setup(t);
  append(partition, mirrored(0, 5), mirrored(10, 5));
  partition.truncateForMirror(8, 0);
  assert.equal(partition.log.logEndOffset, 8);
  await cutToLastStable(context, partition);
  assert.equal(partition.log.logEndOffset, 5);
  assert.deepEqual(elected, [], 'nothing was dropped');
});

test('D1 D5 a log that starts in the gap at its end starts over there', async (t) => {
  const { partition, context } = await setup(t);
  append(partition, mirrored(0, 5), mirrored(10, 5));
  partition.truncateForMirror(9, 0);
  assert.equal(partition.followLogStart(7, 0), 0);
  await cutToLastStable(context, partition);
  const { logStartOffset, logEndOffset, batchesEnd } = partition.log;
  assert.deepEqual([logStartOffset, logEndOffset, batchesEnd], [7, 7, 7]);
});

test('T6 a single replica has followed at once; another one is waited for', async (t) => {
  const { broker, partition, context } = await setup(t);
  await whenReplicasFollowed(context, partition);
  const both = [THIS_BROKER, OTHER_BROKER];
  broker.changePartition('t', 0, { replicas: both, isr: both });
  let followed = false;
  void whenReplicasFollowed(context, partition).then(() => {
    followed = true;
  });
  await settle();
  assert.equal(followed, false);
  broker.changePartition('t', 0, { isr: [THIS_BROKER], replicas: both });
  await settle();
  assert.equal(followed, true);
});

test('S2 D4 what a row says of a lone replica is durable in its log first', async (t) => {
  const { broker, partition, context } = await setup(t);
  append(partition, mirrored(0, 5));
  await whenReplicasFollowed(context, partition);
  assert.equal(partition.log.recoveryPoint, 5);
  const both = [THIS_BROKER, OTHER_BROKER];
  broker.changePartition('t', 0, { replicas: both, isr: both });
  append(partition, mirrored(5, 2));
  await followerFetches(broker, 7);
  await whenReplicasFollowed(context, partition);
  assert.equal(partition.log.recoveryPoint, 5, 'of two replicas the other one has it');
});

test('S2 D4 a log that cannot be made durable is no end of a stop', async (t) => {
  const { partition, context } = await setup(t);
  const log = Object.assign(Object.create(partition.log) as typeof partition.log, {
    flush: () => Promise.reject(new DiskError('EIO', 'sync', 'file')),
  });
  const { watchers, topic, topicId, partition: index, leaderEpoch, isr } = partition;
  const broken = {
    ...{ watchers, topic, topicId, partition: index, leaderEpoch, isr, log },
    truncateForMirror: () => assert.fail(),
    restartForMirror: () => assert.fail(),
    isrReachedLogEnd: () => true,
    unconfirmedReplicas: () => [],
    isLeader: () => true,
  };
  await assert.rejects(whenReplicasFollowed(context, broken), (error: unknown) => {
    return error instanceof MirrorFailure && error.mirrorCause === 'STORAGE_BUSY';
  });
});

/** One fetch of the other broker's replica. */
async function followerFetches(broker: TestBroker, fetchOffset: number): Promise<void> {
  const params = fetchParams({ replicaId: OTHER_BROKER, replicaEpoch: 102, maxWaitMs: 0 });
  await broker.replicas.fetch(params, [replicaPartition('t', 0, fetchOffset)]);
}

test('G24 a replica outside the ISR is waited for while it is alive', async (t) => {
  const { broker, partition, context } = await setup(t);
  broker.changePartition('t', 0, { replicas: [THIS_BROKER, OTHER_BROKER], isr: [THIS_BROKER] });
  append(partition, mirrored(0, 5));
  let followed = false;
  void whenLiveReplicasFollowed(context, partition).then(() => {
    followed = true;
  });
  await settle();
  assert.equal(followed, false);
  await followerFetches(broker, 3);
  await settle();
  assert.equal(followed, true, 'a log end below ours is no obstacle');
});

test('G24 a dead replica is not waited for, a silent one not for ever', async (t) => {
  const { broker, partition, context } = await setup(t);
  // Broker 3 is fenced.
  broker.changePartition('t', 0, { replicas: [THIS_BROKER, 3], isr: [THIS_BROKER] });
  await whenLiveReplicasFollowed(context, partition);
  broker.changePartition('t', 0, { replicas: [THIS_BROKER, OTHER_BROKER], isr: [THIS_BROKER] });
  let followed = false;
  void whenLiveReplicasFollowed(context, partition).then(() => {
    followed = true;
  });
  await broker.clock.advance(LIVE_REPLICAS_WAIT_MS - 1);
  assert.equal(followed, false);
  await broker.clock.advance(1);
  assert.equal(followed, true);
});
