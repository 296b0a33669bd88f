/**
 * Settings of the group coordinator and the ports it needs, besides the log.
 *
 * The server derives both from the broker's properties and its metadata image; tests write them
 * by hand. Names in comments are Kafka's property names.
 */
import type { Uuid } from '../base/uuid.ts';

/** Limits and delays of classic groups and their offsets. */
export interface GroupConfig {
  /** group.min.session.timeout.ms */
  readonly minSessionTimeoutMs: number;
  /** group.max.session.timeout.ms */
  readonly maxSessionTimeoutMs: number;
  /** group.initial.rebalance.delay.ms */
  readonly initialRebalanceDelayMs: number;
  /** group.max.size */
  readonly maxSize: number;
  /** offset.metadata.max.bytes */
  readonly offsetMetadataMaxBytes: number;
  /** offsets.retention.minutes, in milliseconds. */
  readonly offsetsRetentionMs: number;
  /** offsets.retention.check.interval.ms */
  readonly offsetsRetentionCheckIntervalMs: number;
  /** offsets.commit.timeout.ms */
  readonly offsetCommitTimeoutMs: number;
}

/** Kafka's defaults. */
export const DEFAULT_GROUP_CONFIG: GroupConfig = {
  minSessionTimeoutMs: 6_000,
  maxSessionTimeoutMs: 1_800_000,
  initialRebalanceDelayMs: 3_000,
  maxSize: 0x7fffffff,
  offsetMetadataMaxBytes: 4_096,
  offsetsRetentionMs: 7 * 24 * 60 * 60_000,
  offsetsRetentionCheckIntervalMs: 600_000,
  offsetCommitTimeoutMs: 5_000,
};

/** What the coordinator must know of topics; answers from the newest metadata image. */
export interface TopicResolver {
  idOf(name: string): Uuid | undefined;
  nameOf(id: Uuid): string | undefined;
  /** Whether the topic has that partition. */
  exists(name: string, partition: number): boolean;
}

/** Who sent a request. */
export interface GroupRequestContext {
  /** Empty when the client gave none. */
  readonly clientId: string;
  /** As Apache Kafka shows it: a slash and the address. */
  readonly clientHost: string;
}
