/**
 * What a batch from a client must satisfy before it enters a log, as Apache Kafka checks it.
 *
 * Nothing is changed here but the max timestamp of the batch, which is made true. Cost: the CRC
 * over the batch, and a walk over the records' varints; a compressed batch is decompressed for the
 * walk (the larger part of what such a produce costs), never beyond {@link MAX_DECOMPRESSED_BYTES}.
 */
import { ByteReader, MalformedBytes } from '../base/bytes.ts';
import type { Compression } from '../io/runtime.ts';
import { ErrorCode } from '../protocol/errors.ts';
import {
  ATTRIBUTE,
  BATCH_HEADER_BYTES,
  compressionCode,
  LOG_OVERHEAD,
  NO_SEQUENCE,
  RecordBatch,
} from '../protocol/record-batch.ts';
import { BatchHeader } from './batch-header.ts';
import { isCompacted, type LogConfig } from './log-config.ts';

/** What a batch may inflate to; larger ones are refused. */
export const MAX_DECOMPRESSED_BYTES = 128 * 1024 ** 2;
/** Record errors listed in one answer. */
const MAX_RECORD_ERRORS = 100;
const NO_TIMESTAMP = -1;
const MAX_TIMESTAMP_AT = 35;
const ATTRIBUTES_AT = 21;

/** What is wrong with one record of a batch. */
export interface RecordError {
  readonly batchIndex: number;
  readonly message: string;
}

/** Why nothing was appended. */
export interface Refusal {
  readonly error: Exclude<ErrorCode, 0>;
  readonly message: string;
  readonly recordErrors?: readonly RecordError[];
}

/** What the checks need to know. */
export interface ClientBatchContext {
  readonly config: LogConfig;
  readonly nowMs: number;
  readonly compression: Compression;
}

/** A batch that may be appended; its bytes are new ones when the topic asks for another codec. */
export interface AcceptedBatch {
  readonly error: 0;
  readonly bytes: Uint8Array;
}

function refuse(error: Exclude<ErrorCode, 0>, message: string): Refusal {
  return { error, message };
}

/** Checks the one batch in `bytes`. */
export function validateClientBatch(
  bytes: Uint8Array,
  context: ClientBatchContext,
): AcceptedBatch | Refusal {
  const header = new BatchHeader();
  const refused = checkHeader(bytes, header, context.config);
  if (refused !== undefined) return refused;
  const batch = new RecordBatch(bytes);
  const type = batch.compressionType;
  if (type === undefined) {
    return refuse(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 'unknown compression codec');
  }
  try {
    const payload =
      type === 'none'
        ? batch.payload()
        : context.compression.decompress(type, batch.payload(), MAX_DECOMPRESSED_BYTES);
    const walked = walkRecords(payload, batch, context);
    if (walked.errors.length > 0) return walked.refusal();
    const stored = recompressed(batch, payload, context);
    stampTimestamps(stored, walked.maxTimestamp, context);
    return { error: 0, bytes: stored.bytes };
  } catch (error) {
    if (!(error instanceof MalformedBytes || error instanceof RangeError)) throw error;
    return refuse(ErrorCode.INVALID_RECORD, `records are malformed: ${error.message}`);
  }
}

function checkHeader(
  bytes: Uint8Array,
  header: BatchHeader,
  config: LogConfig,
): Refusal | undefined {
  const problem = header.read(bytes, 0);
  if (problem === 'magic') {
    return refuse(ErrorCode.INVALID_RECORD, 'only record batches of magic 2 are accepted');
  }
  if (problem !== undefined || header.size > bytes.length) {
    return refuse(ErrorCode.INVALID_RECORD, 'bytes are not a whole record batch');
  }
  if (header.size < bytes.length) {
    return refuse(ErrorCode.INVALID_RECORD, 'exactly one record batch per partition is accepted');
  }
  if (header.baseOffset !== 0) {
    return refuse(ErrorCode.INVALID_RECORD, `base offset ${header.baseOffset} must be 0`);
  }
  if (header.size > config.maxMessageBytes) {
    const limit = `max.message.bytes ${config.maxMessageBytes}`;
    return refuse(ErrorCode.MESSAGE_TOO_LARGE, `batch of ${header.size} bytes exceeds ${limit}`);
  }
  if (!new RecordBatch(bytes).validCrc()) {
    return refuse(ErrorCode.CORRUPT_MESSAGE, 'CRC of the record batch does not match');
  }
  if (header.size > config.segmentBytes) {
    const limit = `segment.bytes ${config.segmentBytes}`;
    return refuse(ErrorCode.RECORD_LIST_TOO_LARGE, `batch of ${header.size} exceeds ${limit}`);
  }
  if (header.recordCount <= 0 || header.recordCount !== header.lastOffsetDelta + 1) {
    const range = `last offset delta ${header.lastOffsetDelta}`;
    return refuse(ErrorCode.INVALID_RECORD, `${header.recordCount} records do not fit ${range}`);
  }
  if (header.isControl) {
    return refuse(ErrorCode.INVALID_RECORD, 'clients are not allowed to write control records');
  }
  if (header.hasProducerId && header.baseSequence <= NO_SEQUENCE) {
    const text = `sequence ${header.baseSequence} of producer ${header.producerId}`;
    return refuse(ErrorCode.INVALID_RECORD, `${text} is not valid`);
  }
  if ((header.attributes & ATTRIBUTE.logAppendTime) !== 0) {
    return refuse(ErrorCode.INVALID_TIMESTAMP, 'producers may not set log append time');
  }
  return undefined;
}

/** What a walk over the records found. */
class Walk {
  readonly errors: RecordError[] = [];
  #timestampProblem = false;
  maxTimestamp = BigInt(NO_TIMESTAMP);

  fail(batchIndex: number, message: string, isTimestamp: boolean): void {
    if (this.errors.length < MAX_RECORD_ERRORS) this.errors.push({ batchIndex, message });
    if (isTimestamp) this.#timestampProblem = true;
  }

  refusal(): Refusal {
    const timestamp = this.#timestampProblem;
    return {
      error: timestamp ? ErrorCode.INVALID_TIMESTAMP : ErrorCode.INVALID_RECORD,
      message: `one or more records have been rejected: ${this.errors[0]?.message}`,
      recordErrors: this.errors,
    };
  }
}

function walkRecords(payload: Uint8Array, batch: RecordBatch, context: ClientBatchContext): Walk {
  const { config, nowMs } = context;
  const walk = new Walk();
  const reader = new ByteReader(payload);
  const { baseTimestamp, count } = batch;
  const base = Number(baseTimestamp);
  const needsKey = isCompacted(config);
  const checked = config.messageTimestampType === 'CreateTime';
  const earliest = checked ? nowMs - config.messageTimestampBeforeMaxMs : Number.NEGATIVE_INFINITY;
  const latest = checked ? nowMs + config.messageTimestampAfterMaxMs : Number.POSITIVE_INFINITY;
  let maxDelta = Number.NEGATIVE_INFINITY;
  for (let index = 0; index < count; index++) {
    const length = reader.varint();
    const end = reader.position + length;
    if (length < 0 || length > reader.remaining) {
      throw new MalformedBytes(`record of ${length} bytes`, reader.position);
    }
    reader.int8();
    const delta = reader.varlong();
    if (delta > maxDelta) maxDelta = delta;
    const timestamp = base + delta;
    if ((timestamp < earliest || timestamp > latest) && timestamp !== NO_TIMESTAMP) {
      const range = `[${earliest}, ${latest}]`;
      walk.fail(index, `timestamp ${timestamp} is out of range ${range}`, true);
    }
    if (reader.varint() !== index) throw new MalformedBytes('offset delta', reader.position);
    const keyLength = reader.varint();
    if (keyLength >= 0) reader.skip(keyLength, 'key');
    else if (needsKey) walk.fail(index, 'compacted topics need a key in every record', false);
    skipField(reader);
    const headers = reader.varint();
    if (headers < 0) throw new MalformedBytes('record headers', reader.position);
    for (let header = 0; header < headers; header++) {
      reader.skip(reader.varint(), 'header key');
      skipField(reader);
    }
    if (reader.position !== end) throw new MalformedBytes('record does not fill its length', end);
  }
  if (reader.remaining > 0) throw new MalformedBytes('bytes behind the records', reader.position);
  walk.maxTimestamp = BigInt.asIntN(64, baseTimestamp + BigInt(maxDelta));
  return walk;
}

function skipField(reader: ByteReader): void {
  const length = reader.varint();
  if (length > 0) reader.skip(length, 'record field');
}

/** The batch in the codec that the topic asks for. */
function recompressed(
  batch: RecordBatch,
  payload: Uint8Array,
  context: ClientBatchContext,
): RecordBatch {
  const target = context.config.compressionType;
  if (target === 'producer' || target === batch.compressionType) return batch;
  const body = target === 'none' ? payload : context.compression.compress(target, payload);
  const bytes = Buffer.allocUnsafeSlow(BATCH_HEADER_BYTES + body.length);
  bytes.set(batch.bytes.subarray(0, BATCH_HEADER_BYTES), 0);
  bytes.set(body, BATCH_HEADER_BYTES);
  bytes.writeInt32BE(bytes.length - LOG_OVERHEAD, 8);
  const attributes = (batch.attributes & ~ATTRIBUTE.compression) | compressionCode(target);
  bytes.writeInt16BE(attributes, ATTRIBUTES_AT);
  const stored = new RecordBatch(bytes);
  stored.updateCrc();
  return stored;
}

/** Makes the max timestamp what it must be: the broker's time, or that of the records. */
function stampTimestamps(
  batch: RecordBatch,
  maxTimestamp: bigint,
  context: ClientBatchContext,
): void {
  if (context.config.messageTimestampType === 'LogAppendTime') {
    batch.setLogAppendTime(context.nowMs);
    return;
  }
  if (batch.maxTimestamp === maxTimestamp) return;
  const { buffer, byteOffset } = batch.bytes;
  new DataView(buffer, byteOffset).setBigInt64(MAX_TIMESTAMP_AT, maxTimestamp);
  batch.updateCrc();
}
