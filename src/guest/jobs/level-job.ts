/**
 * A level-triggered job: one pass at a time over what is, again whenever something changed.
 *
 * Used by the jobs of a guest. A pass looks at the metadata and the rows and does what is missing;
 * it never relies on having seen a change. Invariants:
 * - Passes do not overlap; notices that come during one lead to one more.
 * - A pass that throws is logged and repeated by the timer; a Fault ends the process.
 */
import type { Runtime, Timer } from '../../io/runtime.ts';
import { failureOf } from '../../mirror/causes.ts';

/** Pause between a notice and the pass, in ms: what comes together is looked at together. */
export const NOTICE_PAUSE_MS = 20;

/** What a {@link LevelJob} does. */
export interface LevelJobOptions {
  /** Time from one pass to the next when nobody notices anything, in ms. */
  readonly intervalMs: number;
  readonly pass: () => Promise<void>;
}

/** See the file header. */
export class LevelJob {
  readonly #runtime: Pick<Runtime, 'clock' | 'logger'>;
  readonly #options: LevelJobOptions;
  #timer: Timer | undefined;
  #dueMs = Infinity;
  #running = false;
  #noticed = false;
  #closed = true;

  constructor(runtime: Pick<Runtime, 'clock' | 'logger'>, options: LevelJobOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  start(): void {
    this.#closed = false;
    this.notice();
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** Something changed: a pass follows soon. */
  notice(): void {
    this.#noticed = true;
    if (!this.#running) this.#schedule(NOTICE_PAUSE_MS);
  }

  #schedule(delayMs: number): void {
    if (this.#closed) return;
    const dueMs = this.#runtime.clock.monotonicMs() + delayMs;
    if (this.#timer !== undefined && this.#dueMs <= dueMs) return;
    this.#timer?.cancel();
    this.#dueMs = dueMs;
    this.#timer = this.#runtime.clock.setTimer(delayMs, () => void this.#run());
  }

  async #run(): Promise<void> {
    this.#timer = undefined;
    this.#running = true;
    this.#noticed = false;
    try {
      await this.#options.pass();
    } catch (error) {
      failureOf(error, this.#runtime.logger);
    }
    this.#running = false;
    this.#schedule(this.#noticed ? NOTICE_PAUSE_MS : this.#options.intervalMs);
  }
}
