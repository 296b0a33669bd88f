/**
 * What a log is constructed from: the ports all logs of a broker share, and its own loaded state.
 *
 * Made by the log manager; `log.ts` and `log-store.ts` take it as it is.
 */
import type { BufferPool } from '../base/buffer-pool.ts';
import type { Logger } from '../base/logger.ts';
import type { Uuid } from '../base/uuid.ts';
import type { Clock, Compression, Disk, Random } from '../io/runtime.ts';
import type { DueTimes } from './due-times.ts';
import type { LogConfig } from './log-config.ts';
import type { LoadedLog } from './log-recovery.ts';
import type { OpenFiles } from './open-files.ts';
import type { TopicPartition } from './topic-partition.ts';

/** A log as `flush.ms` knows it. */
export interface FlushTarget {
  /** Begins a flush; nobody waits for it, a failure takes the log offline. */
  flushSoon(): void;
}

/** What all logs of a broker share. */
export interface LogContext {
  readonly disk: Disk;
  readonly files: OpenFiles;
  readonly clock: Clock;
  /** For `segment.jitter.ms`. */
  readonly random: Random;
  readonly compression: Compression;
  readonly logger: Logger;
  /** What reads go into. */
  readonly buffers: BufferPool;
  /** Logs with something to flush and `flush.ms`. */
  readonly flushes: DueTimes<FlushTarget>;
  /** Makes the partition directories themselves durable. */
  readonly syncLogDirectory: () => void;
  /** Makes the recovery points of all logs durable, at once. */
  readonly checkpointRecoveryPoints: () => void;
  /** The same for the log starts. */
  readonly checkpointLogStarts: () => void;
  /** The same for the offsets up to which logs are compacted. */
  readonly checkpointCleanedOffsets: () => void;
}

/** What a log is made of. */
export interface NewLog {
  readonly topicPartition: TopicPartition;
  readonly topicId: Uuid | undefined;
  readonly directory: string;
  readonly config: LogConfig;
  readonly loaded: LoadedLog;
  /** Up to where it was compacted; undefined: it was not. */
  readonly firstDirtyOffset: number | undefined;
}
