/**
 * All logs of one log directory: opening at start, creating, deleting, checkpoints, retention.
 *
 * Constructed by `server/broker.ts`; the replica manager and the controller ask it for logs.
 * - One live process per directory: a lock file says so, before anything else is touched.
 * - A partition that cannot be opened is offline alone; the others go on.
 * - The clean-shutdown mark is taken off before any log is opened and set only when all closed
 *   well.
 * - A checkpoint row never names an offset of an older log of the same name: it is rewritten before
 *   a directory is created anew.
 * The metadata log is opened like any other, but is no topic: not listed, and without retention.
 */
import { assert } from '../base/assert.ts';
import type { Uuid } from '../base/uuid.ts';
import { DiskError, type Runtime, type Timer } from '../io/runtime.ts';
import {
  CorruptCheckpoint,
  HIGH_WATERMARK_FILE,
  LOG_START_FILE,
  type PartitionOffset,
  RECOVERY_POINT_FILE,
  readOffsetCheckpoint,
  readPartitionMetadata,
  takeCleanShutdown,
  writeCleanShutdown,
  writeOffsetCheckpoint,
  writePartitionMetadata,
} from './checkpoints.ts';
import { Log } from './log.ts';
import type { LogConfig } from './log-config.ts';
import type { LogContext } from './log-context.ts';
import { CorruptLog, loadLog } from './log-recovery.ts';
import { OpenFiles } from './open-files.ts';
import {
  deletedDirectoryName,
  directoryName,
  isDeletedDirectory,
  parseDirectoryName,
  partitionKey,
  strayDirectoryName,
  type TopicPartition,
} from './topic-partition.ts';

/** Lock file in the log directory. */
export const LOCK_FILE = '.lock';
/** The topic name of the metadata log. */
export const METADATA_TOPIC = '__cluster_metadata';

/** How often high watermarks are written down, as in Apache Kafka. */
export const HIGH_WATERMARK_INTERVAL_MS = 5_000;
/** How often logs are flushed, which bounds what recovery reads, and their offsets written down. */
export const FLUSH_INTERVAL_MS = 60_000;
/** How often retention is applied, as in Apache Kafka. */
export const RETENTION_INTERVAL_MS = 300_000;
/** How long an idle producer is remembered, as in Apache Kafka. */
export const PRODUCER_ID_EXPIRATION_MS = 86_400_000;
/** Logs closed at a time. */
const CLOSE_PARALLELISM = 16;

/** The log directory is in use by another live process. */
export class LogDirectoryInUse extends Error {
  override readonly name = 'LogDirectoryInUse';
}

/** How a manager is set up. */
export interface LogManagerOptions {
  readonly logDir: string;
  readonly defaultConfig: LogConfig;
  /** Default {@link PRODUCER_ID_EXPIRATION_MS}. */
  readonly producerIdExpirationMs?: number;
}

/** A partition that cannot be used until the next start. */
export interface OfflinePartition extends TopicPartition {
  readonly reason: string;
}

type Offsets = Map<string, PartitionOffset>;

/** The logs of one directory. */
export class LogManager {
  readonly #runtime: Runtime;
  readonly #options: LogManagerOptions;
  readonly #context: LogContext;
  readonly #logs = new Map<string, Log>();
  readonly #offline = new Map<string, OfflinePartition>();
  readonly #timers = new Map<string, Timer>();
  readonly #deletions = new Set<Timer>();
  /** What the checkpoint files say, by file name. */
  readonly #checkpoints = new Map<string, Offsets>();
  #lock: { release(): void } | undefined;
  #flushing: Promise<void> | undefined;
  #closed = false;

  constructor(runtime: Runtime, options: LogManagerOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#context = {
      disk: runtime.disk,
      files: new OpenFiles(runtime.disk),
      clock: runtime.clock,
      compression: runtime.compression,
      logger: runtime.logger,
      checkpointRecoveryPoints: () => this.#checkpoint(RECOVERY_POINT_FILE),
    };
  }

  /**
   * Opens, and after a crash recovers, every partition directory. Throws LogDirectoryInUse, and
   * DiskError when the directory itself cannot be used.
   */
  load(configFor: (topic: string) => LogConfig): void {
    const { disk, logger } = this.#runtime;
    const { logDir } = this.#options;
    disk.makeDirectory(logDir);
    this.#lock = disk.lock(`${logDir}/${LOCK_FILE}`);
    if (this.#lock === undefined) {
      throw new LogDirectoryInUse(`${logDir} is in use by another process`);
    }
    const clean = takeCleanShutdown(disk, logDir);
    for (const file of [RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE]) {
      this.#checkpoints.set(file, this.#readCheckpoint(file));
    }
    for (const { name, isDirectory } of disk.list(logDir) ?? []) {
      if (!isDirectory) continue;
      const topicPartition = parseDirectoryName(name);
      if (topicPartition !== undefined) this.#loadDirectory(topicPartition, clean, configFor);
      else if (isDeletedDirectory(name)) disk.remove(`${logDir}/${name}`);
    }
    const offline = this.#offline.size;
    logger.info('logs loaded', { logDir, logs: this.#logs.size, offline, clean });
  }

  #loadDirectory(
    topicPartition: TopicPartition,
    clean: boolean,
    configFor: (topic: string) => LogConfig,
  ): void {
    const { disk, logger } = this.#runtime;
    const { topic, partition } = topicPartition;
    const directory = this.#directory(topicPartition);
    try {
      const topicId = readPartitionMetadata(disk, directory);
      const names = disk.list(directory) ?? [];
      if (topicId === undefined && !names.some((entry) => entry.name.endsWith('.log'))) {
        // A creation that did not get far enough to be heard of.
        disk.remove(directory);
        return;
      }
      this.#open(topicPartition, topicId, configFor(topic), clean);
    } catch (error) {
      const known = [CorruptLog, CorruptCheckpoint, DiskError].some(
        (kind) => error instanceof kind,
      );
      if (!known) throw error;
      const reason = (error as Error).message;
      this.#offline.set(partitionKey(topic, partition), { topic, partition, reason });
      logger.error('partition is offline', { topic, partition, reason });
    }
  }

  #open(
    topicPartition: TopicPartition,
    topicId: Uuid | undefined,
    config: LogConfig,
    clean: boolean,
  ): Log {
    const { clock } = this.#runtime;
    const directory = this.#directory(topicPartition);
    const key = partitionKey(topicPartition.topic, topicPartition.partition);
    const offset = (file: string): number => this.#checkpoints.get(file)?.get(key)?.offset ?? 0;
    const context = { ...this.#context, nowMs: clock.wallMs() };
    const loaded = loadLog(context, directory, {
      config,
      clean,
      recoveryPoint: offset(RECOVERY_POINT_FILE),
      logStartOffset: offset(LOG_START_FILE),
    });
    const log = new Log(this.#context, { topicPartition, topicId, directory, config, loaded });
    log.updateHighWatermark(offset(HIGH_WATERMARK_FILE));
    this.#logs.set(key, log);
    return log;
  }

  /** The log of a partition, if it is here and was opened. */
  getLog(topicPartition: TopicPartition): Log | undefined {
    return this.#logs.get(partitionKey(topicPartition.topic, topicPartition.partition));
  }

  /** Creates the directory and log of a partition that has none. May throw DiskError. */
  createLog(topicPartition: TopicPartition, topicId: Uuid | undefined, config: LogConfig): Log {
    const { disk } = this.#runtime;
    const key = partitionKey(topicPartition.topic, topicPartition.partition);
    assert(!this.#logs.has(key) && !this.#offline.has(key), `log exists already: ${key}`);
    for (const [file, offsets] of this.#checkpoints) {
      if (offsets.has(key)) this.#checkpoint(file);
    }
    const directory = this.#directory(topicPartition);
    disk.makeDirectory(directory);
    if (topicId !== undefined) writePartitionMetadata(disk, directory, topicId);
    const log = this.#open(topicPartition, topicId, config, true);
    disk.syncDirectory(directory);
    disk.syncDirectory(this.#options.logDir);
    return log;
  }

  /** Takes the log away; its directory is removed after `file.delete.delay.ms`. */
  deleteLog(topicPartition: TopicPartition): void {
    const { clock, disk, logger } = this.#runtime;
    const delayMs = this.getLog(topicPartition)?.config.fileDeleteDelayMs ?? 0;
    const path = this.#retire(topicPartition, deletedDirectoryName);
    if (path === undefined) return;
    const timer = clock.setTimer(delayMs, () => {
      this.#deletions.delete(timer);
      try {
        disk.remove(path);
      } catch (error) {
        if (!(error instanceof DiskError)) throw error;
        logger.warn('deleted log is left for the next start', { path, reason: error.message });
      }
    });
    this.#deletions.add(timer);
  }

  /** Takes the log away but keeps its directory, under a name that is not loaded again. */
  strayLog(topicPartition: TopicPartition): void {
    this.#retire(topicPartition, strayDirectoryName);
  }

  #retire(
    topicPartition: TopicPartition,
    newName: (topicPartition: TopicPartition, unique: string) => string,
  ): string | undefined {
    const { disk, random } = this.#runtime;
    const key = partitionKey(topicPartition.topic, topicPartition.partition);
    const log = this.#logs.get(key);
    if (log === undefined && !this.#offline.has(key)) return undefined;
    log?.abandon();
    this.#logs.delete(key);
    this.#offline.delete(key);
    const unique = Buffer.from(random.bytes(16)).toString('hex');
    const path = `${this.#options.logDir}/${newName(topicPartition, unique)}`;
    disk.rename(this.#directory(topicPartition), path);
    disk.syncDirectory(this.#options.logDir);
    return path;
  }

  /** Every opened log of a topic; the metadata log is none. */
  *allLogs(): Generator<Log> {
    for (const log of this.#logs.values()) {
      if (log.topicPartition.topic !== METADATA_TOPIC) yield log;
    }
  }

  /** Partitions that could not be opened, or whose disk failed since. */
  offline(): OfflinePartition[] {
    const failed = [...this.#logs.values()].filter((log) => log.isOffline);
    return [
      ...this.#offline.values(),
      ...failed.map((log) => ({ ...log.topicPartition, reason: 'a disk call failed' })),
    ];
  }

  /** Begins the periodic work: checkpoints, flushes, retention. */
  start(): void {
    this.#every('highWatermarks', HIGH_WATERMARK_INTERVAL_MS, () =>
      this.#checkpointIfPossible(HIGH_WATERMARK_FILE),
    );
    this.#every('flush', FLUSH_INTERVAL_MS, () => this.#flushAll());
    this.#every('retention', RETENTION_INTERVAL_MS, () => this.#applyRetention());
  }

  #every(name: string, intervalMs: number, work: () => void): void {
    const run = () => {
      this.#timers.set(name, this.#runtime.clock.setTimer(intervalMs, run));
      work();
    };
    this.#timers.set(name, this.#runtime.clock.setTimer(intervalMs, run));
  }

  /** One log after the other, so that appends are not starved of the disk. */
  #flushAll(): void {
    this.#flushing ??= this.#flushEach().finally(() => {
      this.#flushing = undefined;
    });
  }

  async #flushEach(): Promise<void> {
    for (const log of [...this.#logs.values()]) {
      if (this.#closed) return;
      if (log.isOffline || log.recoveryPoint >= log.logEndOffset) continue;
      try {
        await log.flush();
      } catch (error) {
        // The log has taken itself offline and said so.
        if (!(error instanceof DiskError)) throw error;
      }
    }
    if (this.#closed) return;
    this.#checkpointIfPossible(RECOVERY_POINT_FILE);
    this.#checkpointIfPossible(LOG_START_FILE);
  }

  #applyRetention(): void {
    const { producerIdExpirationMs = PRODUCER_ID_EXPIRATION_MS } = this.#options;
    const beforeMs = this.#runtime.clock.wallMs() - producerIdExpirationMs;
    for (const log of this.allLogs()) {
      if (log.isOffline) continue;
      log.removeExpiredProducers(beforeMs);
      try {
        const deleted = log.deleteOldSegments();
        const { topic, partition } = log.topicPartition;
        if (deleted > 0)
          this.#runtime.logger.info('segments deleted', { topic, partition, deleted });
      } catch (error) {
        // The log has taken itself offline and said so.
        if (!(error instanceof DiskError)) throw error;
      }
    }
  }

  #readCheckpoint(file: string): Offsets {
    const path = `${this.#options.logDir}/${file}`;
    try {
      const rows = readOffsetCheckpoint(this.#runtime.disk, path);
      return new Map(rows.map((row) => [partitionKey(row.topic, row.partition), row]));
    } catch (error) {
      if (!(error instanceof CorruptCheckpoint)) throw error;
      this.#runtime.logger.warn('checkpoint is not used', { reason: error.message });
      return new Map();
    }
  }

  /** Writes a checkpoint file when it would say something new. Rows of offline logs stay. */
  #checkpoint(file: string): void {
    const before = this.#checkpoints.get(file) ?? new Map();
    const after: Offsets = new Map();
    for (const key of this.#offline.keys()) {
      const row = before.get(key);
      if (row !== undefined) after.set(key, row);
    }
    for (const [key, log] of this.#logs) {
      const offset = log.isOffline ? before.get(key)?.offset : offsetFor(file, log);
      if (offset !== undefined) after.set(key, { ...log.topicPartition, offset });
    }
    if (sameOffsets(before, after)) return;
    const path = `${this.#options.logDir}/${file}`;
    writeOffsetCheckpoint(this.#runtime.disk, path, [...after.values()]);
    this.#checkpoints.set(file, after);
  }

  #checkpointIfPossible(file: string): void {
    try {
      this.#checkpoint(file);
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      // Written again at the next turn; an old checkpoint only makes recovery read more.
      this.#runtime.logger.warn('checkpoint not written', { reason: error.message });
    }
  }

  /** Flushes and closes every log, writes all checkpoints, marks the stop as orderly. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const timer of [...this.#timers.values(), ...this.#deletions]) timer.cancel();
    await this.#flushing;
    // Without the lock, the directory is another process's.
    if (this.#lock === undefined) return;
    const logs = [...this.#logs.values()];
    let clean = this.#offline.size === 0;
    for (let from = 0; from < logs.length; from += CLOSE_PARALLELISM) {
      const some = logs.slice(from, from + CLOSE_PARALLELISM);
      const results = await Promise.allSettled(some.map((log) => log.close()));
      for (const result of results) {
        if (result.status === 'fulfilled') continue;
        if (!(result.reason instanceof DiskError)) throw result.reason;
        clean = false;
      }
    }
    clean &&= logs.every((log) => !log.isOffline);
    for (const file of [RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE]) {
      this.#checkpoint(file);
    }
    if (clean) writeCleanShutdown(this.#runtime.disk, this.#options.logDir);
    this.#lock.release();
  }

  #directory(topicPartition: TopicPartition): string {
    return `${this.#options.logDir}/${directoryName(topicPartition)}`;
  }
}

/** What a checkpoint file says of a log. */
function offsetFor(file: string, log: Log): number | undefined {
  if (file === RECOVERY_POINT_FILE) return log.recoveryPoint;
  if (file === HIGH_WATERMARK_FILE) return log.highWatermark;
  return log.needsLogStartCheckpoint ? log.logStartOffset : undefined;
}

function sameOffsets(a: Offsets, b: Offsets): boolean {
  if (a.size !== b.size) return false;
  for (const [key, row] of b) if (a.get(key)?.offset !== row.offset) return false;
  return true;
}
