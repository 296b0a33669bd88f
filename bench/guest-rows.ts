/**
 * The measurements of `npm run bench -- guest` that the mirror benchmark does not have: lag under a
 * steady load, the cost of many idle partitions, and what a mirror does to other topics.
 *
 * Each prepares a contestant, adds a topic of its own to its mirror, waits until what the topic
 * held has arrived, measures, and removes all of it again.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { KafkaCluster } from '../test/interop/apache-kafka.ts';
import type { JavaClient } from '../test/interop/java-client.ts';
import {
  type Contestant,
  type Job,
  RecordCounter,
  type Source,
  thenStopped,
} from './contestants.ts';
import { arrival, fillTopic } from './mirror.ts';
import { cpuSeconds, residentMemoryMiB } from './processes.ts';
import { type Measurement, quantile } from './report.ts';
import { awaitServed } from './served.ts';

const RECORD_BYTES = 1024;
const BYTES_PER_GIB = 2 ** 30;
/** Neighbouring records of a partition; see Loads.java. */
const RUN = 64;
const WARMUP_SECONDS = 4;
const SAMPLE_MS = 25;
/** After many partitions were added, for what happens once. */
const SETTLE_MS = 5_000;
/** Of the producer whose latency is looked at, records a second. */
const NEIGHBOUR_RATE = 500;
/** What is mirrored meanwhile. */
const NEIGHBOUR_LOAD_MB = 10;
const LOAD_BOUND_MS = 300_000;

/** Where a measurement takes place. */
export interface Bench {
  readonly source: Source;
  readonly target: KafkaCluster;
  readonly java: JavaClient;
  /** Length of the measurement itself. */
  readonly seconds: number;
}

/** A topic's shape; it holds a run of records in each partition when it is added. */
export interface TopicShape {
  readonly topic: string;
  readonly partitions: number;
  readonly compression: 'none' | 'lz4';
}

/** Runs `measure` while the contestant mirrors a topic that it has caught up with. */
async function whileMirroring(
  contestant: Contestant,
  bench: Bench,
  shape: TopicShape,
  measure: (job: Job) => Promise<Measurement>,
): Promise<Measurement> {
  const { source, java } = bench;
  const gib = (shape.partitions * RUN * RECORD_BYTES) / BYTES_PER_GIB;
  const job = await fillTopic(source, java, shape.topic, { ...shape, gib });
  await contestant.prepare(job);
  const measured = await thenStopped(contestant, job, async () => {
    await contestant.start(job);
    await arrival(contestant, job, (share) => share >= 1);
    return await measure(job);
  });
  await java.deleteTopic(source.direct, job.topic);
  return measured;
}

/** Writes to the source at this rate; `seconds` is how long it took. */
function steadyLoad(
  { java }: Bench,
  job: Job,
  mbPerSecond: number,
  seconds: number,
): { readonly records: number; readonly done: Promise<{ seconds: number }> } {
  const rate = (mbPerSecond * 1e6) / RECORD_BYTES;
  const records = Math.ceil(rate * seconds);
  const { topic, partitions, compression, bootstrap } = job;
  const load = { bootstrap, topic, partitions, compression, records, size: RECORD_BYTES, rate };
  const done = java.request<{ seconds: number }>('fill', load, LOAD_BOUND_MS);
  done.catch(() => undefined); // awaited by the caller, later
  return { records, done };
}

/**
 * How far consumers at the destination are behind the source's end while a producer writes
 * `mbPerSecond`: both ends are asked at once, again and again; milliseconds are records over rate.
 */
export function measureLag(
  contestant: Contestant,
  bench: Bench,
  shape: TopicShape,
  mbPerSecond: number,
): Promise<Measurement> {
  return whileMirroring(contestant, bench, shape, async (job) => {
    const { readable } = contestant;
    const [host = '', port = ''] = (readable ?? '').split(',')[0]?.split(':') ?? [];
    const there = new RecordCounter({ host, port: Number(port) });
    const here = new RecordCounter(bench.source.leader);
    try {
      const seconds = WARMUP_SECONDS + bench.seconds;
      const { records, done } = steadyLoad(bench, job, mbPerSecond, seconds);
      let isOver = false;
      const over = (): void => {
        isOver = true;
      };
      done.then(over, over);
      await sleep(WARMUP_SECONDS * 1000);
      const behind: number[] = [];
      const cpu = cpuSeconds(contestant.copier ?? []);
      const began = performance.now();
      while (!isOver) {
        const ends = [there.endOffsets(job.topic), here.endOffsets(job.topic)] as const;
        const [mirrored, written] = await Promise.all(ends);
        if (!isOver) behind.push(Math.max(0, written - mirrored));
        await sleep(SAMPLE_MS);
      }
      const used = cpuSeconds(contestant.copier ?? []) - cpu;
      const elapsed = (performance.now() - began) / 1000;
      const rate = records / (await done).seconds;
      const lags = behind.map((each) => (each / rate) * 1000).sort((a, b) => a - b);
      if (lags.length === 0) throw new Error(`${contestant.name}: no look at ${job.topic}`);
      return {
        loadMbPerSecond: (rate * RECORD_BYTES) / 1e6,
        lagP50Ms: quantile(lags, 0.5),
        lagP99Ms: quantile(lags, 0.99),
        copierCpuPercent: (100 * used) / elapsed,
      };
    } finally {
      there.close();
      here.close();
    }
  });
}

/** What processes use while nothing is written anywhere. */
export function measureIdle(
  contestant: Contestant,
  bench: Bench,
  shape: TopicShape,
): Promise<Measurement> {
  return whileMirroring(contestant, bench, shape, async () => {
    await sleep(SETTLE_MS);
    const { copier = [], pids } = contestant;
    const brokers = pids.filter((pid) => !copier.includes(pid));
    const before = [cpuSeconds(copier), cpuSeconds(brokers)] as const;
    const began = performance.now();
    await sleep(bench.seconds * 1000);
    const percent = 100_000 / (performance.now() - began);
    return {
      copierCpuPercent: percent * (cpuSeconds(copier) - before[0]),
      brokersCpuPercent: percent * (cpuSeconds(brokers) - before[1]),
      copierMiB: residentMemoryMiB(copier),
      brokersMiB: residentMemoryMiB(brokers),
    };
  });
}

/**
 * Acknowledgement times of another topic of the cluster, with all its replicas on the brokers that
 * the mirror uses, while a steady load is written to the source and mirrored.
 */
export function measureNeighbour(
  contestant: Contestant,
  bench: Bench,
  shape: TopicShape,
): Promise<Measurement> {
  const { java, target, seconds } = bench;
  const neighbour = `neighbour-of-${shape.topic}`;
  return whileMirroring(contestant, bench, shape, async (job) => {
    const brokers = target.brokers.map(({ id }) => id);
    await java.createTopic(target.bootstrap, neighbour, 1, {}, { 0: brokers });
    const { host, port } = target.broker(brokers[0] ?? 0);
    await awaitServed(`${host}:${port}`, [neighbour]);
    const loadSeconds = 2 * WARMUP_SECONDS + seconds;
    const { done } = steadyLoad(bench, job, NEIGHBOUR_LOAD_MB, loadSeconds);
    const produced = await java.request<{ p50Ms: number; p99Ms: number; maxMs: number }>(
      'produceLatency',
      {
        bootstrap: target.bootstrap,
        topic: neighbour,
        rate: NEIGHBOUR_RATE,
        warmupSeconds: WARMUP_SECONDS,
        seconds,
      },
      LOAD_BOUND_MS,
    );
    await done;
    await java.deleteTopic(target.bootstrap, neighbour);
    return { p50Ms: produced.p50Ms, p99Ms: produced.p99Ms, maxMs: produced.maxMs };
  });
}
