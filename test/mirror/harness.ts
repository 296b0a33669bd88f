/**
 * What the tests of this folder share: rows, a coordinator over a log in memory, a scripted source.
 */
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import type { Runtime } from '../../src/io/runtime.ts';
import {
  ConfigResourceType,
  configKey,
  emptyImage,
  type MetadataImage,
  metadataImage,
  type TopicImage,
} from '../../src/metadata/image.ts';
import { MirrorFailure } from '../../src/mirror/causes.ts';
import { MirrorCoordinator } from '../../src/mirror/mirror-coordinator.ts';
import type { PartitionFetch } from '../../src/mirror/partition-fetch.ts';
import type { SourceCluster, SourceListener } from '../../src/mirror/source-cluster.ts';
import { MIRROR_STATE_TOPIC, type MirrorStateRow } from '../../src/mirror/state-row.ts';
import { MirrorState, type MirrorStateName } from '../../src/mirror/states.ts';
import { MemoryLog } from '../coordinator/harness.ts';

/** A row in a state; the rest says nothing special. */
export function row(state: MirrorStateName, fields: Partial<MirrorStateRow> = {}): MirrorStateRow {
  return {
    topicName: 't',
    partition: 0,
    state: MirrorState[state],
    lastMirroredOffset: -1,
    stateEpoch: 1,
    leaderEpoch: 0,
    membershipOffset: 1,
    sourceClusterId: '',
    sourceTopicId: ZERO_UUID,
    sourceEpochs: [],
    previousState: MirrorState.UNKNOWN,
    retryAttempt: 0,
    cause: '',
    message: '',
    sinceMs: -1,
    reachedMirroring: false,
    settled: false,
    closedTransactions: [],
    closedAtSource: [],
    cutOffset: -1,
    cutLeaderEpoch: -1,
    ...fields,
  };
}

/** An image with `__mirror_state` of `partitions` and the named mirrors. */
export function imageWith(
  mirrors: readonly string[],
  partitions = 3,
  base: MetadataImage = emptyImage('here'),
): MetadataImage {
  const configs = new Map(base.configsByResource);
  for (const mirror of mirrors) {
    const settings = new Map([['bootstrap.servers', 'source:9092']]);
    configs.set(configKey(ConfigResourceType.MIRROR, mirror), settings);
  }
  const states: TopicImage = {
    id: 'c3RhdGVzLXN0YXRlcy1zdA' as Uuid,
    name: MIRROR_STATE_TOPIC,
    partitions: new Map(
      Array.from({ length: partitions }, (_, partition) => [
        partition,
        {
          topicId: 'c3RhdGVzLXN0YXRlcy1zdA' as Uuid,
          topic: MIRROR_STATE_TOPIC,
          partition,
          replicas: [1],
          isr: [1],
          removingReplicas: [],
          addingReplicas: [],
          eligibleLeaderReplicas: [],
          lastKnownElr: [],
          leader: 1,
          leaderRecoveryState: 0,
          leaderEpoch: 0,
          partitionEpoch: 0,
          directories: [],
        },
      ]),
    ),
  };
  const byName = new Map(base.topicsByName).set(states.name, states);
  return metadataImage({ ...base, topicsByName: byName, configsByResource: configs });
}

/** A coordinator that leads every partition of `__mirror_state`; `load` before use. */
export class TestCoordinator {
  readonly log = new MemoryLog();
  readonly coordinator: MirrorCoordinator;
  image: MetadataImage;

  constructor(runtime: Runtime, image: MetadataImage) {
    this.image = image;
    this.coordinator = new MirrorCoordinator(runtime, { log: this.log, image: () => this.image });
  }

  lead(leaderEpoch = 0): void {
    const count = this.image.topicsByName.get(MIRROR_STATE_TOPIC)?.partitions.size ?? 0;
    for (let partition = 0; partition < count; partition++) {
      this.coordinator.onBecomeLeader(partition, leaderEpoch);
    }
  }
}

/** A source that answers from a script instead of a network. */
export class ScriptedSource {
  clusterId = 'source';
  topicId: Uuid;
  /** Set: every question fails. */
  failure: MirrorFailure | undefined;
  servesLastMirrored = false;
  lastMirrored = { errorCode: 0, offset: -1 };
  leaderEpoch = 0;
  /** Answers of OffsetForLeaderEpoch, by epoch asked. */
  readonly epochEnds = new Map<number, { leaderEpoch: number; endOffset: number }>();
  readonly askedEpochs: number[] = [];
  partitions = 1;
  range = { earliest: 0, latest: 1_000_000 };
  /** What `fetchAt` answers. */
  fetched: { errorCode: number; records: Uint8Array } = {
    errorCode: 0,
    records: new Uint8Array(0),
  };
  readonly registered = new Map<PartitionFetch, SourceListener>();
  readonly resumed: PartitionFetch[] = [];

  constructor(topicId: Uuid) {
    this.topicId = topicId;
  }

  #check(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** The same as the driver's type asks for. */
  asSource(): SourceCluster {
    const answer = async <T>(value: () => T): Promise<T> => {
      this.#check();
      return value();
    };
    const address = { host: 'source', port: 9092 };
    const leader = () => ({ brokerId: 1, address, leaderEpoch: this.leaderEpoch });
    const topic = (name: string) => ({
      name,
      id: this.topicId,
      partitions: new Map(
        Array.from({ length: this.partitions }, (_, partition) => [
          partition,
          { leaderId: 1, leaderEpoch: this.leaderEpoch },
        ]),
      ),
    });
    const source = {
      client: {
        serves: () => answer(() => this.servesLastMirrored),
        lastMirroredOffset: () => answer(() => this.lastMirrored),
        fetchAt: () => answer(() => this.fetched),
        offsetsForLeaderEpoch: (_: unknown, questions: { leaderEpoch: number }[]) =>
          answer(() =>
            questions.map(({ leaderEpoch }) => {
              this.askedEpochs.push(leaderEpoch);
              const end = this.epochEnds.get(leaderEpoch) ?? { leaderEpoch: -1, endOffset: -1 };
              return { errorCode: 0, ...end };
            }),
          ),
        listOffsets: (_: unknown, questions: { timestamp: bigint }[]) =>
          answer(() =>
            questions.map(({ timestamp }) => ({
              errorCode: 0,
              offset: timestamp === -2n ? this.range.earliest : this.range.latest,
              leaderEpoch: 0,
              timestamp: -1n,
            })),
          ),
      },
      topic: (name: string) => answer(() => topic(name)),
      leader: () => answer(leader),
      register: (fetch: PartitionFetch, listener: SourceListener) => {
        this.registered.set(fetch, listener);
      },
      unregister: (fetch: PartitionFetch) => {
        this.registered.delete(fetch);
      },
      resume: (fetch: PartitionFetch) => {
        this.resumed.push(fetch);
      },
      close: () => {},
    };
    Object.defineProperty(source, 'clusterId', { get: () => this.clusterId });
    return source as unknown as SourceCluster;
  }

  unreachable(): void {
    this.failure = new MirrorFailure('SOURCE_UNREACHABLE', 'refused');
  }
}
