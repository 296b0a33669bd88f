/**
 * Incremental fetch sessions (KIP-227): a reader names its partitions once, then only changes, and
 * is told only about partitions that have something new.
 *
 * The handler of API 1 calls `fetch` for every fetch; this file decides whether it is one of a
 * session. Invariants:
 * - The cache is bounded; a full cache answers session id 0, which makes every fetch a full one.
 *   A new session takes a place only from one that was idle for {@link MIN_EVICTION_MS}.
 * - A session takes one fetch at a time, with the epochs in order.
 * - Followers get no session: each of their fetches must move their state in every partition.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import { type FetchResults, fetchFrom } from './delayed-fetch.ts';
import { type FetchEntry, FetchSet, type FetchSource } from './fetch-set.ts';
import {
  CONSUMER_REPLICA_ID,
  type FetchParams,
  type FetchPartition,
  type FetchResult,
} from './fetch-types.ts';

/** No session: in requests and in answers. */
export const NO_SESSION = 0;
/** Epoch of a full fetch that wants a session. */
export const INITIAL_SESSION_EPOCH = 0;
/** Epoch of a full fetch that wants none, and ends the one it names. */
export const FINAL_SESSION_EPOCH = -1;
/** max.incremental.fetch.session.cache.slots: sessions held at most. */
export const MAX_FETCH_SESSIONS = 1000;
/** How long a session must have been idle to lose its place to a new one, in ms. */
export const MIN_EVICTION_MS = 120_000;
/** The epoch after which counting starts again at 1. */
const MAX_SESSION_EPOCH = 0x7fff_ffff;

/** The parts of a fetch request that concern sessions. */
export interface SessionRequest {
  readonly sessionId: number;
  readonly sessionEpoch: number;
  readonly partitions: readonly FetchPartition[];
  readonly forgotten: readonly {
    readonly topicId: Uuid;
    readonly topic: string;
    readonly partition: number;
  }[];
}

/** An answer: an error for the whole fetch, or results (only what is new, in a session). */
export type SessionResponse =
  | { readonly error: 0; readonly sessionId: number; readonly results: readonly FetchResult[] }
  | { readonly error: ErrorCode; readonly sessionId: number };

interface FetchSession {
  readonly id: number;
  readonly set: FetchSet;
  /** Of topics: by id or by name; it cannot change within a session. */
  readonly usesTopicIds: boolean;
  /** Of the fetch to come. */
  epoch: number;
  lastUsedMs: number;
}

/** See the file header. */
export class FetchSessions {
  readonly #runtime: Runtime;
  readonly #source: FetchSource;
  readonly #maxSessions: number;
  /** In the order of their last use. */
  readonly #sessions = new Map<number, FetchSession>();

  constructor(runtime: Runtime, source: FetchSource, maxSessions = MAX_FETCH_SESSIONS) {
    this.#runtime = runtime;
    this.#source = source;
    this.#maxSessions = maxSessions;
  }

  /** Sessions held. */
  get size(): number {
    return this.#sessions.size;
  }

  /**
   * Runs one fetch with its long poll. Errors: FETCH_SESSION_ID_NOT_FOUND,
   * INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
   */
  fetch(request: SessionRequest, params: FetchParams): Promise<SessionResponse> {
    const { sessionId, sessionEpoch } = request;
    if (sessionEpoch === FINAL_SESSION_EPOCH || sessionEpoch === INITIAL_SESSION_EPOCH) {
      if (sessionId !== NO_SESSION) this.#end(sessionId);
      const wanted =
        sessionEpoch === INITIAL_SESSION_EPOCH &&
        params.replicaId === CONSUMER_REPLICA_ID &&
        request.partitions.length > 0;
      const session = wanted ? this.#begin(request) : undefined;
      return session === undefined
        ? this.#fetchOnce(request, params)
        : this.#fetchSession(session, params, 'all');
    }
    const session = this.#sessions.get(sessionId);
    const error = session === undefined ? errors.FETCH_SESSION_ID_NOT_FOUND.code : 0;
    if (session === undefined) return Promise.resolve({ error, sessionId: NO_SESSION });
    return this.#continue(session, request, params);
  }

  /** Ends every session: the broker stops. */
  close(): void {
    for (const id of [...this.#sessions.keys()]) this.#end(id);
  }

  #continue(
    session: FetchSession,
    request: SessionRequest,
    params: FetchParams,
  ): Promise<SessionResponse> {
    if (request.sessionEpoch !== session.epoch || session.set.isWaitedOn()) {
      const error = errors.INVALID_FETCH_SESSION_EPOCH.code;
      return Promise.resolve({ error, sessionId: NO_SESSION });
    }
    const mixed = request.partitions.some((each) => usesTopicId(each) !== session.usesTopicIds);
    if (mixed) {
      const error = errors.FETCH_SESSION_TOPIC_ID_ERROR.code;
      return Promise.resolve({ error, sessionId: NO_SESSION });
    }
    for (const each of request.partitions) session.set.put(each);
    for (const { topicId, topic, partition } of request.forgotten) {
      session.set.forget(topicId, topic, partition);
    }
    if (session.set.size === 0) {
      this.#end(session.id);
      return Promise.resolve({ error: 0, sessionId: NO_SESSION, results: [] });
    }
    session.epoch = session.epoch === MAX_SESSION_EPOCH ? 1 : session.epoch + 1;
    this.#touch(session);
    return this.#fetchSession(session, params, 'changed');
  }

  /** A full fetch without a session, every partition answered in the order of the request. */
  async #fetchOnce(request: SessionRequest, params: FetchParams): Promise<SessionResponse> {
    const results = await fetchOnce(this.#runtime, this.#source, params, request.partitions);
    return { error: 0, sessionId: NO_SESSION, results };
  }

  async #fetchSession(
    session: FetchSession,
    params: FetchParams,
    answer: 'all' | 'changed',
  ): Promise<SessionResponse> {
    const results = await fetchFrom(this.#runtime.clock, session.set, params);
    const told = [...results].filter(([entry, result]) => tell(entry, result) || answer === 'all');
    return { error: 0, sessionId: session.id, results: told.map(([, result]) => result) };
  }

  #begin(request: SessionRequest): FetchSession | undefined {
    if (this.#sessions.size >= this.#maxSessions && !this.#evict()) return undefined;
    const set = new FetchSet(this.#source);
    for (const each of request.partitions) set.put(each);
    const session: FetchSession = {
      id: this.#freeId(),
      set,
      usesTopicIds: request.partitions.some(usesTopicId),
      epoch: INITIAL_SESSION_EPOCH + 1,
      lastUsedMs: 0,
    };
    this.#touch(session);
    return session;
  }

  #touch(session: FetchSession): void {
    session.lastUsedMs = this.#runtime.clock.monotonicMs();
    this.#sessions.delete(session.id);
    this.#sessions.set(session.id, session);
  }

  /** Makes room by ending the session that was idle longest; false when none was long enough. */
  #evict(): boolean {
    const [oldest] = this.#sessions.values();
    if (oldest === undefined) return false;
    const idleMs = this.#runtime.clock.monotonicMs() - oldest.lastUsedMs;
    if (idleMs < MIN_EVICTION_MS) return false;
    this.#end(oldest.id);
    return true;
  }

  #end(sessionId: number): void {
    this.#sessions.get(sessionId)?.set.dispose();
    this.#sessions.delete(sessionId);
  }

  /** Random, so that a reader's stale id does not meet another's session after a restart. */
  #freeId(): number {
    for (;;) {
      const id = 1 + Math.floor(this.#runtime.random.fraction() * (MAX_SESSION_EPOCH - 1));
      if (!this.#sessions.has(id)) return id;
    }
  }
}

/** A full fetch: every partition answered, in the order of `partitions`. */
export async function fetchOnce(
  runtime: Runtime,
  source: FetchSource,
  params: FetchParams,
  partitions: readonly FetchPartition[],
): Promise<FetchResult[]> {
  const set = new FetchSet(source);
  for (const each of partitions) set.put(each);
  const order = [...set.entries()];
  let results: FetchResults;
  try {
    results = await fetchFrom(runtime.clock, set, params);
  } finally {
    set.dispose();
  }
  return order.flatMap((entry) => results.get(entry) ?? []);
}

function usesTopicId(partition: FetchPartition): boolean {
  return partition.topicId !== ZERO_UUID;
}

/** Whether a session's reader must hear of a result, which then counts as told. */
function tell(entry: FetchEntry, result: FetchResult): boolean {
  const moved =
    result.highWatermark !== entry.sentHighWatermark ||
    result.logStartOffset !== entry.sentLogStartOffset;
  entry.sentHighWatermark = result.highWatermark;
  entry.sentLogStartOffset = result.logStartOffset;
  const isNews = result.bytes > 0 || result.error !== 0 || result.divergingEpoch !== undefined;
  return moved || isNews || result.preferredReadReplica !== undefined;
}
