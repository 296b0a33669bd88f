/**
 * Things that are due some time from now, on one timer whatever their number.
 *
 * The log manager has one for `flush.ms` (which logs are to be flushed) and one for
 * `file.delete.delay.ms` (which directories are to be removed): no partition has a timer of its
 * own, and the cost is in proportion to what waits. Much that is due at once is done in several
 * turns.
 */
import type { Clock, Timer } from '../io/runtime.ts';

/** The longest a timer is set for; a later term is waited for in steps. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** Things done in one turn. */
const MAX_PER_TURN = 64;

/** See the file header. */
export class DueTimes<T> {
  readonly #clock: Clock;
  readonly #onDue: (item: T) => void;
  /** When each is due, on the monotonic clock. */
  readonly #due = new Map<T, number>();
  #timer: Timer | undefined;
  #timerDueMs = Number.POSITIVE_INFINITY;

  /** `onDue` must not throw. */
  constructor(clock: Clock, onDue: (item: T) => void) {
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /** How many wait. */
  get size(): number {
    return this.#due.size;
  }

  /** `item` is due in `delayMs`, unless it waits already. */
  add(item: T, delayMs: number): void {
    if (this.#due.has(item)) return;
    const dueMs = this.#clock.monotonicMs() + delayMs;
    this.#due.set(item, dueMs);
    this.#wakeAt(dueMs);
  }

  delete(item: T): void {
    this.#due.delete(item);
  }

  /** Nothing is done any more. */
  close(): void {
    this.#timer?.cancel();
    this.#due.clear();
  }

  #wakeAt(dueMs: number): void {
    if (dueMs >= this.#timerDueMs) return;
    this.#timer?.cancel();
    this.#timerDueMs = dueMs;
    const delayMs = Math.min(MAX_TIMER_MS, Math.max(0, dueMs - this.#clock.monotonicMs()));
    this.#timer = this.#clock.setTimer(delayMs, () => this.#run());
  }

  #run(): void {
    this.#timerDueMs = Number.POSITIVE_INFINITY;
    const now = this.#clock.monotonicMs();
    let nextMs = Number.POSITIVE_INFINITY;
    let done = 0;
    for (const [item, dueMs] of this.#due) {
      if (dueMs > now || done === MAX_PER_TURN) {
        nextMs = Math.min(nextMs, dueMs);
        continue;
      }
      done++;
      this.#due.delete(item);
      this.#onDue(item);
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#wakeAt(nextMs);
  }
}
