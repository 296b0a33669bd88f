/**
 * The segments of one log, by base offset; the last one is active.
 *
 * Never empty once the log is loaded. Offsets from a segment's base up to the next segment's base
 * belong to it, whether or not a batch holds them.
 */
import { present } from '../base/assert.ts';
import type { LogSegment } from './log-segment.ts';

/** A sorted list of segments. */
export class LogSegments {
  #list: LogSegment[];

  constructor(sorted: readonly LogSegment[]) {
    this.#list = [...sorted];
  }

  get active(): LogSegment {
    return present(this.#list.at(-1), 'active segment');
  }

  get first(): LogSegment {
    return present(this.#list[0], 'first segment');
  }

  get count(): number {
    return this.#list.length;
  }

  all(): readonly LogSegment[] {
    return this.#list;
  }

  at(index: number): LogSegment | undefined {
    return this.#list[index];
  }

  /** Index of the segment that `offset` belongs to; the first one for lower offsets. */
  floorIndex(offset: number): number {
    // Reads and appends mostly concern the newest segment.
    if (offset >= this.active.baseOffset) return this.#list.length - 1;
    let low = 0;
    let high = this.#list.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >>> 1;
      if ((this.#list[middle]?.baseOffset ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The segment that `offset` belongs to and all behind it. */
  from(offset: number): readonly LogSegment[] {
    return this.#list.slice(this.floorIndex(offset));
  }

  /** Adds a new active segment. */
  push(segment: LogSegment): void {
    this.#list.push(segment);
  }

  /** Whether the segment, as this object, is still part of the log. */
  has(segment: LogSegment): boolean {
    return this.#list[this.floorIndex(segment.baseOffset)] === segment;
  }

  /** Puts one segment in the place of neighbouring ones, with the base offset of the first. */
  replace(old: readonly LogSegment[], by: LogSegment): void {
    this.#list.splice(this.floorIndex(by.baseOffset), old.length, by);
  }

  /** Takes out the first `count` segments. */
  takeFirst(count: number): LogSegment[] {
    return this.#list.splice(0, count);
  }

  /** Takes out the segments from `index` on, last first. */
  takeFrom(index: number): LogSegment[] {
    return this.#list.splice(index).reverse();
  }
}
