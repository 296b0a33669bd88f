/** Which ISR a leader asks for, how often, and what it believes while it is not sure. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import type { AlterPartitionRequest } from '../../src/protocol/messages/56-alter-partition.ts';
import { CAUGHT_UP_FETCH_AGE_MS, REFUSED_BACKOFF } from '../../src/replication/in-sync-replicas.ts';
import { ALTER_PARTITION_BACKOFF } from '../../src/replication/isr-updates.ts';
import { settle } from './fakes.ts';
import {
  batch,
  fetchParams,
  OTHER_BROKER,
  replicaPartition,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
} from './harness.ts';

const REPLICAS = [THIS_BROKER, OTHER_BROKER];
const BOTH_IN = { replicas: REPLICAS, isr: REPLICAS };
const LEADER_IN = { replicas: REPLICAS, isr: [THIS_BROKER] };

async function follow(broker: TestBroker, topic: string, fetchOffset: number): Promise<void> {
  const params = fetchParams({ replicaId: OTHER_BROKER, replicaEpoch: 102, maxWaitMs: 0 });
  await broker.replicas.fetch(params, [replicaPartition(topic, 0, fetchOffset)]);
  await settle();
}

type AskedPartition = AlterPartitionRequest['topics'][number]['partitions'][number];

function membersOf({ newIsrWithEpochs }: AskedPartition): number[] {
  return newIsrWithEpochs.map(({ brokerId }) => brokerId);
}

/** Every ISR that was asked for, of the partitions in the order of the requests. */
function asked(broker: TestBroker): (readonly number[])[] {
  return broker.alterations.flatMap(({ topics }) =>
    topics.flatMap(({ partitions }) => partitions.map(membersOf)),
  );
}

test('G18 members that may not be in are taken out at once, all in one call', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.createTopic('a', 300, BOTH_IN);
  await settle();
  assert.equal(broker.alterations.length, 1);
  assert.deepEqual(
    asked(broker),
    Array.from({ length: 300 }, () => [THIS_BROKER]),
  );
  assert.deepEqual(broker.partition('a', 299).isr, [THIS_BROKER]);
});

test('G18 an ISR of the leader alone is left alone, whatever the policy', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.createTopic('a', 1, LEADER_IN);
  await follow(broker, 'a', 0);
  await broker.clock.advance(60_000);
  assert.deepEqual(broker.alterations, []);
});

test('G18 a caught-up follower joins when the policy admits it, and leaves again', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.createTopic('a', 1, LEADER_IN);
  const partition = broker.partition('a');
  partition.append('client', batch(2), 1);
  await follow(broker, 'a', 2);
  assert.deepEqual(broker.alterations, []);
  await follow(broker, 'a', 1);
  broker.admits = () => true;
  broker.replicas.reviewIsr();
  await settle();
  assert.deepEqual(broker.alterations, [], 'below the high watermark');
  broker.admits = () => false;
  await follow(broker, 'a', 2);
  assert.deepEqual(broker.alterations, []);
  broker.admits = () => true;
  broker.replicas.reviewIsr();
  await settle();
  assert.deepEqual(partition.isr, REPLICAS, 'at once: it fetched a moment ago');
  broker.admits = () => false;
  broker.replicas.reviewIsr();
  await settle();
  assert.deepEqual(asked(broker), [REPLICAS, [THIS_BROKER]]);
  assert.deepEqual(partition.isr, [THIS_BROKER]);
});

test('G18 a follower that has not fetched lately joins with its next fetch', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.createTopic('a', 1, LEADER_IN);
  await follow(broker, 'a', 0);
  await broker.clock.advance(CAUGHT_UP_FETCH_AGE_MS + 1);
  broker.admits = () => true;
  broker.replicas.reviewIsr();
  await settle();
  assert.deepEqual(broker.alterations, []);
  await follow(broker, 'a', 0);
  assert.deepEqual(broker.partition('a').isr, REPLICAS);
});

test('G18 a policy that changes while a change is under way is looked at again', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, LEADER_IN);
  await follow(broker, 'a', 0);
  await settle();
  assert.deepEqual(broker.partition('a').isr, REPLICAS);
  broker.createTopic('b', 1, LEADER_IN);
  const params = fetchParams({ replicaId: OTHER_BROKER, replicaEpoch: 102, maxWaitMs: 0 });
  await broker.replicas.fetch(params, [replicaPartition('b', 0, 0)]);
  broker.admits = () => false;
  await settle();
  assert.deepEqual(broker.partition('b').isr, [THIS_BROKER]);
});

test('G18 a member that reassignment brings in is taken out, too', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.createTopic('a');
  broker.changePartition('a', 0, BOTH_IN);
  await settle();
  assert.deepEqual(asked(broker), [[THIS_BROKER]]);
});

test('G18 T6 a partition waits until the ISR holds no member that may not be in it', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.controllerLost = true;
  broker.createTopic('a', 1, BOTH_IN);
  await follow(broker, 'a', 0);
  const partition = broker.partition('a');
  assert.equal(partition.isrReachedLogEnd(), false);
  broker.controllerLost = false;
  await broker.clock.advance(2 * ALTER_PARTITION_BACKOFF.initialMs);
  assert.deepEqual(partition.isr, [THIS_BROKER]);
  assert.equal(partition.isrReachedLogEnd(), true);
});

test('G17 after an answer that proves nothing the high watermark waits for metadata', async (t) => {
  const unsure = [
    errors.FENCED_LEADER_EPOCH,
    errors.INVALID_UPDATE_VERSION,
    errors.INVALID_REQUEST,
    errors.NEW_LEADER_ELECTED,
    errors.UNKNOWN_TOPIC_ID,
  ];
  for (const { code } of unsure) {
    const broker = await startTestBroker(t);
    broker.createTopic('a', 1, LEADER_IN);
    const partition = broker.partition('a');
    partition.append('client', batch(2), 1);
    broker.alterationError = code;
    await follow(broker, 'a', 2);
    assert.deepEqual(partition.isr, [THIS_BROKER]);
    partition.append('client', batch(2), 1);
    assert.equal(partition.log.highWatermark, 2, `error ${code}`);
    broker.changePartition('a', 0, { isr: [THIS_BROKER] });
    assert.equal(partition.log.highWatermark, 4, `error ${code}`);
  }
});

test('G17 INELIGIBLE_REPLICA proves that nothing changed: the HW goes on', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, LEADER_IN);
  const partition = broker.partition('a');
  partition.append('client', batch(2), 1);
  broker.alterationError = errors.INELIGIBLE_REPLICA.code;
  await follow(broker, 'a', 2);
  partition.append('client', batch(2), 1);
  assert.equal(partition.log.highWatermark, 4);
});

test('G17 refusals are spaced out more and more; newer metadata ends the pause', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('a', 1, LEADER_IN);
  broker.alterationError = errors.INELIGIBLE_REPLICA.code;
  for (let i = 0; i < 600; i++) {
    await follow(broker, 'a', 0);
    await broker.clock.advance(100);
  }
  // A minute of fetches: after 0.5 s, 1 s, 2 s, ... up to the cap.
  assert.ok(broker.alterations.length <= 8, `${broker.alterations.length} requests`);
  assert.ok(broker.alterations.length >= 6, `${broker.alterations.length} requests`);
  const before = broker.alterations.length;
  broker.alterationError = 0;
  await follow(broker, 'a', 0);
  assert.equal(broker.alterations.length, before);
  broker.changePartition('a', 0, {});
  await follow(broker, 'a', 0);
  assert.equal(broker.alterations.length, before + 1);
  assert.deepEqual(broker.partition('a').isr, REPLICAS);
});

test('G17 a refused removal is asked for again without any fetch', async (t) => {
  const broker = await startTestBroker(t);
  broker.admits = () => false;
  broker.alterationError = errors.INVALID_REQUEST.code;
  broker.createTopic('a', 1, BOTH_IN);
  await settle();
  assert.equal(broker.alterations.length, 1);
  broker.alterationError = 0;
  await broker.clock.advance(REFUSED_BACKOFF.maxMs);
  assert.deepEqual(broker.partition('a').isr, [THIS_BROKER]);
});

test('G5 a controller that is away is asked ever less often, for what is wanted now', async (t) => {
  const broker = await startTestBroker(t);
  broker.controllerLost = true;
  broker.createTopic('a', 1, LEADER_IN);
  await follow(broker, 'a', 0);
  await broker.clock.advance(60_000);
  assert.ok(broker.alterations.length <= 20, `${broker.alterations.length} requests`);
  // The follower's lag meanwhile is of no concern: it never was in. The epoch is another one.
  broker.changePartition('a', 0, { leaderEpoch: 1 });
  await follow(broker, 'a', 0);
  broker.controllerLost = false;
  await broker.clock.advance(ALTER_PARTITION_BACKOFF.maxMs);
  const last = broker.alterations.at(-1)?.topics[0]?.partitions;
  assert.deepEqual(
    last?.map((each) => [each.leaderEpoch, membersOf(each)]),
    [[1, REPLICAS]],
  );
  assert.deepEqual(broker.partition('a').isr, REPLICAS);
});
