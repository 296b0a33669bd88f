/**
 * Looks at a guest's cluster from outside: replicas' files, placement, and what the controller
 * remembers. Waits are bounded and say at their bound what they saw last.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { KafkaCluster, KafkaNode } from './apache-kafka.ts';
import { type CompareOptions, compareBatches } from './compare.ts';
import { until } from './mirror-watch.ts';
import { RawClient } from './raw-client.ts';
import { parseBatches, type RawBatch, type RawTopic, topicMetadata } from './raw-log.ts';

/** The batches in the segment files of one replica, in order; none when it has no directory. */
export function replicaBatches(
  node: Pick<KafkaNode, 'dataDir'>,
  topic: string,
  partition: number,
): RawBatch[] {
  const directory = join(node.dataDir, `${topic}-${partition}`);
  if (!existsSync(directory)) return [];
  const segments = readdirSync(directory).filter((name) => name.endsWith('.log'));
  return segments.sort().flatMap((name) => parseBatches(readFileSync(join(directory, name))));
}

/** What one replica's log differs in from the source topic, from the source's log start on. */
export function replicaDifferences(
  source: RawTopic,
  node: KafkaNode,
  topic: string,
  options: CompareOptions,
): string[] {
  return source.partitions.flatMap(({ batches, logStart, lastStable }, partition) => {
    const expected = batches.filter(({ baseOffset }) => baseOffset < lastStable);
    const held = replicaBatches(node, topic, partition).filter((b) => b.lastOffset >= logStart);
    const differences = compareBatches(expected, held, options);
    return differences.map((text) => `broker ${node.id} partition ${partition}: ${text}`);
  });
}

/** Waits until every Apache replica's files hold the source topic. */
export async function awaitReplicas(
  source: RawTopic,
  cluster: KafkaCluster,
  topic: string,
  options: CompareOptions,
): Promise<void> {
  let seen: string[] = [];
  try {
    await until('equal replicas', async () => {
      seen = cluster.brokers.flatMap((node) => replicaDifferences(source, node, topic, options));
      return seen.length === 0 ? true : undefined;
    });
  } catch (error) {
    throw new Error(`replicas of ${topic} differ:\n${seen.join('\n')}`, { cause: error });
  }
}

/** Leader, replicas and ISR of every partition, as one Apache broker tells them. */
export async function placement(cluster: KafkaCluster, topic: string) {
  const { topic: described } = await topicMetadata(cluster.bootstrap, topic);
  return [...described.partitions].sort((a, b) => a.partition - b.partition);
}

/** The ids of the brokers that clients are told of. */
export async function memberIds(cluster: KafkaCluster): Promise<number[]> {
  const [node] = cluster.brokers.filter((each) => each.isRunning);
  if (node === undefined) throw new Error(`${cluster.name} has no running broker`);
  await using client = await RawClient.connect(node.host, node.port);
  return (await client.metadata([])).brokers.map(({ id }) => id).sort((a, b) => a - b);
}
