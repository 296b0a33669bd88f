/** Committed offsets: commits, reads, deletion, expiry, and that a restart changes nothing. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { javaHashCode } from '../../src/coordinator/group-coordinator.ts';
import { decodeGroupRecord } from '../../src/coordinator/group-records.ts';
import { errors } from '../../src/protocol/errors.ts';
import { OffsetFetchResponse } from '../../src/protocol/messages/09-offset-fetch.ts';
import { ListGroupsResponse } from '../../src/protocol/messages/16-list-groups.ts';
import { propertyRuns } from '../property-runs.ts';
import { Harness, onWire, topicId } from './harness.ts';

const DAY_MS = 24 * 60 * 60_000;

test('a group belongs to the partition that Java String.hashCode says', () => {
  assert.equal(javaHashCode(''), 0);
  assert.equal(javaHashCode('hello'), 99162322);
  assert.equal(javaHashCode('polygenelubricants'), -2147483648);
  const h = new Harness();
  assert.equal(h.coordinator.partitionFor('polygenelubricants'), 0);
});

test('a commit without a member creates a simple group, readable after a restart', async () => {
  const h = await Harness.loaded();
  assert.equal(await h.commit(42, { leaderEpoch: 3, metadata: 'note' }), 0);
  await h.restart();
  const response = await h.coordinator.fetchOffsets(
    {
      groupId: 'g',
      topics: [{ name: 'orders', partitionIndexes: [0, 1] }],
      groups: [],
      requireStable: false,
    },
    7,
  );
  assert.deepEqual(onWire(OffsetFetchResponse, 7, response), {
    throttleTimeMs: 0,
    topics: [
      {
        name: 'orders',
        partitions: [
          {
            partitionIndex: 0,
            committedOffset: 42,
            committedLeaderEpoch: 3,
            metadata: 'note',
            errorCode: 0,
          },
          {
            partitionIndex: 1,
            committedOffset: -1,
            committedLeaderEpoch: -1,
            metadata: '',
            errorCode: 0,
          },
        ],
      },
    ],
    errorCode: 0,
    groups: [],
  });
  const list = await h.coordinator.listGroups({ statesFilter: [], typesFilter: [] });
  assert.deepEqual(onWire(ListGroupsResponse, 5, list).groups, [
    { groupId: 'g', protocolType: '', groupState: 'Empty', groupType: 'classic' },
  ]);
});

test('version 10 commits and fetches by topic id', async () => {
  const h = await Harness.loaded();
  assert.equal(await h.commit(7, { version: 10, topic: '', topicId: topicId(2) }), 0);
  const unknown = await h.commit(7, { version: 10, topic: '', topicId: topicId(9) });
  assert.equal(unknown, errors.UNKNOWN_TOPIC_ID.code);
  const fetch = async (topics: { topicId: ReturnType<typeof topicId> }[] | null) => {
    const asked = topics?.map((topic) => ({ ...topic, name: '', partitionIndexes: [0] })) ?? null;
    const response = await h.coordinator.fetchOffsets(
      {
        groupId: '',
        topics: null,
        groups: [{ groupId: 'g', memberId: null, memberEpoch: -1, topics: asked }],
        requireStable: false,
      },
      10,
    );
    const [group] = onWire(OffsetFetchResponse, 10, response).groups;
    return group?.topics.map((topic) => {
      const [partition] = topic.partitions;
      return [topic.topicId, partition?.committedOffset, partition?.errorCode];
    });
  };
  assert.deepEqual(await fetch([{ topicId: topicId(2) }, { topicId: topicId(9) }]), [
    [topicId(2), 7, 0],
    [topicId(9), -1, errors.UNKNOWN_TOPIC_ID.code],
  ]);
  assert.deepEqual(await fetch(null), [[topicId(2), 7, 0]]);
  assert.deepEqual(await h.offsets(), { 'bills-0': 7 });
});

test('an offset of a deleted and recreated topic is not answered', async () => {
  const h = await Harness.loaded();
  await h.commit(7);
  h.topics.add('orders', topicId(3));
  assert.deepEqual(await h.offsets(), {});
  await h.commit(1);
  assert.deepEqual(await h.offsets(), { 'orders-0': 1 });
});

test('commits are validated per group and per partition', async () => {
  const h = await Harness.loaded();
  const unknownTopic = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  assert.equal(await h.commit(1, { topic: 'nothing' }), unknownTopic);
  assert.equal(await h.commit(1, { partition: 4 }), unknownTopic);
  const tooLarge = await h.commit(1, { metadata: 'x'.repeat(4097) });
  assert.equal(tooLarge, errors.OFFSET_METADATA_TOO_LARGE.code);
  assert.equal(await h.commit(1, { generationId: 1 }), errors.GROUP_ID_NOT_FOUND.code);
  const old = await h.commit(1, { generationId: 1, version: 8 });
  assert.equal(old, errors.ILLEGAL_GENERATION.code);
  assert.deepEqual(await h.offsets(), {});
  assert.equal(h.log.records(0).length, 0);
});

test('while a group has members only they commit, in their generation', async () => {
  const h = await Harness.loaded();
  const member = await h.stableMember();
  assert.equal(await h.commit(1), errors.UNKNOWN_MEMBER_ID.code);
  assert.equal(await h.commit(1, { ...member, memberId: 'x' }), errors.UNKNOWN_MEMBER_ID.code);
  const stale = { ...member, generationId: 0 };
  assert.equal(await h.commit(1, stale), errors.ILLEGAL_GENERATION.code);
  assert.deepEqual(await h.offsets(), {});
  assert.equal(await h.commit(2, { ...member }), 0);
  assert.deepEqual(await h.offsets(), { 'orders-0': 2 });
  await h.leave([member]);
  assert.equal(await h.commit(3), 0);
  assert.deepEqual(await h.offsets(), { 'orders-0': 3 });
});

test('commit and fetch wait for the commit of the record; a lost one is not answered', async () => {
  const h = await Harness.loaded();
  await h.commit(1);
  h.log.hold();
  const done: string[] = [];
  const commit = h.commit(2).then((code) => done.push(`commit ${code}`));
  await h.clock.advance(0);
  const fetch = h.offsets().then((offsets) => done.push(`fetch ${offsets['orders-0']}`));
  await h.clock.advance(0);
  assert.deepEqual(done, []);
  h.log.release();
  await Promise.all([commit, fetch]);
  assert.deepEqual(done, ['commit 0', 'fetch 2']);

  h.log.hold();
  const lost = h.commit(3);
  await h.clock.advance(0);
  h.log.reject(0, 2);
  assert.equal(await lost, errors.NOT_COORDINATOR.code);
  await h.clock.advance(0);
  await h.clock.advance(0);
  assert.deepEqual(await h.offsets(), { 'orders-0': 2 });
});

test('a commit that takes longer than offsets.commit.timeout.ms is given up', async () => {
  const h = await Harness.loaded();
  h.log.hold();
  const commit = h.commit(1);
  await h.clock.advance(4_999);
  await h.clock.advance(1);
  assert.equal(await commit, errors.COORDINATOR_NOT_AVAILABLE.code);
});

test('a refused append changes nothing; a fenced one drops the shard', async () => {
  const h = await Harness.loaded();
  h.log.failNextAppend = errors.NOT_ENOUGH_REPLICAS.code;
  assert.equal(await h.commit(1), errors.COORDINATOR_NOT_AVAILABLE.code);
  assert.deepEqual(await h.offsets(), {});
  h.log.failNextAppend = errors.NOT_LEADER_OR_FOLLOWER.code;
  assert.equal(await h.commit(1), errors.NOT_COORDINATOR.code);
  assert.equal(await h.commit(1), errors.NOT_COORDINATOR.code);
  await h.lead();
  assert.equal(await h.commit(1), 0);
  assert.equal(h.log.records(0).at(-1)?.leaderEpoch, 2);
});

test('a failed load is tried again', async () => {
  const h = new Harness();
  h.log.failLoads = true;
  await h.lead();
  assert.equal(await h.commit(1), errors.COORDINATOR_LOAD_IN_PROGRESS.code);
  h.log.failLoads = false;
  await h.clock.advance(1_000);
  await h.clock.advance(0);
  await h.clock.advance(0);
  assert.equal(await h.commit(1), 0);
});

test('an older leader epoch neither starts nor stops a shard', async () => {
  const h = await Harness.loaded();
  await h.lead();
  h.coordinator.onBecomeLeader(0, 1);
  h.coordinator.onLoseLeadership(0, 1);
  assert.equal(await h.commit(1), 0);
  assert.equal(h.log.records(0)[0]?.leaderEpoch, 2);
});

test('offsets of a group without members expire, and the group with them', async () => {
  const h = await Harness.loaded();
  await h.commit(1);
  await h.clock.advance(6 * DAY_MS);
  await h.commit(2, { partition: 1 });
  await h.clock.advance(DAY_MS + 600_000);
  assert.deepEqual(await h.offsets(), { 'orders-1': 2 });
  await h.clock.advance(6 * DAY_MS + 600_000);
  assert.deepEqual(await h.offsets(), {});
  assert.equal((await h.describe()).errorCode, errors.GROUP_ID_NOT_FOUND.code);
  assert.equal((await h.describe()).errorMessage, 'Group g not found.');
  const tombstones = h.log.records(0).filter(({ value }) => value === null);
  assert.deepEqual(
    tombstones.map(({ key }) => decodeGroupRecord(key, null).type),
    ['offset', 'offset', 'group'],
  );
  await h.clock.advance(600_000);
  assert.equal(h.clock.pendingTimers(), 0);
});

test('an offset with its own retention expires by it', async () => {
  const h = await Harness.loaded();
  assert.equal(await h.commit(1, { retentionTimeMs: DAY_MS, version: 4 }), 0);
  await h.restart();
  await h.clock.advance(DAY_MS - 1);
  assert.deepEqual(await h.offsets(), { 'orders-0': 1 });
  await h.clock.advance(600_001);
  assert.deepEqual(await h.offsets(), {});
});

test('offsets of a subscribed topic do not expire while the group has members', async () => {
  const h = await Harness.loaded({ maxSessionTimeoutMs: 40 * DAY_MS });
  const member = await h.stableMember({ sessionTimeoutMs: 20 * DAY_MS });
  await h.commit(1, { ...member });
  await h.commit(1, { ...member, topic: 'bills' });
  await h.clock.advance(8 * DAY_MS);
  assert.deepEqual(await h.offsets(), { 'orders-0': 1 });
});

test('deleting groups removes offsets and members of none but empty groups', async () => {
  const h = await Harness.loaded();
  await h.stableMember();
  await h.commit(1, { groupId: 'simple' });
  const answer = await h.coordinator.deleteGroups({ groupsNames: ['g', 'simple', 'nothing'] });
  assert.deepEqual(answer.results, [
    { groupId: 'g', errorCode: errors.NON_EMPTY_GROUP.code },
    { groupId: 'simple', errorCode: 0 },
    { groupId: 'nothing', errorCode: errors.GROUP_ID_NOT_FOUND.code },
  ]);
  await h.restart();
  assert.deepEqual(await h.offsets('simple'), {});
  const list = await h.coordinator.listGroups({ statesFilter: ['stable'], typesFilter: [] });
  assert.deepEqual(
    list.groups.map(({ groupId }) => groupId),
    ['g'],
  );
  const other = await h.coordinator.listGroups({ statesFilter: [], typesFilter: ['consumer'] });
  assert.deepEqual(other.groups, []);
});

test('offsets of topics nobody subscribes to can be deleted', async () => {
  const h = await Harness.loaded();
  const member = await h.stableMember();
  await h.commit(1, { ...member });
  await h.commit(2, { ...member, topic: 'bills' });
  const answer = await h.coordinator.offsetDelete({
    groupId: 'g',
    topics: [
      { name: 'orders', partitions: [{ partitionIndex: 0 }] },
      { name: 'bills', partitions: [{ partitionIndex: 0 }, { partitionIndex: 9 }] },
    ],
  });
  assert.deepEqual(answer.topics, [
    {
      name: 'orders',
      partitions: [{ partitionIndex: 0, errorCode: errors.GROUP_SUBSCRIBED_TO_TOPIC.code }],
    },
    {
      name: 'bills',
      partitions: [
        { partitionIndex: 0, errorCode: 0 },
        { partitionIndex: 9, errorCode: errors.UNKNOWN_TOPIC_OR_PARTITION.code },
      ],
    },
  ]);
  assert.deepEqual(await h.offsets(), { 'orders-0': 1 });
});

test('offsets of deleted topics are removed from every group', async () => {
  const h = await Harness.loaded();
  for (const groupId of ['a', 'b']) {
    await h.commit(1, { groupId });
    await h.commit(1, { groupId, topic: 'bills' });
  }
  h.topics.delete('orders');
  await h.coordinator.onTopicsDeleted(['orders']);
  await h.restart();
  assert.deepEqual(await h.offsets('a'), { 'bills-0': 1 });
  assert.deepEqual(await h.offsets('b'), { 'bills-0': 1 });
});

test('a record of a group type not served here is passed over', async () => {
  const h = new Harness();
  h.log.records(0).push({ key: Buffer.from([0, 3, 1]), value: Buffer.of(0, 0), leaderEpoch: 0 });
  await h.lead();
  assert.equal(await h.commit(1), 0);
});

test('whatever was answered as committed is what is fetched, also after restarts', async () => {
  const groupId = fc.constantFrom('a', 'b', 'c');
  const topic = fc.constantFrom('orders', 'bills');
  const operation = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('commit' as const),
        groupId,
        topic,
        partition: fc.nat({ max: 4 }),
        offset: fc.nat(),
        refused: fc.boolean(),
      }),
    },
    fc.record({ kind: fc.constant('delete' as const), groupId }),
    fc.record({ kind: fc.constant('deleteTopic' as const), topic }),
    fc.record({ kind: fc.constant('restart' as const) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 40 }), async (operations) => {
      const h = await Harness.loaded();
      const model = new Map<string, Record<string, number>>();
      for (const op of operations) {
        if (op.kind === 'commit') {
          if (op.refused) h.log.failNextAppend = errors.NOT_ENOUGH_REPLICAS.code;
          const code = await h.commit(op.offset, op);
          h.log.failNextAppend = undefined;
          if (code !== 0) continue;
          const offsets = model.get(op.groupId) ?? {};
          offsets[`${op.topic}-${op.partition}`] = op.offset;
          model.set(op.groupId, offsets);
        } else if (op.kind === 'delete') {
          await h.coordinator.deleteGroups({ groupsNames: [op.groupId] });
          model.delete(op.groupId);
        } else if (op.kind === 'deleteTopic') {
          await h.coordinator.onTopicsDeleted([op.topic]);
          for (const offsets of model.values()) {
            for (const key of Object.keys(offsets)) {
              if (key.startsWith(`${op.topic}-`)) delete offsets[key];
            }
          }
        } else {
          await h.restart();
        }
      }
      for (const id of ['a', 'b', 'c']) assert.deepEqual(await h.offsets(id), model.get(id) ?? {});
      await h.restart();
      for (const id of ['a', 'b', 'c']) assert.deepEqual(await h.offsets(id), model.get(id) ?? {});
    }),
    propertyRuns(60),
  );
});

test('the topic id of a commit by name is stored with it', async () => {
  const h = await Harness.loaded();
  await h.commit(1, { topicId: ZERO_UUID });
  const [stored] = h.log.records(0);
  assert(stored !== undefined);
  const record = decodeGroupRecord(stored.key, stored.value);
  assert(record.type === 'offset');
  assert.equal(record.value?.topicId, topicId(1));
});
