/**
 * Joining, following and leaving a real Apache Kafka cluster as a broker (rules G1 to G6).
 *
 * Three controllers and two brokers; the metadata log gets snapshots often, so that a late member
 * begins with one. What a member knows is compared with what a broker answers to Metadata. Tests
 * build on each other: the cluster lives through all of them.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import type { Uuid } from '../../src/base/uuid.ts';
import { nodeIdProblem } from '../../src/guest/identity.ts';
import { guestSupportedFeatures } from '../../src/metadata/features.ts';
import { WrongCluster } from '../../src/metadata/quorum/probe.ts';
import { QuorumUnavailable } from '../../src/metadata/quorum/quorum-client.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import {
  DescribeQuorumRequest,
  DescribeQuorumResponse,
} from '../../src/protocol/messages/55-describe-quorum.ts';
import {
  UnregisterBrokerRequest,
  UnregisterBrokerResponse,
} from '../../src/protocol/messages/64-unregister-broker.ts';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { Member, newUuid, until } from './guest-member.ts';
import { JavaClient } from './java-client.ts';
import { interopSkipReason, type KafkaVersion, otherPassReason } from './kafka-jars.ts';
import { RawClient, type TopicMetadata } from './raw-client.ts';

const skip = otherPassReason() || (await interopSkipReason());
/** The node id of the member; the brokers have 1 and 2, the controllers 100 to 102. */
const ID = 900;

let cluster: KafkaCluster;
let java: JavaClient;
const members: Member[] = [];

/** What a broker says of topics, in the order of the names. */
async function topicsOf(names: readonly string[]): Promise<TopicMetadata[]> {
  const { host, port } = cluster.broker(1);
  await using client = await RawClient.connect(host, port, 10_000);
  const { topics } = await client.metadata([...names].sort());
  return [...topics].sort((a, b) => ((a.name ?? '') < (b.name ?? '') ? -1 : 1));
}

/** The same out of a member's image. */
function topicsIn(member: Member, names: readonly string[]): TopicMetadata[] {
  return [...names].sort().map((name) => {
    const topic = member.image.topicsByName.get(name);
    assert.ok(topic !== undefined, `${name} is not known`);
    return {
      error: 0,
      name,
      topicId: Buffer.from(topic.id, 'base64url').toString('hex'),
      partitions: [...topic.partitions.values()].map((each) => ({
        partition: each.partition,
        error: 0,
        leader: each.leader,
        leaderEpoch: each.leaderEpoch,
        replicas: [...each.replicas],
        isr: [...each.isr],
      })),
    };
  });
}

function byIndex(topics: readonly TopicMetadata[]): TopicMetadata[] {
  return topics.map((topic) => ({
    ...topic,
    partitions: [...topic.partitions].sort((a, b) => a.partition - b.partition),
  }));
}

/** The broker may be behind the member, and the other way round. */
async function assertSameTopics(member: Member, names: readonly string[]): Promise<void> {
  for (let tries = 1; ; tries++) {
    const theirs = byIndex(await topicsOf(names));
    const ours = byIndex(topicsIn(member, names));
    if (tries === 50 || isDeepStrictEqual(ours, theirs)) {
      assert.deepEqual(ours, theirs);
      return;
    }
    await sleep(100);
  }
}

/** Creates a topic and waits until the member knows it. */
async function create(
  member: Member,
  name: string,
  assignments?: Record<string, number[]>,
): Promise<void> {
  await java.createTopic(cluster.bootstrap, name, 3, { 'retention.ms': '777000' }, assignments);
  await until(`topic ${name}`, () => member.image.topicsByName.has(name));
}

async function quorum(member: Member) {
  const topics = [{ topicName: '__cluster_metadata', partitions: [{ partitionIndex: 0 }] }];
  const answer = await member.controller.send(DescribeQuorumRequest, DescribeQuorumResponse, {
    topics,
  });
  const partition = answer.topics[0]?.partitions[0];
  assert.ok(partition !== undefined);
  return partition;
}

function leadership(member: Member, topic: string): [leader: number, epoch: number] {
  const partition = member.image.topicsByName.get(topic)?.partitions.get(0);
  assert.ok(partition !== undefined);
  return [partition.leader, partition.leaderEpoch];
}

function member(wish: Partial<Parameters<typeof Member.create>[0]> = {}): Member {
  const options = { bootstrap: cluster.controllerBootstrap, nodeId: ID, ...wish };
  const made = Member.create(options, cluster.clusterId);
  members.push(made);
  return made;
}

/** All that are supported, where there is time for it. */
const VERSIONS: readonly KafkaVersion[] =
  process.env.TWINLOG_TEST === 'full' ? ['4.1.2', '4.2.0', '4.3.1', '4.4.0'] : ['4.2.0'];
/** The first one that knows of cordoned log directories. */
const CORDON_VERSION = '4.3';

for (const version of VERSIONS) {
  describe(`a guest joins Apache Kafka ${version}`, { skip }, () => joining(version));
}

function joining(version: KafkaVersion): void {
  const incarnationId = newUuid();
  const directoryId = newUuid();
  let cordoned: Uuid[] = [];
  let first: Member;
  let again: Member;

  before(async () => {
    const properties = {
      'metadata.log.max.record.bytes.between.snapshots': '4000',
      'metadata.log.max.snapshot.interval.ms': '1000',
    };
    const name = `guest-join-${version}`;
    cluster = await startKafka({ name, brokers: 2, controllers: 3, properties, version });
    java = await JavaClient.start();
  });

  after(async () => {
    for (const each of members.splice(0)) each.kill();
    await java?.close();
    await cluster?.destroy();
  });

  test('G1, G3, G5: it registers, is unfenced, and knows what a broker knows', async () => {
    const registration = { incarnationId, cordonedLogDirs: () => cordoned };
    first = await member({ directoryId, registration }).join();
    assert.ok(first.registration.epoch > 0);
    assert.equal(first.image.brokers.get(ID)?.epoch, first.registration.epoch);
    assert.deepEqual(first.image.brokers.get(ID)?.logDirs, [directoryId]);
    await create(first, 'a');
    await create(first, 'b', { 0: [2, 1], 1: [1, 2], 2: [1, 2] });
    const names = ['a', 'b'];
    await assertSameTopics(first, names);
    assert.deepEqual(leadership(first, 'b'), [2, 0]);
    assert.equal(first.image.configs(2, 'a').get('retention.ms'), '777000');
    const { observers } = await quorum(first);
    assert.ok(observers.some(({ replicaId }) => replicaId === ID));
    await java.deleteTopic(cluster.bootstrap, 'a');
    await until('a is gone', () => !first.image.topicsByName.has('a'));
    assert.ok(first.deltas.some(({ deletedTopics }) => deletedTopics[0]?.name === 'a'));
  });

  test('G7: its cordon is told where the cluster knows of cordons, and only there', async () => {
    const known = (): readonly Uuid[] => first.image.brokers.get(ID)?.cordonedLogDirs ?? [];
    cordoned = [directoryId];
    await first.registration.sendHeartbeat();
    if (version > CORDON_VERSION) await until('cordoned', () => known().length === 1);
    assert.deepEqual(known(), version > CORDON_VERSION ? [directoryId] : []);
    cordoned = [];
    await first.registration.sendHeartbeat();
    await until('not cordoned', () => known().length === 0);
    assert.equal(first.image.brokers.get(ID)?.fenced, false);
  });

  test('G1: a late member begins with a snapshot and knows the same', async () => {
    for (let i = 0; i < 5; i++) await create(first, `many-${i}`);
    const late = member({ nodeId: ID + 1 });
    const snapshots: number[] = [];
    await late.controller.subscribe(
      0,
      (_records, lastOffset) => assert.ok(lastOffset > (snapshots[0] ?? Number.MAX_VALUE)),
      (_records, lastOffset) => snapshots.push(lastOffset),
    );
    assert.equal(snapshots.length, 1);
    const image = await late.controller.readImage();
    late.kill();
    assert.deepEqual(
      [...image.topicsById.values()].sort(byId),
      [...first.image.topicsById.values()].sort(byId),
    );
    assert.deepEqual(sorted(image.brokers), sorted(first.image.brokers));
    assert.deepEqual(image.configsByResource, first.image.configsByResource);
    assert.ok(image.offset > first.registration.epoch);
  });

  test("a client's request is forwarded as that of its principal", async () => {
    const request = {
      topics: [{ name: 'f', numPartitions: 1, replicationFactor: 1, assignments: [], configs: [] }],
      timeoutMs: 5_000,
      validateOnly: false,
    };
    const context = { principal: 'User:ANONYMOUS', clientAddress: '127.0.0.1', clientId: 'c' };
    const answer = await first.controller.forward(19, 8, request, context);
    const { topics } = answer as CreateTopicsResponse;
    assert.deepEqual(
      topics.map(({ name, errorCode }) => [name, errorCode]),
      [['f', 0]],
    );
    await until('f', () => first.image.topicsByName.has('f'));
    const twice = await first.controller.send(CreateTopicsRequest, CreateTopicsResponse, request);
    assert.equal(twice.topics[0]?.errorCode, 36);
  });

  test('T5: fenced and unfenced, it leads in a new epoch, once for all callers', async () => {
    await create(first, 'led', { 0: [ID], 1: [ID], 2: [ID] });
    assert.deepEqual(leadership(first, 'led'), [ID, 0]);
    const topicId = first.image.topicsByName.get('led')?.id;
    assert.ok(topicId !== undefined);
    const elected = await Promise.all(
      [0, 1].map((index) => first.controller.electSameLeader(topicId, index, 0)),
    );
    assert.deepEqual(elected, [
      { error: 0, leaderEpoch: 2 },
      { error: 0, leaderEpoch: 2 },
    ]);
    await until('the new epoch', () => leadership(first, 'led')[1] === 2);
    assert.deepEqual(leadership(first, 'led'), [ID, 2]);
    const stale = await first.controller.electSameLeader(topicId, 0, 0);
    assert.equal(stale.error, 74);
  });

  test('G4: the same incarnation goes on where a killed one ended', async () => {
    first.kill();
    const previousBrokerEpoch = first.registration.epoch;
    const registration = { incarnationId, previousBrokerEpoch };
    again = await member({ directoryId, registration }).join();
    assert.equal(again.registration.epoch, previousBrokerEpoch);
    assert.deepEqual(leadership(again, 'led'), [ID, 2]);
  });

  test('G4: another incarnation of a live one is refused with a sentence', async () => {
    const other = member({ registration: { duplicatePatienceMs: 4_000 } });
    await assert.rejects(other.registration.register(), /node 900 is another process/);
    other.kill();
    assert.equal(again.image.brokers.get(ID)?.incarnationId, incarnationId);
  });

  test('G1, G5: the active controller is killed, and the next one is followed', async () => {
    const { leaderId } = await quorum(again);
    const active = cluster.controllers.find(({ id }) => id === leaderId);
    assert.ok(active !== undefined);
    await active.kill9();
    await create(again, 'after');
    assert.notEqual((await quorum(again)).leaderId, leaderId);
    await again.registration.sendHeartbeat();
    await assertSameTopics(again, ['after']);
    await active.launch();
    assert.deepEqual(again.failures, []);
  });

  test('a cluster with another id, or a listener for clients, is named', async () => {
    const wrong = Member.create({ bootstrap: cluster.controllerBootstrap }, 'another');
    await assert.rejects(wrong.controller.readImage(), WrongCluster);
    wrong.kill();
    const client = member({ bootstrap: cluster.bootstrap });
    const limits = { timeoutMs: 500 };
    const question = client.controller.send(
      DescribeQuorumRequest,
      DescribeQuorumResponse,
      { topics: [] },
      limits,
    );
    await assert.rejects(question, (error: Error) => {
      assert.ok(error instanceof QuorumUnavailable);
      assert.match(error.message, /is a listener for clients/);
      return true;
    });
  });

  test('G3, G11: refusals are explained, and taken ids are seen before', async () => {
    const features = guestSupportedFeatures.map((range) =>
      range.name === 'metadata.version' ? { ...range, maxSupportedVersion: 20 } : range,
    );
    const old = member({ nodeId: ID + 2, registration: { features } });
    await assert.rejects(old.registration.register(), /level that is not known .* 7 to 20/);
    const copy = member({ nodeId: ID + 2, directoryId });
    await assert.rejects(copy.registration.register(), /INVALID_REGISTRATION: .* a copy\?/);
    const { controllerIds } = again.controller;
    const problem = (nodeId: number) =>
      nodeIdProblem(again.image, controllerIds, { nodeId, directoryId });
    assert.match(problem(101) ?? '', /that of a controller/);
    assert.match(problem(1) ?? '', /registered by a broker with another data directory/);
    assert.deepEqual([problem(ID), problem(ID + 2)], [undefined, undefined]);
  });

  test('G6: it is let go, unregistered, and gone; and may come back as a new one', async () => {
    await again.registration.leave();
    await until('fenced', () => again.image.brokers.get(ID)?.fenced === true);
    assert.deepEqual(leadership(again, 'led')[0], -1);
    const back = member({ directoryId });
    await back.join();
    await until('leads again', () => leadership(back, 'led')[0] === ID);
    await back.registration.leave();
    const answer = await back.controller.send(UnregisterBrokerRequest, UnregisterBrokerResponse, {
      brokerId: ID,
    });
    assert.equal(answer.errorCode, 0);
    await until('unregistered', () => !back.image.brokers.has(ID));
    assert.ok(back.deltas.some((delta) => delta.changedBrokers.has(ID)));
  });
}

function byId(a: { id: string }, b: { id: string }): number {
  return a.id < b.id ? -1 : 1;
}

/** A snapshot lists brokers and their features in an order of its own. */
function sorted(brokers: Member['image']['brokers']) {
  const all = [...brokers.values()].sort((a, b) => a.id - b.id);
  return all.map((broker) => ({
    ...broker,
    features: [...broker.features].sort((a, b) => (a.name < b.name ? -1 : 1)),
  }));
}
