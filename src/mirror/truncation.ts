/**
 * Cuts of a mirrored log: at the start of an episode (T3–T6), after a divergence (F10), at its stop
 * (D1). The driver calls these inside a state whose row is durable.
 *
 * Invariants:
 * - Rows that remember more than the cut leaves are lowered durably before it (T3).
 * - What is dropped has been kept before it (T4).
 * - What a row says of a lone replica's log is durable in the log before (D4, D5, S2).
 * - A cut ends with a new leader epoch (T5): the leadership that made it is over then, and the next
 *   one finds nothing left to cut, so repeating is harmless (S3). While the new epoch is refused it
 *   is owed (`EpochDebt`), and a repetition that finds nothing to cut asks for it again. A crash
 *   owes nothing: a broker that comes back is elected anew.
 */
import { DiskError, type Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import { errors } from '../protocol/errors.ts';
import type { Partition } from '../replication/partition.ts';
import { whenPartition } from '../replication/purgatory.ts';
import { MirrorFailure } from './causes.ts';
import { keepTail } from './lost-and-found.ts';
import type { MirrorStateStore } from './mirror-coordinator.ts';
import type { RowKey } from './state-row.ts';
import { rowKeyText } from './state-row.ts';

/** The parts of a partition that a cut needs. */
export type CutPartition = Pick<
  Partition,
  | 'topic'
  | 'partition'
  | 'topicId'
  | 'leaderEpoch'
  | 'truncateForMirror'
  | 'restartForMirror'
  | 'isrReachedLogEnd'
  | 'unconfirmedReplicas'
  | 'isLeader'
  | 'isr'
  | 'watchers'
> & {
  readonly log: Pick<
    Partition['log'],
    | 'directory'
    | 'logStartOffset'
    | 'localLogStartOffset'
    | 'logEndOffset'
    | 'batchesEnd'
    | 'lastStableOffset'
    | 'openTransactions'
    | 'read'
    | 'flush'
  >;
};

/**
 * How long a stop waits for replicas outside the ISR, in ms: longer than a dead broker looks alive.
 */
export const LIVE_REPLICAS_WAIT_MS = 15_000;

/** Kept by a leadership, whose end settles it. */
export interface EpochDebt {
  /** The log was cut under this leader epoch. */
  owed: boolean;
}

/** What cuts use of their surroundings. */
export interface CutContext {
  readonly runtime: Runtime;
  readonly store: MirrorStateStore;
  readonly controller: Pick<ControllerPort, 'electSameLeader'>;
  /** Rule T4's setting. */
  readonly keepsTail: boolean;
  /** This leadership, which every cut checks. */
  readonly leaderEpoch: number;
  readonly debt: EpochDebt;
  /** False once the leadership, or the state that cuts, is over. */
  readonly isCurrent: () => boolean;
}

/** The action that waits is over: another leadership or state has taken its place. */
export class Superseded extends Error {
  override readonly name = 'Superseded';
}

function check(context: CutContext): void {
  if (!context.isCurrent()) throw new Superseded('another leadership or state took over');
}

/**
 * Keeps everything from `offset` on, if that is wanted (T4). What a partial log has not, it cannot
 * keep; the other replicas have it and would follow the cut, so there is none.
 */
async function keep(context: CutContext, partition: CutPartition, offset: number): Promise<void> {
  if (!context.keepsTail) return;
  const { localLogStartOffset } = partition.log;
  if (offset < localLogStartOffset) {
    const range = `[${offset}, ${localLogStartOffset})`;
    const message = `no cut at ${offset}: the records ${range} are on other replicas only`;
    throw new MirrorFailure('DESTINATION_BUSY', message);
  }
  const kept = await keepTail(context.runtime, partition, offset);
  check(context);
  context.runtime.logger.warn('mirror cut: tail kept', { ...kept, topic: partition.topic });
}

/** Keeps and drops everything from `offset` on; returns the log end. */
async function cutOnce(
  context: CutContext,
  partition: CutPartition,
  offset: number,
): Promise<number> {
  await keep(context, partition, offset);
  const before = partition.log.logEndOffset;
  context.debt.owed = true;
  const after = truncate(context, partition, offset);
  context.runtime.logger.warn('mirror cut', {
    topic: partition.topic,
    partition: partition.partition,
    firstOffset: after,
    lastOffset: before - 1,
    count: before - after,
  });
  return after;
}

function truncate(context: CutContext, partition: CutPartition, offset: number): number {
  const result = partition.truncateForMirror(offset, context.leaderEpoch);
  if ('logEndOffset' in result) return result.logEndOffset;
  if (result.error === errors.KAFKA_STORAGE_ERROR.code) {
    throw new MirrorFailure('STORAGE_BUSY', 'the log cannot be cut: its disk failed');
  }
  throw new Superseded(`cut refused with error ${result.error}`);
}

/** Ends this leadership with a new leader epoch (T5). Never returns normally. */
export async function startNewEpoch(context: CutContext, partition: CutPartition): Promise<never> {
  const { topicId, leaderEpoch } = partition;
  const elected = await context.controller.electSameLeader(
    topicId,
    partition.partition,
    leaderEpoch,
  );
  check(context);
  if (elected.error === errors.NONE.code) {
    context.debt.owed = false;
    throw new Superseded('a new leader epoch began (T5)');
  }
  const text = 'message' in elected ? elected.message : '';
  const message = `no new leader epoch after a cut: error ${elected.error} ${text}`;
  throw new MirrorFailure('DESTINATION_BUSY', message);
}

/** Lowers every row that remembers more of the partition than `offset` (T3). */
export async function lowerRows(
  context: CutContext,
  partition: CutPartition,
  offset: number,
  own: { readonly key: RowKey; lower(offset: number): Promise<boolean> },
): Promise<void> {
  const answer = await context.store.rowsOfPartition(partition.topicId, partition.partition);
  if (!('rows' in answer)) {
    throw new MirrorFailure('DESTINATION_BUSY', `rows not readable: error ${answer.error}`);
  }
  for (const { key, row } of answer.rows) {
    if (row.lastMirroredOffset <= offset) continue;
    check(context);
    if (rowKeyText(key) === rowKeyText(own.key)) {
      if (!(await own.lower(offset))) throw new Superseded('the row could not be lowered');
      continue;
    }
    const error = await context.store.write(key, {
      ...row,
      lastMirroredOffset: offset,
      stateEpoch: row.stateEpoch + 1,
      leaderEpoch: Math.max(row.leaderEpoch, context.leaderEpoch),
    });
    if (error !== errors.NONE.code) {
      throw new MirrorFailure('DESTINATION_BUSY', `row not lowered: error ${error}`);
    }
  }
  check(context);
}

/** What a row says of a cut that is about to be made; undefined: nothing is to be cut. */
export function cutAt(
  { log, leaderEpoch }: CutPartition,
  offset: number,
): { readonly offset: number; readonly leaderEpoch: number } | undefined {
  return offset < log.logEndOffset ? { offset, leaderEpoch } : undefined;
}

/** Keeps and drops the whole log, which begins above `offset`: it goes on there. */
async function dropAll(
  context: CutContext,
  partition: CutPartition,
  offset: number,
): Promise<void> {
  const { logStartOffset, logEndOffset } = partition.log;
  if (logStartOffset < logEndOffset) await keep(context, partition, logStartOffset);
  context.debt.owed = true;
  restartAt(context, partition, offset);
  context.runtime.logger.warn('mirror cut', {
    topic: partition.topic,
    partition: partition.partition,
    firstOffset: logStartOffset,
    lastOffset: logEndOffset - 1,
    count: Math.max(0, logEndOffset - logStartOffset),
  });
}

/**
 * Cuts at `offset` (T4, T5), which can lie below the log start: the records there were deleted.
 * Returns only when nothing had to be dropped.
 */
export async function cutTo(
  context: CutContext,
  partition: CutPartition,
  offset: number,
): Promise<void> {
  const { logStartOffset, logEndOffset } = partition.log;
  if (offset < logEndOffset) {
    if (offset < logStartOffset) await dropAll(context, partition, offset);
    else await cutOnce(context, partition, offset);
  }
  if (context.debt.owed) await startNewEpoch(context, partition);
}

/**
 * Cuts at the last stable offset until the log ends there (D1): a cut can remove the marker of a
 * transaction whose data lies lower. Returns only when nothing had to be dropped.
 */
export async function cutToLastStable(context: CutContext, partition: CutPartition): Promise<void> {
  while (partition.log.lastStableOffset < partition.log.logEndOffset) {
    const before = partition.log.logEndOffset;
    const after = await cutOnce(context, partition, partition.log.lastStableOffset);
    if (after >= before) throw new MirrorFailure('STORAGE_BUSY', 'a cut did not shorten the log');
  }
  endBehindLastBatch(context, partition);
  if (context.debt.owed) await startNewEpoch(context, partition);
}

/**
 * After a cut into an offset gap no batch says where the log ends: a restart would lose that end,
 * and a replica would never reach it. So a log stops behind its last batch; no record is dropped.
 */
export function endBehindLastBatch(context: CutContext, partition: CutPartition): void {
  const end = endOfBatches(partition);
  if (end < partition.log.logEndOffset) truncate(context, partition, end);
  restartEmpty(context, partition);
}

/** Where {@link endBehindLastBatch} lets a log end. */
export function endOfBatches({ log }: CutPartition): number {
  return Math.max(log.batchesEnd, log.logStartOffset);
}

/**
 * A log whose records are all below its start must not stop as it is: it may end below its start
 * (F9), where writes would be unreadable, or know a transaction whose data the source deleted,
 * which nobody would ever end (D5). It starts over at its start; no record is lost.
 */
function restartEmpty(context: CutContext, partition: CutPartition): void {
  const { log } = partition;
  const { logStartOffset, logEndOffset, batchesEnd } = log;
  const isWhole = batchesEnd === logStartOffset && log.openTransactions().length === 0;
  if (logEndOffset > logStartOffset || (logEndOffset === logStartOffset && isWhole)) return;
  restartAt(context, partition, logStartOffset);
}

function restartAt(context: CutContext, partition: CutPartition, offset: number): void {
  const error = partition.restartForMirror(offset, offset, context.leaderEpoch);
  if (error === errors.NONE.code) return;
  if (error !== errors.KAFKA_STORAGE_ERROR.code)
    throw new Superseded(`refused with error ${error}`);
  throw new MirrorFailure('STORAGE_BUSY', 'the log cannot start over: its disk failed');
}

/**
 * Waits until every ISR member has reported a log end no higher than ours (T6), and a lone replica
 * until its log is durable: what the next row says of it must be so after a power loss, too. That
 * costs nothing where nothing is new.
 */
export async function whenReplicasFollowed(
  context: CutContext,
  partition: CutPartition,
): Promise<void> {
  const followed = await whenPartition<boolean>(
    context.runtime.clock,
    partition.watchers,
    undefined,
    () => {
      if (!context.isCurrent() || !partition.isLeader()) return false;
      return partition.isrReachedLogEnd() ? true : undefined;
    },
    () => false,
  );
  if (!followed) throw new Superseded('leadership ended while replicas followed');
  if (partition.isr.length === 1) await makeDurable(partition);
  check(context);
}

async function makeDurable(partition: CutPartition): Promise<void> {
  try {
    await partition.log.flush();
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    throw new MirrorFailure('STORAGE_BUSY', `the log cannot be made durable: ${error.message}`);
  }
}

/**
 * Waits until every assigned replica that is alive has reported such a log end, in the ISR or not
 * (G24). One that stays away does not block the stop: whoever leads next makes it cut, by the
 * epoch that began at our cut, before it can join.
 */
export async function whenLiveReplicasFollowed(
  context: CutContext,
  partition: CutPartition,
): Promise<void> {
  const isOver = (): boolean => !context.isCurrent() || !partition.isLeader();
  const missing = await whenPartition<readonly number[]>(
    context.runtime.clock,
    partition.watchers,
    LIVE_REPLICAS_WAIT_MS,
    () => (isOver() || partition.unconfirmedReplicas().length === 0 ? [] : undefined),
    () => partition.unconfirmedReplicas(),
  );
  check(context);
  if (!partition.isLeader()) throw new Superseded('leadership ended while replicas followed');
  if (missing.length === 0) return;
  const { topic, partition: index } = partition;
  const fields = { topic, partition: index, replicas: missing.join(',') };
  context.runtime.logger.warn('mirror stop: live replicas did not report', fields);
}
