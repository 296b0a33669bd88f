/**
 * Decides which compacted log is worked on, and how fast.
 *
 * Constructed by the log manager. Every `log.cleaner.backoff.ms` it plans for every compacted log
 * and compacts the dirtiest that is due, one at a time, until none is. Between two slices of work
 * it rests as long as the slice took, and longer with a rate limit, so that appends and requests
 * are never held up for longer than one slice.
 *
 * - A log with a damaged batch is not tried again before the next start; the others go on.
 * - A log whose run failed or was overtaken by a cut is left alone until the next round.
 * - A mirrored log is its source's copy and is not compacted here (rules F5, F8).
 */
import { MalformedBytes } from '../base/bytes.ts';
import { DiskError, type Runtime, type Timer } from '../io/runtime.ts';
import { type CompactionPlan, dirtyRatio, isDue } from './compaction-plan.ts';
import type { Log } from './log.ts';
import { CompactionAborted } from './log-compaction.ts';
import { isCompacted } from './log-config.ts';

/** How compaction is set up; names and defaults of Apache Kafka's `log.cleaner.*`. */
export interface CleanerSettings {
  readonly enable: boolean;
  readonly backoffMs: number;
  readonly dedupeBufferBytes: number;
  readonly ioMaxBytesPerSecond: number;
}

/** Apache Kafka 4.2's defaults. */
export const DEFAULT_CLEANER_SETTINGS: CleanerSettings = Object.freeze({
  enable: true,
  backoffMs: 15_000,
  dedupeBufferBytes: 128 * 1024 ** 2,
  ioMaxBytesPerSecond: Number.MAX_VALUE,
});

/** Work goes on to the end of the batch, then rests: what is compressed well takes long. */
const MAX_SLICE_MS = 4;
/** Rest per time worked. */
const REST_SHARE = 1;
/** A pause shorter than this is no timer's business. */
const MIN_TIMER_MS = 1;

/** What the cleaner asks of the log manager. */
export interface CleanedLogs {
  readonly settings: CleanerSettings;
  readonly all: () => Iterable<Log>;
  /** Whether the log is a copy of a source's (rules F5, F8). */
  readonly isMirrored: (log: Log) => boolean;
  /** A log was compacted: its offset is to be written down. */
  readonly onCompacted: () => void;
}

interface Candidate {
  readonly log: Log;
  readonly plan: CompactionPlan;
}

/** Compacts logs in the background. */
export class LogCleaner {
  readonly #runtime: Runtime;
  readonly #logs: CleanedLogs;
  /** Logs with damage. */
  readonly #uncleanable = new WeakSet<Log>();
  #timer: Timer | undefined;
  #round: Promise<void> | undefined;
  #sliceStartMs = 0;
  #current: Log | undefined;
  #pausing: { readonly timer: Timer; readonly resume: () => void } | undefined;
  #closed = false;

  constructor(runtime: Runtime, logs: CleanedLogs) {
    this.#runtime = runtime;
    this.#logs = logs;
  }

  /** Begins the rounds. */
  start(): void {
    if (!this.#logs.settings.enable || this.#closed) return;
    this.#timer = this.#runtime.clock.setTimer(this.#logs.settings.backoffMs, () => {
      this.cleanAll().then(() => this.start());
    });
  }

  /** Whether a run over this log is in progress. */
  isCleaning(log: Log): boolean {
    return this.#current === log;
  }

  /** One round: compacts every log that is due. */
  cleanAll(): Promise<void> {
    this.#round ??= this.#cleanDue().finally(() => {
      this.#round = undefined;
    });
    return this.#round;
  }

  /** Ends a run at its next pause; resolves when nothing is touched any more. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.cancel();
    this.#pausing?.timer.cancel();
    this.#pausing?.resume();
    await this.#round;
  }

  async #cleanDue(): Promise<void> {
    const skipped = new Set<Log>();
    while (!this.#closed) {
      const next = this.#dirtiest(skipped);
      if (next === undefined) return;
      const before = next.plan.firstDirtyOffset;
      await this.#clean(next);
      if ((next.log.firstDirtyOffset ?? before) <= before) skipped.add(next.log);
    }
  }

  #dirtiest(skipped: ReadonlySet<Log>): Candidate | undefined {
    let found: Candidate | undefined;
    for (const log of this.#logs.all()) {
      if (!isCompacted(log.config) || log.isOffline) continue;
      if (skipped.has(log) || this.#uncleanable.has(log) || this.#logs.isMirrored(log)) continue;
      const plan = this.#plan(log);
      if (plan === undefined || !isDue(plan, log.config)) continue;
      if (found === undefined || dirtyRatio(plan) > dirtyRatio(found.plan)) found = { log, plan };
    }
    return found;
  }

  #plan(log: Log): CompactionPlan | undefined {
    try {
      return log.planCompaction();
    } catch (error) {
      // The log has taken itself offline and said so.
      if (!(error instanceof DiskError)) throw error;
      return undefined;
    }
  }

  async #clean({ log, plan }: Candidate): Promise<void> {
    const { clock, random, logger } = this.#runtime;
    const { settings, isMirrored, onCompacted } = this.#logs;
    const { topic, partition } = log.topicPartition;
    this.#sliceStartMs = clock.monotonicMs();
    this.#current = log;
    try {
      const result = await log.compact(plan, {
        nowMs: clock.wallMs(),
        dedupeBufferBytes: settings.dedupeBufferBytes,
        seed: random.bytes(16),
        isSliceOver: () => clock.monotonicMs() - this.#sliceStartMs > MAX_SLICE_MS,
        pause: (bytes) => this.#pause(bytes),
        isCancelled: () => this.#closed || isMirrored(log) || !isCompacted(log.config),
      });
      onCompacted();
      logger.info('log compacted', { topic, partition, ...result });
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      if (error instanceof MalformedBytes) {
        this.#uncleanable.add(log);
        logger.error('log has damage and is not compacted', { topic, partition, reason });
      } else if (error instanceof DiskError) {
        logger.warn('compaction failed', { topic, partition, reason });
      } else if (error instanceof CompactionAborted) {
        logger.info('compaction ended early', { topic, partition, reason });
      } else throw error;
    } finally {
      this.#current = undefined;
    }
  }

  /** Lets others work. */
  async #pause(bytes: number): Promise<void> {
    const { clock } = this.#runtime;
    const workedMs = clock.monotonicMs() - this.#sliceStartMs;
    const atRateMs = (bytes / this.#logs.settings.ioMaxBytesPerSecond) * 1000 - workedMs;
    const restMs = Math.max(workedMs * REST_SHARE, atRateMs);
    if (restMs < MIN_TIMER_MS) await new Promise<void>((resume) => clock.defer(resume));
    else await this.#rest(restMs);
    this.#sliceStartMs = clock.monotonicMs();
  }

  async #rest(restMs: number): Promise<void> {
    if (this.#closed) return;
    const { promise, resolve: resume } = Promise.withResolvers<void>();
    this.#pausing = { timer: this.#runtime.clock.setTimer(restMs, resume), resume };
    await promise;
    this.#pausing = undefined;
  }
}
