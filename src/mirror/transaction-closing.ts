/**
 * Ends open transactions of a mirrored log with ABORT markers instead of cutting them off (G24a).
 *
 * The driver calls these inside STOPPING, and in PREPARING where the other side had done it.
 * Invariants:
 * - The row lists every transaction with the offset of its marker before a marker is appended. A
 *   repetition finds by the log end which markers are there, and appends the others where planned.
 * - What was mirrored ends where the first marker lies: that is the last mirrored offset.
 * - Where the log is mirrored back, each of those markers gets the id that its transaction has
 *   there; one that is open there and not listed has no end, and is an error.
 */
import type { Runtime } from '../io/runtime.ts';
import { buildTransactionMarker } from '../protocol/control-record.ts';
import { errors } from '../protocol/errors.ts';
import type { Partition } from '../replication/partition.ts';
import type { SnapshotEntry } from '../storage/producer-snapshot.ts';
import { MirrorFailure } from './causes.ts';
import type { ProducerIdException } from './producer-id-mapping.ts';
import type { ClosedTransaction, MirrorStateRow } from './state-row.ts';
import { Superseded } from './truncation.ts';

/** The parts of a partition that closing needs. */
export type ClosedPartition = Pick<
  Partition,
  'topic' | 'partition' | 'leaderEpoch' | 'appendMirrored' | 'adoptProducers'
> & {
  readonly log: Pick<
    Partition['log'],
    | 'logStartOffset'
    | 'logEndOffset'
    | 'isEmpty'
    | 'isElsewhere'
    | 'activeProducers'
    | 'openTransactions'
  >;
};

/** What is known of the producers of a log, and where it ends. */
export interface ClosedLog {
  readonly logEndOffset: number;
  activeProducers(): readonly Pick<
    SnapshotEntry,
    'producerId' | 'producerEpoch' | 'currentTxnFirstOffset'
  >[];
}

/** The id that a mirrored producer has at the source; undefined: it is one of this cluster's. */
export type SourceIdOf = (producerId: bigint) => bigint | undefined;

type Listed = Pick<MirrorStateRow, 'closedTransactions' | 'closedAtSource'>;

/** The other side's list, seen from here. */
function fromHere({ producerId, originalProducerId, ...rest }: ClosedTransaction) {
  return { ...rest, producerId: originalProducerId, originalProducerId: producerId };
}

/**
 * Whether a transaction is open that has been aborted before, here or at the source, and whose
 * marker is gone or has not come yet (G31). Nobody else would end it, whatever a stop is asked for.
 */
export function hasReopened({ log }: ClosedPartition, row: Listed): boolean {
  const listed = [...row.closedTransactions, ...row.closedAtSource.map(fromHere)];
  const ids = new Set(listed.map(({ producerId }) => producerId));
  return log.openTransactions().some(({ producerId }) => ids.has(producerId));
}

/**
 * Which transactions are to be ended where: as the row plans it, if that is what is left to do in
 * this log, else anew from its end. Those of this cluster's own producers are left to their
 * coordinator.
 */
export function planClosing(
  log: ClosedLog,
  row: Listed,
  sourceIdOf: SourceIdOf,
): readonly ClosedTransaction[] {
  const { logEndOffset } = log;
  const theirs = new Map(row.closedAtSource.map(fromHere).map((each) => [each.producerId, each]));
  const found = log
    .activeProducers()
    .flatMap((entry): Omit<ClosedTransaction, 'markerOffset'>[] => {
      const { producerId, producerEpoch, currentTxnFirstOffset: firstOffset } = entry;
      const known = theirs.get(producerId)?.originalProducerId;
      const originalProducerId = known ?? sourceIdOf(producerId);
      if (firstOffset < 0 || originalProducerId === undefined) return [];
      return [{ producerId, originalProducerId, producerEpoch, firstOffset }];
    })
    .sort((a, b) => a.firstOffset - b.firstOffset)
    .map((each, index) => ({ ...each, markerOffset: logEndOffset + index }));
  const open = new Set(found.map(({ producerId }) => producerId));
  const ended = row.closedTransactions.filter(
    ({ producerId, markerOffset }) => markerOffset < logEndOffset && !open.has(producerId),
  );
  return [...ended, ...found];
}

/** Whether two plans are of the same markers. */
export function isSamePlan(
  a: readonly ClosedTransaction[],
  b: readonly ClosedTransaction[],
): boolean {
  const isSame = (one: ClosedTransaction, other: ClosedTransaction | undefined): boolean =>
    one.producerId === other?.producerId && one.markerOffset === other.markerOffset;
  return a.length === b.length && a.every((each, index) => isSame(each, b[index]));
}

/** Appends the markers of a durable plan that are not in the log yet. */
export function appendMarkers(
  runtime: Pick<Runtime, 'clock' | 'logger'>,
  partition: ClosedPartition,
  planned: readonly ClosedTransaction[],
  leaderEpoch: number,
): void {
  const missing = planned.filter(({ markerOffset }) => markerOffset >= partition.log.logEndOffset);
  if (missing.length === 0) return;
  const markers = missing.map(({ producerId, producerEpoch, markerOffset }) =>
    buildTransactionMarker({
      producerId,
      producerEpoch,
      commit: false,
      coordinatorEpoch: 0,
      timestamp: runtime.clock.wallMs(),
      baseOffset: markerOffset,
      partitionLeaderEpoch: leaderEpoch,
    }),
  );
  const result = partition.appendMirrored(markers, leaderEpoch);
  if (result.error === errors.NONE.code) {
    const { topic, partition: index } = partition;
    const firstOffset = missing[0]?.markerOffset;
    const fields = { topic, partition: index, count: missing.length, firstOffset };
    runtime.logger.warn('mirror stop: open transactions aborted', fields);
    return;
  }
  if (result.error !== errors.KAFKA_STORAGE_ERROR.code) {
    throw new Superseded(`abort markers refused with error ${result.error}`);
  }
  throw new MirrorFailure('STORAGE_BUSY', `abort markers not written: ${result.message}`);
}

/**
 * Where the log begins at `offset` and its records below are on other replicas only, it learns of
 * the transactions that are open there.
 */
export function adoptOpen(
  partition: ClosedPartition,
  offset: number,
  closed: readonly ClosedTransaction[],
): void {
  const { log, leaderEpoch } = partition;
  if (!log.isEmpty || log.logEndOffset !== offset || !log.isElsewhere(offset - 1)) return;
  const known = new Map(log.activeProducers().map((entry) => [entry.producerId, entry]));
  const isOpen = (id: bigint): boolean => (known.get(id)?.currentTxnFirstOffset ?? -1) >= 0;
  const unknown = closed.filter(
    ({ originalProducerId, firstOffset }) =>
      !isOpen(originalProducerId) && firstOffset >= log.logStartOffset,
  );
  if (unknown.length === 0) return;
  for (const each of unknown) known.set(each.originalProducerId, openEntry(each));
  const error = partition.adoptProducers([...known.values()], leaderEpoch);
  if (error === errors.NONE.code) return;
  if (error !== errors.KAFKA_STORAGE_ERROR.code)
    throw new Superseded(`refused with error ${error}`);
  throw new MirrorFailure('STORAGE_BUSY', 'open transactions cannot be recorded: the disk failed');
}

function openEntry({ originalProducerId, producerEpoch, firstOffset }: ClosedTransaction) {
  return {
    producerId: originalProducerId,
    producerEpoch,
    lastSequence: -1,
    lastOffset: -1,
    offsetDelta: 0,
    timestamp: -1n,
    coordinatorEpoch: -1,
    currentTxnFirstOffset: firstOffset,
  } satisfies SnapshotEntry;
}

/**
 * A transaction that is open where the other side stopped ends there with a marker of its list, or,
 * if its producer is one of that side's, as any mirrored transaction.
 */
export function checkOpenAt(
  { log }: ClosedPartition,
  offset: number,
  closed: readonly ClosedTransaction[],
  sourceIdOf: SourceIdOf,
): void {
  // In a log that ends below, its end may still come.
  if (log.logEndOffset !== offset) return;
  const listed = new Set(closed.map(({ originalProducerId }) => originalProducerId));
  const endless = log
    .openTransactions()
    .filter(({ producerId }) => !listed.has(producerId) && sourceIdOf(producerId) === undefined);
  if (endless.length === 0) return;
  const named = endless.map((each) => `producer ${each.producerId} from ${each.firstOffset} on`);
  throw new MirrorFailure(
    'SOURCE_DIVERGED',
    `open at offset ${offset}, where the source stopped, and not ended there: ${named.join(', ')}`,
  );
}

/**
 * The ids that the source's abort markers get here. Each is the last batch of its producer there:
 * it belongs to a cluster that is not mirrored to the source any more.
 */
export function markerIds(closed: readonly ClosedTransaction[]): ProducerIdException[] {
  return closed.map(({ markerOffset, producerId, originalProducerId }) => ({
    fromOffset: markerOffset,
    producerId,
    localProducerId: originalProducerId,
  }));
}
