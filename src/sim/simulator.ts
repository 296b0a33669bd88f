/**
 * The simulator's kernel: virtual time, one event at a time, invariants after every one.
 *
 * Pops the earliest event, runs it, then waits for one `setImmediate`, so that every promise that
 * the event settled has run to its end before the next event begins (waiting for microtasks only
 * was measured not to be repeatable). With io/node and cli this is the only place that may use
 * `setImmediate`. All randomness comes from the seed; the running hash of all trace rows is equal
 * whenever two runs were. A failure carries the seed and the last rows: rerunning it is replaying.
 */
import { crc32c } from '../base/crc32c.ts';
import { type SeededRandom, seededRandom } from '../base/random.ts';
import { EventQueue, type SimEvent } from './event-queue.ts';

/** Trace rows kept for a failure report. */
const TRACE_ROWS = 50;
/** More events than this in one simulator is a livelock. */
const MAX_EVENTS = 20_000_000;

/** A broken invariant, an error thrown by an event, or a condition not reached. */
export class SimulationFailure extends Error {
  override readonly name = 'SimulationFailure';
  readonly seed: number;
  constructor(reason: string, seed: number, rows: readonly string[], cause?: unknown) {
    super(`${reason}\nseed ${seed}, last ${rows.length} events:\n${rows.join('\n')}`, { cause });
    this.seed = seed;
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

/** See the file header. */
export class Simulator {
  readonly seed: number;
  /** For the scenario itself; parts of the world take their own from {@link fork}. */
  readonly random: SeededRandom;
  readonly #queue = new EventQueue();
  readonly #invariants: { name: string; check: () => void }[] = [];
  readonly #rows: string[] = [];
  readonly #encoder = new TextEncoder();
  #nowMs = 0;
  #order = 0;
  #events = 0;
  #hash = 0;
  #rejection: { error: unknown } | undefined;

  constructor(seed: number) {
    this.seed = seed;
    this.random = this.fork('scenario');
  }

  /** Virtual milliseconds since the start. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** Events run so far. */
  get eventCount(): number {
    return this.#events;
  }

  /** Equal for equal runs: a hash of every trace row so far. */
  get traceHash(): string {
    return `${this.#events}-${this.#hash.toString(16).padStart(8, '0')}`;
  }

  /** A generator of its own for `purpose`, so that one part's draws do not shift another's. */
  fork(purpose: string): SeededRandom {
    const text = new TextEncoder().encode(`${this.seed}/${purpose}`);
    return seededRandom(crc32c(text));
  }

  /** Runs `run` after `delayMs` of virtual time (0: after what is queued for now). */
  schedule(delayMs: number, label: string, run: () => void): SimEvent {
    const atMs = this.#nowMs + Math.max(0, delayMs);
    const event: SimEvent = { atMs, order: this.#order++, label, run, cancelled: false };
    this.#queue.push(event);
    return event;
  }

  /** `check` runs after every event and throws when broken. */
  addInvariant(name: string, check: () => void): void {
    this.#invariants.push({ name, check });
  }

  /** Adds a row to the trace (and to the hash). */
  trace(text: string): void {
    const row = `${this.#nowMs.toFixed(3)} ${text}`;
    this.#hash = crc32c(this.#encoder.encode(row), this.#hash);
    this.#rows.push(row);
    if (this.#rows.length > TRACE_ROWS) this.#rows.shift();
  }

  /** Runs until `condition` holds; fails when it has not after `limitMs`, or nothing is left. */
  async runUntil(condition: () => boolean, limitMs: number, what = 'the condition'): Promise<void> {
    const endMs = this.#nowMs + limitMs;
    await this.#watched(async () => {
      await this.#drain();
      while (!condition()) {
        if (!(await this.#step(endMs))) {
          const left =
            this.#queue.size === 0 ? 'nothing is left to happen' : `${limitMs} ms passed`;
          throw new Error(`${what} did not come true: ${left}`);
        }
      }
    });
  }

  /** Runs what happens in the next `durationMs`, and moves the time there. */
  async runFor(durationMs: number): Promise<void> {
    const endMs = this.#nowMs + durationMs;
    await this.#watched(async () => {
      await this.#drain();
      while (await this.#step(endMs));
      this.#nowMs = endMs;
    });
  }

  /** Runs until nothing is left to happen; fails when that takes longer than `limitMs`. */
  async runUntilIdle(limitMs: number): Promise<void> {
    await this.runUntil(() => this.#isIdle(), limitMs, 'an empty queue');
  }

  #isIdle(): boolean {
    while (this.#queue.peek()?.cancelled === true) this.#queue.pop();
    return this.#queue.size === 0;
  }

  /** One event and its consequences; false when there is none up to `endMs`. */
  async #step(endMs: number): Promise<boolean> {
    if (this.#isIdle()) return false;
    if (this.#queue.peek()!.atMs > endMs) return false;
    const event = this.#queue.pop()!;
    this.#nowMs = event.atMs;
    if (++this.#events > MAX_EVENTS) throw new Error(`more than ${MAX_EVENTS} events: a livelock`);
    this.trace(event.label);
    event.run();
    await this.#drain();
    for (const { name, check } of this.#invariants) {
      try {
        check();
      } catch (error) {
        throw new Error(`invariant "${name}" is broken: ${describe(error)}`, { cause: error });
      }
    }
    return true;
  }

  async #drain(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    if (this.#rejection === undefined) return;
    const { error } = this.#rejection;
    this.#rejection = undefined;
    throw new Error(`unhandled rejection: ${describe(error)}`, { cause: error });
  }

  /** Turns whatever goes wrong inside, unhandled rejections too, into a SimulationFailure. */
  async #watched(run: () => Promise<void>): Promise<void> {
    const onRejection = (error: unknown): void => {
      this.#rejection ??= { error };
    };
    process.on('unhandledRejection', onRejection);
    try {
      await run();
    } catch (error) {
      throw this.failure(error);
    } finally {
      process.off('unhandledRejection', onRejection);
    }
  }

  /** What to throw for an error: with seed and trace. */
  failure(error: unknown): SimulationFailure {
    return new SimulationFailure(describe(error), this.seed, this.#rows, error);
  }
}
