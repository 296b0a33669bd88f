/**
 * What of a log compaction may and should do: from where to where, how dirty, which segments
 * together.
 *
 * The log below `firstDirtyOffset` holds every key once already. Nothing at or above the first
 * uncleanable offset is touched: the active segment, what lies above the last stable offset, and
 * segments younger than `min.compaction.lag.ms`; so that offset always begins a segment. The same
 * arithmetic as Apache Kafka's decides whether it is time.
 */
import type { IndexFile } from './index-file.ts';
import type { LogConfig } from './log-config.ts';
import { type LogSegment, MAX_OFFSET_SPAN } from './log-segment.ts';
import type { LogSegments } from './log-segments.ts';

/** What is known of a log. */
export interface CompactionBounds {
  readonly config: LogConfig;
  readonly nowMs: number;
  readonly logStartOffset: number;
  readonly lastStableOffset: number;
  /** Undefined: the log was never compacted. */
  readonly firstDirtyOffset: number | undefined;
}

/** What a run over a log would do. */
export interface CompactionPlan {
  readonly firstDirtyOffset: number;
  readonly firstUncleanableOffset: number;
  readonly cleanBytes: number;
  readonly cleanableBytes: number;
  /** `max.compaction.lag.ms` has passed for a dirty record. */
  readonly isForced: boolean;
}

/** Dirty bytes within reach, as a share of all bytes within reach. */
export function dirtyRatio(plan: CompactionPlan): number {
  const bytes = plan.cleanBytes + plan.cleanableBytes;
  return bytes === 0 ? 0 : plan.cleanableBytes / bytes;
}

/** Whether it is time for a run. */
export function isDue(plan: CompactionPlan, config: LogConfig): boolean {
  if (plan.cleanableBytes === 0) return false;
  return plan.isForced || dirtyRatio(plan) > config.minCleanableDirtyRatio;
}

/** What compaction could do with a log now. */
export function planCompaction(segments: LogSegments, bounds: CompactionBounds): CompactionPlan {
  const { logStartOffset, lastStableOffset, config, nowMs } = bounds;
  const firstDirtyOffset = Math.max(bounds.firstDirtyOffset ?? logStartOffset, logStartOffset);
  const { active } = segments;
  const dirty = inactiveFrom(segments, firstDirtyOffset);
  const young =
    config.minCompactionLagMs > 0
      ? dirty.find((segment) => newestMs(segment) > nowMs - config.minCompactionLagMs)
      : undefined;
  const bound = Math.min(lastStableOffset, active.baseOffset, young?.baseOffset ?? Infinity);
  const uncleanable = inactiveFrom(segments, Math.max(firstDirtyOffset, bound))[0] ?? active;
  const firstUncleanableOffset = uncleanable.baseOffset;
  let cleanBytes = 0;
  let cleanableBytes = 0;
  for (const segment of segments.all()) {
    if (segment.baseOffset >= firstUncleanableOffset) break;
    const end = nextBase(segments, segment);
    if (end > firstDirtyOffset) cleanableBytes += segment.size;
    if (segment.baseOffset < firstDirtyOffset) cleanBytes += segment.size;
  }
  const oldestMs = nowMs - config.maxCompactionLagMs;
  const isForced =
    oldestMs > 0 &&
    dirty.some(({ firstTimestampMs }) => firstTimestampMs > 0 && firstTimestampMs < oldestMs);
  return { firstDirtyOffset, firstUncleanableOffset, cleanBytes, cleanableBytes, isForced };
}

function newestMs(segment: LogSegment): number {
  return segment.maxTimestampMs >= 0 ? segment.maxTimestampMs : segment.createdMs;
}

function nextBase(segments: LogSegments, segment: LogSegment): number {
  const next = segments.at(segments.floorIndex(segment.baseOffset) + 1);
  return next?.baseOffset ?? Infinity;
}

/** The segments from the one that `offset` belongs to, without the active one. */
function inactiveFrom(segments: LogSegments, offset: number): readonly LogSegment[] {
  return segments.from(offset).filter((segment) => segment !== segments.active);
}

/** The segments with offsets in [from, to). */
export function segmentsWithin(
  segments: LogSegments,
  from: number,
  to: number,
): readonly LogSegment[] {
  return segments.from(from).filter((segment) => segment.baseOffset < to);
}

function indexBytes(file: IndexFile): number {
  return file.count * file.entrySize;
}

/**
 * Neighbouring segments that fit into one: by bytes, by entries of each index, and by offsets, for
 * which the worst case counts: up to the next segment, or to the first uncleanable offset.
 */
export function groupSegments(
  segments: readonly LogSegment[],
  config: LogConfig,
  firstUncleanableOffset: number,
): LogSegment[][] {
  const groups: LogSegment[][] = [];
  let sizes = { log: 0, index: 0, time: 0 };
  segments.forEach((segment, at) => {
    const index = indexBytes(segment.offsetIndex.file);
    const time = indexBytes(segment.timeIndex.file);
    const group = groups.at(-1);
    const end = segments[at + 1]?.baseOffset ?? firstUncleanableOffset;
    const first = group?.[0]?.baseOffset ?? segment.baseOffset;
    const fits =
      sizes.log + segment.size <= config.segmentBytes &&
      sizes.index + index <= config.segmentIndexBytes &&
      sizes.time + time <= config.segmentIndexBytes &&
      end - 1 - first <= MAX_OFFSET_SPAN;
    if (group !== undefined && fits) {
      group.push(segment);
      sizes = {
        log: sizes.log + segment.size,
        index: sizes.index + index,
        time: sizes.time + time,
      };
    } else {
      groups.push([segment]);
      sizes = { log: segment.size, index, time };
    }
  });
  return groups;
}
