/** The batch view, scans and the CRC patch; bytes written by Apache Kafka 4.2 where it matters. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import {
  type BatchProblem,
  batchProblem,
  forEachBatch,
  incrementSequence,
  RecordBatch,
} from '../../src/protocol/record-batch.ts';
import { propertyRuns } from '../property-runs.ts';
import { KAFKA_BATCHES } from './kafka-batches.ts';

const { idempotent, transactional, gzip, commit, legacy } = KAFKA_BATCHES;

function sample(valueBytes: number): Uint8Array {
  const value = new Uint8Array(valueBytes).fill(0x5a);
  return buildRecordBatch({ baseOffset: 10, records: [{ key: null, value, timestamp: 1 }] });
}

function patched(bytes: Uint8Array, change: (view: DataView) => void): Uint8Array {
  const copy = new Uint8Array(bytes);
  change(new DataView(copy.buffer));
  return copy;
}

describe('RecordBatch', () => {
  it('reads the header of batches that Kafka wrote', () => {
    const batch = new RecordBatch(idempotent);
    assert.deepEqual(
      {
        baseOffset: batch.baseOffset,
        lastOffset: batch.lastOffset,
        nextOffset: batch.nextOffset,
        sizeInBytes: batch.sizeInBytes,
        partitionLeaderEpoch: batch.partitionLeaderEpoch,
        magic: batch.magic,
        validCrc: batch.validCrc(),
        compression: batch.compressionType,
        isTransactional: batch.isTransactional,
        isControl: batch.isControl,
        isLogAppendTime: batch.isLogAppendTime,
        hasDeleteHorizon: batch.hasDeleteHorizon,
        baseTimestamp: batch.baseTimestamp,
        maxTimestamp: batch.maxTimestamp,
        maxTimestampMs: batch.maxTimestampMs,
        producerId: batch.producerId,
        producerEpoch: batch.producerEpoch,
        baseSequence: batch.baseSequence,
        lastSequence: batch.lastSequence,
        count: batch.count,
        payload: batch.payload().length,
      },
      {
        baseOffset: 5_000_000_000,
        lastOffset: 5_000_000_002,
        nextOffset: 5_000_000_003,
        sizeInBytes: idempotent.length,
        partitionLeaderEpoch: 9,
        magic: 2,
        validCrc: true,
        compression: 'none',
        isTransactional: false,
        isControl: false,
        isLogAppendTime: false,
        hasDeleteHorizon: false,
        baseTimestamp: 1_700_000_000_000n,
        maxTimestamp: 1_700_000_000_500n,
        maxTimestampMs: 1_700_000_000_500,
        producerId: 4_294_967_301n,
        producerEpoch: 3,
        baseSequence: 2_147_483_646,
        lastSequence: 0,
        count: 3,
        payload: idempotent.length - 61,
      },
    );
    assert.equal(new RecordBatch(gzip).compressionType, 'gzip');
    assert.equal(new RecordBatch(gzip).validCrc(), true);
    assert.equal(new RecordBatch(commit).isControl, true);
    assert.equal(new RecordBatch(transactional).isTransactional, true);
  });

  it('P2: every id but −1 is a producer id', () => {
    for (const [producerId, expected] of [
      [-1n, false],
      [-2n, true],
      [0n, true],
      [0xffff_ffffn, true],
      [-(2n ** 32n) + 0xffff_ffffn - 2n ** 32n, true],
      [-(2n ** 63n), true],
    ] as const) {
      const batch = new RecordBatch(buildRecordBatch({ records: [], producerId }));
      assert.equal(batch.hasProducerId, expected, String(producerId));
      assert.equal(batch.producerId, producerId);
      const halves = (BigInt(batch.producerIdHigh) << 32n) | BigInt(batch.producerIdLow);
      assert.equal(halves, producerId);
    }
  });

  it('P1: a rewritten producer id gives the CRC of a full computation, also where wrong', () => {
    const id = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });
    const size = fc.oneof(fc.nat(20), fc.nat(300), fc.nat(70_000));
    const property = fc.property(id, id, size, (before, after, valueBytes) => {
      const bytes = sample(valueBytes);
      const batch = new RecordBatch(bytes);
      batch.rewriteProducerId(before);
      assert.equal(batch.validCrc(), true);
      batch.rewriteProducerId(after);
      assert.equal(batch.producerId, after);
      assert.equal(batch.validCrc(), true);
      const crc = batch.crc;
      batch.updateCrc();
      assert.equal(batch.crc, crc);
      bytes[bytes.length - 1] = 0xff;
      batch.rewriteProducerId(before);
      assert.equal(batch.validCrc(), false);
    });
    fc.assert(property, propertyRuns(60));
  });

  it('F6: base offset and leader epoch are patched outside the CRC', () => {
    const bytes = new Uint8Array(idempotent);
    const batch = new RecordBatch(bytes);
    batch.setBaseOffset(2 ** 40 + 7);
    batch.setPartitionLeaderEpoch(77);
    assert.equal(batch.baseOffset, 2 ** 40 + 7);
    assert.equal(batch.partitionLeaderEpoch, 77);
    assert.equal(batch.validCrc(), true);
    assert.deepEqual(bytes.subarray(16), idempotent.subarray(16));
  });

  it('takes the log append time with a valid CRC', () => {
    const batch = new RecordBatch(new Uint8Array(gzip));
    batch.setLogAppendTime(1_800_000_000_000);
    assert.equal(batch.isLogAppendTime, true);
    assert.equal(batch.compressionType, 'gzip');
    assert.equal(batch.maxTimestamp, 1_800_000_000_000n);
    assert.equal(batch.validCrc(), true);
  });

  it('wraps sequence numbers behind 2^31 − 1', () => {
    assert.equal(incrementSequence(2 ** 31 - 1, 1), 0);
    assert.equal(incrementSequence(2 ** 31 - 2, 1), 2 ** 31 - 1);
    assert.equal(incrementSequence(5, 3), 8);
  });
});

describe('forEachBatch', () => {
  const log = new Uint8Array(Buffer.concat([transactional, commit, idempotent]));

  it('visits every batch in order with one view, inside larger memory', () => {
    const seen: [number, number, number][] = [];
    const views = new Set<RecordBatch>();
    const scan = forEachBatch(log.subarray(0), 0, log.length, (batch) => {
      views.add(batch);
      seen.push([batch.position, batch.baseOffset, batch.count]);
    });
    assert.deepEqual(scan, { ok: true, position: log.length });
    const second = transactional.length;
    assert.deepEqual(seen, [
      [0, 7, 3],
      [second, 12, 1],
      [second + commit.length, 5_000_000_000, 3],
    ]);
    assert.equal(views.size, 1);
  });

  it('stops where the visitor says so', () => {
    const scan = forEachBatch(log, 0, log.length, (batch) => batch.baseOffset < 12);
    assert.deepEqual(scan, { ok: true, position: transactional.length + commit.length });
  });

  it('names the first problem and its position, after the good batches', () => {
    const bad = (change: (view: DataView) => void) => patched(commit, change);
    const cases: readonly (readonly [BatchProblem, Uint8Array])[] = [
      ['truncated', commit.subarray(0, 11)],
      ['truncated', commit.subarray(0, commit.length - 1)],
      ['badLength', bad((v) => v.setInt32(8, -5))],
      ['badLength', bad((v) => v.setInt32(8, 13))],
      ['badLength', bad((v) => v.setInt32(8, 48))],
      ['truncated', bad((v) => v.setInt32(8, 0x7fff_ffff))],
      ['legacyMagic', legacy],
      ['unknownMagic', bad((v) => v.setInt8(16, 3))],
      ['unknownMagic', bad((v) => v.setInt8(16, -1))],
      ['badOffset', bad((v) => v.setBigInt64(0, -1n))],
      ['badOffset', bad((v) => v.setBigInt64(0, 2n ** 53n - 1n))],
      ['badOffset', bad((v) => v.setInt32(23, -1))],
      ['badCount', bad((v) => v.setInt32(57, -1))],
      ['badCount', bad((v) => v.setInt32(57, 2))],
    ];
    for (const [problem, bytes] of cases) {
      const all = new Uint8Array(Buffer.concat([transactional, bytes]));
      let visited = 0;
      const scan = forEachBatch(all, 0, all.length, () => {
        visited++;
      });
      assert.deepEqual(scan, { ok: false, problem, position: transactional.length });
      assert.equal(visited, 1);
      assert.equal(batchProblem(bytes), problem);
    }
    assert.equal(batchProblem(commit), undefined);
  });

  it('ends on any bytes, and never reads outside', () => {
    const property = fc.property(
      fc.uint8Array({ maxLength: 400 }),
      fc.nat(log.length),
      fc.nat(255),
      (random, where, byte) => {
        const broken = new Uint8Array(log);
        if (where < broken.length) broken[where] = byte;
        for (const bytes of [random, broken]) {
          let position = 0;
          const scan = forEachBatch(bytes, 0, bytes.length, (batch) => {
            assert.equal(batch.position, position);
            position = batch.end;
            assert.ok(batch.payload().length >= 0 && position <= bytes.length);
          });
          assert.equal(scan.position, position);
          assert.equal(scan.ok, position === bytes.length);
        }
      },
    );
    fc.assert(property, propertyRuns(100));
  });
});
