/**
 * A metadata.version beyond what a guest supports (G3): the check says so before, the controller
 * refuses the upgrade while the guest is registered, and takes it when the guest has left; then
 * that guest cannot come back, and is told why. The guest is an older one (`old-guest.ts`), since
 * no Apache Kafka has a level above what this one supports.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { processRuntime } from '../../src/cli/broker-process.ts';
import { controllers } from '../../src/cli/guest-cluster.ts';
import type { Check } from '../../src/guest/check/check.ts';
import { checkCluster } from '../../src/guest/check/check-cluster.ts';
import { ANONYMOUS } from '../../src/guest/check/check-rights.ts';
import { featuresUpTo } from '../metadata/features-up-to.ts';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { compareSequences } from './compare.ts';
import { GUEST_ID, guestChecks, guestCommand, startGuest } from './guest.ts';
import { memberIds } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitProgress, awaitState } from './mirror-watch.ts';
import type { RunResult } from './processes.ts';
import { runTool } from './tools.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip =
  process.env.TWINLOG_TEST === 'full'
    ? await interopSkipReason()
    : 'part of npm run test:full: it needs Apache Kafka 4.4';

/** What the old guest supports at most, where the cluster begins; and the newest of 4.4. */
const [OLD_LEVEL, NEW_LEVEL] = [29, 33];
const FEATURE = 'feature metadata.version';
const [MIRROR, TOPIC] = ['dc1', 'orders'];
const PROGRAM = join(import.meta.dirname, 'old-guest.ts');

describe('G3: an upgrade beyond what a guest supports', { skip }, () => {
  let source: string;
  let cluster: KafkaCluster;
  let guest: TwinlogBroker;
  let newer: TwinlogBroker;

  before(async () => {
    await ensureAppCds();
    source = (await sourceCluster()).bootstrap;
    const features = { 'metadata.version': OLD_LEVEL };
    cluster = await startKafka({ name: 'beyond', brokers: 2, version: '4.4.0', features });
  });

  after(async () => {
    await guest?.destroy();
    await newer?.destroy();
    await cluster?.destroy();
  });

  /** What the check of the older twinlog says. */
  async function oldChecks(): Promise<Map<string, Check>> {
    const checks = new Map<string, Check>();
    await checkCluster(processRuntime('silent'), {
      bootstrapControllers: controllers(cluster.controllerBootstrap),
      nodeId: GUEST_ID,
      listener: 'PLAINTEXT',
      principal: ANONYMOUS,
      features: featuresUpTo(OLD_LEVEL),
      onCheck: (check) => checks.set(check.name, check),
    });
    return checks;
  }

  function upgrade(level: number): Promise<RunResult> {
    const feature = ['--feature', `metadata.version=${level}`];
    return runTool('features', ['--bootstrap-server', cluster.bootstrap, 'upgrade', ...feature]);
  }

  /** The controller names who is in the way, and changes nothing. */
  async function assertRefused(level: number): Promise<void> {
    const { code, stdout, stderr } = await upgrade(level);
    assert.equal(code, 1, stdout + stderr);
    assert.match(stdout + stderr, new RegExp(`Broker ${GUEST_ID} only supports versions 7-29`));
    const { found = '' } = (await guestChecks(cluster)).get(FEATURE) ?? {};
    assert.match(found, new RegExp(`^its level is ${OLD_LEVEL};`));
  }

  /** One more record at the source is read at the guest, behind all others. */
  async function assertMirrors(records: number): Promise<void> {
    const java = await javaClient();
    assert.equal((await java.tryProduce(source, TOPIC)).offset, records - 1);
    await awaitProgress(source, guest, TOPIC);
    const expected = await java.readAll(source, TOPIC, 'read_committed');
    assert.equal(expected.length, records);
    const read = await java.readAll(guest.bootstrap, TOPIC, 'read_committed');
    assert.deepEqual(compareSequences(expected, read), []);
  }

  test('the check names the levels that will be refused, and what to do', async () => {
    const { status, found, fix = '' } = (await oldChecks()).get(FEATURE) ?? {};
    assert.equal(status, 'warning');
    assert.equal(found, 'its level is 29; a guest supports 7–29, the controllers 7–33');
    assert.match(fix, /the controller refuses to upgrade to 30–33: before such an upgrade use a /);
    assert.match(fix, /let them leave \(twinlog guest leave\)\. Upgrades to 29 or less go on/);
  });

  test('the controller refuses it while the guest mirrors, which goes on', async () => {
    guest = await startGuest({ name: 'old-guest', cluster, program: PROGRAM });
    await (await javaClient()).createTopic(source, TOPIC, 1);
    await guest.mirrors('create', MIRROR, '--source', source);
    await guest.mirrors('add', MIRROR, TOPIC);
    await awaitState(guest, MIRROR, TOPIC, 'MIRRORING');
    await assertMirrors(1);
    const {
      status,
      found,
      fix = '',
    } = (await guestChecks(cluster)).get(`features of guest ${GUEST_ID}`) ?? {};
    assert.equal(status, 'warning');
    assert.equal(found, 'it supports only metadata.version 7–29');
    assert.match(fix, /refuses to upgrade metadata\.version to 30–33: before such an upgrade/);
    await assertRefused(NEW_LEVEL);
    await assertRefused(OLD_LEVEL + 1);
    assert.deepEqual(await memberIds(cluster), [1, 2, GUEST_ID]);
    await assertMirrors(2);
  });

  test('one that has stopped is in the way until it leaves', async () => {
    await guest.mirrors('remove', MIRROR, TOPIC);
    await guest.stop();
    await assertRefused(NEW_LEVEL);
    await guestCommand(cluster, 'leave', '--node-id', String(GUEST_ID));
    const { code, stdout, stderr } = await upgrade(NEW_LEVEL);
    assert.equal(code, 0, stdout + stderr);
    const { status, found } = (await guestChecks(cluster)).get(FEATURE) ?? {};
    assert.equal(status, 'ok');
    assert.equal(found, 'its level is 33; a guest supports 7–33, the controllers 7–33');
  });

  test('then the guest cannot join, and check and guest say why', async () => {
    const checks = await oldChecks();
    const { status, found, fix } = checks.get(FEATURE) ?? {};
    assert.equal(status, 'problem');
    assert.equal(found, 'its level is 33; a guest supports 7–29, the controllers 7–33');
    assert.match(String(fix), /use a twinlog that supports level 33 of metadata\.version/);
    assert.ok(!checks.has('brokers'), 'metadata of that level was read');
    guest.launch();
    assert.equal((await guest.exited()).code, 1);
    assert.equal(
      readFileSync(guest.log, 'utf8').trimEnd().split('\n').at(-1),
      'twinlog: The broker cannot start: metadata.version of the cluster is 33, and this twinlog ' +
        'supports 7 to 29: use a twinlog that supports this level (twinlog guest check looks at ' +
        'every feature).',
    );
    assert.deepEqual(await memberIds(cluster), [1, 2]);
    newer = await startGuest({ name: 'newer-guest', cluster });
    assert.deepEqual(await memberIds(cluster), [1, 2, GUEST_ID]);
  });
});
