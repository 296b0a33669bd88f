/**
 * The reader's side of a fetch session (KIP-227): what an endpoint says in each fetch request.
 *
 * One per endpoint and connection. It keeps every target, so that a leader without sessions, or one
 * that lost ours, is asked for all of them; a leader that grants a session is told changes only.
 * Use: `next(changes)` makes the request, then `answered` or `reset` before the next one.
 */
import type { Uuid } from '../base/uuid.ts';
import { FINAL_SESSION_EPOCH, INITIAL_SESSION_EPOCH, NO_SESSION } from './fetch-sessions.ts';
import { fetchKey } from './fetch-types.ts';
import type { FetchChanges, FetchTarget } from './leader-endpoint.ts';

const MAX_SESSION_EPOCH = 0x7fff_ffff;

/** What a fetch request says. */
export interface SessionFetch {
  readonly sessionId: number;
  readonly sessionEpoch: number;
  readonly partitions: readonly FetchTarget[];
  readonly forgotten: readonly FetchTarget[];
}

/** See the file header. */
export class FetchSessionClient {
  readonly #enabled: boolean;
  /** In the order in which they wait for their turn. */
  readonly #targets = new Map<string, FetchTarget>();
  #sessionId = NO_SESSION;
  #epoch = INITIAL_SESSION_EPOCH;

  /** `enabled` false: no session is ever asked for (request versions below 7). */
  constructor(enabled: boolean) {
    this.#enabled = enabled;
  }

  /** The target that was asked for last, by what a response names it with. */
  target(topicId: Uuid, topic: string, partition: number): FetchTarget | undefined {
    return this.#targets.get(fetchKey(topicId, topic, partition));
  }

  get size(): number {
    return this.#targets.size;
  }

  next(changes: FetchChanges): SessionFetch {
    for (const target of changes.removed) this.#targets.delete(keyOf(target));
    for (const target of changes.updated) {
      const key = keyOf(target);
      this.#targets.delete(key);
      this.#targets.set(key, target);
    }
    if (!this.#enabled || this.#sessionId === NO_SESSION) {
      const sessionEpoch = this.#enabled ? INITIAL_SESSION_EPOCH : FINAL_SESSION_EPOCH;
      const partitions = [...this.#targets.values()];
      return { sessionId: NO_SESSION, sessionEpoch, partitions, forgotten: [] };
    }
    return {
      sessionId: this.#sessionId,
      sessionEpoch: this.#epoch,
      partitions: changes.updated,
      forgotten: changes.removed,
    };
  }

  /** The leader answered without an error; `sessionId` 0 when it keeps no session. */
  answered(sessionId: number): void {
    const sameSession = sessionId === this.#sessionId && sessionId !== NO_SESSION;
    this.#sessionId = sessionId;
    this.#epoch = sameSession && this.#epoch < MAX_SESSION_EPOCH ? this.#epoch + 1 : 1;
  }

  /** The leader does not know our session any more, or the connection is new: start over. */
  reset(): void {
    this.#sessionId = NO_SESSION;
    this.#epoch = INITIAL_SESSION_EPOCH;
  }
}

function keyOf(target: FetchTarget): string {
  return fetchKey(target.topicId, target.topic, target.partition);
}
