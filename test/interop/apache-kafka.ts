/**
 * Starts, stops, kills and restarts real Apache Kafka clusters on free loopback ports.
 *
 * - One broker is a combined broker and controller. More: a controller of its own plus N brokers
 *   (`controller: 'separate'`, the default, so that any broker may die), or the first one combined.
 *   `controllers: N` asks for N controllers of their own (ids from 100), one broker or more.
 * - The default version is TWINLOG_KAFKA's or pom.xml's; each is fetched when first asked for.
 * - Clusters for guests start by `startHost`, which makes all large where TWINLOG_KAFKA is set.
 * - A node keeps its ports and data over `stop`/`kill9` and `start`.
 * - "Started" means that the cluster answered a Metadata request naming all its brokers.
 * - Properties are tuned for tests: small internal topics, quick cleaning and deletion.
 * - With `security` brokers and controllers reach each other by SASL_SSL, or by SSL with
 *   certificates on both sides, and the standard authorizer is on; every broker keeps a PLAINTEXT
 *   listener, where tests are a super user.
 */
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  clusterVersion,
  type JvmMode,
  javaArguments,
  type KafkaVersion,
  namedTarget,
  requireKafkaJars,
} from './kafka-jars.ts';
import {
  freePort,
  logFile,
  type ManagedProcess,
  removeDirectory,
  runOrThrow,
  spawnManaged,
  tail,
  temporaryDirectory,
} from './processes.ts';
import { RawClient } from './raw-client.ts';

const START_BOUND_MS = 120_000;
const STOP_BOUND_MS = 15_000;
const FIRST_CONTROLLER_ID = 100;
/** By the harness's rules topics get three replicas of these, and two in sync at least. */
const LARGE = { brokers: 3, controllers: 3 } as const;
/** The first with cordoned log directories (KIP-1066). */
const CORDONS_FROM = [4, 3] as const;

/** How a secured cluster knows others: PEM files, and users with their passwords. */
export interface ClusterSecurity {
  /** File with the key and the certificates of every node. */
  readonly keystore: string;
  /** File with the certificates to trust. */
  readonly truststore: string;
  /** Default: SASL_SSL. With SSL everybody shows a certificate, that of the nodes says CN=node. */
  readonly protocol?: 'SSL' | 'SASL_SSL';
  /** For PLAIN and SCRAM-SHA-512; `admin` is needed, the nodes are it. Not for SSL. */
  readonly users: Readonly<Record<string, string>>;
}

/** The login module of PLAIN for `user`, which knows all users. */
export function plainJaas(user: string, users: Readonly<Record<string, string>>): string {
  const known = Object.entries(users).map(([name, password]) => `user_${name}="${password}"`);
  const module = 'org.apache.kafka.common.security.plain.PlainLoginModule';
  const own = `username="${user}" password="${users[user]}"`;
  return `${module} required ${own} ${known.join(' ')};`;
}

/** The login module of SCRAM for `user`. */
export function scramJaas(user: string, users: Readonly<Record<string, string>>): string {
  const module = 'org.apache.kafka.common.security.scram.ScramLoginModule';
  return `${module} required username="${user}" password="${users[user]}";`;
}

/** What kind of cluster to start. */
export interface KafkaOptions {
  /** Shows up in log names and errors. */
  readonly name: string;
  readonly brokers?: number;
  readonly controller?: 'separate' | 'first';
  /** How many controllers of their own there are; more than one form a quorum. */
  readonly controllers?: number;
  readonly version?: KafkaVersion;
  /** Feature levels to format with, instead of the version's own. */
  readonly features?: Readonly<Record<string, number>>;
  /** Added to, and overriding, every node's properties. */
  readonly properties?: Readonly<Record<string, string>>;
  /** `benchmark`: Kafka's own JVM flags and a 1 GiB heap. */
  readonly jvm?: JvmMode;
  readonly security?: ClusterSecurity;
  /** A second listener per broker, PROXIED, that advertises this port instead of its own. */
  readonly advertisedProxyPorts?: readonly number[];
}

type Properties = Record<string, string>;

/** What makes a small test cluster quick; a benchmark keeps Kafka's defaults. */
const QUICK: Properties = {
  'group.initial.rebalance.delay.ms': '0',
  'transaction.max.timeout.ms': '3600000',
  'transaction.abort.timed.out.transaction.cleanup.interval.ms': '1000',
  'transaction.remove.expired.transaction.cleanup.interval.ms': '1000',
  'offsets.retention.check.interval.ms': '1000',
  'log.retention.check.interval.ms': '1000',
  'log.initial.task.delay.ms': '500',
  'log.segment.delete.delay.ms': '500',
  'log.cleaner.backoff.ms': '300',
  'log.cleaner.dedupe.buffer.size': '2097152',
  'replica.lag.time.max.ms': '5000',
  'broker.session.timeout.ms': '3000',
  'broker.heartbeat.interval.ms': '500',
  'num.network.threads': '2',
  'num.io.threads': '2',
  'background.threads': '2',
  'message.max.bytes': '8388608',
  'replica.fetch.max.bytes': '8388608',
};

function baseProperties(brokers: number, jvm: JvmMode | undefined): Properties {
  const replication = String(Math.min(brokers, 3));
  const minIsr = brokers >= 3 ? '2' : '1';
  const properties: Properties = {
    'default.replication.factor': replication,
    'min.insync.replicas': minIsr,
    ...(jvm === 'benchmark' ? {} : QUICK),
  };
  for (const topic of ['offsets.topic', 'transaction.state.log', 'share.coordinator.state.topic']) {
    properties[`${topic}.replication.factor`] = replication;
    properties[`${topic}.num.partitions`] = '1';
    if (topic !== 'offsets.topic') properties[`${topic}.min.isr`] = minIsr;
  }
  return properties;
}

/** Whom to trust, and with a key store who one is, in PEM files; nodes and clients take them. */
export function pemStores(truststore: string, keystore?: string): Record<string, string> {
  return {
    'ssl.truststore.type': 'PEM',
    'ssl.truststore.location': truststore,
    ...(keystore === undefined
      ? {}
      : { 'ssl.keystore.type': 'PEM', 'ssl.keystore.location': keystore }),
  };
}

/** Who may do what, and who may do everything. */
export const AUTHORIZER = {
  'authorizer.class.name': 'org.apache.kafka.metadata.authorizer.StandardAuthorizer',
  'super.users': 'User:admin;User:CN=node;User:ANONYMOUS',
} as const;

/** The listener SECURE is for brokers and clients, CONTROLLER for controllers. */
function securityProperties(security: ClusterSecurity): Properties {
  const { keystore, truststore, users } = security;
  const common = { ...pemStores(truststore, keystore), ...AUTHORIZER };
  if (security.protocol === 'SSL') return { ...common, 'ssl.client.auth': 'required' };
  return {
    ...common,
    'sasl.mechanism.inter.broker.protocol': 'PLAIN',
    'sasl.mechanism.controller.protocol': 'PLAIN',
    'listener.name.secure.sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-512',
    'listener.name.secure.plain.sasl.jaas.config': plainJaas('admin', users),
    'listener.name.secure.scram-sha-512.sasl.jaas.config': scramJaas('admin', users),
    'listener.name.controller.sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.controller.plain.sasl.jaas.config': plainJaas('admin', users),
  };
}

interface NodePlan {
  readonly id: number;
  readonly roles: string;
  readonly port: number;
  readonly controllerPort: number;
  /** Of the metadata log's directory; a quorum is formatted with those of all its voters. */
  readonly directoryId: string;
  readonly proxied: { readonly port: number; readonly advertised: number } | undefined;
  /** Of the listener SECURE. */
  readonly securePort: number | undefined;
}

function listenerProperties(
  node: NodePlan,
  quorum: string,
  security: ClusterSecurity | undefined,
): Properties {
  const listeners: string[] = [];
  const advertised: string[] = [];
  const add = (name: string, port: number, advertisedPort = port): void => {
    listeners.push(`${name}://127.0.0.1:${port}`);
    advertised.push(`${name}://127.0.0.1:${advertisedPort}`);
  };
  if (node.roles.includes('broker')) add('PLAINTEXT', node.port);
  if (node.proxied !== undefined) add('PROXIED', node.proxied.port, node.proxied.advertised);
  if (node.securePort !== undefined) add('SECURE', node.securePort);
  if (isController(node)) add('CONTROLLER', node.controllerPort);
  const secured = security?.protocol ?? 'SASL_SSL';
  const map = `PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,SECURE:${secured}`;
  const isSecured = security !== undefined;
  return {
    'process.roles': node.roles,
    'node.id': String(node.id),
    listeners: listeners.join(','),
    'advertised.listeners': advertised.join(','),
    'controller.quorum.bootstrap.servers': quorum,
    'controller.listener.names': 'CONTROLLER',
    'listener.security.protocol.map': `${map},CONTROLLER:${isSecured ? secured : 'PLAINTEXT'}`,
    ...(node.roles.includes('broker')
      ? { 'inter.broker.listener.name': isSecured ? 'SECURE' : 'PLAINTEXT' }
      : {}),
  };
}

/** One process of a cluster. */
export class KafkaNode {
  readonly id: number;
  readonly roles: string;
  readonly host = '127.0.0.1';
  readonly port: number;
  /** The port of the SECURE listener of a secured cluster. */
  readonly securePort: number | undefined;
  /** The port of the PROXIED listener, where a delaying proxy connects to. */
  readonly proxiedPort: number | undefined;
  /** Where the controller listens; undefined for a node that is none. */
  readonly controllerPort: number | undefined;
  /** Holds `<topic>-<partition>` directories. */
  readonly dataDir: string;
  readonly log: string;
  readonly #propertiesFile: string;
  readonly #jvm: JvmMode;
  readonly #version: string;
  #process: ManagedProcess | undefined;

  constructor(plan: NodePlan, properties: Properties, directory: string, options: KafkaOptions) {
    this.id = plan.id;
    this.roles = plan.roles;
    this.port = plan.port;
    this.proxiedPort = plan.proxied?.port;
    this.securePort = plan.securePort;
    this.controllerPort = isController(plan) ? plan.controllerPort : undefined;
    this.dataDir = join(directory, `node-${plan.id}`);
    this.log = logFile(`${options.name}-${plan.id}`);
    this.#jvm = options.jvm ?? 'fast';
    this.#version = versionOf(options);
    this.#propertiesFile = join(directory, `node-${plan.id}.properties`);
    const all = { ...properties, 'log.dirs': this.dataDir };
    const lines = Object.entries(all).map(([key, value]) => `${key}=${value}\n`);
    mkdirSync(directory, { recursive: true });
    writeFileSync(this.#propertiesFile, lines.join(''));
  }

  /** The pid of the running process. */
  get pid(): number {
    if (this.#process === undefined) throw new Error(`node ${this.id} is not running`);
    return this.#process.pid;
  }

  get isRunning(): boolean {
    return this.#process !== undefined && this.#process.exit() === undefined;
  }

  /** `voters`: arguments that name the first controllers; only controllers are given them. */
  async format(
    clusterId: string,
    voters: readonly string[],
    { features = {}, security }: Pick<KafkaOptions, 'features' | 'security'> = {},
  ): Promise<void> {
    const levels = Object.entries(features).flatMap(([name, to]) => ['--feature', `${name}=${to}`]);
    const users = Object.entries(security?.users ?? {}).flatMap(([name, password]) => [
      '--add-scram',
      `SCRAM-SHA-512=[name=${name},password=${password}]`,
    ]);
    const initial = this.controllerPort === undefined ? [] : [...voters, ...levels, ...users];
    const args = ['format', ...initial, '-t', clusterId, '-c', this.#propertiesFile];
    const libs = await requireKafkaJars(this.#version);
    // A class list would need a file per program; formatting is left out of the training run.
    await runOrThrow('java', javaArguments(libs, 'kafka.tools.StorageTool', args));
  }

  /** Starts the process on the data and ports it always has; does not wait until it serves. */
  async launch(): Promise<void> {
    if (this.isRunning) throw new Error(`node ${this.id} is already running`);
    const libs = await requireKafkaJars(this.#version);
    const heap = this.#jvm === 'benchmark' ? '1g' : '256m';
    const options = { mode: this.#jvm, heap };
    const args = javaArguments(libs, 'kafka.Kafka', [this.#propertiesFile], options);
    this.#process = spawnManaged({ command: 'java', args, log: this.log });
  }

  async stop(boundMs = STOP_BOUND_MS): Promise<void> {
    await this.#process?.stop(boundMs);
  }

  async kill9(): Promise<void> {
    await this.#process?.kill9();
  }
}

function versionOf({ version }: KafkaOptions): string {
  return version ?? clusterVersion();
}

/** A running cluster. */
export class KafkaCluster {
  readonly name: string;
  readonly clusterId: string;
  readonly nodes: readonly KafkaNode[];
  readonly #directory: string;
  readonly #version: string;

  constructor(
    options: KafkaOptions,
    clusterId: string,
    nodes: readonly KafkaNode[],
    directory: string,
  ) {
    this.name = options.name;
    this.clusterId = clusterId;
    this.nodes = nodes;
    this.#directory = directory;
    this.#version = versionOf(options);
  }

  /** Whether brokers of this version can be kept free of new replicas (KIP-1066, G7). */
  get hasCordons(): boolean {
    const [major = 0, minor = 0] = this.#version.split('.').map(Number);
    return major > CORDONS_FROM[0] || (major === CORDONS_FROM[0] && minor >= CORDONS_FROM[1]);
  }

  /** The nodes with the broker role, by id. */
  get brokers(): readonly KafkaNode[] {
    return this.nodes.filter((node) => node.roles.includes('broker'));
  }

  /** `host:port` of every broker, separated by commas. */
  get bootstrap(): string {
    return this.brokers.map((node) => `${node.host}:${node.port}`).join(',');
  }

  /** `host:port` of every SECURE listener, separated by commas. */
  get secureBootstrap(): string {
    return this.brokers.map((node) => `${node.host}:${node.securePort}`).join(',');
  }

  /** The nodes with the controller role, by id. */
  get controllers(): readonly KafkaNode[] {
    return this.nodes.filter((node) => node.controllerPort !== undefined);
  }

  /** `host:port` of every controller's own listener, separated by commas. */
  get controllerBootstrap(): string {
    return this.controllers.map((node) => `${node.host}:${node.controllerPort}`).join(',');
  }

  /** The pids of all processes. */
  get pids(): readonly number[] {
    return this.nodes.filter((node) => node.isRunning).map((node) => node.pid);
  }

  broker(id: number): KafkaNode {
    const found = this.brokers.find((node) => node.id === id);
    if (found === undefined) throw new Error(`${this.name} has no broker ${id}`);
    return found;
  }

  /** Launches the nodes that are not running and waits until all brokers serve. */
  async start(boundMs = START_BOUND_MS): Promise<void> {
    const deadline = Date.now() + boundMs;
    const down = this.nodes.filter((node) => !node.isRunning);
    const controllers = down.filter(({ roles }) => roles === 'controller');
    if (controllers.length > 1) {
      // A broker that comes amid a quorum's first election may not be let in for a minute.
      await Promise.all(controllers.map((node) => node.launch()));
      for (const node of controllers) await this.#awaitListening(node, deadline);
    }
    await Promise.all(down.filter((node) => !node.isRunning).map((node) => node.launch()));
    await this.awaitReady(boundMs);
  }

  async #awaitListening(node: KafkaNode, deadline: number): Promise<void> {
    for (;;) {
      if (!node.isRunning) throw new Error(`${this.name} controller died:\n${tail(node.log)}`);
      if (Date.now() > deadline) throw new Error(`${this.name} is not up:\n${tail(node.log)}`);
      try {
        await using _client = await RawClient.connect(node.host, node.controllerPort ?? 0, 2_000);
        return;
      } catch {
        // Not up yet. The deadline bounds the retries.
      }
      await sleep(50);
    }
  }

  /** Waits until every running broker answers Metadata with all running brokers in it. */
  async awaitReady(boundMs = START_BOUND_MS): Promise<void> {
    const deadline = Date.now() + boundMs;
    for (const node of this.brokers) await this.#awaitBroker(node, deadline);
  }

  async #awaitBroker(node: KafkaNode, deadline: number): Promise<void> {
    const wanted = this.brokers.filter((each) => each.isRunning).length;
    if (!node.isRunning && wanted > 0 && this.brokers.length > 1) return;
    for (;;) {
      if (!node.isRunning) throw new Error(`${this.name} broker died:\n${tail(node.log)}`);
      if (Date.now() > deadline) throw new Error(`${this.name} is not up:\n${tail(node.log)}`);
      try {
        await using client = await RawClient.connect(node.host, node.port, 2_000);
        if ((await client.metadata([])).brokers.length >= wanted) return;
      } catch {
        // Not up yet: refused, or closed while starting. The deadline bounds the retries.
      }
      await sleep(50);
    }
  }

  /** Stops brokers first, then controllers, so that controlled shutdown has somebody to ask. */
  async stop(boundMs = STOP_BOUND_MS): Promise<void> {
    const controllers = this.controllers.filter((node) => node.roles === 'controller');
    await Promise.all(this.brokers.map((node) => node.stop(boundMs)));
    await Promise.all(controllers.map((node) => node.stop(boundMs)));
  }

  /** Kills all processes and removes the data. */
  async destroy(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.kill9()));
    removeDirectory(this.#directory);
  }
}

function isController({ roles }: Pick<NodePlan, 'roles'>): boolean {
  return roles.includes('controller');
}

/** A random id in Kafka's spelling; one with a hyphen in front would look like an option. */
function randomId(): string {
  return randomBytes(16).toString('base64url').replace(/^-/, 'A');
}

async function planNodes(options: KafkaOptions): Promise<NodePlan[]> {
  const count = options.brokers ?? 1;
  const separate = count > 1 && options.controller !== 'first' ? 1 : 0;
  const controllers = options.controllers ?? separate;
  const plans: NodePlan[] = [];
  const plan = async (id: number, roles: string, proxyPort?: number): Promise<void> => {
    const proxied =
      proxyPort === undefined ? undefined : { port: await freePort(), advertised: proxyPort };
    const ports = { port: await freePort(), controllerPort: await freePort() };
    const isSecured = options.security !== undefined && roles.includes('broker');
    const securePort = isSecured ? await freePort() : undefined;
    plans.push({ id, roles, ...ports, directoryId: randomId(), proxied, securePort });
  };
  for (let i = 0; i < controllers; i++) await plan(FIRST_CONTROLLER_ID + i, 'controller');
  for (let id = 1; id <= count; id++) {
    const roles = controllers === 0 && id === 1 ? 'broker,controller' : 'broker';
    await plan(id, roles, options.advertisedProxyPorts?.[id - 1]);
  }
  return plans;
}

/** What tells `StorageTool format` who the first controllers are. */
function votersArguments(controllers: readonly NodePlan[]): string[] {
  if (controllers.length === 1) return ['--standalone'];
  const voters = controllers.map(
    (plan) => `${plan.id}@127.0.0.1:${plan.controllerPort}:${plan.directoryId}`,
  );
  return ['--initial-controllers', voters.join(',')];
}

/** Formats and starts a cluster; resolves when it serves. */
export async function startKafka(options: KafkaOptions): Promise<KafkaCluster> {
  const directory = temporaryDirectory(options.name);
  const plans = await planNodes(options);
  const controllers = plans.filter(isController);
  const quorum = controllers.map((plan) => `127.0.0.1:${plan.controllerPort}`).join(',');
  const base = baseProperties(options.brokers ?? 1, options.jvm);
  const secured = options.security === undefined ? {} : securityProperties(options.security);
  const common = { ...base, ...secured, ...options.properties };
  const nodes = plans.map((plan) => {
    const properties = { ...common, ...listenerProperties(plan, quorum, options.security) };
    return new KafkaNode(plan, properties, directory, options);
  });
  const clusterId = randomId();
  const cluster = new KafkaCluster(options, clusterId, nodes, directory);
  const voters = votersArguments(controllers);
  try {
    await Promise.all(nodes.map((node) => node.format(clusterId, voters, options)));
    await cluster.start();
    return cluster;
  } catch (error) {
    await cluster.destroy();
    throw error;
  }
}

/**
 * Starts a cluster for guests: as small as the test asks, but three brokers and three controllers
 * of their own in the pass for which TWINLOG_KAFKA names the version.
 */
export function startHost(options: KafkaOptions): Promise<KafkaCluster> {
  return startKafka(namedTarget === undefined ? options : { ...options, ...LARGE });
}
