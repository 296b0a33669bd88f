/**
 * The consumer groups of a mirror's source (rule Y6): the GroupOffsetSource over a SourceCluster.
 *
 * A group is asked about at the broker that lists it, which is its coordinator: FindCoordinator is
 * not needed, and a group that moves meanwhile answers NOT_COORDINATOR and is listed elsewhere next
 * time. The list of brokers is the source's metadata, asked anew when it is old or proved wrong, so
 * that another cluster is noticed before any of its answers is used (O4). Share and streams groups
 * are not read.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import type { Clock } from '../../io/runtime.ts';
import { errors } from '../../protocol/errors.ts';
import {
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../../protocol/messages/09-offset-fetch.ts';
import { ListGroupsRequest, ListGroupsResponse } from '../../protocol/messages/16-list-groups.ts';
import type { SourceCluster } from '../source-cluster.ts';
import type { GroupOffsetSource, SourceBroker, SourceGroup, SourceOffset } from './ports.ts';

/** How long a list of brokers is used, in ms. */
export const BROKERS_MAX_AGE_MS = 30_000;
/** From this OffsetFetch version on requests carry several groups. */
const BATCH_VERSION = 8;
/** Group types whose offsets are copied; a source that names none has classic groups only. */
const TYPES: ReadonlySet<string> = new Set(['', 'classic', 'consumer']);

/** The parts of a source that are used. */
export type GroupsSourceCluster = Pick<SourceCluster, 'refresh' | 'brokers' | 'client'>;

type FetchedTopic = OffsetFetchResponse['groups'][number]['topics'][number];

/** See the file header. */
export class SourceGroups implements GroupOffsetSource {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #source: GroupsSourceCluster;
  /** Monotonic time from which the list of brokers counts as old. */
  #oldFromMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Pick<Clock, 'monotonicMs'>, source: GroupsSourceCluster) {
    this.#clock = clock;
    this.#source = source;
  }

  async brokers(): Promise<SourceBroker[]> {
    if (this.#clock.monotonicMs() >= this.#oldFromMs) {
      await this.#source.refresh();
      this.#oldFromMs = this.#clock.monotonicMs() + BROKERS_MAX_AGE_MS;
    }
    return [...this.#source.brokers].map(([brokerId, address]) => ({ brokerId, address }));
  }

  outdated(): void {
    this.#oldFromMs = Number.NEGATIVE_INFINITY;
  }

  async groups({ address }: SourceBroker): Promise<string[] | { readonly error: number }> {
    const { client } = this.#source;
    const { errorCode, groups } = await client.send(
      address,
      ListGroupsRequest,
      ListGroupsResponse,
      {},
    );
    if (errorCode !== errors.NONE.code) return { error: errorCode };
    return groups
      .filter(({ groupType }) => TYPES.has(groupType.toLowerCase()))
      .map(({ groupId }) => groupId);
  }

  async offsets(broker: SourceBroker, groupIds: readonly string[]): Promise<SourceGroup[]> {
    const version = await this.#source.client.version(broker.address, OffsetFetchRequest);
    if (version !== undefined && version >= BATCH_VERSION) return this.#batch(broker, groupIds);
    const answers: SourceGroup[] = [];
    for (const groupId of groupIds) answers.push(await this.#one(broker, groupId));
    return answers;
  }

  /** What is pending in a transaction is not committed: stable offsets are not asked for. */
  async #batch({ address }: SourceBroker, groupIds: readonly string[]): Promise<SourceGroup[]> {
    const response = await this.#source.client.send(
      address,
      OffsetFetchRequest,
      OffsetFetchResponse,
      { groups: groupIds.map((groupId) => ({ groupId, topics: null })) },
    );
    const answers = new Map(response.groups.map((group) => [group.groupId, group]));
    return groupIds.map((groupId) => {
      const group = answers.get(groupId);
      const errorCode = group?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
      return { groupId, errorCode, offsets: group?.topics.flatMap(offsetsOf) ?? [] };
    });
  }

  async #one({ address }: SourceBroker, groupId: string): Promise<SourceGroup> {
    const { errorCode, topics } = await this.#source.client.send(
      address,
      OffsetFetchRequest,
      OffsetFetchResponse,
      { groupId, topics: null },
    );
    const named = topics.map((topic) => ({ ...topic, topicId: ZERO_UUID }));
    return { groupId, errorCode, offsets: named.flatMap(offsetsOf) };
  }
}

function offsetsOf({ name, topicId, partitions }: FetchedTopic): SourceOffset[] {
  return partitions.map(({ partitionIndex, committedOffset, metadata, errorCode }) => ({
    topic: name,
    topicId,
    partition: partitionIndex,
    offset: committedOffset,
    metadata: metadata ?? '',
    errorCode,
  }));
}
