/**
 * ListOffsets and OffsetForLeaderEpoch for one partition that this broker leads.
 *
 * Pure look-ups over a `Partition`; `ReplicaManager` finds the partition and the handlers of APIs 2
 * and 23 turn the answers into versions. There is no tiered storage: "latest tiered" and
 * "earliest pending upload" find nothing, as in Apache Kafka without it, and "earliest local" is
 * the log start, except in a partial log.
 */
import type { Uuid } from '../base/uuid.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { FoundTimestamp } from '../storage/log-reader.ts';
import type { ReadIsolation } from './fetch-types.ts';
import type { Partition } from './partition.ts';

/** Timestamps with a meaning of their own in ListOffsets. */
export const OffsetSpec = {
  LATEST: -1n,
  EARLIEST: -2n,
  MAX_TIMESTAMP: -3n,
  EARLIEST_LOCAL: -4n,
  LATEST_TIERED: -5n,
  EARLIEST_PENDING_UPLOAD: -6n,
} as const;

/** Names a partition for the look-ups of this file. */
export interface PartitionQuestion {
  readonly topic: string;
  /** Zero: by name. */
  readonly topicId: Uuid;
  readonly partition: number;
  /** −1: not checked. */
  readonly currentLeaderEpoch: number;
}

/** A question of ListOffsets. */
export interface OffsetQuery extends PartitionQuestion {
  /** Milliseconds since 1970, or one of {@link OffsetSpec}. */
  readonly timestamp: bigint;
}

/** Offset, timestamp and leader epoch are −1 when nothing was found or with an error. */
export interface OffsetAnswer {
  readonly error: ErrorCode;
  readonly offset: number;
  readonly timestamp: bigint;
  readonly leaderEpoch: number;
}

/** A question of OffsetForLeaderEpoch. */
export interface EpochQuery extends PartitionQuestion {
  readonly leaderEpoch: number;
}

/** Epoch and end offset are −1 when the leader knows none, or with an error. */
export interface EpochAnswer {
  readonly error: ErrorCode;
  readonly leaderEpoch: number;
  readonly endOffset: number;
}

/** The answer with nothing in it. */
export function noOffset(error: ErrorCode): OffsetAnswer {
  return { error, offset: -1, timestamp: -1n, leaderEpoch: -1 };
}

/**
 * Looks an offset up; `isolation` is `logEnd` for a replica. Errors: those of leadership and epoch,
 * OFFSET_NOT_AVAILABLE, UNSUPPORTED_FOR_MESSAGE_FORMAT never, INVALID_REQUEST for an unknown spec.
 */
export function listOffset(
  partition: Partition,
  query: OffsetQuery,
  isolation: ReadIsolation,
): OffsetAnswer {
  const notLeader = partition.leaderError(query.currentLeaderEpoch);
  if (notLeader !== 0) return noOffset(notLeader);
  const { log } = partition;
  switch (query.timestamp) {
    case OffsetSpec.LATEST:
      // A new leader does not know yet how far its predecessor had committed.
      if (isolation !== 'logEnd' && log.highWatermark < partition.leaderEpochStartOffset) {
        return noOffset(errors.OFFSET_NOT_AVAILABLE.code);
      }
      // Restarted inside a batch, a log ends below its start, where its readers wait (F9).
      return at(Math.max(partition.upperBound(isolation), log.logStartOffset), log.latestEpoch);
    case OffsetSpec.EARLIEST:
      return at(log.logStartOffset, log.epochForOffset(log.logStartOffset));
    case OffsetSpec.EARLIEST_LOCAL:
      return at(log.localLogStartOffset, log.epochForOffset(log.localLogStartOffset));
    case OffsetSpec.LATEST_TIERED:
    case OffsetSpec.EARLIEST_PENDING_UPLOAD:
      return noOffset(0);
    case OffsetSpec.MAX_TIMESTAMP:
      return found(log.maxTimestamp(), partition.upperBound(isolation));
    default:
      if (query.timestamp < 0n) return noOffset(errors.INVALID_REQUEST.code);
      return found(log.offsetForTimestamp(query.timestamp), partition.upperBound(isolation));
  }
}

/** The end of a leader epoch. Errors: those of leadership and epoch. */
export function offsetForLeaderEpoch(partition: Partition, query: EpochQuery): EpochAnswer {
  const notLeader = partition.leaderError(query.currentLeaderEpoch);
  if (notLeader !== 0) return { error: notLeader, leaderEpoch: -1, endOffset: -1 };
  const { leaderEpoch, endOffset } = partition.log.epochEndOffset(query.leaderEpoch);
  return { error: 0, leaderEpoch, endOffset };
}

function at(offset: number, leaderEpoch: number | undefined): OffsetAnswer {
  return { error: 0, offset, timestamp: -1n, leaderEpoch: leaderEpoch ?? -1 };
}

/** What lies at or beyond the reader's bound is not found. */
function found(hit: FoundTimestamp, upperBound: number): OffsetAnswer {
  if (hit === 'elsewhere') return noOffset(errors.OFFSET_NOT_AVAILABLE.code);
  if (hit === undefined || hit.offset >= upperBound) return noOffset(0);
  const { offset, timestamp, leaderEpoch } = hit;
  return { error: 0, offset, timestamp, leaderEpoch };
}
