/**
 * A record batch (magic 2) as a view over bytes, and a scan over the batches in a piece of a log.
 *
 * ```
 *  0 baseOffset int64        21 attributes int16       43 producerId int64
 *  8 batchLength int32       23 lastOffsetDelta int32  51 producerEpoch int16
 * 12 partitionLeaderEpoch    27 baseTimestamp int64    53 baseSequence int32
 * 16 magic int8              35 maxTimestamp int64     57 record count int32
 * 17 crc uint32 (of 21…)                               61 records, maybe compressed
 * ```
 * - A view reads and patches in place: no copy, no look at records. All but base offset and
 *   partition leader epoch lie inside the CRC, which every patch keeps valid.
 * - Getters trust {@link batchProblem}: ask it (or scan) before looking at bytes from outside.
 */
import { crc32c } from '../base/crc32c.ts';
import type { CompressionType } from '../io/runtime.ts';
import { patchCrc32c } from './crc-patch.ts';

/** Bytes before the ones that `batchLength` counts. */
export const LOG_OVERHEAD = 12;
/** Bytes of a batch before its records. */
export const BATCH_HEADER_BYTES = 61;
/** The magic of all batches written by Kafka since 0.11. */
export const CURRENT_MAGIC = 2;
/** "No producer id", the only value that means it (rule P2). */
export const NO_PRODUCER_ID = -1n;
/** "No sequence number". */
export const NO_SEQUENCE = -1;

const MIN_LEGACY_LENGTH = 14;
const MAGIC_AT = 16;
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;
const LAST_OFFSET_DELTA_AT = 23;
const BASE_TIMESTAMP_AT = 27;
const MAX_TIMESTAMP_AT = 35;
const PRODUCER_ID_AT = 43;
const COUNT_AT = 57;
const TWO_32 = 0x1_0000_0000;

/** Attribute bits. */
export const ATTRIBUTE = Object.freeze({
  compression: 0x07,
  logAppendTime: 0x08,
  transactional: 0x10,
  control: 0x20,
  deleteHorizon: 0x40,
});

const COMPRESSION_TYPES: readonly CompressionType[] = ['none', 'gzip', 'snappy', 'lz4', 'zstd'];

/** The attribute bits of a codec. */
export function compressionCode(type: CompressionType): number {
  return COMPRESSION_TYPES.indexOf(type);
}

/** The sequence number `increment` after `sequence`; after 2^31 − 1 comes 0. */
export function incrementSequence(sequence: number, increment: number): number {
  const next = sequence + increment;
  return next > 0x7fff_ffff ? next - 0x8000_0000 : next;
}

/**
 * Why bytes are no batch: `truncated` they end before it does; `badLength` its length cannot hold a
 * header; `legacyMagic` message format 0 or 1; `unknownMagic`; `badOffset` an offset below 0 or
 * beyond 2^53; `badCount` more records than offsets, or a negative number.
 */
export type BatchProblem =
  | 'truncated'
  | 'badLength'
  | 'legacyMagic'
  | 'unknownMagic'
  | 'badOffset'
  | 'badCount';

function problemAt(view: DataView, start: number, end: number): BatchProblem | undefined {
  if (end - start < LOG_OVERHEAD) return 'truncated';
  const length = view.getInt32(start + 8);
  if (length < MIN_LEGACY_LENGTH) return 'badLength';
  if (length > end - start - LOG_OVERHEAD) return 'truncated';
  const magic = view.getInt8(start + MAGIC_AT);
  if (magic !== CURRENT_MAGIC) return magic === 0 || magic === 1 ? 'legacyMagic' : 'unknownMagic';
  if (length < BATCH_HEADER_BYTES - LOG_OVERHEAD) return 'badLength';
  const high = view.getInt32(start);
  const delta = view.getInt32(start + LAST_OFFSET_DELTA_AT);
  if (high < 0 || high >= 0x20_0000 || delta < 0) return 'badOffset';
  if (high * TWO_32 + view.getUint32(start + 4) + delta >= Number.MAX_SAFE_INTEGER) {
    return 'badOffset';
  }
  const count = view.getInt32(start + COUNT_AT);
  return count < 0 || count > delta + 1 ? 'badCount' : undefined;
}

function dataView(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** What keeps `bytes` from starting a whole batch at `start`; its CRC is not looked at. */
export function batchProblem(
  bytes: Uint8Array,
  start = 0,
  end = bytes.length,
): BatchProblem | undefined {
  return problemAt(dataView(bytes), start, end);
}

/** A batch within bytes. */
export class RecordBatch {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  #start: number;

  constructor(bytes: Uint8Array, start = 0, view = dataView(bytes)) {
    this.bytes = bytes;
    this.#view = view;
    this.#start = start;
  }

  /** Where the batch starts in `bytes`. */
  get position(): number {
    return this.#start;
  }

  /** Makes this the view of another batch in the same bytes. */
  moveTo(position: number): void {
    this.#start = position;
  }

  get baseOffset(): number {
    return this.#number(0);
  }

  /** Patches the base offset: outside the CRC. */
  setBaseOffset(offset: number): void {
    this.#view.setUint32(this.#start, Math.floor(offset / TWO_32));
    this.#view.setUint32(this.#start + 4, offset >>> 0);
  }

  /** All bytes of the batch, the 12 before the length's scope included. */
  get sizeInBytes(): number {
    return this.#view.getInt32(this.#start + 8) + LOG_OVERHEAD;
  }

  /** Where the next batch starts in `bytes`. */
  get end(): number {
    return this.#start + this.sizeInBytes;
  }

  get partitionLeaderEpoch(): number {
    return this.#view.getInt32(this.#start + 12);
  }

  /** Patches the leader epoch: outside the CRC. */
  setPartitionLeaderEpoch(epoch: number): void {
    this.#view.setInt32(this.#start + 12, epoch);
  }

  get magic(): number {
    return this.#view.getInt8(this.#start + MAGIC_AT);
  }

  get crc(): number {
    return this.#view.getUint32(this.#start + CRC_AT);
  }

  get attributes(): number {
    return this.#view.getInt16(this.#start + ATTRIBUTES_AT);
  }

  /** Undefined for codec bits that Kafka does not know. */
  get compressionType(): CompressionType | undefined {
    return COMPRESSION_TYPES[this.attributes & ATTRIBUTE.compression];
  }

  /** Whether `maxTimestamp` is the broker's time, and that of every record. */
  get isLogAppendTime(): boolean {
    return (this.attributes & ATTRIBUTE.logAppendTime) !== 0;
  }

  get isTransactional(): boolean {
    return (this.attributes & ATTRIBUTE.transactional) !== 0;
  }

  get isControl(): boolean {
    return (this.attributes & ATTRIBUTE.control) !== 0;
  }

  /** Whether `baseTimestamp` is the time from which tombstones may be removed. */
  get hasDeleteHorizon(): boolean {
    return (this.attributes & ATTRIBUTE.deleteHorizon) !== 0;
  }

  get lastOffsetDelta(): number {
    return this.#view.getInt32(this.#start + LAST_OFFSET_DELTA_AT);
  }

  get lastOffset(): number {
    return this.baseOffset + this.lastOffsetDelta;
  }

  /** The offset after the batch. */
  get nextOffset(): number {
    return this.lastOffset + 1;
  }

  get baseTimestamp(): bigint {
    return this.#view.getBigInt64(this.#start + BASE_TIMESTAMP_AT);
  }

  get maxTimestamp(): bigint {
    return this.#view.getBigInt64(this.#start + MAX_TIMESTAMP_AT);
  }

  /** `maxTimestamp` without a bigint; inexact beyond ±2^53. */
  get maxTimestampMs(): number {
    return this.#number(MAX_TIMESTAMP_AT);
  }

  get producerId(): bigint {
    return this.#view.getBigInt64(this.#start + PRODUCER_ID_AT);
  }

  /** Bits 63–32 of the producer id, signed. */
  get producerIdHigh(): number {
    return this.#view.getInt32(this.#start + PRODUCER_ID_AT);
  }

  /** Bits 31–0 of the producer id, unsigned. */
  get producerIdLow(): number {
    return this.#view.getUint32(this.#start + PRODUCER_ID_AT + 4);
  }

  /** Rule P2: any id but −1, negative ones included; without a bigint. */
  get hasProducerId(): boolean {
    return this.producerIdHigh !== -1 || this.producerIdLow !== 0xffff_ffff;
  }

  get producerEpoch(): number {
    return this.#view.getInt16(this.#start + 51);
  }

  get baseSequence(): number {
    return this.#view.getInt32(this.#start + 53);
  }

  /** The last record's sequence number (after 2^31 − 1 comes 0), or −1. */
  get lastSequence(): number {
    const base = this.baseSequence;
    return base === NO_SEQUENCE ? NO_SEQUENCE : incrementSequence(base, this.lastOffsetDelta);
  }

  /** The number of records. */
  get count(): number {
    return this.#view.getInt32(this.#start + COUNT_AT);
  }

  /** A view of the whole batch. */
  slice(): Uint8Array {
    return this.bytes.subarray(this.#start, this.end);
  }

  /** A view of the records, compressed if the batch is. */
  payload(): Uint8Array {
    return this.bytes.subarray(this.#start + BATCH_HEADER_BYTES, this.end);
  }

  #computeCrc(): number {
    return crc32c(this.bytes.subarray(this.#start + ATTRIBUTES_AT, this.end));
  }

  /** Whether the stored CRC is that of the bytes. */
  validCrc(): boolean {
    return this.#computeCrc() === this.crc;
  }

  /** Recomputes the CRC over the whole batch. */
  updateCrc(): void {
    this.#view.setUint32(this.#start + CRC_AT, this.#computeCrc());
  }

  /** Gives all records the broker's time; recomputes the CRC. */
  setLogAppendTime(timestampMs: number): void {
    this.#view.setInt16(this.#start + ATTRIBUTES_AT, this.attributes | ATTRIBUTE.logAppendTime);
    this.#view.setBigInt64(this.#start + MAX_TIMESTAMP_AT, BigInt(timestampMs));
    this.updateCrc();
  }

  /** Replaces the producer id and updates the CRC without reading the records (rule P1). */
  rewriteProducerId(producerId: bigint): void {
    const high = Number(BigInt.asIntN(32, producerId >> 32n));
    this.rewriteProducerIdHalves(high, Number(BigInt.asUintN(32, producerId)));
  }

  /** The same, with bits 63–32 and 31–0 as numbers. */
  rewriteProducerIdHalves(high: number, low: number): void {
    const at = this.#start + PRODUCER_ID_AT;
    const changedHigh = this.#view.getInt32(at) ^ high;
    const changedLow = this.#view.getInt32(at + 4) ^ low;
    const behind = this.sizeInBytes - PRODUCER_ID_AT - 8;
    const crc = patchCrc32c(this.crc, changedHigh, changedLow, behind);
    this.#view.setInt32(at, high);
    this.#view.setInt32(at + 4, low);
    this.#view.setUint32(this.#start + CRC_AT, crc);
  }

  #number(at: number): number {
    const high = this.#view.getInt32(this.#start + at);
    return high * TWO_32 + this.#view.getUint32(this.#start + at + 4);
  }
}

/** How a scan ended: at `position` all was read (or the visitor stopped), or there is a problem. */
export type BatchScan =
  | { readonly ok: true; readonly position: number }
  | { readonly ok: false; readonly problem: BatchProblem; readonly position: number };

/**
 * Calls `visit` for each batch in [start, end), with one view that moves: keep numbers, not it.
 * Stops behind a batch for which `visit` returns false, or before the first problem.
 */
export function forEachBatch(
  bytes: Uint8Array,
  start: number,
  end: number,
  visit: (batch: RecordBatch) => unknown,
): BatchScan {
  const view = dataView(bytes);
  const batch = new RecordBatch(bytes, start, view);
  let position = start;
  while (position < end) {
    const problem = problemAt(view, position, end);
    if (problem !== undefined) return { ok: false, problem, position };
    batch.moveTo(position);
    position = batch.end;
    if (visit(batch) === false) break;
  }
  return { ok: true, position };
}
