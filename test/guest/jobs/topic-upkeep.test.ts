/**
 * Rows kept true to topics, who runs a mirror's jobs, rows changed one at a time (G12, G23, B2).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ZERO_UUID } from '../../../src/base/uuid.ts';
import { JobOwnership, ORPHANED_AFTER_MS } from '../../../src/guest/jobs/job-ownership.ts';
import { LevelJob, NOTICE_PAUSE_MS } from '../../../src/guest/jobs/level-job.ts';
import { TopicRows } from '../../../src/guest/jobs/topic-rows.ts';
import {
  GONE_AFTER_MS,
  HALF_DONE_AFTER_MS,
  TopicUpkeep,
} from '../../../src/guest/jobs/topic-upkeep.ts';
import type { MirrorTopicRow } from '../../../src/guest/state/catalog.ts';
import { ConfigResourceType } from '../../../src/metadata/image.ts';
import { metadataRecord } from '../../../src/metadata/record-framing.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { broker, config, id, testRuntime, topic } from '../../metadata/harness.ts';
import { GUEST, MIRROR, OTHER_GUEST, SOURCE_ID, TestCluster } from '../jobs-harness.ts';

const { BROKER } = ConfigResourceType;
const ROW: MirrorTopicRow = {
  mirrorName: MIRROR,
  removed: false,
  membershipOffset: 5,
  topicId: ZERO_UUID,
  sourceTopicId: SOURCE_ID,
  finalConfigs: [],
  targetReplicationFactor: 2,
};

async function withRow(row: Partial<MirrorTopicRow>, ...replicas: number[]): Promise<TestCluster> {
  const cluster = await new TestCluster(...topic('t', id(1), replicas)).withMirror();
  await cluster.storeOf(GUEST).writeTopic('t', { ...ROW, ...row });
  cluster.trace.length = 0;
  return cluster;
}

function lock(cluster: TestCluster): void {
  cluster.setConfig('t', 'max.message.bytes', '78');
  cluster.setConfig('t', 'compression.type', 'gzip');
}

function upkeep(cluster: TestCluster): TopicUpkeep {
  const context = cluster.context();
  return new TopicUpkeep(context, new JobOwnership(context));
}

describe('G12: a half-done add', () => {
  async function passes(cluster: TestCluster): Promise<void> {
    const job = upkeep(cluster);
    await job.pass();
    cluster.runtime.clock.advance(HALF_DONE_AFTER_MS - 1);
    await job.pass();
    assert.deepEqual(cluster.trace, [], 'its own request may finish it');
    cluster.runtime.clock.advance(1);
    await job.pass();
    await job.pass();
  }

  test('is finished when the topic is there as we would have made it', async () => {
    const cluster = await withRow({}, GUEST, 1);
    await passes(cluster);
    assert.deepEqual(cluster.trace, [], 'not locked: not ours');
    lock(cluster);
    await passes(cluster);
    assert.deepEqual(cluster.trace, ['row t m with id']);
    assert.equal(cluster.catalog.topic('t')?.topicId, id(1));
  });

  test('a locked topic without a guest is not ours', async () => {
    const cluster = await withRow({}, 1, 2);
    lock(cluster);
    await passes(cluster);
    assert.deepEqual(cluster.trace, []);
  });
});

describe('B2: a topic that was deleted', () => {
  test('its row goes, so that a new topic of its name is in no mirror', async () => {
    const cluster = await withRow({ topicId: id(1) }, GUEST, 1);
    const job = upkeep(cluster);
    await job.pass();
    assert.deepEqual(cluster.trace, []);
    cluster.commit(metadataRecord('RemoveTopicRecord', { topicId: id(1) }));
    await job.pass();
    await job.pass();
    assert.deepEqual(cluster.trace, ['row t gone']);
    assert.equal(cluster.image.membership('t'), undefined);
  });

  test('a topic that never showed may only be late: its row goes after a while', async () => {
    const cluster = await withRow({ topicId: id(1) }, GUEST, 1);
    const job = upkeep(cluster);
    cluster.commit(metadataRecord('RemoveTopicRecord', { topicId: id(1) }));
    await job.pass();
    cluster.runtime.clock.advance(GONE_AFTER_MS - 1);
    await job.pass();
    assert.deepEqual(cluster.trace, []);
    cluster.runtime.clock.advance(1);
    await job.pass();
    await job.pass();
    assert.deepEqual(cluster.trace, ['row t gone']);
    assert.equal(cluster.image.membership('t'), undefined);
  });

  test('a topic that shows late keeps its row', async () => {
    const cluster = await withRow({ topicId: id(2) }, GUEST, 1);
    const job = upkeep(cluster);
    await job.pass();
    cluster.runtime.clock.advance(GONE_AFTER_MS / 2);
    cluster.commit(
      metadataRecord('RemoveTopicRecord', { topicId: id(1) }),
      ...topic('t', id(2), [GUEST]),
    );
    await job.pass();
    cluster.runtime.clock.advance(GONE_AFTER_MS);
    await job.pass();
    assert.deepEqual(cluster.trace, []);
  });
});

describe('G23: jobs that nobody runs', () => {
  async function pair(): Promise<TestCluster> {
    const cluster = await new TestCluster(
      broker(OTHER_GUEST),
      config(BROKER, `${OTHER_GUEST}`, 'twinlog.guest', 'true'),
    ).withMirror();
    return cluster;
  }

  test('are taken by the live guest with the lowest id, once the owner is gone', async () => {
    const cluster = await pair();
    const ownership = new JobOwnership(cluster.context(OTHER_GUEST));
    await ownership.claimOrphans();
    cluster.fence(GUEST, true);
    await ownership.claimOrphans();
    cluster.fence(GUEST, false);
    await ownership.claimOrphans();
    cluster.runtime.clock.advance(ORPHANED_AFTER_MS);
    cluster.fence(GUEST, true);
    await ownership.claimOrphans();
    assert.deepEqual(cluster.trace, [], 'the time runs anew');
    cluster.runtime.clock.advance(ORPHANED_AFTER_MS);
    await ownership.claimOrphans();
    await ownership.claimOrphans();
    assert.deepEqual(cluster.trace, [`row jobs m ${OTHER_GUEST}`]);
    assert.equal(ownership.isOwner(MIRROR), true);
    assert.equal(new JobOwnership(cluster.context(GUEST)).isOwner(MIRROR), false);
  });

  test('are left to the guest with the lower id while that one lives', async () => {
    const cluster = await pair();
    await cluster.storeOf(203).claimJobs(MIRROR);
    cluster.trace.length = 0;
    const higher = new JobOwnership(cluster.context(OTHER_GUEST));
    const lower = new JobOwnership(cluster.context(GUEST));
    for (const each of [higher, lower]) await each.claimOrphans();
    cluster.runtime.clock.advance(ORPHANED_AFTER_MS);
    for (const each of [higher, lower]) await each.claimOrphans();
    assert.deepEqual(cluster.trace, [`row jobs m ${GUEST}`]);
    assert.equal(lower.isFirstGuest(), true);
    assert.equal(higher.isFirstGuest(), false);
  });
});

describe('rows of topics', () => {
  test('are changed one at a time: no change undoes another', async () => {
    const cluster = await withRow({ topicId: id(1) }, GUEST, 1);
    const rows = new TopicRows(cluster.storeOf(GUEST));
    const codes = await Promise.all([
      rows.change('t', (row) => ({ ...row, removed: true, membershipOffset: 9 })),
      rows.change('t', (row) => ({ ...row, targetReplicationFactor: 0 })),
      rows.change('t', (row) => ({ ...row, finalConfigs: [{ name: 'a', value: null }] })),
      rows.change('t', () => undefined),
      rows.change('nope', (row) => row),
    ]);
    assert.deepEqual(codes, [0, 0, 0, 0, errors.RESOURCE_NOT_FOUND.code]);
    assert.equal(cluster.trace.length, 3);
    const row = cluster.catalog.topic('t');
    assert.equal(row?.removed, true);
    assert.equal(row?.targetReplicationFactor, 0);
    assert.deepEqual(row?.finalConfigs, [{ name: 'a', value: null }]);
  });
});

describe('a level-triggered job', () => {
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  test('passes once for many notices, again for later ones, and by the clock', async () => {
    const runtime = testRuntime();
    let passes = 0;
    let end = (): void => {};
    const job = new LevelJob(runtime, {
      intervalMs: 500,
      pass: () => {
        passes++;
        return new Promise<void>((resolve) => {
          end = resolve;
        });
      },
    });
    job.start();
    job.notice();
    runtime.clock.advance(NOTICE_PAUSE_MS);
    assert.equal(passes, 1);
    job.notice();
    runtime.clock.advance(10_000);
    assert.equal(passes, 1, 'not while one is under way');
    end();
    await settle();
    runtime.clock.advance(NOTICE_PAUSE_MS);
    assert.equal(passes, 2);
    end();
    await settle();
    runtime.clock.advance(499);
    assert.equal(passes, 2);
    runtime.clock.advance(1);
    assert.equal(passes, 3);
    job.close();
    end();
    await settle();
    runtime.clock.advance(10_000);
    assert.equal(passes, 3);
  });

  test('a pass that throws is repeated', async () => {
    const runtime = testRuntime();
    let passes = 0;
    const job = new LevelJob(runtime, {
      intervalMs: 500,
      pass: () => Promise.reject(new TypeError(`pass ${++passes}`)),
    });
    job.start();
    runtime.clock.advance(NOTICE_PAUSE_MS);
    await settle();
    runtime.clock.advance(500);
    await settle();
    assert.equal(passes, 2);
    job.close();
  });
});
