/**
 * The client side of a connection, against a broker that a test plays frame by frame.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ConnectionError,
  KafkaConnection,
  type KafkaConnectionOptions,
  MAX_IN_FLIGHT_REQUESTS,
} from '../../src/protocol/kafka-connection.ts';
import { MetadataRequest, MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import { CreateMirrorRequest } from '../../src/protocol/messages/12790-create-mirror.ts';
import { noCrypto } from '../../src/sim/sim-crypto.ts';
import { ManualClock, settle } from '../replication/fakes.ts';
import { networkTo, Peer } from './kafka-peer.ts';

const clock = new ManualClock();

function connect(peer: Peer, options: Partial<KafkaConnectionOptions> = {}) {
  const runtime = { clock, network: networkTo(peer), crypto: noCrypto };
  return KafkaConnection.connect(runtime, { host: 'b', port: 1, clientId: 'me', ...options });
}

const ASK = { topics: null };

function fails(cause: string, message = /./) {
  return (error: unknown): true => {
    assert.ok(error instanceof ConnectionError, String(error));
    assert.equal(error.cause, cause);
    assert.match(error.message, message);
    return true;
  };
}

test('the handshake asks for the newest version and names the client', async () => {
  const peer = new Peer();
  const connection = await connect(peer);
  assert.deepEqual(
    peer.requests.map(({ apiKey, apiVersion, clientId }) => [apiKey, apiVersion, clientId]),
    [[18, 4, 'me']],
  );
  connection.close();
});

test('a broker that refuses the version in a v0 body is asked in one it knows', async () => {
  const peer = new Peer();
  peer.apiVersionsMax = 2;
  const connection = await connect(peer);
  assert.deepEqual(
    peer.requests.map(({ apiVersion }) => apiVersion),
    [4, 2],
  );
  assert.equal(connection.version(MetadataRequest), 9);
  connection.close();
});

test('the highest version that both sides know is used, below a limit of the caller', async () => {
  const peer = new Peer();
  const connection = await connect(peer);
  assert.equal(connection.version(MetadataRequest), 9);
  assert.equal(connection.version(MetadataRequest, 5), 5);
  assert.equal(connection.version(CreateMirrorRequest), undefined);
  peer.apis = [];
  connection.close();
});

test('responses find their requests by correlation id, in any order', async () => {
  const peer = new Peer();
  const connection = await connect(peer);
  const first = connection.send(MetadataRequest, MetadataResponse, ASK);
  const second = connection.send(MetadataRequest, MetadataResponse, ASK);
  const [one, two] = peer.requests.slice(1);
  peer.answerMetadata(two?.correlationId ?? -1, 9, 'two');
  peer.answerMetadata(one?.correlationId ?? -1, 9, 'one');
  assert.equal((await first).brokers[0]?.host, 'one');
  assert.equal((await second).brokers[0]?.host, 'two');
  connection.close();
});

test('an API that the broker does not serve fails alone', async () => {
  const peer = new Peer();
  const connection = await connect(peer);
  const refused = connection.send(CreateMirrorRequest, MetadataResponse, {
    mirrorName: 'm',
    config: [],
  });
  await assert.rejects(refused, fails('unsupportedVersion', /b:1 .*CreateMirror/));
  assert.equal(connection.ended, undefined);
  connection.close();
});

test('a refused dial says where and why', async () => {
  const reason = { cause: 'ECONNREFUSED', message: 'refused' };
  const runtime = { clock, network: networkTo(reason), crypto: noCrypto };
  const dialled = KafkaConnection.connect(runtime, { host: 'b', port: 1, clientId: 'me' });
  await assert.rejects(dialled, fails('ECONNREFUSED', /b:1: refused/));
});

test('a request that is not answered in time ends the connection', async () => {
  const peer = new Peer();
  const ended: string[] = [];
  const connection = await connect(peer, {
    requestTimeoutMs: 100,
    onClosed: ({ cause }) => ended.push(cause),
  });
  const slow = connection.send(MetadataRequest, MetadataResponse, ASK);
  const other = connection.send(MetadataRequest, MetadataResponse, ASK, { timeoutMs: 5000 });
  const both = Promise.all([
    assert.rejects(slow, fails('timeout', /100 ms/)),
    assert.rejects(other, fails('timeout')),
  ]);
  await clock.advance(100);
  await both;
  assert.equal(peer.isClosed, true);
  assert.deepEqual(ended, ['timeout']);
});

test('a handshake that is not answered fails the connect', async () => {
  const peer = new Peer();
  peer.silent = true;
  const dialled = assert.rejects(connect(peer, { connectTimeoutMs: 50 }), fails('timeout'));
  await settle();
  await clock.advance(50);
  await dialled;
});

test('a peer that goes away fails what is in flight with its reason', async () => {
  const peer = new Peer();
  const connection = await connect(peer);
  const lost = connection.send(MetadataRequest, MetadataResponse, ASK);
  peer.end({ cause: 'ECONNRESET', message: 'reset by peer' });
  await assert.rejects(lost, fails('ECONNRESET', /reset by peer/));
  await assert.rejects(
    connection.send(MetadataRequest, MetadataResponse, ASK),
    fails('ECONNRESET'),
  );
});

test('malformed answers end the connection: bad frames, bad bodies, unknown requests', async () => {
  const frames = [
    Buffer.from([0xff, 0xff, 0xff, 0xff]),
    Buffer.from([0x7f, 0xff, 0xff, 0xff]),
    Buffer.from([0, 0, 0, 2, 1, 1]),
    Buffer.from([0, 0, 0, 4, 0, 0, 0, 99]),
    Buffer.from([0, 0, 0, 6, 0, 0, 0, 1, 0, 0]),
  ];
  for (const frame of frames) {
    const peer = new Peer();
    const connection = await connect(peer);
    const lost = connection.send(MetadataRequest, MetadataResponse, ASK);
    peer.send(frame);
    await assert.rejects(lost, fails('malformed', /does not answer as a Kafka broker/));
    assert.equal(peer.isClosed, true);
  }
});

test('closing fails what is in flight and tells nobody else', async () => {
  const peer = new Peer();
  const ended: string[] = [];
  const connection = await connect(peer, { onClosed: ({ cause }) => ended.push(cause) });
  const lost = connection.send(MetadataRequest, MetadataResponse, ASK);
  connection.close();
  await assert.rejects(lost, fails('closed'));
  assert.deepEqual(ended, []);
});

test('requests beyond the limit are refused, the connection lives', async () => {
  const peer = new Peer();
  const connection = await connect(peer);
  const sent = Array.from({ length: MAX_IN_FLIGHT_REQUESTS }, () =>
    connection.send(MetadataRequest, MetadataResponse, ASK).catch(() => {}),
  );
  const beyond = connection.send(MetadataRequest, MetadataResponse, ASK);
  await assert.rejects(beyond, fails('overloaded'));
  assert.equal(connection.ended, undefined);
  connection.close();
  await Promise.all(sent);
});

test('F14 the callback runs before a reused buffer is overwritten', async () => {
  const peer = new Peer();
  const connection = await connect(peer, { reuseFrameBuffer: true });
  const seen: string[] = [];
  const ask = (): void =>
    connection.exchange(MetadataRequest, MetadataResponse, ASK, {}, (result) => {
      assert.ok(!(result instanceof ConnectionError));
      seen.push(result.brokers[0]?.host ?? '');
      if (seen.length < 3) ask();
    });
  ask();
  for (const host of ['x'.repeat(100), 'y'.repeat(30_000), 'z']) {
    peer.answerMetadata(peer.requests.at(-1)?.correlationId ?? -1, 9, host);
  }
  assert.deepEqual(
    seen.map((host) => [host[0], host.length]),
    [
      ['x', 100],
      ['y', 30_000],
      ['z', 1],
    ],
  );
  connection.close();
});
