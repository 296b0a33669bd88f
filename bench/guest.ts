/**
 * Benchmark: mirroring from a real Apache Kafka into another, real Apache Kafka cluster, by twinlog
 * as a guest of that cluster and by MirrorMaker 2, in one run.
 *
 * Runs of the contestants alternate; only their ratios mean anything. There is a target cluster for
 * each number of followers, one at a time: a mirror topic has as many Apache replicas as the
 * cluster's `default.replication.factor` says. What each row is, bench/README.md says.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import type { KafkaCluster } from '../test/interop/apache-kafka.ts';
import { REPOSITORY } from '../test/interop/cache.ts';
import { JavaClient } from '../test/interop/java-client.ts';
import { kafkaJars, kafkaVersion } from '../test/interop/kafka-jars.ts';
import { type Contestant, mirrorMakerInto, type Source, startSource } from './contestants.ts';
import { nothing, startTarget, twinlogGuest } from './guest-contestants.ts';
import {
  type Bench,
  measureIdle,
  measureLag,
  measureNeighbour,
  type TopicShape,
} from './guest-rows.ts';
import {
  fillTopic,
  measureCopy,
  measureLatency,
  noMirror,
  type Results,
  rounds,
} from './mirror.ts';
import { machine } from './processes.ts';
import { median, printReport } from './report.ts';

/** Other work on the machine above this load makes the figures worthless. */
const BUSY_LOAD = 1;
/** The distant listeners of the source are not used here. */
const NO_DELAY_MS = 0;
const LATENCY_RATE = 100;
const ROWS = 'copy,lag,latency,idle,neighbour';

const HELP = `npm run bench -- guest [options]
  --quick            small sizes and one run: a check that it works, not a measurement
  --gib N            uncompressed size of a topic in GiB (1; quick: 0.125)
  --followers A,B    Apache replicas of a mirror topic, of 1,2 (all); rows other than copy are
                     measured with the last of them
  --topics A,B       of none-1,none-8,lz4-1,lz4-8 for copy and lag (all; quick: none-1,lz4-8)
  --partitions N     mirrored partitions of the idle row (300; quick: 30)
  --seconds N        length of a lag, latency, idle or neighbour measurement (20; quick: 4)
  --runs N           runs per contestant and row (3; quick: 1)
  --mm2-runs N       the same for MirrorMaker 2, which is slow (1)
  --rows A,B         of ${ROWS} (all); lag needs copy
  --contestants A,B  of twinlog,mm2 (all)
  --out FILE         where the JSON goes (bench/results/guest.json; quick: guest-quick.json)`;

const OPTIONS = {
  quick: { type: 'boolean', default: false },
  gib: { type: 'string' },
  followers: { type: 'string', default: '1,2' },
  topics: { type: 'string' },
  partitions: { type: 'string' },
  seconds: { type: 'string' },
  runs: { type: 'string' },
  'mm2-runs': { type: 'string', default: '1' },
  rows: { type: 'string', default: ROWS },
  contestants: { type: 'string', default: 'twinlog,mm2' },
  out: { type: 'string' },
  help: { type: 'boolean', default: false },
} as const;

function parseOptions(args: string[]) {
  const { values } = parseArgs({ args, options: OPTIONS });
  const { quick } = values;
  const list = (text: string): string[] => text.split(',').filter(Boolean);
  const file = quick ? 'guest-quick.json' : 'guest.json';
  return {
    quick,
    gib: Number(values.gib ?? (quick ? 0.125 : 1)),
    followers: list(values.followers).map(Number),
    topics: list(values.topics ?? (quick ? 'none-1,lz4-8' : 'none-1,none-8,lz4-1,lz4-8')),
    partitions: Number(values.partitions ?? (quick ? 30 : 300)),
    seconds: Number(values.seconds ?? (quick ? 4 : 20)),
    runs: Number(values.runs ?? (quick ? 1 : 3)),
    mm2Runs: Number(values['mm2-runs']),
    rows: list(values.rows),
    contestants: list(values.contestants),
    out: values.out ?? join(REPOSITORY, 'bench', 'results', file),
    help: values.help,
  };
}

type Options = ReturnType<typeof parseOptions>;

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

function shapeOf(name: string, topic: string): TopicShape {
  const [codec, partitions] = name.split('-');
  return { topic, partitions: Number(partitions), compression: codec === 'lz4' ? 'lz4' : 'none' };
}

const titleOf = ({ compression, partitions }: TopicShape): string =>
  `${compression}, ${partitions} partition${partitions === 1 ? '' : 's'}`;

async function makeContestants(
  target: KafkaCluster,
  followers: number,
  java: JavaClient,
  names: readonly string[],
): Promise<Contestant[]> {
  const contestants: Contestant[] = [];
  for (const name of names) {
    if (name === 'twinlog') contestants.push(twinlogGuest(target, followers, java));
    else if (name === 'mm2') {
      const into = { cluster: target, replicationFactor: followers, isShared: true };
      contestants.push(await mirrorMakerInto(java, into));
    } else throw new Error(`unknown contestant ${name}`);
  }
  return contestants;
}

/** Everything that is measured in one target cluster. */
class ClusterRun {
  readonly #bench: Bench;
  readonly #followers: number;
  readonly #contestants: readonly Contestant[];
  readonly #options: Options;
  readonly #results: Results;

  constructor(
    bench: Bench,
    followers: number,
    contestants: readonly Contestant[],
    options: Options,
    results: Results,
  ) {
    this.#bench = bench;
    this.#followers = followers;
    this.#contestants = contestants;
    this.#options = options;
    this.#results = results;
  }

  async run(isLast: boolean): Promise<void> {
    const { rows, topics } = this.#options;
    if (rows.includes('copy')) {
      await this.#warmUp();
      for (const name of topics) await this.#copy(name, isLast && rows.includes('lag'));
    }
    if (!isLast) return;
    if (rows.includes('latency')) await this.#latency();
    if (rows.includes('idle')) await this.#idle();
    if (rows.includes('neighbour')) await this.#neighbour();
  }

  /** The brokers' JVMs live through all runs: the first contestant shall not pay for theirs. */
  async #warmUp(): Promise<void> {
    const { source, java } = this.#bench;
    const shape = shapeOf('none-1', `warm-up-${this.#followers}`);
    const job = await fillTopic(source, java, shape.topic, {
      ...shape,
      gib: this.#options.gib / 2,
    });
    for (const contestant of this.#contestants) await measureCopy(contestant, job);
    await java.deleteTopic(source.direct, shape.topic);
  }

  async #copy(name: string, withLag: boolean): Promise<void> {
    const { source, java } = this.#bench;
    const shape = shapeOf(name, `${name}-to-${this.#followers}`);
    const wish = { ...shape, gib: this.#options.gib };
    const job = await fillTopic(source, java, shape.topic, wish);
    const s = this.#followers === 1 ? '' : 's';
    const row = `copy to ${this.#followers} follower${s}, ${titleOf(shape)}`;
    const all = this.#contestants;
    await rounds(this.#results, row, all, this.#options, (each) => measureCopy(each, job));
    await java.deleteTopic(source.direct, shape.topic);
    if (!withLag) return;
    const halfOf = (each: Contestant): number => {
      const measured = this.#results.get(row)?.get(each.name) ?? [];
      return median(measured.map(({ mbPerSecond = Number.NaN }) => mbPerSecond)) / 2;
    };
    await this.#lag(name, 'half load', halfOf);
    if (all.length < 2) return;
    const slowest = Math.min(...all.map(halfOf));
    await this.#lag(name, 'equal load', () => slowest);
  }

  /** Under as many MB/s as `loadOf` says. */
  async #lag(
    name: string,
    load: 'half load' | 'equal load',
    loadOf: (contestant: Contestant) => number,
  ): Promise<void> {
    const all = this.#contestants;
    const kind = load.replace(' ', '-');
    const row = `lag at ${load}, ${titleOf(shapeOf(name, ''))}`;
    await rounds(this.#results, row, all, this.#options, (each, round) => {
      const topic = `lag-${kind}-${name}-${all.indexOf(each)}-${round}`;
      return measureLag(each, this.#bench, shapeOf(name, topic), loadOf(each));
    });
  }

  async #latency(): Promise<void> {
    const { source, java, seconds } = this.#bench;
    const all = [noMirror(), ...this.#contestants];
    const row = `latency at ${LATENCY_RATE} records/s`;
    await rounds(this.#results, row, all, this.#options, (each, round) => {
      const topic = `latency-${all.indexOf(each)}-${round}`;
      return measureLatency(each, source, java, topic, seconds);
    });
  }

  async #idle(): Promise<void> {
    const { partitions } = this.#options;
    const all = [nothing(this.#bench.target), ...this.#contestants];
    const row = `idle, ${partitions} mirrored partitions`;
    await rounds(this.#results, row, all, this.#options, (each, round) => {
      const topic = `idle-${all.indexOf(each)}-${round}`;
      return measureIdle(each, this.#bench, { topic, partitions, compression: 'none' });
    });
  }

  async #neighbour(): Promise<void> {
    const all = [nothing(this.#bench.target), ...this.#contestants];
    const row = 'produce to another topic of the cluster';
    await rounds(this.#results, row, all, this.#options, (each, round) => {
      const topic = `load-${all.indexOf(each)}-${round}`;
      const shape = { topic, partitions: 1, compression: 'none' } as const;
      return measureNeighbour(each, this.#bench, shape);
    });
  }
}

async function runAll(source: Source, java: JavaClient, options: Options): Promise<Results> {
  const results: Results = new Map();
  const { seconds } = options;
  for (const followers of options.followers) {
    const target = await startTarget(followers);
    let contestants: Contestant[] = [];
    try {
      contestants = await makeContestants(target, followers, java, options.contestants);
      const bench = { source, target, java, seconds };
      const run = new ClusterRun(bench, followers, contestants, options, results);
      await run.run(followers === options.followers.at(-1));
    } finally {
      for (const contestant of contestants) await contestant.close();
      await target.destroy();
    }
  }
  return results;
}

function write(results: Results, options: Options): void {
  const { out, help: _help, ...chosen } = options;
  const about = { machine: machine(), kafka: kafkaVersion(), ...chosen };
  const json = Object.fromEntries([...results].map(([k, v]) => [k, Object.fromEntries(v)]));
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, `${JSON.stringify({ about, results: json }, null, 2)}\n`);
  printReport(results, about.machine);
  say(`\nwritten: ${out}`);
}

/** The command. */
export async function guestBenchmark(args: string[]): Promise<void> {
  const options = parseOptions(args);
  if (options.help) {
    process.stdout.write(`${HELP}\n`);
    return;
  }
  if (options.rows.includes('lag') && !options.rows.includes('copy')) {
    throw new Error('half load is half of what copy measured: ask for both rows');
  }
  if ((await kafkaJars()) === undefined) throw new Error('java and mvn are needed');
  const [load = 0] = loadavg();
  if (load > BUSY_LOAD) say(`The machine is busy (load ${load.toFixed(1)}): do not trust figures.`);
  const source = await startSource(NO_DELAY_MS);
  const java = await JavaClient.start('benchmark', '1g');
  try {
    write(await runAll(source, java, options), options);
  } finally {
    await java.close();
    await source.close();
  }
}
