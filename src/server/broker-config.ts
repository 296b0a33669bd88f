/**
 * The settings of a broker: one table, the values in force, and the topic defaults they give.
 *
 * Names are Apache Kafka's where the meaning is the same (a server.properties can be reused), plus
 * the `mirror.*` ones of the contract (§12). Built once at start from text; a bad value stops the
 * start with a message that names it, a name that means nothing here is reported and otherwise
 * ignored.
 */
import { present } from '../base/assert.ts';
import { isSecurityProtocol } from '../protocol/connection-security.ts';
import { type ConfigDefinition, checkConfigValue, definitionTable } from './config-definition.ts';
import { isPrefixedSecurityName, securityDefinitions } from './security-settings.ts';
import { topicConfigDefinition, topicConfigDefinitions } from './topic-config.ts';

const MIB = 1024 * 1024;

function define(
  name: string,
  type: ConfigDefinition['type'],
  value: string | null,
  doc: string,
  rest: Partial<ConfigDefinition> = {},
): ConfigDefinition {
  return { name, type, default: value, doc, ...rest };
}

const ownDefinitions: readonly ConfigDefinition[] = [
  define('node.id', 'int', '1', 'The id of this broker in its cluster.', { min: 0 }),
  define('broker.rack', 'string', null, 'Where this broker stands; shown to clients.'),
  define('listeners', 'list', 'PLAINTEXT://127.0.0.1:9092', 'Where clients connect.'),
  define('advertised.listeners', 'list', null, 'What clients are told to connect to.'),
  define(
    'listener.security.protocol.map',
    'string',
    'PLAINTEXT:PLAINTEXT',
    'Protocols of the listeners by name.',
  ),
  define('broker.heartbeat.interval.ms', 'int', '2000', 'How often a guest is heard of.', {
    min: 1,
  }),
  define('inter.broker.listener.name', 'string', 'PLAINTEXT', 'Where brokers reach each other.'),
  define(
    'controller.quorum.bootstrap.servers',
    'list',
    null,
    'Controllers of the Apache Kafka cluster that a guest joins.',
  ),
  define('log.dirs', 'string', 'twinlog-data', 'The data directory (exactly one).'),
  define('num.partitions', 'int', '1', 'Partitions of a topic that names no count.', { min: 1 }),
  define('default.replication.factor', 'int', '1', 'Replicas of a topic that names no count.', {
    min: 1,
  }),
  define('auto.create.topics.enable', 'boolean', 'true', 'Create a topic when it is first used.'),
  define('delete.topic.enable', 'boolean', 'true', 'Whether topics may be deleted.'),
  define('log.retention.minutes', 'int', null, 'Used when log.retention.ms is not set.'),
  define('log.retention.hours', 'int', '168', 'Used when no finer log.retention is set.'),
  define('log.roll.hours', 'int', '168', 'Used when log.roll.ms is not set.', { min: 1 }),
  define('log.retention.check.interval.ms', 'long', '300000', 'How often retention runs.', {
    min: 1,
  }),
  define(
    'log.flush.offset.checkpoint.interval.ms',
    'int',
    '60000',
    'How often recovery points are written.',
    { min: 0 },
  ),
  define('log.cleaner.enable', 'boolean', 'true', 'Whether compacted topics are compacted.'),
  define('log.cleaner.backoff.ms', 'long', '15000', 'Wait before looking for dirty logs again.', {
    min: 0,
  }),
  define(
    'log.cleaner.dedupe.buffer.size',
    'long',
    '134217728',
    'The most memory for the keys of one run of compaction.',
    { min: MIB },
  ),
  define(
    'log.cleaner.io.max.bytes.per.second',
    'double',
    String(Number.MAX_VALUE),
    'How fast compaction may read.',
    { min: 1 },
  ),
  define('offsets.topic.num.partitions', 'int', '50', 'Partitions of __consumer_offsets.', {
    min: 1,
  }),
  define('offsets.topic.replication.factor', 'short', '1', 'Replicas of __consumer_offsets.', {
    min: 1,
  }),
  define('offsets.topic.segment.bytes', 'int', '104857600', 'Segments of __consumer_offsets.', {
    min: 1,
  }),
  define('offsets.retention.minutes', 'int', '10080', 'How long offsets of empty groups stay.', {
    min: 1,
  }),
  define('offsets.retention.check.interval.ms', 'long', '600000', 'How often offsets expire.', {
    min: 1,
  }),
  define('offset.metadata.max.bytes', 'int', '4096', 'The longest text beside an offset.'),
  define('group.initial.rebalance.delay.ms', 'int', '3000', 'Wait for more members at first.'),
  define('group.min.session.timeout.ms', 'int', '6000', 'The least session time-out.'),
  define('group.max.session.timeout.ms', 'int', '1800000', 'The greatest session time-out.'),
  define('group.max.size', 'int', '2147483647', 'Members a group may have.', { min: 1 }),
  define('socket.request.max.bytes', 'int', '104857600', 'The largest request.', { min: 1 }),
  define('connections.max.idle.ms', 'long', '600000', 'Close connections idle for so long.'),
  define('fetch.max.bytes', 'int', String(55 * MIB), 'The largest fetch response.', {
    min: 1024,
  }),
  define('producer.id.expiration.ms', 'int', '86400000', 'Forget idle producers after so long.', {
    min: 1,
  }),
  define('replica.lag.time.max.ms', 'long', '30000', 'A replica this far behind leaves the ISR.'),
  define('mirror.topic.num.partitions', 'int', '50', 'Partitions of __mirror_state (rule C1).', {
    min: 1,
  }),
  define('mirror.topic.replication.factor', 'short', '3', 'Replicas of __mirror_state.', {
    min: 1,
  }),
  define('mirror.num.replica.fetchers', 'int', '1', 'Fetchers per source broker and mirror.', {
    min: 1,
  }),
  define('mirror.metadata.refresh.interval.ms', 'long', '30000', 'How often sources are asked.', {
    min: 100,
    dynamic: true,
  }),
  define('mirror.fetch.wait.max.ms', 'int', '500', 'How long a source may hold a fetch.', {
    min: 0,
  }),
  define('mirror.fetch.min.bytes', 'int', '1', 'What a source waits to have.', { min: 0 }),
  define('mirror.fetch.max.bytes', 'int', String(8 * MIB), 'One partition in one fetch.', {
    min: 1,
  }),
  define('mirror.fetch.response.max.bytes', 'int', String(32 * MIB), 'One whole fetch response.', {
    min: 1,
  }),
];

function topicDefaults(): ConfigDefinition[] {
  return topicConfigDefinitions.flatMap((definition) => {
    const synonym = definition.brokerSynonym;
    if (synonym === undefined) return [];
    const derived = synonym === 'log.retention.ms' || synonym === 'log.roll.ms';
    return [{ ...definition, name: synonym, default: derived ? null : definition.default }];
  });
}

/** Every broker setting. */
export const brokerConfigDefinitions: readonly ConfigDefinition[] = [
  ...ownDefinitions,
  ...securityDefinitions,
  ...topicDefaults(),
];

const byName = definitionTable(brokerConfigDefinitions);

/** Settings that give another one its value while that one is not set. */
const COARSER_SETTINGS: ReadonlyMap<string, readonly string[]> = new Map([
  ['log.retention.ms', ['log.retention.minutes', 'log.retention.hours']],
  ['log.roll.ms', ['log.roll.hours']],
]);

/** The definition of a broker setting, or undefined. */
export function brokerConfigDefinition(name: string): ConfigDefinition | undefined {
  return byName.get(name);
}

/** A listener: name and security protocol, host and port. */
export interface ListenerAddress {
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

/** Parses listener.security.protocol.map: `NAME:PROTOCOL,…`, names in capitals. */
export function parseProtocolMap(text: string): ReadonlyMap<string, string> {
  const pairs = text.split(',').flatMap((pair) => {
    const [name, protocol] = pair.toUpperCase().split(':');
    return name?.trim() && protocol?.trim() ? [[name.trim(), protocol.trim()] as const] : [];
  });
  return new Map(pairs);
}

const EVERY_NAME_IS_A_PROTOCOL: ReadonlyMap<string, string> = new Map();

/**
 * Parses `PLAINTEXT://host:port`; a name that `protocols` does not know is a protocol itself.
 * Throws with a sentence that says what is wrong.
 */
export function parseListener(
  text: string,
  protocols: ReadonlyMap<string, string> = EVERY_NAME_IS_A_PROTOCOL,
): ListenerAddress {
  const match = /^([A-Za-z0-9_]+):\/\/(\[[0-9a-fA-F:]+\]|[^:/]*):(\d{1,5})$/.exec(text.trim());
  if (!match || Number(match[3]) > 65_535) {
    throw new Error(`Invalid listener ${text}: write it as PLAINTEXT://HOST:PORT.`);
  }
  const [, given = '', host = '', port = ''] = match;
  const name = given.toUpperCase();
  if (!isSecurityProtocol(protocols.get(name) ?? name)) {
    const map = 'listener.security.protocol.map';
    throw new Error(`Invalid listener ${text}: ${map} has no security protocol for ${name}.`);
  }
  return { name, host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
}

/** Values in force; text as given, checked, read through typed getters. */
export class BrokerConfig {
  readonly #values: ReadonlyMap<string, string>;
  /** Names given that mean nothing here. */
  readonly unknownNames: readonly string[];

  /** Throws an Error with a sentence for people when a value is illegal. */
  constructor(given: ReadonlyMap<string, string>) {
    for (const [name, value] of given) {
      const definition = byName.get(name);
      const problem = definition && checkConfigValue(definition, value);
      if (problem !== undefined) throw new Error(problem);
    }
    this.#values = given;
    this.unknownNames = [...given.keys()].filter(
      (name) => !byName.has(name) && !isPrefixedSecurityName(name),
    );
  }

  /** The text set by the operator, or undefined. */
  explicit(name: string): string | undefined {
    return this.#values.get(name);
  }

  /**
   * Whether the operator decides the value of `name`, also by a coarser setting that it follows.
   */
  isExplicit(name: string): boolean {
    const names = [name, ...(COARSER_SETTINGS.get(name) ?? [])];
    return names.some((each) => this.#values.has(each));
  }

  /** The text in force, or null. */
  value(name: string): string | null {
    const definition = present(byName.get(name), `broker setting ${name}`);
    return this.#values.get(name) ?? this.#derived(name) ?? definition.default;
  }

  #derived(name: string): string | undefined {
    if (name === 'log.roll.ms') return String(Number(this.value('log.roll.hours')) * 3_600_000);
    if (name !== 'log.retention.ms') return undefined;
    const minutes = this.#values.get('log.retention.minutes');
    const ms =
      minutes === undefined
        ? Number(this.value('log.retention.hours')) * 3_600_000
        : Number(minutes) * 60_000;
    return ms < 0 ? '-1' : String(ms);
  }

  text(name: string): string {
    return present(this.value(name), `value of ${name}`);
  }

  number(name: string): number {
    return Number(this.text(name));
  }

  boolean(name: string): boolean {
    return this.text(name).trim().toLowerCase() === 'true';
  }

  /** The text a topic setting has when the topic does not override it. */
  topicDefault(name: string): string {
    const definition = present(topicConfigDefinition(name), `topic setting ${name}`);
    const synonym = definition.brokerSynonym;
    return (synonym === undefined ? definition.default : this.value(synonym)) ?? '';
  }
}
