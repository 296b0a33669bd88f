/**
 * Lowering group offsets at a rescue (G18a): what is told of groups over repetitions, and that
 * trouble holds nothing up.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lowerGroups } from '../../../src/guest/rescue/rescue-groups.ts';
import { LOWER_RETRY_MS } from '../../../src/mirror/group-offsets/lowering.ts';
import type { LowerResult, PartitionHere } from '../../../src/mirror/group-offsets/ports.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { ManualClock, testRuntime } from '../../coordinator/harness.ts';
import { id } from '../../metadata/harness.ts';

const LOG = { topic: 't', topicId: id(116), partition: 1, end: 55 };

test('G18a: groups are told once, over repetitions, and others stay unknown', async () => {
  const clock = new ManualClock();
  const left = 'it has members';
  const passing = errors.COORDINATOR_LOAD_IN_PROGRESS.code;
  const answers: LowerResult[] = [
    {
      errorCode: passing,
      lowered: [
        { groupId: 'idle', from: 70 },
        { groupId: 'busy', from: 60, left },
      ],
    },
    { errorCode: 0, lowered: [{ groupId: 'busy', from: 61, left }] },
    { errorCode: errors.GROUP_AUTHORIZATION_FAILED.code, lowered: [] },
  ];
  const asked: [string, number][] = [];
  const sink = {
    lower: async ({ topic, partition }: PartitionHere, offset: number) => {
      asked.push([`${topic}-${partition}`, offset]);
      return answers.shift() ?? assert.fail('asked too often');
    },
  };
  const work = lowerGroups(testRuntime(clock), sink, [LOG]);
  await clock.advance(LOWER_RETRY_MS);
  const groups = [
    { groupId: 'idle', from: 70 },
    { groupId: 'busy', from: 61, left },
  ];
  assert.deepEqual([...(await work)], [['t-1', { groups, problem: undefined }]]);
  assert.deepEqual(asked, Array(2).fill(['t-1', 55]));
  const refused = await lowerGroups(testRuntime(clock), sink, [LOG]);
  const problem = 'group offsets of t-1 above 55: GROUP_AUTHORIZATION_FAILED';
  assert.deepEqual([...refused], [['t-1', { groups: [], problem }]]);
});
