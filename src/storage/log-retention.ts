/**
 * Which segments of a log may be deleted: those below the log start, too old, or beyond the size.
 *
 * Only a prefix of the log ever goes, and only what lies below the high watermark. Of a topic with
 * cleanup.policy=compact alone, time and size delete nothing: see log-cleaner.ts.
 */
import { isDeleted, type LogConfig } from './log-config.ts';
import type { LogSegment } from './log-segment.ts';
import type { LogSegments } from './log-segments.ts';

/** What decides. */
export interface RetentionBounds {
  readonly config: LogConfig;
  readonly nowMs: number;
  readonly logStartOffset: number;
  readonly logEndOffset: number;
  readonly highWatermark: number;
  readonly sizeBytes: number;
}

/** How many of the oldest segments may go; all of them: the log is to be rolled first. */
export function deletableSegments(segments: LogSegments, bounds: RetentionBounds): number {
  const { config } = bounds;
  let excess = config.retentionBytes < 0 ? 0 : bounds.sizeBytes - config.retentionBytes;
  let count = 0;
  for (const segment of segments.all()) {
    const next = segments.at(count + 1);
    const end = next?.baseOffset ?? bounds.logEndOffset;
    if (next === undefined && segment.size === 0) break;
    if (end > bounds.highWatermark) break;
    const belowStart = next !== undefined && end <= bounds.logStartOffset;
    const tooMuch = excess >= segment.size && config.retentionBytes >= 0;
    const goes = belowStart || (isDeleted(config) && (tooMuch || isTooOld(segment, bounds)));
    if (!goes) break;
    excess -= segment.size;
    count++;
  }
  return count;
}

function isTooOld(segment: LogSegment, bounds: RetentionBounds): boolean {
  const { retentionMs } = bounds.config;
  if (retentionMs < 0) return false;
  const newest = segment.maxTimestampMs >= 0 ? segment.maxTimestampMs : segment.createdMs;
  return bounds.nowMs - newest > retentionMs;
}
