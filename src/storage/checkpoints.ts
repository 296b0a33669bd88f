/**
 * Kafka's small text files: offset checkpoints, leader-epoch checkpoint, partition.metadata and the
 * clean-shutdown marker.
 *
 * Each is replaced as a whole: written beside, made durable, renamed over the old one, and the
 * directory made durable. A reader sees the old or the new content, never a mixture. What cannot be
 * parsed is a {@link CorruptCheckpoint}; the caller says what that means.
 */
import { parseUuid, type Uuid } from '../base/uuid.ts';
import type { Disk } from '../io/runtime.ts';

/** Offsets below which a log is durable, per partition. */
export const RECOVERY_POINT_FILE = 'recovery-point-offset-checkpoint';
/** Log start offsets that lie inside a segment. */
export const LOG_START_FILE = 'log-start-offset-checkpoint';
/** Where logs begin on this disk that begin above their log start (see log.ts). */
export const LOCAL_LOG_START_FILE = 'local-log-start-offset-checkpoint';
/** High watermarks. */
export const HIGH_WATERMARK_FILE = 'replication-offset-checkpoint';
/** Offsets up to which logs are compacted. */
export const CLEANER_OFFSET_FILE = 'cleaner-offset-checkpoint';
/** Start offsets of leader epochs, in a partition's directory. */
export const LEADER_EPOCH_FILE = 'leader-epoch-checkpoint';
/** The topic id, in a partition's directory. */
export const PARTITION_METADATA_FILE = 'partition.metadata';
/** Present after an orderly stop. */
export const CLEAN_SHUTDOWN_FILE = '.kafka_cleanshutdown';

const VERSION = '0';

/** A checkpoint file that does not parse. */
export class CorruptCheckpoint extends Error {
  override readonly name = 'CorruptCheckpoint';
}

/** One row of an offset checkpoint. */
export interface PartitionOffset {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
}

/** One row of the leader-epoch checkpoint. */
export interface EpochEntry {
  readonly epoch: number;
  readonly startOffset: number;
}

/** Replaces `path` by `content`, durably. */
export function writeFileAtomically(disk: Disk, path: string, content: string): void {
  replaceFile(disk, path, content);
  disk.syncDirectory(path.slice(0, path.lastIndexOf('/')) || '/');
}

/** The same, except that the directory is still to be synced. */
function replaceFile(disk: Disk, path: string, content: string): void {
  const temporary = `${path}.tmp`;
  const file = disk.open(temporary, 'create');
  try {
    file.truncate(0);
    file.write([Buffer.from(content, 'utf8')], 0);
    file.syncNow();
  } finally {
    file.close();
  }
  disk.rename(temporary, path);
}

function readText(disk: Disk, path: string): string | undefined {
  const bytes = disk.readFile(path);
  return bytes === undefined ? undefined : Buffer.from(bytes).toString('utf8');
}

/** The rows of a versioned, counted checkpoint; undefined when there is no file. */
function readRows(disk: Disk, path: string, columns: number): string[][] | undefined {
  const text = readText(disk, path);
  if (text === undefined) return undefined;
  const [version, count, ...lines] = text.split('\n');
  if (version !== VERSION) throw new CorruptCheckpoint(`${path}: version ${version}`);
  const rows = lines.filter((line) => line !== '').map((line) => line.split(/\s+/));
  if (count !== String(rows.length)) {
    throw new CorruptCheckpoint(`${path}: ${rows.length} rows, ${count} announced`);
  }
  const bad = rows.findIndex((row) => row.length !== columns);
  if (bad >= 0) throw new CorruptCheckpoint(`${path}: row ${bad + 1} is malformed`);
  return rows;
}

function integer(path: string, text: string | undefined): number {
  const value = Number(text);
  if (text === undefined || !/^-?[0-9]+$/.test(text) || !Number.isSafeInteger(value)) {
    throw new CorruptCheckpoint(`${path}: not an integer: ${text}`);
  }
  return value;
}

function rowsText(rows: readonly string[]): string {
  return [VERSION, String(rows.length), ...rows, ''].join('\n');
}

/** Reads an offset checkpoint; empty when there is no file. */
export function readOffsetCheckpoint(disk: Disk, path: string): PartitionOffset[] {
  return (readRows(disk, path, 3) ?? []).map(([topic, partition, offset]) => ({
    topic: topic as string,
    partition: integer(path, partition),
    offset: integer(path, offset),
  }));
}

/** Replaces an offset checkpoint. */
export function writeOffsetCheckpoint(
  disk: Disk,
  path: string,
  rows: Iterable<PartitionOffset>,
): void {
  const lines = Array.from(rows, (row) => `${row.topic} ${row.partition} ${row.offset}`);
  writeFileAtomically(disk, path, rowsText(lines));
}

/** Reads a leader-epoch checkpoint; empty when there is no file. */
export function readEpochCheckpoint(disk: Disk, path: string): EpochEntry[] {
  const entries = (readRows(disk, path, 2) ?? []).map(([epoch, startOffset]) => ({
    epoch: integer(path, epoch),
    startOffset: integer(path, startOffset),
  }));
  entries.forEach((entry, index) => {
    const previous = entries[index - 1];
    if (previous === undefined) return;
    if (entry.epoch <= previous.epoch || entry.startOffset < previous.startOffset) {
      throw new CorruptCheckpoint(`${path}: epochs are not in order`);
    }
  });
  return entries;
}

/** Replaces a leader-epoch checkpoint; durable when the directory is synced. */
export function writeEpochCheckpoint(
  disk: Disk,
  path: string,
  entries: readonly EpochEntry[],
): void {
  const lines = entries.map((entry) => `${entry.epoch} ${entry.startOffset}`);
  replaceFile(disk, path, rowsText(lines));
}

/** The topic id in a partition directory; undefined when the file is absent. */
export function readPartitionMetadata(disk: Disk, directory: string): Uuid | undefined {
  const path = `${directory}/${PARTITION_METADATA_FILE}`;
  const text = readText(disk, path);
  if (text === undefined) return undefined;
  const match = /^version: 0\ntopic_id: (\S+)\s*$/.exec(text);
  const topicId = parseUuid(match?.[1] ?? '');
  if (topicId === undefined) throw new CorruptCheckpoint(`${path}: no topic id`);
  return topicId;
}

function partitionMetadata(topicId: Uuid): string {
  return `version: 0\ntopic_id: ${topicId}\n`;
}

/** Writes the topic id into a partition directory, durably. */
export function writePartitionMetadata(disk: Disk, directory: string, topicId: Uuid): void {
  const path = `${directory}/${PARTITION_METADATA_FILE}`;
  writeFileAtomically(disk, path, partitionMetadata(topicId));
}

/** Writes the topic id into a new partition directory; the log's first flush makes it durable. */
export function writeNewPartitionMetadata(
  disk: Disk,
  directory: string,
  topicId: Uuid,
  mayExist: boolean,
): void {
  const file = disk.open(`${directory}/${PARTITION_METADATA_FILE}`, 'create');
  try {
    if (mayExist) file.truncate(0);
    file.write([Buffer.from(partitionMetadata(topicId), 'utf8')], 0);
  } finally {
    file.close();
  }
}

/** Marks a log directory as stopped in order. */
export function writeCleanShutdown(disk: Disk, logDir: string): void {
  const content = JSON.stringify({ version: 0, brokerEpoch: -1 });
  writeFileAtomically(disk, `${logDir}/${CLEAN_SHUTDOWN_FILE}`, content);
}

/** Whether the log directory was stopped in order; the mark is durably taken off. */
export function takeCleanShutdown(disk: Disk, logDir: string): boolean {
  const path = `${logDir}/${CLEAN_SHUTDOWN_FILE}`;
  if (disk.fileSize(path) === undefined) return false;
  disk.remove(path);
  disk.syncDirectory(logDir);
  return true;
}
