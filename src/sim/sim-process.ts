/**
 * The life of one simulated process, and the clock, randomness and log it sees.
 *
 * A process belongs to a machine and lives until it is killed. What it has scheduled then never
 * happens; what it still calls (code that was on the stack) does nothing. A restart is a new
 * process.
 */
import type { Logger } from '../base/logger.ts';
import type { Clock, Random } from '../io/runtime.ts';
import type { Simulator } from './simulator.ts';

/** Wall time at the start of every simulation (any fixed moment will do), in ms since 1970. */
const START_WALL_MS = 1_700_000_000_000;

/** One life of a node. `name` is the machine's, `label` tells lives apart. */
export class SimProcess {
  readonly machine: string;
  readonly label: string;
  readonly #simulator: Simulator;
  #alive = true;
  /** How far this machine's wall clock is off, in ms. */
  wallOffsetMs = 0;

  constructor(simulator: Simulator, machine: string, life: number) {
    this.#simulator = simulator;
    this.machine = machine;
    this.label = `${machine}#${life}`;
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** From now on nothing this process has scheduled happens. */
  end(): void {
    this.#alive = false;
  }

  /** Schedules `run` for as long as this process lives. */
  schedule(delayMs: number, what: string, run: () => void): { cancel(): void } {
    if (!this.#alive) return { cancel: () => {} };
    const event = this.#simulator.schedule(delayMs, `${this.label} ${what}`, () => {
      if (this.#alive) run();
    });
    return {
      cancel: () => {
        event.cancelled = true;
      },
    };
  }
}

/** Virtual time, as this process sees it. */
export function simClock(simulator: Simulator, process: SimProcess): Clock {
  return {
    wallMs: () => Math.floor(START_WALL_MS + simulator.nowMs + process.wallOffsetMs),
    monotonicMs: () => simulator.nowMs,
    setTimer: (delayMs, callback) => process.schedule(delayMs, 'timer', callback),
    defer: (callback) => {
      process.schedule(0, 'deferred', callback);
    },
  };
}

/** Seeded randomness of this life. */
export function simRandom(simulator: Simulator, process: SimProcess): Random {
  const random = simulator.fork(process.label);
  return { fraction: random.fraction, bytes: random.bytes };
}

/** Log lines become trace rows. */
export function simLogger(
  simulator: Simulator,
  process: SimProcess,
  context: Record<string, unknown> = {},
): Logger {
  const line =
    (level: string) =>
    (message: string, fields: Record<string, unknown> = {}): void => {
      const all = { ...context, ...fields };
      const tail = Object.entries(all).map(([key, value]) => ` ${key}=${String(value)}`);
      simulator.trace(`${process.label} ${level}: ${message}${tail.join('')}`);
    };
  return {
    debug: line('debug'),
    info: line('info'),
    warn: line('warn'),
    error: line('error'),
    child: (fields) => simLogger(simulator, process, { ...context, ...fields }),
  };
}
