/**
 * Reading a log: bytes from an offset on, aborted transactions beside them, offsets by timestamp.
 *
 * Functions over the segments of one log; `log.ts` gives the bounds. A read is one allocation of
 * what is read and one disk read, after a look through the index and at a few batch headers.
 */
import type { BufferPool } from '../base/buffer-pool.ts';
import type { Compression } from '../io/runtime.ts';
import { decodeRecords } from '../protocol/record.ts';
import { RecordBatch } from '../protocol/record-batch.ts';
import { MAX_DECOMPRESSED_BYTES } from './append-validation.ts';
import { BatchHeader } from './batch-header.ts';
import { scanBatches } from './batch-scan.ts';
import type { BatchPosition, LogSegment } from './log-segment.ts';
import type { LogSegments } from './log-segments.ts';
import { halves } from './time-index.ts';
import type { AbortedTransaction } from './transaction-index.ts';

const header = new BatchHeader();

/** What to read. */
export interface ReadRange {
  readonly startOffset: number;
  /** Batches with a record at or above it are not read. */
  readonly upperOffset: number;
  readonly logEndOffset: number;
  readonly maxBytes: number;
  /** Read the first batch even when it is larger than `maxBytes`. */
  readonly minOneBatch: boolean;
}

/** Whole batches, and the offset behind the last one. */
export interface ReadBytes {
  readonly bytes: Uint8Array | undefined;
  readonly endOffset: number;
}

/** The batch that has the first record at or above `offset`, and the number of its segment. */
export function findBatch(
  segments: LogSegments,
  offset: number,
): { readonly index: number; readonly found: BatchPosition } | undefined {
  for (let index = segments.floorIndex(offset); index < segments.count; index++) {
    const found = segments.at(index)?.find(offset);
    if (found !== undefined) return { index, found };
  }
  return undefined;
}

/** Reads whole batches, from the one that holds `startOffset` on, out of one segment. */
export function readBatches(
  segments: LogSegments,
  range: ReadRange,
  buffers: BufferPool,
): ReadBytes {
  const nothing: ReadBytes = { bytes: undefined, endOffset: range.startOffset };
  if (range.startOffset >= range.upperOffset) return nothing;
  const first = findBatch(segments, range.startOffset);
  if (first === undefined) return nothing;
  const { index, found } = first;
  const end = upperPosition(segments, index, range);
  let wanted = Math.min(range.maxBytes, end - found.position);
  if (wanted < found.size) {
    if (!range.minOneBatch || found.size > end - found.position) return nothing;
    wanted = found.size;
  }
  const bytes = buffers.take(wanted);
  const length = (segments.at(index) as LogSegment).read(bytes, found.position);
  return wholeBatches(bytes, length, range);
}

/** Position in the segment beyond which nothing below the upper offset lies. */
function upperPosition(segments: LogSegments, index: number, range: ReadRange): number {
  const segment = segments.at(index) as LogSegment;
  const segmentEnd = segments.at(index + 1)?.baseOffset ?? range.logEndOffset;
  if (range.upperOffset >= segmentEnd) return segment.size;
  return Math.min(segment.size, segment.offsetIndex.upperPosition(range.upperOffset) ?? Infinity);
}

function wholeBatches(bytes: Uint8Array, length: number, range: ReadRange): ReadBytes {
  let at = 0;
  let endOffset = range.startOffset;
  while (at < length && header.read(bytes, at, length) === undefined) {
    if (at + header.size > length || header.lastOffset >= range.upperOffset) break;
    at += header.size;
    endOffset = header.lastOffset + 1;
  }
  if (at === 0) return { bytes: undefined, endOffset };
  return { bytes: at === bytes.length ? bytes : bytes.subarray(0, at), endOffset };
}

/** The aborted transactions that concern offsets in [from, upTo). */
export function abortedTransactions(
  segments: LogSegments,
  from: number,
  upTo: number,
): AbortedTransaction[] {
  const found: AbortedTransaction[] = [];
  for (let index = segments.floorIndex(from); index < segments.count; index++) {
    if ((segments.at(index) as LogSegment).transactionIndex.collect(from, upTo, found)) break;
  }
  return found;
}

/** An answer to a search by timestamp. */
export interface TimestampOffset {
  readonly offset: number;
  readonly timestamp: bigint;
  readonly leaderEpoch: number;
}

/** Undefined: there is no such record. `elsewhere`: only other replicas know (log.ts). */
export type FoundTimestamp = TimestampOffset | 'elsewhere' | undefined;

/** The first record at or above the log start whose timestamp is `timestamp` or later. */
export function findByTimestamp(
  segments: LogSegments,
  timestamp: bigint,
  bounds: { readonly logStartOffset: number; readonly isPartial: boolean },
  compression: Compression,
): FoundTimestamp {
  const { logStartOffset } = bounds;
  if (bounds.isPartial) {
    const { size, firstTimestampMs } = segments.first;
    if (size === 0 || timestamp <= BigInt(firstTimestampMs)) return 'elsewhere';
  }
  const { high, low } = halves(timestamp);
  let index = segments.floorIndex(logStartOffset);
  for (; index < segments.count; index++) {
    const segment = segments.at(index) as LogSegment;
    if (segment.size === 0 || segment.isAllBelow(high, low)) continue;
    const indexed = segment.timeIndex.offsetBelow(timestamp) ?? segment.baseOffset;
    const from = segment.offsetIndex.lookup(Math.max(indexed, logStartOffset));
    const found = searchBatches(segment, from, compression, {
      batch: (batch) => batch.maxTimestamp >= timestamp && batch.lastOffset >= logStartOffset,
      record: (offset, time) => time >= timestamp && offset >= logStartOffset,
    });
    if (found !== undefined) return found;
  }
  return undefined;
}

/** The first record that has the largest timestamp of the log. */
export function findMaxTimestamp(
  segments: LogSegments,
  isPartial: boolean,
  compression: Compression,
): FoundTimestamp {
  let newest: LogSegment | undefined;
  for (const segment of segments.all()) {
    if (newest === undefined || segment.hasLaterTimestampThan(newest)) newest = segment;
  }
  const max = newest?.maxTimestamp();
  if (newest === undefined || max === undefined) return isPartial ? 'elsewhere' : undefined;
  const from = newest.find(max.offset)?.position ?? newest.size;
  return searchBatches(newest, from, compression, {
    batch: (batch) => batch.maxTimestamp >= max.timestamp,
    record: (_offset, time) => time >= max.timestamp,
  });
}

interface Wanted {
  readonly batch: (batch: RecordBatch) => boolean;
  readonly record: (offset: number, timestamp: bigint) => boolean;
}

/** The first wanted record in the wanted batches from `from` on. */
function searchBatches(
  segment: LogSegment,
  from: number,
  compression: Compression,
  wanted: Wanted,
): TimestampOffset | undefined {
  let found: TimestampOffset | undefined;
  scanBatches(segment, from, false, (bytes, at, seen, position) => {
    if (!wanted.batch(new RecordBatch(bytes, at))) return 'continue';
    // The scan has the header; the records are read apart.
    const whole = Buffer.allocUnsafeSlow(seen.size);
    segment.read(whole, position);
    const batch = new RecordBatch(whole);
    for (const record of decodeRecords(batch, compression, MAX_DECOMPRESSED_BYTES)) {
      if (!wanted.record(record.offset, record.timestamp)) continue;
      const { offset, timestamp } = record;
      found = { offset, timestamp, leaderEpoch: batch.partitionLeaderEpoch };
      return 'stop';
    }
    return 'continue';
  });
  return found;
}
