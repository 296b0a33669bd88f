/**
 * How the state of mirrors is shown: a table per mirror for people, plain objects for programs.
 *
 * Rates are differences between two looks at the same partitions, so the first look has none. A lag
 * or offset of −1 means "not known yet" (rule A4) and is shown as a dash.
 */
import type { MirrorDescription } from './admin-client.ts';
import { table } from './output.ts';

/** One partition of a mirror as commands show it. */
export interface PartitionStatus {
  readonly topic: string;
  readonly partition: number;
  readonly state: string;
  readonly sourceOffset: number;
  readonly destinationOffset: number;
  readonly lag: number;
  readonly lastMirroredOffset: number;
  readonly cause: string;
  readonly message: string;
}

/** A mirror's partitions in order. */
export function partitionStatuses(mirror: MirrorDescription): PartitionStatus[] {
  return mirror.topics
    .flatMap(({ topicName, partitions }) =>
      partitions.map((each) => ({
        topic: topicName,
        partition: each.partitionIndex,
        state: each.state,
        sourceOffset: each.sourceOffset,
        destinationOffset: each.destinationOffset,
        lag: each.lag,
        lastMirroredOffset: each.lastMirroredOffset,
        cause: each.cause,
        message: each.message,
      })),
    )
    .sort((a, b) => (a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1));
}

function known(offset: number): string | number {
  return offset < 0 ? '-' : offset;
}

/** One row per partition. */
export function describeTable(mirror: MirrorDescription): string[] {
  const rows = partitionStatuses(mirror).map((each) => [
    `${each.topic}-${each.partition}`,
    each.state,
    known(each.sourceOffset),
    known(each.destinationOffset),
    known(each.lag),
    known(each.lastMirroredOffset),
    each.cause,
  ]);
  const headings = ['PARTITION', 'STATE', 'SOURCE', 'HERE', 'LAG', 'LAST-MIRRORED', 'CAUSE'];
  return rows.length === 0 ? ['  no topics yet'] : table(headings, rows);
}

/** Causes that `mirrors describe` explains below its table; the others are in the table alone. */
const MAX_EXPLAINED = 20;

/**
 * Why partitions are held up and what resolves it (S5), one line each; without a cause, what the
 * next step waits for (G28).
 */
export function describeCauses(mirror: MirrorDescription): string[] {
  const held = partitionStatuses(mirror).filter(
    ({ cause, message }) => cause !== '' || message !== '',
  );
  const lines = held
    .slice(0, MAX_EXPLAINED)
    .map(
      ({ topic, partition, cause, message }) =>
        `  ${topic}-${partition} ${cause === '' ? 'waits' : cause}: ${message}`,
    );
  const more = held.length - lines.length;
  return more > 0 ? [...lines, `  … and ${more} more; --json shows all`] : lines;
}

/** A moment of a mirror, to compute rates from. */
export interface StatusSample {
  readonly atMs: number;
  readonly partitions: readonly PartitionStatus[];
}

/** The sum over a mirror that one line of live status shows. */
export interface MirrorProgress {
  readonly partitions: number;
  /** Number of partitions by state. */
  readonly states: Readonly<Record<string, number>>;
  readonly destinationOffsets: number;
  /** Offsets behind the source, −1 while any partition does not know. */
  readonly lag: number;
  /** Offsets per second since the previous sample. */
  readonly offsetsPerSecond: number;
  readonly failures: readonly string[];
}

/** A stopped partition is asked nothing of its source any more: it ends at what was mirrored. */
function offsetHere({ state, destinationOffset, lastMirroredOffset }: PartitionStatus): number {
  return state === 'STOPPED' ? Math.max(destinationOffset, lastMirroredOffset) : destinationOffset;
}

function total(partitions: readonly PartitionStatus[]): number {
  return partitions.reduce((sum, each) => sum + Math.max(offsetHere(each), 0), 0);
}

/** Offsets gained by the partitions that both samples know. */
function gained(previous: StatusSample, now: StatusSample): number {
  const nameOf = ({ topic, partition }: PartitionStatus): string => `${topic}-${partition}`;
  const before = new Map(previous.partitions.map((each) => [nameOf(each), each.destinationOffset]));
  return now.partitions.reduce((sum, each) => {
    const from = before.get(nameOf(each)) ?? -1;
    return from < 0 ? sum : sum + Math.max(0, each.destinationOffset - from);
  }, 0);
}

/** What changed between two samples. */
export function progressOf(previous: StatusSample | undefined, now: StatusSample): MirrorProgress {
  const states: Record<string, number> = {};
  for (const { state } of now.partitions) states[state] = (states[state] ?? 0) + 1;
  const seconds = previous === undefined ? 0 : (now.atMs - previous.atMs) / 1000;
  const moving = now.partitions.filter(({ state }) => state !== 'STOPPED');
  const unknown = moving.some(({ lag }) => lag < 0);
  const failed = now.partitions.filter(({ cause }) => cause !== '');
  return {
    partitions: now.partitions.length,
    states,
    destinationOffsets: total(now.partitions),
    lag: unknown ? -1 : moving.reduce((sum, each) => sum + each.lag, 0),
    offsetsPerSecond:
      previous !== undefined && seconds > 0 ? Math.round(gained(previous, now) / seconds) : 0,
    failures: failed.map(
      (each) => `${each.topic}-${each.partition} ${each.cause}: ${each.message}`,
    ),
  };
}

/** One line for people. */
export function progressLine(mirror: string, progress: MirrorProgress): string {
  const number = (value: number): string => value.toLocaleString('en-US');
  const states = Object.entries(progress.states)
    .map(([state, count]) => `${count} ${state}`)
    .join(', ');
  const lag = progress.lag < 0 ? 'unknown' : number(progress.lag);
  return (
    `${mirror}: ${progress.partitions} partitions (${states || 'none'})  ` +
    `${number(progress.destinationOffsets)} records here  ` +
    `${number(progress.offsetsPerSecond)}/s  lag ${lag}`
  );
}
