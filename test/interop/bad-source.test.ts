/**
 * A source that misbehaves on the wire, against real Apache Kafka behind a proxy: connections that
 * end in mid-frame, bytes that change on the way, a server that suddenly is none. The partitions
 * concerned say why, the others go on, and nothing damaged is ever written.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { answering, FaultyProxy } from './bad-peers.ts';
import { javaClient } from './clusters.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { LiveProducer } from './live-producers.ts';
import {
  awaitProgress,
  awaitState,
  differencesWhenCaughtUp,
  partitionsOf,
  until,
} from './mirror-watch.ts';
import { freePort } from './processes.ts';
import { brokerOnSmallDisk } from './small-disk.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const MIRROR = 'bad-source';
const PARTITIONS = 2;
const LARGE_CHUNK = 4_000;

let source: KafkaCluster;
let proxy: FaultyProxy;
let twinlog: TwinlogBroker;

if (skip === false) {
  before(async () => {
    await javaClient(); // makes the archive that lets Kafka start fast
    const port = await freePort();
    source = await startKafka({ name: 'proxied', advertisedProxyPorts: [port] });
    proxy = await FaultyProxy.start(port, source.broker(1).proxiedPort ?? 0);
    twinlog = await startTwinlog({ name: 'bad-source' });
    await twinlog.mirrors('create', MIRROR, '--source', proxy.server.address);
  });
  after(async () => {
    await twinlog?.destroy();
    await proxy?.server.close();
    await source?.destroy();
  });
}

/** A mirrored topic that is written to; the producers do not go through the proxy. */
async function mirroredTopic(topic: string, valueBytes = 1_000): Promise<LiveProducer> {
  const { bootstrap } = source;
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, PARTITIONS);
  const producer = new LiveProducer(java, { bootstrap, topic, partitions: PARTITIONS, valueBytes });
  await producer.more(3);
  await twinlog.mirrors('add', MIRROR, topic);
  await awaitState(twinlog, MIRROR, topic, 'MIRRORING');
  return producer;
}

test('F3: a source that closes in mid-frame is asked again', { skip }, async () => {
  const topic = 'mid-frame';
  const producer = await mirroredTopic(topic);
  let cuts = 0;
  proxy.fault = (chunk) => {
    if (chunk.length < LARGE_CHUNK || cuts >= 8) return chunk;
    cuts++;
    return 'cut';
  };
  await until('eight cuts', async () => (cuts >= 8 ? true : undefined));
  proxy.heal();
  await awaitProgress(source.bootstrap, twinlog, topic);
  await producer.stop();
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
});

test('F5: a batch damaged on the way is fetched again', { skip }, async () => {
  const topic = 'damaged-once';
  const producer = await mirroredTopic(topic);
  let flips = 0;
  proxy.fault = (chunk) => {
    if (chunk.length < LARGE_CHUNK || flips >= 2) return chunk;
    flips++;
    const at = chunk.length - 500;
    chunk.writeUInt8(chunk.readUInt8(at) ^ 0x10, at);
    return chunk;
  };
  await until('two damaged answers', async () => (flips >= 2 ? true : undefined));
  await awaitProgress(source.bootstrap, twinlog, topic);
  await producer.stop();
  proxy.heal();
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
});

test('F5 S5: a batch that is always damaged fails its partition alone', { skip }, async () => {
  const topic = 'damaged-always';
  const java = await javaClient();
  const producer = await mirroredTopic(topic);
  await awaitProgress(source.bootstrap, twinlog, topic);
  const poison = Buffer.from('poisonous record');
  proxy.fault = (chunk) => {
    for (let at = chunk.indexOf(poison); at >= 0; at = chunk.indexOf(poison, at + 1)) {
      chunk.write('P', at);
    }
    return chunk;
  };
  await java.openProducer(source.bootstrap, `${topic}/poison`);
  await java.produceAll(`${topic}/poison`, [{ topic, partition: 1, value: poison }]);
  await java.closeProducer(`${topic}/poison`);
  const failed = await until('the failure', async () => {
    const [, second] = await partitionsOf(twinlog, MIRROR, topic);
    return second?.state === 'FAILED' ? second : undefined;
  });
  assert.equal(failed.cause, 'CORRUPT_SOURCE_BATCH');
  assert.match(failed.message, /offset \d+|\d+/);
  const [before] = await partitionsOf(twinlog, MIRROR, topic);
  await producer.more(4);
  await until('the other partition going on', async () => {
    const [now] = await partitionsOf(twinlog, MIRROR, topic);
    const goesOn = (now?.destinationOffset ?? 0) > (before?.destinationOffset ?? 0);
    return now?.state === 'MIRRORING' && goesOn ? true : undefined;
  });
  // The damage was on the way, not at the source: removed and added again, it goes on behind LMO.
  proxy.heal();
  await twinlog.mirrors('remove', MIRROR, topic);
  await twinlog.mirrors('add', MIRROR, topic);
  await producer.stop();
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
});

test('S5: a source whose port turns into something else is a cause, not a crash', {
  skip,
}, async () => {
  const topic = 'replaced';
  const producer = await mirroredTopic(topic);
  const { port } = proxy.server;
  await proxy.server.close();
  const lying = Buffer.from([0x7f, 0xff, 0xff, 0xff]);
  const impostors = [Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n'), lying, Buffer.alloc(0)];
  for (const bytes of impostors) {
    const impostor = await answering(bytes, true, port);
    await until('every partition saying what is wrong', async () => {
      const causes = (await partitionsOf(twinlog, MIRROR, topic)).map(({ cause }) => cause);
      const areTold = causes.every((cause) => /^SOURCE_/.test(cause));
      return areTold && impostor.connections() >= 3 ? true : undefined;
    });
    await impostor.close();
  }
  twinlog.checkAlive();
  proxy = await FaultyProxy.start(port, source.broker(1).proxiedPort ?? 0);
  await awaitProgress(source.bootstrap, twinlog, topic);
  await producer.stop();
  assert.deepEqual(await differencesWhenCaughtUp(source.bootstrap, twinlog, topic), []);
});

test('S5: a disk that is full holds the mirror up, and it goes on when there is room', {
  skip,
}, async (t) => {
  const topic = 'full-disk';
  const { bootstrap } = source;
  const disk = await brokerOnSmallDisk({ name: 'full-disk-mirror' }, await freePort());
  t.after(() => disk.destroy());
  t.diagnostic(disk.kind);
  const { broker } = disk;
  await broker.start();
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, PARTITIONS);
  const common = { bootstrap, topic, partitions: PARTITIONS };
  const producer = new LiveProducer(java, { ...common, valueBytes: 30_000 });
  await broker.mirrors('create', MIRROR, '--source', bootstrap);
  await broker.mirrors('add', MIRROR, topic);
  await awaitProgress(bootstrap, broker, topic);
  await disk.fill(1_500_000);
  await until('every partition being held up', async () => {
    const now = await partitionsOf(broker, MIRROR, topic);
    const isHeldUp = now.every(({ cause }) => cause === 'STORAGE_BUSY');
    return now.length === PARTITIONS && isHeldUp ? true : undefined;
  });
  broker.checkAlive();
  await disk.free();
  await broker.stop();
  await broker.start();
  await awaitProgress(bootstrap, broker, topic);
  await producer.stop();
  assert.deepEqual(await differencesWhenCaughtUp(bootstrap, broker, topic), []);
  await awaitState(broker, MIRROR, topic, 'MIRRORING');
});
