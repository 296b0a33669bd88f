/**
 * The log of one partition as a replica uses it: what touches the disk is guarded here, and here is
 * remembered what readers may wait for.
 *
 * Owned by `Partition`, which alone knows role and epochs and decides who may change the log.
 * Invariants:
 * - A failing disk is reported to the owner once and goes no further; any other error is a fault.
 * - Every visible change ends with a notice to `watchers`.
 * - With `flushBeforeCommit` the owner may commit what is durable, and no more (S2).
 * - A followed log start above the high watermark waits until that has passed it (F8).
 */
import { DiskError } from '../io/runtime.ts';
import { errors } from '../protocol/errors.ts';
import type { AppendResult, Log } from '../storage/log.ts';
import { AppendedBytes } from './appended-bytes.ts';
import { WatcherList } from './purgatory.ts';

/** What the log's partition is told and asked. */
export interface LogOwner {
  /** Moves the high watermark as far as the role allows; true when something moved. */
  readonly advance: () => boolean;
  readonly onFailure: (error: DiskError) => void;
}

/** See the file header. */
export class PartitionLog {
  readonly log: Log;
  /** All that wait for a change of the partition. */
  readonly watchers = new WatcherList();
  readonly #owner: LogOwner;
  readonly #bytes: AppendedBytes;
  #pendingLogStart: number | undefined;
  #isFlushing = false;

  constructor(log: Log, owner: LogOwner) {
    this.log = log;
    this.#owner = owner;
    this.#bytes = new AppendedBytes(log.logEndOffset);
  }

  /** A counter of the bytes below `offset`; only differences mean something. */
  bytesUpTo(offset: number): number {
    return this.#bytes.upTo(offset);
  }

  /** Runs a step that touches the disk; false when the disk failed. */
  guarded(step: () => void): boolean {
    try {
      step();
      return true;
    } catch (error) {
      this.failed(error);
      return false;
    }
  }

  /** Reports a disk error; anything else goes on up. */
  failed(error: unknown): void {
    if (!(error instanceof DiskError)) throw error;
    this.#owner.onFailure(error);
  }

  /** Notices a disk that failed behind our back (a flush). */
  check(): void {
    if (!this.log.isOffline) return;
    this.#owner.onFailure(new DiskError('EIO', 'use', this.log.directory));
  }

  /** Runs one append; then the high watermark moves. */
  append(write: () => AppendResult): AppendResult {
    let result: AppendResult;
    try {
      result = write();
      this.check();
      if (result.error !== 0 || result.duplicate) return result;
      this.#bytes.appended(this.log.logEndOffset, result.appendedBytes);
      this.#owner.advance();
    } catch (error) {
      this.failed(error);
      return { error: errors.KAFKA_STORAGE_ERROR.code, message: 'the log directory failed' };
    }
    this.watchers.notify();
    return result;
  }

  /**
   * How far this replica's log lets the high watermark go. With `flushBeforeCommit` not beyond what
   * is durable; then a flush begins, and the watermark moves when it is done.
   */
  committableEnd(): number {
    const { logEndOffset, durableEndOffset, config } = this.log;
    if (!config.flushBeforeCommit || durableEndOffset >= logEndOffset) return logEndOffset;
    if (!this.#isFlushing) void this.#flushToCommit();
    return durableEndOffset;
  }

  /** One at a time: what is appended meanwhile shares the next one. */
  async #flushToCommit(): Promise<void> {
    this.#isFlushing = true;
    try {
      await this.log.flush();
    } catch (error) {
      this.failed(error);
      return;
    } finally {
      this.#isFlushing = false;
    }
    this.guarded(() => this.#owner.advance());
    this.watchers.notify();
  }

  /** Sets the high watermark if that is higher; true when it or the log start moved. */
  raiseHighWatermark(offset: number): boolean {
    const moved = offset > this.log.highWatermark && this.log.updateHighWatermark(offset);
    return this.#settle(moved);
  }

  #settle(moved: boolean): boolean {
    const { highWatermark, lastStableOffset } = this.log;
    this.#bytes.prune(Math.min(highWatermark, lastStableOffset));
    const start = this.#pendingLogStart;
    if (start !== undefined && start <= highWatermark) {
      this.#pendingLogStart = undefined;
      return this.log.maybeIncrementLogStartOffset(start) || moved;
    }
    return moved;
  }

  /**
   * Follows another log's start: at once up to the high watermark, later between it and the log
   * end, and by starting over beyond the log end. False when the disk failed.
   */
  followLogStart(offset: number): boolean {
    if (offset <= this.log.logStartOffset) return true;
    return this.guarded(() => {
      if (offset > this.log.logEndOffset) {
        this.log.truncateFullyAndStartAt(offset);
        this.log.updateHighWatermark(offset);
        this.#restarted();
      } else if (offset > this.log.highWatermark) {
        this.#pendingLogStart = Math.max(this.#pendingLogStart ?? 0, offset);
        return;
      } else {
        this.log.maybeIncrementLogStartOffset(offset);
      }
      this.watchers.notify();
    });
  }

  /** Runs a cut, which says whether it took something. False when the disk failed. */
  cut(step: () => boolean): boolean {
    return this.guarded(() => {
      if (step()) this.#restarted();
      this.watchers.notify();
    });
  }

  #restarted(): void {
    this.#bytes.reset(this.log.logEndOffset);
    this.#pendingLogStart = undefined;
    this.#owner.advance();
  }

  /** What waits for this leadership does so no more. */
  forgetPending(): void {
    this.#pendingLogStart = undefined;
  }
}
