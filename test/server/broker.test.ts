/** A whole broker on real sockets and a temporary directory, asked as clients ask. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errorName, errors } from '../../src/protocol/errors.ts';
import { encodeRequestFrame } from '../../src/protocol/frame.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../src/protocol/messages/02-list-offsets.ts';
import { MetadataRequest, MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import {
  OffsetCommitRequest,
  OffsetCommitResponse,
} from '../../src/protocol/messages/08-offset-commit.ts';
import {
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../../src/protocol/messages/09-offset-fetch.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../../src/protocol/messages/10-find-coordinator.ts';
import { JoinGroupRequest, JoinGroupResponse } from '../../src/protocol/messages/11-join-group.ts';
import { SyncGroupRequest, SyncGroupResponse } from '../../src/protocol/messages/14-sync-group.ts';
import { ApiVersionsRequest } from '../../src/protocol/messages/18-api-versions.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../../src/protocol/messages/20-delete-topics.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import type { EncodableOf, Message } from '../../src/protocol/schema.ts';
import { apiTable } from '../../src/server/api-table.ts';
import { type Broker, startBroker } from '../../src/server/broker.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import { framed } from './fakes.ts';
import { sampleRequest } from './sample-request.ts';

const RETRIABLE = new Set<number>([
  errors.COORDINATOR_LOAD_IN_PROGRESS.code,
  errors.COORDINATOR_NOT_AVAILABLE.code,
  errors.NOT_COORDINATOR.code,
]);

interface Cluster {
  broker: Broker;
  readonly runtime: ReturnType<typeof nodeRuntime>;
  client(): Promise<KafkaConnection>;
  restart(): Promise<void>;
}

async function cluster(t: TestContext, settings: Record<string, string> = {}): Promise<Cluster> {
  const directory = mkdtempSync(join(tmpdir(), 'twinlog-broker-test-'));
  const runtime = nodeRuntime({ logLevel: 'silent' });
  const config = new BrokerConfig(
    new Map(
      Object.entries({
        'log.dirs': directory,
        listeners: 'PLAINTEXT://127.0.0.1:0',
        'offsets.topic.num.partitions': '3',
        'mirror.topic.num.partitions': '2',
        'group.initial.rebalance.delay.ms': '0',
        ...settings,
      }),
    ),
  );
  const clients: KafkaConnection[] = [];
  const self: Cluster = {
    broker: await startBroker(runtime, { config }),
    runtime,
    client: async () => {
      const { host, port } = self.broker;
      const client = await KafkaConnection.connect(runtime, { host, port, clientId: 'test' });
      clients.push(client);
      return client;
    },
    restart: async () => {
      await self.broker.close();
      self.broker = await startBroker(runtime, { config });
    },
  };
  t.after(async () => {
    for (const client of clients) client.close();
    await self.broker.close();
    rmSync(directory, { recursive: true });
  });
  return self;
}

function topicOf(name: string, numPartitions = 1) {
  return { name, numPartitions, replicationFactor: 1, assignments: [], configs: [] };
}

async function createTopics(client: KafkaConnection, ...names: string[]) {
  const request = { topics: names.map((name) => topicOf(name)), timeoutMs: 5000 };
  return (await client.send(CreateTopicsRequest, CreateTopicsResponse, request)).topics;
}

function batchOf(...values: string[]): Uint8Array {
  const records = values.map((value) => ({
    key: null,
    value: Buffer.from(value),
    timestamp: 1_700_000_000_000n,
  }));
  return buildRecordBatch({ records });
}

async function produce(client: KafkaConnection, name: string, records: Uint8Array) {
  const response = await client.send(
    ProduceRequest,
    ProduceResponse,
    { acks: -1, timeoutMs: 5000, topicData: [{ name, partitionData: [{ index: 0, records }] }] },
    { maxVersion: 12 },
  );
  const [answer] = response.responses[0]?.partitionResponses ?? [];
  assert.ok(answer);
  return answer;
}

async function fetchAll(client: KafkaConnection, topic: string, fetchOffset: number) {
  const partitions = [{ partition: 0, fetchOffset, partitionMaxBytes: 1_000_000 }];
  const response = await client.send(
    FetchRequest,
    FetchResponse,
    {
      maxWaitMs: 0,
      minBytes: 1,
      topics: [{ topic, partitions }],
      forgottenTopicsData: [],
    },
    { maxVersion: 12 },
  );
  const [answer] = response.responses[0]?.partitions ?? [];
  assert.ok(answer);
  return answer;
}

/** Repeats what a client repeats while a coordinator is loading. */
async function settled<R>(ask: () => Promise<R>, codesOf: (answer: R) => number[]): Promise<R> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const answer = await ask();
    if (!codesOf(answer).some((code) => RETRIABLE.has(code))) return answer;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('the coordinator does not become available');
}

test('produce, read back the same bytes, look offsets up, delete', async (t) => {
  const client = await (await cluster(t)).client();
  const [created] = await createTopics(client, 'orders');
  assert.equal(created?.errorCode, 0);
  const first = batchOf('a', 'b');
  const second = batchOf('c');
  const sent = [first, second].map((batch) => Buffer.from(batch));
  assert.equal((await produce(client, 'orders', first)).baseOffset, 0);
  assert.equal((await produce(client, 'orders', second)).baseOffset, 2);
  const { records, highWatermark, errorCode } = await fetchAll(client, 'orders', 0);
  assert.deepEqual([errorCode, highWatermark], [0, 3]);
  // Base offset and leader epoch are the broker's to write.
  const stored = [0, sent[0]?.length ?? 0].map((at) => Buffer.from(records ?? []).subarray(at));
  for (const [at, batch] of sent.entries()) {
    assert.equal(stored[at]?.readBigInt64BE(), BigInt(at * 2));
    assert.deepEqual(stored[at]?.subarray(16, batch.length), batch.subarray(16));
  }
  const offsets = await client.send(ListOffsetsRequest, ListOffsetsResponse, {
    replicaId: -1,
    isolationLevel: 0,
    topics: [
      {
        name: 'orders',
        partitions: [-2n, -1n].map((timestamp) => ({ partitionIndex: 0, timestamp })),
      },
    ],
  });
  const found = offsets.topics[0]?.partitions.map(({ offset }) => offset);
  assert.deepEqual(found, [0, 3]);
  const deleted = await client.send(DeleteTopicsRequest, DeleteTopicsResponse, {
    topics: [{ name: 'orders', topicId: ZERO_UUID }],
    topicNames: [],
    timeoutMs: 5000,
  });
  assert.equal(deleted.responses[0]?.errorCode, 0);
  const gone = await fetchAll(client, 'orders', 0);
  assert.equal(gone.errorCode, errors.UNKNOWN_TOPIC_OR_PARTITION.code);
});

test('a topic name that would leave the data directory is refused with the reason', async (t) => {
  const client = await (await cluster(t)).client();
  const results = await createTopics(client, '../x', '.', 'fine', 'a/b');
  const errorOf = new Map(results.map((result) => [result.name, result]));
  assert.equal(errorOf.get('fine')?.errorCode, 0);
  for (const name of ['../x', '.', 'a/b']) {
    const result = errorOf.get(name);
    assert.equal(result?.errorCode, errors.INVALID_TOPIC_EXCEPTION.code, name);
    assert.ok((result?.errorMessage ?? '').length > 10, 'a sentence');
  }
  const { topics } = await client.send(MetadataRequest, MetadataResponse, {
    topics: [{ name: '../x' }],
    allowAutoTopicCreation: true,
  });
  assert.equal(topics[0]?.errorCode, errors.INVALID_TOPIC_EXCEPTION.code);
});

async function joinAlone(client: KafkaConnection, memberId: string) {
  return client.send(JoinGroupRequest, JoinGroupResponse, {
    groupId: 'g',
    sessionTimeoutMs: 10_000,
    rebalanceTimeoutMs: 10_000,
    memberId,
    protocolType: 'consumer',
    protocols: [{ name: 'range', metadata: new Uint8Array([1]) }],
  });
}

async function committed(client: KafkaConnection) {
  const topics = [{ name: 'orders', partitionIndexes: [0] }];
  const ask = () =>
    client.send(
      OffsetFetchRequest,
      OffsetFetchResponse,
      { groups: [{ groupId: 'g', topics }], requireStable: false },
      { maxVersion: 9 },
    );
  const { groups } = await settled(ask, (answer) => answer.groups.map((each) => each.errorCode));
  return groups[0]?.topics[0]?.partitions[0]?.committedOffset;
}

test('a group joins, syncs and commits; a clean restart keeps offsets and records', async (t) => {
  const server = await cluster(t);
  const client = await server.client();
  await createTopics(client, 'orders');
  await produce(client, 'orders', batchOf('a', 'b', 'c'));
  const { coordinators } = await settled(
    () => client.send(FindCoordinatorRequest, FindCoordinatorResponse, { coordinatorKeys: ['g'] }),
    (answer) => answer.coordinators.map(({ errorCode }) => errorCode),
  );
  assert.deepEqual([coordinators[0]?.nodeId, coordinators[0]?.port], [1, server.broker.port]);
  const first = await settled(
    () => joinAlone(client, ''),
    (answer) => [answer.errorCode],
  );
  assert.equal(first.errorCode, errors.MEMBER_ID_REQUIRED.code);
  const joined = await joinAlone(client, first.memberId);
  assert.deepEqual([joined.errorCode, joined.leader], [0, first.memberId]);
  const { generationId, memberId } = joined;
  const assignment = new Uint8Array([7, 8]);
  const synced = await client.send(SyncGroupRequest, SyncGroupResponse, {
    groupId: 'g',
    generationId,
    memberId,
    assignments: [{ memberId, assignment }],
  });
  assert.deepEqual([synced.errorCode, [...synced.assignment]], [0, [7, 8]]);
  const commit = await client.send(
    OffsetCommitRequest,
    OffsetCommitResponse,
    {
      groupId: 'g',
      generationIdOrMemberEpoch: generationId,
      memberId,
      topics: [
        {
          name: 'orders',
          partitions: [{ partitionIndex: 0, committedOffset: 2, committedMetadata: '' }],
        },
      ],
    },
    { maxVersion: 9 },
  );
  assert.equal(commit.topics[0]?.partitions[0]?.errorCode, 0);
  assert.equal(await committed(client), 2);
  await server.restart();
  const again = await server.client();
  assert.equal(await committed(again), 2);
  assert.equal((await fetchAll(again, 'orders', 0)).highWatermark, 3);
  assert.equal((await produce(again, 'orders', batchOf('d'))).baseOffset, 3);
});

/** Sends raw bytes; resolves with what came back when the broker has closed the connection. */
function rawExchange(broker: Broker, bytes: Uint8Array): Promise<Buffer> {
  return new Promise((resolve) => {
    const received: Buffer[] = [];
    const socket: Socket = connect(broker.port, broker.host, () => socket.write(bytes));
    socket.on('data', (data) => received.push(data));
    socket.on('error', () => {});
    socket.on('close', () => resolve(Buffer.concat(received)));
  });
}

test('malformed frames close their own connection, unanswered, and no other', async (t) => {
  const { broker, client } = await cluster(t);
  const connection = await client();
  const header = { correlationId: 1, clientId: 'x' };
  const versions = Buffer.concat(
    encodeRequestFrame(header, codec(ApiVersionsRequest, 0), {}),
  ).subarray(4);
  const create = Buffer.concat(
    encodeRequestFrame(header, codec(CreateTopicsRequest, 7), {
      topics: [topicOf('half')],
      timeoutMs: 1,
    }),
  ).subarray(4);
  const unknown = Buffer.from(versions);
  unknown.writeInt16BE(9999);
  const bad = [
    Buffer.from([0xff, 0xff, 0xff, 0xff]),
    Buffer.from('GET / HTTP/1.1\r\n\r\n'),
    framed(new Uint8Array(0)),
    framed(unknown),
    framed(create.subarray(0, -5)),
  ];
  const answers = await Promise.all(bad.map((bytes) => rawExchange(broker, bytes)));
  assert.deepEqual(
    answers.map((answer) => answer.length),
    [0, 0, 0, 0, 0],
  );
  assert.equal(connection.ended, undefined);
  const { topics } = await connection.send(MetadataRequest, MetadataResponse, { topics: null });
  assert.deepEqual(topics, [], 'nothing was created');
});

/** Paths of all error codes in an answer that say the broker failed. */
function serverErrors(value: unknown, path = ''): string[] {
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return [];
  return Object.entries(value).flatMap(([name, part]) =>
    name === 'errorCode' && part === errors.UNKNOWN_SERVER_ERROR.code
      ? [`${path}.${name}`]
      : serverErrors(part, `${path}.${name}`),
  );
}

test('every listed API answers a well-formed request in every version', async (t) => {
  const server = await cluster(t);
  const client = await server.client();
  const subjects = { kept: 'orders', created: 'made', deleted: 'doomed' };
  const topicId = (await createTopics(client, subjects.kept))[0]?.topicId ?? ZERO_UUID;
  for (const { apiKey, request, response, versions } of apiTable.values()) {
    for (let version = versions.min; version <= versions.max; version++) {
      const isDelete = apiKey === DeleteTopicsRequest.apiKey;
      const isCreate = apiKey === CreateTopicsRequest.apiKey;
      if (isDelete) await createTopics(client, subjects.deleted);
      const topic = isDelete
        ? subjects.deleted
        : isCreate
          ? `${subjects.created}-${version}`
          : subjects.kept;
      const id = isDelete ? ZERO_UUID : topicId;
      const records = () => batchOf('x');
      // A group of its own each time: a second member would wait for the first to join again.
      const subject = { topic, topicId: id, group: `group-${apiKey}-${version}`, records };
      const value = sampleRequest(request, version, subject);
      const what = `${request.name} v${version}`;
      assert.equal(client.version(request, version), version, what);
      const answer = await client
        .send(request, response as Message, value as EncodableOf<Message>, { maxVersion: version })
        .catch((error: Error) => assert.fail(`${what}: ${error.message}`));
      assert.deepEqual(serverErrors(answer), [], what);
    }
  }
  const { topics } = await client.send(MetadataRequest, MetadataResponse, { topics: null });
  const names = topics.map(({ name }) => name ?? '');
  for (const name of ['orders', 'made-2', 'made-7']) assert.ok(names.includes(name), name);
  assert.ok(!names.includes(subjects.deleted));
  const last = await fetchAll(client, subjects.kept, 0);
  const { versions } = apiTable.get(0) ?? assert.fail('Produce');
  assert.equal(last.highWatermark, versions.max - versions.min + 1, 'one record per version');
  assert.equal(errorName(last.errorCode), 'NONE');
});
