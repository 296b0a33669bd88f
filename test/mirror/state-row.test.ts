/**
 * Rows on the wire, and which partition owns them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseUuid, type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import {
  decodeRow,
  decodeRowKey,
  encodeRow,
  encodeRowKey,
  type MirrorStateRow,
  murmur2,
  ownerPartition,
  parseRowKeyText,
  rowKeyText,
} from '../../src/mirror/state-row.ts';

const ID = parseUuid('wXcvBrucSz-5bhmr6vUzAA') as Uuid;
const KEY = { mirror: 'm.1_a-b', topicId: ID, partition: 12 };

const ROW: MirrorStateRow = {
  topicName: 'orders',
  partition: 12,
  state: 8,
  lastMirroredOffset: 2 ** 40,
  stateEpoch: 3,
  leaderEpoch: 7,
  membershipOffset: 99,
  sourceClusterId: 'cluster',
  sourceTopicId: ID,
  sourceEpochs: [
    { epoch: 1, startOffset: 0 },
    { epoch: 4, startOffset: 2 ** 33 },
  ],
  previousState: 1,
  retryAttempt: 2,
  cause: 'SOURCE_UNREACHABLE',
  message: 'refused',
  sinceMs: 1_700_000_000_000,
  reachedMirroring: true,
  settled: true,
  closedTransactions: [
    {
      producerId: 2n ** 40n + 7n,
      originalProducerId: 7n,
      producerEpoch: 3,
      firstOffset: 2 ** 34,
      markerOffset: 2 ** 40,
    },
  ],
  closedAtSource: [
    {
      producerId: 2n ** 61n,
      originalProducerId: 8n,
      producerEpoch: 0,
      firstOffset: 1,
      markerOffset: 2,
    },
  ],
  cutOffset: 2 ** 35,
  cutLeaderEpoch: 12,
};

test("C3 murmur2 gives the values of Apache Kafka's partitioner", () => {
  const known: [string, number][] = [
    ['21', -973932308],
    ['foobar', -790332482],
    ['a-little-bit-long-string', -985981536],
    ['a-little-bit-longer-string', -1486304829],
    ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
    ['abc', 479470107],
  ];
  for (const [text, hash] of known) assert.equal(murmur2(Buffer.from(text)), hash, text);
});

test('C3 the owner is the non-negative hash modulo the partitions', () => {
  assert.equal(ownerPartition('foobar', 50), (-790332482 & 0x7fffffff) % 50);
  assert.equal(ownerPartition('abc', 50), 479470107 % 50);
});

test('C3 a row key as text is parsed from the right', () => {
  assert.equal(rowKeyText(KEY), 'm.1_a-b:wXcvBrucSz-5bhmr6vUzAA:12');
  assert.deepEqual(parseRowKeyText(rowKeyText(KEY)), KEY);
  assert.equal(parseRowKeyText('m:12'), undefined);
  assert.equal(parseRowKeyText(`m:${ID}:x`), undefined);
});

test('C2 key and value survive the round trip, record type 2 in front of the key', () => {
  const key = encodeRowKey(KEY);
  assert.deepEqual([...key.subarray(0, 2)], [0, 2]);
  assert.deepEqual(decodeRowKey(key), KEY);
  assert.deepEqual(decodeRow(encodeRow(ROW)), ROW);
});

test('C2 a row with nothing but its plain fields has the defaults of the tagged ones', () => {
  const bare: MirrorStateRow = {
    topicName: 't',
    partition: 0,
    state: 0,
    lastMirroredOffset: -1,
    stateEpoch: 0,
    leaderEpoch: -1,
    membershipOffset: -1,
    sourceClusterId: '',
    sourceTopicId: ZERO_UUID,
    sourceEpochs: [],
    previousState: 16,
    retryAttempt: 0,
    cause: '',
    message: '',
    sinceMs: -1,
    reachedMirroring: false,
    settled: false,
    closedTransactions: [],
    closedAtSource: [],
    cutOffset: -1,
    cutLeaderEpoch: -1,
  };
  const bytes = encodeRow(bare);
  // Version, name, partition, state, and no tagged field.
  assert.deepEqual([...bytes], [0, 0, 2, 't'.charCodeAt(0), 0, 0, 0, 0, 0, 0]);
  assert.deepEqual(decodeRow(bytes), bare);
});

test('C2 a key of a record type of a later version is not a row', () => {
  const key = encodeRowKey(KEY);
  key[1] = 9;
  assert.equal(decodeRowKey(key), undefined);
});
