/** Cuts of a log that begins above its log start, as a guest's does at a failback (G29). */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import {
  type CutContext,
  cutTo,
  cutToLastStable,
  Superseded,
} from '../../src/mirror/truncation.ts';
import { forEachBatch } from '../../src/protocol/record-batch.ts';
import type { Partition } from '../../src/replication/partition.ts';
import type { SnapshotEntry } from '../../src/storage/producer-snapshot.ts';
import { settle } from '../replication/fakes.ts';
import { mirrored, startTestBroker } from '../replication/harness.ts';
import { imageWith, TestCoordinator } from './harness.ts';

const BEGIN = 100;
const LOG_START = 10;

const OPEN: SnapshotEntry = {
  producerId: 7n,
  producerEpoch: 0,
  lastSequence: 0,
  lastOffset: 90,
  offsetDelta: 0,
  timestamp: 1n,
  coordinatorEpoch: 0,
  currentTxnFirstOffset: 90,
};

/** A partition that has followed from {@link BEGIN} up to 110 and leads now. */
async function setup(t: TestContext, fields: Partial<CutContext> = {}) {
  const broker = await startTestBroker(t);
  broker.gate.set('t', { topic: 't', mirror: 'm', state: 'PREPARING' });
  broker.createTopic('t');
  const partition = broker.partition('t');
  partition.log.beginAt(BEGIN, LOG_START, [{ epoch: 0, startOffset: 0 }]);
  append(partition, mirrored(BEGIN, 5), mirrored(BEGIN + 5, 5));
  const rows = new TestCoordinator(broker.runtime, imageWith(['m']));
  rows.lead();
  await settle();
  const context: CutContext = {
    runtime: broker.runtime,
    store: rows.coordinator,
    controller: {
      electSameLeader: async (_id, _partition, leaderEpoch) => {
        return { error: 0, leaderEpoch: leaderEpoch + 2 };
      },
    },
    keepsTail: true,
    leaderEpoch: 0,
    debt: { owed: false },
    isCurrent: () => true,
    ...fields,
  };
  return { broker, partition, context };
}

function append(partition: Partition, ...batches: Uint8Array[]): void {
  assert.equal(partition.appendMirrored(batches, 0).error, 0);
}

function starts({ log }: Partition): number[] {
  return [log.logStartOffset, log.localLogStartOffset, log.logEndOffset];
}

/** Base offsets of the batches in every kept tail, by its range. */
function kept(directory: string): [string, number[]][] {
  const parent = path.join(directory, 'lost-and-found');
  return readdirSync(parent).flatMap((topic) => {
    return readdirSync(path.join(parent, topic)).map((range): [string, number[]] => {
      const [file = ''] = readdirSync(path.join(parent, topic, range));
      const bytes = readFileSync(path.join(parent, topic, range, file));
      const bases: number[] = [];
      forEachBatch(bytes, 0, bytes.length, (batch) => bases.push(batch.baseOffset));
      return [range.replace(/-\d+$/, ''), bases];
    });
  });
}

test('T4 G29 cut to its begin, the tail is kept aside and the log start stays', async (t) => {
  const { broker, partition, context } = await setup(t);
  await assert.rejects(cutTo(context, partition, BEGIN), Superseded);
  assert.deepEqual(starts(partition), [LOG_START, BEGIN, BEGIN]);
  assert.equal(partition.log.highWatermark, BEGIN);
  assert.deepEqual(kept(broker.directory), [['100-110', [100, 105]]]);
  // Again, under the epoch that followed: nothing is left to cut.
  context.debt.owed = false;
  await cutTo(context, partition, BEGIN);
  assert.deepEqual(starts(partition), [LOG_START, BEGIN, BEGIN]);
});

test('T4 G29 what is on other replicas only cannot be kept, so it is not cut', async (t) => {
  const { partition, context } = await setup(t);
  for (const offset of [BEGIN - 1, LOG_START, LOG_START - 1]) {
    await assert.rejects(cutTo(context, partition, offset), {
      mirrorCause: 'DESTINATION_BUSY',
      message: /are on other replicas only$/,
    });
    assert.deepEqual(starts(partition), [LOG_START, BEGIN, BEGIN + 10]);
  }
  const careless = { ...context, keepsTail: false };
  await assert.rejects(cutTo(careless, partition, BEGIN - 1), Superseded);
  assert.deepEqual(starts(partition), [LOG_START, BEGIN - 1, BEGIN - 1]);
});

test('D1 G29 a stop does not reach for a transaction that began below', async (t) => {
  const { partition, context } = await setup(t);
  await assert.rejects(cutTo(context, partition, BEGIN), Superseded);
  assert.equal(partition.adoptProducers([OPEN], 0), 0);
  append(partition, mirrored(BEGIN, 3));
  await assert.rejects(cutToLastStable(context, partition), /\[90, 100\)/);
  assert.deepEqual(starts(partition), [LOG_START, BEGIN, BEGIN + 3]);
});
