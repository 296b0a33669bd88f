/**
 * Group offsets in a guest (Y6, G23): whose jobs it runs, where offsets go, and which partitions
 * take part: those that it leads, and those of the same mirror that other guests lead.
 *
 * Made by the composition root. Of a partition led elsewhere the row says whether it is MIRRORING,
 * and its leader is asked what it holds. Invariants:
 * - Such a partition counts up to its last stable offset only: a stop never cuts below it, so that
 *   a commit that crosses a stop on its way is still inside the log.
 * - While its leader does not answer, a partition takes no part.
 */
import type { Runtime } from '../io/runtime.ts';
import type { MetadataImage } from '../metadata/image.ts';
import type { KeyedRow } from '../mirror/coordinator-shard.ts';
import type {
  GroupOffsetSink,
  MirroredPartition,
  MirroredPartitions,
  OffsetRange,
} from '../mirror/group-offsets/ports.ts';
import type { MirrorStateRow, RowKey } from '../mirror/state-row.ts';
import { MirrorState } from '../mirror/states.ts';
import type { BrokerAddress } from '../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { errors } from '../protocol/errors.ts';
import { ListOffsetsRequest, ListOffsetsResponse } from '../protocol/messages/02-list-offsets.ts';
import { partitionKey } from '../storage/topic-partition.ts';
import { type ClusterClient, ClusterError } from './cluster-client.ts';
import { ClusterGroupOffsetSink, groupOffsetClient } from './group-offset-sink.ts';
import { apacheBrokers, isGuest, isLive } from './guest-brokers.ts';

/** How long the range of a partition led elsewhere is used, in ms. */
export const RANGE_MAX_AGE_MS = 2_000;
/** Partitions in one ListOffsets. */
export const MAX_PARTITIONS_PER_QUESTION = 1_000;
/** ListOffsets: the first and the next offset. */
const EARLIEST = -2n;
const LATEST = -1n;
const READ_COMMITTED = 1;

/** The mirror state as far as it is needed. */
export interface GroupOffsetRows {
  rows(mirror: string): readonly KeyedRow[];
  known(key: RowKey): MirrorStateRow | undefined;
  jobs(mirror: string): { readonly guestId: number } | undefined;
}

/** What {@link GuestGroupOffsets} is made of. */
export interface GuestGroupOffsetsOptions {
  /** This guest's id. */
  readonly brokerId: number;
  readonly image: () => MetadataImage;
  readonly store: GroupOffsetRows;
  /** Where brokers of the cluster that are no guests listen; asked at each need. */
  readonly brokers: () => readonly BrokerAddress[];
  readonly security?: ConnectionSecurity | undefined;
}

/** See the file header. */
export class GuestGroupOffsets {
  readonly sink: GroupOffsetSink;
  readonly #runtime: Pick<Runtime, 'clock' | 'logger'>;
  readonly #options: GuestGroupOffsetsOptions;
  readonly #cluster: ClusterClient;

  constructor(runtime: Runtime, options: GuestGroupOffsetsOptions) {
    const { brokerId, image, brokers, security } = options;
    this.#runtime = runtime;
    this.#options = options;
    this.#cluster = groupOffsetClient(runtime, brokerId, brokers, security);
    this.sink = new ClusterGroupOffsetSink(runtime, {
      cluster: this.#cluster,
      brokerIds: () =>
        apacheBrokers(image())
          .map(({ id }) => id)
          .filter((id) => isLive(image(), id)),
    });
  }

  close(): void {
    this.#cluster.close();
  }

  ownsJobs = (mirror: string): boolean =>
    this.#options.store.jobs(mirror)?.guestId === this.#options.brokerId;

  partitions = (local: MirroredPartitions): MirroredPartitions =>
    new GuestMirroredPartitions(this.#runtime, {
      ...this.#options,
      local,
      cluster: this.#cluster,
    });
}

/** What {@link GuestMirroredPartitions} looks at. */
export interface GuestMirroredPartitionsOptions
  extends Pick<GuestGroupOffsetsOptions, 'brokerId' | 'image' | 'store'> {
  readonly local: MirroredPartitions;
  readonly cluster: Pick<ClusterClient, 'call'>;
}

interface RemotePartition extends MirroredPartition {
  readonly leader: number;
}

interface KnownRange extends OffsetRange {
  readonly askedMs: number;
}

/** The partitions of a mirror, whichever guest leads them. */
export class GuestMirroredPartitions implements MirroredPartitions {
  readonly #runtime: Pick<Runtime, 'clock' | 'logger'>;
  readonly #options: GuestMirroredPartitionsOptions;
  readonly #ranges = new Map<string, KnownRange>();
  /** Why a leader did not answer last, by its id. */
  readonly #trouble = new Map<number, string>();

  constructor(runtime: Pick<Runtime, 'clock' | 'logger'>, options: GuestMirroredPartitionsOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  async mirroring(mirror: string): Promise<MirroredPartition[]> {
    const { local, store } = this.#options;
    const remote = store.rows(mirror).flatMap(({ key, row }) => this.#remote(key, row) ?? []);
    const byLeader = new Map<number, RemotePartition[]>();
    for (const partition of remote) {
      if (this.#isFresh(partition)) continue;
      byLeader.set(partition.leader, [...(byLeader.get(partition.leader) ?? []), partition]);
    }
    await Promise.all([...byLeader].map(([leader, asked]) => this.#ask(leader, asked)));
    const own = await local.mirroring(mirror);
    return [...own, ...remote.filter((partition) => this.#ranges.has(rangeKey(partition)))];
  }

  range(partition: MirroredPartition): OffsetRange | undefined {
    const { mirror, topicId, partition: index } = partition;
    const row = this.#options.store.known({ mirror, topicId, partition: index });
    if (row === undefined) return this.#options.local.range(partition);
    const remote = this.#remote({ mirror, topicId, partition: index }, row);
    if (remote === undefined) return this.#options.local.range(partition);
    return this.#ranges.get(rangeKey(partition));
  }

  /** A partition that another live guest leads and mirrors; undefined for any other. */
  #remote(key: RowKey, row: MirrorStateRow): RemotePartition | undefined {
    const { brokerId, image } = this.#options;
    const { mirror, topicId, partition } = key;
    if (row.state !== MirrorState.MIRRORING) return undefined;
    const topic = image().topicsById.get(topicId);
    const leader = topic?.partitions.get(partition)?.leader ?? -1;
    if (topic === undefined || leader === brokerId || !isGuest(image(), leader)) return undefined;
    const membership = image().membership(topic.name);
    if (membership?.mirror !== mirror || membership.removed) return undefined;
    const { sourceTopicId } = row;
    return { mirror, topic: topic.name, topicId, sourceTopicId, partition, leader };
  }

  #isFresh(partition: MirroredPartition): boolean {
    const known = this.#ranges.get(rangeKey(partition));
    const nowMs = this.#runtime.clock.monotonicMs();
    return known !== undefined && nowMs - known.askedMs < RANGE_MAX_AGE_MS;
  }

  /** Renews the ranges of one leader's partitions; those without an answer are dropped. */
  async #ask(leader: number, partitions: readonly RemotePartition[]): Promise<void> {
    for (let from = 0; from < partitions.length; from += MAX_PARTITIONS_PER_QUESTION) {
      const some = partitions.slice(from, from + MAX_PARTITIONS_PER_QUESTION);
      for (const partition of some) this.#ranges.delete(rangeKey(partition));
      try {
        const askedMs = this.#runtime.clock.monotonicMs();
        const starts = await this.#offsets(leader, some, EARLIEST);
        const ends = await this.#offsets(leader, some, LATEST);
        for (const partition of some) {
          const key = rangeKey(partition);
          const [logStartOffset, logEndOffset] = [starts.get(key), ends.get(key)];
          if (logStartOffset === undefined || logEndOffset === undefined) continue;
          this.#ranges.set(key, { logStartOffset, logEndOffset, askedMs });
        }
        this.#trouble.delete(leader);
      } catch (error) {
        if (!(error instanceof ClusterError)) throw error;
        this.#report(leader, error.message);
        return;
      }
    }
  }

  /** Once for each kind of trouble: it is asked again every second. */
  #report(leader: number, why: string): void {
    if (this.#trouble.get(leader) === why) return;
    this.#trouble.set(leader, why);
    const text = 'group offsets of partitions that another guest leads are not copied';
    this.#runtime.logger.warn(text, { guest: leader, why });
  }

  async #offsets(
    leader: number,
    partitions: readonly RemotePartition[],
    timestamp: bigint,
  ): Promise<Map<string, number>> {
    const byTopic = Map.groupBy(partitions, ({ topic }) => topic);
    const response = await this.#options.cluster.call(
      { to: 'broker', id: leader },
      ListOffsetsRequest,
      ListOffsetsResponse,
      {
        replicaId: -1,
        isolationLevel: READ_COMMITTED,
        topics: [...byTopic].map(([name, list]) => ({
          name,
          partitions: list.map(({ partition }) => ({ partitionIndex: partition, timestamp })),
        })),
      },
    );
    const ids = new Map(partitions.map(({ topic, topicId }) => [topic, topicId]));
    const offsets = new Map<string, number>();
    for (const { name, partitions: answers } of response.topics) {
      for (const { partitionIndex, errorCode, offset } of answers) {
        if (errorCode !== errors.NONE.code || offset < 0) continue;
        offsets.set(partitionKey(ids.get(name) ?? '', partitionIndex), offset);
      }
    }
    return offsets;
  }
}

function rangeKey({ topicId, partition }: MirroredPartition): string {
  return partitionKey(topicId, partition);
}
