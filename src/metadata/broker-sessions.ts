/**
 * Who was heard of when: the controller's memory of brokers beyond the metadata log.
 *
 * Owned by the embedded controller. A session starts with a registration or with the controller
 * itself and is renewed by heartbeats. Invariant: time in which this process was not running is not
 * held against a broker, since its heartbeats could not be read then.
 */
import type { Clock } from '../io/runtime.ts';

/** How often sessions are checked, in ms. */
export const SESSION_CHECK_INTERVAL_MS = 500;
/** A check later than this was held up by a busy process, in ms. */
const LATE_CHECK_MS = 2 * SESSION_CHECK_INTERVAL_MS;

interface Session {
  lastContactMs: number;
  metadataOffset: number;
  shutdownOffset: number | undefined;
}

/** See the file header. */
export class BrokerSessions {
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  readonly #sessions = new Map<number, Session>();
  #lastCheckMs: number;

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
    this.#lastCheckMs = clock.monotonicMs();
  }

  /** Starts a session anew. */
  start(brokerId: number): void {
    this.#sessions.set(brokerId, {
      lastContactMs: this.#clock.monotonicMs(),
      metadataOffset: -1,
      shutdownOffset: undefined,
    });
  }

  /** Renews a session that has been started; `metadataOffset` is what the broker has applied. */
  renew(brokerId: number, metadataOffset: number): void {
    const session = this.#sessions.get(brokerId);
    if (session === undefined) return;
    session.lastContactMs = this.#clock.monotonicMs();
    session.metadataOffset = metadataOffset;
  }

  /** Remembers the metadata offset at which the broker began to shut down. */
  beginShutdown(brokerId: number, offset: number): void {
    const session = this.#sessions.get(brokerId);
    if (session !== undefined) session.shutdownOffset = offset;
  }

  /** See {@link beginShutdown}. */
  shutdownOffset(brokerId: number): number | undefined {
    return this.#sessions.get(brokerId)?.shutdownOffset;
  }

  /** What the broker has applied, as far as is known. */
  metadataOffset(brokerId: number): number {
    return this.#sessions.get(brokerId)?.metadataOffset ?? -1;
  }

  /** Whether the broker was heard of within the timeout. */
  isAlive(brokerId: number): boolean {
    const session = this.#sessions.get(brokerId);
    return session !== undefined && this.#age(session) < this.#timeoutMs;
  }

  /** Call every {@link SESSION_CHECK_INTERVAL_MS}: the brokers whose session has run out. */
  expired(): number[] {
    const now = this.#clock.monotonicMs();
    const pauseMs = now - this.#lastCheckMs - SESSION_CHECK_INTERVAL_MS;
    this.#lastCheckMs = now;
    if (pauseMs > LATE_CHECK_MS) {
      for (const session of this.#sessions.values()) session.lastContactMs += pauseMs;
    }
    const ids: number[] = [];
    for (const [id, session] of this.#sessions) {
      if (this.#age(session) >= this.#timeoutMs) ids.push(id);
    }
    return ids;
  }

  #age(session: Session): number {
    return this.#clock.monotonicMs() - session.lastContactMs;
  }
}
