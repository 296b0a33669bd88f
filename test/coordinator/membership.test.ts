/** Classic group membership: joins, rebalances, sessions, static members, sync and leave. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import type { SyncGroupResponse } from '../../src/protocol/messages/14-sync-group.ts';
import { Harness, subscription } from './harness.ts';

const text = (response: SyncGroupResponse): string => Buffer.from(response.assignment).toString();

test('a new dynamic member gets an id, joins with it, leads the first generation', async () => {
  const h = await Harness.loaded();
  const first = await h.join();
  assert.equal(first.errorCode, errors.MEMBER_ID_REQUIRED.code);
  assert.match(
    first.memberId,
    /^client-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  const joining = h.join({ memberId: first.memberId });
  await h.clock.advance(3_000);
  assert.deepEqual(await joining, {
    throttleTimeMs: 0,
    errorCode: 0,
    generationId: 1,
    protocolType: 'consumer',
    protocolName: 'range',
    leader: first.memberId,
    skipAssignment: false,
    memberId: first.memberId,
    members: [
      {
        memberId: first.memberId,
        groupInstanceId: null,
        metadata: subscription('orders'),
      },
    ],
  });
});

test('before version 4 a member is added at its first join', async () => {
  const h = await Harness.loaded();
  const joining = h.join({ version: 2 });
  await h.clock.advance(3_000);
  const member = await joining;
  assert.equal(member.errorCode, 0);
  assert.equal(member.leader, member.memberId);
});

test('an error before version 7 has an empty protocol name', async () => {
  const h = await Harness.loaded();
  const refused = await h.join({ version: 5, groupId: '' });
  assert.equal(refused.errorCode, errors.INVALID_GROUP_ID.code);
  assert.equal(refused.protocolName, '');
});

test('two members share the first generation; only the leader sees the members', async () => {
  const h = await Harness.loaded();
  const joins = Promise.all([
    h.joinNew({ clientId: 'a' }),
    h.joinNew({
      clientId: 'b',
      protocols: [
        { name: 'sticky', metadata: subscription('bills') },
        { name: 'range', metadata: subscription('bills') },
      ],
    }),
  ]);
  await h.clock.advance(6_000);
  const [a, b] = await joins;
  assert.equal(a.generationId, 1);
  assert.equal(b.generationId, 1);
  assert.equal(b.protocolName, 'range');
  assert.equal(b.leader, a.memberId);
  assert.deepEqual(
    a.members.map(({ memberId }) => memberId),
    [a.memberId, b.memberId],
  );
  assert.deepEqual(b.members, []);
  const syncB = h.sync(b);
  assert.equal(await h.commit(1, { ...b }), errors.REBALANCE_IN_PROGRESS.code);
  const syncA = h.sync(a, { [a.memberId]: 'first', [b.memberId]: 'second' });
  assert.equal(text(await syncA), 'first');
  assert.equal(text(await syncB), 'second');
  assert.equal((await h.describe()).groupState, 'Stable');
});

test('a member that joins during the initial delay prolongs it', async () => {
  const h = await Harness.loaded();
  const a = h.joinNew({ clientId: 'a' });
  await h.clock.advance(2_000);
  const b = h.joinNew({ clientId: 'b' });
  await h.clock.advance(1_500);
  assert.equal((await h.describe()).groupState, 'PreparingRebalance');
  await h.clock.advance(2_500);
  assert.equal((await a).generationId, 1);
  assert.equal((await b).generationId, 1);
});

test('a third join makes the others rejoin; all get the next generation', async () => {
  const h = await Harness.loaded();
  const joins = Promise.all([h.joinNew(), h.joinNew()]);
  await h.clock.advance(6_000);
  const [a, b] = await joins;
  await Promise.all([h.sync(a, { [a.memberId]: '0', [b.memberId]: '1' }), h.sync(b)]);
  const third = h.joinNew({ clientId: 'c' });
  await h.clock.advance(0);
  assert.equal(await h.heartbeat(a), errors.REBALANCE_IN_PROGRESS.code);
  assert.equal(await h.heartbeat(b), errors.REBALANCE_IN_PROGRESS.code);
  assert.equal((await h.sync(a)).errorCode, errors.REBALANCE_IN_PROGRESS.code);
  // Members may still commit for the generation that ends.
  assert.equal(await h.commit(5, { ...a }), 0);
  const rejoins = Promise.all([
    h.join({ memberId: a.memberId }),
    h.join({ memberId: b.memberId }),
    third,
  ]);
  const [a2, b2, c] = await rejoins;
  assert.deepEqual([a2.generationId, b2.generationId, c.generationId], [2, 2, 2]);
  assert.equal(a2.members.length, 3);
  assert.equal(c.leader, a.memberId);
  assert.equal((await h.sync(a)).errorCode, errors.ILLEGAL_GENERATION.code);
  assert.equal(await h.commit(6, { ...a }), errors.ILLEGAL_GENERATION.code);
});

test('who does not rejoin within the rebalance timeout is out; another leads', async () => {
  const h = await Harness.loaded({ maxSessionTimeoutMs: 10_000_000 });
  const timing = { rebalanceTimeoutMs: 20_000, sessionTimeoutMs: 100_000 };
  const joins = Promise.all([h.joinNew(timing), h.joinNew(timing)]);
  await h.clock.advance(6_000);
  const [a, b] = await joins;
  await Promise.all([h.sync(a, { [a.memberId]: '0', [b.memberId]: '1' }), h.sync(b)]);
  const third = h.joinNew(timing);
  await h.clock.advance(0);
  const rejoin = h.join({ ...timing, memberId: b.memberId });
  await h.clock.advance(19_999);
  assert.equal((await h.describe()).groupState, 'PreparingRebalance');
  await h.clock.advance(1);
  const [b2, c] = await Promise.all([rejoin, third]);
  assert.equal(b2.leader, b.memberId);
  assert.equal(c.leader, b.memberId);
  assert.equal(b2.members.length, 2);
  assert.equal(await h.heartbeat({ ...a, generationId: 2 }), errors.UNKNOWN_MEMBER_ID.code);
});

test('a member without heartbeats expires; heartbeats and commits keep it alive', async () => {
  const h = await Harness.loaded();
  const member = await h.stableMember();
  await h.clock.advance(9_000);
  assert.equal(await h.heartbeat(member), 0);
  await h.clock.advance(9_000);
  assert.equal(await h.commit(1, { ...member }), 0);
  await h.clock.advance(9_999);
  assert.equal((await h.describe()).members.length, 1);
  await h.clock.advance(1);
  const group = await h.describe();
  assert.equal(group.groupState, 'Empty');
  assert.deepEqual(group.members, []);
  assert.equal(await h.heartbeat(member), errors.UNKNOWN_MEMBER_ID.code);
});

test('a member id that was handed out but never used is forgotten', async () => {
  const h = await Harness.loaded();
  const first = await h.join();
  await h.clock.advance(10_000);
  const late = await h.join({ memberId: first.memberId });
  assert.equal(late.errorCode, errors.UNKNOWN_MEMBER_ID.code);
});

test('the leader fails before it assigns: the others are told to join again', async () => {
  const h = await Harness.loaded();
  const joins = Promise.all([h.joinNew(), h.joinNew()]);
  await h.clock.advance(6_000);
  const [leader, follower] = await joins;
  const waiting = h.sync(follower);
  await h.clock.advance(10_000);
  assert.equal((await waiting).errorCode, errors.REBALANCE_IN_PROGRESS.code);
  assert.equal(await h.heartbeat(leader), errors.UNKNOWN_MEMBER_ID.code);
  const again = await h.join({ memberId: follower.memberId });
  assert.equal(again.generationId, 2);
  assert.equal(again.leader, follower.memberId);
});

test('a member that never syncs is removed after the rebalance timeout', async () => {
  const h = await Harness.loaded();
  const timing = { rebalanceTimeoutMs: 20_000, sessionTimeoutMs: 30_000 };
  const joins = Promise.all([h.joinNew(timing), h.joinNew(timing)]);
  await h.clock.advance(6_000);
  const [a, b] = await joins;
  await h.sync(a, { [a.memberId]: '0', [b.memberId]: '1' });
  await h.clock.advance(20_000);
  assert.equal(await h.heartbeat(a), errors.REBALANCE_IN_PROGRESS.code);
  assert.equal(await h.heartbeat(b), errors.UNKNOWN_MEMBER_ID.code);
});

test('the leader rejoining starts a rebalance, an unchanged follower does not', async () => {
  const h = await Harness.loaded();
  const joins = Promise.all([h.joinNew(), h.joinNew()]);
  await h.clock.advance(6_000);
  const [a, b] = await joins;
  await Promise.all([h.sync(a, { [a.memberId]: '0', [b.memberId]: '1' }), h.sync(b)]);
  const same = await h.join({ memberId: b.memberId });
  assert.equal(same.generationId, 1);
  assert.deepEqual(same.members, []);
  assert.equal(text(await h.sync(b)), '1');
  const again = h.join({ memberId: a.memberId });
  await h.clock.advance(0);
  assert.equal(await h.heartbeat(b), errors.REBALANCE_IN_PROGRESS.code);
  await h.join({ memberId: b.memberId });
  assert.equal((await again).generationId, 2);
});

test('a static member rejoins without a rebalance; its old id is fenced', async () => {
  const h = await Harness.loaded();
  const old = await h.stableMember({ groupInstanceId: 'i-1' });
  const back = await h.join({ groupInstanceId: 'i-1' });
  assert.equal(back.errorCode, 0);
  assert.equal(back.generationId, 1);
  assert.notEqual(back.memberId, old.memberId);
  assert.match(back.memberId, /^i-1-/);
  assert.equal(back.leader, back.memberId);
  assert.equal(back.skipAssignment, true);
  assert.equal(back.members.length, 1);
  assert.equal(text(await h.sync(back, {}, 'i-1')), 'all');
  assert.equal(await h.heartbeat(old, 'i-1'), errors.FENCED_INSTANCE_ID.code);
  assert.equal(await h.heartbeat(back, 'i-1'), 0);
  const fenced = await h.join({ groupInstanceId: 'i-1', memberId: old.memberId });
  assert.equal(fenced.errorCode, errors.FENCED_INSTANCE_ID.code);
});

test('before version 9 a returning static leader sees its old id as leader', async () => {
  const h = await Harness.loaded();
  const old = await h.stableMember({ groupInstanceId: 'i-1', version: 7 });
  const back = await h.join({ groupInstanceId: 'i-1', version: 7 });
  assert.equal(back.leader, old.memberId);
  assert.deepEqual(back.members, []);
});

test('a static rejoin that cannot be stored leaves the old member in place', async () => {
  const h = await Harness.loaded();
  const old = await h.stableMember({ groupInstanceId: 'i-1' });
  h.log.failNextAppend = errors.NOT_ENOUGH_REPLICAS.code;
  const refused = await h.join({ groupInstanceId: 'i-1' });
  assert.equal(refused.errorCode, errors.COORDINATOR_NOT_AVAILABLE.code);
  assert.equal(await h.heartbeat(old, 'i-1'), 0);
  assert.equal(text(await h.sync(old, {}, 'i-1')), 'all');
});

test('a static member can be removed by its instance id alone', async () => {
  const h = await Harness.loaded();
  await h.stableMember({ groupInstanceId: 'i-1' });
  const left = await h.leave([{ groupInstanceId: 'i-1' }, { groupInstanceId: 'i-2' }]);
  assert.deepEqual(left.members, [
    { memberId: '', groupInstanceId: 'i-1', errorCode: 0 },
    { memberId: '', groupInstanceId: 'i-2', errorCode: errors.UNKNOWN_MEMBER_ID.code },
  ]);
  assert.equal((await h.describe()).groupState, 'Empty');
});

test('leaving in version 0 to 2 answers with one error code', async () => {
  const h = await Harness.loaded();
  const member = await h.stableMember();
  const unknown = await h.leave([{ memberId: 'nobody' }], 1);
  assert.equal(unknown.errorCode, errors.UNKNOWN_MEMBER_ID.code);
  assert.equal((await h.leave([member], 1)).errorCode, 0);
  assert.equal((await h.describe()).groupState, 'Empty');
});

test('an assignment that cannot be stored is not handed out; the group rebalances', async () => {
  const h = await Harness.loaded();
  const joining = h.joinNew();
  await h.clock.advance(3_000);
  const member = await joining;
  h.log.failNextAppend = errors.NOT_ENOUGH_REPLICAS.code;
  const refused = await h.sync(member, { [member.memberId]: 'all' });
  assert.equal(refused.errorCode, errors.COORDINATOR_NOT_AVAILABLE.code);
  assert.equal(await h.heartbeat(member), errors.REBALANCE_IN_PROGRESS.code);
  assert.equal((await h.join({ memberId: member.memberId })).generationId, 2);
});

test('joins are validated as Apache Kafka does', async () => {
  const h = await Harness.loaded({ maxSize: 1 });
  const code = async (options: Parameters<Harness['join']>[0]): Promise<number> =>
    (await h.join(options)).errorCode;
  assert.equal(await code({ sessionTimeoutMs: 5_999 }), errors.INVALID_SESSION_TIMEOUT.code);
  assert.equal(await code({ sessionTimeoutMs: 1_800_001 }), errors.INVALID_SESSION_TIMEOUT.code);
  assert.equal(await code({ memberId: 'nobody' }), errors.UNKNOWN_MEMBER_ID.code);
  assert.equal(await code({ protocols: [] }), errors.INCONSISTENT_GROUP_PROTOCOL.code);
  assert.equal(await code({ protocolType: '' }), errors.INCONSISTENT_GROUP_PROTOCOL.code);
  assert.equal(await code({ groupInstanceId: 'x'.repeat(250) }), errors.INVALID_REQUEST.code);
  assert.equal(await code({ groupInstanceId: 'a b' }), errors.INVALID_REQUEST.code);
  const member = await h.stableMember({ clientId: 'c'.repeat(32_767) });
  assert.equal(await code({}), errors.GROUP_MAX_SIZE_REACHED.code);
  const other = { memberId: member.memberId, protocols: [{ name: 'x', metadata: Buffer.of() }] };
  assert.equal(await code(other), errors.INCONSISTENT_GROUP_PROTOCOL.code);
  assert.equal(
    await code({ memberId: member.memberId, protocolType: 'connect' }),
    errors.INCONSISTENT_GROUP_PROTOCOL.code,
  );
});

test('members and assignments survive a restart, and expire if they do not show up', async () => {
  const h = await Harness.loaded();
  const member = await h.stableMember({ groupInstanceId: 'i-1' });
  await h.restart();
  assert.equal(await h.heartbeat(member, 'i-1'), 0);
  assert.equal(text(await h.sync(member, {}, 'i-1')), 'all');
  const group = await h.describe();
  assert.equal(group.groupState, 'Stable');
  assert.equal(group.protocolData, 'range');
  assert.deepEqual(group.members, [
    {
      memberId: member.memberId,
      groupInstanceId: 'i-1',
      clientId: 'client',
      clientHost: '/127.0.0.1',
      memberMetadata: subscription('orders'),
      memberAssignment: new TextEncoder().encode('all'),
    },
  ]);
  await h.clock.advance(10_000);
  assert.equal((await h.describe()).groupState, 'Empty');
});

test('losing leadership answers who waits with NOT_COORDINATOR and stops all timers', async () => {
  const h = await Harness.loaded();
  const joining = h.joinNew();
  await h.clock.advance(0);
  h.coordinator.onLoseLeadership(0);
  assert.equal((await joining).errorCode, errors.NOT_COORDINATOR.code);
  assert.equal(h.clock.pendingTimers(), 0);
  assert.equal((await h.join()).errorCode, errors.NOT_COORDINATOR.code);
});

test('while the log is being read only heartbeats are answered without an error', async () => {
  const h = new Harness();
  h.coordinator.onBecomeLeader(0, 1);
  const loading = errors.COORDINATOR_LOAD_IN_PROGRESS.code;
  assert.equal((await h.join()).errorCode, loading);
  assert.equal(await h.commit(1), loading);
  assert.equal(await h.heartbeat({ memberId: 'm', generationId: 1 }), 0);
  const list = await h.coordinator.listGroups({ statesFilter: [], typesFilter: [] });
  assert.equal(list.errorCode, loading);
});

test('an idle coordinator has no timers', async () => {
  const h = await Harness.loaded();
  assert.equal(h.clock.pendingTimers(), 0);
});
