/**
 * The wires between simulated machines: how long a segment takes, and whether it gets through.
 *
 * Profiles are per pair of machines and symmetric; cuts are per direction. A machine without power
 * is cut off from all others and from itself.
 */
import type { SeededRandom } from '../base/random.ts';

/** What one wire is like. */
export interface LinkProfile {
  /** One way, in ms. */
  readonly latencyMs: number;
  /** Added to each segment's latency, between 0 and this, in ms. */
  readonly jitterMs: number;
  /** Bytes per ms and direction, shared by all connections. */
  readonly bytesPerMs: number;
  /** Chance, per data segment, that its connection is reset instead. */
  readonly resetChance: number;
}

/** Machines in one room. */
export const LAN_PROFILE: LinkProfile = {
  latencyMs: 0.1,
  jitterMs: 0.1,
  bytesPerMs: 1_000_000,
  resetChance: 0,
};

/** Machines on two continents: 80 ms there and back. */
export const WAN_PROFILE: LinkProfile = {
  latencyMs: 40,
  jitterMs: 4,
  bytesPerMs: 100_000,
  resetChance: 0,
};

/** Time within one machine, in ms. */
const LOOPBACK_MS = 0.01;

const directed = (from: string, to: string): string => `${from}>${to}`;

/** See the file header. */
export class SimLinks {
  readonly #random: SeededRandom;
  readonly #profiles = new Map<string, LinkProfile>();
  readonly #cuts = new Set<string>();
  readonly #down = new Set<string>();
  /** Until when each direction is busy sending, for the bandwidth. */
  readonly #busyUntilMs = new Map<string, number>();

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  set(a: string, b: string, profile: LinkProfile): void {
    this.#profiles.set(directed(a, b), profile);
    this.#profiles.set(directed(b, a), profile);
  }

  cut(from: string, to: string): void {
    this.#cuts.add(directed(from, to));
  }

  heal(from: string, to: string): void {
    this.#cuts.delete(directed(from, to));
  }

  healAll(): void {
    this.#cuts.clear();
  }

  setPower(machine: string, on: boolean): void {
    if (on) this.#down.delete(machine);
    else this.#down.add(machine);
  }

  /** Whether a segment gets from one machine to the other now. */
  passes(from: string, to: string): boolean {
    return !this.#cuts.has(directed(from, to)) && !this.#down.has(from) && !this.#down.has(to);
  }

  /** Whether this data segment's connection is reset by the network. */
  resets(from: string, to: string): boolean {
    const chance = this.#profile(from, to).resetChance;
    return chance > 0 && this.#random.chance(chance);
  }

  /** When `length` bytes sent at `nowMs` arrive. */
  arrivalMs(from: string, to: string, length: number, nowMs: number): number {
    if (from === to) return nowMs + LOOPBACK_MS;
    const profile = this.#profile(from, to);
    const wire = directed(from, to);
    const startMs = Math.max(nowMs, this.#busyUntilMs.get(wire) ?? 0);
    const sentMs = startMs + length / profile.bytesPerMs;
    this.#busyUntilMs.set(wire, sentMs);
    return sentMs + profile.latencyMs + this.#random.fraction() * profile.jitterMs;
  }

  #profile(from: string, to: string): LinkProfile {
    return this.#profiles.get(directed(from, to)) ?? LAN_PROFILE;
  }
}
