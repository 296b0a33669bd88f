/**
 * The port through which a fetcher loop reads from a leader: another broker of this cluster for
 * followers, a broker of the source cluster for mirrors.
 *
 * An endpoint is stateful: it keeps the partitions it was told and, where the leader grants one, a
 * fetch session over them, so an idle partition costs nothing per fetch (`fetch-session-client.ts`
 * does that part). One fetch at a time. Buffers are reused: records are valid only inside the
 * `onPartition` call that hands them over.
 */
import type { Uuid } from '../base/uuid.ts';
import type { DivergingEpoch } from './fetch-types.ts';

/** A partition as a loop wants it fetched. Made anew at each change; identity is its version. */
export interface FetchTarget {
  readonly topic: string;
  /** Zero for a leader without topic ids. */
  readonly topicId: Uuid;
  readonly partition: number;
  readonly fetchOffset: number;
  /** In requests: the leader epoch the caller knows. */
  readonly currentLeaderEpoch: number;
  /** −1: none is sent (mirrors, F4). */
  readonly lastFetchedEpoch: number;
  /** The follower's log start; −1 from mirrors. */
  readonly logStartOffset: number;
  readonly maxBytes: number;
}

/** What changed since the last fetch of an endpoint. */
export interface FetchChanges {
  /** Added or changed, in the order in which they wait for their turn. */
  readonly updated: readonly FetchTarget[];
  readonly removed: readonly FetchTarget[];
}

/** A leader's answer for one partition. `errorCode` is data from the wire. */
export interface FetchedPartition {
  readonly errorCode: number;
  readonly highWatermark: number;
  readonly lastStableOffset: number;
  readonly logStartOffset: number;
  readonly divergingEpoch?: DivergingEpoch | undefined;
  readonly currentLeader?: { readonly leaderId: number; readonly leaderEpoch: number } | undefined;
  /** Whole batches, the last one possibly cut off; valid only during the call. */
  readonly records: Uint8Array;
}

/** How a whole fetch ended. */
export type FetchOutcome =
  | { readonly kind: 'ok' }
  /** The leader dropped the fetch session: the next fetch names all partitions again. */
  | { readonly kind: 'sessionLost'; readonly errorCode: number }
  /** No answer, or an error for the whole request; nothing of it was handed on. */
  | { readonly kind: 'failed'; readonly cause: string; readonly message: string };

/** A partition's answer to an offset question; an error for all of them rejects the promise. */
export interface EndpointOffset {
  readonly errorCode: number;
  readonly offset: number;
  readonly leaderEpoch: number;
  readonly timestamp: bigint;
}

/** A question of {@link LeaderEndpoint.listOffsets}. */
export interface OffsetQuestion {
  readonly topic: string;
  readonly partition: number;
  readonly currentLeaderEpoch: number;
  /** Milliseconds, or a special one: −1 latest, −2 earliest. */
  readonly timestamp: bigint;
}

/** A question of {@link LeaderEndpoint.offsetsForLeaderEpoch}. */
export interface EpochQuestion {
  readonly topic: string;
  readonly partition: number;
  readonly currentLeaderEpoch: number;
  readonly leaderEpoch: number;
}

/** The end of an epoch at the leader; −1, −1 when it knows none. */
export interface EndpointEpochEnd {
  readonly errorCode: number;
  readonly leaderEpoch: number;
  readonly endOffset: number;
}

/** See the file header. */
export interface LeaderEndpoint {
  /** For logs: `host:port` or a broker id. */
  readonly description: string;
  /**
   * Applies `changes` and fetches all partitions known now; calls `onPartition` synchronously for
   * each answered one, with the target as it was asked. Never rejects, except for a Fault.
   */
  fetch(
    changes: FetchChanges,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome>;
  /** In the order of the questions. Rejects when there is no answer. */
  listOffsets(questions: readonly OffsetQuestion[]): Promise<EndpointOffset[]>;
  /** In the order of the questions. Rejects when there is no answer. */
  offsetsForLeaderEpoch(questions: readonly EpochQuestion[]): Promise<EndpointEpochEnd[]>;
  /** Ends the connection; a fetch in flight ends as failed and hands nothing on any more. */
  close(): void;
}
