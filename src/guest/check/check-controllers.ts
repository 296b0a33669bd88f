/**
 * Whether the given addresses are controllers of one Apache Kafka cluster that can have guests.
 *
 * The first step of `twinlog guest check`. Asks every address what it is (ApiVersions) and which
 * cluster it belongs to (DescribeCluster), which any client may; what listens for clients, what is
 * run by ZooKeeper and what is too old is named as such. Nothing is changed.
 */
import { METADATA_VERSION_FEATURE } from '../../metadata/features.ts';
import type { ControllerAddress, HostPort } from '../../metadata/quorum/probe.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  ConnectionError,
  type ConnectionRuntime,
  KafkaConnection,
} from '../../protocol/kafka-connection.ts';
import {
  ApiVersionsRequest,
  ApiVersionsResponse,
} from '../../protocol/messages/18-api-versions.ts';
import {
  DescribeClusterRequest,
  DescribeClusterResponse,
} from '../../protocol/messages/60-describe-cluster.ts';
import { BrokerRegistrationRequest } from '../../protocol/messages/62-broker-registration.ts';
import { type Check, listed, ok, problem, warning } from './check.ts';

/** Newest metadata.version of Apache Kafka 4.0: what knows no newer one is too old for guests. */
export const TOO_OLD_METADATA_VERSION = 25;
/** LeaderAndIsr, which only the brokers of a ZooKeeper cluster serve. */
const ZOOKEEPER_API = 4;
const CONTROLLERS = 2;
const TIMEOUTS = { connectTimeoutMs: 3_000, requestTimeoutMs: 10_000 } as const;

const FIND_CONTROLLERS =
  'Name addresses of the listener in controller.listener.names, such as those in ' +
  'controller.quorum.bootstrap.servers or controller.quorum.voters of the brokers.';

/** What checks connect with. */
export interface CheckRuntime extends ConnectionRuntime {
  /** How connections are secured, to controllers and brokers alike; absent: not at all. */
  readonly security?: ConnectionSecurity | undefined;
}

/** Levels of one feature. */
export interface FeatureLevels {
  readonly min: number;
  readonly max: number;
}

/** What the controllers say of themselves and their cluster. */
export interface ControllersFound {
  readonly clusterId: string;
  readonly controllers: readonly ControllerAddress[];
  /** Undefined while there is none. */
  readonly active: ControllerAddress | undefined;
  /** The cluster's level of each feature that is not 0, as the active controller has it. */
  readonly levels: ReadonlyMap<string, number>;
  /** What the controllers that were asked all support, by feature. */
  readonly supported: ReadonlyMap<string, FeatureLevels>;
  /** Highest versions that the active controller serves, by API key. */
  readonly apiVersions: ReadonlyMap<number, number>;
}

interface Answer {
  readonly at: string;
  readonly clusterId: string;
  readonly controllers: readonly ControllerAddress[];
  readonly activeId: number;
  readonly levels: ReadonlyMap<string, number>;
  readonly supported: ReadonlyMap<string, FeatureLevels>;
  readonly apiVersions: ReadonlyMap<number, number>;
}

function text({ host, port }: HostPort): string {
  return `${host}:${port}`;
}

/** Opens a connection for checks; rejects with a ConnectionError. */
export function connectForCheck(
  runtime: CheckRuntime,
  { host, port }: HostPort,
): Promise<KafkaConnection> {
  const { security } = runtime;
  const clientId = 'twinlog-check';
  return KafkaConnection.connect(runtime, { host, port, clientId, security, ...TIMEOUTS });
}

/** Why nothing can be asked there, and what may help. */
export function unreachable(name: string, address: HostPort, error: ConnectionError): Check {
  const causes = ['authentication', 'closed', 'ECONNRESET', 'timeout', 'malformed'];
  const fix = causes.includes(error.cause)
    ? 'If it listens with TLS or SASL, give a file with the settings of a client to ' +
      '--command-config, and name a certificate in it (ssl.keystore.location) where clients must ' +
      'show one. Else check that it runs and that the address is right.'
    : 'Check that it runs, that the address is right, and that no firewall is in between.';
  const why = /^E[A-Z]+$/.test(error.cause) ? error.cause : error.message;
  return problem(name, `${text(address)} cannot be asked: ${why}`, fix);
}

type Reply =
  | Answer
  | { readonly refused: Check }
  | { readonly silent: Check }
  /** It is one, but does not tell the principal about its cluster. */
  | { readonly denied: HostPort };

/** Asks one address what it is. */
async function ask(runtime: CheckRuntime, address: HostPort): Promise<Reply> {
  const name = `controller ${text(address)}`;
  try {
    const connection = await connectForCheck(runtime, address);
    try {
      return await question(name, connection);
    } finally {
      connection.close();
    }
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error;
    return { silent: unreachable(name, address, error) };
  }
}

async function question(name: string, connection: KafkaConnection): Promise<Reply> {
  const { apis } = connection;
  if (apis.has(ZOOKEEPER_API)) {
    const found = 'it is a broker of a cluster that is run by ZooKeeper';
    const fix =
      'A guest can join a KRaft cluster of Apache Kafka 4.1 or later only: migrate this one, or ' +
      'mirror from it into another cluster (any cluster can be a source).';
    return { refused: problem(name, found, fix) };
  }
  if (!apis.has(BrokerRegistrationRequest.apiKey ?? -1)) {
    const found = 'it is a listener for clients, not for controllers';
    return { refused: problem(name, found, FIND_CONTROLLERS) };
  }
  const versions = await connection.send(ApiVersionsRequest, ApiVersionsResponse, {
    clientSoftwareName: 'twinlog',
    clientSoftwareVersion: 'check',
  });
  const supported = new Map(
    versions.supportedFeatures.map((each) => [
      each.name,
      { min: each.minVersion, max: each.maxVersion },
    ]),
  );
  const newest = supported.get(METADATA_VERSION_FEATURE)?.max ?? 0;
  if (newest <= TOO_OLD_METADATA_VERSION) {
    const found = `it is older than Apache Kafka 4.1 (its newest metadata.version is ${newest})`;
    const fix = 'Upgrade the cluster to Apache Kafka 4.1 or later: guests join no older one.';
    return { refused: problem(name, found, fix) };
  }
  const cluster = await connection.send(DescribeClusterRequest, DescribeClusterResponse, {
    includeClusterAuthorizedOperations: false,
    endpointType: CONTROLLERS,
    includeFencedBrokers: false,
  });
  if (cluster.errorCode === errors.CLUSTER_AUTHORIZATION_FAILED.code) {
    return { denied: { host: connection.host, port: connection.port } };
  }
  if (cluster.errorCode !== errors.NONE.code) {
    const why = `${errorName(cluster.errorCode)} ${cluster.errorMessage ?? ''}`.trim();
    const found = `it does not describe its cluster: ${why}`;
    return { refused: problem(name, found, FIND_CONTROLLERS) };
  }
  return {
    at: text(connection),
    clusterId: cluster.clusterId,
    controllers: cluster.brokers.map(({ brokerId, host, port }) => ({
      nodeId: brokerId,
      host,
      port,
    })),
    activeId: cluster.controllerId,
    levels: connection.featureLevels,
    supported,
    apiVersions: new Map([...apis].map(([key, { maxVersion }]) => [key, maxVersion])),
  };
}

/** What all of them support. */
function common(answers: readonly Answer[]): Map<string, FeatureLevels> {
  const levels = new Map<string, FeatureLevels>();
  for (const { supported } of answers) {
    for (const [name, { min, max }] of supported) {
      const known = levels.get(name) ?? { min, max };
      levels.set(name, { min: Math.max(min, known.min), max: Math.min(max, known.max) });
    }
  }
  return levels;
}

interface Replies {
  readonly answers: Answer[];
  readonly refused: Check[];
  readonly silent: Check[];
  readonly denied: HostPort[];
}

/** The addresses that lead to the cluster: the given ones, then those the answers name. */
async function askAll(runtime: CheckRuntime, given: readonly HostPort[]): Promise<Replies> {
  const replies: Replies = { answers: [], refused: [], silent: [], denied: [] };
  const { answers, refused, silent, denied } = replies;
  const asked = new Set<string>();
  const round = async (addresses: readonly HostPort[]): Promise<void> => {
    const left = addresses.filter((address) => !asked.has(text(address)));
    for (const address of left) asked.add(text(address));
    for (const answer of await Promise.all(left.map((address) => ask(runtime, address)))) {
      if ('at' in answer) answers.push(answer);
      else if ('refused' in answer) refused.push(answer.refused);
      else if ('silent' in answer) silent.push(answer.silent);
      else denied.push(answer.denied);
    }
  };
  await round(given);
  const [first] = answers;
  if (first !== undefined) {
    await round(first.controllers.filter(({ host }) => host !== ''));
  }
  return replies;
}

/** What asking the controllers came to. */
export interface ControllersAnswer {
  readonly checks: Check[];
  /** Absent: nothing more can be asked, but whether the principal has any right. */
  readonly found?: ControllersFound;
  /** A controller that does not describe its cluster to the principal. */
  readonly denied?: HostPort | undefined;
}

/** Asks the controllers. */
export async function checkControllers(
  runtime: CheckRuntime,
  given: readonly HostPort[],
): Promise<ControllersAnswer> {
  const { answers, refused, silent, denied } = await askAll(runtime, given);
  const [first] = answers;
  if (first === undefined) return { checks: [...refused, ...silent], denied: denied[0] };
  const checks = [...refused];
  const strangers = answers.filter(({ clusterId }) => clusterId !== first.clusterId);
  for (const { at, clusterId } of strangers) {
    const found = `it is of cluster ${clusterId}, ${first.at} of cluster ${first.clusterId}`;
    checks.push(problem(`controller ${at}`, found, 'Name controllers of one cluster.'));
  }
  const own = answers.filter((answer) => !strangers.includes(answer));
  const activeId = Math.max(...own.map((answer) => answer.activeId));
  const active = first.controllers.find(({ nodeId }) => nodeId === activeId);
  const activeAnswer = own.find(({ at }) => active !== undefined && at === text(active)) ?? first;
  // A guest can do without the others, as long as one leads.
  checks.push(...silent.map((each) => (active ? { ...each, status: 'warning' as const } : each)));
  const found: ControllersFound = {
    clusterId: first.clusterId,
    controllers: first.controllers,
    active,
    levels: activeAnswer.levels,
    supported: common(own),
    apiVersions: activeAnswer.apiVersions,
  };
  return { checks: [...checks, ...summary(found, own)], found };
}

function summary(found: ControllersFound, answers: readonly Answer[]): Check[] {
  const { clusterId, controllers, active } = found;
  const ids = controllers.map(({ nodeId }) => nodeId);
  const asked = `${answers.length} of ${ids.length} controllers (${listed(ids)}) answer`;
  const checks = [ok('cluster', `its id is ${clusterId}`, { clusterId })];
  const data = { controllers, activeController: active?.nodeId ?? null };
  if (active === undefined) {
    const fix = 'Wait for the quorum to elect one; `kafka-metadata-quorum.sh describe` shows it.';
    checks.push(problem('active controller', `${asked}, none is active`, fix, data));
  } else if (answers.length < ids.length) {
    const fix = 'Start the others: a quorum needs the majority of its controllers.';
    checks.push(warning('active controller', `${asked}; ${active.nodeId} is active`, fix, data));
  } else {
    const text = `${asked}; ${active.nodeId} is active`;
    checks.push(ok('active controller', text, data));
  }
  return checks;
}
