/**
 * A guest is a harmless member (G8, G9): clients of its cluster, even those whose only address is
 * the guest's, work as if it were not there, and what the cluster places on it leaves it again.
 *
 * Tests build on each other: cluster and guest live through all of them.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { placement } from './guest-watch.ts';
import { JavaClient, type ProduceRecord } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { runTool, type Tool, tool } from './tools.ts';
import type { TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
/** Of topics that users make; some are placed on the guest where there are no cordons. */
const PARTITIONS = 60;
const INTERNAL_PARTITIONS = 9;
const LIMIT_MS = 20_000;

let cluster: KafkaCluster;
let guest: TwinlogBroker;
let java: JavaClient;
/** Where all clients of this file begin. */
let bootstrap: string;

before(
  async () => {
    if (skip !== false) return;
    const counts = {
      'offsets.topic.num.partitions': String(INTERNAL_PARTITIONS),
      'transaction.state.log.num.partitions': String(INTERNAL_PARTITIONS),
    };
    cluster = await startHost({ name: 'guest-clients', brokers: 2, properties: counts });
    guest = await startGuest({ name: 'guest-clients-guest', cluster });
    java = await JavaClient.start();
    bootstrap = guest.bootstrap;
  },
  { timeout: 60_000 },
);

after(async () => {
  await java?.close();
  await guest?.destroy();
  await cluster?.destroy();
});

/** Whether no partition of the topic has the guest, and each has so many replicas, all in sync. */
async function isSettled(topic: string, replicas: number): Promise<boolean> {
  const partitions = await placement(cluster, topic);
  return partitions.every(
    (each) =>
      !each.replicas.includes(GUEST_ID) &&
      each.replicas.length === replicas &&
      each.isr.length === replicas,
  );
}

async function awaitSettled(topic: string, replicas: number): Promise<void> {
  const deadline = Date.now() + LIMIT_MS;
  while (!(await isSettled(topic, replicas))) {
    if (Date.now() > deadline) {
      throw new Error(`${topic} stays: ${JSON.stringify(await placement(cluster, topic))}`);
    }
    await sleep(50);
  }
}

function records(topic: string, count: number): ProduceRecord[] {
  return Array.from({ length: count }, (_, i) => ({
    topic,
    partition: i % PARTITIONS,
    value: `${topic} ${i}`,
  }));
}

async function values(topic: string): Promise<string[]> {
  const read = await java.readAll(bootstrap, topic, 'read_committed');
  return read.map(({ value }) => String(value)).sort();
}

const texts = (list: readonly ProduceRecord[]) => list.map(({ value }) => String(value)).sort();

test('G8: what is placed on the guest leaves it, and no record is lost', { skip }, async (t) => {
  const server = ['--bootstrap-server', bootstrap, '--create', '--partitions', String(PARTITIONS)];
  for (const [topic, replicas] of [
    ['single', 1],
    ['double', 2],
  ] as const) {
    await tool('topics', [...server, '--topic', topic, '--replication-factor', String(replicas)]);
    const from = performance.now();
    const settled = awaitSettled(topic, replicas).then(() => performance.now() - from);
    // Rejects with what a producer does not get over by trying again.
    await java.openProducer(bootstrap, topic);
    const sent = records(topic, 3 * PARTITIONS);
    await java.produceAll(topic, sent);
    await java.closeProducer(topic);
    t.diagnostic(`${topic}, ${PARTITIONS} partitions: settled in ${Math.round(await settled)} ms`);
    assert.deepEqual(await values(topic), texts(sent));
  }
});

test('G9: groups and transactions find their coordinators through the guest', {
  skip,
}, async () => {
  await java.openMember(bootstrap, 'member', 'group', 'double', {
    'auto.offset.reset': 'earliest',
  });
  const read = await java.readAsMember('member', 3 * PARTITIONS);
  assert.equal(read.length, 3 * PARTITIONS);
  await java.closeMember('member');
  const groups = await java.listGroups(bootstrap);
  assert.deepEqual(
    groups.map(({ group }) => group),
    ['group'],
  );
  const committed = await java.groupOffsets(bootstrap, 'group');
  assert.equal(
    Object.values(committed).reduce((sum, each) => sum + each, 0),
    3 * PARTITIONS,
  );

  await java.openProducer(bootstrap, 'tx', { 'transactional.id': 'tx' });
  for (const [end, text] of [
    ['commit', 'kept'],
    ['abort', 'dropped'],
  ] as const) {
    await java.begin('tx');
    const batch = records('double', PARTITIONS).map((each) => ({ ...each, value: text }));
    await java.produceAll('tx', batch);
    await (end === 'commit' ? java.commit('tx') : java.abort('tx'));
  }
  await java.closeProducer('tx');
  const seen = await values('double');
  assert.equal(seen.filter((value) => value === 'kept').length, PARTITIONS);
  assert.equal(seen.includes('dropped'), false);
  const replicas = cluster.brokers.length;
  for (const topic of ['__consumer_offsets', '__transaction_state']) {
    await awaitSettled(topic, replicas);
  }
});

/** The names of the APIs that each broker offers, by its id. */
function offeredApis(output: string): Map<number, string[]> {
  const brokers = new Map<number, string[]>();
  for (const block of output.split(/^(?=\S+ \(id: )/m)) {
    const id = /\(id: (\d+) /.exec(block)?.[1];
    if (id === undefined) continue;
    const usable = block.split('\n').filter((line) => !line.includes('UNSUPPORTED'));
    const names = usable.flatMap((line) => /^\s+(\w+)\(\d+\): \d/.exec(line)?.[1] ?? []);
    brokers.set(Number(id), names.sort());
  }
  return brokers;
}

test('G9: the command line tools say what they say of any cluster', { skip }, async () => {
  const run = (name: Tool, ...args: string[]) =>
    tool(name, ['--bootstrap-server', bootstrap, ...args]);
  const { topicId } = await java.describeTopic(bootstrap, 'double');
  assert.match(await run('topics', '--describe', '--topic', 'double'), /PartitionCount: 60/);
  assert.ok(topicId.length > 0);
  const quorum = await run('metadataQuorum', 'describe', '--replication');
  assert.match(quorum, new RegExp(`^${GUEST_ID} .*Observer`, 'm'));
  assert.match(
    await tool('cluster', ['list-endpoints', '--bootstrap-server', bootstrap]),
    new RegExp(`^${GUEST_ID} .*unfenced`, 'm'),
  );
  const dirs = await run('logDirs', '--describe');
  const ids = cluster.brokers.map(({ id }) => id);
  assert.match(dirs, new RegExp(`from brokers ${ids},${GUEST_ID}$`, 'm'));
  assert.match(await run('transactions', 'list'), /^tx\s+[1-3]\s+\d+\s+CompleteAbort/m);
  assert.match(await run('features', 'describe'), /transaction\.version.*FinalizedVersionLevel: 2/);
  assert.match(await run('consumerGroups', '--describe', '--group', 'group'), /^group +double/m);
  const acls = await runTool('acls', ['--list', '--bootstrap-server', bootstrap]);
  assert.match(acls.stdout + acls.stderr, /SecurityDisabledException/);
  const elected = await run(
    'leaderElection',
    '--election-type',
    'preferred',
    '--all-topic-partitions',
  );
  assert.doesNotMatch(elected, /could not be elected/);
  const apis = offeredApis(await run('brokerApiVersions'));
  const apache = apis.get(1) ?? [];
  const missing = apache.filter((name) => apis.get(GUEST_ID)?.includes(name) !== true);
  const ofBrokers = ['DeleteShareGroupState', 'InitializeShareGroupState', 'ReadShareGroupState'];
  const ofState = [...ofBrokers, 'ReadShareGroupStateSummary', 'WriteShareGroupState'];
  assert.ok(apache.length > 70);
  assert.deepEqual(missing, ofState.sort());
});

test('configs of the guest as a broker are taken, kept and shown', { skip }, async () => {
  const name = String(GUEST_ID);
  await java.alterConfigs(bootstrap, 'BROKER', name, { 'example.setting': 'x' });
  const deadline = Date.now() + LIMIT_MS;
  for (;;) {
    const shown = await java.describeConfigs(bootstrap, 'BROKER', name);
    if ('example.setting' in shown && 'twinlog.guest' in shown) break;
    assert.ok(Date.now() < deadline, JSON.stringify(shown));
    await sleep(50);
  }
});
