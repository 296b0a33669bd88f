/**
 * A guest that leads mirror partitions in a real Apache Kafka cluster, without a source: the test
 * appends what a mirror would.
 *
 * Made of the product's own parts on a real network and a real disk, with the mirror gate and the
 * ISR policy in the test's hand. Requests are counted, so that a hot loop shows.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { silentLogger } from '../../src/base/logger.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { guestSupportedFeatures } from '../../src/metadata/features.ts';
import type { MetadataImage, PartitionRegistration } from '../../src/metadata/image.ts';
import { MetadataLoader } from '../../src/metadata/metadata-loader.ts';
import { RemoteController } from '../../src/metadata/quorum/remote-controller.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import {
  AlterPartitionReassignmentsRequest,
  AlterPartitionReassignmentsResponse,
} from '../../src/protocol/messages/45-alter-partition-reassignments.ts';
import type { AlterPartitionRequest } from '../../src/protocol/messages/56-alter-partition.ts';
import { FetchSessions } from '../../src/replication/fetch-sessions.ts';
import type { FollowFrom } from '../../src/replication/follower-begin.ts';
import type { Partition } from '../../src/replication/partition.ts';
import { ReplicaManager } from '../../src/replication/replica-manager.ts';
import type { BrokerServices } from '../../src/server/api-handler.ts';
import { apiTable, listedApis } from '../../src/server/api-table.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import { BrokerRegistration } from '../../src/server/broker-registration.ts';
import { logConfigOf } from '../../src/server/log-config.ts';
import { RequestHandler } from '../../src/server/request-handler.ts';
import { SocketServer } from '../../src/server/socket-server.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import type { KafkaCluster, KafkaNode } from './apache-kafka.ts';
import { newUuid, until } from './guest-member.ts';
import { freePort, removeDirectory, temporaryDirectory } from './processes.ts';

/** The member's node id. */
export const LEADER_ID = 900;

function partsOf(bootstrap: string): { host: string; port: number }[] {
  return bootstrap.split(',').map((address) => {
    const [host = '', port = ''] = address.split(':');
    return { host, port: Number(port) };
  });
}

/** All log bytes of a partition directory, segments in order; undefined while there is none. */
export function logBytes(dataDir: string, topic: string, partition: number): Buffer | undefined {
  const directory = join(dataDir, `${topic}-${partition}`);
  try {
    const files = readdirSync(directory).filter((file) => file.endsWith('.log'));
    return Buffer.concat(files.sort().map((file) => readFileSync(join(directory, file))));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** See the file header. */
export class LeadingMember {
  readonly runtime = nodeRuntime({ logger: silentLogger });
  readonly directory: string;
  readonly controller: RemoteController;
  readonly metadata: MetadataLoader;
  readonly registration: BrokerRegistration;
  readonly replicas: ReplicaManager;
  /** Requests served, by API key. */
  readonly served = new Map<number, number>();
  /** AlterPartition requests sent: partitions in each. */
  readonly alterations: number[] = [];
  /** The ISR policy; call `replicas.reviewIsr` after a change. */
  admits: (brokerId: number) => boolean = () => false;
  /** From where an empty log follows an Apache leader; undefined: nothing is followed. */
  followFrom: FollowFrom | undefined;
  /** Whether the gate is open: the mirror topics take clients' writes. */
  isOpen = false;
  readonly #logs: LogManager;
  readonly #sockets: SocketServer;
  readonly #sessions: FetchSessions;

  private constructor(cluster: KafkaCluster, port: number) {
    const { runtime } = this;
    const { clusterId } = cluster;
    this.directory = temporaryDirectory('leading-member');
    mkdirSync(this.directory, { recursive: true });
    const config = new BrokerConfig(new Map());
    const directoryId = newUuid();
    this.#logs = new LogManager(runtime, {
      logDir: this.directory,
      defaultConfig: DEFAULT_LOG_CONFIG,
    });
    this.controller = new RemoteController(runtime, {
      bootstrapControllers: partsOf(cluster.controllerBootstrap),
      clusterId,
      nodeId: LEADER_ID,
      directoryId,
      refence: () => this.registration.refence(),
      schemasOf: (apiKey) => apiTable.get(apiKey),
      leaderEpochOf: (topicId, partition) =>
        this.metadata.image.topicsById.get(topicId)?.partitions.get(partition)?.leaderEpoch,
      onFatal: (error) => {
        throw error;
      },
    });
    const alterPartition = this.controller.alterPartition.bind(this.controller);
    this.controller.alterPartition = (request: AlterPartitionRequest) => {
      this.alterations.push(request.topics.reduce((sum, each) => sum + each.partitions.length, 0));
      return alterPartition(request);
    };
    this.replicas = new ReplicaManager(runtime, {
      brokerId: LEADER_ID,
      logManager: this.#logs,
      controller: this.controller,
      mirrorGate: {
        readOnly: (_id, topic) =>
          this.isOpen ? undefined : { topic, mirror: 'm', state: 'MIRRORING' },
      },
      isrPolicy: {
        mayJoin: (_id, _partition, id) => id === LEADER_ID || this.admits(id),
      },
      following: { followFrom: () => this.followFrom, listenerName: 'PLAINTEXT' },
      topicConfig: (topic) => logConfigOf(topic, this.metadata.image, config),
      onLeadership: [],
      replicaLagTimeMaxMs: 5_000,
    });
    this.metadata = new MetadataLoader(clusterId, [this.replicas]);
    this.#sessions = new FetchSessions(runtime, this.replicas.fetchSource);
    const services = {
      runtime,
      config,
      brokerId: LEADER_ID,
      clusterId,
      metadata: this.metadata,
      controller: this.controller,
      replicas: this.replicas,
      fetchSessions: this.#sessions,
      listedApis,
    } as unknown as BrokerServices;
    this.#sockets = this.#socketServer(services);
    this.registration = new BrokerRegistration(runtime, this.controller, {
      brokerId: LEADER_ID,
      clusterId,
      incarnationId: newUuid(),
      directoryId,
      rack: null,
      listeners: [{ name: 'PLAINTEXT', host: '127.0.0.1', port }],
      appliedOffset: () => this.metadata.image.offset,
      features: guestSupportedFeatures,
    });
  }

  #socketServer(services: BrokerServices): SocketServer {
    const handler = new RequestHandler(services, apiTable, this.#logs.buffers);
    return new SocketServer(this.runtime, {
      maxRequestBytes: 100_000_000,
      maxIdleMs: -1,
      buffers: this.#logs.buffers,
      connectionClosed: () => {},
      handleFrame: (frame, context) => {
        const apiKey = Buffer.from(frame.buffer, frame.byteOffset).readInt16BE(0);
        this.served.set(apiKey, (this.served.get(apiKey) ?? 0) + 1);
        return handler.handleFrame(frame, context);
      },
    });
  }

  /** Joins the cluster and serves. */
  static async start(cluster: KafkaCluster): Promise<LeadingMember> {
    const port = await freePort();
    const member = new LeadingMember(cluster, port);
    member.#logs.load(() => DEFAULT_LOG_CONFIG);
    await member.#sockets.listen({ name: 'PLAINTEXT', host: '127.0.0.1', port });
    await member.registration.register();
    await member.metadata.start(member.controller);
    await member.registration.unfence();
    member.#logs.start();
    return member;
  }

  get image(): MetadataImage {
    return this.metadata.image;
  }

  /** Leaves in good order. */
  async close(): Promise<void> {
    await this.#sockets.close();
    await this.registration.leave();
    this.replicas.close();
    this.#sessions.close();
    this.controller.close();
    await this.#logs.close();
    removeDirectory(this.directory);
  }

  /** Creates a topic with these replicas per partition and waits until it is led here. */
  async create(
    name: string,
    replicas: readonly (readonly number[])[],
    configs: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const assignments = replicas.map((brokerIds, partitionIndex) => {
      return { partitionIndex, brokerIds: [...brokerIds] };
    });
    const entries = Object.entries({ 'min.insync.replicas': '1', ...configs });
    const answer = await this.controller.send(CreateTopicsRequest, CreateTopicsResponse, {
      topics: [
        {
          name,
          numPartitions: -1,
          replicationFactor: -1,
          assignments,
          configs: entries.map(([key, value]) => ({ name: key, value })),
        },
      ],
      timeoutMs: 10_000,
      validateOnly: false,
    });
    const [topic] = answer.topics;
    if (topic?.errorCode !== 0)
      throw new Error(`${name}: ${topic?.errorCode} ${topic?.errorMessage}`);
    const last = replicas.length - 1;
    await until(`${name} led here`, () => this.replicas.partition(name, last)?.isLeader() === true);
  }

  /** Moves partition 0 to these replicas and waits until the metadata says that it is done. */
  async reassign(name: string, replicas: readonly number[]): Promise<void> {
    const answer = await this.controller.send(
      AlterPartitionReassignmentsRequest,
      AlterPartitionReassignmentsResponse,
      {
        timeoutMs: 10_000,
        topics: [{ name, partitions: [{ partitionIndex: 0, replicas: [...replicas] }] }],
      },
    );
    const error = answer.responses[0]?.partitions[0]?.errorCode ?? answer.errorCode;
    if (error !== 0) throw new Error(`reassignment of ${name}: error ${error}`);
    await until(`${name} on [${replicas}]`, () => {
      return String(this.registered(name).replicas) === String(replicas);
    });
  }

  partition(name: string, index = 0): Partition {
    const found = this.replicas.partition(name, index);
    if (found === undefined) throw new Error(`${name}-${index} is not here`);
    return found;
  }

  /** What the controller committed. */
  registered(name: string, index = 0): PartitionRegistration {
    const found = this.image.topicsByName.get(name)?.partitions.get(index);
    if (found === undefined) throw new Error(`${name}-${index} does not exist`);
    return found;
  }

  /** Appends as a mirror does, under the leader epoch of now. */
  append(name: string, ...batches: readonly Uint8Array[]): void {
    const partition = this.partition(name);
    for (const batch of batches) {
      const result = partition.appendMirrored([batch], partition.leaderEpoch);
      if (result.error !== 0)
        throw new Error(`append to ${name}: ${result.error} ${result.message}`);
    }
  }

  /** A new leader epoch, as after a cut (T5). */
  async startNewEpoch(name: string): Promise<void> {
    const { topicId, leaderEpoch } = this.partition(name);
    const elected = await this.controller.electSameLeader(topicId, 0, leaderEpoch);
    if (elected.error !== 0) throw new Error(`no new epoch: error ${elected.error}`);
    await until(`${name} led in a new epoch`, () => {
      const partition = this.partition(name);
      return partition.isLeader() && partition.leaderEpoch > leaderEpoch;
    });
  }

  /** All bytes of a partition's log here. */
  bytes(name: string, index = 0): Buffer {
    return logBytes(this.directory, name, index) ?? Buffer.alloc(0);
  }

  /** Waits until the logs of these brokers are, byte for byte, ours. */
  async whenCopied(name: string, brokers: readonly KafkaNode[], index = 0): Promise<void> {
    await until(`${name}-${index} copied to ${brokers.map(({ id }) => id)}`, () => {
      const ours = this.bytes(name, index);
      return brokers.every(({ dataDir }) => logBytes(dataDir, name, index)?.equals(ours) === true);
    });
  }
}
