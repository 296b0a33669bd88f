/**
 * The commands about guests against a real Apache Kafka cluster: the check before one joins, a
 * rolling restart under maintenance with mirroring going on, and leaving for good.
 */
import assert from 'node:assert/strict';
import { before, test } from 'node:test';
import { guest, guestCluster, javaClient, sourceCluster } from './clusters.ts';
import { compareTopics } from './compare.ts';
import { GUEST_ID, guestCommand } from './guest.ts';
import { memberIds, placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LiveProducer } from './live-producers.ts';
import { awaitState, until } from './mirror-watch.ts';
import { readTopic } from './raw-log.ts';
import { tool } from './tools.ts';

const skip = await interopSkipReason();
const MIRROR = 'dc1';
const TOPIC = 'orders';
const PARTITIONS = 2;
const APACHE_IDS = [1, 2, 3];
/** Mirror topics are locked by this. */
const LOCKED = '78';

interface Line {
  readonly check: string;
  readonly status: string;
  readonly found: string;
  readonly fix?: string;
}

/** What `guest check --json` says, by check; its failure is part of the result. */
async function check(...args: readonly string[]): Promise<Map<string, Line>> {
  const text = await guestCommand(await guestCluster(), 'check', '--json', ...args).catch(
    (error: Error) => error.message,
  );
  const lines = text.split('\n').filter((line) => line.startsWith('{'));
  const values = lines.map((line) => JSON.parse(line) as Line);
  return new Map(values.map((value) => [value.check, value]));
}

/** The names of what is not ok. */
function complaints(lines: ReadonlyMap<string, Line>): string[] {
  return [...lines.values()].flatMap(({ check: name, status }) =>
    name !== undefined && status !== 'ok' ? [`${status} ${name}`] : [],
  );
}

/** An error's whole text, or a complaint that there was none. */
async function failure(command: Promise<string>): Promise<string> {
  return await command.then(
    (out) => assert.fail(`it succeeded: ${out}`),
    (error: Error) => error.message,
  );
}

if (skip === false) {
  before(async () => {
    const java = await javaClient();
    await java.createTopic((await sourceCluster()).bootstrap, TOPIC, PARTITIONS);
  });
}

test('G8: the check names topics that the cluster should make first', { skip }, async () => {
  const cluster = await guestCluster();
  const before = await check('--node-id', String(GUEST_ID));
  // With a cordon none of them will be placed on a guest.
  const should = (...names: string[]) => (cluster.hasCordons ? [] : names);
  assert.deepEqual(complaints(before), [
    ...should(
      'warning topic __consumer_offsets',
      'warning topic __transaction_state',
      'warning topic __share_group_state',
    ),
    'warning who may write __mirror_state',
  ]);
  const server = [
    '--bootstrap-server',
    cluster.broker(1).host.concat(`:${cluster.broker(1).port}`),
  ];
  const made = [
    tool('consumerGroups', [...server, '--describe', '--group', 'any']),
    tool('transactions', [...server, 'describe', '--transactional-id', 'any']),
  ];
  await Promise.allSettled(made);
  const after = await check('--node-id', String(GUEST_ID));
  assert.deepEqual(complaints(after), [
    ...should('warning topic __share_group_state'),
    'warning who may write __mirror_state',
  ]);
  assert.equal(after.get('node id')?.found, `${GUEST_ID} is free`);
  const version = after.get('feature metadata.version')?.found;
  assert.match(String(version), /^its level is \d+; a guest supports 7–33, the controllers 7–\d+$/);
});

test('G11 G9: the check refuses ids and listeners that cannot be', { skip }, async () => {
  const found = await check('--node-id', '100', '--listener', 'INTERNAL');
  assert.match(String(found.get('node id')?.found), /^100 is a controller's$/);
  assert.match(String(found.get('inter-broker listener')?.found), /^brokers use PLAINTEXT,/);
  assert.equal((await check('--node-id', '2')).get('node id')?.found, "2 is a broker's");
});

test('G1: the check leaves no trace in the quorum', { skip }, async () => {
  const { bootstrap, nodes } = await guestCluster();
  const args = ['--bootstrap-server', bootstrap, 'describe', '--replication'];
  const rows = (await tool('metadataQuorum', args)).trim().split('\n').slice(1);
  const ids = rows.map((row) => Number(row.split(/\s+/)[0])).sort((a, b) => a - b);
  assert.deepEqual(
    ids,
    nodes.map(({ id }) => id).sort((a, b) => a - b),
  );
});

test('R1: an address for clients is named as such', { skip }, async () => {
  const cluster = await guestCluster();
  const where = { ...cluster, controllerBootstrap: `127.0.0.1:${cluster.broker(1).port}` };
  const message = await failure(guestCommand(where as typeof cluster, 'check'));
  assert.match(message, /it is a listener for clients, not for controllers/);
});

test('G18 G19: all restart under maintenance, mirroring goes on', { skip }, async () => {
  const [cluster, java] = [await guestCluster(), await javaClient()];
  const source = (await sourceCluster()).bootstrap;
  const broker = await guest();
  await broker.mirrors('create', MIRROR, '--source', source);
  await broker.mirrors('add', MIRROR, TOPIC);
  await awaitState(broker, MIRROR, TOPIC, 'MIRRORING');
  const options = { bootstrap: source, topic: TOPIC, partitions: PARTITIONS, pauseMs: 50 };
  const producer = new LiveProducer(java, options);

  const on = await guestCommand(cluster, 'maintenance', 'on');
  assert.match(on, /All 2 mirror partitions are locked, with every live replica in sync/);
  for (const { isr } of await placement(cluster, TOPIC)) {
    assert.deepEqual([...isr].sort(), [...APACHE_IDS, GUEST_ID].sort());
  }
  const accepted: unknown[] = [];
  const writer = { stop: false };
  const writing = (async () => {
    while (!writer.stop) {
      const attempt = await java.tryProduce(cluster.bootstrap, TOPIC);
      if (attempt.offset !== undefined) accepted.push(attempt);
    }
  })();
  for (const node of [...cluster.brokers, ...cluster.controllers]) {
    const before = producer.acknowledged.length;
    await node.stop();
    await node.launch();
    await cluster.awaitReady();
    await until(`no under-replicated partition after ${node.id}`, async () => {
      const placed = await placement(cluster, TOPIC);
      return placed.every(({ isr, replicas }) => isr.length === replicas.length) ? true : undefined;
    });
    await producer.more(2);
    assert.ok(producer.acknowledged.length > before);
  }
  await broker.kill9();
  await until('a leader in place of the guest', async () => {
    const placed = await placement(cluster, TOPIC);
    return placed.every(({ leader }) => APACHE_IDS.includes(leader)) ? true : undefined;
  });
  const refused = await java.tryProduce(cluster.bootstrap, TOPIC);
  assert.match(String(refused.error), /RecordTooLarge/);
  await broker.start();
  await until('the guest leading again', async () => {
    const placed = await placement(cluster, TOPIC);
    return placed.every(({ leader }) => leader === GUEST_ID) ? true : undefined;
  });
  writer.stop = true;
  await writing;
  assert.deepEqual(accepted, [], 'no write was accepted on a mirror');

  const off = await guestCommand(cluster, 'maintenance', 'off');
  assert.match(off, /All 2 mirror partitions have guests in sync only, and no lock/);
  for (const { isr, leader } of await placement(cluster, TOPIC)) {
    assert.deepEqual([leader, isr], [GUEST_ID, [GUEST_ID]]);
  }
  const configs = await java.describeConfigs(cluster.bootstrap, 'TOPIC', TOPIC);
  assert.notEqual(configs['max.message.bytes'], LOCKED);
  await producer.stop();
  assert.deepEqual(producer.failures, []);
  await until('catching up', async () => {
    const [left, right] = [
      await readTopic(source, TOPIC),
      await readTopic(broker.bootstrap, TOPIC),
    ];
    const [batch] = right.partitions.flatMap(({ batches }) => batches);
    const tag = Number((batch?.producerId ?? 0n) >> 40n);
    const how = { upTo: 'lastStable', producerIds: { tag }, topicIds: 'own' } as const;
    return compareTopics(left, right, how).length === 0 ? true : undefined;
  });
});

test('G6: a guest leaves when it has stopped and holds nothing', { skip }, async () => {
  const cluster = await guestCluster();
  const broker = await guest();
  const leave = (): Promise<string> =>
    guestCommand(cluster, 'leave', '--node-id', String(GUEST_ID));
  assert.match(await failure(leave()), /Guest 201 is running\. Stop it first/);
  await broker.stop();
  const held = await failure(leave());
  assert.match(held, /Mirrored: orders\./);
  assert.match(held, /Partitions: orders-0, orders-1\./);
  await broker.start();
  await broker.mirrors('remove', MIRROR, TOPIC);
  await broker.stop();
  assert.match(await leave(), /Guest 201 has left/);
  assert.match(await leave(), /knows no guest 201: nothing to do/);
  assert.deepEqual(await memberIds(cluster), APACHE_IDS);
  const found = await check('--node-id', String(GUEST_ID));
  assert.equal(found.get('node id')?.found, `${GUEST_ID} is free`);
  assert.equal(found.get('brokers')?.found, '3 (1, 2, 3); no guest yet');
});
