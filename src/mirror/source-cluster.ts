/**
 * A mirror's source as this broker sees it: its metadata, its leaders, its fetcher loops.
 *
 * One per mirror; mirrors share nothing (F3). Partition drivers register a {@link PartitionFetch}
 * and this file keeps it with the right loop: it asks the source's metadata, lets the driver verify
 * each new source leader epoch (F10), and moves partitions when leaders move (F4). Invariants:
 * - A partition is in at most one loop, and in none while it is being verified or its leader is
 *   unknown; after `unregister` returns nothing is appended for it.
 * - One metadata request at a time; those who ask meanwhile share the next one.
 * - A cluster id other than the recorded one is a failure before any other answer is used (O4).
 */
import type { Logger } from '../base/logger.ts';
import type { Uuid } from '../base/uuid.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import { addressText } from '../protocol/connection-pool.ts';
import { errors } from '../protocol/errors.ts';
import type { MetadataResponse } from '../protocol/messages/03-metadata.ts';
import { type BackoffPolicy, backoffMs } from '../replication/backoff.ts';
import { FetcherLoop, type FetchFailure, type SinkAction } from '../replication/fetcher.ts';
import type { FetchedPartition, FetchTarget } from '../replication/leader-endpoint.ts';
import { causeOf, failureOf, isRetryable, type MirrorCause, MirrorFailure } from './causes.ts';
import type { PartitionFetch } from './partition-fetch.ts';
import type { HostPort, MirrorBrokerSettings, MirrorSettings } from './settings.ts';
import { SourceClient } from './source-client.ts';
import { SourceEndpoint } from './source-endpoint.ts';
import { ownerPartition } from './state-row.ts';

/** Longest pause between two metadata requests that are asked because something is wrong, in ms. */
export const MAX_REFRESH_BACKOFF_MS = 5_000;
/** Topics in one metadata request. */
export const MAX_TOPICS_PER_REQUEST = 1_000;

/** A partition of the source; a leader of −1 means none. */
export interface SourcePartition {
  readonly leaderId: number;
  readonly leaderEpoch: number;
}

/** A topic of the source. */
export interface SourceTopic {
  readonly name: string;
  /** Zero: the source is older than topic ids. */
  readonly id: Uuid;
  readonly partitions: ReadonlyMap<number, SourcePartition>;
}

/** Where a partition's leader is. */
export interface SourceLeader {
  readonly brokerId: number;
  readonly address: HostPort;
  readonly leaderEpoch: number;
}

/** What a {@link SourceCluster} is made of. */
export interface SourceClusterOptions {
  readonly mirror: string;
  readonly settings: MirrorSettings;
  readonly limits: MirrorBrokerSettings;
  readonly brokerId: number;
  /** The destination's own, which a source must not have. */
  readonly clusterId: string;
}

/** A partition driver's side of a registration. */
export interface SourceListener {
  /** Compares histories before data of this source leader epoch is fetched (F10); false: halted. */
  verify(leader: SourceLeader): Promise<boolean>;
  /** The topic has another id at the source now (F12). */
  recreated(id: Uuid): void;
}

interface Registration {
  readonly fetch: PartitionFetch;
  readonly listener: SourceListener;
  loop: Loop | undefined;
  /** Source leader epoch that was verified; undefined: none yet, or it must be looked up again. */
  verifiedEpoch: number | undefined;
  verifying: boolean;
  removed: boolean;
}

interface Loop {
  readonly key: string;
  readonly fetcher: FetcherLoop;
  readonly members: Map<string, Registration>;
}

function partitionKey(topic: string, partition: number): string {
  return `${topic}:${partition}`;
}

/** See the file header. */
export class SourceCluster {
  readonly client: SourceClient;
  readonly #runtime: Runtime;
  readonly #options: SourceClusterOptions;
  readonly #registrations = new Map<string, Registration>();
  readonly #loops = new Map<string, Loop>();
  readonly #topics = new Map<string, SourceTopic>();
  /** Topics whose metadata somebody wants. */
  readonly #wanted = new Set<string>();
  #brokers: ReadonlyMap<number, HostPort> = new Map();
  #clusterId: string;
  #identified = false;
  #current: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #refreshTimer: Timer | undefined;
  #ageTimer: Timer | undefined;
  #refreshAttempts = 0;
  #requestedAtMs = 0;
  #closed = false;

  constructor(runtime: Runtime, options: SourceClusterOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#clusterId = options.settings.sourceClusterId;
    this.client = new SourceClient(runtime, {
      clientId: `broker-${options.brokerId}-mirror-metadata-manager-${options.mirror}`,
      settings: options.settings,
    });
  }

  /** Empty until the first connection succeeded (O4). */
  get clusterId(): string {
    return this.#identified ? this.#clusterId : '';
  }

  /** The brokers of the source as of the last metadata, by id. */
  get brokers(): ReadonlyMap<number, HostPort> {
    return this.#brokers;
  }

  /** Fetcher loops that are open now. */
  get fetcherCount(): number {
    return this.#loops.size;
  }

  close(): void {
    this.#closed = true;
    this.#refreshTimer?.cancel();
    this.#ageTimer?.cancel();
    for (const loop of this.#loops.values()) loop.fetcher.close();
    this.#loops.clear();
    this.#registrations.clear();
    this.client.close();
  }

  // --- metadata ---------------------------------------------------------------------------------

  /** A topic as the source describes it now; rejects with a {@link MirrorFailure}. */
  async topic(name: string): Promise<SourceTopic> {
    this.#wanted.add(name);
    await this.refresh();
    const topic = this.#topics.get(name);
    if (topic !== undefined) return topic;
    this.#unwant(name);
    throw new MirrorFailure('SOURCE_TOPIC_MISSING', `the source has no topic ${name}`);
  }

  /** Where a partition's leader is, as far as known; rejects with a {@link MirrorFailure}. */
  async leader(topic: string, partition: number): Promise<SourceLeader> {
    const known = this.#leaderOf(topic, partition);
    if (known !== undefined) return known;
    await this.topic(topic);
    const leader = this.#leaderOf(topic, partition);
    if (leader !== undefined) return leader;
    const message = `partition ${topic}-${partition} has no leader at the source`;
    throw new MirrorFailure('SOURCE_LEADER_UNKNOWN', message);
  }

  /** Asks for the wanted topics; rejects with a {@link MirrorFailure}. */
  refresh(): Promise<void> {
    if (this.#next === undefined) {
      const before = this.#current ?? Promise.resolve();
      this.#next = before
        .then(
          () => {},
          () => {},
        )
        .then(() => {
          this.#next = undefined;
          this.#current = this.#ask();
          return this.#current;
        });
    }
    return this.#next;
  }

  /** The same in the background, now or after a pause; failures are repeated. */
  requestRefresh(): void {
    if (this.#closed || this.#refreshTimer !== undefined) return;
    const { settings } = this.#options;
    const now = this.#runtime.clock.monotonicMs();
    if (now - this.#requestedAtMs > 2 * MAX_REFRESH_BACKOFF_MS) this.#refreshAttempts = 0;
    this.#requestedAtMs = now;
    this.#refreshAttempts++;
    const policy: BackoffPolicy = {
      initialMs: settings.retryBackoffMs,
      maxMs: Math.max(settings.retryBackoffMs, MAX_REFRESH_BACKOFF_MS),
    };
    const first = this.#refreshAttempts === 1;
    const delayMs = first ? 0 : backoffMs(policy, this.#refreshAttempts - 1, this.#runtime.random);
    this.#refreshTimer = this.#runtime.clock.setTimer(delayMs, () => {
      this.#refreshTimer = undefined;
      this.refresh().catch((error: unknown) => {
        this.#trouble(error);
        if (this.#registrations.size > 0) this.requestRefresh();
      });
    });
  }

  #trouble(error: unknown): void {
    const { mirrorCause, message } = failureOf(error, this.#runtime.logger);
    for (const { fetch, loop } of [...this.#registrations.values()]) {
      if (!isRetryable(mirrorCause)) fetch.fail(mirrorCause, message);
      else if (loop === undefined) fetch.troubled(mirrorCause, message, -1);
    }
  }

  async #ask(): Promise<void> {
    if (this.#closed) throw new MirrorFailure('SOURCE_UNREACHABLE', 'the mirror is closed');
    const names = [...this.#wanted];
    for (let from = 0; from === 0 || from < names.length; from += MAX_TOPICS_PER_REQUEST) {
      const some = names.slice(from, from + MAX_TOPICS_PER_REQUEST);
      this.#apply(await this.#askAny(some), some);
    }
    this.#scheduleAging();
    this.#placeAll();
  }

  /** Metadata never gets older than `metadata.max.age.ms`. */
  #scheduleAging(): void {
    this.#ageTimer?.cancel();
    this.#ageTimer = this.#runtime.clock.setTimer(this.#options.settings.metadataMaxAgeMs, () =>
      this.requestRefresh(),
    );
  }

  /** The first broker that answers: known ones with a connection, bootstrap servers, the rest. */
  async #askAny(topics: readonly string[]): Promise<MetadataResponse> {
    const known = [...this.#brokers.values()];
    const candidates = [
      ...known.filter((address) => this.client.knows(address)),
      ...this.#options.settings.bootstrapServers,
      ...known,
    ];
    const tried = new Set<string>();
    let failure = new MirrorFailure('SOURCE_UNREACHABLE', 'no bootstrap server');
    for (const address of candidates) {
      const text = addressText(address);
      if (tried.has(text)) continue;
      tried.add(text);
      try {
        return await this.client.metadata(address, topics);
      } catch (error) {
        if (!(error instanceof MirrorFailure)) throw error;
        failure = error;
      }
    }
    throw failure;
  }

  #apply(response: MetadataResponse, asked: readonly string[]): void {
    this.#identify(response.clusterId ?? '');
    this.#brokers = new Map(
      response.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]),
    );
    for (const topic of response.topics) {
      const name = topic.name ?? '';
      // Any other error says nothing about the topic: what was known stays.
      const isGone = topic.errorCode === errors.UNKNOWN_TOPIC_OR_PARTITION.code;
      if (topic.errorCode !== 0 && !isGone) continue;
      if (isGone) {
        this.#topics.delete(name);
        continue;
      }
      const partitions = new Map(
        topic.partitions.map(({ partitionIndex, leaderId, leaderEpoch }) => [
          partitionIndex,
          { leaderId, leaderEpoch },
        ]),
      );
      this.#topics.set(name, { name, id: topic.topicId, partitions });
    }
    const denied = response.topics.find(
      ({ errorCode }) => errorCode === errors.TOPIC_AUTHORIZATION_FAILED.code,
    );
    if (denied === undefined || asked.length !== 1) return;
    const message = `not authorized to describe topic ${denied.name} at the source`;
    throw new MirrorFailure('SOURCE_AUTHORIZATION_FAILED', message);
  }

  /** Rule O4. */
  #identify(clusterId: string): void {
    if (clusterId === this.#options.clusterId) {
      const message = `bootstrap.servers point to this cluster itself (${clusterId})`;
      throw new MirrorFailure('SOURCE_CLUSTER_CHANGED', message);
    }
    if (this.#clusterId !== '' && clusterId !== this.#clusterId) {
      const message =
        `bootstrap.servers point to cluster ${clusterId}, ` +
        `but the source of mirror ${this.#options.mirror} is ${this.#clusterId}`;
      throw new MirrorFailure('SOURCE_CLUSTER_CHANGED', message);
    }
    this.#clusterId = clusterId;
    this.#identified = true;
  }

  #leaderOf(topic: string, partition: number): SourceLeader | undefined {
    const found = this.#topics.get(topic)?.partitions.get(partition);
    const address = found === undefined ? undefined : this.#brokers.get(found.leaderId);
    if (found === undefined || address === undefined) return undefined;
    return { brokerId: found.leaderId, address, leaderEpoch: found.leaderEpoch };
  }

  // --- fetching ---------------------------------------------------------------------------------

  /** From now on the partition is fetched, as soon as its leader is known and verified. */
  register(fetch: PartitionFetch, listener: SourceListener): void {
    const { topic, partition } = fetch.partition;
    const registration: Registration = {
      fetch,
      listener,
      loop: undefined,
      verifiedEpoch: undefined,
      verifying: false,
      removed: false,
    };
    this.#wanted.add(topic);
    this.#registrations.set(partitionKey(topic, partition), registration);
    this.#place(registration);
  }

  /** Nothing is appended for the partition after this. */
  unregister(fetch: PartitionFetch): void {
    const { topic, partition } = fetch.partition;
    const key = partitionKey(topic, partition);
    const registration = this.#registrations.get(key);
    if (registration?.fetch !== fetch) return;
    registration.removed = true;
    this.#leave(registration);
    this.#registrations.delete(key);
    this.#unwant(topic);
  }

  /** Stops asking about a topic that no registered partition belongs to. */
  #unwant(topic: string): void {
    for (const { fetch } of this.#registrations.values()) {
      if (fetch.partition.topic === topic) return;
    }
    this.#wanted.delete(topic);
  }

  /** Ends a pause: what the partition waited for is done. */
  resume(fetch: PartitionFetch): void {
    const { topic, partition } = fetch.partition;
    const registration = this.#registrations.get(partitionKey(topic, partition));
    if (registration?.fetch !== fetch) return;
    if (registration.loop === undefined) this.#place(registration);
    else registration.loop.fetcher.update(fetch.target());
  }

  #leave(registration: Registration): void {
    const { loop, fetch } = registration;
    registration.loop = undefined;
    if (loop === undefined) return;
    const { topic, partition } = fetch.partition;
    loop.fetcher.remove({ topic, topicId: fetch.sourceTopicId, partition });
    loop.members.delete(partitionKey(topic, partition));
    if (loop.members.size > 0) return;
    this.#loops.delete(loop.key);
    loop.fetcher.close();
  }

  #placeAll(): void {
    let waiting = false;
    for (const registration of [...this.#registrations.values()]) {
      if (!registration.removed) this.#place(registration);
      if (registration.loop === undefined && !registration.verifying) waiting = true;
    }
    if (waiting) this.requestRefresh();
  }

  /** Puts the partition where it belongs now; what goes wrong with it is contained to it. */
  #place(registration: Registration): void {
    try {
      this.#placeNow(registration);
    } catch (error) {
      const { mirrorCause, message } = failureOf(error, this.#runtime.logger);
      registration.fetch.fail(mirrorCause, message);
    }
  }

  #placeNow(registration: Registration): void {
    const { fetch } = registration;
    const { topic, partition } = fetch.partition;
    const described = this.#topics.get(topic);
    if (described !== undefined && described.id !== fetch.sourceTopicId) {
      this.#leave(registration);
      registration.listener.recreated(described.id);
      return;
    }
    const leader = this.#leaderOf(topic, partition);
    if (leader === undefined) {
      this.#leave(registration);
      const cause: MirrorCause =
        described === undefined ? 'SOURCE_TOPIC_MISSING' : 'SOURCE_LEADER_UNKNOWN';
      const what = described === undefined ? 'is not known' : 'has no leader';
      if (this.#identified) fetch.troubled(cause, `${topic}-${partition} ${what} there`, -1);
      this.requestRefresh();
      return;
    }
    if (registration.verifiedEpoch !== leader.leaderEpoch) {
      this.#leave(registration);
      void this.#verify(registration, leader);
      return;
    }
    this.#join(registration, leader);
  }

  async #verify(registration: Registration, leader: SourceLeader): Promise<void> {
    if (registration.verifying) return;
    registration.verifying = true;
    let failure: MirrorFailure | undefined;
    let verified = false;
    try {
      verified = await registration.listener.verify(leader);
    } catch (error) {
      failure = failureOf(error, this.#runtime.logger);
    }
    registration.verifying = false;
    if (registration.removed || this.#closed) return;
    if (failure !== undefined) {
      registration.fetch.troubled(failure.mirrorCause, failure.message, -1);
      this.requestRefresh();
    } else if (verified) {
      registration.verifiedEpoch = leader.leaderEpoch;
      registration.fetch.leads(leader.leaderEpoch);
      this.#place(registration);
    }
  }

  #join(registration: Registration, leader: SourceLeader): void {
    const { fetch } = registration;
    const { topic, partition } = fetch.partition;
    const number = ownerPartition(
      partitionKey(topic, partition),
      this.#options.limits.numReplicaFetchers,
    );
    const key = `${number}:${leader.brokerId}:${addressText(leader.address)}`;
    if (registration.loop !== undefined && registration.loop.key !== key) {
      this.#leave(registration);
    }
    if (registration.loop === undefined) {
      const loop = this.#loops.get(key) ?? this.#openLoop(key, number, leader.address);
      registration.loop = loop;
      loop.members.set(partitionKey(topic, partition), registration);
      loop.fetcher.update(fetch.target());
    }
  }

  #openLoop(key: string, number: number, address: HostPort): Loop {
    const { brokerId, mirror, settings, limits } = this.#options;
    const endpoint = new SourceEndpoint(this.#runtime, {
      address,
      clientId: `broker-${brokerId}-fetcher-${number}-mirror-${mirror}`,
      settings,
      limits,
      client: this.client,
    });
    const members = new Map<string, Registration>();
    const sink = new LoopSink(this, this.#runtime.logger, members, limits.fetchResponseMaxBytes);
    const fetcher = new FetcherLoop(this.#runtime, endpoint, sink, {
      fetchBackoff: {
        initialMs: settings.reconnectBackoffMs,
        maxMs: Math.max(settings.reconnectBackoffMs, settings.reconnectBackoffMaxMs),
      },
      partitionBackoff: { initialMs: settings.retryBackoffMs, maxMs: MAX_REFRESH_BACKOFF_MS },
    });
    const loop = { key, fetcher, members };
    this.#loops.set(key, loop);
    return loop;
  }

  /** The source says that the leader is elsewhere, or does not know the partition: ask again. */
  moved(registration: Registration): void {
    // The epoch must be looked up and verified anew even if the leader stays.
    registration.verifiedEpoch = undefined;
    this.#runtime.clock.defer(() => {
      if (!registration.removed) this.#leave(registration);
      this.requestRefresh();
    });
  }
}

/** Hands what one loop fetched to its partitions. */
class LoopSink {
  readonly #source: SourceCluster;
  readonly #members: ReadonlyMap<string, Registration>;
  readonly #logger: Logger;
  readonly #responseMaxBytes: number;
  /** Partitions that watch for an offset gap at the source's end (F15). */
  readonly #watching = new Set<Registration>();
  #bytes = 0;
  /** The last fetch failed: its partitions are in trouble, idle ones too. */
  #failed = false;

  constructor(
    source: SourceCluster,
    logger: Logger,
    members: ReadonlyMap<string, Registration>,
    responseMaxBytes: number,
  ) {
    this.#source = source;
    this.#logger = logger;
    this.#members = members;
    this.#responseMaxBytes = responseMaxBytes;
  }

  onPartition(target: FetchTarget, fetched: FetchedPartition): SinkAction {
    const registration = this.#members.get(partitionKey(target.topic, target.partition));
    if (registration === undefined) return { kind: 'remove' };
    this.#bytes += fetched.records.length;
    const action = this.#take(registration.fetch, fetched);
    if (registration.fetch.watchesForGap) this.#watching.add(registration);
    if (action.kind !== 'moved') return action;
    this.#source.moved(registration);
    return { kind: 'pause' };
  }

  /** What goes wrong with one partition is contained to it. */
  #take(fetch: PartitionFetch, fetched: FetchedPartition): SinkAction | { readonly kind: 'moved' } {
    try {
      return fetch.onFetched(fetched);
    } catch (error) {
      const { mirrorCause, message } = failureOf(error, this.#logger);
      fetch.fail(mirrorCause, message);
      return { kind: 'pause' };
    }
  }

  onAnswer(): void {
    if (this.#failed) for (const { fetch } of this.#members.values()) fetch.recovered();
    this.#failed = false;
    const room = this.#bytes < this.#responseMaxBytes / 2;
    this.#bytes = 0;
    for (const registration of this.#watching) {
      registration.fetch.answered(room);
      if (!registration.fetch.watchesForGap) this.#watching.delete(registration);
    }
  }

  onFailure(failure: FetchFailure): void {
    this.#bytes = 0;
    this.#failed = true;
    for (const { fetch } of [...this.#members.values()]) {
      fetch.troubled(causeOf(failure.cause), failure.message, failure.retryInMs);
    }
    // The leaders may have moved to brokers that do answer.
    this.#source.requestRefresh();
  }
}
