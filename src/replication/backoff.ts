/**
 * Exponential backoff with a cap and jitter: the one policy for retries of this layer and above.
 *
 * Pure arithmetic; who waits sets its own timer.
 */
import type { Random } from '../io/runtime.ts';

/** Delays in milliseconds. */
export interface BackoffPolicy {
  readonly initialMs: number;
  readonly maxMs: number;
}

/** Each delay varies by up to this share, up and down, so that many do not retry in step. */
export const BACKOFF_JITTER = 0.2;
/** Growth per attempt. */
export const BACKOFF_FACTOR = 2;

/** The delay before retry number `attempt` (the first is 1), never above the cap. */
export function backoffMs(policy: BackoffPolicy, attempt: number, random: Random): number {
  const exponent = Math.min(Math.max(attempt, 1) - 1, 30);
  const base = Math.min(policy.initialMs * BACKOFF_FACTOR ** exponent, policy.maxMs);
  const jitter = 1 + BACKOFF_JITTER * (2 * random.fraction() - 1);
  return Math.min(Math.round(base * jitter), policy.maxMs);
}
