/**
 * Walking the batches of a segment file, for recovery and for replaying producer state.
 *
 * Reads through one shared buffer that grows for a batch larger than it and is given up afterwards.
 * A scan never throws for what is in the file: it says where it ended and why.
 */
import { BATCH_HEADER_BYTES } from '../protocol/record-batch.ts';
import { BatchHeader, type HeaderProblem, readMarker } from './batch-header.ts';
import type { LeaderEpochCache } from './leader-epoch-cache.ts';
import type { LogSegment } from './log-segment.ts';
import type { ProducerState } from './producer-state.ts';

const BUFFER_BYTES = 256 * 1024;

/** Where a scan ended: behind the last batch it visited. */
export interface ScanEnd {
  readonly position: number;
  /** Undefined: the end of the file, or the visitor stopped. */
  readonly problem: HeaderProblem | 'refused' | undefined;
}

/** `refused`: this batch and all behind it do not count. `stop`: enough seen. */
export type Visit = 'continue' | 'refused' | 'stop';

/** Sees one batch: its bytes start at `at`; all of them are there in a scan of whole batches. */
export type BatchVisitor = (
  bytes: Uint8Array,
  at: number,
  header: BatchHeader,
  position: number,
) => Visit;

const sharedBuffer = Buffer.alloc(BUFFER_BYTES);

/** Visits the batches of `segment` from the batch start `from` on. */
export function scanBatches(
  segment: LogSegment,
  from: number,
  whole: boolean,
  visit: BatchVisitor,
): ScanEnd {
  const header = new BatchHeader();
  let buffer = sharedBuffer;
  let start = from;
  let length = segment.read(buffer, start);
  let position = from;
  for (;;) {
    if (position - start + BATCH_HEADER_BYTES > length) {
      start = position;
      length = segment.read(buffer, start);
    }
    const problem = header.read(buffer, position - start, length);
    if (problem !== undefined) {
      return { position, problem: position === segment.size ? undefined : problem };
    }
    if (position + header.size > segment.size) return { position, problem: 'truncated' };
    const needed = whole || header.isControl ? header.size : BATCH_HEADER_BYTES;
    if (position - start + needed > length) {
      if (needed > buffer.length) buffer = Buffer.allocUnsafeSlow(needed);
      start = position;
      length = segment.read(buffer, start);
    }
    const seen = visit(buffer, position - start, header, position);
    if (seen === 'refused') return { position, problem: 'refused' };
    position += header.size;
    if (seen === 'stop') return { position, problem: undefined };
  }
}

/** Takes an appended or replayed batch into the producer state, and an abort into the index. */
export function applyToProducers(
  producers: ProducerState,
  segment: LogSegment | undefined,
  header: BatchHeader,
  bytes: Uint8Array,
  at: number,
): void {
  if (!header.hasProducerId) return;
  if (!header.isControl) {
    producers.appendData(header);
    return;
  }
  const marker = readMarker(bytes, at, header.size);
  if (marker === undefined) {
    if (header.recordCount === 0) producers.appendEmptied(header);
    return;
  }
  const completed = producers.appendMarker(header, marker);
  if (completed?.aborted === true) segment?.transactionIndex.append(completed);
}

/** Lets the epoch cache learn from a batch found in the log: only a newer epoch counts. */
export function learnEpoch(epochs: LeaderEpochCache, header: BatchHeader): void {
  if (header.leaderEpoch > (epochs.latestEpoch ?? -1)) {
    epochs.assign(header.leaderEpoch, header.baseOffset);
  }
}
