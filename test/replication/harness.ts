/**
 * A broker's replication part over real logs in a temporary directory, with metadata, mirror gate
 * and controller in the test's hand.
 *
 * Broker 1 is this one; others exist only in the metadata and in what a test makes them fetch.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TestContext } from 'node:test';
import { randomUuid, type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import type { ControllerPort } from '../../src/metadata/controller-port.ts';
import {
  type BrokerRegistrationImage,
  type ConfigResource,
  emptyImage,
  type MetadataImage,
  metadataImage,
  type PartitionRegistration,
  type TopicImage,
} from '../../src/metadata/image.ts';
import { codec } from '../../src/protocol/codec.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { AlterPartitionRequest } from '../../src/protocol/messages/56-alter-partition.ts';
import { buildRecordBatch, type NewBatch } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { FetchSessions } from '../../src/replication/fetch-sessions.ts';
import type {
  FetchParams,
  FetchPartition,
  FetchResult,
} from '../../src/replication/fetch-types.ts';
import type { FollowOptions } from '../../src/replication/follower-manager.ts';
import type { ReadOnlyReason } from '../../src/replication/mirror-gate.ts';
import type { Partition } from '../../src/replication/partition.ts';
import { ReplicaManager } from '../../src/replication/replica-manager.ts';
import { DEFAULT_LOG_CONFIG, type LogConfig } from '../../src/storage/log-config.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import { breakableDisk, fakeRuntime, ManualClock } from './fakes.ts';

export const THIS_BROKER = 1;
export const OTHER_BROKER = 2;

/** What a test says about a partition; the rest is a healthy single replica. */
export type PartitionChange = Partial<PartitionRegistration>;

export class TestBroker {
  readonly clock = new ManualClock();
  #failingPath: string | undefined;
  readonly runtime = fakeRuntime(
    this.clock,
    breakableDisk((file) => this.#failingPath !== undefined && file.includes(this.#failingPath)),
  );
  readonly directory = mkdtempSync(path.join(tmpdir(), 'replication-'));
  readonly gate = new Map<string, ReadOnlyReason>();
  readonly leadership: string[] = [];
  readonly alterations: AlterPartitionRequest[] = [];
  readonly configs = new Map<string, Partial<LogConfig>>();
  alterationError = 0;
  controllerLost = false;
  /** Which replicas are taken, by topic and leader. */
  holds: (topic: string, leaderId: number) => boolean = () => true;
  /** The ISR policy. */
  admits: (replicaId: number) => boolean = () => true;
  image: MetadataImage = emptyImage('cluster');
  readonly logManager: LogManager;
  readonly replicas: ReplicaManager;
  readonly sessions: FetchSessions;
  readonly brokerId: number;
  #topics = new Map<string, TopicImage>();

  constructor(brokerId = THIS_BROKER, following?: FollowOptions) {
    this.brokerId = brokerId;
    this.logManager = new LogManager(this.runtime, {
      logDir: this.directory,
      defaultConfig: DEFAULT_LOG_CONFIG,
    });
    this.replicas = new ReplicaManager(this.runtime, {
      brokerId,
      following,
      logManager: this.logManager,
      controller: this.#controller(),
      mirrorGate: { readOnly: (_id, topic) => this.gate.get(topic) },
      isrPolicy: { mayJoin: (_id, _partition, replicaId) => this.admits(replicaId) },
      holds: (topic, leaderId) => this.holds(topic, leaderId),
      topicConfig: (topic) => ({ ...DEFAULT_LOG_CONFIG, ...this.configs.get(topic) }),
      onLeadership: [
        {
          onBecomeLeader: (partition) => this.#heard(`lead ${partition.leaderEpoch}`, partition),
          onLoseLeadership: (tp) => this.leadership.push(`lose ${tp.topic}-${tp.partition}`),
          onDelete: (tp) => this.leadership.push(`delete ${tp.topic}-${tp.partition}`),
        },
      ],
    });
    this.sessions = new FetchSessions(this.runtime, this.replicas.fetchSource, 2);
  }

  async open(): Promise<void> {
    await this.logManager.load((topic) => ({ ...DEFAULT_LOG_CONFIG, ...this.configs.get(topic) }));
    this.publish();
  }

  async close(): Promise<void> {
    this.replicas.close();
    await this.logManager.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  /** Creates a topic led here by a single replica, or as `change` says. */
  createTopic(
    name: string,
    partitions = 1,
    change: PartitionChange = {},
    id = randomUuid((length) => this.runtime.random.bytes(length)),
  ): Uuid {
    const registrations = new Map<number, PartitionRegistration>();
    for (let partition = 0; partition < partitions; partition++) {
      registrations.set(partition, {
        topicId: id,
        topic: name,
        partition,
        replicas: [THIS_BROKER],
        isr: [THIS_BROKER],
        removingReplicas: [],
        addingReplicas: [],
        eligibleLeaderReplicas: [],
        lastKnownElr: [],
        leader: THIS_BROKER,
        leaderRecoveryState: 0,
        leaderEpoch: 0,
        partitionEpoch: 0,
        directories: [],
        ...change,
      });
    }
    this.#topics.set(name, { id, name, partitions: registrations });
    this.publish([id]);
    return id;
  }

  /** A change record: the partition epoch grows. */
  changePartition(name: string, partition: number, change: PartitionChange): void {
    const topic = this.#topics.get(name);
    assert.ok(topic);
    const before = topic.partitions.get(partition);
    assert.ok(before);
    const after = { ...before, partitionEpoch: before.partitionEpoch + 1, ...change };
    const partitions = new Map(topic.partitions).set(partition, after);
    this.#topics.set(name, { ...topic, partitions });
    this.publish([topic.id]);
  }

  deleteTopic(name: string): void {
    const topic = this.#topics.get(name);
    assert.ok(topic);
    this.#topics.delete(name);
    this.publish([], [topic]);
  }

  /** From now on writes to files whose path contains this fail. */
  failWritesTo(part: string): void {
    this.#failingPath = part;
  }

  publish(
    changedTopics: readonly Uuid[] = [],
    deletedTopics: readonly TopicImage[] = [],
    changedConfigs: readonly ConfigResource[] = [],
  ): void {
    const previous = this.image;
    this.image = metadataImage({
      ...previous,
      offset: previous.offset + 1,
      topicsByName: new Map(this.#topics),
      topicsById: new Map([...this.#topics.values()].map((topic) => [topic.id, topic])),
      brokers: new Map([THIS_BROKER, OTHER_BROKER, 3].map((id) => [id, brokerImage(id)])),
    });
    this.replicas.publish({
      image: this.image,
      previous,
      changedTopics: new Set(changedTopics),
      deletedTopics,
      changedConfigs,
      changedBrokers: new Set(),
    });
  }

  partition(topic: string, index = 0): Partition {
    const partition = this.replicas.partition(topic, index);
    assert.ok(partition, `${topic}-${index} is here`);
    return partition;
  }

  #heard(what: string, partition: Partition): void {
    this.leadership.push(`${what} ${partition.topic}-${partition.partition}`);
  }

  #controller(): ControllerPort {
    const refuse = (): never => {
      throw new Error('not part of this test');
    };
    return {
      registerBroker: refuse,
      brokerHeartbeat: refuse,
      allocateProducerIds: refuse,
      electSameLeader: refuse,
      forward: refuse,
      subscribe: refuse,
      alterPartition: (request) => {
        this.alterations.push(request);
        codec(AlterPartitionRequest, 3).encodeToBytes(request);
        if (this.controllerLost) return Promise.reject(new Error('no controller'));
        const topics = request.topics.map(({ topicId, partitions }) => ({
          topicId,
          partitions: partitions.map((each) => ({
            partitionIndex: each.partitionIndex,
            errorCode: this.alterationError,
            leaderId: THIS_BROKER,
            leaderEpoch: each.leaderEpoch,
            isr: each.newIsrWithEpochs.map((member) => member.brokerId),
            leaderRecoveryState: 0,
            partitionEpoch: each.partitionEpoch + 1,
          })),
        }));
        return Promise.resolve({ throttleTimeMs: 0, errorCode: 0, topics });
      },
    };
  }
}

function brokerImage(id: number): BrokerRegistrationImage {
  return {
    id,
    epoch: 100 + id,
    incarnationId: ZERO_UUID,
    rack: null,
    fenced: id === 3,
    inControlledShutdown: false,
    listeners: [{ name: 'PLAINTEXT', host: `broker-${id}`, port: 9092, securityProtocol: 0 }],
    features: [],
    logDirs: [],
    cordonedLogDirs: [],
  };
}

/** A running test broker, closed when the test ends. */
export async function startTestBroker(
  t: TestContext,
  brokerId = THIS_BROKER,
  following?: FollowOptions,
): Promise<TestBroker> {
  const broker = new TestBroker(brokerId, following);
  t.after(() => broker.close());
  await broker.open();
  return broker;
}

/** A batch of `count` small records. */
export function batch(count = 1, fields: Partial<NewBatch> = {}): Uint8Array {
  const records = Array.from({ length: count }, (_, i) => ({
    key: null,
    value: Buffer.from(`value-${i}`),
    timestamp: 1000 + i,
  }));
  return buildRecordBatch({ records, ...fields });
}

/** A batch inside a transaction. */
export function transactional(producerId: bigint, count = 1, baseSequence = 0): Uint8Array {
  const fields = { producerId, producerEpoch: 0, baseSequence, isTransactional: true };
  return batch(count, fields);
}

/** The end of a transaction. */
export function marker(producerId: bigint, commit: boolean): Uint8Array {
  return buildTransactionMarker({
    producerId,
    producerEpoch: 0,
    commit,
    coordinatorEpoch: 0,
    timestamp: 2000,
  });
}

/** A batch as a source serves it: at its offset, with a leader epoch. */
export function mirrored(baseOffset: number, count: number, leaderEpoch = 0): Uint8Array {
  return batch(count, { baseOffset, partitionLeaderEpoch: leaderEpoch });
}

/** A consumer's fetch of one partition by name. */
export function fetchPartition(
  topic: string,
  partition: number,
  fetchOffset: number,
  fields: Partial<FetchPartition> = {},
): FetchPartition {
  return {
    topicId: ZERO_UUID,
    topic,
    partition,
    fetchOffset,
    maxBytes: 1_000_000,
    currentLeaderEpoch: -1,
    lastFetchedEpoch: -1,
    logStartOffset: -1,
    ...fields,
  };
}

/** A follower's fetch, which has records of epoch 0 below its log end. */
export function replicaPartition(
  topic: string,
  partition: number,
  fetchOffset: number,
  fields: Partial<FetchPartition> = {},
): FetchPartition {
  const lastFetchedEpoch = fetchOffset > 0 ? 0 : -1;
  const known = { lastFetchedEpoch, logStartOffset: 0, ...fields };
  return fetchPartition(topic, partition, fetchOffset, known);
}

/** A consumer's long poll. */
export function fetchParams(fields: Partial<FetchParams> = {}): FetchParams {
  return {
    replicaId: -1,
    replicaEpoch: -1,
    maxWaitMs: 500,
    minBytes: 1,
    maxBytes: 10_000_000,
    readCommitted: false,
    mirrorFetch: false,
    ...fields,
  };
}

/** Base offsets of the batches in an answer. */
export function baseOffsets(result: FetchResult): number[] {
  const bytes = Buffer.concat(result.records);
  const offsets: number[] = [];
  for (let at = 0; at < bytes.length; ) {
    const each = new RecordBatch(bytes, at);
    offsets.push(each.baseOffset);
    at = each.end;
  }
  return offsets;
}

/** A promise that a test follows without waiting for it. */
export interface Watched<T> {
  done: boolean;
  value: T | undefined;
}

/** Follows a promise without waiting for it. */
export function watch<T>(promise: Promise<T>): Watched<T> {
  const watched: Watched<T> = { done: false, value: undefined };
  void promise.then((value) => {
    watched.done = true;
    watched.value = value;
  });
  return watched;
}
