/** Y6: what the group offset job would commit, from what both sides said; and the filters. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ZERO_UUID } from '../../../src/base/uuid.ts';
import {
  clamp,
  groupFilter,
  PartitionIndex,
  planGroupOffsets,
  planText,
  wantedOffsets,
} from '../../../src/mirror/group-offsets/plan.ts';
import type {
  HeldGroup,
  MirroredPartition,
  OffsetRange,
  SourceGroup,
  SourceOffset,
} from '../../../src/mirror/group-offsets/ports.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { topicId } from '../../coordinator/harness.ts';

const HERE = topicId(1);
const THERE = topicId(9);

function mirrored(topic: string, partition: number, sourceTopicId = HERE): MirroredPartition {
  return { mirror: 'm', topic, topicId: HERE, sourceTopicId, partition };
}

function at(topic: string, partition: number, offset: number, more = {}): SourceOffset {
  const none = { topicId: ZERO_UUID, metadata: '', errorCode: 0 };
  return { topic, partition, offset, ...none, ...more };
}

function group(groupId: string, ...offsets: SourceOffset[]): SourceGroup {
  return { groupId, errorCode: 0, offsets };
}

function held(offsets: Record<string, number> = {}, hasMembers = false): HeldGroup {
  const entries = Object.entries(offsets).map(
    ([key, offset]) => [key, { offset, metadata: '' }] as const,
  );
  return { errorCode: 0, hasMembers, offsets: new Map(entries) };
}

const RANGE: OffsetRange = { logStartOffset: 10, logEndOffset: 100 };

/** The plan's text for groups whose partitions all hold {@link RANGE}. */
function lines(
  source: readonly SourceGroup[],
  here: Record<string, HeldGroup>,
  partitions: readonly MirroredPartition[],
  range: (partition: MirroredPartition) => OffsetRange | undefined = () => RANGE,
): string[] {
  const { wanted, problems } = wantedOffsets(source, new PartitionIndex(partitions));
  const plan = planGroupOffsets(wanted, new Map(Object.entries(here)), range);
  return planText({ ...plan, problems: [...problems, ...plan.problems] });
}

test('Y6: include and exclude match whole group names', () => {
  const filter = groupFilter({ groupsInclude: ['app-.*', 'one'], groupsExclude: ['app-x', 'y'] });
  const names = ['app-1', 'app-x', 'app-xx', 'one', 'one2', 'my', 'app-\n', ''];
  assert.deepEqual(names.filter(filter), ['app-1', 'app-xx', 'one', 'app-\n']);
  const all = groupFilter({ groupsInclude: ['.*'], groupsExclude: [] });
  assert.deepEqual(names.filter(all), names);
  assert.deepEqual(names.filter(groupFilter({ groupsInclude: [], groupsExclude: [] })), []);
});

test('Y6: an offset is clamped to what the log here holds', () => {
  assert.deepEqual(
    [0, 10, 57, 100, 101].map((offset) => clamp(offset, RANGE)),
    [10, 10, 57, 100, 100],
  );
  assert.equal(clamp(5, { logStartOffset: 0, logEndOffset: 0 }), 0);
});

test('Y6: only what differs is planned, offset 0 counts, none (-1) does not', () => {
  const source = [
    group('same', at('t', 0, 50)),
    group('behind', at('t', 0, 50), at('t', 1, 60)),
    group('ahead', at('t', 0, 50)),
    group('zero', at('t', 0, 0)),
    group('none', at('t', 0, -1)),
    group('beyond', at('t', 1, 5_000)),
  ];
  const here = {
    same: held({ 't-0': 50 }),
    behind: held({ 't-0': 49, 't-1': 60 }),
    ahead: held({ 't-0': 90 }),
    zero: held(),
    beyond: held({ 't-1': 12 }),
  };
  const range = ({ partition }: MirroredPartition): OffsetRange =>
    partition === 0 ? { logStartOffset: 0, logEndOffset: 100 } : RANGE;
  assert.deepEqual(lines(source, here, [mirrored('t', 0), mirrored('t', 1)], range), [
    'behind t-0: 49 -> 50',
    'ahead t-0: 90 -> 50',
    'zero t-0: none -> 0',
    'beyond t-1: 12 -> 100 (source 5000, clamped)',
  ]);
});

test('Y6: metadata is part of a committed offset', () => {
  const source = [group('g', at('t', 0, 50, { metadata: 'note' }))];
  const plan = (metadata: string) => {
    const here: HeldGroup = { ...held(), offsets: new Map([['t-0', { offset: 50, metadata }]]) };
    return lines(source, { g: here }, [mirrored('t', 0)]);
  };
  assert.deepEqual(plan('note'), []);
  assert.deepEqual(plan(''), ['g t-0: 50 -> 50']);
});

test('Y6: only partitions of the mirror that are MIRRORING take part', () => {
  const source = [group('g', at('t', 0, 50), at('t', 1, 51), at('t', 2, 52), at('other', 0, 53))];
  const range = ({ partition }: MirroredPartition) => (partition === 1 ? undefined : RANGE);
  const partitions = [mirrored('t', 0), mirrored('t', 1)];
  assert.deepEqual(lines(source, { g: held() }, partitions, range), ['g t-0: none -> 50']);
});

test('Y6 F12: where the source names topics by id another topic of that name is not meant', () => {
  const byId = (id: typeof HERE, offset: number) => at('', 0, offset, { topicId: id });
  const source = [group('old', byId(THERE, 50)), group('new', byId(topicId(3), 51))];
  const here = { old: held(), new: held() };
  assert.deepEqual(lines(source, here, [mirrored('t', 0, THERE)]), ['old t-0: none -> 50']);
});

test('Y6: a group with members here is left alone, and only shown when it differs', () => {
  const source = [group('live', at('t', 0, 50)), group('content', at('t', 0, 50))];
  const here = { live: held({ 't-0': 1 }, true), content: held({ 't-0': 50 }, true) };
  assert.deepEqual(lines(source, here, [mirrored('t', 0)]), [
    'live: left alone, it has members here',
  ]);
});

test('Y6: errors stay with their item, on either side', () => {
  const denied = errors.GROUP_AUTHORIZATION_FAILED.code;
  const moving = errors.NOT_COORDINATOR.code;
  const source = [
    { ...group('denied'), errorCode: denied },
    group('part', at('t', 0, 7, { errorCode: errors.TOPIC_AUTHORIZATION_FAILED.code })),
    group('moved', at('t', 0, 50)),
    group('fine', at('t', 0, 50)),
    group('foreign', at('x', 0, 7, { errorCode: denied })),
  ];
  const here = { moved: { ...held(), errorCode: moving }, fine: held() };
  assert.deepEqual(lines(source, here, [mirrored('t', 0)]), [
    'fine t-0: none -> 50',
    'group denied: the source answers GROUP_AUTHORIZATION_FAILED',
    'group part, t-0: the source answers TOPIC_AUTHORIZATION_FAILED',
    'group moved: the coordinator here answers NOT_COORDINATOR',
  ]);
});
