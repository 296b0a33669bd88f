/**
 * Benchmark: mirroring topics of a real Apache Kafka, by twinlog and by its peers, in one run.
 *
 * Runs of the contestants alternate, so that what the machine does otherwise hits all alike; the
 * figures to look at are the ratios. Scenarios:
 *
 * - `copy`: a filled topic (none/lz4, 1/8 partitions) is added to the mirror. MB/s is uncompressed
 *   record bytes from the first to the last arrival; CPU is that of all destination-side processes
 *   over the same time, less what they use when idle; "first" is from adding the mirror (for
 *   MirrorMaker: starting it) to the first record.
 * - `latency`: 100 records/s of 1 KiB; from before `send` to the destination's consumer, one clock.
 * - `distance`: `copy` of one partition with the source 80 ms away (40 ms each way).
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { REPOSITORY } from '../test/interop/cache.ts';
import { JavaClient } from '../test/interop/java-client.ts';
import { kafkaJars, kafkaVersion } from '../test/interop/kafka-jars.ts';
import { runOrThrow } from '../test/interop/processes.ts';
import {
  apacheReplication,
  type Contestant,
  type Job,
  logBytes,
  mirrorMaker,
  type Source,
  startSource,
  thenStopped,
  twinlog,
} from './contestants.ts';
import { cpuSeconds, machine, peakMemoryMiB } from './processes.ts';
import { type Measurement, printReport } from './report.ts';
import { awaitServed } from './served.ts';

const RECORD_BYTES = 1024;
const ONE_WAY_DELAY_MS = 40;
const POLL_MS = 20;
const IDLE_SAMPLE_MS = 1_500;
const JOB_BOUND_MS = 900_000;
const LATENCY_RATE = 100;
/** Other work on the machine above this load makes the figures worthless. */
const BUSY_LOAD = 1;

const HELP = `npm run bench -- mirror [options]
  --gib N            uncompressed size of a topic in GiB (2)
  --distance-gib N   the same for the distance scenario (0.5)
  --runs N           runs per contestant and scenario (3)
  --mm2-runs N       the same for MirrorMaker 2, which is slow (1)
  --seconds N        length of the latency measurement (20)
  --contestants A,B  of twinlog,mm2,apache (all)
  --scenarios A,B    of copy,latency,distance (all)
  --topics A,B       of none-1,none-8,lz4-1,lz4-8 for copy (all)
  --out FILE         where the JSON goes (bench/results/mirror.json)`;

const OPTIONS = {
  gib: { type: 'string', default: '2' },
  'distance-gib': { type: 'string', default: '0.5' },
  runs: { type: 'string', default: '3' },
  'mm2-runs': { type: 'string', default: '1' },
  seconds: { type: 'string', default: '20' },
  contestants: { type: 'string', default: 'twinlog,mm2,apache' },
  scenarios: { type: 'string', default: 'copy,latency,distance' },
  topics: { type: 'string', default: 'none-1,none-8,lz4-1,lz4-8' },
  out: { type: 'string', default: join(REPOSITORY, 'bench', 'results', 'mirror.json') },
  help: { type: 'boolean', default: false },
} as const;

type Options = ReturnType<typeof parseOptions>;

function parseOptions(args: string[]) {
  const { values } = parseArgs({ args, options: OPTIONS });
  const list = (text: string): string[] => text.split(',').filter(Boolean);
  return {
    gib: Number(values.gib),
    distanceGib: Number(values['distance-gib']),
    runs: Number(values.runs),
    mm2Runs: Number(values['mm2-runs']),
    seconds: Number(values.seconds),
    contestants: list(values.contestants),
    scenarios: list(values.scenarios),
    topics: list(values.topics),
    out: values.out,
    help: values.help,
  };
}

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

/** Creates and fills a topic on the source's leader; returns the job of mirroring it. */
export async function fillTopic(
  source: Source,
  java: JavaClient,
  topic: string,
  shape: { partitions: number; compression: 'none' | 'lz4'; gib: number },
): Promise<Job> {
  const { partitions, compression, gib } = shape;
  const records = Math.floor((gib * 2 ** 30) / RECORD_BYTES);
  const onLeader = Array.from({ length: partitions }, (_, index) => [index, [source.leader.id]]);
  const assignment = Object.fromEntries(onLeader);
  await java.createTopic(source.direct, topic, partitions, {}, assignment);
  await awaitServed(source.direct, [topic]);
  const load = { bootstrap: source.direct, topic, partitions, compression, records };
  const parameters = { ...load, size: RECORD_BYTES };
  const { seconds } = await java.request<{ seconds: number }>('fill', parameters, JOB_BOUND_MS);
  await runOrThrow('sync', [], { timeoutMs: JOB_BOUND_MS }); // no writing back during the runs
  const bytes = logBytes(source.leader.dataDir, topic);
  const ratio = ((records * RECORD_BYTES) / bytes).toFixed(2);
  say(`${topic}: ${records} records in ${seconds.toFixed(0)} s, compressed ${ratio} times`);
  return { topic, partitions, compression, records, bytes, bootstrap: source.direct };
}

/** CPU seconds per second that processes use without work. */
async function idleRate(pids: readonly number[]): Promise<number> {
  const before = cpuSeconds(pids);
  await sleep(IDLE_SAMPLE_MS);
  return (cpuSeconds(pids) - before) / (IDLE_SAMPLE_MS / 1000);
}

/** What was seen when a share of the job had arrived. */
interface Arrival {
  readonly atMs: number;
  readonly share: number;
  readonly cpu: number;
  /** Of `copier` alone; 0 when nothing tells it apart. */
  readonly copierCpu: number;
}

/** Polls until the share of the job that has arrived is as wanted. */
export async function arrival(
  contestant: Contestant,
  job: Job,
  isReached: (share: number) => boolean,
): Promise<Arrival> {
  const deadline = performance.now() + JOB_BOUND_MS;
  for (;;) {
    const share = await contestant.progress(job);
    if (isReached(share)) {
      const cpu = cpuSeconds(contestant.pids);
      const copierCpu = cpuSeconds(contestant.copier ?? []);
      return { atMs: performance.now(), share, cpu, copierCpu };
    }
    contestant.check();
    if (performance.now() > deadline) throw new Error(`${contestant.name}: ${job.topic} hangs`);
    await sleep(POLL_MS);
  }
}

/** Mirrors the job from nothing to the end. */
export async function measureCopy(contestant: Contestant, job: Job): Promise<Measurement> {
  await contestant.prepare(job);
  return await thenStopped(contestant, job, async () => {
    const idle = await idleRate(contestant.pids);
    const added = performance.now();
    const cpuAdded = cpuSeconds(contestant.pids);
    const starting = contestant.start(job);
    starting.catch(() => undefined); // awaited below
    const first = await arrival(contestant, job, (share) => share > 0);
    const last = await arrival(contestant, job, (share) => share >= 1);
    const memory = peakMemoryMiB(contestant.copier ?? contestant.pids);
    await starting;
    const seconds = (last.atMs - first.atMs) / 1000;
    const whole = (job.records * RECORD_BYTES) / 1e9;
    // What the first look found is not part of the time either.
    const gb = whole * (last.share - first.share);
    const copier =
      contestant.copier === undefined
        ? {}
        : { copierCpuPerGb: (last.copierCpu - first.copierCpu) / gb };
    return {
      ...copier,
      mbPerSecond: (gb * 1000) / seconds,
      cpuPerGb: (last.cpu - first.cpu - idle * seconds) / gb,
      cpuWholePerGb: (last.cpu - cpuAdded) / whole,
      firstRecordSeconds: (first.atMs - added) / 1000,
      peakMemoryMiB: memory,
    };
  });
}

/** From before the producer's `send` to the consumer at the destination. */
export async function measureLatency(
  contestant: Contestant,
  source: Source,
  java: JavaClient,
  topic: string,
  seconds: number,
): Promise<Measurement> {
  const shape = { partitions: 1, compression: 'none', gib: RECORD_BYTES / 2 ** 30 } as const;
  const job = await fillTopic(source, java, topic, shape);
  await contestant.prepare(job);
  const measured = await thenStopped(contestant, job, async () => {
    await contestant.start(job);
    await arrival(contestant, job, (share) => share >= 1);
    const cpu = cpuSeconds(contestant.pids);
    const begin = performance.now();
    const parameters = {
      bootstrap: source.direct,
      destination: contestant.readable ?? source.direct,
      topic,
      rate: LATENCY_RATE,
      warmupSeconds: 5,
      seconds,
    };
    const bound = (seconds + 120) * 1000;
    const result = await java.request<{ p50Ms: number; p99Ms: number; maxMs: number }>(
      'latency',
      parameters,
      bound,
    );
    const elapsed = (performance.now() - begin) / 1000;
    const cpuPercent = (100 * (cpuSeconds(contestant.pids) - cpu)) / elapsed;
    return { p50Ms: result.p50Ms, p99Ms: result.p99Ms, maxMs: result.maxMs, cpuPercent };
  });
  await java.deleteTopic(source.direct, topic);
  return measured;
}

/** The source read directly: what of the latency is not the mirror's. */
export function noMirror(): Contestant {
  return {
    name: 'source itself',
    prepare: async () => undefined,
    start: async () => undefined,
    progress: async () => 1,
    pids: [],
    readable: undefined,
    check: () => undefined,
    stop: async () => undefined,
    close: async () => undefined,
  };
}

/** Results by scenario, then contestant. */
export type Results = Map<string, Map<string, Measurement[]>>;

/** Runs every contestant in turn, round by round. */
export async function rounds(
  results: Results,
  scenario: string,
  contestants: readonly Contestant[],
  options: Pick<Options, 'runs' | 'mm2Runs'>,
  measure: (contestant: Contestant, round: number) => Promise<Measurement>,
): Promise<void> {
  const byName = new Map<string, Measurement[]>();
  results.set(scenario, byName);
  for (let round = 0; round < options.runs; round++) {
    for (const contestant of contestants) {
      if (contestant.name === 'MirrorMaker 2' && round >= options.mm2Runs) continue;
      const measurement = await measure(contestant, round);
      say(`${scenario} #${round + 1} ${contestant.name}: ${JSON.stringify(measurement)}`);
      byName.set(contestant.name, [...(byName.get(contestant.name) ?? []), measurement]);
    }
  }
}

async function runScenarios(
  source: Source,
  java: JavaClient,
  contestants: readonly Contestant[],
  options: Options,
): Promise<Results> {
  const results: Results = new Map();
  if (options.scenarios.includes('copy')) {
    for (const name of options.topics) {
      const [codec, partitions] = name.split('-');
      const compression = codec === 'lz4' ? 'lz4' : 'none';
      const shape = { partitions: Number(partitions), compression, gib: options.gib } as const;
      const job = await fillTopic(source, java, name, shape);
      const title = `copy, ${compression}, ${partitions} partition${partitions === '1' ? '' : 's'}`;
      // The follower's JVM lives through all runs: it shall not pay for its warming up.
      const follower = contestants.find(({ name }) => name === 'Apache replication');
      if (results.size === 0 && follower !== undefined) await measureCopy(follower, job);
      await rounds(results, title, contestants, options, (each) => measureCopy(each, job));
      await java.deleteTopic(source.direct, name);
    }
  }
  if (options.scenarios.includes('latency')) {
    const readable = contestants.filter(({ name }) => name !== 'Apache replication');
    const all = [noMirror(), ...readable];
    await rounds(results, `latency at ${LATENCY_RATE} records/s`, all, options, (each, round) => {
      const topic = `latency-${all.indexOf(each)}-${round}`;
      return measureLatency(each, source, java, topic, options.seconds);
    });
  }
  if (options.scenarios.includes('distance')) {
    const shape = { partitions: 1, compression: 'none', gib: options.distanceGib } as const;
    const near = await fillTopic(source, java, 'distance', shape);
    const job = { ...near, bootstrap: source.distant };
    const remote = contestants.filter(({ name }) => name !== 'Apache replication');
    const title = `source ${2 * ONE_WAY_DELAY_MS} ms away, 1 partition`;
    await rounds(results, title, remote, options, (each) => measureCopy(each, job));
  }
  return results;
}

async function makeContestants(
  source: Source,
  java: JavaClient,
  names: readonly string[],
): Promise<Contestant[]> {
  const contestants: Contestant[] = [];
  for (const name of names) {
    if (name === 'twinlog') contestants.push(twinlog());
    else if (name === 'apache') contestants.push(apacheReplication(source, java));
    else if (name === 'mm2') contestants.push(await mirrorMaker(java));
    else throw new Error(`unknown contestant ${name}`);
  }
  return contestants;
}

/** The command. */
export async function mirrorBenchmark(args: string[]): Promise<void> {
  const options = parseOptions(args);
  if (options.help) {
    process.stdout.write(`${HELP}\n`);
    return;
  }
  if ((await kafkaJars()) === undefined) throw new Error('java and mvn are needed');
  const [load = 0] = loadavg();
  if (load > BUSY_LOAD) say(`The machine is busy (load ${load.toFixed(1)}): do not trust figures.`);
  const source = await startSource(ONE_WAY_DELAY_MS);
  const java = await JavaClient.start('benchmark', '1g');
  let contestants: Contestant[] = [];
  try {
    contestants = await makeContestants(source, java, options.contestants);
    const results = await runScenarios(source, java, contestants, options);
    const { out: _out, help: _help, ...chosen } = options;
    const about = {
      machine: machine(),
      kafka: kafkaVersion(),
      recordBytes: RECORD_BYTES,
      ...chosen,
    };
    const json = Object.fromEntries([...results].map(([k, v]) => [k, Object.fromEntries(v)]));
    mkdirSync(dirname(options.out), { recursive: true });
    writeFileSync(options.out, `${JSON.stringify({ about, results: json }, null, 2)}\n`);
    printReport(results, about.machine);
    say(`\nwritten: ${options.out}`);
  } finally {
    for (const contestant of contestants) await contestant.close();
    await java.close();
    await source.close();
  }
}
