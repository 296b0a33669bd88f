/**
 * Which partitions this broker follows, and the loops that fetch them: one per leading broker.
 *
 * Made by `ReplicaManager` for a guest (G23, G29), which tells of every partition that changed.
 * What is followed at all, and from where, the owner decides. Invariants:
 * - A partition is followed under exactly one leader epoch; with the next one it starts anew.
 * - An empty log that is to begin at an offset is begun, with all that must be known there, before
 *   anything is fetched (`follower-begin.ts`); any other log goes on at its own end.
 * - A loop without partitions is closed, so what is not followed costs nothing.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { addressText, type BrokerAddress } from '../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import { ConnectionError } from '../protocol/kafka-connection.ts';
import { type BackoffPolicy, backoffMs } from './backoff.ts';
import { fetchKey } from './fetch-types.ts';
import { FetcherLoop, type FetchFailure, type SinkAction } from './fetcher.ts';
import { BeginRefused, type FollowFrom, leaderRange, planBegin } from './follower-begin.ts';
import {
  type FollowedLeader,
  REPLICA_FETCH_MAX_BYTES,
  ReplicaEndpoint,
} from './follower-endpoint.ts';
import { begin, fitInto, follow, targetOf } from './follower-sink.ts';
import type { FetchedPartition, FetchTarget } from './leader-endpoint.ts';
import type { Partition } from './partition.ts';
import type { PartitionLog } from './partition-log.ts';

/** Pause before a leader is asked again what it did not answer: first and longest, in ms. */
export const QUESTION_BACKOFF: BackoffPolicy = { initialMs: 100, maxMs: 5000 };
/** Partitions whose leaders are asked at a time; the others wait. */
export const MAX_ASKING = 16;

/** What is followed, and how leaders are reached. */
export interface FollowOptions {
  /** Undefined: not followed. Counts for an empty log only; read at each review. */
  readonly followFrom: (topicId: Uuid, partition: number) => FollowFrom | undefined;
  /** The listener at which brokers of this cluster fetch from each other. */
  readonly listenerName: string;
  /** How connections to them are secured; absent: not at all. */
  readonly security?: ConnectionSecurity | undefined;
  /** Default: a connection to the address. */
  readonly connect?: (brokerId: number, address: BrokerAddress) => FollowedLeader;
}

/** What the manager needs of the broker. */
export interface FollowerContext extends FollowOptions {
  readonly brokerId: number;
  readonly image: () => MetadataImage;
}

/** A broker that leads what is followed. */
interface Leader {
  readonly id: number;
  readonly address: string;
  readonly endpoint: FollowedLeader;
  readonly loop: FetcherLoop;
  /** By `fetchKey`. */
  readonly members: Map<string, Followed>;
}

interface Followed {
  readonly partition: Partition;
  readonly leader: Leader;
  readonly leaderEpoch: number;
  /** Questions without an answer, in a row. */
  attempts: number;
  timer: Timer | undefined;
  /** The last error that was logged. */
  toldError: number;
}

interface Wanted {
  readonly leaderId: number;
  readonly leaderEpoch: number;
  readonly address: BrokerAddress;
}

/** Errors that pass with newer metadata, here or at the leader. */
const PASSING: ReadonlySet<number> = new Set<ErrorCode>([
  errors.NOT_LEADER_OR_FOLLOWER.code,
  errors.FENCED_LEADER_EPOCH.code,
  errors.UNKNOWN_LEADER_EPOCH.code,
  errors.UNKNOWN_TOPIC_ID.code,
  errors.UNKNOWN_TOPIC_OR_PARTITION.code,
]);

const REMOVE: SinkAction = { kind: 'remove' };
const RETRY: SinkAction = { kind: 'retry' };
const PAUSE: SinkAction = { kind: 'pause' };

/** See the file header. */
export class FollowerManager {
  readonly #runtime: Runtime;
  readonly #context: FollowerContext;
  readonly #followed = new Map<Partition, Followed>();
  readonly #leaders = new Map<number, Leader>();
  /** Partitions whose leader is to be asked. */
  readonly #waiting: Followed[] = [];
  #asking = 0;

  constructor(runtime: Runtime, context: FollowerContext) {
    this.#runtime = runtime;
    this.#context = context;
  }

  /** Partitions that are followed now. */
  get size(): number {
    return this.#followed.size;
  }

  /** The partition's metadata, its leader's address or the owner's wish may have changed. */
  review(partition: Partition): void {
    const wanted = this.#wanted(partition);
    const current = this.#followed.get(partition);
    if (current !== undefined) {
      const stays =
        wanted !== undefined &&
        wanted.leaderId === current.leader.id &&
        wanted.leaderEpoch === current.leaderEpoch &&
        addressText(wanted.address) === current.leader.address;
      if (stays) return;
      this.#leave(current);
    }
    if (wanted !== undefined) this.#start(partition, wanted);
    if (current !== undefined) this.#closeIfIdle(current.leader);
  }

  /** Ends following; after this nothing of the partition is appended any more. */
  forget(partition: Partition): void {
    const followed = this.#followed.get(partition);
    if (followed === undefined) return;
    this.#leave(followed);
    this.#closeIfIdle(followed.leader);
  }

  #leave(followed: Followed): void {
    const { partition, leader } = followed;
    this.#followed.delete(partition);
    followed.timer?.cancel();
    leader.loop.remove(partition);
    leader.members.delete(keyOf(partition));
  }

  #closeIfIdle(leader: Leader): void {
    if (leader.members.size > 0) return;
    if (this.#leaders.get(leader.id) === leader) this.#leaders.delete(leader.id);
    leader.loop.close();
  }

  close(): void {
    for (const partition of [...this.#followed.keys()]) this.forget(partition);
  }

  #wanted(partition: Partition): Wanted | undefined {
    const { leaderId, leaderEpoch, topicId } = partition;
    const { brokerId, image, followFrom, listenerName } = this.#context;
    if (leaderId < 0 || leaderId === brokerId) return undefined;
    if (partition.followedLog(leaderEpoch) === undefined) return undefined;
    if (followFrom(topicId, partition.partition) === undefined) return undefined;
    const { brokers } = image();
    // Before its own registration is known, a fetch could not say of which life it is.
    if (!brokers.has(brokerId)) return undefined;
    const listener = brokers.get(leaderId)?.listeners.find(({ name }) => name === listenerName);
    if (listener === undefined) return undefined;
    const { host, port } = listener;
    return { leaderId, leaderEpoch, address: { host, port } };
  }

  #start(partition: Partition, { leaderId, leaderEpoch, address }: Wanted): void {
    const leader = this.#leaderAt(leaderId, address);
    const followed: Followed = {
      partition,
      leader,
      leaderEpoch,
      attempts: 0,
      timer: undefined,
      toldError: 0,
    };
    leader.members.set(keyOf(partition), followed);
    this.#followed.set(partition, followed);
    const from = this.#context.followFrom(partition.topicId, partition.partition);
    const { log } = partition;
    if (log.isEmpty && log.logEndOffset !== from) this.#ask(followed);
    else this.#fetch(followed);
  }

  /** A broker that has a new address is another leader; what follows the old one is reviewed. */
  #leaderAt(id: number, address: BrokerAddress): Leader {
    const known = this.#leaders.get(id);
    const text = addressText(address);
    if (known?.address === text) return known;
    for (const { partition } of [...(known?.members.values() ?? [])]) this.forget(partition);
    const { brokerId, image, connect, security } = this.#context;
    const brokerEpoch = (): number => image().brokers.get(brokerId)?.epoch ?? -1;
    const endpoint =
      connect?.(id, address) ??
      new ReplicaEndpoint(this.#runtime, address, { brokerId, brokerEpoch }, security);
    const leader: Leader = {
      id,
      address: text,
      endpoint,
      members: new Map(),
      loop: new FetcherLoop(this.#runtime, endpoint, {
        onPartition: (target, fetched) => this.#fetched(leader, target, fetched),
        onFailure: (failure) => this.#failed(leader, failure),
        onAnswer: () => {},
      }),
    };
    this.#leaders.set(id, leader);
    return leader;
  }

  #log({ partition, leaderEpoch }: Followed): PartitionLog | undefined {
    return partition.followedLog(leaderEpoch);
  }

  #isCurrent(followed: Followed): boolean {
    return this.#followed.get(followed.partition) === followed;
  }

  // --- fetching ---------------------------------------------------------------------------------

  #fetch(followed: Followed): void {
    const log = this.#log(followed);
    if (log === undefined) return;
    followed.leader.loop.update(this.#target(followed, log));
  }

  #target({ partition, leaderEpoch }: Followed, log: PartitionLog): FetchTarget {
    const { topic, topicId, partition: index } = partition;
    const named = { topic, topicId, partition: index, currentLeaderEpoch: leaderEpoch };
    return targetOf(log, named, REPLICA_FETCH_MAX_BYTES);
  }

  #fetched(leader: Leader, target: FetchTarget, fetched: FetchedPartition): SinkAction {
    const followed = leader.members.get(keyOf(target));
    if (followed === undefined) return REMOVE;
    const log = this.#log(followed);
    if (log === undefined || followed.leaderEpoch !== target.currentLeaderEpoch) return REMOVE;
    const result = follow(log, fetched);
    if (result.kind === 'refused') return this.#refused(followed, result);
    followed.toldError = 0;
    if (result.kind === 'outOfRange') {
      this.#ask(followed);
      return PAUSE;
    }
    if (result.kind === 'truncated') this.#tellCut(followed, result.from, result.to);
    const next = this.#target(followed, log);
    const isSame =
      next.fetchOffset === target.fetchOffset &&
      next.lastFetchedEpoch === target.lastFetchedEpoch &&
      next.logStartOffset === target.logStartOffset;
    return { kind: 'continue', target: isSame ? target : next };
  }

  #refused(
    followed: Followed,
    { errorCode, message }: { readonly errorCode: number; readonly message: string },
  ): SinkAction {
    if (followed.toldError !== errorCode && !PASSING.has(errorCode)) {
      this.#warn(followed, 'a follower cannot go on', { errorCode, reason: message });
    }
    followed.toldError = errorCode;
    return this.#log(followed) === undefined ? REMOVE : RETRY;
  }

  #failed({ id, endpoint, members }: Leader, failure: FetchFailure): void {
    // One line per doubling: a leader that is away is no news each second.
    if (!Number.isInteger(Math.log2(failure.attempt))) return;
    const { cause, message, attempt, retryInMs } = failure;
    this.#runtime.logger.warn('replica fetch failed', {
      leader: id,
      address: endpoint.description,
      partitions: members.size,
      cause,
      reason: message,
      attempt,
      retryInMs,
    });
  }

  #tellCut(followed: Followed, from: number, to: number): void {
    if (to === from) return;
    this.#warn(followed, 'a follower cut what its leader does not have', { from, to });
  }

  #warn({ partition, leader, leaderEpoch }: Followed, what: string, fields: object): void {
    const { topic, partition: index } = partition;
    const where = { topic, partition: index, leader: leader.id, leaderEpoch };
    this.#runtime.logger.warn(what, { ...where, ...fields });
  }

  // --- questions --------------------------------------------------------------------------------

  /** Asks the leader as soon as it is this one's turn, then fetches. */
  #ask(followed: Followed): void {
    this.#waiting.push(followed);
    this.#askNext();
  }

  #askNext(): void {
    while (this.#asking < MAX_ASKING) {
      const followed = this.#waiting.shift();
      if (followed === undefined) return;
      if (!this.#isCurrent(followed)) continue;
      this.#asking++;
      void this.#adjust(followed).finally(() => {
        this.#asking--;
        this.#askNext();
      });
    }
  }

  async #adjust(followed: Followed): Promise<void> {
    try {
      const isFit = await this.#fit(followed);
      if (!isFit || !this.#isCurrent(followed)) return;
      followed.attempts = 0;
      this.#fetch(followed);
    } catch (error) {
      if (!(error instanceof BeginRefused) && !(error instanceof ConnectionError)) throw error;
      if (this.#isCurrent(followed)) this.#askLater(followed, error.message);
    }
  }

  /** Makes the log one that the leader can continue; false: over, or the disk failed. */
  async #fit(followed: Followed): Promise<boolean> {
    const { partition, leader, leaderEpoch } = followed;
    const { topic, topicId, partition: index } = partition;
    const named = { topic, partition: index, currentLeaderEpoch: leaderEpoch };
    const from = this.#context.followFrom(topicId, index);
    if (from !== undefined && partition.log.isEmpty) {
      const plan = await planBegin(leader.endpoint, named, from);
      const log = this.#isCurrent(followed) ? this.#log(followed) : undefined;
      return log !== undefined && begin(log, plan);
    }
    const range = await leaderRange(leader.endpoint, named);
    const log = this.#isCurrent(followed) ? this.#log(followed) : undefined;
    if (log === undefined) return false;
    const before = log.log.logEndOffset;
    if (!fitInto(log, range)) return false;
    if (log.log.logEndOffset !== before) return true;
    throw new BeginRefused(`the leader does not take log end ${before}, which it has`);
  }

  #askLater(followed: Followed, reason: string): void {
    followed.attempts++;
    const retryInMs = backoffMs(QUESTION_BACKOFF, followed.attempts, this.#runtime.random);
    if (Number.isInteger(Math.log2(followed.attempts))) {
      this.#warn(followed, 'a follower cannot begin', { reason, retryInMs });
    }
    followed.timer = this.#runtime.clock.setTimer(retryInMs, () => this.#ask(followed));
  }
}

function keyOf(target: Pick<FetchTarget, 'topic' | 'topicId' | 'partition'>): string {
  return fetchKey(target.topicId, target.topic, target.partition);
}
