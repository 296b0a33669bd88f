/**
 * The parts of a broker that are the same wherever its controller lives, wired to each other.
 *
 * Used by the composition roots only: `broker.ts` (embedded controller) and `guest-broker.ts` (a
 * member of an Apache Kafka cluster). What differs comes in through {@link Foundation}. The order
 * of the metadata publishers matters: the mirror gate first, so that a topic created with
 * membership is never writable for a moment.
 */
import type { BufferPool } from '../base/buffer-pool.ts';
import { GROUP_METADATA_TOPIC, GroupCoordinator } from '../coordinator/group-coordinator.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { MetadataLoader, type MetadataPublisher } from '../metadata/metadata-loader.ts';
import { scramCode } from '../metadata/security-image.ts';
import { EMBEDDED_ROLE, type MirrorRole } from '../mirror/driver-context.ts';
import { MirrorCoordinator, type MirrorRows } from '../mirror/mirror-coordinator.ts';
import { MirrorManager } from '../mirror/mirror-manager.ts';
import { MirrorOperations } from '../mirror/operations.ts';
import type { MirrorPartitionStates } from '../mirror/partition-states.ts';
import type { MirrorBrokerSettings } from '../mirror/settings.ts';
import { MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import { securityProtocols } from '../protocol/connection-security.ts';
import type { ScramCredential } from '../protocol/scram.ts';
import { FetchSessions } from '../replication/fetch-sessions.ts';
import type { FollowOptions } from '../replication/follower-manager.ts';
import { EVERYONE_MAY_JOIN, type IsrPolicy } from '../replication/isr-policy.ts';
import { ReplicaManager } from '../replication/replica-manager.ts';
import { DEFAULT_LOG_CONFIG } from '../storage/log-config.ts';
import { LogManager } from '../storage/log-manager.ts';
import type { ApiTable, BrokerServices, GuestServices, ListedApi } from './api-handler.ts';
import { listedApis } from './api-table.ts';
import {
  type BrokerConfig,
  type ListenerAddress,
  parseListener,
  parseProtocolMap,
} from './broker-config.ts';
import type { RegisteredListener } from './broker-registration.ts';
import { parseList } from './config-definition.ts';
import { PartitionCoordinatorLog } from './coordinator-log.ts';
import { dynamicBrokerConfig } from './dynamic-config.ts';
import { type GroupOffsetParts, type GroupOffsetPorts, groupOffsetParts } from './group-offsets.ts';
import { groupConfigOf } from './group-settings.ts';
import { InternalTopics } from './internal-topics.ts';
import { deletedTopicsPublisher, groupLeadership } from './leadership.ts';
import { listenerProtocol, listenerSecurity } from './listener-security.ts';
import { logConfigOf } from './log-config.ts';
import { ProducerIds } from './producer-ids.ts';
import { RequestHandler } from './request-handler.ts';
import { SocketServer } from './socket-server.ts';

/** What a guest of an Apache Kafka cluster does in its own way. */
export interface GuestVariant {
  /** The mirror states, kept in a topic of the cluster (G22). */
  readonly rows: MirrorRows;
  readonly role: MirrorRole;
  readonly isrPolicy: IsrPolicy;
  /** Takes CreateMirror, AddTopicsToMirror, RemoveTopicsFromMirror (G12) and mirrors' settings. */
  readonly mirrorAdmin: Pick<ControllerPort, 'forward'>;
  /** Makes `__mirror_state` on the cluster's own brokers; 0 or an error code. */
  readonly ensureStateTopic: () => Promise<number>;
  readonly listedApis: readonly ListedApi[];
  readonly services: Omit<GuestServices, 'mirrorAdmin'>;
  /** Whether it takes a replica, given who leads it (G8). */
  readonly holds: (topic: string, leaderId: number) => boolean;
  /** What it follows when others lead (G23, G29). */
  readonly following: FollowOptions;
  /** What a partition that nobody here drives waits for (G28). */
  readonly waitOf: (topic: string, partition: number) => string | undefined;
  /** Told of the metadata after all others. */
  readonly publishers: readonly MetadataPublisher[];
  /** Where group offsets are copied to, and who runs the job (Y6, G23). */
  readonly groupOffsets?: GroupOffsetPorts;
}

/** What the parts stand on; made by a composition root. */
export interface Foundation {
  readonly runtime: Runtime;
  readonly config: BrokerConfig;
  readonly brokerId: number;
  readonly clusterId: string;
  readonly logManager: LogManager;
  readonly states: MirrorPartitionStates;
  readonly controller: ControllerPort;
  readonly brokerEpoch: () => number;
  readonly guest?: GuestVariant;
}

/** The parts that serve requests. */
export interface Parts {
  readonly services: BrokerServices;
  readonly mirrorManager: MirrorManager;
  readonly groupOffsets: GroupOffsetParts;
}

/** Settings in force; the dynamic one is read anew whenever it is used. */
function mirrorSettings(
  config: BrokerConfig,
  brokerId: number,
  image: () => MetadataImage,
): MirrorBrokerSettings {
  const interval = 'mirror.metadata.refresh.interval.ms';
  return {
    stateTopicPartitions: config.number('mirror.topic.num.partitions'),
    stateTopicReplicationFactor: config.number('mirror.topic.replication.factor'),
    numReplicaFetchers: config.number('mirror.num.replica.fetchers'),
    get metadataRefreshIntervalMs() {
      const dynamic = dynamicBrokerConfig(image(), brokerId, interval);
      return dynamic === undefined ? config.number(interval) : Number(dynamic);
    },
    fetchWaitMaxMs: config.number('mirror.fetch.wait.max.ms'),
    fetchMinBytes: config.number('mirror.fetch.min.bytes'),
    fetchMaxBytes: config.number('mirror.fetch.max.bytes'),
    fetchResponseMaxBytes: config.number('mirror.fetch.response.max.bytes'),
  };
}

function groupCoordinator(
  runtime: Runtime,
  config: BrokerConfig,
  log: PartitionCoordinatorLog,
  image: () => MetadataImage,
): GroupCoordinator {
  return new GroupCoordinator(runtime, {
    config: groupConfigOf(config),
    log,
    topics: {
      idOf: (name) => image().topicsByName.get(name)?.id,
      nameOf: (id) => image().topicsById.get(id)?.name,
      exists: (name, partition) =>
        image().topicsByName.get(name)?.partitions.has(partition) ?? false,
    },
    partitionCount: () =>
      image().topicsByName.get(GROUP_METADATA_TOPIC)?.partitions.size ??
      config.number('offsets.topic.num.partitions'),
  });
}

function replicaManager(
  { runtime, config, brokerId, logManager, controller, states, guest }: Foundation,
  groups: GroupCoordinator,
  mirrorManager: MirrorManager,
  image: () => MetadataImage,
): ReplicaManager {
  return new ReplicaManager(runtime, {
    brokerId,
    logManager,
    controller,
    mirrorGate: states,
    topicConfig: (topic) => logConfigOf(topic, image(), config),
    // A stray partition of a guest's makes it no coordinator (G8).
    onLeadership: guest === undefined ? [groupLeadership(groups), mirrorManager] : [mirrorManager],
    isrPolicy: guest?.isrPolicy ?? EVERYONE_MAY_JOIN,
    ...(guest === undefined ? {} : { holds: guest.holds, following: guest.following }),
    replicaLagTimeMaxMs: config.number('replica.lag.time.max.ms'),
  });
}

/** Follows the metadata; publishers are those of the parts built below, in order. */
export function buildParts(foundation: Foundation): Parts {
  const { runtime, config, brokerId, clusterId, controller, logManager, states, guest } =
    foundation;
  const image = (): MetadataImage => metadata.image;
  const coordinatorLog = new PartitionCoordinatorLog(runtime, () => replicas);
  const coordinator = guest?.rows ?? new MirrorCoordinator(runtime, { log: coordinatorLog, image });
  const mirrorManager = new MirrorManager(runtime, {
    brokerId,
    clusterId,
    states,
    coordinator,
    controller,
    limits: mirrorSettings(config, brokerId, image),
    role: guest?.role ?? EMBEDDED_ROLE,
    lowerGroupOffsets: (...cut) => groupOffsets.lower(...cut),
  });
  const groups = groupCoordinator(runtime, config, coordinatorLog, image);
  const groupOffsets = groupOffsetParts(runtime, {
    brokerId,
    image,
    groups,
    internalTopics: () => internalTopics,
    manager: mirrorManager,
    ports: guest?.groupOffsets,
  });
  const replicas = replicaManager(foundation, groups, mirrorManager, image);
  const deletions = deletedTopicsPublisher(groups);
  const own = [states, replicas, mirrorManager, groupOffsets.sync, deletions];
  const publishers = [...own, ...(guest?.publishers ?? [])];
  const metadata = new MetadataLoader(clusterId, publishers);
  const internalTopics = new InternalTopics(config, controller, metadata);
  const services: BrokerServices = {
    runtime,
    config,
    brokerId,
    clusterId,
    metadata,
    controller,
    replicas,
    fetchSessions: new FetchSessions(runtime, replicas.fetchSource),
    groups,
    mirrors: new MirrorOperations(runtime, {
      brokerId,
      clusterId,
      controller: guest?.mirrorAdmin ?? controller,
      image,
      manager: mirrorManager,
      coordinator,
      offlinePartitions: () => logManager.offline(),
      ensureStateTopic:
        guest?.ensureStateTopic ?? (() => internalTopics.ensure(MIRROR_STATE_TOPIC)),
      topicIdentity: guest?.role.topicIdentity ?? 'same',
      waitOf: guest?.waitOf,
    }),
    producerIds: new ProducerIds(controller, () => ({
      id: brokerId,
      epoch: foundation.brokerEpoch(),
    })),
    internalTopics,
    listedApis: guest?.listedApis ?? listedApis,
    ...(guest === undefined
      ? {}
      : { guest: { ...guest.services, mirrorAdmin: guest.mirrorAdmin } }),
  };
  return { services, mirrorManager, groupOffsets };
}

/** The listening side; requests wait until `started`. */
export function socketServer(
  runtime: Runtime,
  config: BrokerConfig,
  services: BrokerServices,
  table: ApiTable,
  buffers: BufferPool,
  started: Promise<void>,
): SocketServer {
  const handler = new RequestHandler(services, table, buffers);
  const scramCredential = (mechanism: string, user: string): ScramCredential | undefined =>
    services.metadata.image.security.scramCredentials.get(user)?.get(scramCode(mechanism));
  let isStarted = false;
  const whenStarted = started.then(() => {
    isStarted = true;
  });
  return new SocketServer(runtime, {
    maxRequestBytes: config.number('socket.request.max.bytes'),
    maxIdleMs: config.number('connections.max.idle.ms'),
    handleFrame: (frame, context) =>
      isStarted
        ? handler.handleFrame(frame, context)
        : whenStarted.then(() => handler.handleFrame(frame, context)),
    securityOf: (listener) => ({
      runtime,
      security: listenerSecurity(config, runtime.disk, listener),
      scramCredential,
    }),
    buffers,
    connectionClosed: () => {},
  });
}

function protocolMap(config: BrokerConfig): ReadonlyMap<string, string> {
  return parseProtocolMap(config.text('listener.security.protocol.map'));
}

/** The addresses to listen on, by listener name. */
export function listeners(config: BrokerConfig): ListenerAddress[] {
  const protocols = protocolMap(config);
  return parseList(config.text('listeners')).map((text) => parseListener(text, protocols));
}

/** The one address to listen on. */
export function onlyListener(config: BrokerConfig): ListenerAddress {
  const [address, second] = listeners(config);
  if (address === undefined || second !== undefined) {
    throw new Error('listeners must name exactly one address so far.');
  }
  return address;
}

/** The logs, which leave alone what is a copy of a source's (rules F5, F8). */
export function openLogs(
  runtime: Runtime,
  config: BrokerConfig,
  states: MirrorPartitionStates,
): LogManager {
  const brokerId = config.number('node.id');
  return new LogManager(runtime, {
    logDir: config.text('log.dirs'),
    defaultConfig: DEFAULT_LOG_CONFIG,
    producerIdExpirationMs: config.number('producer.id.expiration.ms'),
    cleaner: {
      enable: config.boolean('log.cleaner.enable'),
      backoffMs: config.number('log.cleaner.backoff.ms'),
      dedupeBufferBytes: config.number('log.cleaner.dedupe.buffer.size'),
      ioMaxBytesPerSecond: config.number('log.cleaner.io.max.bytes.per.second'),
    },
    isMirrored: ({ topicId, topicPartition: { topic, partition } }) =>
      topicId !== undefined && states.isCopy(topicId, topic, partition, brokerId),
  });
}

/** The addresses that others are told, by listener name; a bound wildcard address is none. */
export function advertisedListeners(
  config: BrokerConfig,
  bound: readonly ListenerAddress[],
): RegisteredListener[] {
  const protocols = protocolMap(config);
  const texts = parseList(config.explicit('advertised.listeners') ?? '');
  const advertised = texts.map((text) => parseListener(text, protocols));
  return bound.map((address) => {
    const told = advertised.find(({ name }) => name === address.name) ?? address;
    if (told.host === '') throw new Error(`advertised.listeners: ${told.name} names no host.`);
    return { ...told, securityProtocol: securityProtocols[listenerProtocol(config, told.name)] };
  });
}
