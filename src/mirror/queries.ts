/**
 * The mirror APIs that only read: ListMirrors, DescribeMirrors, LastMirroredOffsets,
 * ReadMirrorStates (contract §11).
 *
 * States and offsets of partitions come from this broker's drivers, rows from the coordinator that
 * owns them, never from what happens to be cached (B3). With one broker per cluster that is always
 * this one; asking the others (A4) has its place in `#describePartition`.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  SOURCE_CLUSTER_ID_CONFIG,
  type TopicImage,
} from '../metadata/image.ts';
import { errors } from '../protocol/errors.ts';
import type {
  LastMirroredOffsetsRequest,
  LastMirroredOffsetsResponse,
} from '../protocol/messages/12793-last-mirrored-offsets.ts';
import type {
  ListMirrorsRequest,
  ListMirrorsResponse,
} from '../protocol/messages/12794-list-mirrors.ts';
import type {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../protocol/messages/12795-describe-mirrors.ts';
import type {
  ReadMirrorStatesRequest,
  ReadMirrorStatesResponse,
} from '../protocol/messages/12796-read-mirror-states.ts';
import type { OfflinePartition } from '../storage/log-manager.ts';
import { partitionKey } from '../storage/topic-partition.ts';
import { explain, type MirrorCause } from './causes.ts';
import type { DriverStatus } from './driver-context.ts';
import { type MirrorStateStore, mirrorNames } from './mirror-coordinator.ts';
import type { MirrorManager } from './mirror-manager.ts';
import type { MirrorStateRow } from './state-row.ts';
import { MirrorState, stateName } from './states.ts';

/** "Not asked for", as Kafka writes it. */
const NO_AUTHORIZED_OPERATIONS = -2147483648;

type DescribedMirror = DescribeMirrorsResponse['mirrors'][number];
type DescribedPartition = DescribedMirror['topics'][number]['partitions'][number];

/** What {@link MirrorQueries} asks. */
export interface MirrorQueriesOptions {
  readonly image: () => MetadataImage;
  readonly manager: Pick<MirrorManager, 'driver'>;
  readonly coordinator: Pick<MirrorStateStore, 'read' | 'rowsOfPartition'>;
  /** Partitions whose log this broker cannot use until it is started again, with the reason. */
  readonly offlinePartitions: () => Iterable<OfflinePartition>;
  /** What a partition that nobody here drives waits for (G28); absent: nothing. */
  readonly waitOf?: ((topic: string, partition: number) => string | undefined) | undefined;
}

/** A topic by id, or by name when the id is zero. */
export function topicOf(image: MetadataImage, name: string, id: Uuid): TopicImage | undefined {
  return id === ZERO_UUID ? image.topicsByName.get(name) : image.topicsById.get(id);
}

/** What an operator reads of a partition whose log is offline (M3). */
function offlineBecause(reason: string): Pick<DescribedPartition, 'cause' | 'message'> {
  const cure = 'Make room or repair the disk, then restart twinlog.';
  const message = `its log is offline: ${reason}. ${cure}`;
  return { cause: 'STORAGE_BUSY' satisfies MirrorCause, message };
}

/** What a row alone says of its partition. */
function statusOfRow(row: MirrorStateRow | undefined): DriverStatus {
  return {
    state: row === undefined ? 'UNKNOWN' : stateName(row.state),
    row,
    cause: row?.cause ?? '',
    message: row?.message ?? '',
    sinceMs: row?.sinceMs ?? -1,
    nextRetryMs: -1,
    progress: undefined,
  };
}

/** See the file header. */
export class MirrorQueries {
  readonly #options: MirrorQueriesOptions;

  constructor(options: MirrorQueriesOptions) {
    this.#options = options;
  }

  async listMirrors(_request: ListMirrorsRequest): Promise<ListMirrorsResponse> {
    const image = this.#options.image();
    const counts = new Map<string, number>();
    for (const { mirror, removed } of image.memberships.values()) {
      if (!removed) counts.set(mirror, (counts.get(mirror) ?? 0) + 1);
    }
    const mirrors = mirrorNames(image).map((mirrorName) => {
      const configs = image.configs(ConfigResourceType.MIRROR, mirrorName);
      return {
        mirrorName,
        sourceBootstrap: configs.get('bootstrap.servers') ?? '',
        topicCount: counts.get(mirrorName) ?? 0,
        sourceClusterId: configs.get(SOURCE_CLUSTER_ID_CONFIG) ?? '',
        upstreamClusterIds: [],
      };
    });
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, mirrors };
  }

  async describeMirrors(request: DescribeMirrorsRequest): Promise<DescribeMirrorsResponse> {
    const image = this.#options.image();
    const known = mirrorNames(image);
    const asked = request.mirrorNames ?? [];
    const members = new Map<string, TopicImage[]>();
    for (const [name, { mirror }] of image.memberships) {
      const topic = image.topicsByName.get(name);
      if (topic !== undefined) members.set(mirror, [...(members.get(mirror) ?? []), topic]);
    }
    const offline = new Map<string, string>();
    for (const { topic, partition, reason } of this.#options.offlinePartitions()) {
      offline.set(partitionKey(topic, partition), reason);
    }
    const mirrors: DescribedMirror[] = [];
    for (const mirrorName of asked.length === 0 ? known : asked) {
      mirrors.push({
        errorCode: known.includes(mirrorName) ? errors.NONE.code : errors.RESOURCE_NOT_FOUND.code,
        mirrorName,
        topics: await this.#describeTopics(mirrorName, members.get(mirrorName) ?? [], offline),
        authorizedOperations: NO_AUTHORIZED_OPERATIONS,
      });
    }
    return { throttleTimeMs: 0, mirrors };
  }

  #describeTopics(
    mirror: string,
    topics: readonly TopicImage[],
    offline: ReadonlyMap<string, string>,
  ): Promise<DescribedMirror['topics']> {
    const sorted = [...topics].sort((a, b) => (a.name < b.name ? -1 : 1));
    return Promise.all(
      sorted.map(async (topic) => {
        const indexes = [...topic.partitions.keys()].sort((a, b) => a - b);
        const partitions = indexes.map(async (partition) => {
          const reason = offline.get(partitionKey(topic.name, partition));
          const described = await this.#describePartition(mirror, topic, partition);
          return reason === undefined ? described : { ...described, ...offlineBecause(reason) };
        });
        return { topicName: topic.name, partitions: await Promise.all(partitions) };
      }),
    );
  }

  /** A4; of a partition that another broker leads, its row is what is known here. */
  async #describePartition(
    mirror: string,
    topic: TopicImage,
    partitionIndex: number,
  ): Promise<DescribedPartition> {
    const driver = this.#options.manager.driver(topic.id, partitionIndex);
    const status = driver?.status() ?? (await this.#rowStatus(mirror, topic, partitionIndex));
    const progress = status?.progress;
    const cause = status?.cause ?? '';
    const wait = cause === '' ? this.#options.waitOf?.(topic.name, partitionIndex) : undefined;
    const why = wait ?? status?.message ?? '';
    const message = explain(cause, why, { mirror, topic: topic.name });
    const isKnown = progress !== undefined && progress.lag >= 0;
    return {
      partitionIndex,
      sourceOffset: progress?.sourceHighWatermark ?? -1,
      destinationOffset: isKnown ? (driver?.partition.log.logEndOffset ?? -1) : -1,
      lag: progress?.lag ?? -1,
      state: status?.state ?? 'UNKNOWN',
      sourceLastStableOffset: progress?.sourceLastStableOffset ?? -1,
      lagMs: progress?.lagMs ?? -1,
      cause,
      message,
      sinceMs: status?.sinceMs ?? -1,
      nextRetryMs: status?.nextRetryMs ?? -1,
      lastMirroredOffset: status?.row?.lastMirroredOffset ?? -1,
    };
  }

  async #rowStatus(mirror: string, topic: TopicImage, partition: number): Promise<DriverStatus> {
    const key = { mirror, topicId: topic.id, partition };
    const answer = await this.#options.coordinator.read(key);
    const row = 'row' in answer ? answer.row : undefined;
    const membership = this.#options.image().membership(topic.name);
    // STOPPED of a former membership says nothing of a topic that was added again.
    const isOld =
      row !== undefined &&
      membership?.removed === false &&
      row.membershipOffset < membership.offset;
    return statusOfRow(isOld ? undefined : row);
  }

  /** B2: by topic id and asking cluster where those are given, else by mirror name. */
  async lastMirroredOffsets(
    request: LastMirroredOffsetsRequest,
  ): Promise<LastMirroredOffsetsResponse> {
    const image = this.#options.image();
    const topics = await Promise.all(
      request.topics.map(async ({ name, topicId, partitions }) => {
        const topic = topicOf(image, name, topicId);
        const answers = await Promise.all(
          partitions.map(({ partitionIndex }) =>
            this.#lastMirroredOffset(request, topic, partitionIndex),
          ),
        );
        return { name, partitions: answers, upstreamClusterIds: [] };
      }),
    );
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, topics };
  }

  async #lastMirroredOffset(
    { mirrorName, requesterClusterId }: LastMirroredOffsetsRequest,
    topic: TopicImage | undefined,
    partitionIndex: number,
  ): Promise<LastMirroredOffsetsResponse['topics'][number]['partitions'][number]> {
    const none = { partitionIndex, lastMirroredOffset: -1 };
    if (topic === undefined || !topic.partitions.has(partitionIndex)) {
      return { ...none, errorCode: errors.UNKNOWN_TOPIC_OR_PARTITION.code };
    }
    const answer = await this.#options.coordinator.rowsOfPartition(topic.id, partitionIndex);
    if (!('rows' in answer)) return { ...none, errorCode: answer.error };
    const newest = answer.rows
      .filter(({ key, row }) =>
        requesterClusterId === ''
          ? key.mirror === mirrorName
          : row.sourceClusterId === requesterClusterId && row.state === MirrorState.STOPPED,
      )
      .map(({ row }) => row)
      .filter((row) => row.lastMirroredOffset >= 0)
      .sort((a, b) => b.membershipOffset - a.membershipOffset)[0];
    const lastMirroredOffset = newest?.lastMirroredOffset ?? -1;
    return { partitionIndex, lastMirroredOffset, errorCode: errors.NONE.code };
  }

  async readMirrorStates(request: ReadMirrorStatesRequest): Promise<ReadMirrorStatesResponse> {
    const image = this.#options.image();
    const topics = await Promise.all(
      request.topics.map(async ({ name, topicId, partitions }) => {
        const topic = topicOf(image, name, topicId);
        const answers = await Promise.all(
          partitions.map(({ partitionIndex }) => this.#readState(request, topic, partitionIndex)),
        );
        return { name, partitions: answers };
      }),
    );
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, topics };
  }

  async #readState(
    { mirrorName, needPartitionStates }: ReadMirrorStatesRequest,
    topic: TopicImage | undefined,
    partitionIndex: number,
  ): Promise<ReadMirrorStatesResponse['topics'][number]['partitions'][number]> {
    const none = { partitionIndex, lastMirroredOffset: -1, state: MirrorState.UNKNOWN };
    if (topic === undefined) {
      return { ...none, errorCode: errors.UNKNOWN_TOPIC_OR_PARTITION.code };
    }
    const key = { mirror: mirrorName, topicId: topic.id, partition: partitionIndex };
    const answer = await this.#options.coordinator.read(key);
    if (!('row' in answer)) return { ...none, errorCode: answer.error };
    const { row } = answer;
    return {
      partitionIndex,
      lastMirroredOffset: row?.lastMirroredOffset ?? -1,
      state: needPartitionStates && row !== undefined ? row.state : MirrorState.UNKNOWN,
      errorCode: errors.NONE.code,
    };
  }
}
