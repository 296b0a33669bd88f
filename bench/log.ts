/**
 * Benchmark: the log, alone and in a broker beside Apache Kafka's, in one run.
 *
 * Runs alternate between rows and brokers, so that what the machine does otherwise hits all alike;
 * between brokers only the ratios mean anything. What each row is, bench/README.md says.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { REPOSITORY } from '../test/interop/cache.ts';
import { JavaClient } from '../test/interop/java-client.ts';
import { kafkaJars, kafkaVersion } from '../test/interop/kafka-jars.ts';
import {
  apacheBroker,
  type BenchBroker,
  type LoadShape,
  measureManyPartitions,
  measureThroughput,
  twinlogBroker,
} from './log-brokers.ts';
import { storageRows } from './log-storage.ts';
import { machine } from './processes.ts';
import { type Measurement, printReport } from './report.ts';

/** Other work on the machine above this load makes the figures worthless. */
const BUSY_LOAD = 1;

const HELP = `npm run bench -- log [options]
  --quick            small sizes and one run: a check that it works, not a measurement
  --megabytes N      what each storage row writes (1000; quick: 100)
  --gib N            uncompressed size of a topic in GiB (1; quick: 0.125)
  --partitions A,B   thousands of idle partitions (1000,10000; quick: 1000)
  --seconds N        length of a latency measurement (15; quick: 4)
  --runs N           runs of every row (3; quick: 1)
  --rows A,B         of storage,throughput,partitions (all)
  --brokers A,B      of twinlog,apache (all)
  --out FILE         where the JSON goes (bench/results/log.json; quick: log-quick.json)`;

const OPTIONS = {
  quick: { type: 'boolean', default: false },
  megabytes: { type: 'string' },
  gib: { type: 'string' },
  partitions: { type: 'string' },
  seconds: { type: 'string' },
  runs: { type: 'string' },
  rows: { type: 'string', default: 'storage,throughput,partitions' },
  brokers: { type: 'string', default: 'twinlog,apache' },
  out: { type: 'string' },
  help: { type: 'boolean', default: false },
} as const;

function parseOptions(args: string[]) {
  const { values } = parseArgs({ args, options: OPTIONS });
  const { quick } = values;
  const list = (text: string): string[] => text.split(',').filter(Boolean);
  const file = quick ? 'log-quick.json' : 'log.json';
  return {
    quick,
    megabytes: Number(values.megabytes ?? (quick ? 100 : 1000)),
    gib: Number(values.gib ?? (quick ? 0.125 : 1)),
    partitions: list(values.partitions ?? (quick ? '1000' : '1000,10000')).map(Number),
    seconds: Number(values.seconds ?? (quick ? 4 : 15)),
    runs: Number(values.runs ?? (quick ? 1 : 3)),
    rows: list(values.rows),
    brokers: list(values.brokers),
    out: values.out ?? join(REPOSITORY, 'bench', 'results', file),
    help: values.help,
  };
}

type Options = ReturnType<typeof parseOptions>;

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

/** Results by scenario, then row or broker. */
class Results {
  readonly all = new Map<string, Map<string, Measurement[]>>();

  add(scenario: string, name: string, measurement: Measurement): void {
    say(`${scenario}, ${name}: ${JSON.stringify(measurement)}`);
    const byName = this.all.get(scenario) ?? new Map<string, Measurement[]>();
    this.all.set(scenario, byName);
    byName.set(name, [...(byName.get(name) ?? []), measurement]);
  }
}

async function runStorage(results: Results, options: Options): Promise<void> {
  const rows = storageRows(options.megabytes);
  for (let round = 0; round < options.runs; round++) {
    for (const { scenario, name, measure } of rows) results.add(scenario, name, await measure());
  }
}

const MAKERS: Readonly<Record<string, () => Promise<BenchBroker>>> = {
  twinlog: twinlogBroker,
  apache: apacheBroker,
};

function maker(name: string): () => Promise<BenchBroker> {
  const make = MAKERS[name];
  if (make === undefined) throw new Error(`unknown broker ${name}`);
  return make;
}

function shapes(gib: number): LoadShape[] {
  return [
    { partitions: 1, compression: 'none', batchKib: 64, gib },
    { partitions: 1, compression: 'none', batchKib: 16, gib },
    { partitions: 8, compression: 'none', batchKib: 64, gib },
    { partitions: 1, compression: 'lz4', batchKib: 64, gib },
  ];
}

/** One broker of each kind lives through all runs: its JIT compiler is warm after the first. */
async function runThroughput(results: Results, java: JavaClient, options: Options): Promise<void> {
  const brokers: BenchBroker[] = [];
  try {
    for (const name of options.brokers) brokers.push(await maker(name)());
    const [warmUp] = shapes(options.gib / 2);
    for (const broker of brokers) {
      if (warmUp !== undefined) await measureThroughput(broker, java, 'warm-up', warmUp);
    }
    for (let round = 0; round < options.runs; round++) {
      for (const shape of shapes(options.gib)) {
        const { partitions, compression, batchKib } = shape;
        const what = `${compression}, ${partitions} partition(s), batches of ${batchKib} KiB`;
        const topic = `${compression}-${partitions}-${batchKib}-${round}`;
        for (const broker of brokers) {
          const measured = await measureThroughput(broker, java, topic, shape);
          results.add(`produce, ${what}`, broker.name, measured.produce);
          results.add(`consume, ${what}`, broker.name, measured.consume);
        }
      }
    }
  } finally {
    for (const broker of brokers) await broker.destroy();
  }
}

/**
 * The data of all brokers stays until the end: for minutes after many files were deleted, ext4 is
 * slow to create others, which would be the next broker's misfortune.
 */
async function runPartitions(results: Results, java: JavaClient, options: Options): Promise<void> {
  const used: BenchBroker[] = [];
  try {
    await runPartitionRounds(results, java, options, used);
  } finally {
    for (const broker of used) await broker.destroy();
  }
}

async function runPartitionRounds(
  results: Results,
  java: JavaClient,
  options: Options,
  used: BenchBroker[],
): Promise<void> {
  for (let round = 0; round < options.runs; round++) {
    for (const partitions of options.partitions) {
      for (const name of options.brokers) {
        const broker = await maker(name)();
        used.push(broker);
        const measured = await measureManyPartitions(broker, java, partitions, options.seconds);
        results.add(`${partitions} partitions`, broker.name, measured);
        await broker.kill9();
      }
    }
  }
}

function write(results: Results, options: Options): void {
  const { out, help: _help, ...chosen } = options;
  const about = { machine: machine(), kafka: kafkaVersion(), ...chosen };
  const json = Object.fromEntries(
    [...results.all].map(([scenario, byName]) => [scenario, Object.fromEntries(byName)]),
  );
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, `${JSON.stringify({ about, results: json }, null, 2)}\n`);
  printReport(results.all, about.machine);
  say(`\nwritten: ${out}`);
}

/** The command. */
export async function logBenchmark(args: string[]): Promise<void> {
  const options = parseOptions(args);
  if (options.help) {
    process.stdout.write(`${HELP}\n`);
    return;
  }
  const [load = 0] = loadavg();
  if (load > BUSY_LOAD) say(`The machine is busy (load ${load.toFixed(1)}): do not trust figures.`);
  const results = new Results();
  if (options.rows.includes('storage')) await runStorage(results, options);
  if (options.rows.includes('throughput') || options.rows.includes('partitions')) {
    if ((await kafkaJars()) === undefined) throw new Error('java and mvn are needed');
    const java = await JavaClient.start('benchmark', '1g');
    try {
      if (options.rows.includes('throughput')) await runThroughput(results, java, options);
      if (options.rows.includes('partitions')) await runPartitions(results, java, options);
    } finally {
      await java.close();
    }
  }
  write(results, options);
}
