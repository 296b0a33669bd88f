/**
 * Produce over several partitions: append each, then wait as `acks` asks.
 *
 * `acks` 0 and 1 answer at once; −1 waits until the high watermark of each partition passes its
 * records, and answers per partition. All appends happen before anything waits.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Clock } from '../io/runtime.ts';
import { INTERNAL_TOPIC_NAMES } from '../metadata/topic-names.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { AppendResult } from '../storage/log.ts';
import type { CurrentLeader } from './fetch-types.ts';
import type { AppendSource, Partition } from './partition.ts';
import type { PartitionKey, PartitionTable } from './partition-table.ts';
import { whenPartition } from './purgatory.ts';

/** The parts of a produce that hold for all its partitions. */
export interface ProduceParams {
  /** −1, 0 or 1; anything else is INVALID_REQUIRED_ACKS. */
  readonly acks: number;
  /** How long acks −1 may wait. */
  readonly timeoutMs: number;
  readonly source: AppendSource;
}

/** Batches for one partition; offsets and leader epoch are written into `records`. */
export interface ProduceEntry extends PartitionKey {
  readonly records: Uint8Array;
}

/** A record that made its batch be refused. */
export type RecordError = NonNullable<
  Extract<AppendResult, { readonly message: string }>['recordErrors']
>[number];

/** The answer for one partition. Offsets and time are −1 with an error. */
export interface ProduceResult {
  readonly topic: string;
  readonly topicId: Uuid;
  readonly partition: number;
  readonly error: ErrorCode;
  /** With an error: what a client may show (R3 among them). */
  readonly message?: string | undefined;
  readonly recordErrors?: readonly RecordError[] | undefined;
  readonly baseOffset: number;
  /** −1 unless the topic stamps records itself. */
  readonly logAppendTimeMs: number;
  readonly logStartOffset: number;
  /** With NOT_LEADER_OR_FOLLOWER, when known. */
  readonly currentLeader?: CurrentLeader | undefined;
}

/** An appended entry that may have to wait. */
interface Appended {
  readonly result: ProduceResult;
  readonly partition: Partition | undefined;
  /** The high watermark that makes it committed. */
  readonly requiredOffset: number;
}

/** See the file header. Answers in the order of `entries`. */
export function produce(
  clock: Clock,
  table: PartitionTable,
  params: ProduceParams,
  entries: readonly ProduceEntry[],
): Promise<ProduceResult[]> {
  if (params.acks < -1 || params.acks > 1) {
    const refused = entries.map((entry) => failure(entry, errors.INVALID_REQUIRED_ACKS.code));
    return Promise.resolve(refused);
  }
  const appended = entries.map((entry) => append(table, params, entry));
  if (params.acks !== -1 || appended.every(isCommitted)) {
    return Promise.resolve(appended.map((each) => each.result));
  }
  return Promise.all(appended.map((each) => committed(clock, params.timeoutMs, each)));
}

function append(table: PartitionTable, params: ProduceParams, entry: ProduceEntry): Appended {
  const none = { partition: undefined, requiredOffset: 0 };
  const partition = table.find(entry);
  // By topic id, the name is known only here.
  if (params.source === 'client' && INTERNAL_TOPIC_NAMES.has(partition?.topic ?? entry.topic)) {
    return { result: failure(entry, errors.INVALID_TOPIC_EXCEPTION.code), ...none };
  }
  if (partition === undefined) {
    const error = table.missingError(entry);
    return {
      result: { ...failure(entry, error), currentLeader: table.currentLeader(entry) },
      ...none,
    };
  }
  const outcome = partition.append(params.source, entry.records, params.acks);
  if (outcome.error !== 0) {
    const currentLeader =
      outcome.error === errors.NOT_LEADER_OR_FOLLOWER.code ? table.currentLeader(entry) : undefined;
    const { error, message, recordErrors } = outcome;
    return { result: { ...failure(entry, error, message), recordErrors, currentLeader }, ...none };
  }
  const result: ProduceResult = {
    topic: entry.topic,
    topicId: entry.topicId,
    partition: entry.partition,
    error: 0,
    baseOffset: outcome.firstOffset,
    logAppendTimeMs: outcome.logAppendTimeMs,
    logStartOffset: outcome.logStartOffset,
  };
  return { result, partition, requiredOffset: outcome.lastOffset + 1 };
}

function isCommitted({ partition, requiredOffset }: Appended): boolean {
  return partition === undefined || partition.log.highWatermark >= requiredOffset;
}

function committed(clock: Clock, timeoutMs: number, appended: Appended): Promise<ProduceResult> {
  const { partition, requiredOffset, result } = appended;
  if (partition === undefined) return Promise.resolve(result);
  return whenPartition(
    clock,
    partition.watchers,
    timeoutMs,
    () => {
      const notLeader = partition.leaderError(-1);
      if (notLeader !== 0) return failure(result, notLeader);
      if (partition.log.highWatermark < requiredOffset) return undefined;
      if (!partition.isUnderMinIsr()) return result;
      return failure(result, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND.code);
    },
    () => failure(result, errors.REQUEST_TIMED_OUT.code),
  );
}

function failure(key: PartitionKey, error: ErrorCode, message?: string): ProduceResult {
  return {
    topic: key.topic,
    topicId: key.topicId,
    partition: key.partition,
    error,
    message,
    baseOffset: -1,
    logAppendTimeMs: -1,
    logStartOffset: -1,
  };
}
