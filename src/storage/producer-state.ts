/**
 * What a log knows of its producers: epochs, last sequences, open and just closed transactions.
 *
 * One per log, changed by every appended batch that has a producer id (id ≠ −1, rule P2) and by
 * nothing else, so replaying the log rebuilds it. Transactions keep two lists:
 * - ongoing: no marker yet;
 * - unreplicated: marker appended, but not yet below the high watermark.
 * The first unstable offset is the lowest first offset in either.
 *
 * Producers are found by the two halves of their id: no bigint is made per batch.
 */
import { incrementSequence, NO_SEQUENCE } from '../protocol/record-batch.ts';
import type { BatchHeader, EndOfTransaction } from './batch-header.ts';
import type { SnapshotEntry } from './producer-snapshot.ts';
import { fromHalves, halves } from './time-index.ts';

/** Batches remembered per producer, for recognising a repeated send. */
export const BATCHES_PER_PRODUCER = 5;
/** No epoch: the producer is known from a marker or not at all. */
export const NO_PRODUCER_EPOCH = -1;
const NONE = -1;
const MAX_SEQUENCE = 0x7fff_ffff;
/** What most logs have: none. Never written to. */
const NO_PRODUCERS = new Map<number, Map<number, ProducerEntry>>();
const NO_TRANSACTIONS = new Map<number, OpenTransaction>();
const NO_COMPLETED: readonly CompletedTransaction[] = [];

/** One of the last batches of a producer. */
export interface ProducerBatch {
  lastSequence: number;
  lastOffset: number;
  offsetDelta: number;
}

/** A producer's state. */
export interface ProducerEntry {
  readonly producerId: bigint;
  producerEpoch: number;
  /** Oldest first, at most {@link BATCHES_PER_PRODUCER}. */
  readonly batches: ProducerBatch[];
  coordinatorEpoch: number;
  /** Of the last batch or marker. */
  timestampHigh: number;
  timestampLow: number;
  /** −1: no open transaction. */
  currentTxnFirstOffset: number;
}

/** A transaction without marker. */
export interface OpenTransaction {
  readonly producerId: bigint;
  readonly firstOffset: number;
}

/** A transaction whose marker was appended. */
export interface CompletedTransaction extends OpenTransaction {
  /** Offset of the marker. */
  readonly lastOffset: number;
  readonly aborted: boolean;
  /** The first offset still undecided right behind this marker. */
  readonly lastStableOffset: number;
}

/** Producers and transactions of one log. */
export class ProducerState {
  /** By upper, then lower half of the producer id. */
  #producers = NO_PRODUCERS;
  /** By first offset, ascending. */
  #ongoing = NO_TRANSACTIONS;
  /** By first offset, ascending. */
  #unreplicated = NO_COMPLETED;

  /** The state of a producer, by the halves of its id. */
  find(high: number, low: number): ProducerEntry | undefined {
    return this.#producers.get(high)?.get(low);
  }

  /** The state of a producer. */
  findById(producerId: bigint): ProducerEntry | undefined {
    const { high, low } = halves(producerId);
    return this.find(high, low);
  }

  /** Every known producer. */
  *entries(): Generator<ProducerEntry> {
    for (const byLow of this.#producers.values()) yield* byLow.values();
  }

  /** Open transactions by first offset. */
  openTransactions(): OpenTransaction[] {
    return [...this.#ongoing.values()];
  }

  /** The lowest offset whose outcome is not known below the high watermark. */
  get firstUnstableOffset(): number | undefined {
    const unreplicated = this.#unreplicated[0]?.firstOffset;
    if (this.#ongoing.size === 0) return unreplicated;
    const ongoing = this.#ongoing.keys().next().value as number;
    return unreplicated !== undefined && unreplicated < ongoing ? unreplicated : ongoing;
  }

  /** Takes in an appended data batch that has a producer id. */
  appendData(header: BatchHeader): void {
    const entry = this.#entryFor(header);
    this.#enterEpoch(entry, header.producerEpoch);
    entry.timestampHigh = header.maxTimestampHigh;
    entry.timestampLow = header.maxTimestampLow;
    const full = entry.batches.length === BATCHES_PER_PRODUCER;
    const batch = full ? (entry.batches.shift() as ProducerBatch) : newBatch();
    batch.lastSequence = header.lastSequence;
    batch.lastOffset = header.lastOffset;
    batch.offsetDelta = header.lastOffsetDelta;
    entry.batches.push(batch);
    if (header.isTransactional && entry.currentTxnFirstOffset === NONE) {
      entry.currentTxnFirstOffset = header.baseOffset;
      const { producerId } = entry;
      if (this.#ongoing === NO_TRANSACTIONS) this.#ongoing = new Map();
      this.#ongoing.set(header.baseOffset, { producerId, firstOffset: header.baseOffset });
    }
  }

  /** Takes in a control batch whose marker was compacted away: it still tells the epoch. */
  appendEmptied(header: BatchHeader): void {
    const entry = this.#entryFor(header);
    this.#enterEpoch(entry, header.producerEpoch);
    entry.timestampHigh = header.maxTimestampHigh;
    entry.timestampLow = header.maxTimestampLow;
  }

  /** Takes in an appended marker; the transaction it ended, if there was one. */
  appendMarker(header: BatchHeader, marker: EndOfTransaction): CompletedTransaction | undefined {
    const entry = this.#entryFor(header);
    this.#enterEpoch(entry, header.producerEpoch);
    entry.coordinatorEpoch = marker.coordinatorEpoch;
    entry.timestampHigh = header.maxTimestampHigh;
    entry.timestampLow = header.maxTimestampLow;
    const firstOffset = entry.currentTxnFirstOffset;
    if (firstOffset === NONE) return undefined;
    entry.currentTxnFirstOffset = NONE;
    this.#ongoing.delete(firstOffset);
    const next: number | undefined = this.#ongoing.keys().next().value;
    const completed: CompletedTransaction = {
      producerId: entry.producerId,
      firstOffset,
      lastOffset: header.lastOffset,
      aborted: marker.aborted,
      lastStableOffset: next ?? header.lastOffset + 1,
    };
    this.#insertUnreplicated(completed);
    return completed;
  }

  /** Transactions whose markers lie below the high watermark are stable now. */
  onHighWatermark(highWatermark: number): void {
    if (this.#unreplicated.length === 0) return;
    this.#unreplicated = this.#unreplicated.filter((txn) => txn.lastOffset >= highWatermark);
  }

  /** Forgets producers without open transaction whose last batch is older than `beforeMs`. */
  removeExpired(beforeMs: number): number {
    if (this.#producers.size === 0) return 0;
    const before = halves(BigInt(Math.max(0, Math.floor(beforeMs))));
    let removed = 0;
    for (const [high, byLow] of this.#producers) {
      for (const [low, entry] of byLow) {
        if (entry.currentTxnFirstOffset !== NONE) continue;
        const { timestampHigh, timestampLow } = entry;
        if (timestampHigh > before.high) continue;
        if (timestampHigh === before.high && timestampLow >= before.low) continue;
        byLow.delete(low);
        removed++;
      }
      if (byLow.size === 0) this.#producers.delete(high);
    }
    return removed;
  }

  clear(): void {
    this.#producers = NO_PRODUCERS;
    this.#ongoing = NO_TRANSACTIONS;
    this.#unreplicated = NO_COMPLETED;
  }

  /** Everything, as a snapshot keeps it. */
  toSnapshot(): SnapshotEntry[] {
    return [...this.entries()].map((entry) => {
      const last = entry.batches.at(-1);
      return {
        producerId: entry.producerId,
        producerEpoch: entry.producerEpoch,
        lastSequence: last?.lastSequence ?? NO_SEQUENCE,
        lastOffset: last?.lastOffset ?? NONE,
        offsetDelta: last?.offsetDelta ?? 0,
        timestamp: fromHalves(entry.timestampHigh, entry.timestampLow),
        coordinatorEpoch: entry.coordinatorEpoch,
        currentTxnFirstOffset: entry.currentTxnFirstOffset,
      };
    });
  }

  /** Replaces everything by a snapshot. */
  fromSnapshot(entries: readonly SnapshotEntry[]): void {
    this.clear();
    const open: OpenTransaction[] = [];
    for (const saved of entries) {
      const { high, low } = halves(saved.producerId);
      const entry = this.#entry(high, low);
      entry.producerEpoch = saved.producerEpoch;
      entry.coordinatorEpoch = saved.coordinatorEpoch;
      entry.currentTxnFirstOffset = saved.currentTxnFirstOffset;
      const timestamp = halves(saved.timestamp);
      entry.timestampHigh = timestamp.high;
      entry.timestampLow = timestamp.low;
      if (saved.lastOffset >= 0) {
        const { lastSequence, lastOffset, offsetDelta } = saved;
        entry.batches.push({ lastSequence, lastOffset, offsetDelta });
      }
      if (saved.currentTxnFirstOffset === NONE) continue;
      open.push({ producerId: saved.producerId, firstOffset: saved.currentTxnFirstOffset });
    }
    open.sort((a, b) => a.firstOffset - b.firstOffset);
    if (open.length > 0) this.#ongoing = new Map(open.map((txn) => [txn.firstOffset, txn]));
  }

  #insertUnreplicated(completed: CompletedTransaction): void {
    let at = this.#unreplicated.length;
    while (at > 0 && (this.#unreplicated[at - 1]?.firstOffset ?? 0) > completed.firstOffset) at--;
    this.#unreplicated = this.#unreplicated.toSpliced(at, 0, completed);
  }

  #enterEpoch(entry: ProducerEntry, producerEpoch: number): void {
    if (entry.producerEpoch === producerEpoch) return;
    entry.producerEpoch = producerEpoch;
    entry.batches.length = 0;
  }

  #entryFor(header: BatchHeader): ProducerEntry {
    return this.#entry(header.producerIdHigh, header.producerIdLow);
  }

  #entry(high: number, low: number): ProducerEntry {
    if (this.#producers === NO_PRODUCERS) this.#producers = new Map();
    let byLow = this.#producers.get(high);
    if (byLow === undefined) {
      byLow = new Map();
      this.#producers.set(high, byLow);
    }
    let entry = byLow.get(low);
    if (entry === undefined) {
      entry = {
        producerId: fromHalves(high, low),
        producerEpoch: NO_PRODUCER_EPOCH,
        batches: [],
        coordinatorEpoch: NONE,
        timestampHigh: -1,
        timestampLow: 0xffff_ffff,
        currentTxnFirstOffset: NONE,
      };
      byLow.set(low, entry);
    }
    return entry;
  }
}

function newBatch(): ProducerBatch {
  return { lastSequence: NO_SEQUENCE, lastOffset: NONE, offsetDelta: 0 };
}

/** Sequence of the first record of a remembered batch. */
export function firstSequence(batch: ProducerBatch): number {
  const first = batch.lastSequence - batch.offsetDelta;
  return first < 0 ? first + MAX_SEQUENCE + 1 : first;
}

/** The remembered batch that `header` repeats, if it does. */
export function findDuplicate(
  entry: ProducerEntry | undefined,
  header: BatchHeader,
): ProducerBatch | undefined {
  if (entry === undefined || entry.producerEpoch !== header.producerEpoch) return undefined;
  return entry.batches.find(
    (batch) =>
      batch.lastSequence === header.lastSequence && firstSequence(batch) === header.baseSequence,
  );
}

/** What is wrong with a producer's batch. */
export interface ProducerProblem {
  readonly kind:
    | 'INVALID_PRODUCER_EPOCH'
    | 'OUT_OF_ORDER_SEQUENCE_NUMBER'
    | 'INVALID_TXN_STATE'
    | 'TRANSACTION_COORDINATOR_FENCED';
  readonly message: string;
}

function problem(kind: ProducerProblem['kind'], message: string): ProducerProblem {
  return { kind, message };
}

/** Whether a data batch may follow what is known of its producer; undefined: it may. */
export function checkData(
  entry: ProducerEntry | undefined,
  header: BatchHeader,
  checkSequence: boolean,
): ProducerProblem | undefined {
  if (entry === undefined) return undefined;
  const { producerId, producerEpoch } = entry;
  if (header.producerEpoch < producerEpoch) {
    const seen = `epoch ${header.producerEpoch} is below the last seen ${producerEpoch}`;
    return problem('INVALID_PRODUCER_EPOCH', `Producer ${producerId}: ${seen}`);
  }
  if (checkSequence && producerEpoch !== NO_PRODUCER_EPOCH) {
    const sameEpoch = header.producerEpoch === producerEpoch;
    const last = sameEpoch ? (entry.batches.at(-1)?.lastSequence ?? NO_SEQUENCE) : NO_SEQUENCE;
    const expected = last === NO_SEQUENCE ? 0 : incrementSequence(last, 1);
    if (header.baseSequence !== expected) {
      const got = `incoming sequence ${header.baseSequence}, expected ${expected}`;
      return problem('OUT_OF_ORDER_SEQUENCE_NUMBER', `Producer ${producerId}: ${got}`);
    }
  }
  if (entry.currentTxnFirstOffset !== NONE && !header.isTransactional) {
    const reason = 'its transaction is open, the batch is not transactional';
    return problem('INVALID_TXN_STATE', `Producer ${producerId}: ${reason}`);
  }
  return undefined;
}

/** Whether a marker may follow what is known of its producer; undefined: it may. */
export function checkMarker(
  entry: ProducerEntry | undefined,
  header: BatchHeader,
  marker: EndOfTransaction,
): ProducerProblem | undefined {
  if (entry === undefined) return undefined;
  if (header.producerEpoch < entry.producerEpoch) {
    const seen = `marker epoch ${header.producerEpoch} is below ${entry.producerEpoch}`;
    return problem('INVALID_PRODUCER_EPOCH', `Producer ${entry.producerId}: ${seen}`);
  }
  if (marker.coordinatorEpoch < entry.coordinatorEpoch) {
    const seen = `coordinator epoch ${marker.coordinatorEpoch} is below ${entry.coordinatorEpoch}`;
    return problem('TRANSACTION_COORDINATOR_FENCED', `Producer ${entry.producerId}: ${seen}`);
  }
  return undefined;
}
