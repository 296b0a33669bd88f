/** A guest's own handlers over fakes: what they answer to whom. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { type MetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import { parseTransactionMarker } from '../../src/protocol/control-record.ts';
import { errors } from '../../src/protocol/errors.ts';
import {
  WriteTxnMarkersRequest,
  WriteTxnMarkersResponse,
} from '../../src/protocol/messages/27-write-txn-markers.ts';
import {
  AlterReplicaLogDirsRequest,
  AlterReplicaLogDirsResponse,
} from '../../src/protocol/messages/34-alter-replica-log-dirs.ts';
import {
  DescribeLogDirsRequest,
  DescribeLogDirsResponse,
} from '../../src/protocol/messages/35-describe-log-dirs.ts';
import {
  ListTransactionsRequest,
  ListTransactionsResponse,
} from '../../src/protocol/messages/66-list-transactions.ts';
import {
  ListConfigResourcesRequest,
  ListConfigResourcesResponse,
} from '../../src/protocol/messages/74-list-config-resources.ts';
import {
  ShareFetchRequest,
  ShareFetchResponse,
} from '../../src/protocol/messages/78-share-fetch.ts';
import {
  ShareAcknowledgeRequest,
  ShareAcknowledgeResponse,
} from '../../src/protocol/messages/79-share-acknowledge.ts';
import { buildRecordBatch, decodeRecords } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { ProduceEntry, ProduceParams } from '../../src/replication/produce.ts';
import {
  ApiVersions,
  DescribeConfigs,
  FindCoordinator,
  InitProducerId,
  Metadata,
  Produce,
  servicesOf,
} from './call.ts';
import {
  brokerRecord,
  configRecord,
  fakeRuntime,
  imageOf,
  ManualClock,
  settle,
  topicRecords,
  uuidOf,
} from './fakes.ts';
import { askGuest, guestVersions } from './guest-call.ts';

const { BROKER, CLIENT_METRICS, GROUP, TOPIC } = ConfigResourceType;
const NOT_LEADER = errors.NOT_LEADER_OR_FOLLOWER.code;
const GUEST = 201;

/** A topic whose partitions are led by these brokers. */
function ledBy(n: number, name: string, leaders: readonly number[]): MetadataRecord[] {
  const changes = leaders.map((leader, partitionId) =>
    metadataRecord('PartitionChangeRecord', { topicId: uuidOf(n), partitionId, leader }),
  );
  return [...topicRecords(n, name, leaders.length), ...changes];
}

function askingFor(names: string[], answer = new Map<string, number>()) {
  return {
    askForTopics: (asked: readonly string[]) => {
      names.push(...asked);
      return Promise.resolve(answer);
    },
    askForCoordinator: (keyType: number, key: string) => {
      names.push(`${keyType} ${key}`);
      return Promise.resolve();
    },
  };
}

// --- coordinators -------------------------------------------------------------------------------

const COORDINATED = imageOf([
  brokerRecord(1),
  brokerRecord(2),
  brokerRecord(GUEST),
  configRecord(BROKER, String(GUEST), 'twinlog.guest', 'true'),
  // "abc".hashCode() is 96354 in Java: partition 2 of 4, 0 of 3.
  ...ledBy(1, '__consumer_offsets', [1, 1, 2, 1]),
  ...ledBy(2, '__transaction_state', [2, 1, 1]),
  ...ledBy(4, 'mirrored', [GUEST, 1]),
]);

async function findIn(keyType: number, keys: string[], version = 6, image = COORDINATED) {
  const asked: string[] = [];
  const services = servicesOf({ image, brokerId: GUEST, guest: askingFor(asked) });
  const batched = version >= 4 ? { keyType, coordinatorKeys: keys } : { keyType, key: keys[0] };
  const answer = await askGuest(FindCoordinator, version, services, batched);
  const found = version >= 4 ? answer.coordinators : [answer];
  return { asked, found: found.map(({ errorCode, nodeId }) => [errorCode, nodeId]) };
}

test('G9: coordinators are the leaders of the partitions that Kafka hashes keys to', async () => {
  for (const version of guestVersions(FindCoordinator)) {
    if (version > 0) assert.deepEqual((await findIn(1, ['abc'], version)).found, [[0, 2]]);
    assert.deepEqual((await findIn(0, ['abc'], version)).found, [[0, 2]], `version ${version}`);
  }
  // The smallest integer has no absolute value; Kafka takes 0.
  const { found } = await findIn(0, ['polygenelubricants', 'abc']);
  assert.deepEqual(found, [
    [0, 1],
    [0, 2],
  ]);
});

test('a missing coordinator topic is asked of Apache; share keys have a form', async () => {
  const key = `sg:${uuidOf(4)}:0`;
  const missing = await findIn(2, [key]);
  const unavailable = errors.COORDINATOR_NOT_AVAILABLE.code;
  assert.deepEqual(missing, { asked: [`2 ${key}`], found: [[unavailable, -1]] });
  const records = [brokerRecord(1), ...ledBy(3, '__share_group_state', [1])];
  assert.deepEqual((await findIn(2, [key], 6, imageOf(records))).found, [[0, 1]]);
  const invalid = errors.INVALID_REQUEST.code;
  assert.deepEqual((await findIn(2, ['sg', 'a:b:c'])).found, [
    [invalid, -1],
    [invalid, -1],
  ]);
  assert.deepEqual((await findIn(2, [key], 5)).found, [[invalid, -1]]);
  assert.deepEqual((await findIn(3, ['x'])).found, [[invalid, -1]]);
});

test('C3: a mirror partition is asked of the guest that leads it, else of this one', async () => {
  const keys = [`m:${uuidOf(4)}:0`, `m:${uuidOf(4)}:1`, `m:${uuidOf(9)}:0`];
  const { found } = await findIn(64, keys);
  assert.deepEqual(found, [
    [0, GUEST],
    [0, GUEST],
    [0, GUEST],
  ]);
  assert.deepEqual((await findIn(64, ['m'])).found, [[errors.INVALID_REQUEST.code, -1]]);
});

test('InitProducerId: ids for idempotent producers, none for transactional ones', async () => {
  const producerIds = { next: () => Promise.resolve({ producerId: 7000n }) };
  for (const version of guestVersions(InitProducerId)) {
    const ask = async (transactionalId: string | null) => {
      const request = { transactionalId, transactionTimeoutMs: 1 };
      const answer = await askGuest(InitProducerId, version, servicesOf({ producerIds }), request);
      return [answer.errorCode, answer.producerId, answer.producerEpoch];
    };
    assert.deepEqual(await ask(null), [0, 7000n, 0]);
    assert.deepEqual(await ask('tx'), [errors.NOT_COORDINATOR.code, -1n, -1]);
    assert.deepEqual(await ask(''), [errors.INVALID_REQUEST.code, -1n, -1]);
  }
});

// --- writes -------------------------------------------------------------------------------------

function batch(isTransactional: boolean): Uint8Array {
  const records = [{ key: null, value: Buffer.from('v'), timestamp: 1 }];
  const producer = isTransactional ? { producerId: 5n, producerEpoch: 0, baseSequence: 0 } : {};
  return buildRecordBatch({ records, isTransactional, ...producer });
}

async function produceTo(topic: string, isTransactional: boolean) {
  const image = imageOf([
    brokerRecord(1),
    ...topicRecords(1, 'stray', 1),
    ...topicRecords(2, 'mirrored', 1),
    configRecord(TOPIC, 'mirrored', 'mirror.name', 'm'),
    ...topicRecords(3, 'stopped', 1),
    configRecord(TOPIC, 'stopped', 'mirror.name', 'm.removed'),
  ]);
  const appended: string[] = [];
  const replicas = {
    produce: (_params: ProduceParams, entries: readonly ProduceEntry[]) => {
      appended.push(...entries.map((entry) => entry.topic));
      const error = errors.POLICY_VIOLATION.code;
      const nothing = { baseOffset: -1, logAppendTimeMs: -1, logStartOffset: -1 };
      return Promise.resolve(entries.map((entry) => ({ ...entry, ...nothing, error })));
    },
  };
  const answer = await askGuest(Produce, 12, servicesOf({ image, replicas }), {
    transactionalId: isTransactional ? 'tx' : null,
    acks: -1,
    timeoutMs: 10,
    topicData: [{ name: topic, partitionData: [{ index: 0, records: batch(isTransactional) }] }],
  });
  if (answer === undefined) throw new Error('no answer');
  return [answer.responses[0]?.partitionResponses[0]?.errorCode, appended];
}

test('G8, R3: producers to a stray wait; a mirrored partition refuses by itself', async () => {
  const policy = errors.POLICY_VIOLATION.code;
  assert.deepEqual(await produceTo('stray', false), [NOT_LEADER, []]);
  assert.deepEqual(await produceTo('stray', true), [NOT_LEADER, []]);
  assert.deepEqual(await produceTo('mirrored', false), [policy, ['mirrored']]);
  assert.deepEqual(await produceTo('mirrored', true), [policy, ['mirrored']]);
  assert.deepEqual(await produceTo('stopped', true), [NOT_LEADER, []]);
  assert.deepEqual(await produceTo('stopped', false), [policy, ['stopped']]);
});

const WriteTxnMarkers = { request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse };

test('G10: a marker is written only where its producer has a transaction open', async () => {
  const image = imageOf([brokerRecord(1), ...topicRecords(1, 't', 4)]);
  const open = (ids: bigint[], error = 0) => ({
    leaderError: () => error,
    log: { hasOpenTransaction: (id: bigint) => ids.includes(id) },
  });
  const held = [open([5n]), open([]), open([5n], NOT_LEADER)];
  const written: [ProduceParams, ProduceEntry][] = [];
  const replicas = {
    partition: (topic: string, index: number) => (topic === 't' ? held[index] : undefined),
    produce: (params: ProduceParams, [entry]: readonly ProduceEntry[]) => {
      if (entry !== undefined) written.push([params, entry]);
      return Promise.resolve([{ error: errors.NOT_ENOUGH_REPLICAS.code }]);
    },
  };
  const runtime = fakeRuntime(new ManualClock());
  for (const version of guestVersions(WriteTxnMarkers)) {
    written.length = 0;
    const { markers } = await askGuest(
      WriteTxnMarkers,
      version,
      servicesOf({ image, replicas, runtime }),
      {
        markers: [
          {
            producerId: 5n,
            producerEpoch: 3,
            transactionResult: true,
            coordinatorEpoch: 9,
            topics: [
              { name: 't', partitionIndexes: [0, 1, 2, 3, 4] },
              { name: 'no', partitionIndexes: [0] },
            ],
          },
        ],
      },
    );
    const codes = markers.map(({ producerId, topics }) => [
      producerId,
      topics.map(({ name, partitions }) => [name, partitions.map((each) => each.errorCode)]),
    ]);
    const unknown = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
    const ofT = [errors.NOT_ENOUGH_REPLICAS.code, 0, NOT_LEADER, NOT_LEADER, unknown];
    assert.deepEqual(codes, [
      [
        5n,
        [
          ['t', ofT],
          ['no', [unknown]],
        ],
      ],
    ]);
    const [[params, entry] = []] = written;
    assert.equal(written.length, 1);
    assert.deepEqual([params?.acks, params?.source, entry?.partition], [-1, 'marker', 0]);
    const marker = new RecordBatch(entry?.records ?? new Uint8Array(0));
    assert.deepEqual(
      [marker.producerId, marker.producerEpoch, marker.isControl, marker.isTransactional],
      [5n, 3, true, true],
    );
    const [record] = decodeRecords(marker, runtime.compression, 1_000);
    assert.ok(record !== undefined);
    assert.deepEqual(parseTransactionMarker(record), { commit: true, coordinatorEpoch: 9 });
  }
});

const ShareFetch = { request: ShareFetchRequest, response: ShareFetchResponse };
const ShareAcknowledge = { request: ShareAcknowledgeRequest, response: ShareAcknowledgeResponse };

test('share groups are refused per partition; their fetches are held meanwhile', async () => {
  const clock = new ManualClock();
  const image = imageOf([brokerRecord(1), ...topicRecords(1, 't', 1)]);
  const services = servicesOf({ image, runtime: fakeRuntime(clock) });
  const acknowledgementBatches = [{ firstOffset: 0, lastOffset: 1, acknowledgeTypes: [1] }];
  const topics = [
    { topicId: uuidOf(1), partitions: [{ partitionIndex: 0, acknowledgementBatches }] },
    { topicId: uuidOf(2), partitions: [{ partitionIndex: 0, acknowledgementBatches: [] }] },
  ];
  const fetch = { groupId: 'sg', memberId: 'm', minBytes: 1, forgottenTopicsData: [], topics };
  const sizes = { maxRecords: 10, batchSize: 10, maxWaitMs: 400 };
  const codesOf = (each: { errorCode: number; acknowledgeErrorCode?: number }) => [
    each.errorCode,
    each.acknowledgeErrorCode,
  ];
  const unknown = errors.UNKNOWN_TOPIC_ID.code;
  for (const version of guestVersions(ShareFetch)) {
    let answered = false;
    const asked = askGuest(ShareFetch, version, services, {
      ...fetch,
      ...sizes,
      shareSessionEpoch: 0,
    }).finally(() => {
      answered = true;
    });
    await clock.advance(399);
    assert.equal(answered, false);
    await clock.advance(1);
    await settle();
    const { errorCode, responses } = await asked;
    assert.deepEqual(
      [errorCode, responses.map(({ partitions: [first] }) => first && codesOf(first))],
      [
        0,
        [
          [NOT_LEADER, NOT_LEADER],
          [unknown, 0],
        ],
      ],
    );
    const last = { ...fetch, ...sizes, shareSessionEpoch: -1, topics: [] };
    assert.deepEqual((await askGuest(ShareFetch, version, services, last)).responses, []);
    const acknowledged = await askGuest(ShareAcknowledge, version, services, {
      groupId: 'sg',
      memberId: 'm',
      shareSessionEpoch: 1,
      topics,
    });
    assert.deepEqual(
      acknowledged.responses.map(({ partitions: [first] }) => first?.errorCode),
      [NOT_LEADER, unknown],
    );
  }
});

// --- listings -----------------------------------------------------------------------------------

test('Metadata: a missing topic is asked of Apache, whose word is passed on', async () => {
  const image = imageOf([brokerRecord(1), ...topicRecords(1, 't', 1)]);
  const answerOf = async (settings: Record<string, string>) => {
    const asked: string[] = [];
    const refused = new Map([['bad', errors.INVALID_TOPIC_EXCEPTION.code]]);
    const services = servicesOf({ image, settings, guest: askingFor(asked, refused) });
    const topics = ['t', 'bad', 'new'].map((name) => ({ name }));
    const answer = await askGuest(Metadata, 12, services, { topics });
    return [asked, answer.topics.map(({ errorCode }) => errorCode)];
  };
  const unknown = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  const bad = errors.INVALID_TOPIC_EXCEPTION.code;
  assert.deepEqual(await answerOf({}), [
    ['bad', 'new'],
    [0, bad, unknown],
  ]);
  const off = { 'auto.create.topics.enable': 'false' };
  assert.deepEqual(await answerOf(off), [[], [0, unknown, unknown]]);
});

test('ApiVersions tells the features of the guest as registered', async () => {
  const feature = { name: 'group.version', minSupportedVersion: 0, maxSupportedVersion: 1 };
  const services = servicesOf({ guest: { supportedFeatures: [feature] } });
  const answer = await askGuest(ApiVersions, 4, services, {
    clientSoftwareName: 'x',
    clientSoftwareVersion: '1',
  });
  assert.deepEqual(answer.supportedFeatures, [
    { name: 'group.version', minVersion: 0, maxVersion: 1 },
  ]);
});

const DescribeLogDirs = { request: DescribeLogDirsRequest, response: DescribeLogDirsResponse };
const AlterReplicaLogDirs = {
  request: AlterReplicaLogDirsRequest,
  response: AlterReplicaLogDirsResponse,
};

test('the log directory shows the size of each replica; there is no other to move to', async () => {
  const held = [0, 1].map((partition) => ({
    topic: 't',
    partition,
    log: { sizeBytes: 100 + partition, highWatermark: 5, logEndOffset: 7 },
  }));
  const replicas = {
    partitions: () => held.values(),
    partition: (topic: string, index: number) => (topic === 't' ? held[index] : undefined),
  };
  const settings = { 'log.dirs': '/data' };
  const register = brokerRecord(1);
  assert.ok(register.type === 'RegisterBrokerRecord');
  const logDirs = [uuidOf(50)];
  const value = { ...register.value, logDirs, cordonedLogDirs: logDirs };
  const cordoned = { ...register, value };
  const services = servicesOf({ replicas, settings, image: imageOf([cordoned]) });
  const isCordoned = async (version: number, image = imageOf([cordoned])) => {
    const asked = servicesOf({ replicas, settings, image });
    const { results } = await askGuest(DescribeLogDirs, version, asked, { topics: [] });
    return results[0]?.isCordoned;
  };
  assert.deepEqual([await isCordoned(4), await isCordoned(5)], [false, true]);
  assert.equal(await isCordoned(5, imageOf([register])), false);
  const sizes = async (
    version: number,
    topics: { topic: string; partitions: number[] }[] | null,
  ) => {
    const { results } = await askGuest(DescribeLogDirs, version, services, { topics });
    return results.map(({ logDir, topics: shown }) => [
      logDir,
      shown.flatMap(({ name, partitions }) =>
        partitions.map((each) => `${name}-${each.partitionIndex}: ${each.partitionSize}`),
      ),
    ]);
  };
  for (const version of guestVersions(DescribeLogDirs)) {
    assert.deepEqual(await sizes(version, null), [['/data', ['t-0: 100', 't-1: 101']]]);
    const some = [
      { topic: 't', partitions: [1, 2] },
      { topic: 'u', partitions: [0] },
    ];
    assert.deepEqual(await sizes(version, some), [['/data', ['t-1: 101']]]);
  }
  const topics = [{ name: 't', partitions: [0, 2] }];
  const { results } = await askGuest(AlterReplicaLogDirs, 2, services, {
    dirs: [
      { path: '/data', topics },
      { path: '/other', topics },
    ],
  });
  const absent = errors.LOG_DIR_NOT_FOUND.code;
  assert.deepEqual(
    results.map(({ partitions }) => partitions.map(({ errorCode }) => errorCode)),
    [
      [0, errors.REPLICA_NOT_AVAILABLE.code],
      [absent, absent],
    ],
  );
});

const ListTransactions = { request: ListTransactionsRequest, response: ListTransactionsResponse };
const ListConfigResources = {
  request: ListConfigResourcesRequest,
  response: ListConfigResourcesResponse,
};

test('ListTransactions is empty and names the states it does not know', async () => {
  for (const version of guestVersions(ListTransactions)) {
    const answer = await askGuest(ListTransactions, version, servicesOf({}), {
      stateFilters: ['Ongoing', 'Odd'],
      producerIdFilters: [],
    });
    assert.deepEqual(
      [answer.errorCode, answer.unknownStateFilters, answer.transactionStates],
      [0, ['Odd'], []],
    );
  }
});

const CONFIGURED = imageOf([
  brokerRecord(1),
  ...topicRecords(1, 't', 1),
  configRecord(GROUP, 'g', 'share.auto.offset.reset', 'earliest'),
  configRecord(CLIENT_METRICS, 'm', 'interval.ms', '1000'),
  configRecord(TOPIC, 't', 'remote.storage.enable', 'false'),
  configRecord(TOPIC, 't', 'mirror.name', 'secret-mirror'),
  configRecord(BROKER, '', 'log.cleaner.threads', '2'),
  configRecord(BROKER, '1', 'listener.name.x.ssl.keystore.password', 'encrypted'),
]);

test('ListConfigResources: client metrics in version 0, then types as asked', async () => {
  const list = async (version: number, resourceTypes: number[] = []) => {
    const request = version === 0 ? {} : { resourceTypes };
    const services = servicesOf({ image: CONFIGURED });
    const answer = await askGuest(ListConfigResources, version, services, request);
    const shown = answer.configResources.map((each) => `${each.resourceType} ${each.resourceName}`);
    return [answer.errorCode, shown];
  };
  assert.deepEqual(await list(0), [0, ['16 m']]);
  assert.deepEqual(await list(1), [0, ['2 t', '4 1', '8 1', '16 m', '32 g']]);
  assert.deepEqual(await list(1, [GROUP]), [0, ['32 g']]);
  assert.deepEqual(await list(1, [GROUP, 99]), [errors.UNSUPPORTED_VERSION.code, []]);
});

test('DescribeConfigs shows what the cluster set and we do not know, but no secrets', async () => {
  const describe = async (resourceType: number, resourceName: string) => {
    const { results } = await askGuest(DescribeConfigs, 4, servicesOf({ image: CONFIGURED }), {
      resources: [{ resourceType, resourceName, configurationKeys: null }],
    });
    const configs = results[0]?.configs.filter(({ configType }) => configType === 0);
    return configs?.map(({ name, value, configSource }) => [name, value, configSource]);
  };
  assert.deepEqual(await describe(GROUP, 'g'), [['share.auto.offset.reset', 'earliest', 8]]);
  assert.deepEqual(await describe(CLIENT_METRICS, 'm'), [['interval.ms', '1000', 7]]);
  assert.deepEqual(await describe(TOPIC, 't'), [['remote.storage.enable', 'false', 1]]);
  assert.deepEqual(await describe(BROKER, ''), [['log.cleaner.threads', null, 3]]);
  assert.deepEqual(await describe(BROKER, '1'), [
    ['listener.name.x.ssl.keystore.password', null, 2],
    ['log.cleaner.threads', null, 3],
  ]);
});
