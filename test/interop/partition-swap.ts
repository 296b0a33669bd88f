/**
 * Puts partition directories of one stopped broker under another stopped broker: what a swap of
 * twinlog and Apache Kafka is made of.
 *
 * A partition's directory goes over as it is. With it go its rows in the checkpoints of the log
 * directory; the clean-shutdown mark says of the whole directory how its owner stopped, so the
 * receiver's is kept after an orderly stop of the giver, and taken off after a kill.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

const CHECKPOINTS = [
  'recovery-point-offset-checkpoint',
  'log-start-offset-checkpoint',
  'replication-offset-checkpoint',
  'cleaner-offset-checkpoint',
];
const CLEAN_SHUTDOWN = '.kafka_cleanshutdown';

function belongs(directory: string, topics: readonly string[]): boolean {
  const match = /^(.+)-\d+$/.exec(directory);
  return match !== null && topics.includes(match[1] ?? '');
}

function readRows(path: string): string[] {
  if (!existsSync(path)) return [];
  return readFileSync(path, 'utf8')
    .split('\n')
    .slice(2)
    .filter((line) => line !== '');
}

/** The partition directories of these topics. */
export function partitionDirectories(dataDir: string, topics: readonly string[]): string[] {
  return readdirSync(dataDir).filter((name) => belongs(name, topics));
}

/** Copies the topics of a stopped broker, and what the log directory says of them. */
export function copyPartitions(from: string, to: string, topics: readonly string[]): void {
  mkdirSync(to, { recursive: true });
  for (const name of partitionDirectories(from, topics)) {
    cpSync(join(from, name), join(to, name), { recursive: true });
  }
  for (const name of CHECKPOINTS) {
    if (existsSync(join(from, name))) cpSync(join(from, name), join(to, name));
  }
}

/** Replaces the topics of a stopped broker by those of another. */
export function swapPartitions(
  from: string,
  to: string,
  topics: readonly string[],
  wasCleanStop: boolean,
): void {
  const ids = new Map<string, string>();
  for (const name of partitionDirectories(to, topics)) {
    ids.set(name, readFileSync(join(to, name, 'partition.metadata'), 'utf8'));
    rmSync(join(to, name), { recursive: true });
  }
  for (const name of partitionDirectories(from, topics)) {
    cpSync(join(from, name), join(to, name), { recursive: true });
    const id = ids.get(name);
    if (id === undefined) throw new Error(`the receiver has no partition ${name}`);
    writeFileSync(join(to, name, 'partition.metadata'), id);
  }
  for (const name of CHECKPOINTS) mergeRows(join(from, name), join(to, name), topics);
  if (!wasCleanStop) rmSync(join(to, CLEAN_SHUTDOWN), { force: true });
}

function mergeRows(from: string, to: string, topics: readonly string[]): void {
  if (!existsSync(from) && !existsSync(to)) return;
  const isMoved = (row: string): boolean => topics.includes(row.split(' ')[0] ?? '');
  const kept = readRows(to).filter((row) => !isMoved(row));
  const rows = [...kept, ...readRows(from).filter(isMoved)];
  writeFileSync(to, ['0', String(rows.length), ...rows, ''].join('\n'));
}
