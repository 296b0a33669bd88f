/**
 * The composition root of a broker with its embedded controller, from a runtime and settings.
 *
 * Used by the command line, by quickstart twice in one process, and by the simulator. Order at the
 * start: lock and identity of the data directory, logs, controller, parts of the broker, listener
 * (held), registration, the first image, heartbeats, then requests. Stopping goes the other way and
 * ends with a flush and the clean-shutdown marker. The parts are wired in `broker-parts.ts`.
 */
import { randomUuid, type Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { EmbeddedController } from '../metadata/embedded-controller.ts';
import { openMetadataLog } from '../metadata/metadata-log.ts';
import { MirrorPartitionStates } from '../mirror/partition-states.ts';
import { DEFAULT_LOG_CONFIG } from '../storage/log-config.ts';
import { readMetaProperties, writeMetaProperties } from '../storage/meta-properties.ts';
import type { BrokerServices } from './api-handler.ts';
import { apiTable } from './api-table.ts';
import type { BrokerConfig } from './broker-config.ts';
import {
  advertisedListeners,
  buildParts,
  type Foundation,
  onlyListener,
  openLogs,
  socketServer,
} from './broker-parts.ts';
import { BrokerRegistration } from './broker-registration.ts';
import { configValidators } from './config-validators.ts';

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

/** What the embedded case adds to the foundation. */
interface EmbeddedFoundation extends Foundation, Identity {
  readonly controller: EmbeddedController;
}

/** Opens what is on disk and starts the controller over it. */
async function openFoundation(
  runtime: Runtime,
  { config, onFatal }: BrokerOptions,
  { logManager, states }: Pick<EmbeddedFoundation, 'logManager' | 'states'>,
): Promise<Omit<EmbeddedFoundation, 'brokerEpoch'>> {
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

/** Listens, joins the cluster, and serves once the present metadata has been applied. */
async function serve(foundation: Omit<EmbeddedFoundation, 'brokerEpoch'>): Promise<Broker> {
  const { runtime, config, brokerId, clusterId, controller, logManager } = foundation;
  const { services, mirrorManager, groupOffsets } = buildParts({
    ...foundation,
    brokerEpoch: () => registration.epoch,
  });
  const { metadata, replicas, groups, fetchSessions } = services;
  const { promise: started, resolve: start } = Promise.withResolvers<void>();
  const sockets = socketServer(runtime, config, services, apiTable, logManager.buffers, started);
  const bound = await sockets.listen(onlyListener(config));
  const registration = new BrokerRegistration(runtime, controller, {
    brokerId,
    clusterId,
    incarnationId: randomUuid((length) => runtime.random.bytes(length)),
    directoryId: foundation.directoryId,
    rack: config.value('broker.rack'),
    listeners: advertisedListeners(config, [bound]),
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
  if (config.text('authorizer.class.name') !== '') {
    throw new Error('authorizer.class.name: a broker of its own cluster has no ACLs yet.');
  }
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
