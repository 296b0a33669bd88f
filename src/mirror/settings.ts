/**
 * The settings of a mirror (contract §12): names, types, defaults, and what is wrong with a value.
 *
 * CreateMirror and IncrementalAlterConfigs of resource type MIRROR check with `checkMirrorConfigs`
 * before anything is written; `parseMirrorSettings` turns what the metadata log holds into numbers.
 * A setting that this version cannot honour is refused, never ignored.
 */
import { present } from '../base/assert.ts';
import { SOURCE_CLUSTER_ID_CONFIG } from '../metadata/image.ts';
import {
  type ConnectionSecurity,
  connectionSecurity,
  SecurityProblem,
  securityProtocols,
} from '../protocol/connection-security.ts';

/** How the text of a setting is read. */
export type MirrorSettingType = 'string' | 'int' | 'long' | 'boolean' | 'list' | 'password';

/** One mirror setting; the shape is that of broker and topic settings. */
export interface MirrorSettingDefinition {
  readonly name: string;
  readonly type: MirrorSettingType;
  /** Text of the default; null: none. */
  readonly default: string | null;
  readonly doc: string;
  readonly min?: number;
  readonly values?: readonly string[];
  /** Each element must compile as a regular expression. */
  readonly regex?: true;
}

/** Topic configs that Y4 never copies, unless the setting is replaced. */
export const DEFAULT_EXCLUDED_TOPIC_PROPERTIES: readonly string[] = [
  'follower.replication.throttled.replicas',
  'leader.replication.throttled.replicas',
  'message.timestamp.difference.max.ms',
  'log.message.timestamp.before.max.ms',
  'log.message.timestamp.after.max.ms',
  'message.timestamp.type',
  'unclean.leader.election.enable',
  'min.insync.replicas',
  'mirror.name',
];

type Extra = Omit<MirrorSettingDefinition, 'name' | 'type' | 'default' | 'doc'>;

function define(
  name: string,
  type: MirrorSettingType,
  defaultValue: string | null,
  doc: string,
  extra: Extra = {},
): MirrorSettingDefinition {
  return { name, type, default: defaultValue, doc, ...extra };
}

const NO_EFFECT = 'Accepted; without effect, as the runtime cannot set it.';

/** Every mirror setting but the security ones. */
const GENERAL: readonly MirrorSettingDefinition[] = [
  define('bootstrap.servers', 'list', null, 'Brokers of the source, as host:port. Required.'),
  define('request.timeout.ms', 'int', '30000', 'How long the source may take to answer.', {
    min: 1,
  }),
  define('metadata.max.age.ms', 'long', '300000', 'Metadata of the source is never older.', {
    min: 1,
  }),
  define('send.buffer.bytes', 'int', '131072', NO_EFFECT, { min: -1 }),
  define('receive.buffer.bytes', 'int', '65536', NO_EFFECT, { min: -1 }),
  define('socket.connection.setup.timeout.ms', 'long', '10000', 'How long dialling may take.', {
    min: 1,
  }),
  define('socket.connection.setup.timeout.max.ms', 'long', '30000', 'Cap of repeated dialling.', {
    min: 1,
  }),
  define('reconnect.backoff.ms', 'long', '50', 'First pause before dialling again.', { min: 0 }),
  define('reconnect.backoff.max.ms', 'long', '1000', 'Longest pause before dialling again.', {
    min: 0,
  }),
  define('retry.backoff.ms', 'long', '100', 'Pause before a failed question is asked again.', {
    min: 0,
  }),
  define('mirror.topics.include', 'list', '', 'Topics that a pattern adds (Y2).', { regex: true }),
  define('mirror.topics.exclude', 'list', '', 'Topics that a pattern never adds (Y2).', {
    regex: true,
  }),
  define(
    'mirror.topic.properties.exclude',
    'list',
    DEFAULT_EXCLUDED_TOPIC_PROPERTIES.join(','),
    'Topic configs that are not copied (Y4).',
    { regex: true },
  ),
  define('mirror.groups.include', 'list', '.*', 'Groups whose offsets are copied (Y6).', {
    regex: true,
  }),
  define('mirror.groups.exclude', 'list', '', 'Groups whose offsets are not copied (Y6).', {
    regex: true,
  }),
  define('mirror.group.offset.sync.interval.ms', 'long', '1000', 'How often offsets are copied.', {
    min: 100,
  }),
  define('mirror.acl.include', 'list', '', 'Rules for the ACLs that are copied (Y8).'),
  define('mirror.lost.and.found.enable', 'boolean', 'true', 'Keep what a cut drops (T4).'),
  define('mirror.source.divergence.policy', 'string', 'truncate', 'After lost records (F10).', {
    values: ['truncate', 'fail'],
  }),
];

const SECURITY: readonly MirrorSettingDefinition[] = [
  define('security.protocol', 'string', 'PLAINTEXT', 'How to talk to the source.', {
    values: Object.keys(securityProtocols),
  }),
  define('ssl.truststore.type', 'string', 'PEM', 'Kind of trust store.', { values: ['PEM'] }),
  define('ssl.truststore.certificates', 'password', null, 'PEM certificates to trust.'),
  define('ssl.keystore.type', 'string', 'PEM', 'Kind of key store.', { values: ['PEM'] }),
  define('ssl.keystore.certificate.chain', 'password', null, 'PEM certificate chain.'),
  define('ssl.keystore.key', 'password', null, 'PEM private key.'),
  define('ssl.key.password', 'password', null, 'Password of the private key.'),
  define('ssl.endpoint.identification.algorithm', 'string', 'https', 'Host name check.'),
  define('sasl.mechanism', 'string', null, 'SASL mechanism.'),
  define('sasl.jaas.config', 'password', null, 'SASL credentials.'),
];

/** Every mirror setting. */
export const mirrorSettingDefinitions: readonly MirrorSettingDefinition[] = [
  ...GENERAL,
  ...SECURITY,
];

const byName = new Map(mirrorSettingDefinitions.map((each) => [each.name, each]));

/** Whether a setting holds a comma list (IncrementalAlterConfigs may append to it). */
export function isListSetting(name: string): boolean {
  return byName.get(name)?.type === 'list';
}

/** A broker's address. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Parses `host:port`, with brackets around an IPv6 address; undefined when it is neither. */
export function parseHostPort(text: string): HostPort | undefined {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]\s]+)):(\d{1,5})$/.exec(text.trim());
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || !(port >= 1 && port <= 65535)) return undefined;
  return { host, port };
}

function elements(value: string): string[] {
  const trimmed = value.trim();
  return trimmed === '' ? [] : trimmed.split(',').map((each) => each.trim());
}

function compiles(pattern: string): boolean {
  try {
    new RegExp(pattern);
    return true;
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
}

function problemWith(definition: MirrorSettingDefinition, value: string): string | undefined {
  switch (definition.type) {
    case 'int':
    case 'long': {
      if (!/^-?\d+$/.test(value.trim())) return 'it must be a whole number';
      const max = definition.type === 'int' ? 2 ** 31 - 1 : Number.MAX_SAFE_INTEGER;
      const min = definition.min ?? 0;
      if (Number(value) < min) return `it must be at least ${min}`;
      return Number(value) > max ? `it must be at most ${max}` : undefined;
    }
    case 'boolean':
      return /^(true|false)$/.test(value.trim()) ? undefined : 'it must be true or false';
    case 'list': {
      const bad = definition.regex && elements(value).find((each) => !compiles(each));
      return bad === undefined ? undefined : `${bad} is not a regular expression`;
    }
    default:
      if (definition.values === undefined || definition.values.includes(value)) return undefined;
      return `it must be one of ${definition.values.join(', ')}`;
  }
}

/** How the source is reached; throws {@link SecurityProblem}. */
function securityOf(configs: ReadonlyMap<string, string>): ConnectionSecurity | undefined {
  return connectionSecurity({ value: (name) => configs.get(name) });
}

function securityProblem(configs: ReadonlyMap<string, string>): string | undefined {
  try {
    securityOf(configs);
    return undefined;
  } catch (error) {
    if (error instanceof SecurityProblem) return error.message;
    throw error;
  }
}

function bootstrapProblem(value: string | undefined): string | undefined {
  const addresses = elements(value ?? '');
  if (addresses.length === 0) return 'Missing required configuration bootstrap.servers.';
  const bad = addresses.find((address) => parseHostPort(address) === undefined);
  if (bad === undefined) return undefined;
  return `Invalid value ${value} for configuration bootstrap.servers: ${bad} is not host:port.`;
}

/** What is wrong with all settings a mirror would have, as a sentence naming the setting (A2). */
export function checkMirrorConfigs(configs: ReadonlyMap<string, string>): string | undefined {
  for (const [name, value] of configs) {
    if (name === SOURCE_CLUSTER_ID_CONFIG) continue;
    const definition = byName.get(name);
    if (definition === undefined) return `Unknown mirror configuration: ${name}.`;
    const problem = problemWith(definition, value);
    if (problem !== undefined) {
      const shown = definition.type === 'password' ? '[hidden]' : value;
      return `Invalid value ${shown} for configuration ${name}: ${problem}.`;
    }
  }
  return bootstrapProblem(configs.get('bootstrap.servers')) ?? securityProblem(configs);
}

/** The settings of one mirror, parsed. Times in ms. */
export interface MirrorSettings {
  readonly bootstrapServers: readonly HostPort[];
  /** Undefined: the source is reached in plain text. */
  readonly security?: ConnectionSecurity | undefined;
  readonly requestTimeoutMs: number;
  readonly metadataMaxAgeMs: number;
  readonly connectionSetupTimeoutMs: number;
  readonly reconnectBackoffMs: number;
  readonly reconnectBackoffMaxMs: number;
  readonly retryBackoffMs: number;
  readonly lostAndFoundEnable: boolean;
  readonly divergencePolicy: 'truncate' | 'fail';
  /** Regular expressions of whole group names (Y6). */
  readonly groupsInclude: readonly string[];
  readonly groupsExclude: readonly string[];
  readonly groupOffsetSyncIntervalMs: number;
  /** Empty: not known yet (rule O4). */
  readonly sourceClusterId: string;
}

/** Parses settings that {@link checkMirrorConfigs} accepted. */
export function parseMirrorSettings(configs: ReadonlyMap<string, string>): MirrorSettings {
  const text = (name: string): string =>
    configs.get(name) ?? present(byName.get(name), name).default ?? '';
  const number = (name: string): number => Number(text(name));
  return {
    bootstrapServers: elements(text('bootstrap.servers')).flatMap(
      (address) => parseHostPort(address) ?? [],
    ),
    security: securityOf(configs),
    requestTimeoutMs: number('request.timeout.ms'),
    metadataMaxAgeMs: number('metadata.max.age.ms'),
    connectionSetupTimeoutMs: number('socket.connection.setup.timeout.ms'),
    reconnectBackoffMs: number('reconnect.backoff.ms'),
    reconnectBackoffMaxMs: number('reconnect.backoff.max.ms'),
    retryBackoffMs: number('retry.backoff.ms'),
    lostAndFoundEnable: text('mirror.lost.and.found.enable').trim() === 'true',
    divergencePolicy: text('mirror.source.divergence.policy') === 'fail' ? 'fail' : 'truncate',
    groupsInclude: elements(text('mirror.groups.include')),
    groupsExclude: elements(text('mirror.groups.exclude')),
    groupOffsetSyncIntervalMs: number('mirror.group.offset.sync.interval.ms'),
    sourceClusterId: configs.get(SOURCE_CLUSTER_ID_CONFIG) ?? '',
  };
}

/** What is wrong with a mirror's name (rule O6), as a sentence. */
export function checkMirrorName(name: string | null): string | undefined {
  if (name === null || name === '') return 'The mirror name is missing.';
  if (name.length > 249) return `The mirror name is longer than 249 characters.`;
  if (name === '.' || name === '..') return `The mirror name must not be ${name}.`;
  if (!/^[A-Za-z0-9._-]+$/.test(name)) {
    return `The mirror name ${name} holds characters other than letters, digits, ., _ and -.`;
  }
  if (name.endsWith('.removed')) return `The mirror name ${name} must not end in .removed.`;
  return undefined;
}

/** The broker's own `mirror.*` settings, parsed by whoever owns broker settings. Times in ms. */
export interface MirrorBrokerSettings {
  readonly stateTopicPartitions: number;
  readonly stateTopicReplicationFactor: number;
  readonly numReplicaFetchers: number;
  readonly metadataRefreshIntervalMs: number;
  readonly fetchWaitMaxMs: number;
  readonly fetchMinBytes: number;
  readonly fetchMaxBytes: number;
  readonly fetchResponseMaxBytes: number;
}

/** The defaults of {@link MirrorBrokerSettings}. */
export const DEFAULT_MIRROR_BROKER_SETTINGS: MirrorBrokerSettings = {
  stateTopicPartitions: 50,
  stateTopicReplicationFactor: 3,
  numReplicaFetchers: 1,
  metadataRefreshIntervalMs: 30_000,
  fetchWaitMaxMs: 500,
  fetchMinBytes: 1,
  fetchMaxBytes: 8 * 1024 * 1024,
  fetchResponseMaxBytes: 32 * 1024 * 1024,
};
