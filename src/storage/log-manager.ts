/**
 * All logs of one log directory: opening at start, creating, deleting, checkpoints, retention,
 * compaction.
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
import { BufferPool } from '../base/buffer-pool.ts';
import type { Uuid } from '../base/uuid.ts';
import { type Disk, DiskError, type Runtime, type Timer } from '../io/runtime.ts';
import {
  CLEANER_OFFSET_FILE,
  CorruptCheckpoint,
  HIGH_WATERMARK_FILE,
  LOCAL_LOG_START_FILE,
  LOG_START_FILE,
  RECOVERY_POINT_FILE,
  readPartitionMetadata,
  takeCleanShutdown,
  writeCleanShutdown,
  writeNewPartitionMetadata,
  writePartitionMetadata,
} from './checkpoints.ts';
import { DueTimes } from './due-times.ts';
import { Log } from './log.ts';
import { LogCheckpoints } from './log-checkpoints.ts';
import { type CleanerSettings, DEFAULT_CLEANER_SETTINGS, LogCleaner } from './log-cleaner.ts';
import type { LogConfig } from './log-config.ts';
import type { FlushTarget, LogContext } from './log-context.ts';
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
/** Logs looked at in one turn of a pass over all of them. */
const LOGS_PER_TURN = 256;
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
  /** Default {@link DEFAULT_CLEANER_SETTINGS}. */
  readonly cleaner?: Partial<CleanerSettings>;
  /**
   * Whether the log is a copy of a source's: what of it goes and what stays is that one's business
   * (rules F5, F8), so neither retention nor compaction runs. Default: none is.
   */
  readonly isMirrored?: (log: Log) => boolean;
}

/** A partition that cannot be used until the next start. */
export interface OfflinePartition extends TopicPartition {
  readonly reason: string;
}

/** The logs of one directory. */
export class LogManager {
  /** What reads go into; who is done with what a read brought may give it back. */
  readonly buffers = new BufferPool();
  readonly #runtime: Runtime;
  readonly #options: LogManagerOptions;
  readonly #context: LogContext;
  readonly #logs = new Map<string, Log>();
  readonly #offline = new Map<string, OfflinePartition>();
  readonly #timers = new Map<string, Timer>();
  readonly #checkpoints: LogCheckpoints;
  /** Logs to be flushed for `flush.ms`. */
  readonly #flushes: DueTimes<FlushTarget>;
  /** Directories of deleted logs to be removed. */
  readonly #removals: DueTimes<string>;
  readonly #cleaner: LogCleaner;
  #lock: { release(): void } | undefined;
  #flushing: Promise<void> | undefined;
  /** Partition directories were made or renamed since the log directory was synced. */
  #directoriesChanged = true;
  #syncsSoon = false;
  #recoveryWasWhole = true;
  #closed = false;

  constructor(runtime: Runtime, options: LogManagerOptions) {
    this.#runtime = runtime;
    this.#options = options;
    const logs = { open: this.#logs, offline: this.#offline };
    this.#checkpoints = new LogCheckpoints(runtime, options.logDir, logs);
    this.#flushes = new DueTimes(runtime.clock, (log) => log.flushSoon());
    this.#removals = new DueTimes(runtime.clock, (path) => this.#remove(path));
    this.#context = {
      disk: runtime.disk,
      files: new OpenFiles(runtime.disk),
      clock: runtime.clock,
      compression: runtime.compression,
      logger: runtime.logger,
      buffers: this.buffers,
      random: runtime.random,
      flushes: this.#flushes,
      syncLogDirectory: () => this.#syncLogDirectory(),
      checkpointRecoveryPoints: () => this.#checkpoints.write(RECOVERY_POINT_FILE),
      checkpointLogStarts: () => this.#checkpointLogStarts(),
      checkpointCleanedOffsets: () => this.#checkpoints.write(CLEANER_OFFSET_FILE),
    };
    this.#cleaner = new LogCleaner(runtime, {
      settings: { ...DEFAULT_CLEANER_SETTINGS, ...options.cleaner },
      all: () => this.allLogs(),
      isMirrored: (log) => this.#isMirrored(log),
      onCompacted: () => this.#checkpoints.writeIfPossible(CLEANER_OFFSET_FILE),
    });
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
    this.#checkpoints.load();
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
      const key = partitionKey(topic, partition);
      const wasFlushed = this.#checkpoints.has(RECOVERY_POINT_FILE, key) === true;
      const topicId = wasFlushed
        ? readPartitionMetadata(disk, directory)
        : this.#unprovenTopicId(directory);
      const isUnfinished =
        (topicId === undefined && !hasLog(disk, directory)) ||
        (topicId === 'torn' && isWithoutRecords(disk, directory));
      if (isUnfinished) {
        // A creation that did not get far enough to be heard of.
        disk.remove(directory);
        return;
      }
      const known = topicId === 'torn' ? undefined : topicId;
      this.#open(topicPartition, known, configFor(topic), clean);
    } catch (error) {
      const known = [CorruptLog, CorruptCheckpoint, DiskError].some(
        (kind) => error instanceof kind,
      );
      if (!known) throw error;
      const reason = (error as Error).message;
      this.#offline.set(partitionKey(topic, partition), { topic, partition, reason });
      this.#recoveryWasWhole = false;
      logger.error('partition is offline', { topic, partition, reason });
    }
  }

  /** Nothing of the log was flushed: a power loss may have left any part of the file. */
  #unprovenTopicId(directory: string): Uuid | 'torn' | undefined {
    const { disk, logger } = this.#runtime;
    try {
      return readPartitionMetadata(disk, directory);
    } catch (error) {
      if (!(error instanceof CorruptCheckpoint)) throw error;
      logger.warn('topic id is taken from the metadata', { reason: error.message });
      return 'torn';
    }
  }

  #open(
    topicPartition: TopicPartition,
    topicId: Uuid | undefined,
    config: LogConfig,
    clean: boolean,
    isNewDirectory = false,
  ): Log {
    const { clock } = this.#runtime;
    const directory = this.#directory(topicPartition);
    const key = partitionKey(topicPartition.topic, topicPartition.partition);
    const offset = (file: string): number => this.#checkpoints.offset(file, key) ?? 0;
    const context = { ...this.#context, nowMs: clock.wallMs() };
    const firstDirtyOffset = this.#checkpoints.offset(CLEANER_OFFSET_FILE, key);
    const loaded = loadLog(context, directory, {
      config,
      clean,
      firstDirtyOffset: firstDirtyOffset ?? 0,
      recoveryPoint: offset(RECOVERY_POINT_FILE),
      isNewDirectory,
      hasRecoveryPoint: this.#checkpoints.has(RECOVERY_POINT_FILE, key),
      ...this.#checkpoints.logStarts(key),
    });
    if (loaded.wasCut) this.#recoveryWasWhole = false;
    const own = { topicPartition, topicId, directory, config };
    const log = new Log(this.#context, { ...own, loaded, firstDirtyOffset });
    log.updateHighWatermark(offset(HIGH_WATERMARK_FILE));
    this.#logs.set(key, log);
    return log;
  }

  /** In this order: a local log start without a log start means nothing. May throw DiskError. */
  #checkpointLogStarts(): void {
    this.#checkpoints.write(LOG_START_FILE);
    this.#checkpoints.write(LOCAL_LOG_START_FILE);
  }

  /** Whether `load` found every log as it was left, with nothing to be cut off. */
  get recoveryWasWhole(): boolean {
    return this.#recoveryWasWhole;
  }

  /** The log of a partition, if it is here and was opened. */
  getLog(topicPartition: TopicPartition): Log | undefined {
    return this.#logs.get(partitionKey(topicPartition.topic, topicPartition.partition));
  }

  /**
   * Creates the directory and log of a partition that has none. Durable with the first flush of a
   * record: until then a power loss can take it, and the metadata has it made anew. May throw
   * DiskError.
   */
  createLog(topicPartition: TopicPartition, topicId: Uuid | undefined, config: LogConfig): Log {
    const { disk } = this.#runtime;
    const key = partitionKey(topicPartition.topic, topicPartition.partition);
    assert(!this.#logs.has(key) && !this.#offline.has(key), `log exists already: ${key}`);
    this.#checkpoints.forget(key);
    const directory = this.#directory(topicPartition);
    // Left by a creation that failed on the way.
    const exists = disk.list(directory) !== undefined;
    if (!exists) disk.makeDirectory(directory);
    this.#directoriesChanged = true;
    if (topicId !== undefined) writeNewPartitionMetadata(disk, directory, topicId, exists);
    return this.#open(topicPartition, topicId, config, true, !exists);
  }

  /** Gives a log that has no topic id the one that the metadata says. May throw DiskError. */
  adoptLog(log: Log, topicId: Uuid): void {
    if (log.topicId !== undefined) return;
    writePartitionMetadata(this.#runtime.disk, log.directory, topicId);
    log.adopt(topicId);
  }

  /** Once for all that goes in this turn. A lost renaming makes a stray at the next start. */
  #syncLogDirectorySoon(): void {
    if (this.#syncsSoon) return;
    this.#syncsSoon = true;
    this.#directoriesChanged = true;
    this.#runtime.clock.defer(() => {
      this.#syncsSoon = false;
      try {
        if (!this.#closed) this.#syncLogDirectory();
      } catch (error) {
        if (!(error instanceof DiskError)) throw error;
        this.#runtime.logger.warn('log directory not synced', { reason: error.message });
      }
    });
  }

  #syncLogDirectory(): void {
    if (!this.#directoriesChanged) return;
    this.#runtime.disk.syncDirectory(this.#options.logDir);
    this.#directoriesChanged = false;
  }

  /** Takes the log away; its directory is removed after `file.delete.delay.ms`. */
  deleteLog(topicPartition: TopicPartition): void {
    const delayMs = this.getLog(topicPartition)?.config.fileDeleteDelayMs ?? 0;
    const path = this.#retire(topicPartition, deletedDirectoryName);
    if (path === undefined) return;
    this.#removals.add(path, delayMs);
  }

  #remove(path: string): void {
    const { disk, logger } = this.#runtime;
    try {
      disk.remove(path);
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      logger.warn('deleted log is left for the next start', { path, reason: error.message });
    }
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
    this.#syncLogDirectorySoon();
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

  /** Begins the periodic work: checkpoints, flushes, retention, compaction. */
  start(): void {
    this.#every('highWatermarks', HIGH_WATERMARK_INTERVAL_MS, () =>
      this.#checkpoints.writeIfPossible(HIGH_WATERMARK_FILE),
    );
    this.#every('flush', FLUSH_INTERVAL_MS, () => this.#flushAll());
    this.#every('retention', RETENTION_INTERVAL_MS, () => this.#applyRetention());
    this.#cleaner.start();
  }

  /** Compacts every log that is due, without waiting for the next round. */
  compactNow(): Promise<void> {
    return this.#cleaner.cleanAll();
  }

  #isMirrored(log: Log): boolean {
    return this.#options.isMirrored?.(log) === true;
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
    await this.#forEachLog(async (log) => {
      if (log.isOffline) return;
      try {
        if (log.recoveryPoint < log.logEndOffset) await log.flush();
        else log.releaseMemory();
      } catch (error) {
        // The log has taken itself offline and said so.
        if (!(error instanceof DiskError)) throw error;
      }
    });
    if (this.#closed) return;
    this.#checkpoints.writeIfPossible(RECOVERY_POINT_FILE);
    this.#checkpoints.writeIfPossible(LOG_START_FILE);
    this.#checkpoints.writeIfPossible(LOCAL_LOG_START_FILE);
  }

  #applyRetention(): void {
    const { producerIdExpirationMs = PRODUCER_ID_EXPIRATION_MS } = this.#options;
    const beforeMs = this.#runtime.clock.wallMs() - producerIdExpirationMs;
    void this.#forEachLog((log) => {
      if (log.topicPartition.topic !== METADATA_TOPIC) this.#retain(log, beforeMs);
    });
  }

  #retain(log: Log, beforeMs: number): void {
    if (log.isOffline) return;
    log.removeExpiredProducers(beforeMs);
    // A run of compaction would end with the segment it is at; retention has time.
    if (this.#isMirrored(log) || this.#cleaner.isCleaning(log)) return;
    try {
      const deleted = log.deleteOldSegments();
      const { topic, partition } = log.topicPartition;
      if (deleted > 0) this.#runtime.logger.info('segments deleted', { topic, partition, deleted });
    } catch (error) {
      // The log has taken itself offline and said so.
      if (!(error instanceof DiskError)) throw error;
    }
  }

  /** One log after the other, making room for requests now and then; ends when the manager does. */
  async #forEachLog(work: (log: Log) => Promise<void> | void): Promise<void> {
    const { clock } = this.#runtime;
    let count = 0;
    for (const log of [...this.#logs.values()]) {
      if (this.#closed) return;
      const done = work(log);
      if (done !== undefined) await done;
      if (++count % LOGS_PER_TURN === 0) {
        await new Promise<void>((resolve) => clock.defer(resolve));
      }
    }
  }

  /** Flushes and closes every log, writes all checkpoints, marks the stop as orderly. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const timer of this.#timers.values()) timer.cancel();
    this.#flushes.close();
    this.#removals.close();
    await this.#cleaner.close();
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
    this.#checkpoints.writeAll();
    if (clean) writeCleanShutdown(this.#runtime.disk, this.#options.logDir);
    this.#lock.release();
  }

  #directory(topicPartition: TopicPartition): string {
    return `${this.#options.logDir}/${directoryName(topicPartition)}`;
  }
}

function hasLog(disk: Disk, directory: string): boolean {
  return (disk.list(directory) ?? []).some(({ name }) => /\.log(\.swap)?$/.test(name));
}

function isWithoutRecords(disk: Disk, directory: string): boolean {
  const logs = (disk.list(directory) ?? []).filter(({ name }) => /\.log(\.swap)?$/.test(name));
  return logs.every(({ name }) => {
    return /^0+\.log$/.test(name) && disk.fileSize(`${directory}/${name}`) === 0;
  });
}
