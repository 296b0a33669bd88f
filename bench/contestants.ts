/**
 * The mirrors that are compared: twinlog, MirrorMaker 2 into a second Apache Kafka, and Apache
 * Kafka's own replication (a reassignment to a second broker, which is what a byte-true copy costs
 * at least).
 *
 * `pids` are all destination-side processes; what the source spends is nobody's cost here.
 */
import { readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type KafkaCluster, type KafkaNode, startKafka } from '../test/interop/apache-kafka.ts';
import type { JavaClient } from '../test/interop/java-client.ts';
import { javaArguments, requireKafkaJars } from '../test/interop/kafka-jars.ts';
import {
  freePort,
  logFile,
  type ManagedProcess,
  spawnManaged,
  tail,
  temporaryDirectory,
} from '../test/interop/processes.ts';
import { RawClient } from '../test/interop/raw-client.ts';
import { startTwinlog, type TwinlogBroker } from '../test/interop/twinlog.ts';

/** Where the data comes from. */
export interface Source {
  readonly cluster: KafkaCluster;
  /** The broker that leads every benchmark topic. */
  readonly leader: KafkaNode;
  /** The broker that Apache Kafka's own replication copies to. */
  readonly follower: KafkaNode;
  /** `host:port` of the leader, direct. */
  readonly direct: string;
  /** `host:port` of the leader behind the delaying proxy. */
  readonly distant: string;
}

/** A topic to mirror. */
export interface Job {
  readonly topic: string;
  readonly partitions: number;
  readonly compression: 'none' | 'lz4';
  readonly records: number;
  /** Log bytes at the source. */
  readonly bytes: number;
  /** Bootstrap address to be given to the mirror: direct or distant. */
  readonly bootstrap: string;
}

/** A mirror under test. One job at a time: prepare, start, watch, stop. */
export interface Contestant {
  readonly name: string;
  /** Gets ready for the job; not measured. */
  prepare(job: Job): Promise<void>;
  /** Adds the mirror; the clock starts before this call. */
  start(job: Job): Promise<void>;
  /** The share of the job that has arrived, 0 to 1; cheap enough to be asked 50 times a second. */
  progress(job: Job): Promise<number>;
  readonly pids: readonly number[];
  /** Those of them that are no brokers of a cluster which others copy into, too. */
  readonly copier?: readonly number[] | undefined;
  /** A bootstrap address for reading the destination; undefined when clients cannot read it. */
  readonly readable: string | undefined;
  /** Throws when the job can no longer succeed. */
  check(): void;
  /** Ends the job and removes its data. */
  stop(job: Job): Promise<void>;
  /** Ends everything. */
  close(): Promise<void>;
}

/** Runs `measure`, then ends the job; an error of the former does not get lost in the latter's. */
export async function thenStopped<T>(
  contestant: Contestant,
  job: Job,
  measure: () => Promise<T>,
): Promise<T> {
  let result: T;
  try {
    result = await measure();
  } catch (error) {
    try {
      await contestant.stop(job);
    } catch (stopping) {
      throw new AggregateError([error, stopping], `${contestant.name}: ${job.topic}`);
    }
    throw error;
  }
  await contestant.stop(job);
  return result;
}

/** Names in a directory; none when a broker has just removed it. */
function filesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Bytes in the `.log` files of a topic's partitions in a data directory. */
export function logBytes(dataDir: string, topic: string): number {
  let bytes = 0;
  const entries = readdirSync(dataDir, { withFileTypes: true });
  for (const entry of entries) {
    const { name } = entry;
    if (!entry.isDirectory() || !name.startsWith(`${topic}-`)) continue;
    if (!/^\d+$/.test(name.slice(topic.length + 1))) continue;
    for (const file of filesIn(join(dataDir, name))) {
      if (!file.endsWith('.log')) continue;
      bytes += statSync(join(dataDir, name, file), { throwIfNoEntry: false })?.size ?? 0;
    }
  }
  return bytes;
}

/** Waits until it is true; the bound is in milliseconds. */
export async function until(what: string, boundMs: number, isTrue: () => boolean): Promise<void> {
  const deadline = Date.now() + boundMs;
  while (!isTrue()) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${boundMs} ms`);
    await sleep(20);
  }
}

async function accepting(port: number): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt++) {
    try {
      (await RawClient.connect('127.0.0.1', port)).close();
      return;
    } catch {
      await sleep(25); // not listening yet; the attempts bound it
    }
  }
  throw new Error(`nothing listens on ${port}`);
}

/** Asks a cluster how many records consumers can see; one connection a broker, kept. */
export class RecordCounter {
  readonly #bootstrap: { readonly host: string; readonly port: number };
  readonly #clients = new Map<number, RawClient>();

  /** `bootstrap`: one of its brokers. */
  constructor(bootstrap: { readonly host: string; readonly port: number }) {
    this.#bootstrap = bootstrap;
  }

  async #client({ host, port }: { host: string; port: number }): Promise<RawClient> {
    const client = this.#clients.get(port) ?? (await RawClient.connect(host, port));
    this.#clients.set(port, client);
    return client;
  }

  /** The sum of the end offsets of a topic's partitions; 0 while it does not exist. */
  async count(topic: string): Promise<number> {
    try {
      return await this.endOffsets(topic);
    } catch {
      this.close(); // a new topic's leader may not be known yet; the next poll asks again
      return 0;
    }
  }

  /** The same, or an error when a partition does not answer. */
  async endOffsets(topic: string): Promise<number> {
    const { brokers, topics } = await (await this.#client(this.#bootstrap)).metadata([topic]);
    let records = 0;
    for (const { partition, leader } of topics[0]?.partitions ?? []) {
      const broker = brokers.find(({ id }) => id === leader);
      if (broker === undefined) throw new Error(`${topic}-${partition} has no leader`);
      records += Number(await (await this.#client(broker)).listOffset(topic, partition, -1));
    }
    return records;
  }

  close(): void {
    for (const client of this.#clients.values()) client.close();
    this.#clients.clear();
  }
}

/** Internal topics of one replica; what is deleted is gone at once. */
export const BENCHMARK_PROPERTIES = {
  'default.replication.factor': '1',
  'offsets.topic.replication.factor': '1',
  'transaction.state.log.replication.factor': '1',
  'share.coordinator.state.topic.replication.factor': '1',
  'log.segment.delete.delay.ms': '100',
};

/** Starts the source: two brokers with Kafka's defaults, behind proxies for the distant case. */
export async function startSource(delayMs: number): Promise<Source & { close(): Promise<void> }> {
  const proxyPorts = [await freePort(), await freePort()];
  const cluster = await startKafka({
    name: 'bench-source',
    brokers: 2,
    jvm: 'benchmark',
    properties: BENCHMARK_PROPERTIES,
    advertisedProxyPorts: proxyPorts,
  });
  const pairs = cluster.brokers.map(
    (broker, index) => `${proxyPorts[index]}:${broker.proxiedPort}`,
  );
  const script = join(import.meta.dirname, 'delay-proxy.ts');
  const log = logFile('delay-proxy');
  const args = [script, String(delayMs), ...pairs];
  const proxy = spawnManaged({ command: process.execPath, args, log });
  for (const port of proxyPorts) await accepting(port);
  const leader = cluster.broker(1);
  return {
    cluster,
    leader,
    follower: cluster.broker(2),
    direct: `127.0.0.1:${leader.port}`,
    distant: `127.0.0.1:${proxyPorts[0]}`,
    async close() {
      await proxy.kill9();
      await cluster.destroy();
    },
  };
}

/** Apache Kafka's own replication. */
export function apacheReplication(source: Source, java: JavaClient): Contestant {
  const move = (job: Job, replicas: number[]): Promise<void> => {
    const all = Array.from({ length: job.partitions }, (_, partition) => [partition, replicas]);
    return java.reassign(source.direct, job.topic, Object.fromEntries(all), 600_000);
  };
  let copying: Promise<void> | undefined;
  return {
    name: 'Apache replication',
    prepare: async () => undefined,
    async start(job) {
      const { leader, follower } = source;
      copying = move(job, [leader.id, follower.id]);
      copying.catch(() => undefined); // `stop` awaits it
    },
    progress: async (job) => logBytes(source.follower.dataDir, job.topic) / job.bytes,
    get pids() {
      return [source.follower.pid];
    },
    readable: undefined,
    check: () => undefined,
    async stop(job) {
      await copying;
      await move(job, [source.leader.id]);
      const { dataDir } = source.follower;
      await until('replica removed', 60_000, () => logBytes(dataDir, job.topic) === 0);
    },
    close: async () => undefined,
  };
}

/** MirrorMaker runs a process, and more tasks than this would not make it quicker. */
const MAX_TASKS = 8;

function mirrorMakerProperties(job: Job, alias: string, into: MirrorMakerTarget): string {
  const destination = into.cluster.bootstrap;
  const properties = {
    clusters: `${alias},dst`,
    [`${alias}.bootstrap.servers`]: job.bootstrap,
    'dst.bootstrap.servers': destination,
    [`${alias}->dst.enabled`]: 'true',
    [`dst->${alias}.enabled`]: 'false',
    [`${alias}->dst.topics`]: job.topic,
    'replication.policy.class': 'org.apache.kafka.connect.mirror.IdentityReplicationPolicy',
    'replication.factor': String(into.replicationFactor),
    'checkpoints.topic.replication.factor': '1',
    'heartbeats.topic.replication.factor': '1',
    'offset-syncs.topic.replication.factor': '1',
    'offset.storage.replication.factor': '1',
    'status.storage.replication.factor': '1',
    'config.storage.replication.factor': '1',
    'tasks.max': String(Math.min(job.partitions, MAX_TASKS)),
    'dst.producer.compression.type': job.compression,
  };
  const lines = Object.entries(properties).map(([key, value]) => `${key}=${value}\n`);
  return lines.join('');
}

/** Where MirrorMaker 2 copies to. */
export interface MirrorMakerTarget {
  readonly cluster: KafkaCluster;
  /** Of the copied topic. */
  readonly replicationFactor: number;
  /** Others copy into the cluster, too: it is not closed with this contestant. */
  readonly isShared: boolean;
}

/** MirrorMaker 2 into a second Apache Kafka. */
export async function mirrorMaker(java: JavaClient): Promise<Contestant> {
  const cluster = await startKafka({
    name: 'bench-mm2-destination',
    jvm: 'benchmark',
    properties: BENCHMARK_PROPERTIES,
  });
  return await mirrorMakerInto(java, { cluster, replicationFactor: 1, isShared: false });
}

/** MirrorMaker 2 into this cluster. */
export async function mirrorMakerInto(
  java: JavaClient,
  into: MirrorMakerTarget,
): Promise<Contestant> {
  const libs = await requireKafkaJars();
  const { cluster } = into;
  const counter = new RecordCounter(cluster.broker(1));
  const directory = temporaryDirectory('mm2');
  const log = logFile('bench-mm2');
  let worker: ManagedProcess | undefined;
  let jobs = 0;
  const workerPids = (): number[] => (worker === undefined ? [] : [worker.pid]);
  return {
    name: 'MirrorMaker 2',
    prepare: async () => undefined,
    async start(job) {
      // A new alias a job: MirrorMaker keeps its position under the alias.
      const alias = `src${++jobs}`;
      const file = join(directory, `${alias}.properties`);
      writeFileSync(file, mirrorMakerProperties(job, alias, into));
      const main = 'org.apache.kafka.connect.mirror.MirrorMaker';
      const args = javaArguments(libs, main, [file], { mode: 'benchmark', heap: '2g' });
      worker = spawnManaged({ command: 'java', args, log });
    },
    progress: async (job) => (await counter.count(job.topic)) / job.records,
    get pids() {
      return [...cluster.pids, ...workerPids()];
    },
    get copier() {
      return into.isShared ? workerPids() : undefined;
    },
    readable: cluster.bootstrap,
    check() {
      if (worker?.exit() !== undefined) throw new Error(`MirrorMaker ended:\n${tail(log)}`);
    },
    async stop(job) {
      await worker?.stop(20_000);
      worker = undefined;
      await java.deleteTopic(cluster.bootstrap, job.topic);
      const isGone = (): boolean =>
        cluster.brokers.every(({ dataDir }) => logBytes(dataDir, job.topic) === 0);
      await until('topic removed', 60_000, isGone);
    },
    async close() {
      counter.close();
      await worker?.kill9();
      if (!into.isShared) await cluster.destroy();
    },
  };
}

/** twinlog: a fresh process and data directory a job, started in `prepare`. */
export function twinlog(): Contestant {
  let broker: TwinlogBroker | undefined;
  const running = (): TwinlogBroker => {
    if (broker === undefined) throw new Error('twinlog is not running');
    return broker;
  };
  return {
    name: 'twinlog',
    async prepare(job) {
      broker = await startTwinlog({ name: 'bench-twinlog', logLevel: 'warn' });
      await broker.mirrors('create', 'bench', '--source', job.bootstrap);
    },
    async start(job) {
      await running().mirrors('add', 'bench', job.topic);
    },
    progress: async (job) => logBytes(running().dataDir, job.topic) / job.bytes,
    get pids() {
      return [running().pid];
    },
    get readable() {
      return running().bootstrap;
    },
    check: () => running().checkAlive(),
    async stop() {
      await broker?.stop();
      await broker?.destroy();
      broker = undefined;
    },
    async close() {
      await broker?.destroy();
    },
  };
}
