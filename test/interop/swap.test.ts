/**
 * The swap test: twinlog serves Apache Kafka's partition directories, and Apache Kafka twinlog's,
 * and every answer is the one that the other gave.
 *
 * The owner is stopped in order, and once more killed. Offsets, timestamps, bytes, aborted
 * transactions and leader epochs are compared, and what a Java consumer reads.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import type { ClientRecord } from './client.ts';
import { javaClient } from './clusters.ts';
import { writeHardTopic } from './hard-topic.ts';
import type { ProduceRecord } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import {
  askQuestions,
  compareAnswers,
  type LogAnswers,
  planQuestions,
  type QuestionPlan,
} from './log-answers.ts';
import { copyPartitions, partitionDirectories, swapPartitions } from './partition-swap.ts';
import { temporaryDirectory } from './processes.ts';
import { RawClient } from './raw-client.ts';
import { topicMetadata } from './raw-log.ts';
import { tool } from './tools.ts';
import { runTwinlog, startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
// Apache Kafka says at this level how it loads logs.
process.env.TWINLOG_INTEROP_LOG ??= 'info';
const full = process.env.TWINLOG_TEST === 'full';
const MEBIBYTE = 1024 * 1024;

const TOPIC_SETTINGS = { 'retention.ms': '-1', 'max.message.bytes': '2097152' };

/** What a broker said of its topics before it went. */
interface Recorded {
  readonly directory: string;
  readonly plans: readonly QuestionPlan[];
  readonly answers: LogAnswers;
  readonly sequences: ReadonlyMap<string, readonly ClientRecord[]>;
}

async function readSequences(
  bootstrap: string,
  topics: readonly string[],
): Promise<Map<string, ClientRecord[]>> {
  const java = await javaClient();
  const sequences = new Map<string, ClientRecord[]>();
  for (const topic of topics) {
    for (const isolation of ['read_uncommitted', 'read_committed'] as const) {
      const records = await java.readAll(bootstrap, topic, isolation);
      sequences.set(`${topic} ${isolation}`, records);
    }
  }
  return sequences;
}

/** Asks a running broker everything; `stop` is then called and the directories are copied. */
async function recordAndStop(
  broker: { readonly bootstrap: string; readonly dataDir: string },
  topics: readonly string[],
  stop: () => Promise<void>,
): Promise<Recorded> {
  const { bootstrap, dataDir } = broker;
  const plans: QuestionPlan[] = [];
  for (const topic of topics) plans.push(await planQuestions(bootstrap, dataDir, topic));
  const answers = await askQuestions(bootstrap, plans);
  const sequences = await readSequences(bootstrap, topics);
  await stop();
  const directory = temporaryDirectory('swap-copy');
  copyPartitions(dataDir, directory, topics);
  return { directory, plans, answers, sequences };
}

async function assertSameAnswers(bootstrap: string, recorded: Recorded): Promise<void> {
  const answers = await askQuestions(bootstrap, recorded.plans);
  assert.ok(answers.size > 500, `${answers.size} questions`);
  assert.deepEqual(compareAnswers(recorded.answers, answers), []);
  const topics = recorded.plans.map(({ topic }) => topic);
  assert.deepEqual(await readSequences(bootstrap, topics), recorded.sequences);
}

async function leaderEpoch(bootstrap: string, topic: string): Promise<number> {
  const { topic: found } = await topicMetadata(bootstrap, topic);
  return Math.min(...found.partitions.map((partition) => partition.leaderEpoch));
}

const started: { destroy(): Promise<void> }[] = [];
after(async () => {
  for (const broker of started) await broker.destroy();
});

interface Restartable {
  readonly bootstrap: string;
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** Restarts a broker until it leads in an epoch that the log to come has not seen. */
async function raiseEpochs(broker: Restartable, plans: readonly QuestionPlan[]): Promise<void> {
  for (;;) {
    const missing: string[] = [];
    for (const { topic, latestEpoch } of plans) {
      if ((await leaderEpoch(broker.bootstrap, topic)) < latestEpoch) missing.push(topic);
    }
    if (missing.length === 0) return;
    await broker.stop();
    await broker.start();
  }
}

/** Waits until a checkpoint has the row: a kill loses what is not written down. */
async function awaitRow(dataDir: string, file: string, row: string): Promise<void> {
  const path = join(dataDir, file);
  for (let attempt = 0; attempt < 400; attempt++) {
    if (existsSync(path) && readFileSync(path, 'utf8').split('\n').includes(row)) return;
    await sleep(50);
  }
  assert.fail(`no row ${row} in ${path}`);
}

/** Bytes that no codec makes smaller. */
function noise(length: number): Buffer {
  return Buffer.from(Array.from({ length }, (_, index) => Math.imul(index + 1, 40_503) >>> 7));
}

/** A twinlog broker that has the topics of an Apache Kafka broker, with nothing in them yet. */
async function twinOf(source: Recorded, ids: ReadonlyMap<string, string>): Promise<TwinlogBroker> {
  const twinlog = await startTwinlog({ name: 'swap' });
  started.push(twinlog);
  {
    await using client = await RawClient.connect(twinlog.host, twinlog.port);
    for (const { topic, partitions } of source.plans) {
      const id = ids.get(topic) ?? assert.fail();
      await client.createTopicWithId(topic, id, partitions.length, TOPIC_SETTINGS);
    }
  }
  await raiseEpochs(twinlog, source.plans);
  await twinlog.stop();
  return twinlog;
}

async function ownKafka(name: string): Promise<KafkaCluster> {
  await ensureAppCds();
  const cluster = await startKafka({
    name,
    properties: { 'log.flush.start.offset.checkpoint.interval.ms': '500' },
  });
  started.push(cluster);
  return cluster;
}

/** Everything that is hard, and a topic whose compaction has taken whole ends of segments. */
async function writeSource(kafka: KafkaCluster): Promise<string[]> {
  const { bootstrap } = kafka;
  const java = await javaClient();
  const { topic, logStart } = await writeHardTopic(kafka, java);
  await writeHoles(kafka, 'holes');
  await awaitRow(kafka.broker(1).dataDir, 'log-start-offset-checkpoint', `${topic} 1 ${logStart}`);
  if (!full) return [topic, 'holes'];
  await writeDense(bootstrap, 'dense', 'CreateTime');
  await writeDense(bootstrap, 'stamped', 'LogAppendTime');
  return [topic, 'holes', 'dense', 'stamped'];
}

/** Segments that end before the next one begins: what was between is compacted away. */
async function writeHoles(kafka: KafkaCluster, topic: string): Promise<void> {
  const { bootstrap } = kafka;
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, 1, {
    'cleanup.policy': 'compact',
    'min.cleanable.dirty.ratio': '0.01',
    'segment.bytes': String(MEBIBYTE),
  });
  await java.openProducer(bootstrap, topic, { 'enable.idempotence': 'false' });
  const big = noise(700_000);
  for (const key of ['a', 'b', 'c', 'd']) {
    await java.produceAll(topic, [{ topic, key, value: big }], [{ topic, key: 'x', value: key }]);
  }
  await java.closeProducer(topic);
  await awaitRow(kafka.broker(1).dataDir, 'cleaner-offset-checkpoint', `${topic} 0 6`);
}

/** Several segments with full indexes; timestamps go up and down. */
async function writeDense(bootstrap: string, topic: string, timestampType: string): Promise<void> {
  const java = await javaClient();
  await java.createTopic(bootstrap, topic, 2, {
    'segment.bytes': String(MEBIBYTE),
    'index.interval.bytes': '1000',
    'message.timestamp.type': timestampType,
    'retention.ms': '-1',
  });
  await java.openProducer(bootstrap, topic, { 'compression.type': 'lz4' });
  const list = (index: number): ProduceRecord[] =>
    Array.from({ length: 1 + (index % 5) }, (_, record) => ({
      topic,
      partition: index % 2,
      timestamp: 1_700_000_000_000 + ((index * 7_919) % 1_000) * 60_000 + record,
      key: `k${index}`,
      value: noise(500 + index * 5).toString('base64'),
    }));
  await java.produceAll(topic, ...Array.from({ length: 800 }, (_, index) => list(index)));
  await java.closeProducer(topic);
}

test('twinlog serves the directories of a killed, then of a stopped Apache Kafka', {
  skip,
}, async () => {
  const kafka = await ownKafka('swap-source');
  const node = kafka.broker(1);
  const source = { bootstrap: kafka.bootstrap, dataDir: node.dataDir };
  const topics = await writeSource(kafka);
  const ids = new Map<string, string>();
  for (const topic of topics) {
    ids.set(topic, (await topicMetadata(kafka.bootstrap, topic)).topic.topicId);
  }
  await ownDump(node.dataDir);
  const killed = await recordAndStop(source, topics, () => node.kill9());
  await ownDump(killed.directory);
  const twinlog = await twinOf(killed, ids);
  swapPartitions(killed.directory, twinlog.dataDir, topics, false);
  await twinlog.start();
  await assertSameAnswers(twinlog.bootstrap, killed);
  await twinlog.stop();

  await kafka.start();
  const stopped = await recordAndStop(source, topics, () => kafka.stop());
  await kafka.stop();
  swapPartitions(stopped.directory, twinlog.dataDir, topics, true);
  await twinlog.start();
  await assertSameAnswers(twinlog.bootstrap, stopped);
});

const LOCAL_TOPICS = ['local', 'txns'];
const LOCAL_SETTINGS = { 'segment.bytes': '20000', 'retention.ms': '-1' };
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;

/** Idempotent and plain batches of every codec, in many segments, in two leader epochs. */
async function writeLocally(twinlog: TwinlogBroker): Promise<void> {
  const { bootstrap } = twinlog;
  const java = await javaClient();
  await java.createTopic(bootstrap, 'local', 2, LOCAL_SETTINGS);
  await java.createTopic(bootstrap, 'txns', 1, LOCAL_SETTINGS);
  for (const [index, codec] of CODECS.entries()) {
    if (index === 3) {
      await twinlog.stop();
      await twinlog.start();
    }
    const config = { 'compression.type': codec, 'enable.idempotence': String(index % 2 === 0) };
    await java.openProducer(bootstrap, codec, config);
    const lists = Array.from({ length: 30 }, (_, list) =>
      Array.from({ length: 4 }, (_, record) => ({
        topic: 'local',
        partition: list % 2,
        timestamp: 1_700_000_000_000 + ((list * 7) % 30) * 60_000 + record,
        key: record === 0 ? null : `${codec} ${record}`,
        value: record === 1 ? null : noise(300 + list * 20).toString('base64'),
        headers: [['list', Buffer.from(String(list))]] as const,
      })),
    );
    await java.produceAll(codec, ...lists);
    await java.closeProducer(codec);
  }
  await java.deleteRecords(bootstrap, 'local', { 1: 102 });
  await java.commitOffsets(bootstrap, 'local-group', 'local', { 0: 17, 1: 250 });
}

/** Writes transactions into the log of a stopped broker: committed, aborted, interleaved, open. */
async function writeTransactions(dataDir: string, leaderEpoch: number): Promise<void> {
  const runtime = nodeRuntime({ logLevel: 'error' });
  const config = { ...DEFAULT_LOG_CONFIG, segmentBytes: 20_000, retentionMs: -1 };
  const manager = new LogManager(runtime, { logDir: dataDir, defaultConfig: config });
  manager.load(() => config);
  const log = manager.getLog({ topic: 'txns', partition: 0 }) ?? assert.fail();
  const sequences = new Map<bigint, number>();
  const timestamp = (): number => 1_700_000_000_000 + log.logEndOffset * 1_000;
  const data = (producerId: bigint, count: number): void => {
    const baseSequence = sequences.get(producerId) ?? 0;
    sequences.set(producerId, baseSequence + count);
    const type = CODECS[baseSequence % CODECS.length] ?? 'none';
    const records = Array.from({ length: count }, (_, index) => ({
      key: Buffer.from(`${producerId}`),
      value: noise(400 + index),
      timestamp: timestamp(),
    }));
    const batch = buildRecordBatch({
      records,
      producerId,
      producerEpoch: 3,
      baseSequence,
      isTransactional: true,
      compression: { type, port: runtime.compression },
    });
    const result = log.appendAsLeader(batch, leaderEpoch, 'client');
    assert.equal(result.error, 0, JSON.stringify(result));
  };
  const end = (producerId: bigint, commit: boolean): void => {
    const marker = { commit, producerId, producerEpoch: 3, coordinatorEpoch: 5 };
    const batch = buildTransactionMarker({ ...marker, timestamp: timestamp() });
    const result = log.appendAsLeader(batch, leaderEpoch, 'coordinator');
    assert.equal(result.error, 0, JSON.stringify(result));
  };
  for (let round = 0; round < 40; round++) {
    data(4_000n, 1 + (round % 3));
    data(4_001n, 2);
    end(4_000n, round % 2 === 0);
    data(4_001n, 1);
    if (round % 3 > 0) end(4_001n, round % 3 === 1);
  }
  data(4_002n, 3);
  data(4_000n, 2);
  end(4_000n, true);
  await manager.close();
}

/** Lines of an Apache Kafka log that say that it did not take the directories as they are. */
function complaints(log: string, plans: readonly QuestionPlan[]): string[] {
  const words = /rebuil|[Cc]orrupt|Found .* index|Recovering|not find|[Ii]nvalid|WARN|ERROR/;
  // Of a log that needs nothing it says this, with the log end: from there on nothing is replayed.
  const usual = plans.flatMap(({ topic, partitions }) =>
    partitions.map(
      ({ partition, end }) =>
        new RegExp(`partition=${topic}-${partition},.* producer state from offset ${end}$`),
    ),
  );
  return log.split('\n').filter((line) => {
    const isOurs = plans.some(({ topic }) => new RegExp(`\\b${topic}-\\d`).test(line));
    return isOurs && words.test(line) && !usual.some((pattern) => pattern.test(line));
  });
}

/** `twinlog dump-log` finds nothing wrong; returns its batches as Apache Kafka words them. */
async function ownDump(...paths: readonly string[]): Promise<string[]> {
  const { code, stdout, stderr } = await runTwinlog(['dump-log', '--deep', '--json', ...paths]);
  assert.deepEqual([code, stderr], [0, ''], stdout.match(/.*"problem".*/g)?.join('\n'));
  const rows = stdout.split('\n').filter((line) => line.includes('"kind":"batch"'));
  return rows.map((line) => {
    const batch = JSON.parse(line) as Record<string, unknown>;
    const { baseOffset, lastOffset, count, position, size, crc } = batch;
    return `${baseOffset}-${lastOffset} count ${count} at ${position}+${size} crc ${crc}`;
  });
}

function apacheBatches(dump: string): string[] {
  const lines = dump.split('\n').filter((line) => line.startsWith('baseOffset: '));
  return lines.map((line) => {
    const field = (name: string): string | undefined =>
      new RegExp(`\\b${name}: (\\d+)`).exec(line)?.[1];
    const place = `at ${field('position')}+${field('size')}`;
    const offsets = `${field('baseOffset')}-${field('lastOffset')} count ${field('count')}`;
    return `${offsets} ${place} crc ${field('crc')}`;
  });
}

async function assertDumpIsClean(directory: string, topics: readonly string[]): Promise<void> {
  const files = (suffix: string): string[] =>
    partitionDirectories(directory, topics).flatMap((name) =>
      readdirSync(join(directory, name))
        .filter((file) => file.endsWith(suffix))
        .map((file) => join(directory, name, file)),
    );
  const logs = files('.log');
  const dump = await tool('dumpLog', ['--deep-iteration', '--files', logs.join()]);
  assert.ok((dump.match(/isvalid: true/g)?.length ?? 0) > 100);
  assert.doesNotMatch(dump, /isvalid: false|[Ff]ound \d+ invalid|[Mm]ismatch/);
  assert.deepEqual(await ownDump(...logs), apacheBatches(dump));
  const indexes = [...files('.index'), ...files('.timeindex')];
  const sane = await tool('dumpLog', ['--index-sanity-check', '--files', indexes.join()]);
  assert.equal(sane.match(/passed sanity check/g)?.length, indexes.length);
  const compared = await tool('dumpLog', ['--deep-iteration', '--files', indexes.join()]);
  assert.doesNotMatch(compared, /[Mm]ismatch|out of order|not found/);
  const others = [...files('.txnindex'), ...files('.snapshot')];
  await tool('dumpLog', ['--files', others.join()]);
}

test('Apache Kafka serves the directories of a stopped, then of a killed twinlog', {
  skip,
}, async () => {
  const java = await javaClient();
  const settings = { 'offsets.topic.num.partitions': '1' };
  const twinlog = await startTwinlog({ name: 'swap-local', settings });
  started.push(twinlog);
  await writeLocally(twinlog);
  const epoch = await leaderEpoch(twinlog.bootstrap, 'txns');
  await twinlog.stop();
  await writeTransactions(twinlog.dataDir, epoch);
  await twinlog.start();
  await ownDump(twinlog.dataDir);
  const stopped = await recordAndStop(twinlog, LOCAL_TOPICS, () => twinlog.stop());
  await assertDumpIsClean(stopped.directory, LOCAL_TOPICS);
  const offsets = join(twinlog.dataDir, '__consumer_offsets-0', '00000000000000000000.log');
  const decoded = await tool('dumpLog', ['--offsets-decoder', '--files', offsets]);
  assert.match(decoded, /local-group.*"offset":250/);

  const kafka = await ownKafka('swap-taker');
  await java.createTopic(kafka.bootstrap, 'local', 2, { 'retention.ms': '-1' });
  await java.createTopic(kafka.bootstrap, 'txns', 1, { 'retention.ms': '-1' });
  await raiseEpochs(kafka, stopped.plans);
  await kafka.stop();
  const { dataDir, log } = kafka.broker(1);
  swapPartitions(stopped.directory, dataDir, LOCAL_TOPICS, true);
  const before = readFileSync(log, 'utf8').length;
  await kafka.start();
  assert.deepEqual(complaints(readFileSync(log, 'utf8').slice(before), stopped.plans), []);
  await assertSameAnswers(kafka.bootstrap, stopped);
  if (!full) return;

  await twinlog.start();
  const killed = await recordAndStop(twinlog, LOCAL_TOPICS, () => twinlog.kill9());
  await kafka.stop();
  swapPartitions(killed.directory, dataDir, LOCAL_TOPICS, false);
  await kafka.start();
  await assertSameAnswers(kafka.bootstrap, killed);
  await assertSameGroups(kafka, twinlog, log);
});

/** The groups of a stopped twinlog, read by Apache Kafka's coordinator from the same files. */
async function assertSameGroups(
  kafka: KafkaCluster,
  twinlog: TwinlogBroker,
  log: string,
): Promise<void> {
  const java = await javaClient();
  const topics = ['__consumer_offsets'];
  // The topic appears with the first group.
  await java.commitOffsets(kafka.bootstrap, 'another', 'local', { 0: 1 });
  await twinlog.start();
  await twinlog.stop();
  await kafka.stop();
  swapPartitions(twinlog.dataDir, kafka.broker(1).dataDir, topics, true);
  const before = readFileSync(log, 'utf8').length;
  await kafka.start();
  const offsets = await java.groupOffsets(kafka.bootstrap, 'local-group');
  assert.deepEqual(offsets, { 'local-0': 17, 'local-1': 250 });
  assert.deepEqual(await java.groupOffsets(kafka.bootstrap, 'another'), {});
  const said = readFileSync(log, 'utf8').slice(before);
  assert.doesNotMatch(said, /(?:WARN|ERROR).*__consumer_offsets/);
}
