/**
 * Faults for guests, and the judgement of what they leave behind.
 *
 * - `killAtPoints` kills a guest when its log says something, so that faults have names.
 * - An `Intruder` is a Java producer that tries to write to a mirror topic all the time, at Apache
 *   brokers: what it had accepted must lie behind the last mirrored offset.
 * - `awaitMirrored` waits until the files of Apache replicas equal the source, batch by batch.
 */
import assert from 'node:assert/strict';
import { closeSync, existsSync, openSync, readSync, statSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { processRuntime } from '../../src/cli/broker-process.ts';
import { probe } from '../../src/metadata/quorum/probe.ts';
import type { ConnectionSecurity } from '../../src/protocol/connection-security.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import type { KafkaCluster, KafkaNode } from './apache-kafka.ts';
import { compareBatches } from './compare.ts';
import { replicaBatches } from './guest-watch.ts';
import type { JavaClient } from './java-client.ts';
import type { Acknowledged } from './live-producers.ts';
import { until } from './mirror-watch.ts';
import { type RawTopic, readTopic } from './raw-log.ts';
import type { TwinlogBroker } from './twinlog.ts';

const LOG_POLL_MS = 2;
const SAID_BOUND_MS = 60_000;
const INTRUDER_PAUSE_MS = 25;
const TAG_BIT = 40n;

/** What a log file says from byte `from` on. */
export function saidSince(file: string, from: number): string {
  if (!existsSync(file)) return '';
  const length = statSync(file).size - from;
  if (length <= 0) return '';
  const bytes = Buffer.alloc(length);
  const handle = openSync(file, 'r');
  try {
    return bytes.toString('utf8', 0, readSync(handle, bytes, 0, length, from));
  } finally {
    closeSync(handle);
  }
}

/** How much a log holds by now, for {@link whenSaid}. */
export function logLength(guest: Pick<TwinlogBroker, 'log'>): number {
  return existsSync(guest.log) ? statSync(guest.log).size : 0;
}

/** Waits until the guest's log says this, beyond what it held at `from`. */
export async function whenSaid(guest: TwinlogBroker, text: string, from: number): Promise<void> {
  const deadline = Date.now() + SAID_BOUND_MS;
  while (!saidSince(guest.log, from).includes(text)) {
    if (Date.now() > deadline) throw new Error(`${guest.name} never said "${text}"`);
    await sleep(LOG_POLL_MS);
  }
}

/**
 * Kills the guest at each of these points in its log, one after the other, and starts it again each
 * time; `action` brings it to the first. The kill comes so much later as `delayMs` says.
 */
export async function killAtPoints(
  guest: TwinlogBroker,
  points: readonly string[],
  action: () => Promise<unknown>,
  delayMs: () => number = () => 0,
): Promise<void> {
  let from = logLength(guest);
  // Its connection ends with the guest; it is for the test to repeat it.
  const cutShort = action().catch(() => undefined);
  for (const point of points) {
    await whenSaid(guest, point, from);
    const delay = delayMs();
    if (delay > 0) await sleep(delay);
    await guest.kill9();
    from = logLength(guest);
    guest.launch();
  }
  await guest.serving();
  await cutShort;
}

/** Stops the guest's process for so long, as a machine that hangs does. */
export async function freeze(guest: TwinlogBroker, ms: number): Promise<void> {
  process.kill(guest.pid, 'SIGSTOP');
  await sleep(ms);
  process.kill(guest.pid, 'SIGCONT');
}

/** The node that is the active controller; `security`: where controllers want to know who asks. */
export async function activeController(
  cluster: KafkaCluster,
  security?: ConnectionSecurity,
): Promise<KafkaNode> {
  return await until('an active controller', async () => {
    const [asked] = cluster.controllers.filter(({ isRunning }) => isRunning);
    if (asked?.controllerPort === undefined) throw new Error('no controller runs');
    const connection = await KafkaConnection.connect(processRuntime('silent'), {
      host: asked.host,
      port: asked.controllerPort,
      clientId: 'faults',
      security,
    });
    try {
      const { leader } = await probe(connection, cluster.clusterId);
      return cluster.controllers.find(({ id, isRunning }) => id === leader.leaderId && isRunning);
    } finally {
      connection.close();
    }
  });
}

/** Repeats an action that may fail, or be cut short by a fault, until it succeeds. */
export function repeatUntilDone(what: string, action: () => Promise<unknown>): Promise<true> {
  return until(what, async () => {
    await action();
    return true as const;
  });
}

/** See the file header. */
export class Intruder {
  /** Records that a broker acknowledged. */
  readonly accepted: Acknowledged[] = [];
  /** How often it was refused, by exception. */
  readonly refused = new Map<string, number>();
  readonly #java: JavaClient;
  readonly #name: string;
  readonly #work: Promise<void>;
  #stopping = false;

  constructor(java: JavaClient, bootstrap: string, topic: string, partitions: number) {
    this.#java = java;
    this.#name = `intruder-${topic}`;
    this.#work = this.#run(bootstrap, topic, partitions);
    this.#work.catch(() => undefined); // `stop` tells
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#work;
  }

  async #run(bootstrap: string, topic: string, partitions: number): Promise<void> {
    await this.#java.openProducer(bootstrap, this.#name, {
      // Quick to give up and to ask again, and nothing that one refusal would end.
      'linger.ms': '0',
      'enable.idempotence': 'false',
      // A retry of what was appended, but answered too late, would be there twice.
      retries: '0',
      acks: 'all',
      'max.block.ms': '1000',
      'request.timeout.ms': '1000',
      'delivery.timeout.ms': '1500',
      'metadata.max.age.ms': '500',
    });
    for (let round = 0; !this.#stopping; round++) {
      const records = Array.from({ length: partitions }, (_, partition) => {
        return { topic, partition, value: `${this.#name}-${round}-${partition}` };
      });
      const { results } = await this.#java.produce(this.#name, records);
      for (const [index, { partition = -1, offset, error }] of results.entries()) {
        const value = records[index]?.value ?? '';
        if (error === undefined && offset !== undefined) {
          this.accepted.push({ partition, offset, value });
        } else this.refused.set(error ?? '', (this.refused.get(error ?? '') ?? 0) + 1);
      }
      await sleep(INTRUDER_PAUSE_MS);
    }
    await this.#java.closeProducer(this.#name, true);
  }
}

/** The tag of one source in the producer ids of a mirrored topic. */
async function tagIn(bootstrap: string, topic: string): Promise<number> {
  const { partitions } = await readTopic(bootstrap, topic);
  const ids = partitions.flatMap(({ batches }) => batches.map(({ producerId }) => producerId));
  const mirrored = ids.find((id) => id >= 2n ** TAG_BIT);
  assert.ok(mirrored !== undefined, `${topic} has no batch with a producer id`);
  return Number(mirrored >> TAG_BIT);
}

/** What to compare: replicas with the source below these offsets. */
export interface Mirrored {
  /** Where the source topic is, all of it decided below `offsets`. */
  readonly source: RawTopic;
  /** Where mirroring ended, by partition. */
  readonly offsets: readonly number[];
  readonly topic: string;
  /** Where the mirrored topic can be read. */
  readonly bootstrap: string;
}

/** Waits until the replicas' files equal the source below the offsets, and each other. */
export async function awaitMirrored(
  nodes: readonly Pick<KafkaNode, 'id' | 'dataDir'>[],
  { source, offsets, topic, bootstrap }: Mirrored,
): Promise<void> {
  const tag = await tagIn(bootstrap, topic);
  const options = { upTo: 'lastStable', producerIds: { tag }, topicIds: 'own' } as const;
  let seen: string[] = [];
  const look = async (): Promise<true | undefined> => {
    seen = offsets.flatMap((end, partition) => {
      const expected = (source.partitions[partition]?.batches ?? []).filter(
        ({ baseOffset }) => baseOffset < BigInt(end),
      );
      const last = expected.at(-1)?.lastOffset ?? -1n;
      assert.ok(last < BigInt(end), `${topic}-${partition}: ${end} is inside a batch`);
      return nodes.flatMap((node) => {
        const held = replicaBatches(node, topic, partition);
        const below = held.filter(({ baseOffset }) => baseOffset < BigInt(end));
        const found = compareBatches(expected, below, options);
        return found.map((text) => `broker ${node.id} partition ${partition}: ${text}`);
      });
    });
    return seen.length === 0 ? true : undefined;
  };
  try {
    await until('equal replicas', look);
  } catch (error) {
    throw new Error(`replicas of ${topic} differ:\n${seen.slice(0, 20).join('\n')}`, {
      cause: error,
    });
  }
}
