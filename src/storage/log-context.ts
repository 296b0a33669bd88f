/**
 * What a log is constructed from: the ports all logs of a broker share, and its own loaded state.
 *
 * Made by the log manager; `log.ts` and `log-store.ts` take it as it is.
 */
import type { Logger } from '../base/logger.ts';
import type { Uuid } from '../base/uuid.ts';
import type { Clock, Compression, Disk } from '../io/runtime.ts';
import type { LogConfig } from './log-config.ts';
import type { LoadedLog } from './log-recovery.ts';
import type { OpenFiles } from './open-files.ts';
import type { TopicPartition } from './topic-partition.ts';

/** What all logs of a broker share. */
export interface LogContext {
  readonly disk: Disk;
  readonly files: OpenFiles;
  readonly clock: Clock;
  readonly compression: Compression;
  readonly logger: Logger;
  /** Makes the recovery points of all logs durable, at once. */
  readonly checkpointRecoveryPoints: () => void;
}

/** What a log is made of. */
export interface NewLog {
  readonly topicPartition: TopicPartition;
  readonly topicId: Uuid | undefined;
  readonly directory: string;
  readonly config: LogConfig;
  readonly loaded: LoadedLog;
}
