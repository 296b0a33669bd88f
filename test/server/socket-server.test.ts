/** Connections: framing, order, limits, back-pressure, ends; driven by hand. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BufferPool, MIN_POOLED_BYTES } from '../../src/base/buffer-pool.ts';
import type { Logger } from '../../src/base/logger.ts';
import {
  type ConnectionContext,
  MAX_QUEUED_BYTES,
  MAX_QUEUED_REQUESTS,
  SocketServer,
  type SocketServerOptions,
  UnanswerableRequest,
} from '../../src/server/socket-server.ts';
import { FakeNetwork, fakeRuntime, framed, ManualClock, settle } from './fakes.ts';

interface Served {
  readonly text: string;
  readonly context: ConnectionContext;
  answer(text: string | undefined): void;
  fail(error: Error): void;
}

async function setup(options: Partial<SocketServerOptions> = {}) {
  const network = new FakeNetwork();
  const clock = new ManualClock();
  const logged: string[] = [];
  const log = (level: string) => (message: string) => void logged.push(`${level} ${message}`);
  const logger = {
    debug: () => {},
    info: log('info'),
    warn: log('warn'),
    error: log('error'),
  } as unknown as Logger;
  const runtime = { ...fakeRuntime(clock), network, logger };
  const served: Served[] = [];
  const closed: number[] = [];
  const server = new SocketServer(runtime, {
    maxRequestBytes: MAX_QUEUED_BYTES * 2,
    maxIdleMs: 1000,
    connectionClosed: (id) => closed.push(id),
    buffers: new BufferPool(),
    handleFrame: (frame, context) =>
      new Promise((resolve, reject) => {
        served.push({
          text: Buffer.from(frame).toString(),
          context,
          answer: (text) => resolve(text === undefined ? undefined : [Buffer.from(text)]),
          fail: reject,
        });
      }),
    ...options,
  });
  const address = await server.listen({ name: 'PLAINTEXT', host: '127.0.0.1', port: 0 });
  return { server, network, clock, served, closed, logged, address };
}

const texts = (served: readonly Served[]): string[] => served.map(({ text }) => text);

test('listen answers the real port; connections know listener, host and id', async () => {
  const { network, served, address } = await setup();
  assert.deepEqual(address, { name: 'PLAINTEXT', host: '127.0.0.1', port: 12_345 });
  for (const name of ['a', 'b']) network.open().receive(framed(Buffer.from(name)));
  const shared = { listenerName: 'PLAINTEXT', clientHost: '192.0.2.7' };
  assert.deepEqual(
    served.map(({ context }) => context),
    [
      { connectionId: 1, ...shared },
      { connectionId: 2, ...shared },
    ],
  );
});

test('frames are found wherever the stream is cut', async () => {
  const { network, served } = await setup();
  const stream = Buffer.concat(['first', '', 'third'].map((text) => framed(Buffer.from(text))));
  for (let cut = 0; cut <= stream.length; cut++) {
    served.length = 0;
    const connection = network.open();
    connection.receive(stream.subarray(0, cut));
    connection.receive(stream.subarray(cut));
    for (let i = 0; i < 3; i++) {
      served[i]?.answer(`re:${served[i]?.text}`);
      await settle();
    }
    assert.deepEqual(texts(served), ['first', '', 'third'], `cut at ${cut}`);
    assert.equal(Buffer.concat(connection.written).toString(), 're:firstre:re:third');
  }
});

test('a slow request holds the next, so answers leave in order', async () => {
  const { network, served } = await setup();
  const connection = network.open();
  connection.receive(Buffer.concat(['1', '2', '3'].map((text) => framed(Buffer.from(text)))));
  await settle();
  assert.deepEqual(texts(served), ['1']);
  served[0]?.answer('one');
  await settle();
  assert.deepEqual(texts(served), ['1', '2']);
  served[1]?.answer(undefined);
  await settle();
  served[2]?.answer('three');
  await settle();
  assert.deepEqual(connection.written.map(String), ['one', 'three']);
});

test('a connection is not read while its queue is full, and again at half', async () => {
  const { network, served } = await setup();
  const connection = network.open();
  const send = (n: number) => {
    for (let i = 0; i < n; i++) connection.receive(framed(Buffer.from('x')));
  };
  send(MAX_QUEUED_REQUESTS);
  assert.equal(connection.paused, false, 'one is being served, the queue has a place left');
  send(1);
  assert.equal(connection.paused, true);
  for (let i = 0; connection.paused; i++) {
    assert.ok(i < MAX_QUEUED_REQUESTS, 'never resumed');
    served[i]?.answer('');
    await settle();
  }
  assert.equal(served.length, MAX_QUEUED_REQUESTS / 2 + 2);
});

test('a connection is not read while it holds too many bytes', async () => {
  const { network, served } = await setup();
  const connection = network.open();
  const large = framed(new Uint8Array(MAX_QUEUED_BYTES / 2));
  for (let i = 0; i < 3; i++) connection.receive(large);
  assert.equal(connection.paused, true);
  served[0]?.answer('');
  await settle();
  assert.equal(connection.paused, true, 'half the limit is still queued');
  served[1]?.answer('');
  await settle();
  assert.equal(connection.paused, false);
});

test('a size that is negative or too large closes that connection alone', async () => {
  const { network, served, closed, logged } = await setup();
  const other = network.open();
  for (const size of [-1, MAX_QUEUED_BYTES * 2 + 1]) {
    const bad = network.open();
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(size);
    bad.receive(Buffer.concat([framed(Buffer.from('good')), bytes, framed(Buffer.from('late'))]));
    assert.equal(bad.closedByOwner, true);
    served.at(-1)?.answer('dropped');
    await settle();
    assert.deepEqual(bad.written, []);
  }
  assert.deepEqual(texts(served), ['good', 'good']);
  assert.deepEqual(closed, [2, 3]);
  assert.deepEqual(logged, Array(2).fill('warn closing connection: bad frame'));
  other.receive(framed(Buffer.from('alive')));
  served[2]?.answer('yes');
  await settle();
  assert.deepEqual(other.written.map(String), ['yes']);
});

test('a peer that does not take its answer holds its own requests only', async () => {
  const { network, served } = await setup();
  const slow = network.open();
  const other = network.open();
  slow.accepts = false;
  slow.receive(Buffer.concat([framed(Buffer.from('1')), framed(Buffer.from('2'))]));
  served[0]?.answer('one');
  await settle();
  other.receive(framed(Buffer.from('other')));
  await settle();
  assert.deepEqual(texts(served), ['1', 'other']);
  slow.accepts = true;
  slow.owner.writable();
  await settle();
  assert.deepEqual(texts(served), ['1', 'other', '2']);
});

test('a peer that leaves during a request: nothing more is served or written', async () => {
  const { network, served, closed } = await setup();
  const connection = network.open();
  connection.receive(Buffer.concat([framed(Buffer.from('1')), framed(Buffer.from('2'))]));
  connection.owner.closed({ cause: 'ECONNRESET', message: 'gone' });
  served[0]?.answer('one');
  await settle();
  assert.deepEqual([texts(served), connection.written, closed], [['1'], [], [1]]);
});

test('a failed request closes its connection; only a defect is logged as an error', async () => {
  const { network, served, closed, logged } = await setup();
  const [first, second] = [network.open(), network.open()];
  first.receive(framed(Buffer.from('1')));
  second.receive(framed(Buffer.from('2')));
  served[0]?.fail(new UnanswerableRequest('no such version'));
  served[1]?.fail(new TypeError('oops'));
  await settle();
  assert.deepEqual([first.closedByOwner, second.closedByOwner, closed], [true, true, [1, 2]]);
  assert.deepEqual(
    logged.map((line) => line.split(' ')[0]),
    ['warn', 'error'],
  );
});

test('idle connections are closed; those that ask, wait or just got an answer stay', async () => {
  const { network, clock, served, closed } = await setup();
  const [idle, asking, waiting] = [network.open(), network.open(), network.open()];
  waiting.receive(framed(Buffer.from('long poll')));
  await clock.advance(1500);
  asking.receive(framed(Buffer.from('ask')));
  served[1]?.answer('');
  await clock.advance(500);
  assert.deepEqual([idle.closedByOwner, closed], [true, [1]]);
  served[0]?.answer('');
  await clock.advance(1000);
  assert.deepEqual([asking.closedByOwner, waiting.closedByOwner], [true, false]);
  await clock.advance(1000);
  assert.equal(waiting.closedByOwner, true);
});

test('close ends every connection and the sweep', async () => {
  const { server, network, clock, served, closed } = await setup();
  const connection = network.open();
  connection.receive(framed(Buffer.from('1')));
  await server.close();
  served[0]?.answer('late');
  await settle();
  assert.equal(connection.closedByOwner, true);
  assert.deepEqual([connection.written, closed, clock.pendingTimers], [[], [1], 0]);
});

test('memory of a response is free again when it was sent, not before', async () => {
  const buffers = new BufferPool();
  const memory = buffers.take(MIN_POOLED_BYTES);
  const chunks = [Buffer.from('head'), memory.subarray(0, 10), memory.subarray(10)];
  const { network } = await setup({ buffers, handleFrame: async () => chunks });
  const connection = network.open();
  connection.receive(framed(Buffer.from('fetch')));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(connection.unsent.length, 1);
  assert.equal(buffers.freeBytes, 0);
  connection.unsent[0]?.();
  assert.equal(buffers.freeBytes, MIN_POOLED_BYTES);
});
