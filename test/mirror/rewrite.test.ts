/**
 * What happens to the bytes of batches on their way from the source into the local log.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { embeddedMapping, guestMapping } from '../../src/mirror/producer-id-mapping.ts';
import * as rewrite from '../../src/mirror/rewrite.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { propertyRuns } from '../property-runs.ts';

function scanBatches(records: Uint8Array, expectedOffset: number, knownEpoch: number) {
  return rewrite.scanBatches(records, expectedOffset, knownEpoch, embeddedMapping);
}

function batch(baseOffset: number, fields: Partial<Parameters<typeof buildRecordBatch>[0]> = {}) {
  return buildRecordBatch({
    baseOffset,
    partitionLeaderEpoch: 3,
    records: [0, 1, 2].map((i) => ({
      key: Buffer.from(`key ${i}`),
      value: Buffer.from(`value ${i}`),
      timestamp: 1000 + i,
    })),
    ...fields,
  });
}

function joined(...batches: Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(batches));
}

test('F6 only leader epoch, producer id and CRC change, and the CRC is valid', () => {
  const id = 0x1234_5678_9an;
  const idempotent = { producerId: id, producerEpoch: 5, baseSequence: 77 };
  const control = buildTransactionMarker({
    producerId: id,
    producerEpoch: 5,
    commit: true,
    coordinatorEpoch: 1,
    timestamp: 5,
  });
  new RecordBatch(control).setBaseOffset(6);
  const source = joined(batch(0), batch(3, idempotent), control);
  const records = source.slice();
  rewrite.rewriteBatches(records, 9, embeddedMapping);
  const [plain, written, marker] = [0, 1, 2].map((index) => {
    let at = 0;
    for (let i = 0; i < index; i++) at = new RecordBatch(records, at).end;
    return [new RecordBatch(records, at), new RecordBatch(source, at)] as const;
  });
  for (const pair of [plain, written, marker]) {
    assert.ok(pair);
    const [ours, theirs] = pair;
    assert.equal(ours.validCrc(), true);
    assert.equal(ours.partitionLeaderEpoch, 9);
    const unchanged = (bytes: RecordBatch): Buffer => {
      const copy = Buffer.from(bytes.slice());
      return Buffer.concat([copy.subarray(0, 12), copy.subarray(21, 43), copy.subarray(51)]);
    };
    assert.deepEqual(unchanged(ours), unchanged(theirs));
  }
  assert.equal(plain?.[0].producerId, -1n);
  assert.equal(written?.[0].producerId, -(id + 2n));
  assert.equal(marker?.[0].producerId, -(id + 2n));
  assert.equal(marker?.[0].isControl, true);
});

test('G20 a guest rewrites data and markers alike, and leaves an id that stays as it is', () => {
  const idempotent = (producerId: bigint) => ({ producerId, producerEpoch: 5, baseSequence: 77 });
  const control = buildTransactionMarker({
    producerId: 7n,
    producerEpoch: 5,
    commit: false,
    coordinatorEpoch: 1,
    timestamp: 5,
  });
  new RecordBatch(control).setBaseOffset(9);
  const own = batch(3, idempotent(1n << 41n));
  const records = joined(batch(0, idempotent(7n)), own, batch(6, idempotent(-9n)), control);
  rewrite.rewriteBatches(records, 9, guestMapping(3));
  const ids: bigint[] = [];
  for (let at = 0; at < records.length; ) {
    const each = new RecordBatch(records, at);
    assert.equal(each.validCrc(), true);
    assert.equal(each.partitionLeaderEpoch, 9);
    ids.push(each.producerId);
    at = each.end;
  }
  const tagged = 7n + 3n * (1n << 40n);
  assert.deepEqual(ids, [tagged, 1n << 41n, (1n << 62n) - 9n, tagged]);
});

test('F5 whole batches are verified in order; a batch cut off at the end is left out', () => {
  const records = joined(batch(10), batch(20), batch(30));
  const scan = scanBatches(records.subarray(0, records.length - 7), 10, 3);
  assert.equal(scan.problem, undefined);
  assert.deepEqual([scan.batches, scan.records], [2, 6]);
  assert.deepEqual([scan.firstOffset, scan.lastOffset], [10, 22]);
  assert.equal(scan.bytes, batch(10).length * 2);
  assert.equal(scan.maxTimestampMs, 1002);
  assert.deepEqual(scan.epochs, []);
});

test('F5 a damaged batch spoils the answer, whichever byte under the CRC is damaged', () => {
  const whole = joined(batch(0), batch(3));
  const second = batch(0).length;
  fc.assert(
    fc.property(fc.integer({ min: second + 21, max: whole.length - 1 }), (at) => {
      const records = whole.slice();
      records[at] = (records[at] ?? 0) ^ 0x10;
      return scanBatches(records, 0, 3).problem?.cause === 'CORRUPT_SOURCE_BATCH';
    }),
    propertyRuns(100),
  );
});

test('F5 offsets that go back are refused', () => {
  const scan = scanBatches(joined(batch(10), batch(5)), 10, 3);
  assert.equal(scan.problem?.cause, 'CORRUPT_SOURCE_BATCH');
  const below = scanBatches(joined(batch(5)), 20, 3);
  assert.equal(below.problem?.cause, 'CORRUPT_SOURCE_BATCH');
});

test('F9 only the first batch may begin below the expected offset', () => {
  const scan = scanBatches(joined(batch(10), batch(13)), 12, 3);
  assert.equal(scan.problem, undefined);
  assert.equal(scan.firstOffset, 10);
});

test('F10 changes of the source epoch are found, with the bytes before the first of them', () => {
  const records = joined(
    batch(0),
    batch(3, { partitionLeaderEpoch: 4 }),
    batch(6, { partitionLeaderEpoch: 4 }),
    batch(9, { partitionLeaderEpoch: 6 }),
  );
  const scan = scanBatches(records, 0, 3);
  assert.deepEqual(scan.epochs, [
    { epoch: 4, startOffset: 3 },
    { epoch: 6, startOffset: 9 },
  ]);
  assert.equal(scan.bytesOfKnownEpoch, batch(0).length);
  assert.equal(scanBatches(records, 0, -1).bytesOfKnownEpoch, 0);
});

test('F13 message formats v0 and v1 are named as the cause', () => {
  const old = batch(0);
  old[16] = 1;
  assert.equal(scanBatches(old, 0, 3).problem?.cause, 'UNSUPPORTED_MESSAGE_FORMAT');
});

test('P1 a batch whose id cannot be mapped is named with its offset', () => {
  const records = batch(40, { producerId: 1n << 56n, producerEpoch: 0, baseSequence: 0 });
  const { problem } = scanBatches(records, 0, 3);
  assert.equal(problem?.cause, 'PRODUCER_ID_OUT_OF_RANGE');
  assert.match(problem?.message ?? '', /offset 40.*72057594037927936/);
});

test('F5 arbitrary bytes never throw', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      scanBatches(bytes, 0, -1);
    }),
    propertyRuns(100),
  );
});
