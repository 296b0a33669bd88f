/**
 * What a follower asks its leader before it begins in the middle of the log (G29): where that log
 * begins and ends, which epochs the records below have, and which transactions are open there.
 *
 * Questions only; `follower-manager.ts` acts on the answers. Without the epochs below, this replica
 * as leader could not tell a replica that had parted from the others there; without the open
 * transactions it would call their records decided.
 */
import { errors } from '../protocol/errors.ts';
import type { EpochEntry } from '../storage/checkpoints.ts';
import type { SnapshotEntry } from '../storage/producer-snapshot.ts';
import type { FollowedLeader } from './follower-endpoint.ts';
import type { EndpointOffset } from './leader-endpoint.ts';
import { OffsetSpec } from './list-offsets.ts';

/** Epochs learned at most; older ones are left out. */
export const MAX_LEARNED_EPOCHS = 1000;

/** Where to begin: an offset, or wherever the leader has its first record. */
export type FollowFrom = number | 'logStart';

/** The leader did not answer as it must; asking again may help. */
export class BeginRefused extends Error {
  override readonly name = 'BeginRefused';
}

/** The partition that is asked about, and the leader epoch that is known of it. */
export interface FollowedPartition {
  readonly topic: string;
  readonly partition: number;
  readonly currentLeaderEpoch: number;
}

/** Where the leader's log begins and ends, and the epoch of its last record. */
export interface LeaderRange {
  readonly earliest: number;
  /** Above the log start when the leader itself has begun in the middle. */
  readonly earliestLocal: number;
  readonly latest: number;
  readonly latestEpoch: number;
}

/** How an empty log is to begin. */
export interface Begin {
  readonly offset: number;
  readonly logStartOffset: number;
  /** Of the records below `offset`, ascending. */
  readonly epochs: readonly EpochEntry[];
  /** Begun below `offset`. */
  readonly openTransactions: readonly SnapshotEntry[];
}

/** Rejects with {@link BeginRefused}, or when there is no answer. */
export async function leaderRange(
  leader: FollowedLeader,
  partition: FollowedPartition,
): Promise<LeaderRange> {
  // One after the other: a request names a partition once.
  const ask = async (timestamp: bigint): Promise<EndpointOffset> => {
    const [answer] = await leader.listOffsets([{ ...partition, timestamp }]);
    const errorCode = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
    if (answer !== undefined && errorCode === errors.NONE.code) return answer;
    throw new BeginRefused(`ListOffsets failed with error ${errorCode}`);
  };
  const { offset: earliest } = await ask(OffsetSpec.EARLIEST);
  const { offset: earliestLocal } = await ask(OffsetSpec.EARLIEST_LOCAL);
  const { offset: latest, leaderEpoch: latestEpoch } = await ask(OffsetSpec.LATEST);
  return { earliest, earliestLocal, latest, latestEpoch };
}

/** Asks all that is needed to begin. Rejects as {@link leaderRange}. */
export async function planBegin(
  leader: FollowedLeader,
  partition: FollowedPartition,
  from: FollowFrom,
): Promise<Begin> {
  const range = await leaderRange(leader, partition);
  const logStartOffset = range.earliest;
  const offset = Math.max(from === 'logStart' ? 0 : from, range.earliestLocal);
  if (offset > range.latest) {
    throw new BeginRefused(`offset ${offset} is beyond the leader's log end ${range.latest}`);
  }
  if (offset === logStartOffset) {
    return { offset, logStartOffset, epochs: [], openTransactions: [] };
  }
  const epochs = await epochsBelow(leader, partition, range, offset);
  const open = await leader.openTransactions(partition.topic, partition.partition);
  const openTransactions = open.filter((producer) => producer.currentTxnFirstOffset < offset);
  return { offset, logStartOffset, epochs, openTransactions };
}

/**
 * Walks down from the leader's last epoch: where the epoch below one ends, that one starts. An
 * epoch below all is answered with itself, ending where the first one starts; so a start that does
 * not move is the end of the walk.
 */
async function epochsBelow(
  leader: FollowedLeader,
  partition: FollowedPartition,
  { earliest, latestEpoch }: LeaderRange,
  offset: number,
): Promise<EpochEntry[]> {
  const entries: EpochEntry[] = [];
  let epoch = latestEpoch;
  let nextStart = Number.POSITIVE_INFINITY;
  for (let count = 0; epoch >= 0 && count < MAX_LEARNED_EPOCHS; count++) {
    const below = await epochEnd(leader, partition, epoch - 1);
    const startOffset = below?.endOffset ?? earliest;
    if (startOffset >= nextStart) break;
    if (startOffset < offset) entries.unshift({ epoch, startOffset });
    if (below === undefined || startOffset <= earliest) break;
    nextStart = startOffset;
    epoch = below.leaderEpoch;
  }
  return entries;
}

/** Where the newest epoch up to `leaderEpoch` ends; undefined: there is none. */
async function epochEnd(
  leader: FollowedLeader,
  partition: FollowedPartition,
  leaderEpoch: number,
): Promise<{ leaderEpoch: number; endOffset: number } | undefined> {
  if (leaderEpoch < 0) return undefined;
  const [answer] = await leader.offsetsForLeaderEpoch([{ ...partition, leaderEpoch }]);
  const errorCode = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
  if (answer === undefined || errorCode !== errors.NONE.code) {
    throw new BeginRefused(`OffsetForLeaderEpoch failed with error ${errorCode}`);
  }
  return answer.endOffset < 0 ? undefined : answer;
}
