/**
 * The mirror APIs: what is validated before the controller is asked, and what is answered.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import type { Network, Runtime } from '../../src/io/runtime.ts';
import type { ControllerPort } from '../../src/metadata/controller-port.ts';
import {
  ConfigResourceType,
  emptyImage,
  type MetadataImage,
  metadataImage,
  SOURCE_CLUSTER_ID_CONFIG,
} from '../../src/metadata/image.ts';
import { MirrorFailure } from '../../src/mirror/causes.ts';
import type { MirrorManager } from '../../src/mirror/mirror-manager.ts';
import { MirrorOperations } from '../../src/mirror/operations.ts';
import { MirrorQueries } from '../../src/mirror/queries.ts';
import { rowKeyText } from '../../src/mirror/state-row.ts';
import { MirrorState } from '../../src/mirror/states.ts';
import { ApiKey } from '../../src/protocol/api-keys.ts';
import { errors } from '../../src/protocol/errors.ts';
import { topicId } from '../coordinator/harness.ts';
import { networkTo, Peer } from '../protocol/kafka-peer.ts';
import { fakeRuntime, ManualClock, settle } from '../replication/fakes.ts';
import { imageWith, row, ScriptedSource, TestCoordinator } from './harness.ts';

const ID = topicId(1);

interface Forwarded {
  readonly apiKey: number;
  readonly request: { readonly topics: { readonly topicName: string }[] } & Record<string, unknown>;
}

class Desk {
  readonly runtime: Runtime;
  readonly rows: TestCoordinator;
  readonly source = new ScriptedSource(ID);
  readonly forwarded: Forwarded[] = [];
  readonly operations: MirrorOperations;
  ensured = 0;

  constructor(image: MetadataImage, network?: Network, topicIdentity: 'same' | 'own' = 'same') {
    const runtime = fakeRuntime(new ManualClock());
    this.runtime = network === undefined ? runtime : { ...runtime, network };
    this.rows = new TestCoordinator(this.runtime, image);
    this.rows.lead();
    const source = this.source.asSource();
    const hasMirror = (name: string) => image.configs(ConfigResourceType.MIRROR, name).size > 0;
    const manager = {
      mirror: (name: string) => (hasMirror(name) ? { source } : undefined),
      driver: () => undefined,
    };
    const forward = async (apiKey: number, _version: number, request: unknown) => {
      const sent = request as Forwarded['request'];
      this.forwarded.push({ apiKey, request: sent });
      const topics = (sent.topics ?? []).map(({ topicName: name }) => ({
        name,
        topicId: ID,
        errorCode: 0,
        errorMessage: null,
      }));
      return { throttleTimeMs: 0, topicId: ID, errorCode: 0, errorMessage: null, topics };
    };
    this.operations = new MirrorOperations(this.runtime, {
      brokerId: 1,
      clusterId: 'here',
      controller: { forward } as unknown as ControllerPort,
      image: () => image,
      manager: manager as unknown as MirrorManager,
      coordinator: this.rows.coordinator,
      offlinePartitions: () => [],
      ensureStateTopic: async () => {
        this.ensured++;
        return 0;
      },
      topicIdentity,
    });
  }

  create(name: string, config: [string, string][], skipValidation = false) {
    return this.operations.createMirror({
      mirrorName: name,
      config: config.map(([key, value]) => ({ name: key, value })),
      skipValidation,
    });
  }

  add(...topics: [name: string, id?: Uuid][]) {
    return this.operations.addTopics({
      validatedAtOffset: -1,
      topics: topics.map(([topicName, id]) => ({
        topicName,
        topicId: id ?? ZERO_UUID,
        mirrorName: 'm',
        fullResync: false,
        numPartitions: -1,
      })),
    });
  }
}

/** An image with mirror `m` and a topic `t` of two partitions. */
function withTopic(id: Uuid, membership?: { mirror: string; removed: boolean }): MetadataImage {
  const base = imageWith(['m']);
  const [states] = base.topicsByName.values();
  const registration = states?.partitions.get(0);
  assert.ok(registration);
  const topic = {
    id,
    name: 't',
    partitions: new Map([0, 1].map((partition) => [partition, { ...registration, partition }])),
  };
  const member = membership === undefined ? [] : [['t', { ...membership, offset: 3 }] as const];
  return metadataImage({
    ...base,
    offset: 77,
    topicsByName: new Map(base.topicsByName).set('t', topic),
    topicsById: new Map([[id, topic]]),
    memberships: new Map(member),
  });
}

const SOURCE: [string, string] = ['bootstrap.servers', 'b:1'];

test('A2 O4 O6 a bad name or setting is refused before anything else happens', async () => {
  const desk = new Desk(imageWith(['m']));
  const cases: [string, [string, string][], number, RegExp][] = [
    ['a.removed', [SOURCE], errors.INVALID_REQUEST.code, /\.removed/],
    ['m', [SOURCE], errors.INVALID_REQUEST.code, /'m' already exists/],
    ['n', [SOURCE, ['x.y', '1']], errors.INVALID_CONFIG.code, /x\.y/],
    ['n', [], errors.INVALID_CONFIG.code, /bootstrap\.servers/],
    ['n', [SOURCE, [SOURCE_CLUSTER_ID_CONFIG, 'q']], errors.INVALID_CONFIG.code, /broker alone/],
  ];
  for (const [name, config, code, message] of cases) {
    const { errorCode, errorMessage } = await desk.create(name, config);
    assert.equal(errorCode, code, errorMessage ?? '');
    assert.match(errorMessage ?? '', message);
  }
  assert.deepEqual(desk.forwarded, []);
  assert.equal(desk.ensured, 0);
});

test('A2 an unreachable source is no mirror, and the reason is told', async () => {
  const refused = networkTo({ cause: 'ECONNREFUSED', message: 'connection refused' });
  const desk = new Desk(emptyImage('here'), refused);
  const { errorCode, errorMessage } = await desk.create('n', [SOURCE]);
  assert.equal(errorCode, errors.BROKER_NOT_AVAILABLE.code);
  assert.match(errorMessage ?? '', /b:1: connection refused/);
  assert.deepEqual(desk.forwarded, []);
});

test('A2 O4 this cluster itself is no source', async () => {
  const peer = new Peer();
  peer.answersMetadata = true;
  peer.clusterId = 'here';
  const desk = new Desk(emptyImage('here'), networkTo(peer));
  const { errorCode, errorMessage } = await desk.create('n', [SOURCE]);
  assert.equal(errorCode, errors.INVALID_REQUEST.code);
  assert.match(errorMessage ?? '', /this cluster itself \(here\)/);
  assert.equal(peer.isClosed, true);
});

test('O4 C1 a new mirror records the id of its source, the state topic is made first', async () => {
  const peer = new Peer();
  peer.answersMetadata = true;
  peer.clusterId = 'there';
  const desk = new Desk(emptyImage('here'), networkTo(peer));
  assert.equal((await desk.create('n', [SOURCE])).errorCode, 0);
  assert.equal(desk.ensured, 1);
  const [forwarded] = desk.forwarded;
  assert.equal(forwarded?.apiKey, ApiKey.CreateMirror);
  assert.deepEqual(forwarded?.request.config, [
    { name: 'bootstrap.servers', value: 'b:1' },
    { name: SOURCE_CLUSTER_ID_CONFIG, value: 'there' },
  ]);
});

test('A2 SkipValidation creates the mirror without a connection', async () => {
  const desk = new Desk(emptyImage('here'));
  assert.equal((await desk.create('n', [SOURCE], true)).errorCode, 0);
  assert.deepEqual(desk.forwarded[0]?.request.config, [{ name: SOURCE[0], value: SOURCE[1] }]);
});

test('A3 Y1 a topic missing here is forwarded with id and partitions of the source', async () => {
  const image = metadataImage({ ...imageWith(['m']), offset: 77 });
  const desk = new Desk(image);
  const { errorCode, topics } = await desk.add(['t']);
  assert.equal(errorCode, 0);
  assert.deepEqual(topics, [{ name: 't', topicId: ID, errorCode: 0, errorMessage: null }]);
  assert.deepEqual(desk.forwarded[0]?.request, {
    validatedAtOffset: 77,
    topics: [{ topicName: 't', topicId: ID, mirrorName: 'm', fullResync: false, numPartitions: 1 }],
  });
});

test('O3 the same name with another id is refused with both ids', async () => {
  const desk = new Desk(withTopic(topicId(2)));
  const { errorCode, errorMessage } = await desk.add(['t']);
  assert.equal(errorCode, errors.INCONSISTENT_TOPIC_ID.code);
  assert.match(errorMessage ?? '', new RegExp(`${topicId(2)} here and ${ID} at the source`));
  assert.deepEqual(desk.forwarded, []);
});

test('G12 where topics have ids of their own, the source is asked for its id alone', async () => {
  const desk = new Desk(withTopic(topicId(2)), undefined, 'own');
  desk.source.partitions = 2;
  await settle();
  assert.equal((await desk.add(['t'])).errorCode, 0);
  const wrong = await desk.add(['t', topicId(9)]);
  assert.equal(wrong.errorCode, errors.INCONSISTENT_TOPIC_ID.code);
  assert.equal(desk.forwarded.length, 1);
});

test('O5 internal topics are refused by name', async () => {
  const desk = new Desk(imageWith(['m']));
  const names = ['__consumer_offsets', '__transaction_state', '__share_group_state'];
  for (const name of [...names, '__mirror_state', '__cluster_metadata']) {
    const { errorCode, errorMessage } = await desk.add([name]);
    assert.equal(errorCode, errors.INVALID_TOPIC_EXCEPTION.code, name);
    assert.match(errorMessage ?? '', new RegExp(name));
  }
  assert.deepEqual(desk.forwarded, []);
});

test('A3 partitions must be UNKNOWN or STOPPED, else the first is named', async () => {
  const desk = new Desk(withTopic(ID, { mirror: 'm', removed: false }));
  desk.source.partitions = 2;
  await settle();
  const key = { mirror: 'm', topicId: ID, partition: 1 };
  await desk.rows.coordinator.write(key, row('PREPARING'));
  const { errorCode, errorMessage } = await desk.add(['t']);
  assert.equal(errorCode, errors.INVALID_REQUEST.code);
  assert.match(errorMessage ?? '', /t-1 is PREPARING in mirror 'm'/);
  for (const [stateEpoch, state] of [
    [2, 'STOPPING'],
    [3, 'STOPPED'],
  ] as const) {
    await desk.rows.coordinator.write(key, row(state, { stateEpoch }));
  }
  assert.equal((await desk.add(['t'])).errorCode, 0);
});

test('A3 refused topics leave the others alone; the first one is told twice', async () => {
  const desk = new Desk(imageWith(['m']));
  const response = await desk.add(['ok'], ['__consumer_offsets'], ['wrong', topicId(9)]);
  assert.deepEqual(
    response.topics.map(({ name, errorCode }) => [name, errorCode]),
    [
      ['ok', 0],
      ['__consumer_offsets', errors.INVALID_TOPIC_EXCEPTION.code],
      ['wrong', errors.INCONSISTENT_TOPIC_ID.code],
    ],
  );
  assert.equal(response.errorCode, errors.INVALID_TOPIC_EXCEPTION.code);
  const names = desk.forwarded[0]?.request.topics.map(({ topicName }) => topicName);
  assert.deepEqual(names, ['ok']);
});

test('A3 a source that does not answer, or lacks the topic, is told per topic', async () => {
  const desk = new Desk(imageWith(['m']));
  desk.source.failure = new MirrorFailure('SOURCE_TOPIC_MISSING', 'the source has no topic t');
  const missing = await desk.add(['t']);
  assert.equal(missing.errorCode, errors.UNKNOWN_TOPIC_OR_PARTITION.code);
  assert.match(missing.errorMessage ?? '', /no topic t/);
  desk.source.unreachable();
  assert.equal((await desk.add(['t'])).errorCode, errors.BROKER_NOT_AVAILABLE.code);
});

test('A3 D7 removal is forwarded with the offset at which it was looked at', async () => {
  const desk = new Desk(withTopic(ID, { mirror: 'm', removed: false }));
  const topics = [{ topicId: ZERO_UUID, topicName: 't' }];
  const request = { mirrorName: 'm', topics, validatedAtOffset: -1, openTransactions: 1 };
  assert.equal((await desk.operations.removeTopics(request)).errorCode, 0);
  assert.equal(desk.forwarded[0]?.apiKey, ApiKey.RemoveTopicsFromMirror);
  assert.deepEqual(desk.forwarded[0]?.request, { ...request, validatedAtOffset: 77 });
});

async function stopped(desk: Desk, fields: Parameters<typeof row>[1]): Promise<void> {
  const key = { mirror: 'm', topicId: ID, partition: 0 };
  for (const [index, state] of (['PREPARING', 'STOPPING', 'STOPPED'] as const).entries()) {
    const written = row(state, { ...fields, stateEpoch: index + 1 });
    assert.equal(await desk.rows.coordinator.write(key, written), 0);
  }
}

test('B2 the last mirrored offset is looked up by topic id and asking cluster', async () => {
  const desk = new Desk(withTopic(ID, { mirror: 'm', removed: true }));
  await settle();
  await stopped(desk, { sourceClusterId: 'asker', lastMirroredOffset: 9 });
  const ask = async (requesterClusterId: string, mirrorName: string) => {
    const answer = await desk.operations.lastMirroredOffsets({
      mirrorName,
      requesterClusterId,
      topics: [{ name: 't', topicId: ID, partitions: [{ partitionIndex: 0 }] }],
    });
    const partition = answer.topics[0]?.partitions[0];
    return [partition?.errorCode, partition?.lastMirroredOffset];
  };
  assert.deepEqual(await ask('asker', 'whatever'), [0, 9]);
  assert.deepEqual(await ask('somebody', 'm'), [0, -1]);
  assert.deepEqual(await ask('', 'm'), [0, 9]);
  assert.deepEqual(await ask('', 'n'), [0, -1]);
});

test('B3 while the owner loads, the last mirrored offset is an error, not 0', async () => {
  const desk = new Desk(withTopic(ID));
  const answer = await desk.operations.lastMirroredOffsets({
    mirrorName: 'm',
    requesterClusterId: 'asker',
    topics: [{ name: 't', topicId: ID, partitions: [{ partitionIndex: 0 }] }],
  });
  const partition = answer.topics[0]?.partitions[0];
  assert.equal(partition?.errorCode, errors.COORDINATOR_LOAD_IN_PROGRESS.code);
});

test('S4 WriteMirrorStates changes a row under its epochs, ReadMirrorStates shows it', async () => {
  const desk = new Desk(withTopic(ID, { mirror: 'm', removed: true }));
  await settle();
  await stopped(desk, { lastMirroredOffset: 9, leaderEpoch: 4 });
  const write = async (fields: { lastMirroredOffset: number; stateEpoch: number }) => {
    const partition = {
      partitionIndex: 0,
      state: MirrorState.UNKNOWN,
      leaderEpoch: -1,
      ...fields,
    };
    const answer = await desk.operations.writeMirrorStates({
      mirrorName: 'm',
      topicsUpdated: [{ name: 't', topicId: ID, partitions: [partition] }],
      removedTopics: [],
    });
    return answer.topics[0]?.partitions[0]?.errorCode;
  };
  const read = async () => {
    const answer = await desk.operations.readMirrorStates({
      mirrorName: 'm',
      needPartitionStates: true,
      topics: [{ name: 't', topicId: ID, partitions: [{ partitionIndex: 0 }] }],
    });
    return answer.topics[0]?.partitions[0];
  };
  assert.equal(await write({ lastMirroredOffset: 1, stateEpoch: 2 }), 124);
  assert.equal((await read())?.lastMirroredOffset, 9);
  assert.equal(await write({ lastMirroredOffset: 5, stateEpoch: 4 }), 0);
  assert.deepEqual(await read(), {
    partitionIndex: 0,
    lastMirroredOffset: 5,
    state: MirrorState.STOPPED,
    errorCode: 0,
  });
});

test('C3 the owner of a row is found by its text key', () => {
  const desk = new Desk(imageWith(['m'], 7));
  const key = { mirror: 'm', topicId: ID, partition: 3 };
  const owner = desk.rows.coordinator.ownerOf(rowKeyText(key));
  assert.equal(desk.operations.partitionForKey(`m:${ID}:3`), owner);
  assert.equal(desk.operations.partitionForKey('m'), undefined);
});

test('A4 O1 mirrors are listed with their source, described with what is known', async () => {
  const desk = new Desk(withTopic(ID, { mirror: 'm', removed: false }));
  const { mirrors } = await desk.operations.listMirrors({});
  assert.deepEqual(mirrors, [
    {
      mirrorName: 'm',
      sourceBootstrap: 'source:9092',
      topicCount: 1,
      sourceClusterId: '',
      upstreamClusterIds: [],
    },
  ]);
  const described = await desk.operations.describeMirrors({
    mirrorNames: ['m', 'nope'],
    includeAuthorizedOperations: false,
    localOnly: false,
  });
  const [known, unknown] = described.mirrors;
  assert.equal(unknown?.errorCode, errors.RESOURCE_NOT_FOUND.code);
  assert.equal(known?.topics[0]?.topicName, 't');
  const [first] = known?.topics[0]?.partitions ?? [];
  assert.deepEqual(
    [first?.state, first?.sourceOffset, first?.destinationOffset, first?.lag],
    ['UNKNOWN', -1, -1, -1],
  );
});

test('S5 M3 DescribeMirrors says which command resolves what does not resolve itself', async () => {
  const image = withTopic(ID, { mirror: 'm', removed: false });
  const shown = async (cause: string): Promise<string | undefined> => {
    const status = () => ({ state: 'FAILED', cause, message: 'why', sinceMs: 1, nextRetryMs: -1 });
    const queries = new MirrorQueries({
      image: () => image,
      manager: { driver: () => ({ status }) } as unknown as Pick<MirrorManager, 'driver'>,
      coordinator: new Desk(image).rows.coordinator,
      offlinePartitions: () => [],
    });
    const { mirrors } = await queries.describeMirrors({
      mirrorNames: null,
      includeAuthorizedOperations: false,
      localOnly: false,
    });
    return mirrors[0]?.topics[0]?.partitions[0]?.message;
  };
  assert.equal(await shown('SOURCE_UNREACHABLE'), 'why');
  const message = (await shown('WOULD_DISCARD_ALL')) ?? '';
  assert.match(message, /^why\. To resolve: .*`twinlog mirrors remove m t`/);
  assert.match(message, /`kafka-topics\.sh --delete --topic t`.*`twinlog mirrors add m t`\.$/);
});

test('M3 DescribeMirrors says when the log of a partition is offline, and why', async () => {
  const image = withTopic(ID, { mirror: 'm', removed: false });
  const queries = new MirrorQueries({
    image: () => image,
    manager: { driver: () => undefined },
    coordinator: new Desk(image).rows.coordinator,
    offlinePartitions: () => [{ topic: 't', partition: 0, reason: 'write x: ENOSPC' }],
  });
  const { mirrors } = await queries.describeMirrors({
    mirrorNames: null,
    includeAuthorizedOperations: false,
    localOnly: false,
  });
  const [partition] = mirrors[0]?.topics[0]?.partitions ?? [];
  assert.equal(partition?.state, 'UNKNOWN');
  assert.equal(partition?.cause, 'STORAGE_BUSY');
  assert.match(partition?.message ?? '', /offline: write x: ENOSPC.*restart/);
});

test('G28 DescribeMirrors says what a partition waits for that nobody here drives', async () => {
  const image = withTopic(ID, { mirror: 'm', removed: false });
  const queries = new MirrorQueries({
    image: () => image,
    manager: { driver: () => undefined },
    coordinator: {
      rowsOfPartition: () => assert.fail('nobody asks'),
      read: async () => ({ error: 0, row: row('STOPPED', { membershipOffset: -1 }) }),
    },
    offlinePartitions: () => [],
    waitOf: (topic, partition) => `${topic}-${partition} waits`,
  });
  const { mirrors } = await queries.describeMirrors({
    mirrorNames: null,
    includeAuthorizedOperations: false,
    localOnly: false,
  });
  const [partition] = mirrors[0]?.topics[0]?.partitions ?? [];
  // The row is of a membership that is over.
  assert.deepEqual([partition?.state, partition?.message], ['UNKNOWN', 't-0 waits']);
});
