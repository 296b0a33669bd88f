/**
 * The mirror state in a topic of a real Apache Kafka: who may write, what is read, what survives.
 *
 * One broker; the stores are those of guests that exist in their node ids only. The topic is read
 * by Apache's own consumer, too, and what a dead or a stale guest leaves is made by hand.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLogger } from '../../src/base/logger.ts';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import { lastMirroredOffsetIn, readPeerRows } from '../../src/guest/state/peer-rows.ts';
import { GuestStateStore, type GuestStateStoreOptions } from '../../src/guest/state/state-store.ts';
import { transactionalIdOf } from '../../src/guest/state/state-topic.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { emptyImage } from '../../src/metadata/image.ts';
import type { PlacedRecord } from '../../src/metadata/transaction-buffer.ts';
import {
  decodeRow,
  encodeRow,
  encodeRowKey,
  MIRROR_STATE_TOPIC,
  type MirrorStateRow,
  type RowKey,
} from '../../src/mirror/state-row.ts';
import { MirrorState } from '../../src/mirror/states.ts';
import { errors } from '../../src/protocol/errors.ts';
import { row } from '../mirror/harness.ts';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { JavaClient } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { readTopic } from './raw-log.ts';
import { tool } from './tools.ts';

const skip = await interopSkipReason();
const PARTITIONS = 4;
const CONTROL = 0x20;
const MIRROR = 'm';
const TOPIC_ID = 'dG9waWMtdG9waWMtdG9waQ' as Uuid;
const { NONE, NOT_COORDINATOR, FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, INVALID_REQUEST } = errors;

let cluster: KafkaCluster;
let java: JavaClient;
const stores = new Set<GuestStateStore>();
const runtime = nodeRuntime({ logger: silentLogger });

const keyOf = (partition: number, mirror = MIRROR): RowKey => ({
  mirror,
  topicId: TOPIC_ID,
  partition,
});

function bootstrapServers() {
  return cluster.brokers.map(({ host, port }) => ({ host, port }));
}

/** The store of a guest; closed at the end of the test file. */
function store(nodeId: number, options: Partial<GuestStateStoreOptions> = {}): GuestStateStore {
  const made = new GuestStateStore(runtime, {
    nodeId,
    brokers: bootstrapServers,
    otherGuests: () => [],
    image: () => emptyImage(cluster.clusterId),
    mayOwn: async () => true,
    onOverlay: () => {},
    onChange: () => {},
    ...options,
  });
  stores.add(made);
  return made;
}

async function started(nodeId: number, options: Partial<GuestStateStoreOptions> = {}) {
  const made = store(nodeId, options);
  await made.start();
  return made;
}

async function rowIn(from: GuestStateStore, key: RowKey): Promise<MirrorStateRow | undefined> {
  const answer = await from.read(key);
  assert.equal(answer.error, NONE.code);
  return 'row' in answer ? answer.row : undefined;
}

/** Every record of the topic as Apache's READ_COMMITTED consumer gives it. */
async function readByJava() {
  return java.readAll(cluster.bootstrap, MIRROR_STATE_TOPIC, 'read_committed');
}

/** The producers' epochs of all data batches of the topic, by place. */
async function producerEpochs(): Promise<Map<string, string>> {
  const { partitions } = await readTopic(cluster.bootstrap, MIRROR_STATE_TOPIC);
  const epochs = new Map<string, string>();
  for (const [partition, { batches }] of partitions.entries()) {
    for (const { attributes, baseOffset, producerId, producerEpoch } of batches) {
      if ((attributes & CONTROL) !== 0) continue;
      epochs.set(`${partition}@${baseOffset}`, `${producerId}/${producerEpoch}`);
    }
  }
  return epochs;
}

/** Those of the batches that `write` appended. */
async function epochsOf(write: () => Promise<void>): Promise<string[]> {
  const before = await producerEpochs();
  await write();
  const after = await producerEpochs();
  return [...after].filter(([place]) => !before.has(place)).map(([, epoch]) => epoch);
}

async function until(what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, `not within 20 s: ${what}`);
    await sleep(20);
  }
}

if (skip === false) {
  before(async () => {
    cluster = await startHost({ name: 'guest-state' });
    java = await JavaClient.start();
  });
  after(async () => {
    for (const each of stores) each.close();
    await java?.close();
    await cluster?.destroy();
  });
}

test('G22 a cluster without the topic has no rows, and a store does not start', {
  skip,
}, async () => {
  const settings = {
    bootstrapServers: bootstrapServers(),
    requestTimeoutMs: 5_000,
    connectionSetupTimeoutMs: 2_000,
  };
  assert.equal(await readPeerRows(runtime, settings), 'absent');
  const nowhere = { ...settings, bootstrapServers: [{ host: '127.0.0.1', port: 1 }] };
  await assert.rejects(readPeerRows(runtime, nowhere), { mirrorCause: 'SOURCE_UNREACHABLE' });
  await java.createTopic(cluster.bootstrap, MIRROR_STATE_TOPIC, PARTITIONS, {
    'cleanup.policy': 'compact',
  });
});

test('G22 S2: what one guest wrote another reads, and so does a consumer', { skip }, async () => {
  const overlay: PlacedRecord[] = [];
  const one = await started(1, { onOverlay: (records) => overlay.push(...records) });
  const first = row('PREPARING', { sourceClusterId: 'source' });
  assert.equal(await one.write(keyOf(0), first), NONE.code);
  assert.deepEqual(await rowIn(one, keyOf(0)), first);
  const configs = new Map([['bootstrap.servers', 'source:9092']]);
  assert.equal(await one.writeSettings(MIRROR, { configs, producerIdTag: 7 }), NONE.code);
  const topic = {
    mirrorName: MIRROR,
    removed: false,
    membershipOffset: 5,
    topicId: ZERO_UUID,
    sourceTopicId: TOPIC_ID,
    finalConfigs: [{ name: 'min.insync.replicas', value: null }],
    targetReplicationFactor: 3,
  };
  assert.equal(await one.writeTopic('t', topic), NONE.code);
  assert.deepEqual(
    overlay.map(({ record, offset }) => ({ ...('value' in record ? record.value : {}), offset })),
    [
      {
        resourceType: 64,
        resourceName: MIRROR,
        name: 'bootstrap.servers',
        value: 'source:9092',
        offset: 0,
      },
      { resourceType: 2, resourceName: 't', name: 'mirror.name', value: MIRROR, offset: 5 },
    ],
  );
  assert.equal(await one.writeTopic('t', { ...topic, removed: true }), INVALID_REQUEST.code);
  assert.equal(await one.claimJobs(MIRROR), NONE.code);
  one.close();

  const later: PlacedRecord[] = [];
  const again = await started(1, { onOverlay: (records) => later.push(...records) });
  assert.deepEqual(later, overlay);
  assert.deepEqual(await rowIn(again, keyOf(0)), first);
  assert.equal(await rowIn(again, keyOf(1)), undefined);
  assert.deepEqual(again.settings(MIRROR), { configs, producerIdTag: 7 });
  assert.deepEqual(again.topics(MIRROR), [['t', topic]]);
  assert.equal(again.jobs(MIRROR)?.guestId, 1);

  const seen = await readByJava();
  const keys = seen.map(({ key }) => key?.toString('hex'));
  assert.equal(keys.length, 4);
  assert.ok(keys.includes(Buffer.from(encodeRowKey(keyOf(0))).toString('hex')));
  const record = seen.find(({ key }) => key?.readInt16BE(0) === 2);
  assert.deepEqual(decodeRow(record?.value ?? Buffer.alloc(0)), first);
  assert.deepEqual(record?.headers, [['guest', Buffer.from('1')]]);
});

test('S4: a repeat is a success without a record, what does not follow is refused', {
  skip,
}, async () => {
  const one = await started(1);
  const before = (await readByJava()).length;
  const first = row('PREPARING', { sourceClusterId: 'source' });
  assert.equal(await one.write(keyOf(0), first), NONE.code);
  assert.equal((await readByJava()).length, before);
  const second = { ...first, state: MirrorState.MIRRORING, stateEpoch: 2, leaderEpoch: 3 };
  assert.equal(await one.write(keyOf(0), { ...second, stateEpoch: 3 }), FENCED_STATE_EPOCH.code);
  assert.equal(
    await one.write(keyOf(0), { ...second, state: MirrorState.STOPPED }),
    INVALID_REQUEST.code,
  );
  assert.equal(await one.write(keyOf(0), second), NONE.code);
  const older = { ...second, stateEpoch: 3, leaderEpoch: 2 };
  assert.equal(await one.write(keyOf(0), older), FENCED_LEADER_EPOCH.code);
  assert.deepEqual(await rowIn(one, keyOf(0)), second);
  assert.equal((await readByJava()).length, before + 1);
});

test('G22: 300 rows in one go are few transactions', { skip }, async () => {
  const one = await started(1);
  const epochs = await epochsOf(async () => {
    const written = Array.from({ length: 300 }, (_, partition) => {
      const made = row('PREPARING', { topicName: 'many', partition });
      return one.write(keyOf(partition, 'many'), made);
    });
    assert.deepEqual(new Set(await Promise.all(written)), new Set([NONE.code]));
  });
  // One batch in each partition, all of one transaction: every transaction has an epoch.
  assert.equal(epochs.length, PARTITIONS);
  assert.equal(new Set(epochs).size, 1);
  const another = await started(2);
  assert.equal(another.rows('many').length, 300);
});

test('G22 G23: a guest that was taken over from appends nothing more', { skip }, async () => {
  let owns = true;
  const stale = await started(1, { mayOwn: async () => owns });
  const taker = await started(2);
  const key = keyOf(1);
  assert.equal(await stale.write(key, row('PREPARING')), NONE.code);
  owns = false;
  await taker.takeOver(1);
  const before = await java.offsets(cluster.bootstrap, MIRROR_STATE_TOPIC);
  const next = row('MIRRORING', { stateEpoch: 2 });
  assert.equal(await stale.write(key, next), NOT_COORDINATOR.code);
  assert.equal(stale.isFenced, true);
  assert.equal(await stale.write(key, next), NOT_COORDINATOR.code);
  await sleep(500);
  assert.equal(await stale.write(key, next), NOT_COORDINATOR.code);
  assert.deepEqual(await java.offsets(cluster.bootstrap, MIRROR_STATE_TOPIC), before);

  const claimed = row('PREPARING', { stateEpoch: 2, leaderEpoch: 4 });
  assert.equal(await taker.write(key, claimed), NONE.code);
  owns = true;
  await until('the guest may write again', () => !stale.isFenced);
  assert.deepEqual(await rowIn(stale, key), claimed);
  assert.equal(await stale.write(key, next), FENCED_LEADER_EPOCH.code);
  assert.deepEqual(await rowIn(taker, key), claimed);
});

test('G22: a row is taken from the guest that wrote it, without being asked to', {
  skip,
}, async () => {
  const one = await started(1);
  const two = await started(2);
  const key = keyOf(2);
  assert.equal(await one.write(key, row('PREPARING')), NONE.code);
  const claimed = row('PREPARING', { stateEpoch: 2, leaderEpoch: 1 });
  assert.equal(await two.write(key, claimed), NONE.code);
  const late = row('MIRRORING', { stateEpoch: 2 });
  assert.equal(await one.write(key, late), NOT_COORDINATOR.code);
  await until('the guest may write again', () => !one.isFenced);
  assert.equal(await one.write(key, late), FENCED_LEADER_EPOCH.code);
  assert.deepEqual(await rowIn(one, key), claimed);
  // What was never in question goes on, and costs the other guest nothing.
  assert.equal(await one.write(keyOf(3), row('PREPARING', { partition: 3 })), NONE.code);
  const further = row('MIRRORING', { stateEpoch: 3, leaderEpoch: 1 });
  assert.equal(await two.write(key, further), NONE.code);

  assert.equal(one.jobs(MIRROR)?.guestId, 1);
  assert.equal(await two.claimJobs(MIRROR), NONE.code);
  assert.equal(two.jobs(MIRROR)?.guestId, 2);
  await one.write(keyOf(3), row('MIRRORING', { partition: 3, stateEpoch: 2 }));
  assert.notEqual(one.jobs(MIRROR)?.guestId, 1);
  await until('the guest may write again', () => !one.isFenced);
  assert.equal(one.jobs(MIRROR)?.guestId, 2);
});

test('G22: aborted and undecided transactions of a dead guest are not seen', {
  skip,
}, async () => {
  const reader = await started(1);
  const key = keyOf(0, 'dead');
  const value = Buffer.from(encodeRow(row('STOPPED', { lastMirroredOffset: 99 })));
  const record = {
    topic: MIRROR_STATE_TOPIC,
    partition: reader.ownerOf(`dead:${TOPIC_ID}:0`) ?? -1,
    key: Buffer.from(encodeRowKey(key)),
    value,
  };
  await java.openProducer(cluster.bootstrap, 'dead', {
    'transactional.id': transactionalIdOf(9),
    'transaction.timeout.ms': '600000',
  });
  await java.begin('dead');
  await java.produceAll('dead', [record]);
  await java.abort('dead');
  assert.equal(await rowIn(reader, key), undefined);
  await java.begin('dead');
  await java.produceAll('dead', [record]);
  await java.closeProducer('dead', true);
  // While it is undecided nobody can say what is committed behind it: a read waits for its end.
  let answered = false;
  const read = rowIn(reader, key).finally(() => {
    answered = true;
  });
  await sleep(1_000);
  assert.equal(answered, false);
  await reader.takeOver(9);
  assert.equal(await read, undefined);
  const own = row('PREPARING', { topicName: 'dead' });
  assert.equal(await reader.write(key, own), NONE.code);
  const other = await started(2);
  assert.deepEqual(await rowIn(other, key), own);
});

test('G22: the peer reads where this side stopped, by name and source cluster', {
  skip,
}, async () => {
  const one = await started(1);
  const fields = { topicName: 'back', sourceClusterId: 'peer', membershipOffset: 1 };
  const stages = [
    row('PREPARING', fields),
    row('MIRRORING', { ...fields, stateEpoch: 2 }),
    row('STOPPING', { ...fields, stateEpoch: 3 }),
  ];
  const key = keyOf(0, 'back');
  for (const stage of stages) assert.equal(await one.write(key, stage), NONE.code);
  const settings = {
    bootstrapServers: bootstrapServers(),
    requestTimeoutMs: 5_000,
    connectionSetupTimeoutMs: 2_000,
  };
  const found = async (name = 'back', cluster = 'peer', id: Uuid = TOPIC_ID) => {
    const peer = await readPeerRows(runtime, settings);
    assert.notEqual(peer, 'absent');
    return peer === 'absent' ? -2 : lastMirroredOffsetIn(peer.rows, { name, id }, 0, cluster);
  };
  assert.equal(await found(), 'none');
  const settled = row('STOPPING', {
    ...fields,
    stateEpoch: 4,
    lastMirroredOffset: 42,
    settled: true,
  });
  assert.equal(await one.write(key, settled), NONE.code);
  assert.equal(await found(), 42);
  const stopped = row('STOPPED', { ...fields, stateEpoch: 5, lastMirroredOffset: 42 });
  assert.equal(await one.write(key, stopped), NONE.code);
  assert.equal(await found(), 42);
  assert.equal(await found('other'), 'none');
  assert.equal(await found('back', 'elsewhere'), 'none');
  assert.equal(await found('back', 'peer', ZERO_UUID), 42);
  assert.equal(await found('back', 'peer', 'b3RoZXItb3RoZXItb3RoZQ' as Uuid), 'none');
});

test('G22: killed in the middle, each acknowledged row is there and no other is wrong', {
  skip,
}, async () => {
  const one = await started(1);
  const acknowledged = new Map<number, MirrorStateRow>();
  const asked = new Map<number, MirrorStateRow>();
  let writing = true;
  const writer = (async () => {
    for (let partition = 0; writing; partition++) {
      const made = row('PREPARING', { topicName: 'killed', partition });
      asked.set(partition, made);
      const error = await one.write(keyOf(partition, 'killed'), made);
      if (error === NONE.code) acknowledged.set(partition, made);
    }
  })();
  await until('some rows are written', () => acknowledged.size >= 20);
  await cluster.broker(1).kill9();
  await sleep(300);
  await cluster.start();
  const then = acknowledged.size;
  await until('rows are written again', () => acknowledged.size >= then + 20);
  writing = false;
  await writer;
  const other = await started(2);
  const rows = new Map(other.rows('killed').map(({ key, row }) => [key.partition, row]));
  for (const [partition, made] of acknowledged) assert.deepEqual(rows.get(partition), made);
  for (const [partition, found] of rows) assert.deepEqual(found, asked.get(partition));
  assert.deepEqual(await rowIn(one, keyOf(0, 'killed')), acknowledged.get(0));
});

test('G22: the same rows through the transactions of before version 2', { skip }, async () => {
  const args = ['--bootstrap-server', cluster.bootstrap];
  await tool('features', [...args, 'downgrade', '--feature', 'transaction.version=1']);
  const one = await started(1);
  const epochs = await epochsOf(async () => {
    for (let partition = 0; partition < 8; partition++) {
      const made = row('PREPARING', { topicName: 'older', partition });
      assert.equal(await one.write(keyOf(partition, 'older'), made), NONE.code);
    }
  });
  // Eight transactions of one epoch.
  assert.equal(epochs.length, 8);
  assert.equal(new Set(epochs).size, 1);
  const two = await started(2);
  assert.equal(two.rows('older').length, 8);
  await two.takeOver(1);
  const late = row('MIRRORING', { topicName: 'older', stateEpoch: 2 });
  assert.equal(await one.write(keyOf(0, 'older'), late), NOT_COORDINATOR.code);
});
