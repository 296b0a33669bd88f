/**
 * What a fetch asks of a partition and what it gets: shared by partition, replica manager and
 * fetch sessions, and by the handler of API 1.
 *
 * Records are chunks of log bytes handed on by reference: nobody changes them, nobody copies them.
 */
import type { Uuid } from '../base/uuid.ts';
import { ZERO_UUID } from '../base/uuid.ts';
import type { ErrorCode } from '../protocol/errors.ts';

/** `replicaId` of a consumer's (and a mirror's) fetch. */
export const CONSUMER_REPLICA_ID = -1;

/** What bounds a reader: a replica reads to the log end, others to the HW or the LSO. */
export type ReadIsolation = 'logEnd' | 'highWatermark' | 'lastStable';

/** The parts of a fetch that hold for all its partitions. */
export interface FetchParams {
  /** {@link CONSUMER_REPLICA_ID}, or the broker id of a follower. */
  readonly replicaId: number;
  /** The follower's broker epoch (KIP-903), −1 when not sent. */
  readonly replicaEpoch: number;
  readonly maxWaitMs: number;
  readonly minBytes: number;
  /** Of the whole response; exceeded only by one batch, the first. */
  readonly maxBytes: number;
  /** READ_COMMITTED; without effect for a follower. */
  readonly readCommitted: boolean;
  /** The reader is a mirror, which takes aborted batches as they are (rule P3). */
  readonly mirrorFetch: boolean;
  /** A consumer that goes to a preferred read replica when told so (KIP-392). */
  readonly canChangeReplica?: boolean;
}

/** One partition of a fetch. The id decides when it is not zero, else the name. */
export interface FetchPartition {
  readonly topicId: Uuid;
  /** Empty when only the id is known. */
  readonly topic: string;
  readonly partition: number;
  readonly fetchOffset: number;
  readonly maxBytes: number;
  /** −1: not checked. */
  readonly currentLeaderEpoch: number;
  /** −1: no divergence check. */
  readonly lastFetchedEpoch: number;
  /** The follower's log start; −1 from consumers. */
  readonly logStartOffset: number;
}

/** An aborted transaction in the range of a READ_COMMITTED fetch. */
export interface AbortedTransaction {
  readonly producerId: bigint;
  readonly firstOffset: number;
}

/** Who leads now, for clients that asked the wrong broker (KIP-951). */
export interface CurrentLeader {
  readonly leaderId: number;
  readonly leaderEpoch: number;
}

/** Where a reader's log and ours part (KIP-595). */
export interface DivergingEpoch {
  readonly epoch: number;
  readonly endOffset: number;
}

/** The answer for one partition. Offsets are −1 with an error. */
export interface FetchResult {
  readonly topicId: Uuid;
  readonly topic: string;
  readonly partition: number;
  readonly error: ErrorCode;
  readonly highWatermark: number;
  readonly lastStableOffset: number;
  readonly logStartOffset: number;
  readonly records: readonly Uint8Array[];
  /** Of the batches in the log; a stand-in in `records` may be smaller (rule P3). */
  readonly bytes: number;
  /** Only for READ_COMMITTED. */
  readonly abortedTransactions?: readonly AbortedTransaction[] | undefined;
  /** Without records then. */
  readonly divergingEpoch?: DivergingEpoch | undefined;
  /** A follower that has what we have not; without records then. */
  readonly preferredReadReplica?: number | undefined;
  /** An error that passes: the reader may wait for other data before it hears of it. */
  readonly isPassing?: boolean;
  /** With NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, when known. */
  readonly currentLeader?: CurrentLeader | undefined;
}

/** How a reader is bounded. */
export function isolationOf(
  params: Pick<FetchParams, 'replicaId' | 'readCommitted'>,
): ReadIsolation {
  if (params.replicaId >= 0) return 'logEnd';
  return params.readCommitted ? 'lastStable' : 'highWatermark';
}

/** Identifies a partition within a fetch or a fetch session. */
export function fetchKey(topicId: Uuid, topic: string, partition: number): string {
  return topicId === ZERO_UUID ? `:${topic}:${partition}` : `${topicId}:${partition}`;
}

/** An answer without data. */
export function fetchFailure(
  request: FetchPartition,
  error: ErrorCode,
  currentLeader?: CurrentLeader,
): FetchResult {
  return {
    topicId: request.topicId,
    topic: request.topic,
    partition: request.partition,
    error,
    highWatermark: -1,
    lastStableOffset: -1,
    logStartOffset: -1,
    records: [],
    bytes: 0,
    currentLeader,
  };
}
