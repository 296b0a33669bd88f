/**
 * The end of the metadata log as an observer sees it: what was fetched and is not committed yet.
 *
 * Owned by the observer; no network here. Knows where the next fetch begins, with which epoch the
 * last one ended, and which batches the high watermark has passed. Invariants: offsets have no
 * gaps; what `commit` gave out is never truncated ({@link LostMetadata} instead).
 */
import { MalformedBytes } from '../../base/bytes.ts';
import type { Compression } from '../../io/runtime.ts';
import { decodeRecords } from '../../protocol/record.ts';
import { forEachBatch, type RecordBatch } from '../../protocol/record-batch.ts';
import { decodeMetadataRecord, type MetadataRecord } from '../record-framing.ts';

/** Limit on an inflated batch, in bytes; controllers write theirs uncompressed. */
const MAX_BATCH_BYTES = 256 * 1024 * 1024;

/** A batch below the high watermark; control batches have no records. */
export interface CommittedBatch {
  readonly records: readonly MetadataRecord[];
  readonly lastOffset: number;
  readonly epoch: number;
}

/** The quorum no longer has metadata that was committed. Never retried. */
export class LostMetadata extends Error {
  override readonly name = 'LostMetadata';
}

/** The records of a data batch; {@link MalformedBytes} when it is damaged. */
export function batchRecords(batch: RecordBatch, compression: Compression): MetadataRecord[] {
  if (!batch.validCrc())
    throw new MalformedBytes('metadata batch with a wrong CRC', batch.position);
  if (batch.isControl) return [];
  const records: MetadataRecord[] = [];
  for (const { value } of decodeRecords(batch, compression, MAX_BATCH_BYTES)) {
    if (value === null) throw new MalformedBytes('metadata record without value', batch.position);
    records.push(decodeMetadataRecord(value));
  }
  return records;
}

/** See the file header. */
export class MetadataTail {
  readonly #compression: Compression;
  #uncommitted: CommittedBatch[] = [];
  /** One past the last offset given out, and its epoch. */
  #committed: { offset: number; epoch: number };
  #highWatermark = -1;

  constructor(compression: Compression, fromOffset: number) {
    this.#compression = compression;
    this.#committed = { offset: fromOffset, epoch: 0 };
  }

  /** Where the next fetch begins. */
  get nextOffset(): number {
    const last = this.#uncommitted.at(-1);
    return last === undefined ? this.#committed.offset : last.lastOffset + 1;
  }

  /** Epoch of the batch before {@link nextOffset}. */
  get lastEpoch(): number {
    return (this.#uncommitted.at(-1) ?? this.#committed).epoch;
  }

  /** The highest one heard of; −1 before. */
  get highWatermark(): number {
    return this.#highWatermark;
  }

  /** One past the last offset given out. */
  get committedOffset(): number {
    return this.#committed.offset;
  }

  /** Takes fetched bytes. A last batch that is cut off is left for the next fetch. */
  append(bytes: Uint8Array): void {
    const scan = forEachBatch(bytes, 0, bytes.length, (batch) => this.#appendBatch(batch));
    if (scan.ok || (scan.problem === 'truncated' && scan.position > 0)) return;
    throw new MalformedBytes(`metadata batch: ${scan.problem}`, scan.position);
  }

  #appendBatch(batch: RecordBatch): void {
    const { nextOffset } = this;
    const { baseOffset, lastOffset, partitionLeaderEpoch: epoch } = batch;
    // The first one may begin before what was asked for.
    if (lastOffset < nextOffset) return;
    if (baseOffset > nextOffset) {
      const problem = `metadata batch at ${baseOffset} instead of ${nextOffset}`;
      throw new MalformedBytes(problem, batch.position);
    }
    const records = batchRecords(batch, this.#compression);
    const wanted = batch.isControl ? records : records.slice(nextOffset - baseOffset);
    this.#uncommitted.push({ records: wanted, lastOffset, epoch });
  }

  /** The batches that `highWatermark` passes, if it is higher than before. */
  commit(highWatermark: number): CommittedBatch[] {
    this.#highWatermark = Math.max(this.#highWatermark, highWatermark);
    const at = this.#uncommitted.findIndex((batch) => batch.lastOffset >= this.#highWatermark);
    const committed = this.#uncommitted.splice(0, at < 0 ? this.#uncommitted.length : at);
    const last = committed.at(-1);
    if (last !== undefined) this.#committed = { offset: last.lastOffset + 1, epoch: last.epoch };
    return committed;
  }

  /**
   * Drops what the leader does not have: its `epoch`, the newest that may be common, ends at
   * `endOffset`. Answers how many batches that were.
   */
  truncate(epoch: number, endOffset: number): number {
    const before = this.#uncommitted.length;
    const kept = this.#uncommitted.filter(
      (batch) => batch.epoch <= epoch && batch.lastOffset < endOffset,
    );
    const isBelow = this.#committed.epoch > epoch || this.#committed.offset > endOffset;
    // An answer that drops nothing would come again for ever.
    if (isBelow || kept.length === before) {
      throw new LostMetadata(
        `the quorum's log ends epoch ${epoch} at ${endOffset}, but ${this.#committed.offset} was ` +
          'committed: the controllers have lost metadata, start this broker anew',
      );
    }
    this.#uncommitted = kept;
    return before - kept.length;
  }

  /** Goes on behind a snapshot. */
  restart(endOffset: number, epoch: number): void {
    if (endOffset < this.#committed.offset) {
      throw new LostMetadata(`snapshot ${endOffset} lies below ${this.#committed.offset}`);
    }
    this.#uncommitted = [];
    this.#committed = { offset: endOffset, epoch };
  }
}
