/**
 * Everything a broker says about the log of a topic, as question and answer, to be compared with
 * what another broker says that serves the same files.
 *
 * A plan is made once, of the first broker; both are then asked the same. Reads by offset are
 * compared as whole batches (Apache Kafka may end an answer inside a batch), their aborted
 * transactions as far as they have data in those batches (it may name later ones, by the density of
 * its index, and ones that compaction has left nothing of). The epoch of the log end is the
 * leader's present one and no property of the log.
 */
import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type FetchedPartition, type Isolation, RawClient } from './raw-client.ts';
import { parseBatches, readTopic } from './raw-log.ts';

const LOG_OVERHEAD = 12;
const TRANSACTIONAL = 0x10;
const CONTROL = 0x20;
/** Answers differ in one way each; more lines than this are not worth reading. */
const MAX_DIFFERENCES = 20;
const ISOLATIONS: readonly Isolation[] = ['read_uncommitted', 'read_committed'];
const EARLIEST = -2n;
const LATEST = -1n;
const MAX_TIMESTAMP = -3n;
const EARLIEST_LOCAL = -4n;

/** What to ask of one partition. */
export interface PartitionPlan {
  readonly partition: number;
  /** The log end when the plan was made. */
  readonly end: bigint;
  readonly offsets: readonly bigint[];
  readonly timestamps: readonly bigint[];
  readonly epochs: readonly number[];
}

/** What to ask of a topic. */
export interface QuestionPlan {
  readonly topic: string;
  readonly partitions: readonly PartitionPlan[];
  /** The newest leader epoch that has batches. */
  readonly latestEpoch: number;
}

/** Answers by question. */
export type LogAnswers = ReadonlyMap<string, string>;

function segmentBases(directory: string): bigint[] {
  const names = readdirSync(directory).filter((name) => /^\d{20}\.log$/.test(name));
  return names.map((name) => BigInt(name.slice(0, 20)));
}

const ascending = <T>(values: Iterable<T>): T[] =>
  [...new Set(values)].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

/** At most `count` of the values, evenly. */
function sample<T>(values: readonly T[], count: number): T[] {
  const step = Math.max(1, values.length / count);
  return values.filter((_, index) => Math.floor(index / step) !== Math.floor((index - 1) / step));
}

/** Every `step`th offset, and those around log start, log end, LSO and segment boundaries. */
function offsetsToRead(
  start: bigint,
  stable: bigint,
  end: bigint,
  bases: readonly bigint[],
  step: bigint,
): bigint[] {
  const offsets: bigint[] = [];
  for (let offset = start; offset < end; offset += step) offsets.push(offset);
  for (const edge of [start, stable, end, ...bases]) offsets.push(edge - 1n, edge, edge + 1n);
  return ascending(offsets.filter((offset) => offset >= 0n));
}

/** Makes the questions for a topic out of what the broker at `bootstrap` has in `dataDir`. */
export async function planQuestions(
  bootstrap: string,
  dataDir: string,
  topic: string,
  step = 7n,
): Promise<QuestionPlan> {
  const { partitions } = await readTopic(bootstrap, topic);
  const epochs = partitions.flatMap(({ batches }) => batches.map(({ leaderEpoch }) => leaderEpoch));
  const latestEpoch = Math.max(...epochs, 0);
  const plans = partitions.map(({ logStart, lastStable, end, batches }, partition) => {
    const bases = segmentBases(join(dataDir, `${topic}-${partition}`));
    const times = batches.flatMap(({ baseTimestamp, maxTimestamp }) =>
      [baseTimestamp, maxTimestamp].flatMap((time) => [time - 1n, time, time + 1n]),
    );
    return {
      partition,
      end,
      offsets: offsetsToRead(logStart, lastStable, end, bases, step),
      timestamps: sample(ascending(times.filter((time) => time >= 0n)), 100),
      epochs: Array.from({ length: latestEpoch + 1 }, (_, epoch) => epoch),
    };
  });
  return { topic, partitions: plans, latestEpoch };
}

/** What was fetched, without what may differ between two right answers. */
function fetched(answer: FetchedPartition): string {
  const { error, highWatermark, lastStableOffset, logStartOffset, aborted, records } = answer;
  const bounds = `hw ${highWatermark} lso ${lastStableOffset} start ${logStartOffset}`;
  if (error !== 0) return `error ${error}`;
  const batches = parseBatches(records);
  const last = batches.at(-1);
  if (last === undefined) return `${bounds} nothing`;
  let size = 0;
  for (const _ of batches) size += LOG_OVERHEAD + records.readInt32BE(size + 8);
  const hash = createHash('sha256').update(records.subarray(0, size)).digest('hex');
  const concerning = aborted.filter(({ producerId, firstOffset }) =>
    batches.some(
      (batch) =>
        batch.producerId === producerId &&
        batch.lastOffset >= firstOffset &&
        (batch.attributes & (TRANSACTIONAL | CONTROL)) === TRANSACTIONAL,
    ),
  );
  const aborts = concerning.map(({ producerId, firstOffset }) => `${producerId}@${firstOffset}`);
  const range = `${batches[0]?.baseOffset}-${last.lastOffset}`;
  return `${bounds} ${range} ${size} bytes ${hash} aborted ${aborts.join()}`;
}

/** Asks the broker everything in the plans. */
export async function askQuestions(
  bootstrap: string,
  plans: readonly QuestionPlan[],
): Promise<LogAnswers> {
  const [host = '', port] = bootstrap.split(':');
  await using client = await RawClient.connect(host, Number(port));
  const answers = new Map<string, string>();
  for (const { topic, partitions } of plans) {
    for (const plan of partitions) await askPartition(client, topic, plan, answers);
  }
  return answers;
}

async function askPartition(
  client: RawClient,
  topic: string,
  plan: PartitionPlan,
  answers: Map<string, string>,
): Promise<void> {
  const { partition } = plan;
  const name = `${topic}-${partition}`;
  for (const isolation of ISOLATIONS) {
    for (const offset of plan.offsets) {
      for (const maxBytes of [1, 5_000, 1_000_000]) {
        const options = { isolation, maxBytes, maxWaitMs: 0 };
        const answer = await client.fetch(topic, partition, offset, options);
        answers.set(`${name} fetch ${offset} ${isolation} ${maxBytes}`, fetched(answer));
      }
    }
    const specials = [EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL];
    for (const timestamp of [...specials, ...plan.timestamps]) {
      const found = await client.findOffset(topic, partition, timestamp, isolation);
      const epoch = timestamp === LATEST ? '' : ` epoch ${found.leaderEpoch}`;
      const answer = `error ${found.error} offset ${found.offset} time ${found.timestamp}${epoch}`;
      answers.set(`${name} list ${timestamp} ${isolation}`, answer);
    }
  }
  for (const epoch of plan.epochs) {
    const { error, leaderEpoch, endOffset } = await client.offsetForLeaderEpoch(
      topic,
      partition,
      epoch,
    );
    answers.set(`${name} epoch ${epoch}`, `error ${error} epoch ${leaderEpoch} end ${endOffset}`);
  }
}

/** What the second broker answers differently, as lines to read. */
export function compareAnswers(expected: LogAnswers, actual: LogAnswers): string[] {
  const questions = new Set([...expected.keys(), ...actual.keys()]);
  const differing = [...questions].filter((q) => expected.get(q) !== actual.get(q));
  return differing
    .slice(0, MAX_DIFFERENCES)
    .map((q) => `${q}:\n  expected ${expected.get(q)}\n  actual   ${actual.get(q)}`);
}
