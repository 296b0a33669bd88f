/** How mirrors are shown: order, dashes for what is not known, sums and rates. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MirrorDescription } from '../../src/cli/admin-client.ts';
import {
  describeCauses,
  describeTable,
  type PartitionStatus,
  partitionStatuses,
  progressLine,
  progressOf,
} from '../../src/cli/mirror-status.ts';
import { codec } from '../../src/protocol/codec.ts';
import { DescribeMirrorsResponse } from '../../src/protocol/messages/12795-describe-mirrors.ts';

function described(
  topics: {
    name: string;
    partitions: [index: number, source: number, here: number, cause?: string][];
  }[],
): MirrorDescription {
  const response = codec(DescribeMirrorsResponse, 0);
  const bytes = response.encodeToBytes({
    throttleTimeMs: 0,
    mirrors: [
      {
        errorCode: 0,
        mirrorName: 'm',
        topics: topics.map(({ name, partitions }) => ({
          topicName: name,
          partitions: partitions.map(
            ([partitionIndex, sourceOffset, destinationOffset, cause]) => ({
              partitionIndex,
              sourceOffset,
              destinationOffset,
              lag: sourceOffset < 0 ? -1 : sourceOffset - destinationOffset,
              state: cause === undefined ? 'MIRRORING' : 'FAILED',
              cause: cause ?? '',
              message: cause === undefined ? '' : 'why',
              lastMirroredOffset: -1,
            }),
          ),
        })),
      },
    ],
  });
  const [mirror] = response.decode(bytes).mirrors;
  assert.ok(mirror);
  return mirror;
}

function statuses(here: Record<string, number>, lag = 0): PartitionStatus[] {
  const topics = Object.entries(here).map(([name, offset]) => ({
    name,
    partitions: [[0, lag < 0 ? -1 : offset + lag, offset]] as [number, number, number][],
  }));
  return partitionStatuses(described(topics));
}

test('A4: the table is in order, with a dash for what is not known', () => {
  const mirror = described([
    { name: 'b', partitions: [[0, -1, -1, 'SOURCE_UNREACHABLE']] },
    {
      name: 'a',
      partitions: [
        [10, 1_000_000, 1],
        [2, 5, 5],
      ],
    },
  ]);
  assert.deepEqual(describeTable(mirror), [
    'PARTITION  STATE         SOURCE  HERE      LAG  LAST-MIRRORED  CAUSE',
    'a-2        MIRRORING          5     5        0  -',
    'a-10       MIRRORING  1,000,000     1  999,999  -',
    'b-0        FAILED             -     -        -  -              SOURCE_UNREACHABLE',
  ]);
  assert.deepEqual(describeCauses(mirror), ['  b-0 SOURCE_UNREACHABLE: why']);
  assert.deepEqual(describeTable(described([])), ['  no topics yet']);
});

test('S5 M3: causes are explained below the table, up to a limit', () => {
  const partitions = Array.from({ length: 25 }, (_, index): [number, number, number, string] => [
    index,
    -1,
    -1,
    'LOOP',
  ]);
  const lines = describeCauses(described([{ name: 't', partitions }]));
  assert.equal(lines.length, 21);
  assert.equal(lines[19], '  t-19 LOOP: why');
  assert.equal(lines[20], '  … and 5 more; --json shows all');
});

test('G28: what a partition waits for is told, though nothing is wrong', () => {
  const mirror = described([{ name: 't', partitions: [[0, -1, -1]] }]);
  const [topic] = mirror.topics;
  const [partition] = topic?.partitions ?? [];
  assert.ok(topic !== undefined && partition !== undefined);
  const message = 'broker(s) 2 are not in sync yet';
  const partitions = [{ ...partition, state: 'STOPPING', cause: '', message }];
  const waiting = { ...mirror, topics: [{ ...topic, partitions }] };
  assert.deepEqual(describeCauses(waiting), [`  t-0 waits: ${message}`]);
});

test('A4: the lag of a mirror is unknown while that of a partition is', () => {
  const known = progressOf(undefined, { atMs: 0, partitions: statuses({ a: 3, b: 4 }, 5) });
  assert.deepEqual([known.lag, known.destinationOffsets, known.offsetsPerSecond], [10, 7, 0]);
  assert.equal(
    progressLine('m', known),
    'm: 2 partitions (2 MIRRORING)  7 records here  0/s  lag 10',
  );
  const partitions = [...statuses({ a: 3 }, 5), ...statuses({ b: 4 }, -1)];
  const unknown = progressOf(undefined, { atMs: 0, partitions });
  assert.equal(unknown.lag, -1);
  assert.match(progressLine('m', unknown), /lag unknown$/);
  assert.match(progressLine('m', progressOf(undefined, { atMs: 0, partitions: [] })), /\(none\)/);
});

test('a rate counts what partitions gained since they were last seen, nothing else', () => {
  const rate = (before: Record<string, number>, now: Record<string, number>): number =>
    progressOf(
      { atMs: 1000, partitions: statuses(before) },
      { atMs: 3000, partitions: statuses(now) },
    ).offsetsPerSecond;
  assert.equal(rate({ a: 10, b: 5 }, { a: 110, b: 15 }), 55);
  assert.equal(rate({ a: 10 }, { a: 20, new: 1_000_000 }), 5, 'a partition seen first');
  assert.equal(rate({ a: -1 }, { a: 1_000_000 }), 0, 'not known before');
  assert.equal(rate({ a: 100, b: 0 }, { a: 40, b: 10 }), 5, 'a cut is no negative gain');
});

test('failures name partition, cause and message', () => {
  const mirror = described([
    {
      name: 'a',
      partitions: [
        [0, 1, 1],
        [1, -1, 1, 'LOOP'],
      ],
    },
  ]);
  const progress = progressOf(undefined, { atMs: 0, partitions: partitionStatuses(mirror) });
  assert.deepEqual(progress.states, { MIRRORING: 1, FAILED: 1 });
  assert.deepEqual(progress.failures, ['a-1 LOOP: why']);
});
