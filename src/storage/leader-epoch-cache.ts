/**
 * Which leader epoch began at which offset of a log (KIP-101).
 *
 * Invariant: epochs and start offsets ascend. The file is rewritten when the log is flushed or cut,
 * so it is durable before the recovery point passes an epoch's first record; what a crash loses
 * above that point, recovery learns again from the batches.
 */
import type { Disk } from '../io/runtime.ts';
import {
  type EpochEntry,
  LEADER_EPOCH_FILE,
  readEpochCheckpoint,
  writeEpochCheckpoint,
} from './checkpoints.ts';

/** Answer to OffsetForLeaderEpoch; −1/−1 when the epoch is not known. */
export interface EpochEndOffset {
  readonly leaderEpoch: number;
  readonly endOffset: number;
}

const NO_ENTRIES: readonly EpochEntry[] = [];
const UNKNOWN: EpochEndOffset = Object.freeze({ leaderEpoch: -1, endOffset: -1 });

/** Leader epochs of one log. */
export class LeaderEpochCache {
  readonly #disk: Disk;
  readonly #directory: string;
  #entries: readonly EpochEntry[];
  /** What the file says; the same list while nothing changed. */
  #written: readonly EpochEntry[];
  /** −1: none. Kept beside the entries because every appended batch is compared with it. */
  #latest = -1;

  /** Reads the checkpoint, unless it `isAbsent`; throws CorruptCheckpoint. */
  constructor(disk: Disk, directory: string, isAbsent = false) {
    this.#disk = disk;
    this.#directory = directory;
    const entries = isAbsent ? [] : readEpochCheckpoint(disk, `${directory}/${LEADER_EPOCH_FILE}`);
    this.#entries = entries.length > 0 ? entries : NO_ENTRIES;
    this.#written = this.#entries;
    this.#noteLatest();
  }

  get entries(): readonly EpochEntry[] {
    return this.#entries;
  }

  get latestEpoch(): number | undefined {
    return this.#latest < 0 ? undefined : this.#latest;
  }

  /** Notes that records from `startOffset` on are of `epoch`; contradicting entries go. */
  assign(epoch: number, startOffset: number): void {
    if (epoch < 0 || epoch === this.#latest) return;
    let keep = this.#entries.length;
    while (keep > 0) {
      const last = this.#entries[keep - 1] as EpochEntry;
      if (last.epoch < epoch && last.startOffset < startOffset) break;
      keep--;
    }
    this.#replace([...this.#entries.slice(0, keep), { epoch, startOffset }]);
  }

  /** Drops epochs that begin at or above `endOffset`. */
  truncateFromEnd(endOffset: number): void {
    const kept = this.#entries.filter((entry) => entry.startOffset < endOffset);
    if (kept.length < this.#entries.length) this.#replace(kept);
  }

  /** Lets the epoch of `startOffset` begin there, and drops older ones. */
  truncateFromStart(startOffset: number): void {
    const first = this.#entries.findLastIndex((entry) => entry.startOffset <= startOffset);
    const entry = this.#entries[first];
    if (entry === undefined || (first === 0 && entry.startOffset === startOffset)) return;
    this.#replace([{ epoch: entry.epoch, startOffset }, ...this.#entries.slice(first + 1)]);
  }

  /** Forgets all but these, which must ascend. */
  reset(entries: readonly EpochEntry[] = NO_ENTRIES): void {
    if (this.#entries.length > 0 || entries.length > 0) this.#replace(entries);
  }

  /** The epoch of the record at `offset`. */
  epochForOffset(offset: number): number | undefined {
    return this.#entries.findLast((entry) => entry.startOffset <= offset)?.epoch;
  }

  /** Where `requestedEpoch`, or the largest known epoch below it, ends. */
  endOffsetFor(requestedEpoch: number, logEndOffset: number): EpochEndOffset {
    if (requestedEpoch < 0) return UNKNOWN;
    if (requestedEpoch === this.#latest) {
      return { leaderEpoch: requestedEpoch, endOffset: logEndOffset };
    }
    const higher = this.#entries.find((entry) => entry.epoch > requestedEpoch);
    if (higher === undefined) return UNKNOWN;
    const floor = this.#entries.findLast((entry) => entry.epoch <= requestedEpoch);
    return { leaderEpoch: floor?.epoch ?? requestedEpoch, endOffset: higher.startOffset };
  }

  /**
   * Writes the checkpoint when it would say something new, and says so: the file is durable, its
   * place in the directory is not before that is synced. An epoch that has no record yet
   * is not written: an opened log forgets it anyway, and a restart gives every idle partition one.
   */
  flush(logEndOffset: number): boolean {
    if (this.#written === this.#entries) return false;
    let count = this.#entries.length;
    while (count > 0 && (this.#entries[count - 1] as EpochEntry).startOffset >= logEndOffset) {
      count--;
    }
    const entries = count === this.#entries.length ? this.#entries : this.#entries.slice(0, count);
    if (sameEntries(entries, this.#written)) return false;
    writeEpochCheckpoint(this.#disk, `${this.#directory}/${LEADER_EPOCH_FILE}`, entries);
    this.#written = entries;
    return true;
  }

  #replace(entries: readonly EpochEntry[]): void {
    this.#entries = entries;
    this.#noteLatest();
  }

  #noteLatest(): void {
    this.#latest = this.#entries.at(-1)?.epoch ?? -1;
  }
}

function sameEntries(a: readonly EpochEntry[], b: readonly EpochEntry[]): boolean {
  return a.length === b.length && a.every((entry, index) => isSame(entry, b[index] as EpochEntry));
}

function isSame(a: EpochEntry, b: EpochEntry): boolean {
  return a.epoch === b.epoch && a.startOffset === b.startOffset;
}
