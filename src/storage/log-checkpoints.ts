/**
 * What the checkpoint files of a log directory say of its logs, and when they are written again.
 *
 * Owned by the log manager, whose maps it reads. Invariants:
 * - A file is written only when it would say something new, so idle logs cost a comparison each.
 * - Rows of logs that are offline stay as they were.
 * - A file that does not parse counts as absent: recovery then reads more, nothing else.
 */
import { DiskError, type Runtime } from '../io/runtime.ts';
import {
  CLEANER_OFFSET_FILE,
  CorruptCheckpoint,
  HIGH_WATERMARK_FILE,
  LOCAL_LOG_START_FILE,
  LOG_START_FILE,
  type PartitionOffset,
  RECOVERY_POINT_FILE,
  readOffsetCheckpoint,
  writeOffsetCheckpoint,
} from './checkpoints.ts';
import type { Log } from './log.ts';
import { parseDirectoryName, partitionKey } from './topic-partition.ts';

const FILES = [
  RECOVERY_POINT_FILE,
  LOG_START_FILE,
  LOCAL_LOG_START_FILE,
  HIGH_WATERMARK_FILE,
  CLEANER_OFFSET_FILE,
];
const NO_OFFSETS: ReadonlyMap<string, number> = new Map();
/** Of a file that does not parse. */
const DAMAGED: ReadonlyMap<string, number> = new Map();

/** The logs of the directory, by partition key. */
export interface CheckpointedLogs {
  readonly open: ReadonlyMap<string, Log>;
  readonly offline: ReadonlyMap<string, unknown>;
}

/** What the checkpoints say of where a log begins. */
export interface LogStarts {
  readonly logStartOffset: number;
  /** A first segment at or below this may begin above the log start; undefined: none may. */
  readonly localLogStartOffset: number | undefined;
}

/** See the file header. */
export class LogCheckpoints {
  readonly #runtime: Runtime;
  readonly #logDir: string;
  readonly #logs: CheckpointedLogs;
  /** Offsets by partition key, by file. */
  readonly #files = new Map<string, ReadonlyMap<string, number>>();

  constructor(runtime: Runtime, logDir: string, logs: CheckpointedLogs) {
    this.#runtime = runtime;
    this.#logDir = logDir;
    this.#logs = logs;
  }

  /** Reads all files. May throw DiskError. */
  load(): void {
    for (const file of FILES) this.#files.set(file, this.#read(file));
  }

  /** What a file says of a partition. */
  offset(file: string, key: string): number | undefined {
    return this.#files.get(file)?.get(key);
  }

  /**
   * Where a log begins. To call its first segment the log start when that is not so would have all
   * other replicas delete what is before it; so where the two files leave doubt, which is when one
   * is damaged, the log start is rather too low.
   */
  logStarts(key: string): LogStarts {
    const start = this.offset(LOG_START_FILE, key);
    const local = this.offset(LOCAL_LOG_START_FILE, key);
    if (start !== undefined) {
      const isDamaged = this.has(LOCAL_LOG_START_FILE, key) === undefined;
      return { logStartOffset: start, localLogStartOffset: isDamaged ? Infinity : local };
    }
    // A log that begins above its start has both rows, even for a log start of 0.
    const isDamaged = this.has(LOG_START_FILE, key) === undefined;
    return { logStartOffset: 0, localLogStartOffset: isDamaged ? local : undefined };
  }

  /** Whether a file has a row for a partition; undefined: the file is damaged. */
  has(file: string, key: string): boolean | undefined {
    const offsets = this.#files.get(file);
    return offsets === DAMAGED ? undefined : offsets?.has(key) === true;
  }

  /** Takes rows of a partition that is no more out of all files. May throw DiskError. */
  forget(key: string): void {
    for (const [file, offsets] of this.#files) if (offsets.has(key)) this.write(file);
  }

  /** Writes a file when it would say something new. May throw DiskError. */
  write(file: string): void {
    const before = this.#files.get(file) ?? NO_OFFSETS;
    if (!this.#isStale(file, before)) return;
    const after = new Map<string, number>();
    for (const key of this.#logs.offline.keys()) {
      const offset = before.get(key);
      if (offset !== undefined) after.set(key, offset);
    }
    for (const [key, log] of this.#logs.open) {
      const offset = log.isOffline ? before.get(key) : offsetFor(file, log);
      if (offset !== undefined) after.set(key, offset);
    }
    writeOffsetCheckpoint(this.#runtime.disk, `${this.#logDir}/${file}`, this.#rows(after));
    this.#files.set(file, after);
  }

  /** The same; a file that cannot be written now is written at the next turn. */
  writeIfPossible(file: string): void {
    try {
      this.write(file);
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      // An old checkpoint only makes recovery read more.
      this.#runtime.logger.warn('checkpoint not written', { reason: error.message });
    }
  }

  /** Writes all files. May throw DiskError. */
  writeAll(): void {
    for (const file of FILES) this.write(file);
  }

  #isStale(file: string, before: ReadonlyMap<string, number>): boolean {
    let count = 0;
    for (const key of this.#logs.offline.keys()) if (before.has(key)) count++;
    for (const [key, log] of this.#logs.open) {
      const known = before.get(key);
      const offset = log.isOffline ? known : offsetFor(file, log);
      if (offset !== known) return true;
      if (offset !== undefined) count++;
    }
    return count !== before.size;
  }

  *#rows(offsets: ReadonlyMap<string, number>): Generator<PartitionOffset> {
    for (const [key, offset] of offsets) {
      const topicPartition = this.#logs.open.get(key)?.topicPartition ?? parseDirectoryName(key);
      if (topicPartition === undefined) continue;
      yield { topic: topicPartition.topic, partition: topicPartition.partition, offset };
    }
  }

  #read(file: string): ReadonlyMap<string, number> {
    try {
      const rows = readOffsetCheckpoint(this.#runtime.disk, `${this.#logDir}/${file}`);
      return new Map(rows.map((row) => [partitionKey(row.topic, row.partition), row.offset]));
    } catch (error) {
      if (!(error instanceof CorruptCheckpoint)) throw error;
      this.#runtime.logger.warn('checkpoint is not used', { reason: error.message });
      return DAMAGED;
    }
  }
}

/** What a checkpoint file says of a log. */
function offsetFor(file: string, log: Log): number | undefined {
  if (file === RECOVERY_POINT_FILE) return log.checkpointedRecoveryPoint;
  if (file === HIGH_WATERMARK_FILE) return log.highWatermark;
  if (file === CLEANER_OFFSET_FILE) return log.firstDirtyOffset;
  if (file === LOCAL_LOG_START_FILE) return log.checkpointedLocalLogStart;
  return log.checkpointedLogStart;
}
