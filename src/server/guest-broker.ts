/**
 * The composition root of a guest: this broker as a member of an Apache Kafka cluster.
 *
 * Used by `twinlog guest run`. Order at the start: logs, a first look at the metadata, the checks
 * that the node id is nobody's (G11), the incarnation (G4), the rows of the mirror state (G22),
 * listeners (held), registration, the metadata with the memberships laid over it, and only then is
 * the guest unfenced: it leads nothing before it knows what is mirrored. Stopping goes the other
 * way, with leadership given back first (G6).
 */
import { present } from '../base/assert.ts';
import type { Uuid } from '../base/uuid.ts';
import { ApacheQuestions } from '../guest/apache-questions.ts';
import { ClusterClient } from '../guest/cluster-client.ts';
import { GuestGroupOffsets } from '../guest/group-offsets.ts';
import { apacheBrokers, GUEST_CONFIG, guests, isGuest } from '../guest/guest-brokers.ts';
import { setGuestFlag } from '../guest/guest-flags.ts';
import { type GuestIdentity, GuestIdentityFile, nodeIdProblem } from '../guest/identity.ts';
import { CORDON_HEARTBEAT_VERSION, Cordon } from '../guest/jobs/cordon.ts';
import { Failback } from '../guest/jobs/failback.ts';
import { GuestJobs, PASS_INTERVAL_MS } from '../guest/jobs/guest-jobs.ts';
import type { JobContext } from '../guest/jobs/job-ports.ts';
import { LevelJob } from '../guest/jobs/level-job.ts';
import { GuestMirrorAdmin } from '../guest/jobs/mirror-admin.ts';
import { readSourceConfigs } from '../guest/jobs/source-configs.ts';
import { newMembershipOffset } from '../guest/jobs/topic-additions.ts';
import { TopicRows } from '../guest/jobs/topic-rows.ts';
import { GuestMirrorRole } from '../guest/mirror-role.ts';
import { MirrorStateStart } from '../guest/state/state-start.ts';
import { GuestStateStore } from '../guest/state/state-store.ts';
import type { Runtime } from '../io/runtime.ts';
import { featureProblem, guestSupportedFeatures } from '../metadata/features.ts';
import type { FeatureRange, MetadataImage } from '../metadata/image.ts';
import { RemoteController } from '../metadata/quorum/remote-controller.ts';
import { MirrorFailure } from '../mirror/causes.ts';
import { MirrorPartitionStates } from '../mirror/partition-states.ts';
import { type HostPort, parseHostPort } from '../mirror/settings.ts';
import type { SourceCluster } from '../mirror/source-cluster.ts';
import type { BrokerAddress } from '../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import type { ApiRange } from '../protocol/kafka-connection.ts';
import {
  DescribeQuorumRequest,
  DescribeQuorumResponse,
} from '../protocol/messages/55-describe-quorum.ts';
import { BrokerHeartbeatRequest } from '../protocol/messages/63-broker-heartbeat.ts';
import type { FollowFrom } from '../replication/follower-begin.ts';
import { DEFAULT_LOG_CONFIG } from '../storage/log-config.ts';
import type { LogManager } from '../storage/log-manager.ts';
import { guardedTable } from './access-guard.ts';
import { configuredAuthorizer } from './authorizer.ts';
import type { Broker, BrokerOptions } from './broker.ts';
import type { BrokerConfig, ListenerAddress } from './broker-config.ts';
import {
  advertisedListeners,
  buildParts,
  type GuestVariant,
  listeners,
  openLogs,
  type Parts,
  socketServer,
} from './broker-parts.ts';
import {
  BrokerRegistration,
  DUPLICATE_PATIENCE_MS,
  type RegisteredListener,
} from './broker-registration.ts';
import { parseList } from './config-definition.ts';
import { configValidators } from './config-validators.ts';
import { guestApisWith, guestApiTable } from './guest-api-table.ts';
import { guestGuards } from './guest-guards.ts';
import {
  controllerSecurity,
  interBrokerListener,
  interBrokerSecurity,
} from './listener-security.ts';

const METADATA_TOPIC = '__cluster_metadata';

/** How a guest is started. */
export interface GuestOptions extends BrokerOptions {
  /** What it tells the controller that it supports; by default all that it does. */
  readonly features?: readonly FeatureRange[];
}

/** What is known before the guest registers. */
interface GuestFoundation {
  readonly runtime: Runtime;
  readonly config: BrokerConfig;
  readonly brokerId: number;
  readonly clusterId: string;
  readonly identity: GuestIdentity;
  readonly identityFile: GuestIdentityFile;
  readonly logManager: LogManager;
  readonly states: MirrorPartitionStates;
  readonly controller: RemoteController;
  readonly controllerApis: ReadonlyMap<number, ApiRange>;
  readonly features: readonly FeatureRange[];
  /** How connections to the brokers of the cluster are secured; undefined: not at all. */
  readonly security: ConnectionSecurity | undefined;
  /** As read before the registration. */
  readonly firstImage: MetadataImage;
}

/** Where a broker is reached by others, by the listener that brokers use. */
function addressOf(
  image: MetadataImage,
  brokerId: number,
  listenerName: string,
): BrokerAddress | undefined {
  const listeners = image.brokers.get(brokerId)?.listeners ?? [];
  const listener = listeners.find(({ name }) => name === listenerName);
  return listener && { host: listener.host, port: listener.port };
}

/** Where the brokers that are no guests are reached. */
function apacheAddresses(image: MetadataImage, listenerName: string): BrokerAddress[] {
  return apacheBrokers(image).flatMap(({ id }) => addressOf(image, id, listenerName) ?? []);
}

/** The parts of a guest, and those that only a guest has. */
class GuestAssembly {
  readonly parts: Parts;
  readonly #foundation: GuestFoundation;
  /** The listener at which brokers of the cluster reach each other. */
  readonly #interBroker: string;
  readonly #client: ClusterClient;
  readonly #store: GuestStateStore;
  readonly #stateStart: MirrorStateStart;
  readonly #jobs: GuestJobs;
  /** Looks at all partitions, however many rows changed. */
  readonly #following: LevelJob;
  readonly #cordon: Cordon;
  readonly #groupOffsets: GuestGroupOffsets;
  #registration: BrokerRegistration | undefined;

  constructor(foundation: GuestFoundation) {
    this.#foundation = foundation;
    const { runtime, config, brokerId, controller, security } = foundation;
    this.#interBroker = interBrokerListener(config);
    const image = (): MetadataImage => this.image;
    const brokers = (): BrokerAddress[] => apacheAddresses(image(), this.#interBroker);
    this.#client = new ClusterClient(runtime, {
      clientId: `twinlog-guest-${brokerId}`,
      security,
      bootstrap: brokers,
    });
    this.#store = new GuestStateStore(runtime, {
      nodeId: brokerId,
      brokers,
      security,
      otherGuests: () => guests(image()).flatMap(({ id }) => (id === brokerId ? [] : [id])),
      image,
      mayOwn: () => this.#isMember(),
      onOverlay: (records) => this.parts.services.metadata.overlay(records),
      onChange: () => this.#rowsChanged(),
    });
    this.#stateStart = new MirrorStateStart(runtime, {
      store: this.#store,
      controller,
      wish: {
        partitions: config.number('mirror.topic.num.partitions'),
        replicationFactor: config.number('mirror.topic.replication.factor'),
      },
    });
    const store = this.#store;
    const topicRows = new TopicRows(store);
    const context: JobContext = { runtime, brokerId, controller, store, topicRows, image };
    this.#jobs = new GuestJobs(runtime, {
      context,
      lastFetchMs: (topicId, partition, id) =>
        this.parts.services.replicas.partitionById(topicId, partition)?.lastFetchMs(id),
      reviewIsr: () => this.parts.services.replicas.reviewIsr(),
      whileUncordoned: (action) => this.#cordon.whileLifted(action),
      reviewCordon: () => this.#cordon.pass(),
    });
    this.#following = new LevelJob(runtime, {
      intervalMs: PASS_INTERVAL_MS,
      pass: async () => this.parts.services.replicas.reviewFollowing(),
    });
    this.#groupOffsets = new GuestGroupOffsets(runtime, {
      brokerId,
      image,
      store,
      brokers,
      security,
    });
    const { directoryId } = foundation.identity;
    this.#cordon = new Cordon(runtime, {
      brokerId,
      controller,
      image,
      logDirs: [directoryId],
      heartbeatVersion: () => this.#heartbeatVersion,
      heartbeatNow: () => this.#heartbeatNow(),
    });
    this.parts = buildParts({
      ...foundation,
      brokerEpoch: () => this.#registration?.epoch ?? -1,
      guest: this.#variant(context),
    });
  }

  /** As published; before the first one, as it was read. */
  get image(): MetadataImage {
    const { image } = this.parts.services.metadata;
    return image.offset < 0 ? this.#foundation.firstImage : image;
  }

  /** Undefined before `join`, when nothing can have asked for it. */
  get registration(): BrokerRegistration {
    return present(this.#registration, 'registration');
  }

  get #heartbeatVersion(): number {
    const range = this.#foundation.controllerApis.get(BrokerHeartbeatRequest.apiKey ?? -1);
    return Math.min(range?.maxVersion ?? 0, CORDON_HEARTBEAT_VERSION);
  }

  #heartbeatNow(): void {
    this.registration.sendHeartbeat().catch((error: unknown) => {
      // The next one comes by itself.
      this.#foundation.runtime.logger.warn('heartbeat failed', { error: String(error) });
    });
  }

  #variant(context: JobContext): GuestVariant {
    const { runtime, config, brokerId, clusterId, controller, controllerApis } = this.#foundation;
    const store = this.#store;
    const jobs = this.#jobs;
    const admin = new GuestMirrorAdmin({
      context,
      ownership: jobs.ownership,
      validators: configValidators,
      sourceConfigs: (mirror, topic) => readSourceConfigs(this.#source(mirror), topic),
      replicationFactor: () => undefined,
      whileUncordoned: (action) => this.#cordon.whileLifted(action),
      takeBack: (wish) => this.#failback(context).take(wish),
    });
    const questions = new ApacheQuestions(this.#client, context.image);
    const apis = [...controllerApis].map(([apiKey, range]) => ({ apiKey, ...range }));
    return {
      rows: store,
      role: new GuestMirrorRole(runtime, { store, clusterId }),
      isrPolicy: jobs.isrRule,
      // A stray that it leads can only leave once others have caught up with it here.
      holds: (topic, leaderId) =>
        leaderId === brokerId || this.image.membership(topic) !== undefined,
      following: {
        followFrom: (topicId, partition) => this.#followFrom(topicId, partition),
        listenerName: this.#interBroker,
        security: this.#foundation.security,
      },
      waitOf: (topic, partition) => jobs.waitOf(topic, partition),
      publishers: [this.#stateStart, jobs],
      mirrorAdmin: { forward: (apiKey, _version, request) => admin.forward(apiKey, request) },
      ensureStateTopic: () => this.#stateStart.ensure(),
      groupOffsets: this.#groupOffsets,
      listedApis: guestApisWith(apis),
      services: {
        supportedFeatures: this.#foundation.features,
        authorizer: configuredAuthorizer(config, () => this.image.security.acls),
        askForTopics: (names) => questions.askForTopics(names),
        askForCoordinator: (keyType, key) => questions.askForCoordinator(keyType, key),
        askController: (request, response, value) => controller.send(request, response, value),
      },
    };
  }

  #rowsChanged(): void {
    this.#jobs.rowsChanged();
    // Another guest may have told from where a partition is followed.
    this.#following.notice();
  }

  /** Partitions of mirrors, and of topics that are leaving one while a guest still leads them. */
  #followFrom(topicId: Uuid, partition: number): FollowFrom | undefined {
    const topic = this.image.topicsById.get(topicId);
    const row = topic && this.#store.topic(topic.name);
    if (topic === undefined || row?.topicId !== topicId) return undefined;
    const leader = topic.partitions.get(partition)?.leader ?? -1;
    if (row.removed && !isGuest(this.image, leader)) return undefined;
    return row.takeoverOffsets?.[partition] ?? 'logStart';
  }

  #failback(context: JobContext): Failback {
    const { runtime, clusterId } = this.#foundation;
    return new Failback(runtime, {
      context,
      clusterId,
      source: (mirror) => this.#source(mirror),
      addressOf: (brokerId) => addressOf(this.image, brokerId, this.#interBroker),
      security: this.#foundation.security,
      membershipOffset: (previous) => newMembershipOffset(this.image, previous),
    });
  }

  #source(mirror: string): SourceCluster {
    const open = this.parts.mirrorManager.mirror(mirror);
    if (open !== undefined) return open.source;
    throw new MirrorFailure('DESTINATION_BUSY', `mirror ${mirror} has no settings`);
  }

  #register(advertised: readonly RegisteredListener[]): BrokerRegistration {
    const { runtime, config, brokerId, clusterId, controller } = this.#foundation;
    const { features, identity, identityFile } = this.#foundation;
    return new BrokerRegistration(runtime, controller, {
      brokerId,
      clusterId,
      incarnationId: identity.incarnationId,
      directoryId: identity.directoryId,
      rack: config.value('broker.rack'),
      listeners: advertised,
      appliedOffset: () => this.parts.services.metadata.image.offset,
      features,
      previousBrokerEpoch: identity.brokerEpoch,
      cordonedLogDirs: () =>
        this.#heartbeatVersion < CORDON_HEARTBEAT_VERSION ? null : this.#cordon.cordonedLogDirs(),
      duplicatePatienceMs: DUPLICATE_PATIENCE_MS,
      heartbeatIntervalMs: config.number('broker.heartbeat.interval.ms'),
      onRegistered: (brokerEpoch) => identityFile.registered(brokerEpoch),
    });
  }

  /** Registers under these addresses, reads the present, and becomes a live member. */
  async join(advertised: readonly RegisteredListener[]): Promise<void> {
    const { controller, firstImage } = this.#foundation;
    this.#registration = this.#register(advertised);
    // Rows first: what the metadata says is read with the memberships on it.
    await this.#stateStart.begin(firstImage);
    await this.registration.register();
    // Before the metadata says what is led: nothing is added under a leader epoch of before.
    await this.registration.fence();
    await this.parts.services.metadata.start(controller);
    await this.#sayGuest();
    await this.registration.unfence();
    this.#jobs.start();
    this.#following.start();
  }

  /** Keeps who is a guest where every guest reads it (`guest-brokers.ts`). */
  async #sayGuest(): Promise<void> {
    const { brokerId, controller } = this.#foundation;
    if (isGuest(this.parts.services.metadata.image, brokerId)) return;
    const problem = await setGuestFlag(controller, [brokerId], GUEST_CONFIG, true);
    if (problem === undefined) return;
    throw new Error(`the controller does not take the broker config ${GUEST_CONFIG}: ${problem}`);
  }

  /** G22: by metadata that was committed after the call, this registration still stands. */
  async #isMember(): Promise<boolean> {
    const { brokerId, controller } = this.#foundation;
    const { metadata } = this.parts.services;
    // Before the first image nothing is led, so nothing is written.
    if (metadata.image.offset < 0) return false;
    const answer = await controller.send(DescribeQuorumRequest, DescribeQuorumResponse, {
      topics: [{ topicName: METADATA_TOPIC, partitions: [{ partitionIndex: 0 }] }],
    });
    const highWatermark = answer.topics[0]?.partitions[0]?.highWatermark;
    await metadata.waitForOffset(Number(present(highWatermark, 'metadata high watermark')) - 1);
    return metadata.image.brokers.get(brokerId)?.epoch === this.registration.epoch;
  }

  /** The parts stop in the order that lets each of them say its last. */
  async close(): Promise<void> {
    const { services, mirrorManager, groupOffsets } = this.parts;
    this.#jobs.close();
    this.#following.close();
    this.#stateStart.close();
    groupOffsets.sync.close();
    await this.#registration?.leave();
    mirrorManager.close();
    services.fetchSessions.close();
    services.groups.close();
    services.replicas.close();
    this.#groupOffsets.close();
    this.#client.close();
  }
}

function controllerAddresses(config: BrokerConfig): HostPort[] {
  const name = 'controller.quorum.bootstrap.servers';
  const addresses = parseList(config.text(name)).map((text) => {
    const address = parseHostPort(text);
    if (address === undefined) throw new Error(`${name}: ${text} is not HOST:PORT.`);
    return address;
  });
  if (addresses.length === 0) throw new Error(`${name} names no controller.`);
  return addresses;
}

/** Looks at the cluster, and settles who this guest is to it. */
async function found(
  runtime: Runtime,
  { config, onFatal, features = guestSupportedFeatures }: GuestOptions,
  bootId: string,
  logs: Pick<GuestFoundation, 'logManager' | 'states'>,
  refence: () => Promise<void>,
): Promise<GuestFoundation> {
  const brokerId = config.number('node.id');
  const identityFile = GuestIdentityFile.open(runtime, config.text('log.dirs'), brokerId);
  const { opened } = identityFile;
  const security = interBrokerSecurity(config, runtime.disk);
  const controller = new RemoteController(runtime, {
    bootstrapControllers: controllerAddresses(config),
    security: controllerSecurity(config, runtime.disk),
    clusterId: opened.clusterId,
    nodeId: brokerId,
    directoryId: opened.directoryId,
    refence,
    schemasOf: () => undefined,
    onFatal: (error) => onFatal?.(error),
  });
  try {
    const clusterId = await controller.clusterId();
    // Before the metadata is read: that of a later level may not be understood.
    const unsupported = featureProblem(await controller.featureLevels(), features);
    if (unsupported !== undefined) throw new Error(unsupported);
    const firstImage = await controller.readImage();
    const controllerApis = await controller.apis();
    const problem = nodeIdProblem(firstImage, controller.controllerIds, opened);
    if (problem !== undefined) throw new Error(problem);
    const identity = identityFile.begin({
      clusterId,
      bootId,
      recoveryCutNothing: logs.logManager.recoveryWasWhole,
      registration: firstImage.brokers.get(brokerId),
    });
    const known = { runtime, config, brokerId, clusterId, identity, identityFile, firstImage };
    return { ...known, ...logs, controller, controllerApis, features, security };
  } catch (error) {
    controller.close();
    throw error;
  }
}

/** Listens, joins, and serves. */
async function serve(foundation: GuestFoundation, assembly: GuestAssembly): Promise<Broker> {
  const { runtime, config, brokerId, clusterId, controller, logManager } = foundation;
  const { services } = assembly.parts;
  const { promise: started, resolve: start } = Promise.withResolvers<void>();
  const authorizer = services.guest?.authorizer;
  const table =
    authorizer === undefined ? guestApiTable : guardedTable(guestApiTable, guestGuards, authorizer);
  const sockets = socketServer(runtime, config, services, table, logManager.buffers, started);
  const stop = async (): Promise<void> => {
    await assembly.close();
    await sockets.close();
  };
  try {
    const bound: ListenerAddress[] = [];
    for (const address of listeners(config)) bound.push(await sockets.listen(address));
    const [first] = bound;
    if (first === undefined) throw new Error('listeners must name an address.');
    await assembly.join(advertisedListeners(config, bound));
    logManager.start();
    start();
    const close = async (): Promise<void> => {
      await stop();
      controller.close();
      await logManager.close();
    };
    return { clusterId, brokerId, host: first.host, port: first.port, services, close };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * Starts a guest; rejects with an Error for people when it cannot start. `bootId` is another one
 * after every start of the machine (G4).
 */
export async function startGuest(
  runtime: Runtime,
  options: GuestOptions,
  bootId: string,
): Promise<Broker> {
  const states = new MirrorPartitionStates();
  const logManager = openLogs(runtime, options.config, states);
  logManager.load(() => DEFAULT_LOG_CONFIG);
  const wiring: { assembly?: GuestAssembly } = {};
  const refence = (): Promise<void> => present(wiring.assembly, 'guest').registration.refence();
  try {
    const foundation = await found(runtime, options, bootId, { logManager, states }, refence);
    try {
      const assembly = new GuestAssembly(foundation);
      wiring.assembly = assembly;
      return await serve(foundation, assembly);
    } catch (error) {
      foundation.controller.close();
      throw error;
    }
  } catch (error) {
    await logManager.close();
    throw error;
  }
}
