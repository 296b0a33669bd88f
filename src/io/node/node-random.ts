/**
 * The machine's randomness behind the Random port.
 *
 * `bytes` comes from the operating system and is fit for ids and secrets; `fraction` is for jitter
 * and choices between equals only.
 */
import { randomBytes } from 'node:crypto';
import type { Random } from '../runtime.ts';

/** Unpredictable randomness. */
export function nodeRandom(): Random {
  return { fraction: () => Math.random(), bytes: (length) => randomBytes(length) };
}
