/**
 * The header of a record batch, read into one reused object: the log's per-batch cost.
 *
 * The mirror's hot path reads every batch header of every fetched chunk, and recovery reads headers
 * whose batch is not in memory, so this is a plain set of fields next to the RecordBatch view:
 * nothing is allocated and no bigint is made; 64-bit fields are their signed upper and unsigned
 * lower halves. Offsets are numbers; one beyond 2^53 is refused with the batch.
 */
import { ByteReader } from '../base/bytes.ts';
import { ControlRecordType } from '../protocol/control-record.ts';
import {
  ATTRIBUTE,
  BATCH_HEADER_BYTES,
  CURRENT_MAGIC,
  incrementSequence,
  LOG_OVERHEAD,
  NO_SEQUENCE,
} from '../protocol/record-batch.ts';
import { fromHalves } from './time-index.ts';

const TWO_32 = 0x1_0000_0000;
const MAX_OFFSET_HIGH = 0x1f_ffff;
/** Messages of format 0 and 1 have at least so many bytes behind their length. */
const MIN_LEGACY_LENGTH = 14;
const MAGIC_AT = 16;

function int32At(bytes: Uint8Array, at: number): number {
  return (
    ((bytes[at] as number) << 24) |
    ((bytes[at + 1] as number) << 16) |
    ((bytes[at + 2] as number) << 8) |
    (bytes[at + 3] as number)
  );
}

function int16At(bytes: Uint8Array, at: number): number {
  return (((bytes[at] as number) << 24) >> 16) | (bytes[at + 1] as number);
}

/** What is wrong at a position: `magic` is a message of format 0 or 1, which is not supported. */
export type HeaderProblem = 'truncated' | 'malformed' | 'magic';

/** The fields of one batch header. */
export class BatchHeader {
  /** Bytes of the whole batch. */
  size = 0;
  baseOffset = 0;
  lastOffset = 0;
  leaderEpoch = 0;
  attributes = 0;
  lastOffsetDelta = 0;
  maxTimestampHigh = 0;
  maxTimestampLow = 0;
  producerIdHigh = 0;
  producerIdLow = 0;
  producerEpoch = 0;
  baseSequence = 0;
  recordCount = 0;

  /**
   * Reads the header at `at`; the fields are good when it answers undefined. The batch itself may
   * go on behind `end`.
   */
  read(bytes: Uint8Array, at: number, end = bytes.length): HeaderProblem | undefined {
    if (end - at <= MAGIC_AT) return 'truncated';
    const length = int32At(bytes, at + 8);
    const magic = bytes[at + MAGIC_AT] as number;
    if (magic !== CURRENT_MAGIC) {
      return magic < CURRENT_MAGIC && length >= MIN_LEGACY_LENGTH ? 'magic' : 'malformed';
    }
    if (length < BATCH_HEADER_BYTES - LOG_OVERHEAD) return 'malformed';
    if (end - at < BATCH_HEADER_BYTES) return 'truncated';
    const baseOffsetHigh = int32At(bytes, at);
    this.lastOffsetDelta = int32At(bytes, at + 23);
    if (baseOffsetHigh < 0 || baseOffsetHigh > MAX_OFFSET_HIGH) return 'malformed';
    if (this.lastOffsetDelta < 0) return 'malformed';
    this.size = length + LOG_OVERHEAD;
    this.baseOffset = baseOffsetHigh * TWO_32 + (int32At(bytes, at + 4) >>> 0);
    this.lastOffset = this.baseOffset + this.lastOffsetDelta;
    this.leaderEpoch = int32At(bytes, at + 12);
    this.attributes = int16At(bytes, at + 21);
    this.maxTimestampHigh = int32At(bytes, at + 35);
    this.maxTimestampLow = int32At(bytes, at + 39) >>> 0;
    this.producerIdHigh = int32At(bytes, at + 43);
    this.producerIdLow = int32At(bytes, at + 47) >>> 0;
    this.producerEpoch = int16At(bytes, at + 51);
    this.baseSequence = int32At(bytes, at + 53);
    this.recordCount = int32At(bytes, at + 57);
    return this.lastOffset < Number.MAX_SAFE_INTEGER ? undefined : 'malformed';
  }

  /** Rule P2: every id but −1 is a producer id. */
  get hasProducerId(): boolean {
    return this.producerIdHigh !== -1 || this.producerIdLow !== 0xffff_ffff;
  }

  get producerId(): bigint {
    return fromHalves(this.producerIdHigh, this.producerIdLow);
  }

  get isTransactional(): boolean {
    return (this.attributes & ATTRIBUTE.transactional) !== 0;
  }

  get isControl(): boolean {
    return (this.attributes & ATTRIBUTE.control) !== 0;
  }

  /** Sequence of the last record; −1 when the batch has none. */
  get lastSequence(): number {
    if (this.baseSequence === NO_SEQUENCE) return NO_SEQUENCE;
    return incrementSequence(this.baseSequence, this.lastOffsetDelta);
  }
}

/** What ends a transaction in a partition. */
export interface EndOfTransaction {
  readonly aborted: boolean;
  readonly coordinatorEpoch: number;
}

/**
 * The marker in the control batch of `size` bytes at `at`; undefined when its record is of another
 * type, or when compaction has taken it (the batch is left to tell the producer's epoch). Throws
 * MalformedBytes when there is no readable record.
 */
export function readMarker(
  bytes: Uint8Array,
  at: number,
  size: number,
): EndOfTransaction | undefined {
  if (size === BATCH_HEADER_BYTES) return undefined;
  const reader = new ByteReader(bytes, at + BATCH_HEADER_BYTES, at + size);
  reader.varint();
  reader.int8();
  reader.varlongExact();
  reader.varint();
  const key = new ByteReader(reader.view(reader.varint(), 'control record key'));
  key.int16();
  const type = key.int16();
  if (type !== ControlRecordType.abort && type !== ControlRecordType.commit) return undefined;
  const value = new ByteReader(reader.view(reader.varint(), 'control record value'));
  value.int16();
  return { aborted: type === ControlRecordType.abort, coordinatorEpoch: value.int32() };
}
