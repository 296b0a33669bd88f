/**
 * Holds the records of a metadata transaction (KIP-868) back until it ends.
 *
 * Used by whoever replays a metadata log: the loader and the embedded controller. Records outside
 * a transaction pass at once. Malformed sequences (End without Begin, nested Begin) are Faults: the
 * log is written by one controller only.
 */
import { assert } from '../base/assert.ts';
import type { MetadataRecord } from './record-framing.ts';

/** A record and its offset in the metadata log. */
export interface PlacedRecord {
  readonly record: MetadataRecord;
  readonly offset: number;
}

/** Records of one batch, with their offsets: a batch of the metadata log has no gaps. */
export function placeRecords(
  records: readonly MetadataRecord[],
  lastOffset: number,
): PlacedRecord[] {
  const first = lastOffset - records.length + 1;
  return records.map((record, index) => ({ record, offset: first + index }));
}

/** See the file header. */
export class TransactionBuffer {
  /** Not part of the open transaction, but not applied yet either: they share its batch. */
  #passed: PlacedRecord[] = [];
  /** Undefined outside a transaction. */
  #held: PlacedRecord[] | undefined;

  /**
   * The records that may be applied now that a batch ending at `lastOffset` has come, possibly
   * none; undefined while a transaction is open and so nothing may be applied.
   */
  add(records: readonly MetadataRecord[], lastOffset: number): PlacedRecord[] | undefined {
    for (const placed of placeRecords(records, lastOffset)) {
      const { record } = placed;
      if (record.type === 'BeginTransactionRecord') {
        assert(this.#held === undefined, `metadata transaction begun twice at ${placed.offset}`);
        this.#held = [];
      } else if (record.type === 'EndTransactionRecord') {
        this.#passed.push(...this.#close(placed.offset));
      } else if (record.type === 'AbortTransactionRecord') {
        this.#close(placed.offset);
      } else {
        (this.#held ?? this.#passed).push(placed);
      }
    }
    if (this.#held !== undefined) return undefined;
    const ready = this.#passed;
    this.#passed = [];
    return ready;
  }

  #close(offset: number): PlacedRecord[] {
    assert(this.#held !== undefined, `end of no metadata transaction at ${offset}`);
    const records = this.#held;
    this.#held = undefined;
    return records;
  }
}
