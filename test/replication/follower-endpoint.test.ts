/** What a follower says to its leader and makes of the answers, against a broker that is played. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { randomUuid } from '../../src/base/uuid.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import { encodeResponseFrame } from '../../src/protocol/frame.ts';
import { ConnectionError } from '../../src/protocol/kafka-connection.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../src/protocol/messages/02-list-offsets.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../../src/protocol/messages/23-offset-for-leader-epoch.ts';
import {
  DescribeProducersRequest,
  DescribeProducersResponse,
} from '../../src/protocol/messages/61-describe-producers.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import { ReplicaEndpoint } from '../../src/replication/follower-endpoint.ts';
import type { FetchedPartition, FetchTarget } from '../../src/replication/leader-endpoint.ts';
import { networkTo, Peer } from '../protocol/kafka-peer.ts';
import { fakeRuntime, ManualClock, settle } from './fakes.ts';
import { batch } from './harness.ts';

const TOPIC_ID = randomUuid((length) => new Uint8Array(length).fill(7));
const NONE = { updated: [], removed: [] };

function start(fetchVersion = 18) {
  const peer = new Peer();
  peer.apis = [
    [1, 4, fetchVersion],
    [2, 1, 11],
    [18, 0, 4],
    [23, 2, 4],
    [61, 0, 0],
  ];
  const runtime = { ...fakeRuntime(new ManualClock()), network: networkTo(peer) };
  const identity = { brokerId: 900, brokerEpoch: () => 42 };
  const endpoint = new ReplicaEndpoint(runtime, { host: 'b', port: 9092 }, identity);
  const seen: [number, FetchedPartition][] = [];
  const fetch = (changes: { updated: FetchTarget[]; removed: FetchTarget[] } = NONE) => {
    return endpoint.fetch(changes, (target, fetched) => {
      seen.push([target.partition, { ...fetched, records: fetched.records.slice() }]);
    });
  };
  return { peer, endpoint, seen, fetch };
}

/** Answers every request of an API; what was asked. */
function answering<Q extends Message, R extends Message>(
  peer: Peer,
  request: Q,
  response: R,
  answer: (asked: MessageOf<Q>) => EncodableOf<R>,
): MessageOf<Q>[] {
  const all: MessageOf<Q>[] = [];
  peer.onRequest = (header, body) => {
    if (header.apiKey !== request.apiKey) return undefined;
    const asked = codec(request, header.apiVersion).read(body) as MessageOf<Q>;
    all.push(asked);
    const version = codec(response, header.apiVersion);
    return encodeResponseFrame(header.correlationId, version, answer(asked));
  };
  return all;
}

function target(partition: number, fetchOffset: number): FetchTarget {
  return {
    topic: 't',
    topicId: TOPIC_ID,
    partition,
    fetchOffset,
    currentLeaderEpoch: 5,
    lastFetchedEpoch: 4,
    logStartOffset: 3,
    maxBytes: 1000,
  };
}

const ANSWER = { highWatermark: 8, lastStableOffset: 7, logStartOffset: 2 };

test('G14 a fetch is a replica’s, by topic id, and a session says only what changed', async () => {
  const { peer, fetch, seen, endpoint } = start();
  const records = batch(2);
  const asked = answering(peer, FetchRequest, FetchResponse, ({ sessionId }) => ({
    sessionId: 77,
    responses: sessionId === 0 ? [{ topicId: TOPIC_ID, partitions: answers(records) }] : [],
  }));
  const updated = [target(0, 10), target(1, 20)];
  assert.deepEqual(await fetch({ updated, removed: [] }), { kind: 'ok' });
  assert.deepEqual(await fetch(), { kind: 'ok' });
  await fetch({ updated: [target(0, 12)], removed: [target(1, 20)] });
  const [first, second, third] = asked;
  assert.deepEqual({ ...first?.replicaState }, { replicaId: 900, replicaEpoch: 42 });
  assert.equal(first?.isolationLevel, 0);
  const [topic] = first?.topics ?? [];
  assert.equal(topic?.topicId, TOPIC_ID);
  const fields = topic?.partitions.map((each) => [
    each.partition,
    each.fetchOffset,
    each.currentLeaderEpoch,
    each.lastFetchedEpoch,
    each.logStartOffset,
    each.partitionMaxBytes,
  ]);
  assert.deepEqual(fields, [
    [0, 10, 5, 4, 3, 1000],
    [1, 20, 5, 4, 3, 1000],
  ]);
  assert.deepEqual([second?.sessionId, second?.sessionEpoch, second?.topics], [77, 1, []]);
  assert.deepEqual(
    third?.topics[0]?.partitions.map(({ fetchOffset }) => fetchOffset),
    [12],
  );
  assert.deepEqual(third?.forgottenTopicsData[0]?.partitions, [1]);
  assert.deepEqual(seen[0]?.[1].records, new Uint8Array(records));
  assert.equal(seen[0]?.[1].divergingEpoch, undefined);
  const { epoch, endOffset } = seen[1]?.[1].divergingEpoch ?? {};
  assert.deepEqual([epoch, endOffset], [3, 15]);
  assert.equal(seen.length, 2);
  endpoint.close();
});

function answers(records: Uint8Array) {
  return [
    { partitionIndex: 0, errorCode: 0, ...ANSWER, abortedTransactions: null, records },
    {
      partitionIndex: 1,
      errorCode: 0,
      ...ANSWER,
      divergingEpoch: { epoch: 3, endOffset: 15 },
      abortedTransactions: null,
      records: null,
    },
  ].map((each) => ({ ...each, records: each.records === null ? null : [each.records] }));
}

test('a lost session is named as such, another error fails the fetch', async () => {
  const { peer, fetch, endpoint } = start();
  let errorCode: number = errors.FETCH_SESSION_ID_NOT_FOUND.code;
  const answer = () => ({ errorCode, sessionId: 0, responses: [] });
  const asked = answering(peer, FetchRequest, FetchResponse, answer);
  const lost = await fetch({ updated: [target(0, 10)], removed: [] });
  assert.deepEqual(lost, { kind: 'sessionLost', errorCode });
  errorCode = errors.UNKNOWN_SERVER_ERROR.code;
  assert.equal((await fetch()).kind, 'failed');
  errorCode = 0;
  assert.equal((await fetch()).kind, 'ok');
  assert.equal(asked[2]?.topics[0]?.partitions.length, 1, 'everything is named again');
  endpoint.close();
});

test('KIP-903 a leader that cannot be told the broker epoch is not fetched from', async () => {
  const { fetch, endpoint } = start(14);
  const outcome = await fetch({ updated: [target(0, 10)], removed: [] });
  assert(outcome.kind === 'failed');
  assert.match(outcome.message, /b:9092 serves Fetch 14, replicas need 15/);
  endpoint.close();
});

test('a fetch that waits ends with the endpoint, and hands nothing on', async () => {
  const { peer, fetch, seen, endpoint } = start();
  const outcome = fetch({ updated: [target(0, 10)], removed: [] });
  await settle();
  assert.equal(peer.requests.at(-1)?.apiKey, 1);
  endpoint.close();
  assert.equal((await outcome).kind, 'failed');
  assert.deepEqual(seen, []);
});

test('G14 offsets and epochs are asked for as a replica, in the order of questions', async () => {
  const { peer, endpoint } = start();
  const offsets = answering(peer, ListOffsetsRequest, ListOffsetsResponse, () => ({
    topics: [
      {
        name: 't',
        partitions: [
          { partitionIndex: 1, errorCode: 0, offset: 11, leaderEpoch: 4 },
          { partitionIndex: 0, errorCode: 6 },
        ],
      },
    ],
  }));
  const question = { topic: 't', currentLeaderEpoch: 5 };
  const found = await endpoint.listOffsets([
    { ...question, partition: 0, timestamp: -1n },
    { ...question, partition: 1, timestamp: -1n },
    { ...question, partition: 2, timestamp: -1n },
  ]);
  assert.equal(offsets[0]?.replicaId, 900);
  assert.deepEqual(
    found.map(({ errorCode, offset }) => [errorCode, offset]),
    [
      [6, -1],
      [0, 11],
      [errors.UNKNOWN_SERVER_ERROR.code, -1],
    ],
  );
  const epochs = answering(peer, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, () => ({
    topics: [
      {
        topic: 't',
        partitions: [{ errorCode: 0, partition: 0, leaderEpoch: 3, endOffset: 30 }],
      },
    ],
  }));
  const [end] = await endpoint.offsetsForLeaderEpoch([
    { ...question, partition: 0, leaderEpoch: 4 },
  ]);
  assert.deepEqual([end?.errorCode, end?.leaderEpoch, end?.endOffset], [0, 3, 30]);
  assert.equal(epochs[0]?.replicaId, 900);
  assert.equal(epochs[0]?.topics[0]?.partitions[0]?.leaderEpoch, 4);
  endpoint.close();
});

test('G29 of the producers only those with an open transaction count; errors reject', async () => {
  const { peer, endpoint } = start();
  let errorCode = 0;
  const producer = { producerEpoch: 2, lastSequence: 9, lastTimestamp: 5n, coordinatorEpoch: 1 };
  answering(peer, DescribeProducersRequest, DescribeProducersResponse, () => ({
    throttleTimeMs: 0,
    topics: [
      {
        name: 't',
        partitions: [
          {
            partitionIndex: 0,
            errorCode,
            activeProducers: [
              { ...producer, producerId: 1n, currentTxnStartOffset: -1 },
              { ...producer, producerId: 2n, currentTxnStartOffset: 25 },
            ],
          },
        ],
      },
    ],
  }));
  assert.deepEqual(await endpoint.openTransactions('t', 0), [
    {
      producerId: 2n,
      producerEpoch: 2,
      lastSequence: 9,
      lastOffset: 25,
      offsetDelta: 0,
      timestamp: 5n,
      coordinatorEpoch: 1,
      currentTxnFirstOffset: 25,
    },
  ]);
  errorCode = errors.TOPIC_AUTHORIZATION_FAILED.code;
  await assert.rejects(endpoint.openTransactions('t', 0), ConnectionError);
  endpoint.close();
});
