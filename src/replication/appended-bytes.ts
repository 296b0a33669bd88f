/**
 * How many bytes a partition has made visible, by offset: what lets a long poll wait for
 * `fetch.min.bytes` without reading the log again at each append.
 *
 * Counts bytes appended since the partition was opened and remembers the counter at the end of
 * each append that is not visible to every reader yet, so the counter at the high watermark or the
 * last stable offset is known. With one replica and no open transaction that is a single entry.
 * Beyond {@link MAX_ENTRIES} every other entry is dropped: the count then lags a little until the
 * bound reaches the log end, which can only make a fetch wait longer, up to its own time-out.
 */

/** Appends above the lowest bound that are remembered one by one. */
export const MAX_ENTRIES = 1024;

/** See the file header. */
export class AppendedBytes {
  /** Ends of appends, ascending, and the counter at each; the first is at or below every bound. */
  #ends: number[];
  #counts: number[];

  constructor(logEndOffset: number) {
    this.#ends = [logEndOffset];
    this.#counts = [0];
  }

  /** An append made `logEndOffset` the new end. */
  appended(logEndOffset: number, bytes: number): void {
    this.#ends.push(logEndOffset);
    this.#counts.push(this.#counts[this.#counts.length - 1]! + bytes);
    if (this.#ends.length > MAX_ENTRIES) this.#thin();
  }

  /** No reader's bound lies below `offset` any more. */
  prune(offset: number): void {
    let first = 0;
    while (first + 1 < this.#ends.length && this.#ends[first + 1]! <= offset) first++;
    if (first === 0) return;
    this.#ends.splice(0, first);
    this.#counts.splice(0, first);
  }

  /** The log was cut or restarted: what was counted means nothing any more. */
  reset(logEndOffset: number): void {
    const count = this.#counts[this.#counts.length - 1]!;
    this.#ends = [logEndOffset];
    this.#counts = [count];
  }

  /** The counter at the last remembered append end at or below `offset`. */
  upTo(offset: number): number {
    let i = this.#ends.length - 1;
    while (i > 0 && this.#ends[i]! > offset) i--;
    return this.#counts[i]!;
  }

  #thin(): void {
    const last = this.#ends.length - 1;
    const keep = (_: number, i: number): boolean => i % 2 === 0 || i === last;
    this.#ends = this.#ends.filter(keep);
    this.#counts = this.#counts.filter(keep);
  }
}
