/**
 * What a guest's clients get who lack rights: in every version an answer that can be encoded, with
 * an authorization error and no content; who has the rights gets the handler's answer as it is.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import { ApiKey, apiName } from '../../src/protocol/api-keys.ts';
import { codec } from '../../src/protocol/codec.ts';
import { FetchRequest, type FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import { MetadataRequest, type MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import type { EncodableOf, Message } from '../../src/protocol/schema.ts';
import { guardedTable } from '../../src/server/access-guard.ts';
import type { ApiHandler, ApiTable, BrokerServices } from '../../src/server/api-handler.ts';
import { type Acl, AclOperation, Authorizer } from '../../src/server/authorizer.ts';
import { guestApiTable } from '../../src/server/guest-api-table.ts';
import { guestGuards } from '../../src/server/guest-guards.ts';
import { contextOf } from './guest-call.ts';
import { sampleRequest } from './sample-request.ts';

const TOPIC_ID = 'AAAAAAAAAAAAAAAAAAAAAQ' as Uuid;
const SUBJECT = {
  topic: 'orders',
  topicId: TOPIC_ID,
  group: 'g',
  records: () => new Uint8Array(0),
};
const TOPIC = { name: 'orders', id: TOPIC_ID, partitions: new Map() };
const services = {
  metadata: {
    image: {
      topicsByName: new Map([['orders', TOPIC]]),
      topicsById: new Map([[TOPIC_ID, TOPIC]]),
    },
  },
} as unknown as BrokerServices;

/** TOPIC, GROUP, CLUSTER and TRANSACTIONAL_ID AUTHORIZATION_FAILED, and an id that is nobody's. */
const REFUSALS = new Set([29, 30, 31, 53, 100]);

function authorizer(...acls: Partial<Acl>[]): Authorizer {
  const map = new Map(
    acls.map((acl, at): [Uuid, Acl] => [
      String(at) as Uuid,
      {
        id: String(at) as Uuid,
        resourceType: 2,
        resourceName: 'orders',
        patternType: 3,
        principal: 'User:a',
        host: '*',
        operation: AclOperation.ALL,
        permissionType: 3,
        ...acl,
      },
    ]),
  );
  return new Authorizer({
    superUsers: new Set(['User:root']),
    allowIfNoAcl: false,
    acls: () => map,
  });
}

/** A table whose handlers say what they were asked, and answer `answer`. */
function tableOf(answer: unknown, asked: unknown[]): ApiTable {
  const handlers = [...guestApiTable].flatMap(([apiKey, handler]) => {
    if ('handleBody' in handler) return [];
    const handle = (_services: BrokerServices, request: unknown): unknown => {
      asked.push(request);
      return answer;
    };
    return [[apiKey, { ...handler, handle }] as const];
  });
  return new Map<number, ApiHandler>(handlers);
}

/** Every error code anywhere in an answer. */
function errorCodes(value: unknown): number[] {
  if (Array.isArray(value)) return value.flatMap(errorCodes);
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return [];
  return Object.entries(value).flatMap(([name, field]) =>
    name === 'errorCode' ? [field as number] : errorCodes(field),
  );
}

/** What handlers answer that is asked for nothing. */
const NOTHING = {
  responses: [],
  topics: [],
  brokers: [],
  results: [],
  coordinators: [],
  errorCode: 0,
};

async function ask(
  handler: ApiHandler,
  version: number,
  value: EncodableOf<Message>,
  principal: string,
) {
  const request = codec(handler.request, version).decode(
    codec(handler.request, version).encodeToBytes(value),
  );
  const answer = await handler.handle(services, request, contextOf(version, principal));
  const response = codec(handler.response, version);
  return response.decode(response.encodeToBytes(answer as EncodableOf<Message>));
}

for (const [apiKey] of guestGuards) {
  test(`G35 ${apiName(apiKey)}: refused in every version without the rights`, async () => {
    const asked: unknown[] = [];
    const table = guardedTable(tableOf(NOTHING, asked), guestGuards, authorizer());
    const handler = table.get(apiKey) as ApiHandler;
    for (let version = handler.versions.min; version <= handler.versions.max; version++) {
      const value = sampleRequest(handler.request, version, SUBJECT);
      if (apiKey === FetchRequest.apiKey) continue;
      const codes = errorCodes(await ask(handler, version, value, 'User:a'));
      const problems = codes.filter((code) => code !== 0);
      // Below version 3 there is no field for it: the answer is empty, as in Apache Kafka.
      const hasNoField = apiKey === ApiKey.DescribeLogDirs && version < 3;
      assert.ok(problems.length > 0 || hasNoField, `v${version}: ${JSON.stringify(codes)}`);
      assert.ok(
        problems.every((code) => REFUSALS.has(code)),
        `v${version}: ${problems}`,
      );
    }
    for (const request of asked) {
      // What is refused does not even reach the handler.
      assert.doesNotMatch(JSON.stringify(request, bigints), /orders|"g"/);
    }
  });
}

function bigints(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}

test('G35 who has the rights is answered by the handler, as asked', async () => {
  for (const [apiKey] of guestGuards) {
    const asked: unknown[] = [];
    const table = tableOf({ ...NOTHING, mirrors: [], configResources: [], markers: [] }, asked);
    const guarded = guardedTable(table, guestGuards, authorizer()).get(apiKey) as ApiHandler;
    const version = guarded.versions.max;
    const request = codec(guarded.request, version).decode(
      codec(guarded.request, version).encodeToBytes(
        sampleRequest(guarded.request, version, SUBJECT),
      ),
    );
    await guarded.handle(services, request, contextOf(version, 'User:root'));
    assert.deepEqual(asked, [request], apiName(apiKey));
  }
});

test('G35 Fetch: records only with READ, replicas only with CLUSTER_ACTION', async () => {
  const partition = {
    partitionIndex: 0,
    errorCode: 0,
    highWatermark: 9,
    lastStableOffset: 9,
    logStartOffset: 1,
    abortedTransactions: [{ producerId: 7n, firstOffset: 1 }],
    records: Buffer.from('secret'),
  };
  for (const version of [4, 12, 13, 18]) {
    const topics = version > 12 ? { topicId: TOPIC_ID } : { topic: 'orders' };
    const answer = { errorCode: 0, responses: [{ ...topics, partitions: [partition] }] };
    const asked: unknown[] = [];
    const acls = [{ operation: AclOperation.READ }];
    const table = guardedTable(tableOf(answer, asked), guestGuards, authorizer(...acls));
    const handler = table.get(FetchRequest.apiKey ?? -1) as ApiHandler;
    const consumer = { ...sampleRequest(FetchRequest, version, SUBJECT) };
    const read = async (principal: string, request = consumer) =>
      (await ask(handler, version, request, principal)) as FetchResponse;
    const allowed = (await read('User:a')).responses[0]?.partitions[0];
    assert.deepEqual([allowed?.errorCode, allowed?.records?.length], [0, 6]);
    const refused = (await read('User:b')).responses[0]?.partitions[0];
    assert.deepEqual([refused?.errorCode, refused?.records?.length], [29, 0]);
    assert.deepEqual([refused?.highWatermark, refused?.abortedTransactions ?? []], [-1, []]);
    const state = { replicaState: { replicaId: 3, replicaEpoch: 1 } };
    const replica = { ...consumer, ...(version > 14 ? state : { replicaId: 3 }) };
    assert.equal(asked.length, 2);
    if (version >= 7) assert.equal((await read('User:a', replica)).errorCode, 31);
    else await read('User:a', replica);
    assert.equal(asked.length, 2, 'a replica without the right does not reach the handler');
    await read('User:root', replica);
    assert.equal(asked.length, 3);
  }
});

test('G35 Metadata: what may not be seen is left out, or refused by name', async () => {
  const names = ['orders', 'other'];
  const topics = names.map((name) => ({ errorCode: 0, name, topicId: TOPIC_ID, partitions: [] }));
  const asked: unknown[] = [];
  const acls = [{ operation: AclOperation.DESCRIBE }];
  const table = guardedTable(
    tableOf({ brokers: [], topics }, asked),
    guestGuards,
    authorizer(...acls),
  );
  const handler = table.get(MetadataRequest.apiKey ?? -1) as ApiHandler;
  const all = { topics: null, allowAutoTopicCreation: true };
  const listed = (await ask(handler, 12, all, 'User:a')) as MetadataResponse;
  assert.deepEqual(
    listed.topics.map(({ name }) => name),
    ['orders'],
  );
  const oldest = (await ask(
    handler,
    0,
    { topics: [{ name: 'other' }] },
    'User:a',
  )) as MetadataResponse;
  assert.deepEqual(
    oldest.topics.map(({ name, errorCode }) => [name, errorCode]),
    [['other', 29]],
  );
  const creating = { topics: [{ name: 'new' }], allowAutoTopicCreation: true };
  const prefix = { operation: AclOperation.DESCRIBE, resourceName: 'new' };
  const seeing = guardedTable(tableOf(NOTHING, asked), guestGuards, authorizer(prefix));
  const made = (await ask(
    seeing.get(MetadataRequest.apiKey ?? -1) as ApiHandler,
    12,
    creating,
    'User:a',
  )) as MetadataResponse;
  assert.deepEqual(
    made.topics.map(({ name, errorCode }) => [name, errorCode]),
    [['new', 29]],
    'who may see but not create',
  );
});
