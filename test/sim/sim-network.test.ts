import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { seededRandom } from '../../src/base/random.ts';
import type { CloseReason, Connection, Runtime } from '../../src/io/runtime.ts';
import { LAN_PROFILE, WAN_PROFILE } from '../../src/sim/sim-links.ts';
import { SimWorld } from '../../src/sim/sim-runtime.ts';
import { propertyRuns } from '../property-runs.ts';
import { Ear, isConnection } from './chatter.ts';

const PORT = 9092;

interface Pair {
  world: SimWorld;
  client: Connection;
  server: Connection;
  atClient: Ear;
  atServer: Ear;
  runtimes: { a: Runtime; b: Runtime };
}

/** A connection from machine a to machine b, both ends started. */
async function pair(seed: number, link = LAN_PROFILE, bufferBytes = 4096): Promise<Pair> {
  const world = new SimWorld(seed);
  world.network.links.set('a', 'b', link);
  const runtimes = { a: world.start('a'), b: world.start('b') };
  const [atClient, atServer] = [new Ear(bufferBytes), new Ear(bufferBytes)];
  let server: Connection | undefined;
  await runtimes.b.network.listen('b', PORT, (accepted) => {
    server = accepted;
    accepted.start(atServer);
  });
  let client: Connection | undefined;
  void connect(runtimes.a, 'b').then((answer) => {
    assert.ok(isConnection(answer));
    client = answer;
    client.start(atClient);
  });
  await world.simulator.runUntil(() => client !== undefined, 1000);
  return { world, client: client!, server: server!, atClient, atServer, runtimes };
}

function connect(runtime: Runtime, host: string): Promise<Connection | CloseReason> {
  return runtime.network.connect(host, PORT, 2000);
}

/** Why the connection ended, as its owner was told. */
function cause(ear: Ear): string | undefined {
  return ear.reason?.cause;
}

async function settled<T>(world: SimWorld, promise: Promise<T>, limitMs = 5000): Promise<T> {
  let answer: { value: T } | undefined;
  void promise.then((value) => {
    answer = { value };
  });
  await world.simulator.runUntil(() => answer !== undefined, limitMs);
  return answer!.value;
}

test('bytes arrive whole and in order, whatever is cut and healed on the way', async () => {
  const property = fc.asyncProperty(
    fc.integer(),
    fc.integer({ min: 1, max: 900 }),
    async (s, n) => {
      const { world, client, server, atClient, atServer } = await pair(s, WAN_PROFILE, n);
      const random = seededRandom(s);
      const sent: { up: Uint8Array[]; down: Uint8Array[] } = { up: [], down: [] };
      for (let round = 0; round < 30; round++) {
        const bytes = random.bytes(random.below(3000));
        (random.chance(0.5) ? sent.up : sent.down).push(bytes);
        (bytes === sent.up.at(-1) ? client : server).write([
          bytes.subarray(0, 9),
          bytes.subarray(9),
        ]);
        if (random.chance(0.2)) world.network.cut('a', 'b', random.chance(0.5) ? 'both' : 'a-to-b');
        if (random.chance(0.3)) world.network.healAll();
        await world.simulator.runFor(random.below(60));
      }
      world.network.healAll();
      await world.simulator.runFor(1000);
      assert.deepEqual(atServer.bytes, Buffer.concat(sent.up));
      assert.deepEqual(atClient.bytes, Buffer.concat(sent.down));
    },
  );
  await fc.assert(property, propertyRuns(15));
});

test('a long wire delays by its latency, and its bandwidth is shared', async () => {
  const { world, client, atServer } = await pair(3, {
    ...WAN_PROFILE,
    jitterMs: 0,
    bytesPerMs: 10,
  });
  const startMs = world.simulator.nowMs;
  client.write([new Uint8Array(1000)]);
  await world.simulator.runUntil(() => atServer.bytes.length === 1000, 1000);
  const tookMs = world.simulator.nowMs - startMs;
  assert.ok(Math.abs(tookMs - 140) < 0.001, `${tookMs} ms`);
});

test('a partition stops bytes and new connections; healing brings them', async () => {
  const { world, client, atServer, runtimes } = await pair(4);
  world.network.cut('a', 'b');
  client.write([Buffer.from('held')]);
  const late = await settled(world, connect(runtimes.a, 'b'));
  assert.deepEqual(late, { cause: 'timeout', message: 'b:9092: no connection within 2000 ms' });
  assert.equal(atServer.bytes.length, 0);
  const waiting = connect(runtimes.a, 'b');
  await world.simulator.runFor(100);
  world.network.heal('a', 'b');
  assert.ok(isConnection(await settled(world, waiting)));
  assert.equal(atServer.bytes.toString(), 'held');
});

test('a partition that lasts breaks the sending end only: the other is half-open', async () => {
  const { world, client, server, atClient, atServer } = await pair(5);
  world.network.cut('a', 'b');
  client.write([Buffer.from('lost')]);
  await world.simulator.runFor(61_000);
  assert.equal(cause(atClient), 'ETIMEDOUT');
  assert.equal(cause(atServer), undefined);
  world.network.healAll();
  server.write([Buffer.from('anyone there?')]);
  await world.simulator.runFor(10);
  assert.equal(cause(atServer), 'ECONNRESET');
  assert.equal(atServer.bytes.length, 0);
});

test('an orderly close is `closed`, after all bytes; the closer hears nothing', async () => {
  const { world, client, server, atClient, atServer } = await pair(6, LAN_PROFILE, 3);
  client.write([Buffer.from('last words')]);
  client.close();
  server.write([Buffer.from('too late')]);
  await world.simulator.runFor(10);
  assert.deepEqual([atServer.bytes.toString(), cause(atServer)], ['last words', 'closed']);
  assert.deepEqual([atClient.bytes.length, cause(atClient)], [0, undefined]);
});

test('a killed process closes its connections; without power its peers hear nothing', async () => {
  const killed = await pair(7);
  killed.world.kill('b');
  await killed.world.simulator.runFor(10);
  assert.equal(cause(killed.atClient), 'closed');
  const refused = await settled(killed.world, connect(killed.runtimes.a, 'b'));
  assert.deepEqual(refused, { cause: 'ECONNREFUSED', message: 'b:9092: ECONNREFUSED' });

  const dark = await pair(8);
  dark.world.losePower('b', { unsynced: 'lose', tornTail: false });
  await dark.world.simulator.runFor(1000);
  assert.equal(cause(dark.atClient), undefined);
  dark.world.start('b');
  dark.client.write([Buffer.from('hello again')]);
  await dark.world.simulator.runFor(10);
  assert.equal(cause(dark.atClient), 'ECONNRESET');
  assert.equal(cause(dark.atServer), undefined, 'the dead process hears nothing');
});

test('a reset breaks both ends', async () => {
  const asked = await pair(9);
  asked.world.network.resetConnections('b', 'a');
  await asked.world.simulator.runFor(1);
  assert.equal(cause(asked.atClient), 'ECONNRESET');
  assert.equal(cause(asked.atServer), 'ECONNRESET');
  const unlucky = await pair(10, { ...LAN_PROFILE, resetChance: 1 });
  assert.equal(unlucky.client.write([Buffer.from('x')]), true);
  assert.equal(cause(unlucky.atClient), undefined, 'never from inside write');
  await unlucky.world.simulator.runFor(1);
  assert.equal(cause(unlucky.atClient), 'ECONNRESET');
  assert.equal(cause(unlucky.atServer), 'ECONNRESET');
});

test('write says stop when the peer does not read, and writable when it has', async () => {
  const { world, client, server, atClient, atServer } = await pair(11, LAN_PROFILE, 100_000);
  server.pause();
  let count = 0;
  do count++;
  while (client.write([new Uint8Array(100_000)]));
  await world.simulator.runFor(100);
  assert.equal(atServer.bytes.length, 0);
  assert.ok(client.queuedBytes() > 0);
  assert.equal(atClient.writables, 0);
  server.resume();
  await world.simulator.runFor(100);
  assert.equal(atServer.bytes.length, count * 100_000);
  assert.deepEqual([atClient.writables, client.queuedBytes()], [1, 0]);
});

test('a reader that pauses inside received gets no more until it resumes', async () => {
  const { world, client, server, atServer } = await pair(12, LAN_PROFILE, 10);
  atServer.onReceived = () => server.pause();
  client.write([Buffer.alloc(25, 1)]);
  await world.simulator.runFor(10);
  assert.equal(atServer.chunks.length, 1);
  atServer.onReceived = () => {};
  server.resume();
  assert.equal(atServer.chunks.length, 1, 'never from inside resume');
  await world.simulator.runFor(10);
  assert.equal(atServer.bytes.length, 25);
});

test('names, addresses and ports behave as on real machines', async () => {
  const world = new SimWorld(13);
  const [a, b] = [world.start('a'), world.start('b')];
  const unknown = await settled(world, connect(a, 'nowhere'));
  assert.equal('cause' in unknown && unknown.cause, 'ENOTFOUND');
  const local = await b.network.listen('127.0.0.1', PORT, (c) => c.start(new Ear()));
  await assert.rejects(
    b.network.listen('b', PORT, () => {}),
    { message: 'cannot listen on b:9092: EADDRINUSE' },
  );
  await assert.rejects(
    b.network.listen('a', 1, () => {}),
    /EADDRNOTAVAIL/,
  );
  const fromOutside = await settled(world, connect(a, 'b'));
  assert.equal('cause' in fromOutside && fromOutside.cause, 'ECONNREFUSED');
  const fromInside = await settled(world, connect(b, 'localhost'));
  assert.ok(isConnection(fromInside));
  assert.equal(fromInside.remoteAddress, 'b');
  await local.close();
  const closed = await settled(world, connect(b, 'localhost'));
  assert.equal('cause' in closed && closed.cause, 'ECONNREFUSED');
  const free = await b.network.listen('0.0.0.0', 0, () => {});
  assert.ok(free.port > 0);
});
