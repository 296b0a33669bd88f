/**
 * The machine's clocks and timers behind the Clock port.
 *
 * Called by everything in a real process. Node's timers hold at most 2^31 - 1 ms and fire at once
 * beyond that, so long delays are waited for in pieces. `defer` is `setImmediate`: it runs after
 * the IO callbacks that are already queued.
 */
import type { Clock, Timer } from '../runtime.ts';

/** The longest delay one Node timer can hold, in ms (24.8 days). */
const MAX_NODE_TIMER_MS = 2 ** 31 - 1;

function setTimer(delayMs: number, callback: () => void): Timer {
  let remainingMs = Number.isNaN(delayMs) ? 0 : Math.max(0, delayMs);
  let pending: NodeJS.Timeout;
  const arm = (): void => {
    const pieceMs = Math.min(remainingMs, MAX_NODE_TIMER_MS);
    remainingMs -= pieceMs;
    pending = setTimeout(remainingMs > 0 ? arm : callback, pieceMs);
  };
  arm();
  return { cancel: () => clearTimeout(pending) };
}

/** The real clock. */
export function nodeClock(): Clock {
  return {
    wallMs: () => Date.now(),
    monotonicMs: () => performance.now(),
    setTimer,
    defer: (callback) => {
      setImmediate(callback);
    },
  };
}
