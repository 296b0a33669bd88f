/**
 * The mirrors that `npm run bench -- guest` compares, all into one real Apache Kafka cluster: a
 * twinlog guest, MirrorMaker 2 (bench/contestants.ts), and nothing at all.
 *
 * A copier runs only while its job does, so that none is in the way of another: a guest joins under
 * a node id of its own before each job, and hands over and leaves behind it. What is told of "all
 * processes" is the copier, the cluster's brokers and its controller.
 */
import { type KafkaCluster, startKafka } from '../test/interop/apache-kafka.ts';
import { GUEST_ID, startGuest } from '../test/interop/guest.ts';
import type { JavaClient } from '../test/interop/java-client.ts';
import type { TwinlogBroker } from '../test/interop/twinlog.ts';
import { BENCHMARK_PROPERTIES, type Contestant, type Job, logBytes, until } from './contestants.ts';

const BROKERS = 2;
const DELETE_BOUND_MS = 60_000;

/** One controller and two brokers; topics of mirrors get this many Apache replicas. */
export function startTarget(followers: number): Promise<KafkaCluster> {
  return startKafka({
    name: `bench-target-${followers}`,
    brokers: BROKERS,
    jvm: 'benchmark',
    properties: { ...BENCHMARK_PROPERTIES, 'default.replication.factor': String(followers) },
  });
}

/** How far the last follower's log is. */
function followersShare(target: KafkaCluster, followers: number, job: Job): number {
  const bytes = target.brokers.map(({ dataDir }) => logBytes(dataDir, job.topic));
  if (followers === BROKERS) return Math.min(...bytes) / job.bytes;
  return bytes.reduce((sum, each) => sum + each, 0) / (followers * job.bytes);
}

/** A twinlog guest of the cluster. */
export function twinlogGuest(
  target: KafkaCluster,
  followers: number,
  java: JavaClient,
): Contestant {
  let guest: TwinlogBroker | undefined;
  let jobs = 0;
  const running = (): TwinlogBroker => {
    if (guest === undefined) throw new Error('the guest is not running');
    return guest;
  };
  const mirror = (): string => `bench-${jobs}`;
  const pids = (): number[] => (guest === undefined ? [] : [guest.pid]);
  return {
    name: 'twinlog',
    async prepare(job) {
      const nodeId = GUEST_ID + jobs++;
      const options = { name: 'bench-guest', cluster: target, nodeId, logLevel: 'warn' } as const;
      guest = await startGuest(options);
      await guest.mirrors('create', mirror(), '--source', job.bootstrap);
    },
    async start(job) {
      await running().mirrors('add', mirror(), job.topic);
    },
    progress: async (job) => followersShare(target, followers, job),
    get pids() {
      return [...target.pids, ...pids()];
    },
    get copier() {
      return pids();
    },
    get readable() {
      return running().bootstrap;
    },
    check: () => running().checkAlive(),
    async stop(job) {
      await running().mirrors('remove', mirror(), job.topic);
      await java.deleteTopic(target.bootstrap, job.topic);
      const isGone = (): boolean =>
        target.brokers.every(({ dataDir }) => logBytes(dataDir, job.topic) === 0);
      await until('topic removed', DELETE_BOUND_MS, isGone);
      await running().stop();
      await running().destroy();
      guest = undefined;
    },
    async close() {
      await guest?.destroy();
    },
  };
}

/** The cluster as it is when nothing is mirrored. */
export function nothing(target: KafkaCluster): Contestant {
  return {
    name: 'no mirror',
    prepare: async () => undefined,
    start: async () => undefined,
    progress: async () => 1,
    get pids() {
      return target.pids;
    },
    copier: [],
    readable: undefined,
    check: () => undefined,
    stop: async () => undefined,
    close: async () => undefined,
  };
}
