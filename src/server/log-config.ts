/**
 * Makes the parsed settings that storage works with.
 *
 * A topic's overrides win over the broker's defaults. Called by `broker.ts` for every log and again
 * when a topic's overrides change.
 */
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';
import { MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import type {
  CleanupPolicy,
  LogCompression,
  LogConfig,
  MessageTimestampType,
} from '../storage/log-config.ts';
import type { BrokerConfig } from './broker-config.ts';
import { hasCleanupPolicy } from './topic-config.ts';

/** The settings of a topic's logs as the metadata says now. */
export function logConfigOf(topic: string, image: MetadataImage, config: BrokerConfig): LogConfig {
  const overrides = image.configs(ConfigResourceType.TOPIC, topic);
  const text = (name: string): string => (overrides.get(name) ?? config.topicDefault(name)).trim();
  // Long.MAX_VALUE means "never"; doubles cannot hold it exactly.
  const number = (name: string): number => Math.min(Number(text(name)), Number.MAX_SAFE_INTEGER);
  const compression = text('compression.type');
  return {
    segmentBytes: number('segment.bytes'),
    segmentMs: number('segment.ms'),
    segmentJitterMs: number('segment.jitter.ms'),
    segmentIndexBytes: number('segment.index.bytes'),
    indexIntervalBytes: number('index.interval.bytes'),
    retentionMs: number('retention.ms'),
    retentionBytes: number('retention.bytes'),
    fileDeleteDelayMs: number('file.delete.delay.ms'),
    flushMessages: number('flush.messages'),
    flushMs: number('flush.ms'),
    // What a mirror row speaks of is acted on at once, and may be durable before it (S2).
    flushBeforeCommit: topic === MIRROR_STATE_TOPIC,
    cleanupPolicy: cleanupPolicy(text('cleanup.policy')),
    compressionType: (compression === 'uncompressed' ? 'none' : compression) as LogCompression,
    maxMessageBytes: number('max.message.bytes'),
    messageTimestampType: text('message.timestamp.type') as MessageTimestampType,
    messageTimestampBeforeMaxMs: number('message.timestamp.before.max.ms'),
    messageTimestampAfterMaxMs: number('message.timestamp.after.max.ms'),
    minInsyncReplicas: number('min.insync.replicas'),
    uncleanLeaderElectionEnable: /^true$/i.test(text('unclean.leader.election.enable')),
    deleteRetentionMs: number('delete.retention.ms'),
    minCompactionLagMs: number('min.compaction.lag.ms'),
    maxCompactionLagMs: number('max.compaction.lag.ms'),
    minCleanableDirtyRatio: number('min.cleanable.dirty.ratio'),
  };
}

function cleanupPolicy(text: string): CleanupPolicy {
  if (!hasCleanupPolicy(text, 'compact')) return 'delete';
  return hasCleanupPolicy(text, 'delete') ? 'delete,compact' : 'compact';
}
