/**
 * What a guest answers to clients, beside what an Apache broker answers to the same request (G9).
 *
 * The guest's handlers run here in front of a real controller, over the metadata that it hands out,
 * without a registered broker: what they say of the cluster must be what broker 1 says of it. Tests
 * build on each other: the cluster lives through all of them.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { silentLogger } from '../../src/base/logger.ts';
import { randomUuid, type Uuid } from '../../src/base/uuid.ts';
import { ApacheQuestions } from '../../src/guest/apache-questions.ts';
import { ClusterClient } from '../../src/guest/cluster-client.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { MetadataLoader } from '../../src/metadata/metadata-loader.ts';
import { RemoteController } from '../../src/metadata/quorum/remote-controller.ts';
import { errors } from '../../src/protocol/errors.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import {
  DescribeAclsRequest,
  DescribeAclsResponse,
} from '../../src/protocol/messages/29-describe-acls.ts';
import {
  ElectLeadersRequest,
  ElectLeadersResponse,
} from '../../src/protocol/messages/43-elect-leaders.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../src/protocol/messages/44-incremental-alter-configs.ts';
import {
  AlterPartitionReassignmentsRequest,
  AlterPartitionReassignmentsResponse,
} from '../../src/protocol/messages/45-alter-partition-reassignments.ts';
import {
  DescribeClientQuotasRequest,
  DescribeClientQuotasResponse,
} from '../../src/protocol/messages/48-describe-client-quotas.ts';
import {
  DescribeUserScramCredentialsRequest,
  DescribeUserScramCredentialsResponse,
} from '../../src/protocol/messages/50-describe-user-scram-credentials.ts';
import {
  DescribeQuorumRequest,
  DescribeQuorumResponse,
} from '../../src/protocol/messages/55-describe-quorum.ts';
import {
  UnregisterBrokerRequest,
  UnregisterBrokerResponse,
} from '../../src/protocol/messages/64-unregister-broker.ts';
import {
  ListConfigResourcesRequest,
  ListConfigResourcesResponse,
} from '../../src/protocol/messages/74-list-config-resources.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import type { BrokerServices } from '../../src/server/api-handler.ts';
import { apiTable } from '../../src/server/api-table.ts';
import { guestApisWith } from '../../src/server/guest-api-table.ts';
import {
  type Api,
  CreatePartitions,
  DeleteTopics,
  DescribeCluster,
  DescribeConfigs,
  DescribeTopicPartitions,
  FindCoordinator,
  ListPartitionReassignments,
  Metadata,
  servicesOf,
} from '../server/call.ts';
import { askGuest } from '../server/guest-call.ts';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { tool } from './tools.ts';

const skip = await interopSkipReason();
const ID = 900;
const LIMIT_MS = 10_000;
const runtime = nodeRuntime({ logger: silentLogger });

let cluster: KafkaCluster;
let controller: RemoteController;
let client: ClusterClient;
let loader: MetadataLoader;
let services: BrokerServices;

before(
  async () => {
    if (skip !== false) return;
    const counts = {
      'offsets.topic.num.partitions': '7',
      'transaction.state.log.num.partitions': '5',
      'share.coordinator.state.topic.num.partitions': '6',
    };
    cluster = await startHost({ name: 'guest-serving', brokers: 2, properties: counts });
    const bootstrap = cluster.brokers.map(({ host, port }) => ({ host, port }));
    client = new ClusterClient(runtime, { clientId: 'test', bootstrap: () => bootstrap });
    controller = new RemoteController(runtime, {
      bootstrapControllers: cluster.controllers.map(({ host, controllerPort = 0 }) => ({
        host,
        port: controllerPort,
      })),
      clusterId: undefined,
      nodeId: ID,
      directoryId: randomUuid((length) => runtime.random.bytes(length)),
      refence: () => Promise.reject(new Error('not part of this test')),
      schemasOf: (apiKey) => apiTable.get(apiKey),
      onFatal: (error) => {
        throw error;
      },
    });
    loader = new MetadataLoader(await controller.clusterId(), []);
    await loader.start(controller);
    const questions = new ApacheQuestions(client, () => loader.image);
    services = {
      ...servicesOf({ brokerId: ID, runtime, metadata: loader, controller }),
      clusterId: cluster.clusterId,
      guest: {
        supportedFeatures: [],
        mirrorAdmin: { forward: () => Promise.reject(new Error('not part of this test')) },
        askForTopics: (names) => questions.askForTopics(names),
        askForCoordinator: (keyType, key) => questions.askForCoordinator(keyType, key),
        askController: (request, response, value) => controller.send(request, response, value),
      },
    };
  },
  { timeout: 60_000 },
);

after(async () => {
  controller?.close();
  client?.close();
  await cluster?.destroy();
});

/** The answers of the guest and of broker 1 to one request. */
async function both<Q extends Message, R extends Message>(
  api: Api<Q, R>,
  version: number,
  value: EncodableOf<Q>,
): Promise<{ guest: MessageOf<R>; apache: MessageOf<R> }> {
  const { request, response } = api;
  const target = { to: 'broker', id: 1 } as const;
  const options = { maxVersion: version, retryBoundMs: 0 };
  const apache = await client.call(target, request, response, value, options);
  return { guest: await askGuest(api, version, services, value), apache };
}

/**
 * Asks both until what they show is equal, as either may hear of a change first; fails with the
 * difference after a while. Answers what was shown.
 */
async function agree<Q extends Message, R extends Message, T>(
  api: Api<Q, R>,
  version: number,
  value: EncodableOf<Q>,
  shown: (answer: MessageOf<R>) => T,
): Promise<T> {
  const deadline = Date.now() + LIMIT_MS;
  for (;;) {
    const { guest, apache } = await both(api, version, value);
    const [ours, theirs] = [shown(guest), shown(apache)];
    if (isDeepStrictEqual(ours, theirs)) return ours;
    if (Date.now() > deadline) assert.deepEqual(ours, theirs);
    await sleep(50);
  }
}

async function until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + LIMIT_MS;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`not within ${LIMIT_MS} ms: ${what}`);
    await sleep(20);
  }
}

function byKey<T>(items: readonly T[], key: (item: T) => string | number): T[] {
  return [...items].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

const CreateTopics = { request: CreateTopicsRequest, response: CreateTopicsResponse };

test('G9: topics are made, enlarged and deleted through the guest', { skip }, async () => {
  const topics = ['a', 'b', 'gone'].map((name) => ({
    name,
    numPartitions: 2,
    replicationFactor: 2,
    assignments: [],
    configs: [{ name: 'retention.ms', value: '99000' }],
  }));
  const made = await askGuest(CreateTopics, 7, services, { topics, timeoutMs: 5_000 });
  assert.deepEqual(
    made.topics.map(({ name, errorCode }) => [name, errorCode]),
    [
      ['a', 0],
      ['b', 0],
      ['gone', 0],
    ],
  );
  const again = await askGuest(CreateTopics, 7, services, { topics, timeoutMs: 5_000 });
  assert.equal(again.topics[0]?.errorCode, errors.TOPIC_ALREADY_EXISTS.code);
  const more = await askGuest(CreatePartitions, 3, services, {
    topics: [{ name: 'b', count: 4, assignments: null }],
    timeoutMs: 5_000,
    validateOnly: false,
  });
  assert.equal(more.results[0]?.errorCode, 0);
  const gone = await askGuest(DeleteTopics, 6, services, {
    topics: [{ name: 'gone', topicId: 'AAAAAAAAAAAAAAAAAAAAAA' as Uuid }],
    timeoutMs: 5_000,
  });
  assert.equal(gone.responses[0]?.errorCode, 0);
  const { topicsByName } = loader.image;
  await until('the metadata shows it', () => !loader.image.topicsByName.has('gone'));
  assert.deepEqual([...loader.image.topicsByName.keys()].sort(), ['a', 'b']);
  assert.equal(loader.image.topicsByName.get('b')?.partitions.size, 4);
  assert.ok(topicsByName instanceof Map);
});

test('what is offered of forwarding is what this controller serves', { skip }, async () => {
  const ranges = [...(await controller.apis())].map(([apiKey, range]) => ({
    apiKey,
    minVersion: range.minVersion,
    maxVersion: range.maxVersion,
  }));
  const keys = new Set(guestApisWith(ranges).map(({ apiKey }) => apiKey));
  const forwarded = [19, 20, 30, 31, 33, 37, 43, 44, 45, 46, 49, 51, 55, 57, 64, 80, 81];
  assert.deepEqual(
    forwarded.filter((key) => !keys.has(key)),
    [],
  );
});

test('Metadata, DescribeCluster and DescribeTopicPartitions tell the same', { skip }, async () => {
  const named = { topics: [{ name: 'a' }, { name: 'b' }], allowAutoTopicCreation: false };
  const told = await agree(Metadata, 12, named, ({ topics, brokers, clusterId }) => ({
    clusterId,
    brokers: byKey(brokers, ({ nodeId }) => nodeId),
    topics: byKey(topics, ({ name }) => name ?? '').map((topic) => ({
      ...topic,
      partitions: byKey(topic.partitions, (each) => each.partitionIndex),
    })),
  }));
  assert.equal(told.clusterId, cluster.clusterId);
  assert.deepEqual(
    told.topics.map(({ errorCode, partitions }) => [errorCode, partitions.length]),
    [
      [0, 2],
      [0, 4],
    ],
  );

  const described = await both(DescribeCluster, 2, {
    endpointType: 1,
    includeClusterAuthorizedOperations: false,
  });
  const { controllerId: ours, ...shown } = described.guest;
  const { controllerId: theirs, ...expected } = described.apache;
  assert.deepEqual(shown, { ...expected, brokers: byKey(expected.brokers, (b) => b.brokerId) });
  const ids = cluster.brokers.map(({ id }) => id);
  assert.ok(ids.includes(ours) && ids.includes(theirs));

  const request = { topics: [{ name: 'b' }], responsePartitionLimit: 3 };
  const pages = await both(DescribeTopicPartitions, 0, request);
  assert.deepEqual(pages.guest.nextCursor, pages.apache.nextCursor);
  assert.deepEqual(pages.guest.topics[0]?.partitions, pages.apache.topics[0]?.partitions);
});

test('G9: coordinators are those that Apache names, once their topic is there', {
  skip,
}, async () => {
  const find = (keyType: number, coordinatorKeys: string[]) => ({ keyType, coordinatorKeys });
  const first = await askGuest(FindCoordinator, 6, services, find(1, ['tx']));
  assert.ok(
    [0, errors.COORDINATOR_NOT_AVAILABLE.code].includes(first.coordinators[0]?.errorCode ?? -1),
  );
  const keys = Array.from({ length: 20 }, (_, i) => `key-${i * 7919}`);
  const topicId = loader.image.topicsByName.get('a')?.id;
  const shares = keys.map((key, i) => `${key}:${topicId}:${i}`);
  for (const [keyType, asked] of [
    [0, keys],
    [1, keys],
    [2, shares],
  ] as const) {
    await until(`coordinators of type ${keyType}`, async () => {
      const request = find(keyType, [...asked]);
      const answer = await agree(FindCoordinator, 6, request, ({ coordinators }) =>
        coordinators.map(({ key, errorCode, nodeId, port }) => [key, errorCode, nodeId, port]),
      );
      return answer.every(([, errorCode]) => errorCode === 0);
    });
  }
});

test('configs: changed through the guest, shown and listed as by Apache', { skip }, async () => {
  const alter = {
    request: IncrementalAlterConfigsRequest,
    response: IncrementalAlterConfigsResponse,
  };
  const set = (resourceType: number, resourceName: string, name: string, value: string) => ({
    resourceType,
    resourceName,
    configs: [{ name, configOperation: 0, value }],
  });
  const answer = await askGuest(alter, 1, services, {
    resources: [
      set(2, 'a', 'segment.bytes', '2097152'),
      set(4, '', 'log.cleaner.threads', '2'),
      set(32, 'g', 'share.auto.offset.reset', 'earliest'),
      set(16, 'm', 'interval.ms', '1000'),
      set(2, 'b', 'mirror.name', 'm'),
    ],
    validateOnly: false,
  });
  assert.deepEqual(
    answer.responses.map(({ errorCode }) => errorCode).sort((a, b) => a - b),
    [0, 0, 0, 0, errors.INVALID_CONFIG.code],
  );
  const seen = () => loader.image.configs(2, 'a').get('segment.bytes') === '2097152';
  await until('the metadata shows the config', seen);
  const resources = [{ resourceType: 2, resourceName: 'a', configurationKeys: null }];
  const overrides = await agree(DescribeConfigs, 4, { resources }, ({ results }) =>
    byKey(results[0]?.configs ?? [], ({ name }) => name)
      .filter(({ configSource }) => configSource === 1)
      .map(({ name, value, isSensitive }) => [name, value, isSensitive]),
  );
  assert.deepEqual(overrides, [
    ['retention.ms', '99000', false],
    ['segment.bytes', '2097152', false],
  ]);
  const list = { request: ListConfigResourcesRequest, response: ListConfigResourcesResponse };
  for (const [resourceTypes, count] of [
    [[32], 1],
    [[16], 1],
    [[4, 8], 2 * cluster.brokers.length],
    [[], undefined],
  ] as const) {
    const names = await agree(list, 1, { resourceTypes: [...resourceTypes] }, (answer) =>
      answer.configResources.map((each) => `${each.resourceType} ${each.resourceName}`).sort(),
    );
    assert.equal(names.length, count ?? names.length);
  }
});

test('leaders, reassignments and the quorum are the controller’s answers', { skip }, async () => {
  const elect = { request: ElectLeadersRequest, response: ElectLeadersResponse };
  const topicPartitions = [{ topic: 'a', partitions: [0, 9] }];
  const elected = await askGuest(elect, 2, services, { electionType: 0, topicPartitions });
  const codes = elected.replicaElectionResults[0]?.partitionResult.map((each) => each.errorCode);
  assert.deepEqual(codes, [
    errors.ELECTION_NOT_NEEDED.code,
    errors.UNKNOWN_TOPIC_OR_PARTITION.code,
  ]);

  const reassign = {
    request: AlterPartitionReassignmentsRequest,
    response: AlterPartitionReassignmentsResponse,
  };
  const swapped = await askGuest(reassign, 1, services, {
    topics: [{ name: 'a', partitions: [{ partitionIndex: 0, replicas: [77] }] }],
  });
  const [refused] = swapped.responses[0]?.partitions ?? [];
  assert.equal(refused?.errorCode, errors.INVALID_REPLICA_ASSIGNMENT.code);
  const listed = await both(ListPartitionReassignments, 0, { topics: null });
  assert.deepEqual(listed.guest, listed.apache);

  const quorum = { request: DescribeQuorumRequest, response: DescribeQuorumResponse };
  const topics = [{ topicName: '__cluster_metadata', partitions: [{ partitionIndex: 0 }] }];
  const { guest, apache } = await both(quorum, 2, { topics });
  const votersOf = ({ topics: [topic] }: typeof guest) =>
    topic?.partitions[0]?.currentVoters.map(({ replicaId }) => replicaId);
  assert.deepEqual(
    votersOf(guest),
    cluster.controllers.map(({ id }) => id),
  );
  assert.deepEqual([votersOf(guest), guest.nodes], [votersOf(apache), apache.nodes]);
  const unregister = { request: UnregisterBrokerRequest, response: UnregisterBrokerResponse };
  const unknown = await askGuest(unregister, 0, services, { brokerId: 77 });
  assert.equal(unknown.errorCode, errors.BROKER_ID_NOT_REGISTERED.code);
});

test('ACLs, credentials and quotas are shown as by Apache', { skip }, async () => {
  const acls = { request: DescribeAclsRequest, response: DescribeAclsResponse };
  const any = { resourceNameFilter: null, principalFilter: null, hostFilter: null };
  const filter = {
    ...any,
    resourceTypeFilter: 1,
    patternTypeFilter: 1,
    operation: 1,
    permissionType: 1,
  };
  const described = await both(acls, 3, filter);
  assert.equal(described.guest.errorCode, errors.SECURITY_DISABLED.code);
  assert.equal(described.apache.errorCode, errors.SECURITY_DISABLED.code);

  const server = ['--bootstrap-server', cluster.bootstrap, '--alter'];
  const secret = 'SCRAM-SHA-512=[iterations=8192,password=secret]';
  const user = ['--entity-type', 'users', '--entity-name', 'alice'];
  await tool('configs', [...server, ...user, '--add-config', secret]);
  const both2 = [...user, '--entity-type', 'clients', '--entity-name', 'app'];
  await tool('configs', [...server, ...both2, '--add-config', 'producer_byte_rate=1024']);
  const defaults = ['--entity-type', 'users', '--entity-default'];
  await tool('configs', [...server, ...defaults, '--add-config', 'request_percentage=50']);
  await until('the metadata shows them', () => loader.image.security.clientQuotas.size === 2);

  const scram = {
    request: DescribeUserScramCredentialsRequest,
    response: DescribeUserScramCredentialsResponse,
  };
  const all = await agree(scram, 0, { users: null }, (answer) => answer);
  assert.equal(all.results[0]?.credentialInfos[0]?.iterations, 8192);
  const users = [{ name: 'alice' }, { name: 'bob' }];
  const codes = await agree(scram, 0, { users }, ({ results }) =>
    byKey(results, (each) => each.user).map(({ errorCode }) => errorCode),
  );
  assert.deepEqual(codes, [0, errors.RESOURCE_NOT_FOUND.code]);

  const quotas = { request: DescribeClientQuotasRequest, response: DescribeClientQuotasResponse };
  const exact = { entityType: 'user', matchType: 0, match: 'alice' };
  const byDefault = { entityType: 'user', matchType: 1, match: null };
  for (const [components, strict] of [
    [[], false],
    [[exact], false],
    [[exact], true],
    [[byDefault], false],
    [[{ entityType: 'client-id', matchType: 2, match: null }], false],
    [[exact, exact], false],
    [[{ ...exact, matchType: 3 }], false],
    [[{ entityType: 'planet', matchType: 2, match: null }], false],
  ] as const) {
    await agree(quotas, 1, { components: [...components], strict }, ({ errorCode, entries }) => ({
      errorCode,
      entries: byKey(
        (entries ?? []).map(({ entity, values }) => ({
          entity: byKey(entity, (each) => each.entityType),
          values,
        })),
        (each) => JSON.stringify(each),
      ),
    }));
  }
});

test('a topic that a client asks for is made by Apache, with its settings', { skip }, async () => {
  const ask = () =>
    askGuest(Metadata, 12, services, {
      topics: [{ name: 'wished' }],
      allowAutoTopicCreation: true,
    });
  await until('the topic is there', async () => (await ask()).topics[0]?.errorCode === 0);
  const partitions = loader.image.topicsByName.get('wished')?.partitions;
  const replicas = partitions?.get(0)?.replicas.length;
  assert.deepEqual([partitions?.size, replicas], [1, cluster.brokers.length]);
});
