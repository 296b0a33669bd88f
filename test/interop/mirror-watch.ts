/**
 * Watches the mirrors of a twinlog broker from inside the test process (a command per look would
 * cost a process), and judges what a mirror left behind. Every wait is bounded and says at its
 * bound what it saw last.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { AdminClient } from '../../src/cli/admin-client.ts';
import { processRuntime } from '../../src/cli/broker-process.ts';
import { type PartitionStatus, partitionStatuses } from '../../src/cli/mirror-status.ts';
import type { ClientRecord } from './client.ts';
import { compareTopics } from './compare.ts';
import type { Acknowledged } from './live-producers.ts';
import { RawClient } from './raw-client.ts';
import { type RawTopic, readTopic, topicMetadata } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

const POLL_MS = 30;
const WAIT_BOUND_MS = 45_000;
const MIRRORED = { upTo: 'lastStable', producerIds: 'mirrored' } as const;

/** Runs `body` with an admin connection to the broker. */
export async function withAdmin<T>(
  broker: Pick<TwinlogBroker, 'host' | 'port' | 'name'>,
  body: (admin: AdminClient) => Promise<T>,
): Promise<T> {
  const admin = await AdminClient.connect(processRuntime('silent'), broker, broker.name);
  try {
    return await body(admin);
  } finally {
    admin.close();
  }
}

/** The partitions of one mirror, or of one topic of it. */
export async function partitionsOf(
  broker: Pick<TwinlogBroker, 'host' | 'port' | 'name'>,
  mirror: string,
  topic?: string,
): Promise<PartitionStatus[]> {
  const [described] = await withAdmin(broker, (admin) => admin.describeMirrors([mirror]));
  const all = described === undefined ? [] : partitionStatuses(described);
  return topic === undefined ? all : all.filter((each) => each.topic === topic);
}

/** Repeats `look` until it answers something; an exception is one more look. */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined>,
  boundMs = WAIT_BOUND_MS,
): Promise<T> {
  const deadline = Date.now() + boundMs;
  let last: unknown;
  for (;;) {
    try {
      const found = await look();
      if (found !== undefined) return found;
      last = undefined;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline) throw new Error(`${what} did not happen`, { cause: last });
    await sleep(POLL_MS);
  }
}

/** Waits until every partition of the topic is in one of these states; the broker must live. */
export async function awaitState(
  broker: TwinlogBroker,
  mirror: string,
  topic: string,
  ...states: string[]
): Promise<PartitionStatus[]> {
  let seen = 'nothing';
  try {
    return await until(states.join(' or '), async () => {
      broker.checkAlive();
      const partitions = await partitionsOf(broker, mirror, topic);
      seen = JSON.stringify(partitions);
      const isThere = partitions.every(({ state }) => states.includes(state));
      return partitions.length > 0 && isThere ? partitions : undefined;
    });
  } catch (error) {
    const message = `${topic} is not ${states.join(' or ')}: ${seen}`;
    throw new Error(message, { cause: error });
  }
}

/** Where every partition of a topic ends for consumers. */
async function ends(
  bootstrap: string,
  topic: string,
  isolation: 'read_committed' | 'read_uncommitted',
): Promise<bigint[]> {
  const { brokers, topic: described } = await topicMetadata(bootstrap, topic);
  const found: bigint[] = [];
  for (const { partition, leader } of described.partitions) {
    const broker = brokers.find(({ id }) => id === leader);
    if (broker === undefined) throw new Error(`${topic}-${partition} has no leader`);
    await using client = await RawClient.connect(broker.host, broker.port);
    found[partition] = await client.listOffset(topic, partition, -1, isolation);
  }
  return found;
}

/** Waits until the destination has passed what the source has decided by now. */
export async function awaitProgress(
  source: string,
  broker: TwinlogBroker,
  topic: string,
): Promise<void> {
  const wanted = await until('the source serving', () => ends(source, topic, 'read_committed'));
  await until(`${topic} passing ${wanted}`, async () => {
    broker.checkAlive();
    const there = await ends(broker.bootstrap, topic, 'read_uncommitted');
    return wanted.every((end, index) => (there[index] ?? 0n) >= end) ? true : undefined;
  });
}

/** Waits until the destination has all that the source has decided, then compares it whole. */
export async function differencesWhenCaughtUp(
  source: string,
  broker: TwinlogBroker,
  topic: string,
): Promise<string[]> {
  const seen: string[] = [];
  try {
    await until('catching up', async () => {
      broker.checkAlive();
      const wanted = await ends(source, topic, 'read_committed');
      const there = await ends(broker.bootstrap, topic, 'read_uncommitted');
      seen[0] = `source ${wanted}, destination ${there}`;
      return wanted.every((end, index) => there[index] === end) ? true : undefined;
    });
  } catch (error) {
    return [`${seen[0]}: ${error} (${(error as Error).cause})`];
  }
  const [left, right] = [await readTopic(source, topic), await readTopic(broker.bootstrap, topic)];
  return compareTopics(left, right, MIRRORED);
}

/** The topic as it would be if each partition ended at these offsets, all decided. */
function endingAt(topic: RawTopic, offsets: readonly number[]): RawTopic {
  return {
    topicId: topic.topicId,
    partitions: topic.partitions.map((partition, index) => {
      const end = BigInt(offsets[index] ?? 0);
      const batches = partition.batches.filter(({ baseOffset }) => baseOffset < end);
      return { logStart: partition.logStart, lastStable: end, end, batches };
    }),
  };
}

/** What of the destination, below the last mirrored offsets, is not the source's. */
export async function differencesBelow(
  source: string,
  destination: string,
  topic: string,
  lastMirroredOffsets: readonly number[],
): Promise<string[]> {
  const [left, right] = [await readTopic(source, topic), await readTopic(destination, topic)];
  const [wanted, found] = [left, right].map((each) => endingAt(each, lastMirroredOffsets));
  return compareTopics(wanted as RawTopic, found as RawTopic, MIRRORED);
}

/**
 * Objections to records read from a log that `acknowledged` were written to: each must be there
 * once, at its offset. Records that nobody acknowledged are allowed (the answer may have got lost).
 */
export function lostOrDoubled(
  read: readonly ClientRecord[],
  acknowledged: readonly Acknowledged[],
): string[] {
  const where = new Map<string, string[]>();
  for (const { partition, offset, value } of read) {
    const key = String(value);
    where.set(key, [...(where.get(key) ?? []), `${partition}@${offset}`]);
  }
  const objections: string[] = [];
  for (const { partition, offset, value } of acknowledged) {
    const found = where.get(value) ?? [];
    if (found.length === 1 && found[0] === `${partition}@${offset}`) continue;
    objections.push(`${value.trim()}: acknowledged ${partition}@${offset}, found at [${found}]`);
  }
  for (const [value, found] of where) {
    if (found.length > 1) objections.push(`${value.trim()} is there ${found.length} times`);
  }
  return objections.slice(0, 20);
}
