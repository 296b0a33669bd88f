/**
 * The composition root: builds a broker with its embedded controller from a runtime and settings.
 *
 * Used by the command line, by quickstart twice in one process, and by the simulator. Order at the
 * start: lock and identity of the data directory, logs, controller, parts of the broker, listener
 * (held), registration, the first image, heartbeats, then requests. Stopping goes the other way and
 * ends with a flush and the clean-shutdown marker. Nothing else constructs these parts.
 */
import type { BufferPool } from '../base/buffer-pool.ts';
import { randomUuid, type Uuid } from '../base/uuid.ts';
import { GROUP_METADATA_TOPIC, GroupCoordinator } from '../coordinator/group-coordinator.ts';
import type { Runtime } from '../io/runtime.ts';
import { EmbeddedController } from '../metadata/embedded-controller.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { MetadataLoader } from '../metadata/metadata-loader.ts';
import { openMetadataLog } from '../metadata/metadata-log.ts';
import { MirrorCoordinator } from '../mirror/mirror-coordinator.ts';
import { MirrorManager } from '../mirror/mirror-manager.ts';
import { MirrorOperations } from '../mirror/operations.ts';
import { MirrorPartitionStates } from '../mirror/partition-states.ts';
import type { MirrorBrokerSettings } from '../mirror/settings.ts';
import { MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import { FetchSessions } from '../replication/fetch-sessions.ts';
import { ReplicaManager } from '../replication/replica-manager.ts';
import { DEFAULT_LOG_CONFIG } from '../storage/log-config.ts';
import { LogManager } from '../storage/log-manager.ts';
import { readMetaProperties, writeMetaProperties } from '../storage/meta-properties.ts';
import type { BrokerServices } from './api-handler.ts';
import { apiTable, listedApis } from './api-table.ts';
import { type BrokerConfig, type ListenerAddress, parseListener } from './broker-config.ts';
import { BrokerRegistration } from './broker-registration.ts';
import { parseList } from './config-definition.ts';
import { configValidators } from './config-validators.ts';
import { PartitionCoordinatorLog } from './coordinator-log.ts';
import { dynamicBrokerConfig } from './dynamic-config.ts';
import { type GroupOffsetParts, groupOffsetParts } from './group-offsets.ts';
import { groupConfigOf } from './group-settings.ts';
import { InternalTopics } from './internal-topics.ts';
import { deletedTopicsPublisher, groupLeadership } from './leadership.ts';
import { logConfigOf } from './log-config.ts';
import { ProducerIds } from './producer-ids.ts';
import { RequestHandler } from './request-handler.ts';
import { SocketServer } from './socket-server.ts';

/** How a broker is started. */
export interface BrokerOptions {
  readonly config: BrokerConfig;
  /** The broker can no longer keep its promises (the metadata log failed): stop the process. */
  readonly onFatal?: (error: Error) => void;
}

/** A running broker. */
export interface Broker {
  readonly clusterId: string;
  readonly brokerId: number;
  /** Where clients connect. */
  readonly host: string;
  readonly port: number;
  /** The parts, for the simulator's invariants and for tests. */
  readonly services: BrokerServices;
  /** Stops in good order; resolves when everything is durable and closed. */
  close(): Promise<void>;
}

interface Identity {
  readonly clusterId: string;
  readonly directoryId: Uuid;
}

/** Reads who this data directory belongs to, or makes it the first broker of a new cluster. */
function identify(runtime: Runtime, logDir: string, nodeId: number): Identity {
  const { disk, random } = runtime;
  const newId = (): Uuid => randomUuid((length) => random.bytes(length));
  const known = readMetaProperties(disk, logDir);
  if (known !== undefined && known.nodeId !== nodeId) {
    throw new Error(
      `${logDir} belongs to node ${known.nodeId}, not to node ${nodeId}: ` +
        'set node.id or use another data directory',
    );
  }
  const clusterId = known?.clusterId ?? newId();
  const directoryId = known?.directoryId ?? newId();
  if (known?.directoryId === undefined) {
    writeMetaProperties(disk, logDir, { clusterId, nodeId, directoryId });
  }
  return { clusterId, directoryId };
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

/** The parts that serve requests, wired to each other. */
interface Parts {
  readonly services: BrokerServices;
  readonly mirrorManager: MirrorManager;
  readonly groupOffsets: GroupOffsetParts;
}

interface Foundation extends Identity {
  readonly runtime: Runtime;
  readonly config: BrokerConfig;
  readonly brokerId: number;
  readonly logManager: LogManager;
  readonly states: MirrorPartitionStates;
  readonly controller: EmbeddedController;
  readonly brokerEpoch: () => number;
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

/** Follows the metadata; publishers are those of the parts built below, in order. */
function build(foundation: Foundation): Parts {
  const { runtime, config, brokerId, clusterId, controller, logManager, states } = foundation;
  const coordinatorLog = new PartitionCoordinatorLog(runtime, () => replicas);
  const mirrorCoordinator = new MirrorCoordinator(runtime, {
    log: coordinatorLog,
    image: () => metadata.image,
  });
  const mirrorManager = new MirrorManager(runtime, {
    brokerId,
    clusterId,
    states,
    coordinator: mirrorCoordinator,
    controller,
    limits: mirrorSettings(config, brokerId, () => metadata.image),
    lowerGroupOffsets: (partition, offset) => groupOffsets.lower(partition, offset),
  });
  const image = (): MetadataImage => metadata.image;
  const groups = groupCoordinator(runtime, config, coordinatorLog, image);
  const groupOffsets = groupOffsetParts(runtime, {
    brokerId,
    image,
    groups,
    internalTopics: () => internalTopics,
    manager: mirrorManager,
  });
  const replicas = new ReplicaManager(runtime, {
    brokerId,
    logManager,
    controller,
    mirrorGate: states,
    topicConfig: (topic) => logConfigOf(topic, metadata.image, config),
    onLeadership: [groupLeadership(groups), mirrorManager],
    replicaLagTimeMaxMs: config.number('replica.lag.time.max.ms'),
  });
  const deletions = deletedTopicsPublisher(groups);
  const publishers = [states, replicas, mirrorManager, groupOffsets.sync, deletions];
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
      controller,
      image: () => metadata.image,
      manager: mirrorManager,
      coordinator: mirrorCoordinator,
      offlinePartitions: () => logManager.offline(),
      ensureStateTopic: () => internalTopics.ensure(MIRROR_STATE_TOPIC),
    }),
    producerIds: new ProducerIds(controller, () => ({
      id: brokerId,
      epoch: foundation.brokerEpoch(),
    })),
    internalTopics,
    listedApis,
  };
  return { services, mirrorManager, groupOffsets };
}

function socketServer(
  runtime: Runtime,
  config: BrokerConfig,
  services: BrokerServices,
  buffers: BufferPool,
  started: Promise<void>,
): SocketServer {
  const handler = new RequestHandler(services, apiTable, buffers);
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
    buffers,
    connectionClosed: () => {},
  });
}

/** The one address to listen on. */
function onlyListener(config: BrokerConfig): ListenerAddress {
  const [address, second] = parseList(config.text('listeners')).map(parseListener);
  if (address === undefined || second !== undefined) {
    throw new Error('listeners must name exactly one address so far.');
  }
  return address;
}

/** The logs, which leave alone what is a copy of a source's (rules F5, F8). */
function openLogs(
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

/** Opens what is on disk and starts the controller over it. */
async function openFoundation(
  runtime: Runtime,
  { config, onFatal }: BrokerOptions,
  { logManager, states }: Pick<Foundation, 'logManager' | 'states'>,
): Promise<Omit<Foundation, 'brokerEpoch'>> {
  const brokerId = config.number('node.id');
  logManager.load(() => DEFAULT_LOG_CONFIG);
  const identity = identify(runtime, config.text('log.dirs'), brokerId);
  const controller = await EmbeddedController.open(runtime, {
    nodeId: brokerId,
    clusterId: identity.clusterId,
    localBrokerId: brokerId,
    log: openMetadataLog(logManager),
    validators: configValidators,
    defaultPartitions: config.number('num.partitions'),
    defaultReplicationFactor: config.number('default.replication.factor'),
    onFailure: (error) => onFatal?.(error),
  });
  return { runtime, config, brokerId, logManager, states, controller, ...identity };
}

/** The address that clients are told; a bound wildcard address is not one. */
function advertisedListener(config: BrokerConfig, bound: ListenerAddress): ListenerAddress {
  const advertised = config.explicit('advertised.listeners');
  if (advertised === undefined) return bound;
  const listener = parseListener(advertised);
  if (listener.host === '') throw new Error(`advertised.listeners ${advertised} names no host.`);
  return listener;
}

/** Listens, joins the cluster, and serves once the present metadata has been applied. */
async function serve(foundation: Omit<Foundation, 'brokerEpoch'>): Promise<Broker> {
  const { runtime, config, brokerId, clusterId, controller, logManager } = foundation;
  const { services, mirrorManager, groupOffsets } = build({
    ...foundation,
    brokerEpoch: () => registration.epoch,
  });
  const { metadata, replicas, groups, fetchSessions } = services;
  const { promise: started, resolve: start } = Promise.withResolvers<void>();
  const sockets = socketServer(runtime, config, services, logManager.buffers, started);
  const bound = await sockets.listen(onlyListener(config));
  const registration = new BrokerRegistration(runtime, controller, {
    brokerId,
    clusterId,
    incarnationId: randomUuid((length) => runtime.random.bytes(length)),
    directoryId: foundation.directoryId,
    rack: config.value('broker.rack'),
    listeners: [advertisedListener(config, bound)],
    appliedOffset: () => metadata.image.offset,
  });
  const stop = async (): Promise<void> => {
    await sockets.close();
    groupOffsets.sync.close();
    mirrorManager.close();
    await registration.leave();
    fetchSessions.close();
    groups.close();
    replicas.close();
  };
  try {
    await registration.register();
    await metadata.start(controller);
    await registration.unfence();
  } catch (error) {
    await stop();
    throw error;
  }
  logManager.start();
  start();
  const close = async (): Promise<void> => {
    await stop();
    await controller.close();
    await logManager.close();
  };
  return { clusterId, brokerId, host: bound.host, port: bound.port, services, close };
}

/** Starts a broker; rejects with an Error for people when it cannot start. */
export async function startBroker(runtime: Runtime, options: BrokerOptions): Promise<Broker> {
  const { config } = options;
  const states = new MirrorPartitionStates();
  const logManager = openLogs(runtime, config, states);
  const foundation = await openFoundation(runtime, options, { logManager, states });
  try {
    return await serve(foundation);
  } catch (error) {
    await foundation.controller.close();
    await logManager.close();
    throw error;
  }
}
