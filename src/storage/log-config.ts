/**
 * The settings of one log, already parsed: what `server/config` makes of topic and broker settings.
 *
 * Times are milliseconds, sizes bytes; −1 means unlimited where Apache Kafka says so. Values beyond
 * 2^53 (Long.MAX_VALUE as "never") are given as `Number.MAX_SAFE_INTEGER`.
 */
import type { CompressionType } from '../io/runtime.ts';

/** Which segments may go: old ones, superseded keys, or both. */
export type CleanupPolicy = 'delete' | 'compact' | 'delete,compact';

/** `producer` keeps what the producer chose; `none` is Kafka's `uncompressed`. */
export type LogCompression = 'producer' | CompressionType;

/** Whose clock the timestamps of records are from. */
export type MessageTimestampType = 'CreateTime' | 'LogAppendTime';

/** Topic settings by their Kafka names in camel case. */
export interface LogConfig {
  readonly segmentBytes: number;
  readonly segmentMs: number;
  readonly segmentJitterMs: number;
  readonly segmentIndexBytes: number;
  readonly indexIntervalBytes: number;
  readonly retentionMs: number;
  readonly retentionBytes: number;
  readonly fileDeleteDelayMs: number;
  readonly flushMessages: number;
  readonly flushMs: number;
  /** A record counts as committed only once it is durable here; no setting of Apache Kafka's. */
  readonly flushBeforeCommit: boolean;
  readonly cleanupPolicy: CleanupPolicy;
  readonly compressionType: LogCompression;
  readonly maxMessageBytes: number;
  readonly messageTimestampType: MessageTimestampType;
  readonly messageTimestampBeforeMaxMs: number;
  readonly messageTimestampAfterMaxMs: number;
  readonly minInsyncReplicas: number;
  readonly uncleanLeaderElectionEnable: boolean;
  readonly deleteRetentionMs: number;
  readonly minCompactionLagMs: number;
  readonly maxCompactionLagMs: number;
  readonly minCleanableDirtyRatio: number;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Apache Kafka 4.2's defaults. */
export const DEFAULT_LOG_CONFIG: LogConfig = Object.freeze({
  segmentBytes: 1024 ** 3,
  segmentMs: 7 * DAY_MS,
  segmentJitterMs: 0,
  segmentIndexBytes: 10 * 1024 ** 2,
  indexIntervalBytes: 4096,
  retentionMs: 7 * DAY_MS,
  retentionBytes: -1,
  fileDeleteDelayMs: 60_000,
  flushMessages: Number.MAX_SAFE_INTEGER,
  flushMs: Number.MAX_SAFE_INTEGER,
  flushBeforeCommit: false,
  cleanupPolicy: 'delete',
  compressionType: 'producer',
  maxMessageBytes: 1_048_588,
  messageTimestampType: 'CreateTime',
  messageTimestampBeforeMaxMs: Number.MAX_SAFE_INTEGER,
  messageTimestampAfterMaxMs: HOUR_MS,
  minInsyncReplicas: 1,
  uncleanLeaderElectionEnable: false,
  deleteRetentionMs: DAY_MS,
  minCompactionLagMs: 0,
  maxCompactionLagMs: Number.MAX_SAFE_INTEGER,
  minCleanableDirtyRatio: 0.5,
});

/** Whether keys are compacted, so that every record needs one. */
export function isCompacted(config: LogConfig): boolean {
  return config.cleanupPolicy !== 'delete';
}

/** Whether old segments are deleted by time and size. */
export function isDeleted(config: LogConfig): boolean {
  return config.cleanupPolicy !== 'compact';
}

/** Age at which a segment is rolled; its records must be in reach of compaction in time. */
export function maxSegmentMs(config: LogConfig): number {
  const { segmentMs, maxCompactionLagMs } = config;
  return isCompacted(config) ? Math.min(segmentMs, maxCompactionLagMs) : segmentMs;
}
