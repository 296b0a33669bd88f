/**
 * The group coordinator's settings, read from the broker's.
 *
 * Called once by `broker.ts`. What the broker has no setting for keeps the coordinator's default.
 */
import { DEFAULT_GROUP_CONFIG, type GroupConfig } from '../coordinator/group-config.ts';
import type { BrokerConfig } from './broker-config.ts';

const MINUTE_MS = 60_000;

/** See {@link GroupConfig} for the names. */
export function groupConfigOf(config: BrokerConfig): GroupConfig {
  return {
    ...DEFAULT_GROUP_CONFIG,
    minSessionTimeoutMs: config.number('group.min.session.timeout.ms'),
    maxSessionTimeoutMs: config.number('group.max.session.timeout.ms'),
    initialRebalanceDelayMs: config.number('group.initial.rebalance.delay.ms'),
    maxSize: config.number('group.max.size'),
    offsetMetadataMaxBytes: config.number('offset.metadata.max.bytes'),
    offsetsRetentionMs: config.number('offsets.retention.minutes') * MINUTE_MS,
    offsetsRetentionCheckIntervalMs: config.number('offsets.retention.check.interval.ms'),
  };
}
