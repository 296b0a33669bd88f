/**
 * What maintenance waits for, before and after a rolling restart (G18, G19).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  maintenanceGuests,
  maintenanceProgress,
  setMaintenance,
  underReplicated,
} from '../../src/guest/maintenance.ts';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { broker, config, id, topic } from '../metadata/harness.ts';
import { GUEST, MIRROR, OTHER_GUEST, SOURCE_ID, TestCluster } from './jobs-harness.ts';

const { BROKER } = ConfigResourceType;

/** Two mirrored partitions on a guest and two brokers, guests alone in sync, no lock. */
async function mirrored(): Promise<TestCluster> {
  const cluster = await new TestCluster().withMirror();
  const topicId = id(5);
  cluster.commit(...topic('t', topicId, [GUEST, 1, 2], [GUEST, 2, 3]));
  await cluster.storeOf(GUEST).writeTopic('t', {
    mirrorName: MIRROR,
    removed: false,
    membershipOffset: 5,
    topicId,
    sourceTopicId: SOURCE_ID,
    finalConfigs: [],
    targetReplicationFactor: 2,
  });
  for (const partition of [0, 1]) cluster.setIsr('t', partition, [GUEST]);
  return cluster;
}

function lock(cluster: TestCluster, on: boolean): void {
  cluster.setConfig('t', 'max.message.bytes', on ? '78' : null);
  cluster.setConfig('t', 'compression.type', on ? 'gzip' : null);
}

function waits(cluster: TestCluster, on: boolean, ids: readonly number[] = [GUEST]): string[] {
  const progress = maintenanceProgress(cluster.image, ids, on);
  return progress.waits.map(({ partition, reason }) => `${partition}: ${reason}`);
}

test('G19: on is the lock, then every live replica in sync', async () => {
  const cluster = await mirrored();
  const open = 'its topic is not locked against writers yet';
  assert.deepEqual(waits(cluster, true), [`t-0: ${open}`, `t-1: ${open}`]);
  lock(cluster, true);
  assert.deepEqual(waits(cluster, true), [
    't-0: not in sync: broker(s) 1, 2',
    't-1: not in sync: broker(s) 2, 3',
  ]);
  cluster.setIsr('t', 0, [GUEST, 1, 2]);
  cluster.setIsr('t', 1, [GUEST, 2]);
  assert.deepEqual(waits(cluster, true), ['t-1: not in sync: broker(s) 3']);
  assert.deepEqual(underReplicated(cluster.image), ['t-1']);
  cluster.fence(3, true);
  assert.deepEqual(waits(cluster, true), [], 'a broker that is down is not waited for');
  assert.equal(maintenanceProgress(cluster.image, [GUEST], true).partitions, 2);
});

test('G18: off is guests alone in sync, then no lock', async () => {
  const cluster = await mirrored();
  lock(cluster, true);
  cluster.setIsr('t', 0, [GUEST, 1]);
  assert.deepEqual(waits(cluster, false), [
    't-0: still in sync: broker(s) 1',
    't-1: the lock of its topic is not lifted yet',
  ]);
  cluster.setIsr('t', 0, [GUEST]);
  lock(cluster, false);
  assert.deepEqual(waits(cluster, false), []);
  cluster.setLeader('t', 0, 1);
  cluster.setLeader('t', 1, -1);
  assert.deepEqual(waits(cluster, false), [
    't-0: broker 1 leads it, no guest',
    't-1: it has no leader: start its guest',
  ]);
});

test('topics that are no mirrors, or have left one, are not waited for', async () => {
  const cluster = await mirrored();
  cluster.commit(...topic('native', id(6), [1, 2]));
  cluster.setIsr('native', 0, [1]);
  assert.deepEqual(underReplicated(cluster.image), ['t-0', 't-1', 'native-0']);
  const row = cluster.catalog.topic('t');
  assert.ok(row !== undefined);
  const removed = { ...row, removed: true, membershipOffset: 9 };
  await cluster.storeOf(GUEST).writeTopic('t', removed);
  assert.deepEqual(waits(cluster, true), []);
});

test('one guest may be named; its partitions alone are waited for', async () => {
  const cluster = await mirrored();
  cluster.commit(broker(OTHER_GUEST), config(BROKER, String(OTHER_GUEST), 'twinlog.guest', 'true'));
  assert.deepEqual(maintenanceGuests(cluster.image, []), { ids: [GUEST, OTHER_GUEST] });
  assert.deepEqual(maintenanceGuests(cluster.image, [GUEST]), { ids: [GUEST] });
  assert.deepEqual(maintenanceGuests(cluster.image, [1]), {
    problem: 'Not a guest: 1. The guests are 201, 202.',
  });
  cluster.setLeader('t', 1, OTHER_GUEST);
  assert.equal(waits(cluster, true).length, 1);
});

test('G22: the setting is set where it is not, and a refusal is told', async () => {
  const cluster = await mirrored();
  const sent: unknown[] = [];
  const controller = (errorCode: number) => ({
    send: async (_request: unknown, _response: unknown, value: unknown) => {
      sent.push(value);
      const answer = { errorCode, errorMessage: null, resourceName: String(GUEST) };
      return { responses: [answer] } as never;
    },
  });
  assert.equal(await setMaintenance(controller(0), cluster.image, [GUEST], true), undefined);
  const configs = [{ name: 'twinlog.guest.maintenance', value: 'true', configOperation: 0 }];
  assert.deepEqual(sent, [
    { resources: [{ resourceType: 4, resourceName: '201', configs }], validateOnly: false },
  ]);
  const refused = await setMaintenance(controller(31), cluster.image, [GUEST], true);
  assert.match(String(refused), /settings of guest 201 cannot be changed: CLUSTER_AUTHORIZATION/);
  assert.equal(await setMaintenance(controller(31), cluster.image, [GUEST], false), undefined);
  assert.equal(sent.length, 2, 'what is so already is not asked for');
});
