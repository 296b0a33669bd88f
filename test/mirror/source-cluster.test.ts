/**
 * A source of two brokers, played frame by frame: who is asked what, over which connection.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import type { Network } from '../../src/io/runtime.ts';
import { PartitionFetch, TROUBLE_LIMIT_MS } from '../../src/mirror/partition-fetch.ts';
import { embeddedMapping } from '../../src/mirror/producer-id-mapping.ts';
import { DEFAULT_MIRROR_BROKER_SETTINGS, parseMirrorSettings } from '../../src/mirror/settings.ts';
import { SourceCluster } from '../../src/mirror/source-cluster.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import { encodeResponseFrame } from '../../src/protocol/frame.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import { MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import { Peer } from '../protocol/kafka-peer.ts';
import { mirrored, startTestBroker, type TestBroker } from '../replication/harness.ts';

interface Call {
  readonly broker: string;
  readonly clientId: string;
  readonly request: FetchRequest;
}

/** Two brokers of one cluster; `leaders` says who leads which partition of topic `t`. */
class Source {
  readonly fetches: Call[] = [];
  readonly dials: string[] = [];
  readonly peers: Peer[] = [];
  readonly leaders = new Map<number, number>();
  clusterId = 'there';
  topicId: Uuid | undefined;
  leaderEpoch = 5;
  /** What the next fetch of a partition brings; then it is held. */
  readonly data = new Map<number, { errorCode: number; records: Uint8Array }>();
  readonly down = new Set<string>();
  /** Fetches are answered at `release` only. */
  hold = false;
  #held: (() => void)[] = [];

  network(): Network {
    const listen = (): never => {
      throw new Error('not part of this test');
    };
    return {
      listen,
      connect: async (host) => {
        this.dials.push(host);
        if (this.down.has(host)) return { cause: 'ECONNREFUSED', message: 'refused' };
        return this.#peer(host);
      },
    };
  }

  #peer(host: string): Peer {
    const peer = new Peer();
    this.peers.push(peer);
    peer.apis = [
      [1, 4, 17],
      [3, 0, 12],
      [18, 0, 4],
    ];
    peer.onRequest = (header, body) => {
      if (header.apiKey === 3) return this.#metadata(header.correlationId, header.apiVersion);
      if (header.apiKey !== 1) return undefined;
      const request = codec(FetchRequest, header.apiVersion).read(body);
      this.fetches.push({ broker: host, clientId: header.clientId ?? '', request });
      const answer = () => this.#fetched(header.correlationId, header.apiVersion, request);
      if (!this.hold) return answer();
      this.#held.push(() => peer.send(...(answer() ?? [])));
      return undefined;
    };
    return peer;
  }

  release(): void {
    this.hold = false;
    for (const answer of this.#held) answer();
    this.#held = [];
  }

  #metadata(correlationId: number, version: number): Uint8Array[] {
    const partitions = [...this.leaders].map(([partitionIndex, leaderId]) => ({
      errorCode: 0,
      partitionIndex,
      leaderId,
      leaderEpoch: this.leaderEpoch,
      replicaNodes: [leaderId],
      isrNodes: [leaderId],
    }));
    return encodeResponseFrame(correlationId, codec(MetadataResponse, version), {
      brokers: [
        { nodeId: 1, host: 'one', port: 9092 },
        { nodeId: 2, host: 'two', port: 9092 },
      ],
      clusterId: this.clusterId,
      topics: [{ errorCode: 0, name: 't', topicId: this.topicId, partitions }],
    });
  }

  #fetched(id: number, version: number, request: FetchRequest): Uint8Array[] | undefined {
    const asked = request.topics.flatMap(({ partitions }) => partitions);
    const answers = asked.flatMap(({ partition }) => {
      const data = this.data.get(partition);
      this.data.delete(partition);
      return data === undefined ? [] : [{ partition, ...data }];
    });
    if (answers.length === 0) return undefined;
    return encodeResponseFrame(id, codec(FetchResponse, version), {
      sessionId: 77,
      responses: [
        {
          topicId: this.topicId,
          partitions: answers.map(({ partition, errorCode, records }) => ({
            partitionIndex: partition,
            errorCode,
            highWatermark: 100,
            lastStableOffset: 100,
            logStartOffset: 0,
            abortedTransactions: null,
            preferredReadReplica: -1,
            records,
          })),
        },
      ],
    });
  }
}

interface Setup {
  readonly broker: TestBroker;
  readonly source: Source;
  readonly cluster: SourceCluster;
  /** Registers a partition; what its driver is told goes to `told`. */
  mirror(partition: number): PartitionFetch;
  readonly told: string[];
}

async function setup(t: TestContext): Promise<Setup> {
  const broker = await startTestBroker(t);
  broker.gate.set('t', { topic: 't', mirror: 'm', state: 'MIRRORING' });
  const source = new Source();
  source.topicId = broker.createTopic('t', 3);
  for (const [partition, leader] of [1, 2, 1].entries()) source.leaders.set(partition, leader);
  const settings = parseMirrorSettings(new Map([['bootstrap.servers', 'boot:9092']]));
  const cluster = new SourceCluster(
    { ...broker.runtime, network: source.network() },
    {
      mirror: 'm',
      settings,
      limits: DEFAULT_MIRROR_BROKER_SETTINGS,
      brokerId: 8,
      clusterId: 'here',
    },
  );
  t.after(() => cluster.close());
  const told: string[] = [];
  const mirror = (partition: number): PartitionFetch => {
    const fetch = new PartitionFetch(broker.clock, broker.partition('t', partition), {
      sourceTopicId: source.topicId as Uuid,
      maxBytes: 1000,
      knownEpoch: 0,
      producerIds: embeddedMapping,
      events: {
        learn: () => told.push(`${partition} learn`),
        fail: (cause) => told.push(`${partition} fail ${cause}`),
        outOfRange: () => told.push(`${partition} outOfRange`),
        recreated: () => told.push(`${partition} recreated`),
        startInside: () => told.push(`${partition} startInside`),
        lost: () => told.push(`${partition} lost`),
      },
    });
    cluster.register(fetch, {
      verify: async ({ leaderEpoch }) => {
        told.push(`${partition} verify ${leaderEpoch}`);
        return true;
      },
      recreated: () => told.push(`${partition} recreated`),
    });
    return fetch;
  };
  return { broker, source, cluster, mirror, told };
}

/** Lets dials, handshakes and answers follow each other; time moves a little. */
async function run(broker: TestBroker): Promise<void> {
  for (let i = 0; i < 10; i++) await broker.clock.advance(1);
}

const partitionsOf = ({ request }: Call): number[] =>
  request.topics.flatMap(({ partitions }) => partitions.map(({ partition }) => partition));

test('F2 F3 one data connection per source broker, named by broker, fetcher, mirror', async (t) => {
  const { broker, source, mirror, told } = await setup(t);
  assert.deepEqual(source.dials, []);
  for (const partition of [0, 1, 2]) mirror(partition);
  await run(broker);
  const names = source.fetches.map(({ broker: host, clientId }) => `${host} ${clientId}`);
  const client = 'broker-8-fetcher-0-mirror-m';
  assert.deepEqual(names.sort(), [`one ${client}`, `two ${client}`]);
  assert.deepEqual(source.fetches.map(partitionsOf).sort(), [[0, 2], [1]]);
  const metadata = source.peers[0]?.requests[0]?.clientId;
  assert.equal(metadata, 'broker-8-mirror-metadata-manager-m');
  assert.deepEqual(source.dials, ['boot', 'one', 'two']);
  assert.deepEqual(told, ['0 verify 5', '1 verify 5', '2 verify 5']);
});

test('F1 P3 a fetch is a consumer fetch, READ_COMMITTED, by topic id, marked', async (t) => {
  const { broker, source, mirror } = await setup(t);
  mirror(0);
  await run(broker);
  const { request } = source.fetches[0] ?? assert.fail('no fetch');
  assert.equal(request.replicaState.replicaId, -1);
  assert.equal(request.isolationLevel, 1);
  assert.equal(request.mirrorFetch, true);
  assert.equal(request.topics[0]?.topicId, source.topicId);
  const [partition] = request.topics[0]?.partitions ?? [];
  assert.deepEqual(
    [partition?.fetchOffset, partition?.currentLeaderEpoch, partition?.lastFetchedEpoch],
    [0, 5, -1],
  );
});

test('F1 within a session only what changed is asked again', async (t) => {
  const { broker, source, mirror } = await setup(t);
  source.data.set(0, { errorCode: 0, records: mirrored(0, 4) });
  mirror(0);
  mirror(2);
  await run(broker);
  const [first, second] = source.fetches;
  assert.deepEqual(first && [partitionsOf(first), first.request.sessionEpoch], [[0, 2], 0]);
  assert.deepEqual(second && [partitionsOf(second), second.request.sessionId], [[0], 77]);
  assert.equal(second?.request.topics[0]?.partitions[0]?.fetchOffset, 4);
  assert.equal(broker.partition('t', 0).log.logEndOffset, 4);
});

test('F4 a moved leader: ask the metadata, verify the epoch, move the partition', async (t) => {
  const { broker, source, mirror, told } = await setup(t);
  const { code } = errors.NOT_LEADER_OR_FOLLOWER;
  source.data.set(0, { errorCode: code, records: new Uint8Array(0) });
  source.hold = true;
  mirror(0);
  await run(broker);
  source.leaders.set(0, 2);
  source.leaderEpoch = 6;
  source.release();
  await broker.clock.advance(100);
  await run(broker);
  assert.deepEqual(
    source.fetches.map(({ broker: host }) => host),
    ['one', 'two'],
  );
  const moved = source.fetches[1]?.request.topics[0]?.partitions[0];
  assert.equal(moved?.currentLeaderEpoch, 6);
  assert.deepEqual(told, ['0 verify 5', '0 verify 6']);
});

test('F3 a dead source broker holds up its own partitions only', async (t) => {
  const { broker, source, mirror } = await setup(t);
  source.down.add('two');
  const [first, second] = [mirror(0), mirror(1)];
  await broker.clock.advance(500);
  assert.deepEqual(source.fetches.map(partitionsOf), [[0]]);
  assert.equal(first.trouble, undefined);
  assert.equal(second.trouble?.cause, 'SOURCE_UNREACHABLE');
  source.down.clear();
  await broker.clock.advance(2000);
  assert.deepEqual(source.fetches.map(partitionsOf), [[0], [1]]);
});

test('F12 another topic id in the metadata is told before anything is fetched', async (t) => {
  const { broker, source, mirror, told } = await setup(t);
  const fetch = mirror(0);
  source.topicId = 'another-topic-id-AAAAA' as Uuid;
  await run(broker);
  assert.equal(fetch.progressed, false);
  assert.deepEqual(told, ['0 recreated']);
  assert.deepEqual(source.fetches, []);
});

test('O4 bootstrap servers that lead to another cluster fail every partition', async (t) => {
  const { broker, source, cluster, mirror, told } = await setup(t);
  mirror(0);
  await run(broker);
  assert.equal(cluster.clusterId, 'there');
  source.clusterId = 'elsewhere';
  await assert.rejects(cluster.refresh(), /point to cluster elsewhere.*is there/);
  cluster.requestRefresh();
  await broker.clock.advance(10_000);
  assert.deepEqual(told, ['0 verify 5', '0 fail SOURCE_CLUSTER_CHANGED']);
});

test('D1 after a partition is let go nothing of it is appended', async (t) => {
  const { broker, source, cluster, mirror } = await setup(t);
  source.data.set(0, { errorCode: 0, records: mirrored(0, 4) });
  source.hold = true;
  const fetch = mirror(0);
  await run(broker);
  const before = broker.partition('t', 0).log.logEndOffset;
  cluster.unregister(fetch);
  source.release();
  await broker.clock.advance(1000);
  assert.equal(broker.partition('t', 0).log.logEndOffset, before);
  assert.equal(cluster.fetcherCount, 0);
  assert.deepEqual(source.fetches.map(partitionsOf), [[0]]);
});

test('S5 a request that cannot be encoded fails its partitions, not the process', async (t) => {
  const { broker, source, mirror, told } = await setup(t);
  const fetch = mirror(0);
  const target = fetch.target.bind(fetch);
  fetch.target = () => ({ ...target(), fetchOffset: Number.NaN });
  source.data.set(1, { errorCode: 0, records: mirrored(0, 4) });
  mirror(1);
  await broker.clock.advance(1_000);
  assert.equal(fetch.trouble?.cause, 'INTERNAL_ERROR');
  assert.match(fetch.trouble?.message ?? '', /UnencodableValue/);
  await broker.clock.advance(TROUBLE_LIMIT_MS + 2_000);
  assert.deepEqual(
    told.filter((line) => line.includes('fail')),
    ['0 fail INTERNAL_ERROR'],
  );
  assert.equal(broker.partition('t', 1).log.logEndOffset, 4);
});

test('S5 an unexpected error in one partition is contained to it', async (t) => {
  const { broker, source, mirror, told } = await setup(t);
  const fetch = mirror(0);
  fetch.onFetched = () => {
    throw new TypeError('cannot read properties of undefined');
  };
  source.data.set(0, { errorCode: 0, records: mirrored(0, 4) });
  source.data.set(2, { errorCode: 0, records: mirrored(0, 3) });
  mirror(2);
  await run(broker);
  assert.deepEqual(told, ['0 verify 5', '2 verify 5', '0 fail INTERNAL_ERROR']);
  assert.equal(broker.partition('t', 0).log.logEndOffset, 0);
  assert.equal(broker.partition('t', 2).log.logEndOffset, 3);
});
