import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { type TestContext, test } from 'node:test';
import { silentLogger } from '../../src/base/logger.ts';
import { nodeNetwork } from '../../src/io/node/node-network.ts';
import type { CloseReason, Connection, Listener } from '../../src/io/runtime.ts';

const network = nodeNetwork(silentLogger);
const HOST = '127.0.0.1';
const CONNECT_TIMEOUT_MS = 5000;

function isConnection(answer: Connection | CloseReason): answer is Connection {
  return 'write' in answer;
}

/** An owner that records what it is told and can be waited on. */
class Recorder {
  readonly chunks: Buffer[] = [];
  readonly #sizes: number[];
  #next: Uint8Array = new Uint8Array(0);
  #asked = 0;
  #waiters: (() => void)[] = [];
  reason: CloseReason | undefined;
  writables = 0;
  onReceived: () => void = () => {};

  constructor(sizes: number[] = [65536]) {
    this.#sizes = sizes;
  }
  receiveBuffer(): Uint8Array {
    this.#next = new Uint8Array(this.#sizes[this.#asked++ % this.#sizes.length]!);
    return this.#next;
  }
  received(length: number): void {
    assert.ok(length >= 1 && length <= this.#next.length);
    this.chunks.push(Buffer.from(this.#next.subarray(0, length)));
    this.onReceived();
    this.#wake();
  }
  writable(): void {
    this.writables++;
    this.#wake();
  }
  closed(reason: CloseReason): void {
    assert.equal(this.reason, undefined, 'closed once');
    this.reason = reason;
    this.#wake();
  }
  get bytes(): Buffer {
    return Buffer.concat(this.chunks);
  }
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }
  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}

/** A listener and both ends of one connection, not started. */
async function pair(t: TestContext): Promise<{ client: Connection; server: Connection }> {
  let listener: Listener | undefined;
  const accepted = new Promise<Connection>((resolve) => {
    network.listen(HOST, 0, resolve).then(
      (made) => {
        listener = made;
        network.connect(HOST, made.port, CONNECT_TIMEOUT_MS).then(opened, assert.fail);
      },
      (error: Error) => assert.fail(error),
    );
  });
  let opened: (answer: Connection | CloseReason) => void = () => {};
  const connected = new Promise<Connection | CloseReason>((resolve) => {
    opened = resolve;
  });
  const [client, server] = await Promise.all([connected, accepted]);
  assert.ok(isConnection(client));
  t.after(async () => {
    client.close();
    server.close();
    await listener?.close();
  });
  return { client, server };
}

const pattern = (length: number): Buffer =>
  Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255));

test('bytes arrive whole and in order in buffers of any size, both ways', async (t) => {
  const { client, server } = await pair(t);
  const [atClient, atServer] = [new Recorder([1, 4, 100_000, 17]), new Recorder([3, 70_000, 1])];
  client.start(atClient);
  server.start(atServer);
  const sent = pattern(700_000);
  client.write([sent.subarray(0, 10), sent.subarray(10, 10), sent.subarray(10)]);
  server.write([sent]);
  await atServer.until(() => atServer.bytes.length === sent.length);
  await atClient.until(() => atClient.bytes.length === sent.length);
  assert.deepEqual(atServer.bytes, sent);
  assert.deepEqual(atClient.bytes, sent);
  assert.equal(server.remoteAddress, HOST);
  assert.ok(server.localPort > 0);
});

for (const side of ['client', 'server'] as const) {
  test(`a ${side} reads straight into the buffer its owner gave for that read`, async (t) => {
    const ends = await pair(t);
    const [reader, writer] =
      side === 'client' ? [ends.client, ends.server] : [ends.server, ends.client];
    const owner = new Recorder([8, 1_000_000]);
    reader.start(owner);
    writer.start(new Recorder());
    writer.write([pattern(8)]);
    await owner.until(() => owner.bytes.length >= 8);
    writer.write([pattern(900_000)]);
    await owner.until(() => owner.bytes.length === 900_008);
    const largest = Math.max(...owner.chunks.map(({ length }) => length));
    assert.ok(largest > 65536, `largest read: ${largest}`);
  });
}

for (const side of ['client', 'server'] as const) {
  test(`${side}: nothing arrives before start or while paused, all of it afterwards`, async (t) => {
    const ends = await pair(t);
    const [reader, writer] =
      side === 'client' ? [ends.client, ends.server] : [ends.server, ends.client];
    const owner = new Recorder([1000]);
    writer.start(new Recorder());
    writer.write([pattern(3000)]);
    await new Promise((resolve) => setImmediate(resolve));
    owner.onReceived = () => {
      if (owner.chunks.length === 1) reader.pause();
    };
    reader.start(owner);
    await owner.until(() => owner.chunks.length === 1);
    writer.write([pattern(5000)]);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(owner.chunks.length, 1);
    reader.resume();
    await owner.until(() => owner.bytes.length === 8000);
    assert.deepEqual(owner.bytes, Buffer.concat([pattern(3000), pattern(5000)]));
  });
}

test('write says stop when the peer does not read, and writable when it has', async (t) => {
  const { client, server } = await pair(t);
  const [atClient, atServer] = [new Recorder(), new Recorder()];
  client.start(atClient);
  server.start(atServer);
  server.pause();
  const chunk = pattern(1_000_000);
  let count = 1;
  while (client.write([chunk])) {
    count++;
    assert.ok(count < 1000, 'never full');
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(client.queuedBytes() > 0);
  assert.equal(atClient.writables, 0);
  server.resume();
  await atClient.until(() => atClient.writables === 1);
  await atServer.until(() => atServer.bytes.length === count * chunk.length);
  assert.equal(client.queuedBytes(), 0);
});

test('an orderly end is `closed`, told once, after all bytes', async (t) => {
  const { client, server } = await pair(t);
  const owner = new Recorder([5]);
  server.start(new Recorder());
  const left = new Promise<void>((resolve) => setImmediate(resolve));
  server.write([Buffer.from('last words')]);
  client.start(owner);
  await left;
  await owner.until(() => owner.bytes.length === 10);
  server.close();
  await owner.until(() => owner.reason !== undefined);
  assert.equal(owner.reason?.cause, 'closed');
  assert.equal(owner.bytes.toString(), 'last words');
});

test('after its own close an owner hears nothing more', async (t) => {
  const { client, server } = await pair(t);
  const [atClient, atServer] = [new Recorder([2]), new Recorder()];
  atClient.onReceived = () => client.close();
  client.start(atClient);
  server.start(atServer);
  server.write([pattern(100)]);
  await atServer.until(() => atServer.reason !== undefined);
  assert.deepEqual([atClient.chunks.length, atClient.reason], [1, undefined]);
  assert.equal(client.write([pattern(3)]), true);
});

test('a peer that died before start is told at start', async (t) => {
  const listening = net.createServer((socket) => socket.resetAndDestroy()).listen(0, HOST);
  await once(listening, 'listening');
  t.after(() => listening.close());
  const { port } = listening.address() as net.AddressInfo;
  const answer = await network.connect(HOST, port, CONNECT_TIMEOUT_MS);
  if (!isConnection(answer)) return; // the reset was faster than the connect
  await new Promise((resolve) => setTimeout(resolve, 20));
  const owner = new Recorder();
  answer.start(owner);
  await owner.until(() => owner.reason !== undefined);
  assert.equal(owner.reason?.cause, 'ECONNRESET');
});

test('what cannot be reached is an answer that names the peer and the cause', async () => {
  const free = await network.listen(HOST, 0, () => {});
  await free.close();
  const refused = await network.connect(HOST, free.port, CONNECT_TIMEOUT_MS);
  assert.ok(!isConnection(refused));
  assert.equal(refused.cause, 'ECONNREFUSED');
  assert.match(refused.message, new RegExp(`${HOST}:${free.port}`));
  const noPort = await network.connect(HOST, 70_000, CONNECT_TIMEOUT_MS);
  assert.ok(!isConnection(noPort));
  assert.equal(noPort.cause, 'EINVAL');
  const noName = await network.connect('no-such-host.invalid', 9092, CONNECT_TIMEOUT_MS);
  assert.ok(!isConnection(noName));
  assert.match(noName.cause, /^(ENOTFOUND|EAI_AGAIN|timeout)$/);
});

const DEAF = `
  const server = require('node:net').createServer();
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 });
  server.on('listening', () => {
    require('node:fs').writeSync(1, String(server.address().port));
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0); // never accepts
  });
`;

test('a host that never answers is `timeout`', {
  skip: process.platform !== 'linux',
}, async (t) => {
  const deaf = spawn(process.execPath, ['-e', DEAF]);
  t.after(() => deaf.kill('SIGKILL'));
  const [line] = (await once(deaf.stdout, 'data')) as [Buffer];
  const port = Number(line.toString());
  const fillers = Array.from({ length: 4 }, () => net.connect(port, HOST).on('error', () => {}));
  t.after(() => fillers.forEach((socket) => void socket.destroy()));
  await once(fillers[1]!, 'connect');
  const answer = await network.connect(HOST, port, 200);
  assert.ok(!isConnection(answer));
  assert.deepEqual(answer, {
    cause: 'timeout',
    message: `${HOST}:${port}: no connection within 200 ms`,
  });
});

test('a taken port rejects with address and errno; closing keeps connections', async (t) => {
  const accepted: Connection[] = [];
  const first = await network.listen(HOST, 0, (connection) => accepted.push(connection));
  await assert.rejects(
    network.listen(HOST, first.port, () => {}),
    (error: Error) => error.message === `cannot listen on ${HOST}:${first.port}: EADDRINUSE`,
  );
  const client = await network.connect(HOST, first.port, CONNECT_TIMEOUT_MS);
  assert.ok(isConnection(client));
  const owner = new Recorder();
  client.start(owner);
  while (accepted.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await first.close();
  accepted[0]!.start(new Recorder());
  accepted[0]!.write([Buffer.from('still here')]);
  await owner.until(() => owner.bytes.length === 10);
  const gone = await network.connect(HOST, first.port, CONNECT_TIMEOUT_MS);
  assert.ok(!isConnection(gone));
  t.after(() => {
    client.close();
    accepted[0]!.close();
  });
});
