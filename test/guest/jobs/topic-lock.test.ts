/**
 * Who may be in an ISR, and the write lock that goes with it (G12, G18, G19).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ZERO_UUID } from '../../../src/base/uuid.ts';
import { GuestIsrRule } from '../../../src/guest/jobs/isr-rule.ts';
import { JobOwnership } from '../../../src/guest/jobs/job-ownership.ts';
import { TopicLock } from '../../../src/guest/jobs/topic-lock.ts';
import { creationConfigs, finalConfigs } from '../../../src/guest/jobs/topic-settings.ts';
import { metadataRecord } from '../../../src/metadata/record-framing.ts';
import { ApiKey } from '../../../src/protocol/api-keys.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { id, topic } from '../../metadata/harness.ts';
import {
  GUEST,
  killPoints,
  MIRROR,
  OTHER_GUEST,
  SOURCE_ID,
  TestCluster,
  untilKilled,
} from '../jobs-harness.ts';

const T = id(1);
const COPIED = new Map([['max.message.bytes', '5000']]);
const UNLOCK = 'configs t max.message.bytes=5000 -compression.type';
const LOCK = 'configs t max.message.bytes=78 compression.type=gzip';

/** A member topic as CreateTopics left it: locked, everyone in sync. */
async function member(topicId = T): Promise<TestCluster> {
  const cluster = await new TestCluster(
    ...topic('t', T, [GUEST, 1, 2], [GUEST, 2, 3]),
  ).withMirror();
  const final = finalConfigs(cluster.image, COPIED);
  for (const [name, value] of creationConfigs(final)) cluster.setConfig('t', name, value);
  await cluster.storeOf(GUEST).writeTopic('t', {
    mirrorName: MIRROR,
    removed: false,
    membershipOffset: 5,
    topicId,
    sourceTopicId: SOURCE_ID,
    finalConfigs: final,
    targetReplicationFactor: 2,
  });
  cluster.trace.length = 0;
  return cluster;
}

function guestsOnly(cluster: TestCluster): void {
  for (const partition of [0, 1]) cluster.setIsr('t', partition, [GUEST]);
}

/** An administrator moves partition 0 from broker 1 to broker 3. */
function startMove(cluster: TestCluster): void {
  cluster.commit(
    metadataRecord('PartitionChangeRecord', {
      topicId: T,
      partitionId: 0,
      replicas: [GUEST, 3, 2, 1],
      addingReplicas: [3],
      removingReplicas: [1],
    }),
  );
}

function lockOf(cluster: TestCluster, inMaintenance = false): TopicLock {
  const context = cluster.context();
  const ownership = new JobOwnership(context);
  return new TopicLock({ context, ownership, inMaintenance: () => inMaintenance });
}

function ruleOf(cluster: TestCluster, inMaintenance = false): GuestIsrRule {
  return new GuestIsrRule({ image: () => cluster.image, inMaintenance: () => inMaintenance });
}

describe('G18: who may be in the ISR', () => {
  const allowed = (rule: GuestIsrRule): number[] =>
    [GUEST, 1, 2, 3].filter((each) => rule.mayJoin(T, 0, each));

  test('of a mirrored topic: guests, locked or not', async () => {
    const cluster = await member();
    const rule = ruleOf(cluster);
    assert.deepEqual(allowed(rule), [GUEST]);
    guestsOnly(cluster);
    await lockOf(cluster).pass();
    assert.deepEqual(allowed(rule), [GUEST]);
  });

  test('of what is no mirror topic: everyone', async () => {
    const cluster = await member();
    cluster.commit(...topic('native', id(2), [GUEST, 1]));
    assert.equal(ruleOf(cluster).mayJoin(id(2), 0, 1), true);
    assert.equal(ruleOf(cluster).mayJoin(id(99), 0, 1), false);
  });

  test("the targets of an administrator's reassignment, under the lock only", async () => {
    const cluster = await member();
    guestsOnly(cluster);
    await lockOf(cluster).pass();
    const rule = ruleOf(cluster);
    startMove(cluster);
    assert.deepEqual(allowed(rule), [GUEST]);
    await lockOf(cluster).pass();
    assert.deepEqual(allowed(rule), [GUEST, 2, 3]);
    assert.equal(rule.mayJoin(T, 1, 2), false, 'not of partitions that do not move');
    cluster.setIsr('t', 0, [GUEST, 3, 2]);
    assert.deepEqual(cluster.partition('t', 0).addingReplicas, []);
    assert.deepEqual(allowed(rule), [GUEST]);
  });

  test('G19: everyone in maintenance, under the lock only', async () => {
    const cluster = await member();
    guestsOnly(cluster);
    await lockOf(cluster).pass();
    const rule = ruleOf(cluster, true);
    assert.deepEqual(allowed(rule), [GUEST]);
    await lockOf(cluster, true).pass();
    assert.deepEqual(allowed(rule), [GUEST, 1, 2, 3]);
  });

  test('G24: of a removed topic, those of partitions that are handed over', async () => {
    const cluster = await member();
    const row = cluster.catalog.topic('t');
    assert.ok(row !== undefined);
    const removed = { ...row, removed: true, membershipOffset: 9 };
    await cluster.storeOf(GUEST).writeTopic('t', removed);
    const rule = ruleOf(cluster);
    assert.deepEqual(allowed(rule), [GUEST]);
    assert.equal(rule.handOver(new Map([[`${T}:0`, 9]])), true);
    assert.equal(rule.handOver(new Map([[`${T}:0`, 9]])), false);
    assert.deepEqual(allowed(rule), [GUEST, 1, 2, 3]);
    assert.equal(rule.mayJoin(T, 1, 2), false);
    await cluster.storeOf(GUEST).writeTopic('t', { ...row, membershipOffset: 10 });
    assert.deepEqual(allowed(rule), [GUEST], 'a member again');
    rule.handOver(new Map([[`${T}:0`, 10]]));
    assert.deepEqual(allowed(rule), [GUEST, 1, 2, 3], 'Y5: its source is gone');
  });
});

describe('G12: the lock', () => {
  test('is lifted once every ISR consists of guests, and only then', async () => {
    const cluster = await member();
    const lock = lockOf(cluster);
    await lock.pass();
    cluster.setIsr('t', 0, [GUEST]);
    await lock.pass();
    assert.deepEqual(cluster.trace, []);
    cluster.setIsr('t', 1, [GUEST]);
    await lock.pass();
    await lock.pass();
    assert.deepEqual(cluster.trace, [UNLOCK]);
    assert.deepEqual(cluster.overrides('t'), {
      'max.message.bytes': '5000',
      'min.insync.replicas': '1',
      'unclean.leader.election.enable': 'false',
    });
  });

  test('stays while the row has no id: it is what a half-done add is known by', async () => {
    const cluster = await member(ZERO_UUID);
    guestsOnly(cluster);
    await lockOf(cluster).pass();
    assert.deepEqual(cluster.trace, []);
  });

  test('is none of the business of a guest that does not run the mirror', async () => {
    const cluster = await member();
    guestsOnly(cluster);
    await cluster.storeOf(OTHER_GUEST).claimJobs(MIRROR);
    cluster.trace.length = 0;
    await lockOf(cluster).pass();
    assert.deepEqual(cluster.trace, []);
  });

  test('is set for a reassignment and lifted after it, as an administrator had it', async () => {
    const cluster = await member();
    const lock = lockOf(cluster);
    guestsOnly(cluster);
    await lock.pass();
    cluster.setConfig('t', 'max.message.bytes', '6000');
    cluster.setConfig('t', 'compression.type', 'zstd');
    startMove(cluster);
    await lock.pass();
    assert.deepEqual(cluster.trace, [UNLOCK, 'row t m with id', LOCK]);
    cluster.setIsr('t', 0, [GUEST, 3, 2]);
    await lock.pass();
    assert.equal(cluster.trace.length, 3, 'the followers are still in sync');
    cluster.setIsr('t', 0, [GUEST]);
    await lock.pass();
    assert.equal(cluster.trace[3], 'configs t max.message.bytes=6000 compression.type=zstd');
  });

  test('killed anywhere, what the lock replaced is not lost', async () => {
    for (const point of killPoints(2)) {
      const cluster = await member();
      guestsOnly(cluster);
      await lockOf(cluster).pass();
      cluster.setConfig('t', 'max.message.bytes', '6000');
      startMove(cluster);
      cluster.trace.length = 0;
      cluster.restart(point);
      assert.equal(await untilKilled(() => lockOf(cluster).pass()), true);
      cluster.restart();
      await lockOf(cluster).pass();
      assert.deepEqual(cluster.trace, ['row t m with id', LOCK], `${point.when} ${point.effects}`);
      cluster.setIsr('t', 0, [GUEST, 3, 2]);
      cluster.setIsr('t', 0, [GUEST]);
      await lockOf(cluster).pass();
      assert.equal(cluster.overrides('t')['max.message.bytes'], '6000');
      assert.equal('compression.type' in cluster.overrides('t'), false);
    }
  });

  test('a row that cannot be written keeps the lock off; refusals are shown', async () => {
    const cluster = await member();
    guestsOnly(cluster);
    await lockOf(cluster).pass();
    cluster.setConfig('t', 'max.message.bytes', '6000');
    startMove(cluster);
    cluster.trace.length = 0;
    cluster.failNextWrite = errors.COORDINATOR_NOT_AVAILABLE.code;
    const lock = lockOf(cluster);
    await lock.pass();
    assert.deepEqual(cluster.trace, []);
    assert.match(lock.problems.get('t') ?? '', /cannot be recorded/);
    cluster.failures.set(ApiKey.IncrementalAlterConfigs, errors.POLICY_VIOLATION.code);
    await lock.pass();
    assert.match(lock.problems.get('t') ?? '', /as told/);
    await lock.pass();
    assert.equal(lock.problems.size, 0);
    assert.equal(cluster.trace.at(-1), LOCK);
  });
});
