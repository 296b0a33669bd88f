/**
 * What a reader gets of a partition led here: the records, where its log parts from ours, or why
 * neither.
 *
 * Functions over `Partition`, which calls them under its own guard and tells who follows. A reader
 * of what a partial log does not have (log.ts) is sent to a replica that has it, as long as one is
 * there and the reader can go there; else it is told to ask again, after it has waited.
 */
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type { Log } from '../storage/log.ts';
import { hideAbortedBatches } from './aborted-batches.ts';
import {
  type AbortedTransaction,
  type DivergingEpoch,
  type FetchParams,
  type FetchPartition,
  type FetchResult,
  isolationOf,
  type ReadIsolation,
} from './fetch-types.ts';

/** What is read. */
export interface ReadablePartition {
  readonly topic: string;
  readonly log: Log;
  upperBound(isolation: ReadIsolation): number;
  /** A live follower that has the record at `offset`. */
  readReplicaFor(offset: number): number | undefined;
}

/** What one partition of a fetch may bring. */
export interface ReadLimits {
  readonly maxBytes: number;
  readonly minOneBatch: boolean;
}

/** What a read found; not yet an answer. */
export type PartitionRead =
  | { readonly error: Exclude<ErrorCode, 0> }
  | {
      readonly error: 0;
      readonly records: readonly Uint8Array[];
      readonly bytes: number;
      readonly abortedTransactions?: readonly AbortedTransaction[] | undefined;
      readonly divergingEpoch?: DivergingEpoch | undefined;
      readonly preferredReadReplica?: number | undefined;
    };

const NOTHING: PartitionRead = { error: 0, records: [], bytes: 0 };

/** Whether a fetch is out of our log's range, as far as its offset alone says. */
export function rangeError(log: Log, request: FetchPartition): ErrorCode {
  const { logStartOffset } = log;
  const { fetchOffset, lastFetchedEpoch } = request;
  // Restarted inside a batch, a log ends below its start, where its readers wait (F9).
  const end = Math.max(logStartOffset, log.logEndOffset);
  const isBeyond = lastFetchedEpoch < 0 && fetchOffset > end;
  return isBeyond || fetchOffset < logStartOffset ? errors.OFFSET_OUT_OF_RANGE.code : 0;
}

/** Reads for a consumer or a follower. Errors: OFFSET_OUT_OF_RANGE, and the log's. */
export function readPartition(
  partition: ReadablePartition,
  request: FetchPartition,
  params: FetchParams,
  limits: ReadLimits,
): PartitionRead {
  const { log } = partition;
  const { fetchOffset } = request;
  const isReplica = params.replicaId >= 0;
  const divergingEpoch = findDivergence(log, request, isReplica);
  if (divergingEpoch === 'unknown') return { error: errors.OFFSET_OUT_OF_RANGE.code };
  if (divergingEpoch !== undefined) return { error: 0, records: [], bytes: 0, divergingEpoch };
  if (log.isElsewhere(fetchOffset)) return readElsewhere(partition, fetchOffset, params);
  const isolation = isolationOf(params);
  const { minOneBatch } = limits;
  // A follower cannot append more at once than a segment holds (G15).
  const most = isReplica ? log.config.segmentBytes : Number.POSITIVE_INFINITY;
  const maxBytes = Math.min(limits.maxBytes, most);
  const isEmpty = fetchOffset >= partition.upperBound(isolation) || (maxBytes <= 0 && !minOneBatch);
  if (isEmpty) return NOTHING;
  const read = log.read(fetchOffset, maxBytes, isolation, minOneBatch);
  if (read.error !== 0 || read.abortedTransactions === undefined) return read;
  if (params.mirrorFetch) return read;
  return { ...read, records: hideAbortedBatches(read.records, read.abortedTransactions) };
}

/** G29: consumers below the begin of a partial log are served by a replica that has it all. */
function readElsewhere(
  partition: ReadablePartition,
  offset: number,
  params: FetchParams,
): PartitionRead {
  const replica = params.canChangeReplica ? partition.readReplicaFor(offset) : undefined;
  if (replica === undefined) return { error: errors.NOT_LEADER_OR_FOLLOWER.code };
  return { error: 0, records: [], bytes: 0, preferredReadReplica: replica };
}

/**
 * Where a reader's log parts from ours, judged by the epoch of the last batch it has (KIP-595);
 * undefined when it does not, or when the reader did not say; `unknown` when we have no such old
 * epoch, and the reader must start over at our log start.
 *
 * A partial log knows the epochs below its begin from the leader before. An epoch older than all it
 * knows ends where the first of them starts, so that a reader with less than that is not cut.
 */
function findDivergence(
  log: Log,
  request: FetchPartition,
  isReplica: boolean,
): DivergingEpoch | 'unknown' | undefined {
  if (request.lastFetchedEpoch < 0) return isReplica ? beginAnew(log, request) : undefined;
  const end = log.epochEndOffset(request.lastFetchedEpoch);
  if (end.leaderEpoch < 0 || end.endOffset < 0) return 'unknown';
  const same = end.leaderEpoch === request.lastFetchedEpoch && end.endOffset >= request.fetchOffset;
  return same ? undefined : { epoch: end.leaderEpoch, endOffset: end.endOffset };
}

/**
 * Where a replica without a record must begin anew, if it must. It ends where our log once began or
 * was cut (T3, T5); when that went back, or a batch holds that offset (F9), the first batch is not
 * what it can go on with: it would miss records, or be marked as failed (G15).
 */
function beginAnew(log: Log, request: FetchPartition): DivergingEpoch | undefined {
  const { logStartOffset } = log;
  const { fetchOffset } = request;
  const isEmptyThere = request.logStartOffset === fetchOffset;
  if (isEmptyThere && fetchOffset === logStartOffset) return undefined;
  const base = log.firstBatchOffset() ?? Number.POSITIVE_INFINITY;
  if (request.logStartOffset <= logStartOffset && base >= fetchOffset) return undefined;
  return { epoch: log.latestEpoch ?? 0, endOffset: Math.min(logStartOffset, base) };
}

/** The answer to a read. */
export function fetchAnswer(
  { topic, log }: ReadablePartition,
  request: FetchPartition,
  read: Extract<PartitionRead, { error: 0 }>,
): FetchResult {
  return {
    topicId: request.topicId,
    topic,
    partition: request.partition,
    error: 0,
    highWatermark: log.highWatermark,
    lastStableOffset: log.lastStableOffset,
    logStartOffset: log.logStartOffset,
    records: read.records,
    bytes: read.bytes,
    abortedTransactions: read.abortedTransactions,
    divergingEpoch: read.divergingEpoch,
    preferredReadReplica: read.preferredReadReplica,
  };
}
