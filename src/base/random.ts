/**
 * Seeded pseudo-random numbers (xoshiro128**), for the simulator and for tests.
 *
 * The same seed gives the same sequence on every machine. Not for secrets.
 */

/** A deterministic generator; see {@link seededRandom}. */
export interface SeededRandom {
  /** An integer in [0, 2^32). */
  uint32(): number;
  /** A float in [0, 1). */
  fraction(): number;
  /** An integer in [0, bound); bound ≥ 1. */
  below(bound: number): number;
  /** True with the given probability. */
  chance(probability: number): boolean;
  /** Random bytes. */
  bytes(length: number): Uint8Array;
}

function rotateLeft(x: number, k: number): number {
  return ((x << k) | (x >>> (32 - k))) >>> 0;
}

/** A generator for `seed` (any integer; its low 32 bits count). */
export function seededRandom(seed: number): SeededRandom {
  let mix = seed >>> 0;
  const next = (): number => {
    mix = (mix + 0x9e3779b9) >>> 0;
    let z = mix;
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return (z ^ (z >>> 16)) >>> 0;
  };
  let [a, b, c, d] = [next(), next(), next(), next()];
  const uint32 = (): number => {
    const result = Math.imul(rotateLeft(Math.imul(b, 5), 7), 9) >>> 0;
    const t = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= t;
    d = rotateLeft(d, 11);
    return result;
  };
  const fraction = (): number => uint32() / 0x1_0000_0000;
  return {
    uint32,
    fraction,
    below: (bound) => Math.floor(fraction() * bound),
    chance: (probability) => fraction() < probability,
    bytes: (length) => {
      const out = new Uint8Array(length);
      for (let i = 0; i < length; i++) out[i] = uint32() & 0xff;
      return out;
    },
  };
}
