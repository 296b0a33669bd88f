/** Appending as leader and as follower: what is refused, what is recognised, what is stored. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import { ErrorCode } from '../../src/protocol/errors.ts';
import { buildRecordBatch, decodeRecords } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { accepted, batchOf, follow, marker, readAll, SimHost } from './harness.ts';

const NOW = 1_700_000_000_000;

function refusal(host: SimHost, bytes: Uint8Array) {
  const before = host.log.logEndOffset;
  const result = host.log.appendAsLeader(bytes, 0, 'client');
  assert.equal(host.log.logEndOffset, before, 'nothing was appended');
  return result.error;
}

function patched(bytes: Uint8Array, patch: (view: DataView) => void, crc = true): Uint8Array {
  const copy = bytes.slice();
  patch(new DataView(copy.buffer));
  if (crc) new RecordBatch(copy).updateCrc();
  return copy;
}

test('a leader assigns offsets and the leader epoch in place', () => {
  const { log } = new SimHost();
  const first = batchOf('a', 3);
  const result = accepted(log.appendAsLeader(first, 7, 'client'));
  assert.deepEqual([result.firstOffset, result.lastOffset, result.duplicate], [0, 2, false]);
  const second = batchOf('b', 2);
  assert.equal(accepted(log.appendAsLeader(second, 8, 'client')).firstOffset, 3);
  assert.deepEqual(
    readAll(log).map((batch) => batch.bytes),
    [first, second].map((bytes) => Buffer.from(bytes).toString('base64')),
  );
  assert.equal(new RecordBatch(second).partitionLeaderEpoch, 8);
  assert.deepEqual(log.epochEndOffset(7), { leaderEpoch: 7, endOffset: 3 });
  assert.deepEqual(log.epochEndOffset(8), { leaderEpoch: 8, endOffset: 5 });
  assert.deepEqual(log.epochEndOffset(9), { leaderEpoch: -1, endOffset: -1 });
});

test('malformed, oversized and forbidden client batches are refused and change nothing', () => {
  const host = new SimHost({ maxMessageBytes: 500, segmentBytes: 400 });
  const good = batchOf('a', 2);
  const cases: [string, Uint8Array, number][] = [
    ['empty', new Uint8Array(0), ErrorCode.INVALID_RECORD],
    ['cut short', good.subarray(0, good.length - 1), ErrorCode.INVALID_RECORD],
    ['two batches', Buffer.concat([good, good]), ErrorCode.INVALID_RECORD],
    ['lying length', patched(good, (v) => v.setInt32(8, 0x7fffffff)), ErrorCode.INVALID_RECORD],
    ['magic 1', patched(good, (v) => v.setInt8(16, 1), false), ErrorCode.INVALID_RECORD],
    ['base offset', patched(good, (v) => v.setInt32(4, 5)), ErrorCode.INVALID_RECORD],
    ['bad CRC', patched(good, (v) => v.setUint8(70, 9), false), ErrorCode.CORRUPT_MESSAGE],
    ['count 1', patched(good, (v) => v.setInt32(57, 1)), ErrorCode.INVALID_RECORD],
    ['count 0', patched(good, (v) => v.setInt32(57, 0)), ErrorCode.INVALID_RECORD],
    ['delta', patched(good, (v) => v.setInt32(23, 9)), ErrorCode.INVALID_RECORD],
    [
      'more records than counted',
      patched(good, (v) => {
        v.setInt32(57, 1);
        v.setInt32(23, 0);
      }),
      ErrorCode.INVALID_RECORD,
    ],
    ['control record', marker(5n, true), ErrorCode.INVALID_RECORD],
    [
      'no sequence',
      batchOf('a', 1, { producerId: 5n, producerEpoch: 0 }),
      ErrorCode.INVALID_RECORD,
    ],
    ['log append time', patched(good, (v) => v.setInt16(21, 8)), ErrorCode.INVALID_TIMESTAMP],
    ['codec 7', patched(good, (v) => v.setInt16(21, 7)), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE],
    ['not gzip', patched(good, (v) => v.setInt16(21, 1)), ErrorCode.INVALID_RECORD],
    ['too large', batchOf('x'.repeat(600)), ErrorCode.MESSAGE_TOO_LARGE],
    ['larger than a segment', batchOf('x'.repeat(400)), ErrorCode.RECORD_LIST_TOO_LARGE],
  ];
  for (const [name, bytes, error] of cases) assert.equal(refusal(host, bytes), error, name);
  accepted(host.log.appendAsLeader(good, 0, 'client'));
});

test('every cut of the records of a batch is refused, with a valid CRC too', () => {
  const host = new SimHost();
  const good = batchOf('abc', 3);
  for (let size = 61; size < good.length; size++) {
    const cut = good.slice(0, size);
    new DataView(cut.buffer).setInt32(8, size - 12);
    new RecordBatch(cut).updateCrc();
    assert.equal(refusal(host, cut), ErrorCode.INVALID_RECORD, `${size} bytes`);
  }
});

test('timestamps outside message.timestamp.before/after.max.ms are refused by record', () => {
  const host = new SimHost({ messageTimestampBeforeMaxMs: 1000, messageTimestampAfterMaxMs: 2000 });
  const at = (...offsets: number[]) =>
    buildRecordBatch({
      records: offsets.map((offset) => ({
        key: null,
        value: null,
        timestamp: offset === -1 ? -1 : NOW + offset,
      })),
    });
  const result = host.log.appendAsLeader(at(0, -1001, 2001), 0, 'client');
  assert(result.error !== 0);
  assert.equal(result.error, ErrorCode.INVALID_TIMESTAMP);
  assert.deepEqual(
    result.recordErrors?.map((each) => each.batchIndex),
    [1, 2],
  );
  accepted(host.log.appendAsLeader(at(0, -1000, 2000), 0, 'client'));
  accepted(host.log.appendAsLeader(at(-1), 0, 'client'));
});

test('a compacted topic needs keys', () => {
  const host = new SimHost({ cleanupPolicy: 'compact' });
  const records = ['a', null].map((key) => ({
    key: key === null ? null : Buffer.from(key),
    value: null,
    timestamp: NOW,
  }));
  const result = host.log.appendAsLeader(buildRecordBatch({ records }), 0, 'client');
  assert(result.error !== 0);
  assert.equal(result.error, ErrorCode.INVALID_RECORD);
  assert.deepEqual(
    result.recordErrors?.map((each) => each.batchIndex),
    [1],
  );
});

test('log append time is stamped, a wrong max timestamp is made true, codecs are converted', () => {
  const port = nodeCompression();
  const stamped = new SimHost({ messageTimestampType: 'LogAppendTime' });
  const result = accepted(stamped.log.appendAsLeader(batchOf('a', 2), 0, 'client'));
  assert.equal(result.logAppendTimeMs, NOW);
  const [first] = readAll(stamped.log);
  const batch = new RecordBatch(Buffer.from(first?.bytes ?? '', 'base64'));
  assert.deepEqual([batch.isLogAppendTime, batch.maxTimestamp], [true, BigInt(NOW)]);

  const host = new SimHost({ compressionType: 'zstd' });
  const wrong = patched(batchOf('a', 3), (view) => view.setBigInt64(35, 5n));
  accepted(host.log.appendAsLeader(wrong, 0, 'client'));
  const stored = new RecordBatch(Buffer.from(readAll(host.log)[0]?.bytes ?? '', 'base64'));
  assert.equal(stored.compressionType, 'zstd');
  assert.equal(stored.maxTimestamp, BigInt(NOW + 2));
  const values = [...decodeRecords(stored, port, 1e6)].map((r) =>
    String(Buffer.from(r.value ?? [])),
  );
  assert.deepEqual(values, ['a/0', 'a/1', 'a/2']);
});

test('compressed batches are accepted and keyed records found inside them', () => {
  const port = nodeCompression();
  for (const type of ['gzip', 'snappy', 'lz4', 'zstd'] as const) {
    const host = new SimHost({ cleanupPolicy: 'compact' });
    accepted(
      host.log.appendAsLeader(
        batchOf('v'.repeat(50), 5, { compression: { type, port } }),
        0,
        'client',
      ),
    );
    assert.equal(host.log.logEndOffset, 5, type);
  }
});

test('an idempotent producer: duplicates of the last five, gaps, stale and new epochs', () => {
  const { log } = new SimHost();
  const send = (sequence: number, producerEpoch = 0) =>
    log.appendAsLeader(
      batchOf(`s${sequence}`, 2, { producerId: 9n, producerEpoch, baseSequence: sequence }),
      0,
      'client',
    );
  for (let index = 0; index < 6; index++) accepted(send(index * 2));
  assert.equal(log.logEndOffset, 12);
  for (let index = 1; index < 6; index++) {
    const again = accepted(send(index * 2));
    assert.deepEqual(
      [again.duplicate, again.firstOffset, again.lastOffset, again.appendedBytes],
      [true, index * 2, index * 2 + 1, 0],
    );
  }
  assert.equal(send(0).error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 'the sixth last');
  assert.equal(send(14).error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 'a gap');
  assert.equal(send(4, 1).error, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 'new epoch, not 0');
  accepted(send(0, 1));
  assert.equal(send(12, 0).error, ErrorCode.INVALID_PRODUCER_EPOCH);
  assert.equal(log.logEndOffset, 14);
});

test('sequences go on at 0 after 2^31 - 1', () => {
  const { log } = new SimHost();
  const send = (baseSequence: number) =>
    log.appendAsLeader(
      batchOf('x', 2, { producerId: 9n, producerEpoch: 0, baseSequence }),
      0,
      'client',
    );
  // Unknown producers may begin anywhere: their earlier batches may be deleted.
  accepted(send(0x7fff_fffe));
  accepted(send(0));
  assert.equal(accepted(send(0x7fff_fffe)).duplicate, true);
});

test('P2: transactions of ids ≥ 0 and ≤ −2 hold the LSO and end by their marker', () => {
  for (const producerId of [7n, -9n, -(2n ** 56n) - 5n]) {
    const { log } = new SimHost();
    const txn = { producerId, producerEpoch: 0, baseSequence: 0, isTransactional: true };
    accepted(log.appendAsLeader(batchOf('plain', 2), 0, 'client'));
    accepted(log.appendAsLeader(batchOf('txn', 2, txn), 0, 'client'));
    log.updateHighWatermark(log.logEndOffset);
    assert.equal(log.lastStableOffset, 2);
    assert.equal(log.hasOpenTransaction(producerId), true);
    accepted(log.appendAsLeader(marker(producerId, false), 0, 'coordinator'));
    assert.equal(log.lastStableOffset, 2, 'the marker is not below the high watermark yet');
    log.updateHighWatermark(log.logEndOffset);
    assert.equal(log.lastStableOffset, 5);
    const read = log.read(0, 1e6, 'lastStable', true);
    assert(read.error === 0);
    assert.deepEqual(
      read.abortedTransactions?.map((each) => [each.producerId, each.firstOffset]),
      [[producerId, 2]],
    );
    assert.equal(log.hasOpenTransaction(producerId), false);
  }
});

test('P2: id −1 is no producer', () => {
  const { log } = new SimHost();
  accepted(log.appendAsLeader(batchOf('a', 1, { producerId: -1n, baseSequence: 3 }), 0, 'client'));
  assert.deepEqual(log.activeProducers(), []);
});

test('a non-transactional batch inside a transaction is refused; stale markers are fenced', () => {
  const { log } = new SimHost();
  const base = { producerId: 7n, producerEpoch: 3 };
  accepted(
    log.appendAsLeader(
      batchOf('t', 1, { ...base, baseSequence: 0, isTransactional: true }),
      0,
      'client',
    ),
  );
  const plain = batchOf('p', 1, { ...base, baseSequence: 1 });
  assert.equal(log.appendAsLeader(plain, 0, 'client').error, ErrorCode.INVALID_TXN_STATE);
  const stale = log.appendAsLeader(marker(7n, true), 0, 'coordinator');
  assert.equal(stale.error, ErrorCode.INVALID_PRODUCER_EPOCH);
});

test('F5: a follower append keeps offsets, epochs and gaps, and refuses what goes back', () => {
  const { log } = new SimHost();
  const a = batchOf('a', 3, { baseOffset: 10, partitionLeaderEpoch: 4 });
  const b = batchOf('b', 1, { baseOffset: 100, lastOffset: 119, partitionLeaderEpoch: 5 });
  follow(log, a, b);
  assert.equal(log.logEndOffset, 120);
  assert.deepEqual(
    readAll(log).map((batch) => [batch.baseOffset, batch.lastOffset, batch.bytes]),
    [
      [10, 12, Buffer.from(a).toString('base64')],
      [100, 119, Buffer.from(b).toString('base64')],
    ],
  );
  assert.deepEqual(
    readAll(log, 50).map((batch) => batch.baseOffset),
    [100],
  );
  assert.deepEqual(log.epochEndOffset(4), { leaderEpoch: 4, endOffset: 100 });
  const back = log.appendAsFollower([batchOf('c', 1, { baseOffset: 119 })], { verifyCrc: false });
  assert.equal(back.error, ErrorCode.OFFSET_OUT_OF_RANGE);
  const good = batchOf('d', 1, { baseOffset: 130 });
  const bad = patched(batchOf('e', 1, { baseOffset: 140 }), (v) => v.setUint8(70, 1), false);
  const mixed = log.appendAsFollower([good, bad], { verifyCrc: true });
  assert.equal(mixed.error, ErrorCode.CORRUPT_MESSAGE);
  const legacy = patched(batchOf('f', 1, { baseOffset: 150 }), (v) => v.setInt8(16, 1), false);
  const old = log.appendAsFollower([legacy], { verifyCrc: false });
  assert.equal(old.error, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT);
  assert.equal(log.logEndOffset, 120, 'nothing of the refused was appended');
});

test('the memory of a follower append may be reused at once', () => {
  const { log } = new SimHost();
  const memory = Buffer.concat([0, 1, 2].map((n) => batchOf(`r${n}`, 1, { baseOffset: n })));
  const copy = Buffer.from(memory);
  follow(log, memory);
  memory.fill(0xff);
  assert.deepEqual(
    Buffer.concat(readAll(log).map((batch) => Buffer.from(batch.bytes, 'base64'))),
    copy,
  );
});

test('offset gaps of any size roll where relative offsets do not reach', async () => {
  const host = new SimHost();
  const bases = [5, 2 ** 31 + 10, 2 ** 40, 2 ** 40 + 1, 2 ** 52];
  for (const baseOffset of bases) follow(host.log, batchOf(`at ${baseOffset}`, 1, { baseOffset }));
  const check = () => {
    assert.deepEqual(
      readAll(host.log).map((batch) => batch.baseOffset),
      bases,
    );
    assert.deepEqual(
      readAll(host.log, 2 ** 33).map((batch) => batch.baseOffset),
      bases.slice(2),
    );
    assert.equal(host.log.logEndOffset, 2 ** 52 + 1);
  };
  check();
  await host.kill();
  check();
  await host.restart();
  check();
});

test('one large follower append is split over segments at batch boundaries', async () => {
  const host = new SimHost({ segmentBytes: 300, indexIntervalBytes: 0 });
  const batches = Array.from({ length: 40 }, (_, n) => batchOf(`n${n}`, 2, { baseOffset: 2 * n }));
  follow(host.log, Buffer.concat(batches.slice(0, 25)), ...batches.slice(25));
  assert(host.log.segments().length >= 10);
  assert(host.log.segments().every((segment) => segment.sizeBytes <= 300));
  const expected = batches.map((bytes) => Buffer.from(bytes).toString('base64'));
  assert.deepEqual(
    readAll(host.log).map((batch) => batch.bytes),
    expected,
  );
  await host.kill();
  assert.deepEqual(
    readAll(host.log).map((batch) => batch.bytes),
    expected,
  );
});

test('a failing write takes the log offline; what was whole is found again', async () => {
  const host = new SimHost();
  accepted(host.log.appendAsLeader(batchOf('kept'), 0, 'client'));
  host.disk.failNext('write', /\.log$/, 'EIO');
  assert.throws(() => host.log.appendAsLeader(batchOf('lost'), 0, 'client'), { code: 'EIO' });
  assert.equal(host.log.isOffline, true);
  const result = host.log.appendAsLeader(batchOf('later'), 0, 'client');
  assert.equal(result.error, ErrorCode.KAFKA_STORAGE_ERROR);
  assert.deepEqual(host.log.read(0, 100, 'logEnd', true), { error: ErrorCode.KAFKA_STORAGE_ERROR });
  await host.kill();
  assert.equal(host.log.logEndOffset, 1);
});
