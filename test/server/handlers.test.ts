/** Handlers of clients' APIs over fakes: what they answer, in every version. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import type { MetadataImage } from '../../src/metadata/image.ts';
import { errors } from '../../src/protocol/errors.ts';
import type { CreateTopicsRequest } from '../../src/protocol/messages/19-create-topics.ts';
import type { FetchParams } from '../../src/replication/fetch-types.ts';
import { NO_RESPONSE } from '../../src/server/api-handler.ts';
import { apiTable, listedApis } from '../../src/server/api-table.ts';
import { InternalTopics } from '../../src/server/internal-topics.ts';
import { UnanswerableRequest } from '../../src/server/socket-server.ts';
import {
  ask,
  call,
  DescribeCluster,
  Fetch,
  FindCoordinator,
  handlerOf,
  ListOffsets,
  Metadata,
  Produce,
  servicesOf,
  versionsOf,
} from './call.ts';
import { brokerRecord, fakeController, imageOf, topicRecords, uuidOf } from './fakes.ts';

test('one handler file per served API, named by its key; ApiVersions lists them in order', () => {
  const files = readdirSync(new URL('../../src/server/handlers', import.meta.url));
  const keys = files.map((file) => Number(file.split('-')[0])).sort((a, b) => a - b);
  assert.deepEqual(
    [...apiTable.keys()].sort((a, b) => a - b),
    keys,
  );
  assert.deepEqual(
    listedApis.map(({ apiKey }) => apiKey),
    keys,
  );
  for (const { request, response, versions, unlistedVersions } of apiTable.values()) {
    const max = Math.max(versions.max, unlistedVersions.max);
    for (const schema of [request, response]) {
      assert.ok(versions.min >= schema.versions.min && max <= schema.versions.max, schema.name);
    }
  }
});

test('A9: CreateTopics 8 is served and not listed', () => {
  const { versions, unlistedVersions } = handlerOf(19);
  assert.deepEqual([versions.max, unlistedVersions.min, unlistedVersions.max], [7, 8, 8]);
});

const LEADER_2 = { leaderId: 2, leaderEpoch: 5 };
const TWO_BROKERS = imageOf([brokerRecord(1), brokerRecord(2), ...topicRecords(1, 't', 1, 2)]);

test('Produce: every version can say that another broker leads', async () => {
  const produced = {
    topic: 't',
    topicId: uuidOf(1),
    partition: 0,
    error: errors.NOT_LEADER_OR_FOLLOWER.code,
    message: 'elsewhere',
    recordErrors: [{ batchIndex: 3, message: 'bad' }],
    baseOffset: -1,
    logAppendTimeMs: -1,
    logStartOffset: -1,
    currentLeader: LEADER_2,
  };
  const replicas = { produce: () => Promise.resolve([produced]) };
  for (const version of versionsOf(Produce)) {
    const partitionData = [{ index: 0, records: new Uint8Array(70) }];
    const topic = version >= 13 ? { topicId: uuidOf(1) } : { name: 't' };
    const answer = await ask(Produce, version, servicesOf({ image: TWO_BROKERS, replicas }), {
      acks: 1,
      timeoutMs: 10,
      topicData: [{ ...topic, partitionData }],
    });
    const partition = answer.responses[0]?.partitionResponses[0];
    assert.equal(partition?.errorCode, errors.NOT_LEADER_OR_FOLLOWER.code, `v${version}`);
    assert.equal(partition?.errorMessage, version >= 8 ? 'elsewhere' : null);
    assert.deepEqual(
      [partition?.currentLeader.leaderId, answer.nodeEndpoints.map((each) => each.host)],
      version >= 10 ? [2, ['host2']] : [-1, []],
    );
  }
});

test('Produce: answers keep the order of the request; what is not appended says why', async () => {
  const appended: unknown[] = [];
  const replicas = {
    produce: (params: unknown, entries: { partition: number }[]) => {
      appended.push(params, entries.length);
      return Promise.resolve(
        entries.map(({ partition }) => ({ partition, error: 0, baseOffset: 40 + partition })),
      );
    },
  };
  const records = new Uint8Array(70);
  const answer = await ask(Produce, 13, servicesOf({ image: TWO_BROKERS, replicas }), {
    acks: -1,
    timeoutMs: 10,
    topicData: [
      { topicId: uuidOf(9), partitionData: [{ index: 0, records }] },
      {
        topicId: uuidOf(1),
        partitionData: [
          { index: 1, records },
          { index: 2, records: null },
          { index: 3, records },
        ],
      },
    ],
  });
  const seen = answer.responses.map(({ topicId, partitionResponses }) => [
    topicId,
    ...partitionResponses.map((each) => [each.index, each.errorCode, each.baseOffset]),
  ]);
  assert.deepEqual(seen, [
    [uuidOf(9), [0, errors.UNKNOWN_TOPIC_ID.code, -1]],
    [uuidOf(1), [1, 0, 41], [2, errors.INVALID_RECORD.code, -1], [3, 0, 43]],
  ]);
  assert.deepEqual(appended, [{ acks: -1, timeoutMs: 10, source: 'client' }, 2]);
});

test('Produce with acks=0 has no answer; a failure ends the connection', async () => {
  const request = {
    acks: 0,
    timeoutMs: 10,
    topicData: [{ name: 't', partitionData: [{ index: 0, records: new Uint8Array(70) }] }],
  };
  const producing = (error: number) =>
    servicesOf({ replicas: { produce: () => Promise.resolve([{ partition: 0, error }]) } });
  assert.equal(await call(Produce, 7, producing(0), request), NO_RESPONSE);
  const failing = call(Produce, 7, producing(errors.NOT_LEADER_OR_FOLLOWER.code), request);
  await assert.rejects(failing, UnanswerableRequest);
});

test('Fetch: every version can say that another broker leads and where logs diverged', async () => {
  const result = {
    topic: 't',
    topicId: ZERO_UUID,
    partition: 0,
    error: errors.FENCED_LEADER_EPOCH.code,
    highWatermark: -1,
    lastStableOffset: -1,
    logStartOffset: -1,
    records: [],
    currentLeader: LEADER_2,
    divergingEpoch: { epoch: 4, endOffset: 10 },
    abortedTransactions: [{ producerId: -5n, firstOffset: 7 }],
  };
  for (const version of versionsOf(Fetch)) {
    const fetchSessions = { fetch: () => Promise.resolve({ sessionId: 0, results: [result] }) };
    const services = servicesOf({ image: TWO_BROKERS, fetchSessions });
    const request = { maxWaitMs: 0, minBytes: 0, topics: [], forgottenTopicsData: [] };
    const answer = await ask(Fetch, version, services, request);
    const partition = answer.responses[0]?.partitions[0];
    assert.equal(partition?.errorCode, errors.FENCED_LEADER_EPOCH.code, `v${version}`);
    assert.equal(partition?.abortedTransactions?.[0]?.producerId, -5n);
    assert.deepEqual(
      [partition?.currentLeader.leaderId, partition?.divergingEpoch.endOffset],
      version >= 12 ? [2, 10] : [-1, -1],
    );
    assert.equal(answer.nodeEndpoints.length, version >= 16 ? 1 : 0);
  }
});

test('Fetch: fetch.max.bytes bounds what is asked; followers of either form', async () => {
  const seen: unknown[] = [];
  const fetchSessions = {
    fetch: (_request: unknown, params: FetchParams) => {
      seen.push([params.replicaId, params.maxBytes, params.readCommitted]);
      return Promise.resolve({ error: errors.FETCH_SESSION_ID_NOT_FOUND.code, sessionId: 3 });
    },
  };
  const services = servicesOf({ fetchSessions, settings: { 'fetch.max.bytes': '2000' } });
  const rest = { maxWaitMs: 0, minBytes: 0, maxBytes: 9999, topics: [], forgottenTopicsData: [] };
  const answer = await ask(Fetch, 12, services, { ...rest, isolationLevel: 1, replicaId: 4 });
  assert.equal(answer.errorCode, errors.FETCH_SESSION_ID_NOT_FOUND.code);
  await ask(Fetch, 17, services, { ...rest, maxBytes: 10, replicaState: { replicaId: 6 } });
  assert.deepEqual(seen, [
    [4, 2000, true],
    [6, 10, false],
  ]);
});

test('ListOffsets: a version refuses the special timestamps it does not know', async () => {
  const listed = { error: 0, timestamp: 5n, offset: 6, leaderEpoch: 7 };
  const replicas = { listOffsets: (_: unknown, queries: unknown[]) => queries.map(() => listed) };
  const specs = [-1n, -3n, -4n, -5n];
  const refused: Record<number, number> = {};
  for (const version of versionsOf(ListOffsets)) {
    const partitions = specs.map((timestamp, partitionIndex) => ({ partitionIndex, timestamp }));
    const answer = await ask(ListOffsets, version, servicesOf({ replicas }), {
      topics: [{ name: 't', partitions }],
      replicaId: -1,
      isolationLevel: 0,
    });
    const answered = answer.topics[0]?.partitions ?? [];
    refused[version] = answered.filter(({ errorCode }) => errorCode !== 0).length;
    assert.equal(answered[0]?.leaderEpoch, version >= 4 ? 7 : -1);
  }
  assert.deepEqual(Object.values(refused), [3, 3, 3, 3, 3, 3, 2, 1, 0, 0, 0]);
});

function metadataServices(settings: Record<string, string> = {}) {
  const forwarded: unknown[] = [];
  const before = [brokerRecord(2), brokerRecord(1), brokerRecord(3, true)];
  const metadata = { image: imageOf([...before, ...topicRecords(1, 't', 2)]) };
  const controller = fakeController({
    forward: (apiKey, _version, request) => {
      const { topics } = request as CreateTopicsRequest;
      forwarded.push([apiKey, topics.map(({ name }) => name)]);
      const answers = topics.map(({ name }) => ({
        name,
        errorCode: name === 'new' ? 0 : errors.INVALID_TOPIC_EXCEPTION.code,
      }));
      metadata.image = imageOf([...before, ...topicRecords(2, 'new', 1)]);
      return Promise.resolve({ topics: answers });
    },
  });
  return { forwarded, services: servicesOf({ settings, metadata, controller }) };
}

test('Metadata: unknown names are created, each error stays with its name', async () => {
  const { services, forwarded } = metadataServices();
  const topics = ['new', '../x', 'new'].map((name) => ({ name }));
  const answer = await ask(Metadata, 9, services, { topics, allowAutoTopicCreation: true });
  assert.deepEqual(forwarded, [[19, ['new', '../x']]]);
  assert.deepEqual(
    answer.topics.map((each) => [each.name, each.errorCode, each.partitions.length]),
    [
      ['new', 0, 1],
      ['../x', errors.INVALID_TOPIC_EXCEPTION.code, 0],
      ['new', 0, 1],
    ],
  );
});

test('Metadata: nothing is created when the client or the broker does not want it', async () => {
  const request = { topics: [{ name: 'new' }] };
  const off = metadataServices({ 'auto.create.topics.enable': 'False' });
  for (const [setup, allow] of [
    [metadataServices(), false],
    [off, true],
  ] as const) {
    const answer = await ask(Metadata, 4, setup.services, {
      ...request,
      allowAutoTopicCreation: allow,
    });
    assert.equal(answer.topics[0]?.errorCode, errors.UNKNOWN_TOPIC_OR_PARTITION.code);
    assert.deepEqual(setup.forwarded, []);
  }
});

test('Metadata: null means all, in version 0 an empty list does; by id from 12', async () => {
  const { services } = metadataServices();
  for (const version of versionsOf(Metadata)) {
    const all = await ask(Metadata, version, services, { topics: version === 0 ? [] : null });
    const [topic] = all.topics;
    assert.deepEqual([topic?.name, topic?.partitions.length], ['t', 2], `v${version}`);
    assert.deepEqual(
      all.brokers.map(({ nodeId }) => nodeId),
      [1, 2],
    );
    assert.equal(topic?.partitions[1]?.leaderId, 1);
    if (version === 0) continue;
    assert.deepEqual((await ask(Metadata, version, services, { topics: [] })).topics, []);
    if (version < 10) continue;
    const asked = await ask(Metadata, version, services, {
      topics: [
        { name: null, topicId: uuidOf(1) },
        { name: null, topicId: uuidOf(8) },
      ],
    });
    assert.deepEqual(
      asked.topics.map((each) => [each.name, each.errorCode]),
      version >= 12
        ? [
            ['t', 0],
            [null, errors.UNKNOWN_TOPIC_ID.code],
          ]
        : Array(2).fill(['', errors.INVALID_REQUEST.code]),
    );
  }
});

test('cluster view: a fenced broker is offline, a partition without leader says so', async () => {
  const image = imageOf([brokerRecord(1), brokerRecord(2, true), ...topicRecords(1, 't', 1, -1)]);
  const { topics, brokers, controllerId } = await ask(Metadata, 12, servicesOf({ image }), {
    topics: null,
  });
  const partition = topics[0]?.partitions[0];
  assert.equal(partition?.errorCode, errors.LEADER_NOT_AVAILABLE.code);
  assert.deepEqual([partition?.leaderId, partition?.leaderEpoch], [-1, 5]);
  assert.deepEqual([partition?.replicaNodes, partition?.isrNodes], [[1, 2], [1]]);
  assert.deepEqual(partition?.offlineReplicas, [2]);
  assert.deepEqual([brokers.length, brokers[0]?.host, controllerId], [1, 'host1', 1]);
  const elsewhere = await ask(Metadata, 12, servicesOf({ image }), { topics: null }, 'OTHER');
  assert.deepEqual([elsewhere.brokers, elsewhere.controllerId], [[], -1]);
});

const NO_OPERATIONS = { includeClusterAuthorizedOperations: false };

test('DescribeCluster: fenced brokers on request, only broker endpoints', async () => {
  const image = imageOf([brokerRecord(1), brokerRecord(2, true)]);
  for (const version of versionsOf(DescribeCluster)) {
    const answer = await ask(DescribeCluster, version, servicesOf({ image }), NO_OPERATIONS);
    assert.deepEqual([answer.clusterId, answer.brokers.length], ['test-cluster', 1]);
  }
  const all = await ask(DescribeCluster, 2, servicesOf({ image }), {
    ...NO_OPERATIONS,
    includeFencedBrokers: true,
  });
  assert.deepEqual(
    all.brokers.map(({ brokerId, isFenced }) => [brokerId, isFenced]),
    [
      [1, false],
      [2, true],
    ],
  );
  const wrong = await ask(DescribeCluster, 1, servicesOf({ image }), {
    ...NO_OPERATIONS,
    endpointType: 2,
  });
  assert.equal(wrong.errorCode, errors.MISMATCHED_ENDPOINT_TYPE.code);
});

function coordinatorServices(error: number) {
  const ensured: string[] = [];
  const image = imageOf([
    brokerRecord(1),
    ...topicRecords(1, '__consumer_offsets', 2),
    ...topicRecords(2, '__mirror_state', 1, -1),
  ]);
  const services = servicesOf({
    image,
    internalTopics: { ensure: (name: string) => Promise.resolve(ensured.push(name) && error) },
    groups: { partitionFor: (key: string) => (key === 'far' ? 7 : 1) },
    mirrors: { partitionForKey: (key: string) => (key === 'bad' ? undefined : 0) },
  });
  return { services, ensured };
}

test('FindCoordinator: the leader of the key’s partition, in both forms', async () => {
  const { services, ensured } = coordinatorServices(0);
  for (const version of versionsOf(FindCoordinator)) {
    const batched = version >= 4;
    const answer = await ask(FindCoordinator, version, services, {
      ...(batched ? { coordinatorKeys: ['g', 'far'] } : { key: 'g' }),
    });
    const [first, second] = batched ? answer.coordinators : [answer];
    assert.deepEqual(
      [first?.errorCode, first?.nodeId, first?.host, first?.port],
      [0, 1, 'host1', 9001],
    );
    if (batched) assert.equal(second?.errorCode, errors.COORDINATOR_NOT_AVAILABLE.code);
  }
  assert.deepEqual([...new Set(ensured)], ['__consumer_offsets']);
});

test('C3: FindCoordinator refuses bad mirror keys, old versions, other types', async () => {
  const { services } = coordinatorServices(0);
  const codeOf = async (version: number, keyType: number, key: string) => {
    const keys = version >= 4 ? { coordinatorKeys: [key] } : { key };
    const answer = await ask(FindCoordinator, version, services, { keyType, ...keys });
    return (version >= 4 ? answer.coordinators[0] : answer)?.errorCode;
  };
  const invalid = errors.INVALID_REQUEST.code;
  assert.equal(await codeOf(4, 64, 'bad'), invalid);
  assert.equal(await codeOf(3, 64, 'm:t:0'), invalid);
  assert.equal(await codeOf(6, 1, 'tx'), invalid);
  assert.equal(await codeOf(6, 64, 'm:t:0'), errors.COORDINATOR_NOT_AVAILABLE.code, 'no leader');
  const refused = coordinatorServices(errors.INVALID_REPLICATION_FACTOR.code).services;
  const answer = await ask(FindCoordinator, 4, refused, { coordinatorKeys: ['g'] });
  assert.equal(answer.coordinators[0]?.errorCode, errors.COORDINATOR_NOT_AVAILABLE.code);
});

test('C1: internal topics are made once, compacted, replicas as brokers live', async () => {
  const requests: CreateTopicsRequest['topics'] = [];
  let code = errors.TOPIC_ALREADY_EXISTS.code as number;
  const controller = fakeController({
    forward: (_key, _version, request) => {
      requests.push(...(request as CreateTopicsRequest).topics);
      return Promise.resolve({ topics: [{ errorCode: code }] });
    },
  });
  const ensure = (image: MetadataImage) => {
    const { config, metadata } = servicesOf({ image });
    return new InternalTopics(config, controller, metadata).ensure('__mirror_state');
  };
  const live = [brokerRecord(1), brokerRecord(2), brokerRecord(3, true)];
  assert.equal(await ensure(imageOf(live)), 0, 'somebody else was faster');
  assert.deepEqual([requests[0]?.numPartitions, requests[0]?.replicationFactor], [50, 2]);
  assert.deepEqual(requests[0]?.configs[0], { name: 'cleanup.policy', value: 'compact' });
  code = errors.INVALID_CONFIG.code;
  assert.equal(await ensure(imageOf(live)), code);
  assert.equal(await ensure(imageOf([])), errors.COORDINATOR_NOT_AVAILABLE.code);
  assert.equal(await ensure(imageOf(topicRecords(1, '__mirror_state', 1))), 0);
  assert.equal(requests.length, 2);
});
