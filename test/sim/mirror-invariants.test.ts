/**
 * The judges of the simulator: each must see what it is for.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { MirrorStateRow } from '../../src/mirror/state-row.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { LogShadow, type SeenBatch } from '../../src/sim/log-shadow.ts';
import { copyProblem, kinProblem, mirroredProducerId } from '../../src/sim/mirror-copy.ts';
import { stableEnd } from '../../src/sim/mirror-invariants.ts';
import { MirrorWorld, TOPICS } from '../../src/sim/mirror-world.ts';
import { probeMark } from '../../src/sim/prober.ts';
import { checkMove } from '../../src/sim/state-watch.ts';
import { row as plainRow } from '../mirror/harness.ts';
import { batchOf, follow, SimHost } from '../storage/harness.ts';

const producer = (producerId: bigint) => ({ producerId, producerEpoch: 0, baseSequence: 0 });

describe('a mirrored batch', () => {
  const original = batchOf('a', 3, { baseOffset: 7, partitionLeaderEpoch: 4, ...producer(5n) });
  const copy = (patch: (batch: RecordBatch) => void): Uint8Array => {
    const bytes = original.slice();
    const batch = new RecordBatch(bytes);
    batch.setPartitionLeaderEpoch(9);
    batch.rewriteProducerId(-7n);
    patch(batch);
    return bytes;
  };

  test('P1 ids are mapped so that no hop gives back an earlier id', () => {
    const hops = [0n, -2n, -2n - (1n << 56n), -2n - (2n << 56n)];
    for (const [i, id] of hops.slice(0, -1).entries()) {
      assert.equal(mirroredProducerId(id), hops[i + 1]);
    }
    assert.equal(mirroredProducerId(-1n), -1n);
  });

  test('F5 F6 P1 leader epoch and producer id may differ, nothing else', () => {
    assert.equal(
      copyProblem(
        copy(() => {}),
        original,
      ),
      undefined,
    );
    assert.match(
      copyProblem(
        copy((b) => b.setBaseOffset(8)),
        original,
      ) ?? '',
      /F5/,
    );
    assert.match(
      copyProblem(
        copy((b) => b.rewriteProducerId(5n)),
        original,
      ) ?? '',
      /P1/,
    );
    const torn = copy(({ bytes }) => {
      bytes[70]! ^= 1;
    });
    assert.match(copyProblem(torn, original) ?? '', /CRC/);
    new RecordBatch(torn).updateCrc();
    assert.match(copyProblem(torn, original) ?? '', /F5/);
    assert.equal(
      kinProblem(
        original,
        copy(() => {}),
      ),
      undefined,
    );
  });
});

describe('durable states', () => {
  const row = (state: number, fields: Partial<MirrorStateRow> = {}): MirrorStateRow => ({
    ...plainRow('UNKNOWN', { membershipOffset: 5, sinceMs: 0 }),
    state,
    ...fields,
  });
  const next = (state: number, fields: Partial<MirrorStateRow> = {}) =>
    row(state, { stateEpoch: 2, ...fields });

  test('S1 S4 S7 D2 moves that the contract does not have are seen', () => {
    checkMove(undefined, row(0));
    checkMove(row(0), next(1));
    checkMove(row(8, { previousState: 2 }), next(2));
    checkMove(row(4), next(0, { membershipOffset: 6 }));
    assert.throws(() => checkMove(row(0), next(4)), /S1: PREPARING is followed by STOPPED/);
    assert.throws(() => checkMove(row(4), next(8)), /S1/);
    assert.throws(() => checkMove(row(8, { previousState: 2 }), next(1)), /S1/);
    assert.throws(() => checkMove(row(0), row(1, { stateEpoch: 3 })), /S4/);
    assert.throws(() => checkMove(row(0, { leaderEpoch: 3 }), next(1)), /S4/);
    assert.throws(() => checkMove(row(4), next(0)), /S7/);
    assert.throws(() => checkMove(row(2), next(4, { lastMirroredOffset: 9 })), /D2/);
  });
});

describe('where a stop must cut', () => {
  const seen = (bytes: Uint8Array): SeenBatch => {
    const { baseOffset, nextOffset } = new RecordBatch(bytes);
    return { baseOffset, nextOffset, bytes };
  };
  const data = (baseOffset: number, id?: bigint): SeenBatch =>
    seen(
      batchOf('x', 1, {
        baseOffset,
        ...(id === undefined ? {} : { ...producer(id), isTransactional: true }),
      }),
    );
  const end = (baseOffset: number, producerId: bigint): SeenBatch =>
    seen(
      buildTransactionMarker({
        baseOffset,
        producerId,
        producerEpoch: 0,
        commit: false,
        coordinatorEpoch: 0,
        timestamp: 0,
      }),
    );

  test('D1 at the first open transaction, again and again', () => {
    assert.equal(stableEnd([data(0), data(1, -5n), end(2, -5n)], 0, 3), 3);
    assert.equal(stableEnd([data(0), data(1, -5n), data(2)], 0, 3), 1);
    const nested = [data(0, -5n), data(1, -6n), end(2, -5n), data(3)];
    assert.equal(stableEnd(nested, 0, 4), 0);
    assert.equal(stableEnd([data(0, -5n), data(1)], 1, 2), 1);
    assert.equal(stableEnd([data(0, -5n), data(9)], 9, 10), 10);
  });
});

test('a shadow tells what was cut and what was added', async () => {
  const host = new SimHost();
  const shadow = new LogShadow();
  follow(host.log, batchOf('a', 2, { baseOffset: 0 }), batchOf('b', 3, { baseOffset: 2 }));
  const offsets = (batches: readonly SeenBatch[]) => batches.map(({ baseOffset }) => baseOffset);
  assert.deepEqual(offsets(shadow.follow(host.log).added), [0, 2]);
  assert.deepEqual(shadow.follow(host.log), { cut: [], added: [] });
  await host.kill();
  assert.deepEqual(shadow.follow(host.log), { cut: [], added: [] });
  host.log.truncateTo(2);
  follow(host.log, batchOf('c', 1, { baseOffset: 2 }));
  await host.kill();
  const { cut, added } = shadow.follow(host.log);
  assert.deepEqual([offsets(cut), offsets(added)], [[2], [2]]);
  assert.equal(shadow.end, 3);
  await host.end();
});

describe('the whole watch', () => {
  const mirroring = async (): Promise<MirrorWorld> => {
    const world = new MirrorWorld(5);
    await world.begin();
    await world.play(world.operator.createMirror(world.source));
    for (const { name } of TOPICS) await world.play(world.operator.add(name));
    await world.run(3_000);
    return world;
  };
  const logOf = (world: MirrorWorld) => {
    const partition = world.destination.partition('orders', 0);
    assert.ok(partition !== undefined && partition.log.logEndOffset > 0);
    return partition.log;
  };

  test('R1 sees a write that passed the gate', async () => {
    const world = await mirroring();
    logOf(world).appendAsLeader(batchOf(probeMark('primary')), 0, 'client');
    await assert.rejects(
      world.run(1_000),
      /invariant "mirror" is broken: .*orders-0: R1: .*\nseed 5/,
    );
  });

  test('D1 S2 sees a cut that no state asks for', async () => {
    const world = await mirroring();
    const log = logOf(world);
    log.truncateTo(log.logStartOffset);
    await assert.rejects(world.run(1_000), /orders-0: D1, S2: .* cut while MIRRORING/);
  });

  test('F5 sees a batch that the source does not have', async () => {
    const world = await mirroring();
    const log = logOf(world);
    follow(log, batchOf('smuggled', 1, { baseOffset: log.logEndOffset + 1_000 }));
    await assert.rejects(world.run(1_000), /orders-0: F5: .* the source has no batch there/);
  });
});
