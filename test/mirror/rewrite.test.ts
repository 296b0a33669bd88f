/**
 * What happens to the bytes of batches on their way from the source into the local log.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  isMappable,
  MAX_HOPS,
  mapProducerId,
  rewriteBatches,
  scanBatches,
} from '../../src/mirror/rewrite.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';

const HOP = 1n << 56n;

function halves(id: bigint): [number, number] {
  return [Number(id >> 32n), Number(id & 0xffffffffn)];
}

function mapped(id: bigint): bigint {
  const { high, low } = mapProducerId(...halves(id));
  return BigInt.asIntN(64, (BigInt(high) << 32n) | BigInt(low));
}

/** The rule as written, in exact arithmetic. */
function oracle(id: bigint): bigint {
  if (id === -1n) return -1n;
  return id >= 0n ? -(id + 2n) : id - HOP;
}

const firstHop = fc.bigInt({ min: 0n, max: HOP - 3n });

test('P1 every id below the limits maps exactly as the rule says', () => {
  fc.assert(fc.property(firstHop, (id) => mapped(id) === oracle(id)));
  const later = fc.bigInt({ min: -(126n * HOP) + 1n, max: -2n });
  fc.assert(fc.property(later, (id) => isMappable(...halves(id)) && mapped(id) === oracle(id)));
});

test('P1 the ids around every carry and limit map exactly', () => {
  const edges = [0n, 1n, 0xffff_fffdn, 0xffff_fffen, 0xffff_ffffn, 1n << 32n, HOP - 3n];
  for (const id of edges) assert.equal(mapped(id), oracle(id), String(id));
  assert.equal(mapped(-1n), -1n);
  assert.equal(mapped(-2n), -2n - HOP);
});

test('P1 ids beyond the limits are refused, not wrapped', () => {
  assert.equal(isMappable(...halves(HOP - 3n)), true);
  assert.equal(isMappable(...halves(HOP - 2n)), false);
  assert.equal(isMappable(...halves((1n << 63n) - 1n)), false);
  assert.equal(isMappable(...halves(-(126n * HOP) + 1n)), true);
  assert.equal(isMappable(...halves(-(126n * HOP))), false);
  assert.equal(isMappable(...halves(-(1n << 63n))), false);
});

test('P1 an id survives 127 hops, all different, and is refused at the next', () => {
  for (const start of [0n, 41n, HOP - 3n]) {
    const seen = new Set<bigint>([start]);
    let id = start;
    for (let hop = 0; hop < MAX_HOPS; hop++) {
      assert.equal(isMappable(...halves(id)), true, `hop ${hop} of ${start}`);
      id = mapped(id);
      seen.add(id);
    }
    assert.equal(seen.size, MAX_HOPS + 1);
    assert.equal(isMappable(...halves(id)), false);
  }
});

test('P1 two different ids never meet, whatever hop each has come to', () => {
  const chain = fc.tuple(firstHop, fc.integer({ min: 0, max: 20 }));
  const last = ([id, hops]: [bigint, number]): bigint => {
    let result = id;
    for (let hop = 0; hop < hops; hop++) result = mapped(result);
    return result;
  };
  fc.assert(
    fc.property(chain, chain, (a, b) => {
      const isSame = a[0] === b[0] && a[1] === b[1];
      return isSame || last(a) !== last(b);
    }),
  );
});

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
  rewriteBatches(records, 9);
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
  const records = batch(40, { producerId: HOP, producerEpoch: 0, baseSequence: 0 });
  const { problem } = scanBatches(records, 0, 3);
  assert.equal(problem?.cause, 'PRODUCER_ID_OUT_OF_RANGE');
  assert.match(problem?.message ?? '', /offset 40.*72057594037927936/);
});

test('F5 arbitrary bytes never throw', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      scanBatches(bytes, 0, -1);
    }),
  );
});
