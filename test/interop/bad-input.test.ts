/**
 * Bad input and bad luck at the edges of a twinlog process: bytes that are no requests, batches
 * that lie, names that would leave the data directory, peers that are no Kafka, a full disk.
 *
 * Each case ends the same way: whoever is concerned was told, and an old and a new connection of
 * somebody else work as before, on the same process.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import { crc32c } from '@node-rs/crc32';
import { processRuntime } from '../../src/cli/broker-process.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errorName } from '../../src/protocol/errors.ts';
import { encodeRequestFrame } from '../../src/protocol/frame.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import { MetadataRequest, MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { answering, type BadServer, BareSocket, httpServer } from './bad-peers.ts';
import { until, withAdmin } from './mirror-watch.ts';
import {
  freePort,
  logFile,
  type RunResult,
  spawnManaged,
  temporaryDirectory,
} from './processes.ts';
import { RawClient } from './raw-client.ts';
import { readTopic } from './raw-log.ts';
import { MAIN, runTwinlog, startTwinlog, type TwinlogBroker } from './twinlog.ts';

const TOPIC = 'kept';
const FLEXIBLE_VERSION = 9;
const COMMAND_BOUND_MS = 30_000;

let twinlog: TwinlogBroker;
let pid: number;
let bystander: RawClient;
let admin: KafkaConnection;
/** Batches that were acknowledged, by partition. */
const written = [0, 0];

const text = (value: string): Uint8Array => Buffer.from(value);

function goodBatch(...values: string[]): Uint8Array {
  const records = values.map((value) => ({ key: null, value: text(value), timestamp: 1 }));
  return buildRecordBatch({ baseOffset: 0, partitionLeaderEpoch: -1, records });
}

interface PartitionAnswer {
  readonly error: string;
  readonly message: string | null;
}

/** Produces to partitions 0, 1, … of a topic with acks=all. */
async function produce(topic: string, ...batches: Uint8Array[]): Promise<PartitionAnswer[]> {
  const request = {
    transactionalId: null,
    acks: -1,
    timeoutMs: 5_000,
    topicData: [
      { name: topic, partitionData: batches.map((records, index) => ({ index, records })) },
    ],
  };
  const options = { maxVersion: FLEXIBLE_VERSION };
  const response = await admin.send(ProduceRequest, ProduceResponse, request, options);
  return (response.responses[0]?.partitionResponses ?? []).map((each) => ({
    error: errorName(each.errorCode),
    message: each.errorMessage,
  }));
}

async function createTopics(...names: string[]): Promise<PartitionAnswer[]> {
  const topics = names.map((name) => ({
    name,
    numPartitions: 2,
    replicationFactor: 1,
    assignments: [],
    configs: [],
  }));
  const request = { topics, timeoutMs: 10_000 };
  const response = await admin.send(CreateTopicsRequest, CreateTopicsResponse, request);
  return response.topics.map((each) => ({
    error: errorName(each.errorCode),
    message: each.errorMessage,
  }));
}

before(async () => {
  twinlog = await startTwinlog({ name: 'bad-input', settings: { 'message.max.bytes': '200000' } });
  pid = twinlog.pid;
  bystander = await RawClient.connect(twinlog.host, twinlog.port);
  const { host, port } = twinlog;
  admin = await KafkaConnection.connect(processRuntime('silent'), {
    host,
    port,
    clientId: 'admin',
  });
  assert.deepEqual(await createTopics(TOPIC), [{ error: 'NONE', message: null }]);
});

after(async () => {
  admin?.close();
  bystander?.close();
  await twinlog?.destroy();
});

/** The process lives, others are served, and the log holds what was acknowledged. */
afterEach(async () => {
  twinlog.checkAlive();
  assert.equal(twinlog.pid, pid);
  const answers = await produce(TOPIC, goodBatch('after'), goodBatch('after'));
  for (const [index, { error }] of answers.entries()) {
    assert.equal(error, 'NONE');
    written[index] = (written[index] ?? 0) + 1;
  }
  assert.equal((await bystander.metadata([TOPIC])).topics[0]?.error, 0);
  const { partitions } = await readTopic(twinlog.bootstrap, TOPIC);
  assert.deepEqual(
    partitions.map(({ batches }) => batches.length),
    written,
  );
  assert.ok(partitions.every(({ batches }) => batches.every(({ crcIsValid }) => crcIsValid)));
});

/** A frame with its length in front. */
function frame(...parts: Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const size = Buffer.alloc(4);
  size.writeInt32BE(body.length);
  return Buffer.concat([size, body]);
}

/** A request header, version 1, and a body. */
function request(apiKey: number, version: number, body: Uint8Array = new Uint8Array()): Buffer {
  const header = Buffer.alloc(8);
  header.writeInt16BE(apiKey, 0);
  header.writeInt16BE(version, 2);
  header.writeInt32BE(77, 4);
  return frame(header, Buffer.from([0, 3]), text('bad'), body);
}

const int32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};

/** Ends the header of a flexible version. */
const NO_TAGS = Buffer.from([0]);

/** Metadata version 1 (not flexible): an array of names follows. */
const metadata = (...body: Uint8Array[]): Buffer => request(3, 1, Buffer.concat(body));

const BAD_BYTES: Record<string, Uint8Array> = {
  'a negative size': int32(-1),
  'the most negative size': int32(-(2 ** 31)),
  'a size beyond the limit': int32(2 ** 31 - 1),
  'a size just beyond the limit': int32(100 * 1024 * 1024 + 1),
  'an empty frame': int32(0),
  'a web browser': text('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'),
  'a TLS client': Buffer.from('16030100c8010000c40303'.padEnd(420, 'ab'), 'hex'),
  'a header cut short': frame(Buffer.from([0, 3, 0])),
  'a client id longer than the frame': frame(Buffer.from([0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff])),
  'an unknown API': request(9_999, 0),
  'a negative API': request(-1, 0),
  'an unknown version': request(0, 99, NO_TAGS),
  'a version that is gone': request(0, 0),
  'a mirror API in an unknown version': request(12_795, 9, NO_TAGS),
  'more names than the frame can hold': metadata(int32(2 ** 31 - 1)),
  'a name longer than the frame': metadata(int32(1), Buffer.from([0x7f, 0xff]), text('x')),
  'a body cut short': metadata(int32(3), Buffer.from([0, 1]), text('x')),
  'nothing for a body': metadata(),
};

test('bytes that are no request close their own connection', async (t) => {
  for (const [name, bytes] of Object.entries(BAD_BYTES)) {
    await t.test(name, async () => {
      const before = readFileSync(twinlog.log).length;
      const socket = await BareSocket.connect(twinlog.host, twinlog.port);
      socket.write(bytes);
      await socket.wait('being closed', () => false);
      assert.equal(socket.received.length, 0);
      const logged = readFileSync(twinlog.log).subarray(before).toString();
      assert.match(logged, /^\{"level":"warn".*"reason":"[^"]+".*"msg":"closing connection: /m);
    });
  }
});

test('an ApiVersions request of an unknown version is answered in version 0', async () => {
  const socket = await BareSocket.connect(twinlog.host, twinlog.port);
  socket.write(request(18, 99, NO_TAGS));
  await socket.wait('an answer', () => socket.received.length > 10);
  const answer = socket.received;
  assert.equal(answer.readInt32BE(4), 77);
  assert.equal(answer.readInt16BE(8), 35, 'UNSUPPORTED_VERSION');
  assert.ok(answer.readInt32BE(10) > 10, 'and the APIs there are');
  assert.equal(socket.isClosed, false);
  socket.destroy();
});

test('a client that leaves, or stops, in mid-frame holds up nobody', async () => {
  const whole = Buffer.concat(
    encodeRequestFrame({ correlationId: 5, clientId: 'half' }, codec(MetadataRequest, 12), {
      topics: null,
    }),
  );
  const stuck: BareSocket[] = [];
  for (let length = 1; length < whole.length; length += 3) {
    const leaving = await BareSocket.connect(twinlog.host, twinlog.port);
    leaving.write(whole.subarray(0, length));
    leaving.destroy();
    const stopping = await BareSocket.connect(twinlog.host, twinlog.port);
    stopping.write(whole.subarray(0, length));
    stuck.push(stopping);
  }
  const huge = await BareSocket.connect(twinlog.host, twinlog.port);
  huge.write(Buffer.concat([int32(90 * 1024 * 1024), Buffer.alloc(100_000)]));
  stuck.push(huge);
  assert.equal((await bystander.metadata([TOPIC])).topics[0]?.error, 0);
  for (const socket of stuck) assert.equal(socket.isClosed, false);
  for (const socket of stuck) socket.destroy();
});

/** A batch in which some bytes were changed, with a CRC that is right again unless told. */
function altered(change: (batch: Buffer) => void, fixCrc = true): Uint8Array {
  const batch = Buffer.from(goodBatch('one', 'two', 'three'));
  change(batch);
  if (fixCrc) batch.writeUInt32BE(crc32c(batch.subarray(21)), 17);
  return batch;
}

const BAD_BATCHES: Record<string, readonly [batch: Uint8Array, error: string]> = {
  'a bad CRC': [altered((b) => b.writeUInt8(b.readUInt8(70) ^ 1, 70), false), 'CORRUPT_MESSAGE'],
  'a count too large': [altered((b) => b.writeInt32BE(4, 57)), 'INVALID_RECORD'],
  'a count too small': [altered((b) => b.writeInt32BE(2, 57)), 'INVALID_RECORD'],
  'a count of thousands of millions': [
    altered((b) => b.writeInt32BE(2 ** 31 - 1, 57)),
    'INVALID_RECORD',
  ],
  'a negative count': [altered((b) => b.writeInt32BE(-1, 57)), 'INVALID_RECORD'],
  'a wrong count that its last offset delta confirms': [
    altered((b) => {
      b.writeInt32BE(8, 23);
      b.writeInt32BE(9, 57);
    }),
    'INVALID_RECORD',
  ],
  'a wrong last offset delta': [altered((b) => b.writeInt32BE(9, 23)), 'INVALID_RECORD'],
  'a negative last offset delta': [altered((b) => b.writeInt32BE(-5, 23)), 'INVALID_RECORD'],
  'a base offset': [altered((b) => b.writeBigInt64BE(7n, 0)), 'INVALID_RECORD'],
  'a length beyond the request': [altered((b) => b.writeInt32BE(500, 8)), 'INVALID_RECORD'],
  'a length within the header': [altered((b) => b.writeInt32BE(10, 8)), 'INVALID_RECORD'],
  'a negative length': [altered((b) => b.writeInt32BE(-1, 8)), 'INVALID_RECORD'],
  'an unknown magic': [altered((b) => b.writeInt8(9, 16)), 'INVALID_RECORD'],
  'an old magic': [altered((b) => b.writeInt8(1, 16)), 'INVALID_RECORD'],
  'no codec': [altered((b) => b.writeInt16BE(7, 21)), 'UNSUPPORTED_COMPRESSION_TYPE'],
  'gzip that is none': [altered((b) => b.writeInt16BE(1, 21)), 'INVALID_RECORD'],
  'snappy that is none': [altered((b) => b.writeInt16BE(2, 21)), 'INVALID_RECORD'],
  'lz4 that is none': [altered((b) => b.writeInt16BE(3, 21)), 'INVALID_RECORD'],
  'zstd that is none': [altered((b) => b.writeInt16BE(4, 21)), 'INVALID_RECORD'],
  'records that are none': [altered((b) => b.fill(0xff, 61)), 'INVALID_RECORD'],
  'a control batch': [altered((b) => b.writeInt16BE(0x20, 21)), 'INVALID_RECORD'],
  'a transaction nobody can end': [
    altered((b) => b.writeInt16BE(0x10, 21)),
    'TRANSACTIONAL_ID_AUTHORIZATION_FAILED',
  ],
  'P2: the producer id of a mirrored record': [
    altered((b) => {
      b.writeBigInt64BE(-5n, 43);
      b.writeInt32BE(0, 53);
    }),
    'INVALID_RECORD',
  ],
  'a producer id without a sequence': [altered((b) => b.writeBigInt64BE(5n, 43)), 'INVALID_RECORD'],
  'two batches': [Buffer.concat([goodBatch('1'), goodBatch('2')]), 'INVALID_RECORD'],
  'bytes behind the batch': [Buffer.concat([goodBatch('1'), text('junk')]), 'INVALID_RECORD'],
  'half a batch': [goodBatch('cut').subarray(0, 40), 'INVALID_RECORD'],
  'twelve bytes': [Buffer.alloc(12), 'INVALID_RECORD'],
  'no bytes': [new Uint8Array(), 'INVALID_RECORD'],
  'a batch that is too large': [goodBatch('x'.repeat(250_000)), 'MESSAGE_TOO_LARGE'],
};

test('a batch that lies is refused, its neighbour in the request is written', async (t) => {
  for (const [name, [batch, expected]] of Object.entries(BAD_BATCHES)) {
    await t.test(name, async () => {
      const [bad, good] = await produce(TOPIC, batch, goodBatch(name));
      assert.equal(bad?.error, expected);
      assert.equal(good?.error, 'NONE');
      written[1] = (written[1] ?? 0) + 1;
    });
  }
});

const BAD_NAMES = ['../x', '..', '.', 'a/b', '/etc/x', 'a\\b', 'a b', 'a\0b', '', 'x'.repeat(250)];

test('a topic name that would leave the data directory is refused everywhere', async () => {
  const before = readdirSync(`${twinlog.dataDir}/..`).length;
  for (const [index, { error, message }] of (await createTopics(...BAD_NAMES)).entries()) {
    assert.equal(error, 'INVALID_TOPIC_EXCEPTION', JSON.stringify(BAD_NAMES[index]));
    assert.ok(message !== null && message.length > 10, 'and the reason is given');
  }
  for (const name of BAD_NAMES) {
    const created = await admin.send(MetadataRequest, MetadataResponse, {
      topics: [{ name }],
      allowAutoTopicCreation: true,
    });
    const codes = created.topics.map(({ errorCode }) => errorName(errorCode));
    assert.match(codes.join(), /INVALID_TOPIC_EXCEPTION|UNKNOWN_TOPIC_OR_PARTITION/);
    const [answer] = await produce(name, goodBatch('lost'));
    assert.match(String(answer?.error), /INVALID_TOPIC_EXCEPTION|UNKNOWN_TOPIC_OR_PARTITION/);
    await withAdmin(twinlog, async (mirrors) => {
      const settings = [['bootstrap.servers', '127.0.0.1:1']] as const;
      const refused = await mirrors.createMirror(name, settings, true);
      assert.equal(refused?.error, 'INVALID_REQUEST', JSON.stringify(name));
      const added = await mirrors.addTopics('none', [name]);
      assert.notEqual(added[0]?.error, null);
    });
  }
  assert.equal(readdirSync(`${twinlog.dataDir}/..`).length, before);
  const strange = readdirSync(twinlog.dataDir).filter((entry) => /^x|etc|[ \\]/.test(entry));
  assert.deepEqual(strange, []);
});

/** A command that must fail with this exit code, in one sentence that says all of these. */
async function assertFails(
  args: readonly string[],
  code: number,
  ...says: RegExp[]
): Promise<void> {
  const result: RunResult = await runTwinlog(args, COMMAND_BOUND_MS);
  const shown = `twinlog ${args.join(' ')}\n${result.stdout}${result.stderr}`;
  assert.equal(result.timedOut, false, shown);
  assert.equal(result.code, code, shown);
  for (const saying of says) assert.match(result.stderr, saying, shown);
  assert.doesNotMatch(result.stderr, /^\s+at /m, shown);
}

test('A2: a source that is none is named, and no mirror is left behind', async (t) => {
  const servers: BadServer[] = [];
  t.after(() => Promise.all(servers.map((server) => server.close())));
  const start = async (server: Promise<BadServer>): Promise<string> => {
    servers.push(await server);
    return (await server).address;
  };
  const sources: Record<string, readonly [string, RegExp]> = {
    nobody: [`127.0.0.1:${await freePort()}`, /ECONNREFUSED/],
    web: [await start(httpServer()), /Kafka/],
    'mid-frame': [await start(answering(int32(5_000), true)), /closed|ended/],
    silent: [await start(answering(new Uint8Array(), false)), /time|answer/],
    huge: [await start(answering(int32(2 ** 31 - 1), false)), /Kafka|frame|bytes/],
    itself: [twinlog.bootstrap, /itself/],
  };
  const create = ['mirrors', 'create', 'bad', '--bootstrap-server', twinlog.bootstrap];
  const quick = ['request.timeout.ms=1000', 'socket.connection.setup.timeout.ms=1000'];
  const config = quick.flatMap((setting) => ['--config', setting]);
  const checks = Object.entries(sources).map(([, [address, says]]) =>
    assertFails([...create, '--source', address, ...config], 1, says, new RegExp(address)),
  );
  for (const check of checks) await check;
  const mirrors = await withAdmin(twinlog, (client) => client.listMirrors());
  assert.deepEqual(mirrors, []);
});

test('commands end with a sentence and a code', async (t) => {
  const web = await httpServer();
  t.after(() => web.close());
  const nobody = `127.0.0.1:${await freePort()}`;
  const { bootstrap, dataDir } = twinlog;
  const data = (name: string): string[] => ['--data', `${dataDir}/../${name}-${process.pid}`];
  const anyPort = ['--listen', `127.0.0.1:${await freePort()}`];
  const cases: (readonly [readonly string[], number, ...RegExp[]])[] = [
    [
      ['mirror', '--source', nobody, ...data('a'), ...anyPort],
      1,
      /ECONNREFUSED/,
      new RegExp(nobody),
    ],
    [['mirror', '--source', web.address, ...data('a'), ...anyPort], 1, /Kafka/],
    [
      ['mirror', '--source', bootstrap, '--topics', 'nosuch', ...data('a'), ...anyPort],
      1,
      /No topic/,
      /nosuch/,
      /kept/,
    ],
    [['mirror', '--source', bootstrap, '--topics', '(', ...data('a'), ...anyPort], 2, /--topics/],
    [['mirror', '--source', 'nonsense', ...data('a'), ...anyPort], 2, /HOST:PORT/],
    [['mirrors', 'list', '--bootstrap-server', nobody], 1, /ECONNREFUSED/],
    [['mirrors', 'list', '--bootstrap-server', web.address], 1, /Kafka/],
    [['mirrors', 'add', 'nosuch', TOPIC, '--bootstrap-server', bootstrap], 1],
    [['serve', ...data('a'), '--listen', bootstrap], 1, /EADDRINUSE|in use/, new RegExp(bootstrap)],
    [['serve', '--data', dataDir, ...anyPort], 1, /in use/, new RegExp(dataDir)],
    [['serve', '--data', `${dataDir}/meta.properties`, ...anyPort], 1, /meta\.properties/],
    [['serve', ...data('a'), '--listen', 'nonsense'], 2, /HOST:PORT/],
    [['serve', ...data('a'), ...anyPort, '--set', 'num.partitions=many'], 2, /num\.partitions/],
  ];
  const running = cases.map(
    ([args, code, ...says]) =>
      () =>
        assertFails(args, code, ...says),
  );
  for (const next of running) await next();
});

test('listening beyond the loopback interface without authentication is warned of', async (t) => {
  for (const host of ['0.0.0.0', '[::]']) {
    const log = logFile(`listening-${host.replace(/\W/g, '')}`);
    const port = await freePort();
    const data = temporaryDirectory('listening');
    const serve = ['serve', '--data', data, '--listen', `${host}:${port}`];
    const server = spawnManaged({ command: process.execPath, args: [MAIN, ...serve], log });
    t.after(() => server.kill9());
    await until('the warning', async () => {
      assert.equal(server.exit(), undefined);
      await using client = await RawClient.connect('127.0.0.1', port);
      return (await client.metadata([])).brokers.length > 0 ? true : undefined;
    });
    assert.match(readFileSync(log, 'utf8'), /^warning: listening on .* without authentication/m);
    assert.equal((await server.stop()).code, 0);
  }
  assert.doesNotMatch(readFileSync(twinlog.log, 'utf8'), /without authentication/);
});
