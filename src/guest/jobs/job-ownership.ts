/**
 * Which guest runs a mirror's jobs, so that two never do (G23).
 *
 * Asked by every job before it acts on a mirror. The MirrorJobs row names the owner; whoever takes
 * the jobs from another fences that guest's writes first. Invariants:
 * - Jobs of a live owner are never taken; a request that needs them is refused with its id.
 * - Of several guests the live one with the lowest id takes what nobody runs, and only after the
 *   owner was gone for longer than a new leader epoch takes (a guest fences itself for that, T5).
 */
import { type Refusal, refuse } from '../../metadata/decide.ts';
import { type ErrorCode, errorName, errors } from '../../protocol/errors.ts';
import { guests, isLive } from '../guest-brokers.ts';
import type { JobContext } from './job-ports.ts';

/** How long an owner is gone before its jobs are taken, in ms: above the broker session. */
export const ORPHANED_AFTER_MS = 10_000;

/** A refusal of the state store, as a sentence. */
export function storeRefusal(code: ErrorCode, what: string): Refusal | undefined {
  if (code === errors.NONE.code) return undefined;
  return refuse(code, `${what} could not be recorded in the mirror state: ${errorName(code)}.`);
}

/** See the file header. */
export class JobOwnership {
  readonly #context: JobContext;
  /** When a mirror's owner was first seen gone, monotonic. */
  readonly #goneSince = new Map<string, number>();

  constructor(context: JobContext) {
    this.#context = context;
  }

  /** Whether this guest runs the jobs of a mirror. */
  isOwner(mirror: string): boolean {
    return this.#context.store.jobs(mirror)?.guestId === this.#context.brokerId;
  }

  /** Whether this is the guest that does what only one has to do. */
  isFirstGuest(): boolean {
    const image = this.#context.image();
    return guests(image).find(({ id }) => isLive(image, id))?.id === this.#context.brokerId;
  }

  /** Makes this guest the owner, or says why it cannot be. */
  async ensure(mirror: string): Promise<Refusal | undefined> {
    if (this.isOwner(mirror)) return undefined;
    const owner = this.#context.store.jobs(mirror)?.guestId;
    if (owner !== undefined && isLive(this.#context.image(), owner)) {
      const message = `The jobs of mirror '${mirror}' are run by guest ${owner}: ask it instead.`;
      return refuse(errors.NOT_COORDINATOR.code, message);
    }
    return await this.#claim(mirror, owner);
  }

  /** Takes over the jobs of mirrors that nobody runs. */
  async claimOrphans(): Promise<void> {
    const { store, runtime } = this.#context;
    const nowMs = runtime.clock.monotonicMs();
    for (const mirror of store.mirrors()) {
      const owner = store.jobs(mirror)?.guestId;
      if (owner !== undefined && isLive(this.#context.image(), owner)) {
        this.#goneSince.delete(mirror);
        continue;
      }
      const sinceMs = this.#goneSince.get(mirror) ?? nowMs;
      this.#goneSince.set(mirror, sinceMs);
      if (nowMs - sinceMs < ORPHANED_AFTER_MS || !this.isFirstGuest()) continue;
      // Once more after as long, should it fail.
      this.#goneSince.delete(mirror);
      const refused = await this.#claim(mirror, owner);
      if (refused === undefined) continue;
      runtime.logger.warn('mirror jobs not taken over', { mirror, why: refused.message });
    }
  }

  async #claim(mirror: string, from: number | undefined): Promise<Refusal | undefined> {
    const { store, runtime } = this.#context;
    const refused = storeRefusal(await store.claimJobs(mirror), `Who runs mirror '${mirror}'`);
    if (refused === undefined) runtime.logger.info('mirror jobs taken', { mirror, from });
    return refused;
  }
}
