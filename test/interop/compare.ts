/**
 * Judges whether a destination topic is the source topic: batch by batch, by Apache Kafka's own
 * segment reader, and as clients see it.
 *
 * Every function returns what it objects to, as readable lines; none means equal. Tests assert on
 * the list, so that a failure shows all of it.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClientRecord } from './client.ts';
import type { RunResult } from './processes.ts';
import { type RawBatch, type RawPartition, type RawTopic, readTopic } from './raw-log.ts';
import { runTool } from './tools.ts';

/** No more lines than this are worth reading. */
const MAX_DIFFERENCES = 20;
const DUMP_ATTEMPTS = 5;
const NO_PRODUCER_ID = -1n;
const HOP = 2n ** 56n;

/** The producer id that a mirrored batch must have (rule P1). */
export function mirroredProducerId(sourceId: bigint): bigint {
  if (sourceId === NO_PRODUCER_ID) return NO_PRODUCER_ID;
  return sourceId >= 0n ? -(sourceId + 2n) : sourceId - HOP;
}

/** What a comparison expects. */
export interface CompareOptions {
  /**
   * How much must have crossed: up to the source's last stable offset (the bound of a mirror, F1)
   * or its high watermark.
   */
  readonly upTo: 'lastStable' | 'highWatermark';
  /**
   * `mirrored` by P1, `same` for a comparison with itself or with a follower, or the tag of the
   * source that a guest adds (rule G20).
   */
  readonly producerIds: 'mirrored' | 'same' | { readonly tag: number };
  /** A guest's topics have ids of their own (rule G12). */
  readonly topicIds?: 'same' | 'own';
}

function expectedProducerId(sourceId: bigint, how: CompareOptions['producerIds']): bigint {
  if (how === 'same') return sourceId;
  if (how === 'mirrored') return mirroredProducerId(sourceId);
  return sourceId === NO_PRODUCER_ID ? sourceId : sourceId + BigInt(how.tag) * 2n ** 40n;
}

const COMPARED = [
  'baseOffset',
  'lastOffsetDelta',
  'magic',
  'attributes',
  'baseTimestamp',
  'maxTimestamp',
  'producerEpoch',
  'baseSequence',
  'count',
] as const;

function compareBatch(source: RawBatch, destination: RawBatch, options: CompareOptions): string[] {
  const differences: string[] = [];
  for (const field of COMPARED) {
    if (source[field] !== destination[field]) {
      differences.push(`${field} ${source[field]} became ${destination[field]}`);
    }
  }
  const { producerId } = source;
  const wanted = expectedProducerId(producerId, options.producerIds);
  if (destination.producerId !== wanted) {
    differences.push(`producer id ${destination.producerId}, not ${wanted} (source ${producerId})`);
  }
  if (!source.records.equals(destination.records)) differences.push('record bytes differ');
  if (!destination.crcIsValid) differences.push('CRC is invalid');
  return differences;
}

/** What differs between two lists of batches, as lines. */
export function compareBatches(
  source: readonly RawBatch[],
  destination: readonly RawBatch[],
  options: CompareOptions,
): string[] {
  const differences: string[] = [];
  const byOffset = new Map(destination.map((batch) => [batch.baseOffset, batch]));
  for (const batch of source) {
    const other = byOffset.get(batch.baseOffset);
    byOffset.delete(batch.baseOffset);
    const found = other === undefined ? ['missing'] : compareBatch(batch, other, options);
    const where = `batch ${batch.baseOffset}..${batch.lastOffset}`;
    differences.push(...found.map((text) => `${where}: ${text}`));
  }
  for (const extra of byOffset.values()) {
    differences.push(`batch ${extra.baseOffset}..${extra.lastOffset}: not in the source`);
  }
  const epochs = destination.map((batch) => batch.leaderEpoch);
  const falls = epochs.findIndex((epoch, index) => epoch < (epochs[index - 1] ?? epoch));
  if (falls >= 0) {
    differences.push(`leader epoch falls at batch ${destination[falls]?.baseOffset}`);
  }
  return differences;
}

function comparePartition(
  source: RawPartition,
  destination: RawPartition,
  options: CompareOptions,
): string[] {
  const bound = options.upTo === 'lastStable' ? source.lastStable : source.end;
  const expected = source.batches.filter((batch) => batch.baseOffset < bound);
  const last = expected.at(-1);
  // An offset gap at the end of the source is not copied (F15).
  const end = last === undefined ? source.logStart : last.lastOffset + 1n;
  const differences: string[] = [];
  if (source.logStart !== destination.logStart) {
    differences.push(`log start ${source.logStart} became ${destination.logStart}`);
  }
  if (destination.end !== end && destination.end !== bound) {
    differences.push(`log end is ${destination.end}, not ${end}`);
  }
  return [...differences, ...compareBatches(expected, destination.batches, options)];
}

/** Compares two topics that were read whole. */
export function compareTopics(
  source: RawTopic,
  destination: RawTopic,
  options: CompareOptions,
): string[] {
  const differences: string[] = [];
  if (options.topicIds !== 'own' && source.topicId !== destination.topicId) {
    differences.push(`topic id ${source.topicId} became ${destination.topicId}`);
  }
  const count = Math.max(source.partitions.length, destination.partitions.length);
  for (let index = 0; index < count; index++) {
    const left = source.partitions[index];
    const right = destination.partitions[index];
    if (left === undefined || right === undefined) {
      differences.push(`partition ${index} is only at the ${left ? 'source' : 'destination'}`);
      continue;
    }
    const found = comparePartition(left, right, options);
    differences.push(...found.map((text) => `partition ${index}: ${text}`));
  }
  return shorten(differences);
}

function shorten(differences: string[]): string[] {
  if (differences.length <= MAX_DIFFERENCES) return differences;
  const rest = differences.length - MAX_DIFFERENCES;
  return [...differences.slice(0, MAX_DIFFERENCES), `… and ${rest} more`];
}

/** Reads the topic from both clusters, raw, and compares batch by batch. */
export async function compareLogs(
  sourceBootstrap: string,
  destinationBootstrap: string,
  topic: string,
  options: CompareOptions,
): Promise<string[]> {
  const [source, destination] = await Promise.all([
    readTopic(sourceBootstrap, topic),
    readTopic(destinationBootstrap, topic),
  ]);
  return compareTopics(source, destination, options);
}

const COMPLAINT = /mismatch|out of order|invalid|exception|sanity|fail|corrupt|error/i;
/** Lines that print what is there; record content may say anything. */
const isData = (line: string): boolean =>
  /^(baseOffset|\| offset|Dumping|producerId):? /.test(line);
const GAP = /^\s*(\d+) is followed by (\d+)/;
/** Heads a list of time index entries whose batch has no record of that time. */
const TIMES_HEAD = /^Found timestamp mismatch in :/;
const TIMES = /^\s*Index timestamp: (-?\d+), log timestamp: (-?\d+)/;
/** The tool's time of a batch without records: a cleaner keeps it for its sequence or its epoch. */
const NO_RECORDS = '-1';

/**
 * The lines of DumpLogSegments' output that complain. Offset gaps in `allowed` are in order, and so
 * is a time index entry of an emptied batch, which Apache Kafka's cleaner leaves, too: the batch's
 * own largest timestamp counts, but the tool looks for it among the records.
 */
function complaints(output: string, allowedGaps: ReadonlySet<string>): string[] {
  const found: string[] = [];
  for (const line of output.split('\n')) {
    if (TIMES_HEAD.test(line)) continue;
    const gap = GAP.exec(line);
    const times = TIMES.exec(line);
    if (times !== null) {
      if (times[2] !== NO_RECORDS) found.push(`time index: ${line.trim()}`);
    } else if (gap !== null) {
      if (!allowedGaps.has(`${gap[1]}-${gap[2]}`)) found.push(`gap: ${line.trim()}`);
    } else if (line.includes('isvalid: false') || (!isData(line) && COMPLAINT.test(line))) {
      found.push(line.trim());
    }
  }
  return found;
}

/** What a dump of a topic's files said. */
export interface SegmentDump {
  /** Complaints; offset gaps are among them unless allowed. */
  readonly complaints: string[];
  /** `from-to` pairs of consecutive records whose offsets are not. */
  readonly gaps: ReadonlySet<string>;
  readonly segments: number;
}

/** The files of one partition to be dumped. */
function partitionFiles(directory: string, stopped: boolean): string[] {
  const names = readdirSync(directory)
    .filter((name) => /\.(log|index|timeindex|snapshot|txnindex)$/.test(name))
    .sort();
  const active = names
    .filter((name) => name.endsWith('.log'))
    .at(-1)
    ?.replace('.log', '');
  // The active segment's indexes are preallocated with zeros while the broker runs.
  const usable = names.filter(
    (name) => stopped || !(name.startsWith(`${active}.`) && name.endsWith('index')),
  );
  return usable.map((name) => join(directory, name));
}

function topicFiles(dataDir: string, topic: string, stopped: boolean): string[] {
  const isPartition = (name: string): boolean =>
    name.startsWith(`${topic}-`) && /^\d+$/.test(name.slice(topic.length + 1));
  const directories = existsSync(dataDir) ? readdirSync(dataDir).filter(isPartition).sort() : [];
  return directories.flatMap((name) => partitionFiles(join(dataDir, name), stopped));
}

/** Dumps the files; once more when retention or the cleaner removed one of them meanwhile. */
async function runDump(list: () => string[]): Promise<RunResult> {
  for (let attempt = 1; ; attempt++) {
    const args = ['--files', list().join(','), '--deep-iteration'];
    const result = await runTool('dumpLog', args, { timeoutMs: 120_000 });
    const vanished = result.stderr.includes('NoSuchFileException');
    if (!vanished || attempt === DUMP_ATTEMPTS) return result;
    await sleep(200);
  }
}

/**
 * Runs Apache Kafka's DumpLogSegments, with deep iteration, over every segment, index and snapshot
 * of the topic's partitions in `dataDir`. `stopped`: the broker is down, so the indexes of active
 * segments are whole and looked at, too.
 */
export async function dumpSegments(
  dataDir: string,
  topic: string,
  options: { readonly allowedGaps?: ReadonlySet<string>; readonly stopped?: boolean } = {},
): Promise<SegmentDump> {
  const { allowedGaps = new Set(), stopped = false } = options;
  const list = (): string[] => topicFiles(dataDir, topic, stopped);
  const segments = list().filter((file) => file.endsWith('.log')).length;
  if (segments === 0) {
    return { complaints: [`no segments of ${topic} in ${dataDir}`], gaps: new Set(), segments };
  }
  const { code, stdout, stderr } = await runDump(list);
  const gaps = new Set<string>();
  for (const line of stderr.split('\n')) {
    const gap = GAP.exec(line);
    if (gap !== null) gaps.add(`${gap[1]}-${gap[2]}`);
  }
  const found = complaints(`${stdout}\n${stderr}`, allowedGaps);
  if (code !== 0) found.push(`DumpLogSegments ended with ${code}`);
  return { complaints: shorten(found), gaps, segments };
}

function canonical(record: ClientRecord, keepsHeaderOrder: boolean): string {
  const headers = record.headers.map(([name, value]) => [name, value?.toString('base64') ?? null]);
  // Stable: only headers of different names change places.
  if (!keepsHeaderOrder) headers.sort((a, b) => (String(a[0]) < String(b[0]) ? -1 : 1));
  const { partition, offset, timestamp, key, value } = record;
  const bytes = (data: Buffer | null): string | null => data?.toString('base64') ?? null;
  return JSON.stringify([partition, offset, timestamp, bytes(key), bytes(value), headers]);
}

const brief = (text: string | undefined): string =>
  text === undefined ? 'nothing' : text.length <= 160 ? text : `${text.slice(0, 160)}…`;

/** Compares what two clients (or one client at two clusters) read, in order. */
export function compareSequences(
  expected: readonly ClientRecord[],
  actual: readonly ClientRecord[],
  keepsHeaderOrder = true,
): string[] {
  const left = expected.map((record) => canonical(record, keepsHeaderOrder));
  const right = actual.map((record) => canonical(record, keepsHeaderOrder));
  const differences: string[] = [];
  if (left.length !== right.length) {
    differences.push(`${left.length} records expected, ${right.length} read`);
  }
  for (let index = 0; index < Math.max(left.length, right.length); index++) {
    if (left[index] === right[index]) continue;
    differences.push(`#${index}: expected ${brief(left[index])}, read ${brief(right[index])}`);
    if (differences.length >= MAX_DIFFERENCES) break;
  }
  return differences;
}
