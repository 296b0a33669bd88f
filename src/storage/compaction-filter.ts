/**
 * What compaction makes of one batch: leaves it, thins it out, empties it, or drops it.
 *
 * Decides as Apache Kafka's cleaner does, so that both leave the same batches:
 * - A record stays when the offset map has no newer one of its key; one without a key goes.
 * - A tombstone stays until the delete horizon of its batch (KIP-534): the run that first meets it
 *   as the newest of its key writes `now + delete.retention.ms` into the batch. A marker whose
 *   transaction has no batches left goes the same way.
 * - Offsets, sequences, epoch and codec of a batch never change. One that loses all its records
 *   stays as a header when it tells the last sequence, or epoch, of a known producer, or when it is
 *   the last below the bound of the run.
 * - A batch of which nothing is lost stays byte for byte.
 */
import { ByteWriter, MalformedBytes } from '../base/bytes.ts';
import type { Compression } from '../io/runtime.ts';
import {
  ATTRIBUTE,
  BATCH_HEADER_BYTES,
  LOG_OVERHEAD,
  RecordBatch,
} from '../protocol/record-batch.ts';
import type { BatchHeader } from './batch-header.ts';
import type { CleanedTransactions } from './cleaned-transactions.ts';
import type { CleanerOffsetMap } from './cleaner-offset-map.ts';
import type { SnapshotEntry } from './producer-snapshot.ts';
import { decompressedPayload, RecordCursor } from './record-cursor.ts';
import type { TransactionIndex } from './transaction-index.ts';

const LENGTH_AT = 8;
const ATTRIBUTES_AT = 21;
const BASE_TIMESTAMP_AT = 27;
const MAX_TIMESTAMP_AT = 35;
const COUNT_AT = 57;
const NO_TIMESTAMP = -1n;

/** What decides about batches. */
export interface FilterSettings {
  readonly map: CleanerOffsetMap;
  readonly transactions: CleanedTransactions;
  /** Producers that are known, by id. */
  readonly producers: ReadonlyMap<bigint, SnapshotEntry>;
  readonly compression: Compression;
  /** Wall time of the run. */
  readonly nowMs: number;
  readonly deleteRetentionMs: number;
  /** Behind the last offset that the run may touch. */
  readonly upperBound: number;
}

interface Kept {
  readonly timestamp: bigint;
  readonly offsetDelta: number;
  readonly restStart: number;
  readonly end: number;
}

/** Filters batches in offset order. */
export class CompactionFilter {
  readonly #settings: FilterSettings;
  #recordsRead = 0;
  #recordsKept = 0;

  constructor(settings: FilterSettings) {
    this.#settings = settings;
  }

  get recordsRead(): number {
    return this.#recordsRead;
  }

  get recordsKept(): number {
    return this.#recordsKept;
  }

  /**
   * The bytes that take the place of the batch at `at`: a view of them when it stays as it is;
   * undefined when it goes. Aborted transactions that have batches left are added to `index`.
   * Throws MalformedBytes for a damaged batch.
   */
  filter(
    bytes: Uint8Array,
    at: number,
    header: BatchHeader,
    index: TransactionIndex,
  ): Uint8Array | undefined {
    const { transactions, nowMs } = this.#settings;
    const batch = new RecordBatch(bytes, at);
    if (!batch.validCrc()) throw new MalformedBytes('CRC mismatch', at);
    const { isControl } = header;
    const discardable = isControl
      ? transactions.onControl(bytes, at, header, index)
      : transactions.onData(header);
    const horizon = batch.hasDeleteHorizon ? batch.baseTimestamp : undefined;
    const expired = horizon !== undefined && horizon <= BigInt(nowMs);
    const emptied = discardable && (!isControl || expired);
    this.#recordsRead += header.recordCount;
    if (!emptied && header.recordCount > 0) {
      const kept = this.#thinned(batch, header, discardable && isControl, horizon);
      if (kept !== undefined) return kept;
    }
    if (!this.#staysEmpty(header)) return undefined;
    return isEmptyHeader(batch, header) ? batch.slice() : emptyBatch(batch);
  }

  /** The batch without what goes; undefined when all of it does. */
  #thinned(
    batch: RecordBatch,
    header: BatchHeader,
    isMarkerOfNothing: boolean,
    horizon: bigint | undefined,
  ): Uint8Array | undefined {
    const { compression, nowMs, deleteRetentionMs } = this.#settings;
    const cursor = new RecordCursor(decompressedPayload(batch, compression));
    const keepsTombstones = horizon === undefined || BigInt(nowMs) < horizon;
    const ends: number[] = [];
    let hasTombstones = false;
    for (let index = 0; index < header.recordCount; index++) {
      cursor.next();
      if (!header.isControl && !this.#stays(cursor, header, keepsTombstones)) continue;
      ends.push(index);
      if (!cursor.hasValue) hasTombstones = true;
    }
    this.#recordsKept += ends.length;
    if (ends.length === 0) return undefined;
    const needsHorizon = horizon === undefined && (hasTombstones || isMarkerOfNothing);
    if (ends.length === header.recordCount && !needsHorizon) return batch.slice();
    const newHorizon = needsHorizon ? BigInt(nowMs + deleteRetentionMs) : horizon;
    return rewritten(batch, keptRecords(batch, cursor.bytes, ends), newHorizon, {
      payload: cursor.bytes,
      compression,
    });
  }

  #stays(cursor: RecordCursor, header: BatchHeader, keepsTombstones: boolean): boolean {
    const { map } = this.#settings;
    const offset = header.baseOffset + cursor.offsetDelta;
    if (offset > map.latestOffset) return true;
    if (cursor.keyStart < 0) return false;
    if (offset < map.get(cursor.bytes, cursor.keyStart, cursor.keyEnd)) return false;
    return cursor.hasValue || keepsTombstones;
  }

  #staysEmpty(header: BatchHeader): boolean {
    if (header.lastOffset + 1 === this.#settings.upperBound) return true;
    if (!header.hasProducerId) return false;
    const producer = this.#settings.producers.get(header.producerId);
    if (producer === undefined) return false;
    if (producer.lastOffset >= 0) return producer.lastOffset === header.lastOffset;
    // Known from markers only: they tell the epoch.
    return header.isControl && header.producerEpoch === producer.producerEpoch;
  }
}

/** The records whose indexes are in `wanted`, in order. */
function keptRecords(batch: RecordBatch, payload: Uint8Array, wanted: readonly number[]): Kept[] {
  const { baseTimestamp, maxTimestamp, isLogAppendTime } = batch;
  const cursor = new RecordCursor(payload);
  const kept: Kept[] = [];
  let index = -1;
  for (const next of wanted) {
    for (; index < next; index++) cursor.next();
    const { offsetDelta, restStart, end } = cursor;
    const timestamp = isLogAppendTime
      ? maxTimestamp
      : BigInt.asIntN(64, baseTimestamp + cursor.timestampDelta());
    kept.push({ timestamp, offsetDelta, restStart, end });
  }
  return kept;
}

interface Encoding {
  readonly payload: Uint8Array;
  readonly compression: Compression;
}

/** The batch with these records alone; with a delete horizon it is their base timestamp. */
function rewritten(
  batch: RecordBatch,
  kept: readonly Kept[],
  horizon: bigint | undefined,
  { payload, compression }: Encoding,
): Uint8Array {
  const baseTimestamp = horizon ?? kept[0]?.timestamp ?? NO_TIMESTAMP;
  const body = new ByteWriter(payload.length + kept.length * 8);
  let maxTimestamp = NO_TIMESTAMP;
  for (const record of kept) {
    if (record.timestamp > maxTimestamp) maxTimestamp = record.timestamp;
    const head = new ByteWriter(16);
    head.int8(0);
    head.varlongExact(BigInt.asIntN(64, record.timestamp - baseTimestamp));
    head.varint(record.offsetDelta);
    body.varint(head.length + record.end - record.restStart);
    body.raw(head.toBytes());
    body.raw(payload.subarray(record.restStart, record.end));
  }
  const type = batch.compressionType ?? 'none';
  const records = type === 'none' ? body.toBytes() : compression.compress(type, body.toBytes());
  return withHeader(batch, records, {
    attributes: batch.attributes | (horizon === undefined ? 0 : ATTRIBUTE.deleteHorizon),
    baseTimestamp,
    maxTimestamp: batch.isLogAppendTime ? batch.maxTimestamp : maxTimestamp,
    count: kept.length,
  });
}

/** Whether the batch is already what {@link emptyBatch} makes of it. */
function isEmptyHeader(batch: RecordBatch, header: BatchHeader): boolean {
  const bits = header.attributes & (ATTRIBUTE.compression | ATTRIBUTE.deleteHorizon);
  return header.size === BATCH_HEADER_BYTES && bits === 0 && batch.baseTimestamp === NO_TIMESTAMP;
}

/** The batch without records: its offsets, sequences and epochs are left. */
function emptyBatch(batch: RecordBatch): Uint8Array {
  return withHeader(batch, new Uint8Array(0), {
    attributes: batch.attributes & ~(ATTRIBUTE.compression | ATTRIBUTE.deleteHorizon),
    baseTimestamp: NO_TIMESTAMP,
    maxTimestamp: batch.maxTimestamp,
    count: 0,
  });
}

interface ChangedFields {
  readonly attributes: number;
  readonly baseTimestamp: bigint;
  readonly maxTimestamp: bigint;
  readonly count: number;
}

function withHeader(batch: RecordBatch, records: Uint8Array, fields: ChangedFields): Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(BATCH_HEADER_BYTES + records.length);
  bytes.set(batch.slice().subarray(0, BATCH_HEADER_BYTES));
  bytes.set(records, BATCH_HEADER_BYTES);
  bytes.writeInt32BE(bytes.length - LOG_OVERHEAD, LENGTH_AT);
  bytes.writeInt16BE(fields.attributes, ATTRIBUTES_AT);
  bytes.writeBigInt64BE(fields.baseTimestamp, BASE_TIMESTAMP_AT);
  bytes.writeBigInt64BE(fields.maxTimestamp, MAX_TIMESTAMP_AT);
  bytes.writeInt32BE(fields.count, COUNT_AT);
  new RecordBatch(bytes).updateCrc();
  return bytes;
}
