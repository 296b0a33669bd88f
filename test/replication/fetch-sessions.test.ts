/** Incremental fetch sessions (KIP-227), as a client sees them. */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import {
  FetchSessions,
  MIN_EVICTION_MS,
  type SessionResponse,
} from '../../src/replication/fetch-sessions.ts';
import type { FetchPartition } from '../../src/replication/fetch-types.ts';
import { settle } from './fakes.ts';
import {
  baseOffsets,
  batch,
  fetchParams,
  fetchPartition,
  startTestBroker,
  type TestBroker,
  watch,
} from './harness.ts';

const AT_ONCE = fetchParams({ maxWaitMs: 0 });

async function brokerWithTopic(t: TestContext, partitions: number): Promise<TestBroker> {
  const broker = await startTestBroker(t);
  broker.createTopic('a', partitions);
  return broker;
}

function ask(
  broker: TestBroker,
  sessionId: number,
  sessionEpoch: number,
  partitions: FetchPartition[] = [],
  forgotten: FetchPartition[] = [],
  params = AT_ONCE,
): Promise<SessionResponse> {
  return broker.sessions.fetch({ sessionId, sessionEpoch, partitions, forgotten }, params);
}

/** What an answer says of each partition: `partition:baseOffsets`. */
function said(response: SessionResponse | undefined): string[] {
  assert.ok(response && 'results' in response);
  return response.results.map((each) => `${each.partition}:${baseOffsets(each).join(',')}`);
}

function all(count: number): FetchPartition[] {
  return Array.from({ length: count }, (_, partition) => fetchPartition('a', partition, 0));
}

test('a session answers all partitions once, then only those with news', async (t) => {
  const broker = await brokerWithTopic(t, 3);
  const first = await ask(broker, 0, 0, all(3));
  assert.notEqual(first.sessionId, 0);
  assert.deepEqual(said(first), ['0:', '1:', '2:']);
  const { sessionId } = first;
  assert.deepEqual(said(await ask(broker, sessionId, 1)), []);
  broker.partition('a', 1).append('client', batch(), 1);
  assert.deepEqual(said(await ask(broker, sessionId, 2)), ['1:0']);
  assert.deepEqual(said(await ask(broker, sessionId, 3)), ['1:0'], 'until the offset moves on');
  assert.deepEqual(said(await ask(broker, sessionId, 4, [fetchPartition('a', 1, 1)])), []);
});

test('a waiting session fetch wakes at news and reads nothing but them', async (t) => {
  const broker = await brokerWithTopic(t, 3);
  const { sessionId } = await ask(broker, 0, 0, all(3));
  const poll = watch(ask(broker, sessionId, 1, [], [], fetchParams()));
  await settle();
  assert.equal(poll.done, false);
  broker.partition('a', 2).append('client', batch(), 1);
  await settle();
  assert.deepEqual(said(poll.value), ['2:0']);
});

test('forgotten and added partitions', async (t) => {
  const broker = await brokerWithTopic(t, 3);
  const { sessionId } = await ask(broker, 0, 0, all(2));
  broker.partition('a', 0).append('client', batch(), 1);
  broker.partition('a', 2).append('client', batch(), 1);
  const next = await ask(
    broker,
    sessionId,
    1,
    [fetchPartition('a', 2, 0)],
    [fetchPartition('a', 0, 0)],
  );
  assert.deepEqual(said(next), ['2:0']);
  assert.equal(broker.partition('a', 0).watchers.size, 0);
  const emptied = await ask(
    broker,
    sessionId,
    2,
    [],
    [fetchPartition('a', 1, 0), fetchPartition('a', 2, 0)],
  );
  assert.deepEqual([emptied.sessionId, said(emptied)], [0, []]);
  assert.equal(broker.sessions.size, 0);
});

test('unknown sessions and wrong epochs are refused', async (t) => {
  const broker = await brokerWithTopic(t, 1);
  const { sessionId } = await ask(broker, 0, 0, all(1));
  assert.equal((await ask(broker, sessionId + 1, 1)).error, errors.FETCH_SESSION_ID_NOT_FOUND.code);
  assert.equal((await ask(broker, 0, 1)).error, errors.FETCH_SESSION_ID_NOT_FOUND.code);
  assert.equal((await ask(broker, sessionId, 2)).error, errors.INVALID_FETCH_SESSION_EPOCH.code);
  assert.equal((await ask(broker, sessionId, 1)).error, 0);
  assert.equal(
    (await ask(broker, sessionId, 1)).error,
    errors.INVALID_FETCH_SESSION_EPOCH.code,
    'a repeated epoch',
  );
  const topicId = broker.image.topicsByName.get('a')!.id;
  const byId = { ...fetchPartition('a', 0, 0), topicId };
  assert.equal(
    (await ask(broker, sessionId, 2, [byId])).error,
    errors.FETCH_SESSION_TOPIC_ID_ERROR.code,
  );
});

test('epoch -1 ends the session and answers in full without one', async (t) => {
  const broker = await brokerWithTopic(t, 2);
  const { sessionId } = await ask(broker, 0, 0, all(2));
  const full = await ask(broker, sessionId, -1, all(2));
  assert.deepEqual([full.sessionId, said(full)], [0, ['0:', '1:']]);
  assert.equal(broker.sessions.size, 0);
  assert.equal(broker.partition('a', 0).watchers.size, 0);
});

test('a full cache refuses sessions until one has been idle long enough', async (t) => {
  const broker = await brokerWithTopic(t, 1);
  const first = await ask(broker, 0, 0, all(1));
  const second = await ask(broker, 0, 0, all(1));
  const refused = await ask(broker, 0, 0, all(1));
  assert.deepEqual([refused.sessionId, said(refused)], [0, ['0:']]);
  await broker.clock.advance(MIN_EVICTION_MS);
  assert.equal((await ask(broker, first.sessionId, 1)).error, 0);
  const third = await ask(broker, 0, 0, all(1));
  assert.notEqual(third.sessionId, 0);
  const evicted = await ask(broker, second.sessionId, 1);
  assert.equal(evicted.error, errors.FETCH_SESSION_ID_NOT_FOUND.code);
});

test('an errored partition is reported until it is well', async (t) => {
  const broker = await brokerWithTopic(t, 1);
  const { sessionId } = await ask(broker, 0, 0, [fetchPartition('late', 0, 0), ...all(1)]);
  const errorsOf = (response: SessionResponse) =>
    'results' in response ? response.results.map((each) => [each.topic, each.error]) : [];
  assert.deepEqual(errorsOf(await ask(broker, sessionId, 1)), [
    ['late', errors.UNKNOWN_TOPIC_OR_PARTITION.code],
  ]);
  broker.createTopic('late');
  assert.deepEqual(errorsOf(await ask(broker, sessionId, 2)), [['late', 0]]);
  assert.deepEqual(errorsOf(await ask(broker, sessionId, 3)), []);
});

test('a moved log start is news without data', async (t) => {
  const broker = await brokerWithTopic(t, 2);
  broker.partition('a', 0).append('client', batch(3), 1);
  const { sessionId } = await ask(broker, 0, 0, [fetchPartition('a', 0, 3), ...all(2).slice(1)]);
  await broker.replicas.deleteRecords(0, [{ topic: 'a', partition: 0, offset: 2 }]);
  const next = await ask(broker, sessionId, 1);
  assert.ok('results' in next);
  assert.deepEqual(
    next.results.map((each) => [each.partition, each.bytes, each.logStartOffset]),
    [[0, 0, 2]],
  );
});

test('a busy partition does not keep others out of a full response', async (t) => {
  const broker = await brokerWithTopic(t, 2);
  for (const partition of [0, 1]) broker.partition('a', partition).append('client', batch(), 1);
  const oneBatch = fetchParams({ maxWaitMs: 0, maxBytes: 1 });
  const first = await ask(broker, 0, 0, all(2), [], oneBatch);
  assert.deepEqual(said(first), ['0:0', '1:']);
  broker.partition('a', 0).append('client', batch(), 1);
  const next = await ask(broker, first.sessionId, 1, [fetchPartition('a', 0, 1)], [], oneBatch);
  assert.deepEqual(said(next).includes('1:0'), true);
});

test('an idle partition costs a session fetch nothing', async (t) => {
  const broker = await brokerWithTopic(t, 50);
  const read: number[] = [];
  const { fetchSource } = broker.replicas;
  const sessions = new FetchSessions(broker.runtime, {
    find: (request) => {
      read.push(request.partition);
      return fetchSource.find(request);
    },
    missing: (request) => fetchSource.missing(request),
  });
  const full = { sessionId: 0, sessionEpoch: 0, partitions: all(50), forgotten: [] };
  const { sessionId } = await sessions.fetch(full, AT_ONCE);
  assert.equal(read.splice(0).length, 50);
  const poll = watch(
    sessions.fetch({ sessionId, sessionEpoch: 1, partitions: [], forgotten: [] }, fetchParams()),
  );
  await settle();
  assert.deepEqual(read, []);
  broker.partition('a', 33).append('client', batch(), 1);
  await settle();
  assert.deepEqual(said(poll.value), ['33:0']);
  assert.deepEqual(read, [33]);
});
