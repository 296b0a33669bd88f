/**
 * The rows of `npm run bench -- log` that have a counterpart in Apache Kafka: one broker of each,
 * on this machine, with the same Java client: produce, consume, and life with many partitions.
 *
 * Brokers run with their defaults, replication factor 1 and acks=all. CPU is the broker's alone,
 * less what it uses when idle.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type KafkaCluster, startKafka } from '../test/interop/apache-kafka.ts';
import type { JavaClient } from '../test/interop/java-client.ts';
import { RawClient } from '../test/interop/raw-client.ts';
import { startTwinlog, type TwinlogBroker } from '../test/interop/twinlog.ts';
import { cpuSeconds, residentMemoryMiB } from './processes.ts';
import type { Measurement } from './report.ts';
import { awaitServed } from './served.ts';

const RECORD_BYTES = 1024;
const IDLE_SAMPLE_MS = 1_500;
const LONG_IDLE_MS = 10_000;
const REQUEST_BOUND_MS = 600_000;
/** With ten thousand written partitions there is much to make durable. */
const STOP_BOUND_MS = 300_000;
const PARTITIONS_PER_TOPIC = 1000;
const POLL_MS = 10;
const LATENCY_RATE = 100;

/** A broker under test. */
export interface BenchBroker {
  readonly name: string;
  readonly bootstrap: string;
  readonly pids: readonly number[];
  start(): Promise<void>;
  stop(): Promise<void>;
  kill9(): Promise<void>;
  destroy(): Promise<void>;
}

/** A twinlog broker with an empty data directory. */
export async function twinlogBroker(): Promise<BenchBroker> {
  const broker: TwinlogBroker = await startTwinlog({ name: 'bench-log', logLevel: 'warn' });
  return {
    name: 'twinlog',
    bootstrap: broker.bootstrap,
    get pids() {
      return [broker.pid];
    },
    start: () => broker.start(),
    stop: () => broker.stop(STOP_BOUND_MS),
    kill9: () => broker.kill9(),
    destroy: () => broker.destroy(),
  };
}

/** An Apache Kafka broker and controller in one process, with an empty data directory. */
export async function apacheBroker(): Promise<BenchBroker> {
  const cluster: KafkaCluster = await startKafka({ name: 'bench-log-kafka', jvm: 'benchmark' });
  return {
    name: 'Apache Kafka',
    bootstrap: cluster.bootstrap,
    get pids() {
      return cluster.pids;
    },
    start: () => cluster.start(REQUEST_BOUND_MS),
    stop: () => cluster.stop(STOP_BOUND_MS),
    kill9: async () => {
      await Promise.all(cluster.nodes.map((node) => node.kill9()));
    },
    destroy: () => cluster.destroy(),
  };
}

/** A topic's load. */
export interface LoadShape {
  readonly partitions: number;
  readonly compression: 'none' | 'lz4';
  readonly batchKib: number;
  readonly gib: number;
}

async function idleRate(pids: readonly number[], sampleMs = IDLE_SAMPLE_MS): Promise<number> {
  const before = cpuSeconds(pids);
  await sleep(sampleMs);
  return (cpuSeconds(pids) - before) / (sampleMs / 1000);
}

/** Runs a load of the Java client; CPU is the broker's. */
async function loaded(
  broker: BenchBroker,
  java: JavaClient,
  command: 'fill' | 'drain',
  topic: string,
  shape: LoadShape,
): Promise<Measurement> {
  const { partitions, compression, batchKib, gib } = shape;
  const records = Math.floor((gib * 2 ** 30) / RECORD_BYTES);
  const idle = await idleRate(broker.pids);
  const cpu = cpuSeconds(broker.pids);
  const parameters = {
    bootstrap: broker.bootstrap,
    topic,
    partitions,
    compression,
    records,
    size: RECORD_BYTES,
    batchSize: String(batchKib * 1024),
    config: command === 'drain' ? { 'fetch.max.wait.ms': '500' } : {},
  };
  const { seconds } = await java.request<{ seconds: number }>(
    command,
    parameters,
    REQUEST_BOUND_MS,
  );
  const gb = (records * RECORD_BYTES) / 1e9;
  return {
    mbPerSecond: (gb * 1000) / seconds,
    cpuPerGb: (cpuSeconds(broker.pids) - cpu - idle * seconds) / gb,
  };
}

/** Produces a topic and consumes it twice, of which the second counts; then deletes it. */
export async function measureThroughput(
  broker: BenchBroker,
  java: JavaClient,
  topic: string,
  shape: LoadShape,
): Promise<{ produce: Measurement; consume: Measurement }> {
  await java.createTopic(broker.bootstrap, topic, shape.partitions);
  await whenLed(broker, [topic]);
  await awaitServed(broker.bootstrap, [topic], REQUEST_BOUND_MS);
  const produce = await loaded(broker, java, 'fill', topic, shape);
  await loaded(broker, java, 'drain', topic, { ...shape, gib: shape.gib / 8 });
  const consume = await loaded(broker, java, 'drain', topic, shape);
  await java.deleteTopic(broker.bootstrap, topic);
  return { produce, consume };
}

/** Waits until every partition of the topics has a leader. */
async function whenLed(broker: BenchBroker, topics: readonly string[]): Promise<void> {
  const [host = '', port = ''] = broker.bootstrap.split(':');
  const deadline = performance.now() + REQUEST_BOUND_MS;
  while (performance.now() < deadline) {
    try {
      await using client = await RawClient.connect(host, Number(port), REQUEST_BOUND_MS);
      const found = (await client.metadata(topics)).topics;
      const isLed = found.every(({ partitions }) => partitions.every(({ leader }) => leader >= 0));
      if (found.length === topics.length && found.every(({ error }) => error === 0) && isLed) {
        return;
      }
    } catch {
      // Not up yet; the deadline bounds the retries.
    }
    await sleep(POLL_MS);
  }
  throw new Error(`${broker.name}: partitions have no leader`);
}

async function secondsOf(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

/**
 * Creates topics of 1000 partitions, writes to each partition, stops and starts, kills and starts;
 * then latency and CPU with all of them idle.
 */
export async function measureManyPartitions(
  broker: BenchBroker,
  java: JavaClient,
  partitions: number,
  seconds: number,
): Promise<Measurement> {
  const { bootstrap } = broker;
  const topics = Array.from({ length: partitions / PARTITIONS_PER_TOPIC }, (_, n) => `many-${n}`);
  const createSeconds = await secondsOf(async () => {
    for (const topic of topics) await java.createTopic(bootstrap, topic, PARTITIONS_PER_TOPIC);
    await whenLed(broker, topics);
  });
  await java.createTopic(bootstrap, 'latency', 1);
  await whenLed(broker, [...topics, 'latency']);
  await awaitServed(bootstrap, [...topics, 'latency'], REQUEST_BOUND_MS);
  for (const topic of topics) {
    const load = { bootstrap, topic, partitions: PARTITIONS_PER_TOPIC, compression: 'none' };
    // One run of neighbouring records for each partition; see Loads.java.
    const parameters = { ...load, records: 64 * PARTITIONS_PER_TOPIC, size: 100 };
    await java.request('fill', parameters, REQUEST_BOUND_MS);
  }
  const stopSeconds = await secondsOf(() => broker.stop());
  const start = async (): Promise<void> => {
    await broker.start();
    await whenLed(broker, [...topics, 'latency']);
  };
  const startSeconds = await secondsOf(start);
  const startCpuSeconds = cpuSeconds(broker.pids);
  await broker.kill9();
  const crashStartSeconds = await secondsOf(start);
  const cpuPercent = 100 * (await idleRate(broker.pids, LONG_IDLE_MS));
  const memoryMiB = residentMemoryMiB(broker.pids);
  const latency = await java.request<{ p50Ms: number; p99Ms: number; maxMs: number }>('latency', {
    bootstrap,
    destination: bootstrap,
    topic: 'latency',
    rate: LATENCY_RATE,
    warmupSeconds: 3,
    seconds,
  });
  const { p50Ms, p99Ms, maxMs } = latency;
  const times = { createSeconds, stopSeconds, startSeconds, crashStartSeconds, startCpuSeconds };
  return { ...times, memoryMiB, cpuPercent, p50Ms, p99Ms, maxMs };
}
