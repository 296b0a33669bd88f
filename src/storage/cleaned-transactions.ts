/**
 * What compaction must know of transactions while it walks a log in offset order.
 *
 * The aborted transactions come from the transaction indexes; everything that is not aborted and
 * lies below the last stable offset is committed. Data of an aborted transaction may go at once. A
 * marker may go when no batch of its transaction was met, which means that all of them are gone.
 * A transaction of every producer id ≠ −1 counts (rule P2).
 */
import { type BatchHeader, readMarker } from './batch-header.ts';
import type { AbortedTransaction, TransactionIndex } from './transaction-index.ts';

interface OngoingAbort {
  readonly transaction: AbortedTransaction;
  hasBatches: boolean;
}

/** Follows the transactions of the batches it is shown. */
export class CleanedTransactions {
  /** Not yet reached, by first offset, the nearest last. */
  #ahead: AbortedTransaction[] = [];
  readonly #aborted = new Map<bigint, OngoingAbort>();
  readonly #committed = new Set<bigint>();

  /** Adds what the indexes say of the range that comes next; repetitions do no harm. */
  add(transactions: readonly AbortedTransaction[]): void {
    if (transactions.length === 0) return;
    this.#ahead = [...this.#ahead, ...transactions].sort((a, b) => b.firstOffset - a.firstOffset);
  }

  /** Takes the next data batch; whether it was aborted. */
  onData(header: BatchHeader): boolean {
    this.#reach(header.lastOffset);
    if (!header.isTransactional) return false;
    const { producerId } = header;
    const aborted = this.#aborted.get(producerId);
    if (aborted !== undefined) {
      aborted.hasBatches = true;
      return true;
    }
    this.#committed.add(producerId);
    return false;
  }

  /**
   * Takes the next control batch, at `at` in `bytes`; whether it may go. The abort of a transaction
   * of which batches are left is added to `index`.
   */
  onControl(
    bytes: Uint8Array,
    at: number,
    header: BatchHeader,
    index: TransactionIndex | undefined,
  ): boolean {
    this.#reach(header.lastOffset);
    // A batch that compaction emptied ended nothing that is still there.
    if (header.recordCount === 0) return true;
    const marker = readMarker(bytes, at, header.size);
    if (marker === undefined) return false;
    const { producerId } = header;
    if (!marker.aborted) return !this.#committed.delete(producerId);
    const aborted = this.#aborted.get(producerId);
    this.#aborted.delete(producerId);
    if (aborted?.hasBatches !== true) return true;
    index?.append(aborted.transaction);
    return false;
  }

  #reach(offset: number): void {
    for (let next = this.#ahead.at(-1); next !== undefined; next = this.#ahead.at(-1)) {
      if (next.firstOffset > offset) return;
      this.#ahead.pop();
      if (this.#aborted.has(next.producerId)) continue;
      this.#aborted.set(next.producerId, { transaction: next, hasBatches: false });
    }
  }
}
