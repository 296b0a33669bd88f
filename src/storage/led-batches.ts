/**
 * What batches must satisfy besides their records to be appended by a leader: that they follow
 * what their producers wrote before.
 *
 * Called by `log.ts` for every append as leader. Bytes are never changed here, records never
 * opened; a whole append is checked before any of it is written.
 */
import { ErrorCode } from '../protocol/errors.ts';
import type { Refusal } from './append-validation.ts';
import { BatchHeader, readMarker } from './batch-header.ts';
import { badBatch, isReadableControl } from './followed-batches.ts';
import { checkData, checkMarker, findDuplicate, type ProducerState } from './producer-state.ts';
import { numberFromHalves } from './time-index.ts';

/** The batch that is looked at; nothing waits while it is. */
const header = new BatchHeader();

/** Who appends as leader; the checks differ as in Apache Kafka. */
export type AppendOrigin = 'client' | 'coordinator' | 'raftLeader';

/** Batches that may be appended. */
export interface LedBatches {
  readonly error: 0;
  /** Max timestamp of the last batch. */
  readonly lastTimestampMs: number;
  /** The batch was appended before, at these offsets. */
  readonly duplicate?: { readonly firstOffset: number; readonly lastOffset: number };
}

/** Refuses, or recognises as a repetition, what does not follow the producers' batches. */
export function checkLed(
  bytes: Uint8Array,
  producers: Pick<ProducerState, 'find'>,
  logEndOffset: number,
  origin: AppendOrigin,
): LedBatches | Refusal {
  let lastTimestampMs = -1;
  for (let at = 0; at < bytes.length; at += header.size) {
    const problem = header.read(bytes, at);
    if (problem !== undefined || at + header.size > bytes.length) {
      return badBatch(problem === 'magic', logEndOffset);
    }
    lastTimestampMs = numberFromHalves(header.maxTimestampHigh, header.maxTimestampLow);
    if (origin === 'raftLeader' || !header.hasProducerId) continue;
    const entry = producers.find(header.producerIdHigh, header.producerIdLow);
    if (header.isControl) {
      if (!isReadableControl(bytes, at, header)) return badBatch(false, logEndOffset);
      const marker = readMarker(bytes, at, header.size);
      const bad = marker && checkMarker(entry, header, marker);
      if (bad !== undefined) return { error: ErrorCode[bad.kind], message: bad.message };
      continue;
    }
    const repeated = origin === 'client' ? findDuplicate(entry, header) : undefined;
    if (repeated !== undefined) {
      const { lastOffset, offsetDelta } = repeated;
      const duplicate = { firstOffset: lastOffset - offsetDelta, lastOffset };
      return { error: 0, lastTimestampMs, duplicate };
    }
    const bad = checkData(entry, header, origin === 'client');
    if (bad !== undefined) return { error: ErrorCode[bad.kind], message: bad.message };
  }
  return { error: 0, lastTimestampMs };
}
