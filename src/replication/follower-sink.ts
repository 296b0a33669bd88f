/**
 * What a leader's answer does to the log of a follower: appended, cut, its bounds moved.
 *
 * Functions over the `PartitionLog` that `Partition.followedLog` hands out, so they run only while
 * this broker follows in the leader epoch that was asked under, and never across a wait. As Apache
 * Kafka's followers do it, with one addition: an empty log takes a first batch that begins below
 * its end, since it may have been begun inside that batch (G30).
 */
import { errors } from '../protocol/errors.ts';
import { forEachBatch, RecordBatch } from '../protocol/record-batch.ts';
import type { DivergingEpoch } from './fetch-types.ts';
import type { Begin } from './follower-begin.ts';
import type { FetchedPartition, FetchTarget } from './leader-endpoint.ts';
import type { PartitionLog } from './partition-log.ts';

/** What an answer led to. */
export type FollowResult =
  | { readonly kind: 'followed'; readonly appendedBytes: number }
  | { readonly kind: 'truncated'; readonly from: number; readonly to: number }
  /** The leader's log does not hold our log end: its range must be asked for. */
  | { readonly kind: 'outOfRange' }
  | { readonly kind: 'refused'; readonly errorCode: number; readonly message: string };

/** What a fetch of the log as it stands asks for. */
export function targetOf(
  { log }: PartitionLog,
  partition: Pick<FetchTarget, 'topic' | 'topicId' | 'partition' | 'currentLeaderEpoch'>,
  maxBytes: number,
): FetchTarget {
  const { logStartOffset, logEndOffset } = log;
  const lastFetchedEpoch = log.latestEpoch ?? -1;
  return { ...partition, fetchOffset: logEndOffset, lastFetchedEpoch, logStartOffset, maxBytes };
}

/** Takes in one answer. */
export function follow(followed: PartitionLog, fetched: FetchedPartition): FollowResult {
  const { errorCode, divergingEpoch, records } = fetched;
  if (errorCode === errors.OFFSET_OUT_OF_RANGE.code) return { kind: 'outOfRange' };
  if (errorCode !== errors.NONE.code) {
    return { kind: 'refused', errorCode, message: 'the leader refuses the fetch' };
  }
  // Nothing else of such an answer counts: the next one tells the bounds.
  if (divergingEpoch !== undefined) return truncate(followed, divergingEpoch);
  const appended = append(followed, records);
  if (appended.kind === 'refused') return appended;
  followed.raiseHighWatermark(Math.min(fetched.highWatermark, followed.log.logEndOffset));
  if (!followed.followLogStart(fetched.logStartOffset)) return DISK_FAILED;
  followed.watchers.notify();
  return appended;
}

const DISK_FAILED: FollowResult = {
  kind: 'refused',
  errorCode: errors.KAFKA_STORAGE_ERROR.code,
  message: 'the log directory failed',
};

function append(followed: PartitionLog, records: Uint8Array): FollowResult {
  const { log } = followed;
  // The last batch may have been cut off by the limit.
  const { position } = forEachBatch(records, 0, records.length, () => true);
  if (position === 0) return { kind: 'followed', appendedBytes: 0 };
  const { baseOffset } = new RecordBatch(records, 0);
  if (log.isEmpty && baseOffset < log.logEndOffset && !moveBegin(followed, baseOffset)) {
    return DISK_FAILED;
  }
  const whole = position === records.length ? records : records.subarray(0, position);
  const result = followed.append(() => log.appendAsFollower([whole], { verifyCrc: true }));
  if (result.error !== 0) {
    return { kind: 'refused', errorCode: result.error, message: result.message };
  }
  return { kind: 'followed', appendedBytes: result.appendedBytes };
}

/** The batch that holds our begin starts lower; a log start inside it stays where it is. */
function moveBegin(followed: PartitionLog, offset: number): boolean {
  const { log } = followed;
  return followed.cut(() => {
    if (offset <= log.logStartOffset) {
      log.truncateFullyAndStartAt(offset, log.logStartOffset);
      return true;
    }
    const open = log.activeProducers().filter(({ currentTxnFirstOffset: first }) => {
      return first >= 0 && first < offset;
    });
    log.truncateTo(offset);
    if (open.length > 0) log.adoptProducers(open);
    return true;
  });
}

/** KIP-595: our log parts from the leader's at the end of an epoch, theirs or ours. */
function truncate(followed: PartitionLog, { epoch, endOffset }: DivergingEpoch): FollowResult {
  const { log } = followed;
  const from = log.logEndOffset;
  const own = log.epochEndOffset(epoch);
  const isShared = own.leaderEpoch === epoch || own.leaderEpoch < 0;
  const ownEnd = own.endOffset < 0 ? from : own.endOffset;
  const to = isShared ? Math.min(ownEnd, endOffset, from) : Math.min(ownEnd, from);
  const cut = (): boolean => {
    const isCut = log.truncateTo(to);
    // Asked about again, such an epoch would be answered the same for ever (G16).
    log.forgetEpochsAtEnd();
    return isCut;
  };
  if (!followed.cut(cut)) return DISK_FAILED;
  return { kind: 'truncated', from, to: log.logEndOffset };
}

/** Begins an empty log in the middle of the leader's. False when the disk failed. */
export function begin(followed: PartitionLog, plan: Begin): boolean {
  const { log } = followed;
  const isBegun = log.logEndOffset === plan.offset && log.logStartOffset === plan.logStartOffset;
  if (isBegun) return true;
  return followed.cut(() => {
    log.beginAt(plan.offset, plan.logStartOffset, plan.epochs);
    if (plan.openTransactions.length > 0) log.adoptProducers(plan.openTransactions);
    return true;
  });
}

/**
 * After OFFSET_OUT_OF_RANGE, as Apache's followers do it: cut what the leader's log does not reach,
 * start over where the leader's log begins above ours, else go on. False when the disk failed.
 */
export function fitInto(
  followed: PartitionLog,
  { earliest, latest }: { readonly earliest: number; readonly latest: number },
): boolean {
  const { logEndOffset } = followed.log;
  if (latest < logEndOffset) return followed.cut(() => followed.log.truncateTo(latest));
  return earliest > logEndOffset ? followed.followLogStart(earliest) : true;
}
