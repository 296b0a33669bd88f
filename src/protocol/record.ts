/**
 * Records inside batches: decoding them, and building batches of our own.
 *
 * ```
 * length varint · attributes int8 (0) · timestampDelta varlong · offsetDelta varint
 * key, value: varint length (−1 null) and bytes
 * headers: varint count, each a varint length and UTF-8 key, a varint length (−1 null) and value
 * ```
 * Used by coordinators, the controller, compaction and the tools; no produce, fetch or mirror path
 * of the broker decodes records. Decoding throws {@link MalformedBytes} for anything malformed.
 */
import { ByteReader, ByteWriter, MalformedBytes } from '../base/bytes.ts';
import type { Compression, CompressionType } from '../io/runtime.ts';
import {
  ATTRIBUTE,
  BATCH_HEADER_BYTES,
  CURRENT_MAGIC,
  compressionCode,
  LOG_OVERHEAD,
  NO_PRODUCER_ID,
  NO_SEQUENCE,
  RecordBatch,
} from './record-batch.ts';

/** A header of a record; keys may repeat. */
export interface RecordHeader {
  readonly key: string;
  readonly value: Uint8Array | null;
}

/** A decoded record; bytes are views of the (decompressed) batch. */
export interface DecodedRecord {
  readonly offset: number;
  /** Milliseconds since 1970 by the writer's clock, or the broker's with log append time. */
  readonly timestamp: bigint;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers: readonly RecordHeader[];
}

/** A record to be written. */
export interface NewRecord {
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly headers?: readonly RecordHeader[];
  /** Milliseconds since 1970. */
  readonly timestamp: bigint | number;
  /** Default: one after the record before. */
  readonly offset?: number;
}

/** A batch to be built; everything but the records has Kafka's "none" as default. */
export interface NewBatch {
  readonly baseOffset?: number;
  readonly records: readonly NewRecord[];
  /** Default: that of the last record; beyond it when later records were compacted away. */
  readonly lastOffset?: number;
  readonly partitionLeaderEpoch?: number;
  readonly producerId?: bigint;
  readonly producerEpoch?: number;
  readonly baseSequence?: number;
  readonly isTransactional?: boolean;
  readonly isControl?: boolean;
  readonly compression?: { readonly type: CompressionType; readonly port: Compression };
}

function writeBytes(writer: ByteWriter, bytes: Uint8Array | null): void {
  writer.varint(bytes === null ? -1 : bytes.length);
  if (bytes !== null) writer.raw(bytes);
}

function writeRecord(
  writer: ByteWriter,
  record: NewRecord,
  offsetDelta: number,
  timestampDelta: bigint,
): void {
  const body = new ByteWriter();
  body.int8(0);
  body.varlongExact(timestampDelta);
  body.varint(offsetDelta);
  writeBytes(body, record.key);
  writeBytes(body, record.value);
  const headers = record.headers ?? [];
  body.varint(headers.length);
  for (const { key, value } of headers) {
    writeBytes(body, Buffer.from(key, 'utf8'));
    writeBytes(body, value);
  }
  writer.varint(body.length);
  writer.raw(body.toBytes());
}

function attributesOf(batch: NewBatch): number {
  let attributes = compressionCode(batch.compression?.type ?? 'none');
  if (batch.isTransactional === true) attributes |= ATTRIBUTE.transactional;
  if (batch.isControl === true) attributes |= ATTRIBUTE.control;
  return attributes;
}

/** Builds a batch (magic 2) with a valid CRC. */
export function buildRecordBatch(batch: NewBatch): Uint8Array {
  const { records, compression } = batch;
  const baseOffset = batch.baseOffset ?? 0;
  const timestamps = records.map((record) => BigInt(record.timestamp));
  const baseTimestamp = timestamps[0] ?? -1n;
  let maxTimestamp = baseTimestamp;
  let offset = baseOffset - 1;
  const body = new ByteWriter();
  records.forEach((record, i) => {
    const timestamp = timestamps[i] as bigint;
    if (timestamp > maxTimestamp) maxTimestamp = timestamp;
    offset = record.offset ?? offset + 1;
    writeRecord(body, record, offset - baseOffset, timestamp - baseTimestamp);
  });
  let payload = body.toBytes();
  if (compression !== undefined) payload = compression.port.compress(compression.type, payload);

  const writer = new ByteWriter(BATCH_HEADER_BYTES + payload.length);
  writer.int64(baseOffset);
  writer.int32(BATCH_HEADER_BYTES - LOG_OVERHEAD + payload.length);
  writer.int32(batch.partitionLeaderEpoch ?? -1);
  writer.int8(CURRENT_MAGIC);
  writer.uint32(0);
  writer.int16(attributesOf(batch));
  writer.int32(Math.max(batch.lastOffset ?? offset, baseOffset) - baseOffset);
  writer.int64Exact(baseTimestamp);
  writer.int64Exact(maxTimestamp);
  writer.int64Exact(batch.producerId ?? NO_PRODUCER_ID);
  writer.int16(batch.producerEpoch ?? -1);
  writer.int32(batch.baseSequence ?? NO_SEQUENCE);
  writer.int32(records.length);
  writer.raw(payload);
  const bytes = writer.toBytes();
  new RecordBatch(bytes).updateCrc();
  return bytes;
}

function readBytes(reader: ByteReader, what: string): Uint8Array | null {
  const length = reader.varint();
  return length === -1 ? null : reader.view(length, what);
}

function readHeaders(reader: ByteReader): RecordHeader[] {
  const count = reader.varint();
  // A header takes two bytes at least.
  if (count < 0 || count * 2 > reader.remaining) {
    throw new MalformedBytes(`${count} record headers`, reader.position);
  }
  const headers: RecordHeader[] = [];
  for (let i = 0; i < count; i++) {
    const key = readBytes(reader, 'header key');
    if (key === null) throw new MalformedBytes('header without key', reader.position);
    const name = Buffer.from(key.buffer, key.byteOffset, key.byteLength).toString('utf8');
    headers.push({ key: name, value: readBytes(reader, 'header value') });
  }
  return headers;
}

function* readRecords(
  payload: Uint8Array,
  count: number,
  baseOffset: number,
  timestampOf: (delta: bigint) => bigint,
): Generator<DecodedRecord, void> {
  const reader = new ByteReader(payload);
  for (let i = 0; i < count; i++) {
    const length = reader.varint();
    const end = reader.position + length;
    if (length < 0 || length > reader.remaining) {
      throw new MalformedBytes(`record of ${length} bytes`, reader.position);
    }
    reader.int8();
    const timestamp = timestampOf(reader.varlongExact());
    const offset = baseOffset + reader.varint();
    const key = readBytes(reader, 'record key');
    const value = readBytes(reader, 'record value');
    const headers = readHeaders(reader);
    if (reader.position !== end) throw new MalformedBytes('record does not fill its length', end);
    yield { offset, timestamp, key, value, headers };
  }
  if (reader.remaining > 0) {
    throw new MalformedBytes(`${reader.remaining} bytes behind the last record`, reader.position);
  }
}

function decompressed(batch: RecordBatch, port: Compression, maxBytes: number): Uint8Array {
  const type = batch.compressionType;
  if (type === undefined) throw new MalformedBytes('unknown compression codec', batch.position);
  if (type === 'none') return batch.payload();
  try {
    return port.decompress(type, batch.payload(), maxBytes);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new MalformedBytes(`${type} payload: ${error.message}`, batch.position);
  }
}

/**
 * The records of a batch, in order; records beyond `maxBytes` of inflated payload are malformed.
 * The view may move while the result is being read; its bytes must stay as they are.
 */
export function decodeRecords(
  batch: RecordBatch,
  port: Compression,
  maxBytes: number,
): Generator<DecodedRecord, void> {
  const payload = decompressed(batch, port, maxBytes);
  const { baseTimestamp, maxTimestamp, isLogAppendTime } = batch;
  const timestampOf = isLogAppendTime
    ? () => maxTimestamp
    : (delta: bigint) => BigInt.asIntN(64, baseTimestamp + delta);
  return readRecords(payload, batch.count, batch.baseOffset, timestampOf);
}
