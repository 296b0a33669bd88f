/**
 * What batches of a leader, or of a mirror's source, must satisfy before they enter a log, and how
 * damage in any batch is refused.
 *
 * Called by `log.ts` for every append. Bytes are never changed here, records never opened.
 */
import { MalformedBytes } from '../base/bytes.ts';
import { ErrorCode } from '../protocol/errors.ts';
import { RecordBatch } from '../protocol/record-batch.ts';
import type { Refusal } from './append-validation.ts';
import { BatchHeader, readMarker } from './batch-header.ts';
import { numberFromHalves } from './time-index.ts';

/** The batch that is looked at; nothing waits while it is. */
const header = new BatchHeader();

/** Batches that may be appended as they are. */
export interface FollowedBatches {
  readonly error: 0;
  /** −1: there is none. */
  readonly firstOffset: number;
  readonly nextOffset: number;
  readonly byteCount: number;
  /** Max timestamp of the last batch. */
  readonly lastTimestampMs: number;
}

/** Whether whole batches in ascending order, with gaps or without, may follow `logEndOffset`. */
export function checkFollowed(
  records: readonly Uint8Array[],
  logEndOffset: number,
  verifyCrc: boolean,
): FollowedBatches | Refusal {
  let expected = logEndOffset;
  let firstOffset = -1;
  let byteCount = 0;
  for (const chunk of records) {
    for (let at = 0; at < chunk.length; at += header.size) {
      const problem = header.read(chunk, at);
      if (problem !== undefined || at + header.size > chunk.length) {
        return badBatch(problem === 'magic', expected);
      }
      if (header.baseOffset < expected) return notMonotonic(header.baseOffset, expected);
      if (verifyCrc && !new RecordBatch(chunk, at).validCrc()) return badCrc(header.baseOffset);
      if (header.isControl && !isReadableControl(chunk, at, header)) {
        return badBatch(false, header.baseOffset);
      }
      if (firstOffset < 0) firstOffset = header.baseOffset;
      expected = header.lastOffset + 1;
    }
    byteCount += chunk.length;
  }
  const lastTimestampMs = numberFromHalves(header.maxTimestampHigh, header.maxTimestampLow);
  return { error: 0, firstOffset, nextOffset: expected, byteCount, lastTimestampMs };
}

/** A batch that cannot be taken, `isLegacy` because of its format. */
export function badBatch(isLegacy: boolean, offset: number): Refusal {
  return isLegacy
    ? {
        error: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        message: `message format 0 or 1 at offset ${offset} is not supported`,
      }
    : { error: ErrorCode.CORRUPT_MESSAGE, message: `malformed batch at offset ${offset}` };
}

function badCrc(offset: number): Refusal {
  return { error: ErrorCode.CORRUPT_MESSAGE, message: `CRC mismatch at offset ${offset}` };
}

function notMonotonic(offset: number, expected: number): Refusal {
  const message = `batch at offset ${offset} is below the log end ${expected}`;
  return { error: ErrorCode.OFFSET_OUT_OF_RANGE, message };
}

/** Whether a control batch says what it ends, or openly nothing. */
export function isReadableControl(bytes: Uint8Array, at: number, batch: BatchHeader): boolean {
  try {
    readMarker(bytes, at, batch.size);
    return true;
  } catch (error) {
    if (error instanceof MalformedBytes) return false;
    throw error;
  }
}
