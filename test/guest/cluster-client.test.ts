/**
 * Requests to a cluster of two brokers, played frame by frame: who is asked, how often, until when.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClusterClient, ClusterError } from '../../src/guest/cluster-client.ts';
import type { Network } from '../../src/io/runtime.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import { encodeResponseFrame } from '../../src/protocol/frame.ts';
import { MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import { FindCoordinatorResponse } from '../../src/protocol/messages/10-find-coordinator.ts';
import { HeartbeatRequest, HeartbeatResponse } from '../../src/protocol/messages/12-heartbeat.ts';
import { EndTxnRequest, EndTxnResponse } from '../../src/protocol/messages/26-end-txn.ts';
import { Peer } from '../protocol/kafka-peer.ts';
import { fakeRuntime, ManualClock } from '../replication/fakes.ts';

const HEARTBEAT = { groupId: 'g', generationId: 1, memberId: 'm' };
const BOOTSTRAP = [
  { host: 'one', port: 9092 },
  { host: 'two', port: 9092 },
];

/** Brokers 1 and 2 at hosts `one` and `two`. */
class Brokers {
  readonly clock = new ManualClock();
  readonly calls: string[] = [];
  readonly down = new Set<string>();
  leaders = [1, 1];
  coordinator = 'one';
  /** The error of the next answers of a host. */
  readonly refusals = new Map<string, number[]>();

  client(retryBoundMs = 5_000): ClusterClient {
    const runtime = { ...fakeRuntime(this.clock), network: this.#network() };
    return new ClusterClient(runtime, { clientId: 'c', bootstrap: () => BOOTSTRAP, retryBoundMs });
  }

  #network(): Network {
    const listen = (): never => {
      throw new Error('not part of this test');
    };
    const connect: Network['connect'] = async (host) => {
      if (!this.down.has(host)) return this.#peer(host);
      this.calls.push(`${host} refused`);
      return { cause: 'ECONNREFUSED', message: 'refused' };
    };
    return { listen, connect };
  }

  #peer(host: string): Peer {
    const peer = new Peer();
    peer.apis = [
      [3, 0, 12],
      [10, 0, 6],
      [12, 0, 4],
      [18, 0, 4],
    ];
    peer.onRequest = ({ apiKey, apiVersion, correlationId }) => {
      if (apiKey === 18) return undefined;
      const errorCode = this.refusals.get(host)?.shift() ?? 0;
      if (apiKey === 3) {
        this.calls.push(`${host} Metadata`);
        const response = codec(MetadataResponse, apiVersion);
        return encodeResponseFrame(correlationId, response, this.#metadata());
      }
      if (apiKey === 10) {
        this.calls.push(`${host} FindCoordinator`);
        const found = { nodeId: 1, host: this.coordinator, port: 9092, errorMessage: null };
        const response = codec(FindCoordinatorResponse, apiVersion);
        return encodeResponseFrame(correlationId, response, { errorCode: 0, ...found });
      }
      this.calls.push(`${host} Heartbeat`);
      const response = codec(HeartbeatResponse, apiVersion);
      return encodeResponseFrame(correlationId, response, { errorCode });
    };
    return peer;
  }

  #metadata() {
    const partitions = this.leaders.map((leaderId, partitionIndex) => ({
      errorCode: 0,
      partitionIndex,
      leaderId,
      leaderEpoch: 0,
      replicaNodes: [1, 2],
      isrNodes: [1, 2],
    }));
    return {
      brokers: [
        { nodeId: 1, host: 'one', port: 9092 },
        { nodeId: 2, host: 'two', port: 9092 },
      ],
      clusterId: 'cluster',
      topics: [{ errorCode: 0, name: 't', partitions }],
    };
  }

  async run<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    const watch = (): void => {
      settled = true;
    };
    promise.then(watch, watch);
    for (let steps = 0; !settled; steps++) {
      assert.ok(steps < 5_000, 'it never ends');
      await this.clock.advance(10);
    }
    return promise;
  }
}

const errorCode = (response: { readonly errorCode: number }): number => response.errorCode;

test('a leader that has moved is looked up again', async () => {
  const brokers = new Brokers();
  const client = brokers.client();
  brokers.refusals.set('one', [0, errors.NOT_LEADER_OR_FOLLOWER.code]);
  const target = { to: 'leader', topic: 't', partition: 0 } as const;
  const ask = () =>
    client.call(target, HeartbeatRequest, HeartbeatResponse, HEARTBEAT, { errorCode });
  const asked = ask();
  await brokers.clock.advance(0);
  brokers.leaders = [2, 2];
  assert.equal((await brokers.run(asked)).errorCode, 0);
  const after = ['one Metadata', 'one Heartbeat', 'one Metadata', 'two Heartbeat'];
  assert.deepEqual(brokers.calls, after);
  assert.equal(client.clusterId, 'cluster');
  await brokers.run(ask());
  assert.deepEqual(brokers.calls.slice(4), ['two Heartbeat']);
  client.close();
});

test('a coordinator is looked up once, and again when it is none or does not answer', async () => {
  const brokers = new Brokers();
  const client = brokers.client();
  const target = { to: 'coordinator', of: 'group', key: 'g' } as const;
  const ask = () =>
    brokers.run(client.call(target, HeartbeatRequest, HeartbeatResponse, HEARTBEAT, { errorCode }));
  await ask();
  await ask();
  assert.deepEqual(brokers.calls, ['one FindCoordinator', 'one Heartbeat', 'one Heartbeat']);
  brokers.calls.length = 0;
  brokers.refusals.set('one', [errors.NOT_COORDINATOR.code]);
  brokers.coordinator = 'two';
  await ask();
  assert.deepEqual(brokers.calls, ['one Heartbeat', 'one FindCoordinator', 'two Heartbeat']);
  client.close();
});

test('a broker that is down costs nothing while another answers', async () => {
  const brokers = new Brokers();
  brokers.down.add('one');
  const client = brokers.client();
  const topic = await brokers.run(client.topic('t'));
  assert.deepEqual(
    [...topic.leaders],
    [
      [0, 1],
      [1, 1],
    ],
  );
  assert.deepEqual(brokers.calls, ['one refused', 'two Metadata']);
  client.close();
});

test('what may pass is repeated within the bound, and once with a bound of 0', async () => {
  const brokers = new Brokers();
  brokers.down.add('one').add('two');
  const client = brokers.client(2_000);
  const began = brokers.clock.monotonicMs();
  const isUnreachable = (error: unknown): boolean =>
    error instanceof ClusterError && error.kind === 'unreachable' && error.errorCode === 0;
  await assert.rejects(brokers.run(client.topic('t')), isUnreachable);
  const tookMs = brokers.clock.monotonicMs() - began;
  assert.ok(tookMs > 1_000 && tookMs <= 2_100, `${tookMs} ms`);
  const repeats = brokers.calls.length / 2;
  assert.ok(repeats > 4 && repeats < 12, `${repeats} times`);
  brokers.calls.length = 0;
  await assert.rejects(brokers.run(client.topic('t', 0)), isUnreachable);
  assert.deepEqual(brokers.calls, ['one refused', 'two refused']);
  client.close();
});

test('what stays is not repeated: a refusal, an API that is missing, a closed client', async () => {
  const brokers = new Brokers();
  const client = brokers.client();
  brokers.refusals.set('one', [errors.GROUP_AUTHORIZATION_FAILED.code]);
  const target = { to: 'any' } as const;
  const ask = () =>
    client.call(target, HeartbeatRequest, HeartbeatResponse, HEARTBEAT, { errorCode });
  assert.equal((await brokers.run(ask())).errorCode, errors.GROUP_AUTHORIZATION_FAILED.code);
  const end = { transactionalId: 'x', producerId: 1n, producerEpoch: 0, committed: true };
  await assert.rejects(brokers.run(client.call(target, EndTxnRequest, EndTxnResponse, end)), {
    kind: 'unsupported',
  });
  assert.equal(brokers.calls.length, 1);
  client.close();
  await assert.rejects(brokers.run(ask()), { kind: 'closed' });
});

test('leaders are asked for what is left, an error that stays ends it when all is in', async () => {
  const brokers = new Brokers();
  brokers.leaders = [1, 2, -1];
  const client = brokers.client();
  const asked: string[] = [];
  const answers = brokers.run(
    client.atLeaders('t', [0, 1, 2], 5_000, async (broker, partitions) => {
      asked.push(`${broker}: ${partitions}`);
      if (asked.length === 3) brokers.leaders = [1, 2, 2];
      const isFirst = asked.length <= 2;
      const code = isFirst && broker === 2 ? errors.NOT_LEADER_OR_FOLLOWER.code : 0;
      return new Map(partitions.map((each) => [each, { errorCode: code, value: each * 10 }]));
    }),
  );
  assert.deepEqual(
    [...(await answers)].sort(),
    [0, 1, 2].map((each) => [each, each * 10]),
  );
  assert.deepEqual(asked, ['1: 0', '2: 1', '2: 1', '2: 2']);
  let inFlight = 0;
  const failing = client.atLeaders('t', [0, 1], 5_000, async (broker, partitions) => {
    inFlight++;
    if (broker === 2) await new Promise<void>((resolve) => brokers.clock.setTimer(100, resolve));
    inFlight--;
    const { code } = errors.PRODUCER_FENCED;
    return new Map(partitions.map((each) => [each, { errorCode: code, value: 0 }]));
  });
  await assert.rejects(brokers.run(failing), { errorCode: errors.PRODUCER_FENCED.code });
  assert.equal(inFlight, 0);
  client.close();
});
