/**
 * Fakes for the tests of this folder: a clock that moves when told, and a runtime around it.
 *
 * `settle` runs everything that is due without moving time, so tests assert order and content and
 * never depend on how long something took.
 */
import { silentLogger } from '../../src/base/logger.ts';
import { seededRandom } from '../../src/base/random.ts';
import { nodeDisk } from '../../src/io/node/node-disk.ts';
import {
  type Clock,
  type Disk,
  DiskError,
  type Runtime,
  type Timer,
} from '../../src/io/runtime.ts';
import { noCrypto } from '../../src/sim/sim-crypto.ts';

interface PendingTimer {
  readonly atMs: number;
  readonly order: number;
  readonly callback: () => void;
}

/** Time stands still except in `advance`. */
export class ManualClock implements Clock {
  #nowMs = 1_000_000;
  #order = 0;
  readonly #timers = new Set<PendingTimer>();

  wallMs(): number {
    return 1_700_000_000_000 + this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = { atMs: this.#nowMs + delayMs, order: this.#order++, callback };
    this.#timers.add(timer);
    return { cancel: () => this.#timers.delete(timer) };
  }

  defer(callback: () => void): void {
    setImmediate(callback);
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Moves time on, running each timer at its time and all that follows from it. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms;
    await settle();
    for (;;) {
      const due = [...this.#timers].filter((timer) => timer.atMs <= endMs);
      due.sort((a, b) => a.atMs - b.atMs || a.order - b.order);
      const next = due[0];
      if (next === undefined) break;
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.callback();
      await settle();
    }
    this.#nowMs = endMs;
  }
}

/** Lets deferred callbacks and promises run until nothing more follows. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 5; i++) await new Promise<void>((resolve) => setImmediate(resolve));
}

/**
 * The real disk, but writes to, and renames of, what `isBroken` names fail. No power is lost here:
 * a sync is done at once, so that `settle` need not wait for the machine.
 */
export function breakableDisk(isBroken: (path: string) => boolean): Disk {
  const disk = nodeDisk();
  const open: Disk['open'] = (path, mode) => {
    const file = disk.open(path, mode);
    const write = file.write.bind(file);
    file.write = (chunks, position) => {
      if (isBroken(path)) throw new DiskError('ENOSPC', 'write', path);
      write(chunks, position);
    };
    file.sync = () => Promise.resolve();
    return file;
  };
  const rename: Disk['rename'] = (from, to) => {
    if (isBroken(from)) throw new DiskError('EIO', 'rename', from);
    disk.rename(from, to);
  };
  return Object.assign(Object.create(disk) as Disk, { open, rename });
}

function unused(): never {
  throw new Error('not part of this test');
}

/** A runtime with a manual clock; network and compression are refused. */
export function fakeRuntime(clock: Clock, disk: Disk = nodeDisk()): Runtime {
  const random = seededRandom(1);
  return {
    clock,
    random: { fraction: () => random.fraction(), bytes: (length) => random.bytes(length) },
    disk,
    network: { listen: unused, connect: unused },
    compression: { compress: unused, decompress: unused },
    crypto: noCrypto,
    logger: silentLogger,
  };
}
