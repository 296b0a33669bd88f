/**
 * The settings a topic can have: one table, their broker-side defaults, and their checks.
 *
 * Used by the controller (through the TopicConfigValidator port) before a ConfigRecord is written,
 * by DescribeConfigs, and to make the LogConfig that storage works with. `mirror.name` (rule O2) is
 * a topic setting only inside the metadata log: it is in no table here, so no client can see or set
 * it.
 */
import {
  type ConfigDefinition,
  checkConfigValue,
  definitionTable,
  parseList,
} from './config-definition.ts';

const LONG_MAX = '9223372036854775807';
const DAY_MS = 86_400_000;
const BYTES_IN_GIB = 1024 ** 3;

/**
 * The topic settings of Apache Kafka 4.2 but those of tiered storage and compression levels, and
 * ours. `segment.bytes` keeps its old least value: a source before 4.0 may have set less than 1
 * MiB.
 */
export const topicConfigDefinitions: readonly ConfigDefinition[] = [
  {
    name: 'cleanup.policy',
    type: 'list',
    default: 'delete',
    values: ['delete', 'compact'],
    brokerSynonym: 'log.cleanup.policy',
    doc: 'What is done with old records: delete old segments, compact by key, or both.',
  },
  {
    name: 'compression.type',
    type: 'string',
    default: 'producer',
    values: ['uncompressed', 'zstd', 'lz4', 'snappy', 'gzip', 'producer'],
    brokerSynonym: 'compression.type',
    doc: 'The codec batches are stored in; `producer` keeps what the producer chose.',
  },
  {
    name: 'delete.retention.ms',
    type: 'long',
    default: String(DAY_MS),
    min: 0,
    brokerSynonym: 'log.cleaner.delete.retention.ms',
    doc: 'How long tombstones of compacted topics are kept.',
  },
  {
    name: 'file.delete.delay.ms',
    type: 'long',
    default: '60000',
    min: 0,
    brokerSynonym: 'log.segment.delete.delay.ms',
    doc: 'How long a file stays on disk after it left the log.',
  },
  {
    name: 'flush.messages',
    type: 'long',
    default: LONG_MAX,
    min: 1,
    brokerSynonym: 'log.flush.interval.messages',
    doc: 'Make the log durable (fsync) after so many records.',
  },
  {
    name: 'flush.ms',
    type: 'long',
    default: LONG_MAX,
    min: 0,
    brokerSynonym: 'log.flush.interval.ms',
    doc: 'Make the log durable (fsync) after so many milliseconds.',
  },
  {
    name: 'follower.replication.throttled.replicas',
    type: 'list',
    default: '',
    doc: 'Replicas (partition:broker, or *) whose following is throttled.',
  },
  {
    name: 'index.interval.bytes',
    type: 'int',
    default: '4096',
    min: 0,
    brokerSynonym: 'log.index.interval.bytes',
    doc: 'Bytes of log between two index entries.',
  },
  {
    name: 'leader.replication.throttled.replicas',
    type: 'list',
    default: '',
    doc: 'Replicas (partition:broker, or *) whose leading is throttled.',
  },
  {
    name: 'max.compaction.lag.ms',
    type: 'long',
    default: LONG_MAX,
    min: 1,
    brokerSynonym: 'log.cleaner.max.compaction.lag.ms',
    doc: 'The longest a record stays out of reach of compaction.',
  },
  {
    name: 'max.message.bytes',
    type: 'int',
    default: '1048588',
    min: 0,
    brokerSynonym: 'message.max.bytes',
    doc: 'The largest record batch a producer may send.',
  },
  {
    name: 'message.timestamp.after.max.ms',
    type: 'long',
    default: '3600000',
    min: 0,
    brokerSynonym: 'log.message.timestamp.after.max.ms',
    doc: 'How far in the future a record timestamp may be.',
  },
  {
    name: 'message.timestamp.before.max.ms',
    type: 'long',
    default: LONG_MAX,
    min: 0,
    brokerSynonym: 'log.message.timestamp.before.max.ms',
    doc: 'How far in the past a record timestamp may be.',
  },
  {
    name: 'message.timestamp.type',
    type: 'string',
    default: 'CreateTime',
    values: ['CreateTime', 'LogAppendTime'],
    brokerSynonym: 'log.message.timestamp.type',
    doc: 'Whether timestamps are the producer’s or the time of the append.',
  },
  {
    name: 'min.cleanable.dirty.ratio',
    type: 'double',
    default: '0.5',
    min: 0,
    max: 1,
    brokerSynonym: 'log.cleaner.min.cleanable.ratio',
    doc: 'Share of the log that must be uncompacted before compaction starts.',
  },
  {
    name: 'min.compaction.lag.ms',
    type: 'long',
    default: '0',
    min: 0,
    brokerSynonym: 'log.cleaner.min.compaction.lag.ms',
    doc: 'The least time a record stays uncompacted.',
  },
  {
    name: 'min.insync.replicas',
    type: 'int',
    default: '1',
    min: 1,
    brokerSynonym: 'min.insync.replicas',
    doc: 'Replicas that must be in sync for a write with acks=all.',
  },
  {
    name: 'mirror.replication.throttled.replicas',
    type: 'list',
    default: '',
    doc: 'Replicas (partition:broker, or *) whose mirroring is throttled (rule Q1).',
  },
  {
    name: 'preallocate',
    type: 'boolean',
    default: 'false',
    brokerSynonym: 'log.preallocate',
    doc: 'Accepted for compatibility; segments are never preallocated.',
  },
  {
    name: 'retention.bytes',
    type: 'long',
    default: '-1',
    brokerSynonym: 'log.retention.bytes',
    doc: 'Bytes a partition keeps before old segments are deleted; -1: no limit.',
  },
  {
    name: 'retention.ms',
    type: 'long',
    default: String(7 * DAY_MS),
    min: -1,
    brokerSynonym: 'log.retention.ms',
    doc: 'How long records are kept before old segments are deleted; -1: for ever.',
  },
  {
    name: 'segment.bytes',
    type: 'int',
    default: String(BYTES_IN_GIB),
    min: 14,
    brokerSynonym: 'log.segment.bytes',
    doc: 'Size of a log segment file.',
  },
  {
    name: 'segment.index.bytes',
    type: 'int',
    default: '10485760',
    min: 4,
    brokerSynonym: 'log.index.size.max.bytes',
    doc: 'Largest size of an index file; a full index rolls the segment.',
  },
  {
    name: 'segment.jitter.ms',
    type: 'long',
    default: '0',
    min: 0,
    brokerSynonym: 'log.roll.jitter.ms',
    doc: 'Random part subtracted from segment.ms.',
  },
  {
    name: 'segment.ms',
    type: 'long',
    default: String(7 * DAY_MS),
    min: 1,
    brokerSynonym: 'log.roll.ms',
    doc: 'Age at which a segment is rolled although it is not full.',
  },
  {
    name: 'unclean.leader.election.enable',
    type: 'boolean',
    default: 'false',
    brokerSynonym: 'unclean.leader.election.enable',
    doc: 'Whether a replica outside the ISR may become leader, losing records.',
  },
];

const byName = definitionTable(topicConfigDefinitions);

/** The definition of a topic setting, or undefined. */
export function topicConfigDefinition(name: string): ConfigDefinition | undefined {
  return byName.get(name);
}

/** A sentence on the first thing wrong with these overrides, or undefined (INVALID_CONFIG). */
export function checkTopicConfigs(overrides: ReadonlyMap<string, string>): string | undefined {
  for (const [name, value] of overrides) {
    const definition = byName.get(name);
    if (!definition) return `Unknown topic config name: ${name}.`;
    const problem = checkConfigValue(definition, value);
    if (problem !== undefined) return problem;
  }
  const throttled = [...overrides].find(([name, value]) => !isReplicaList(name, value));
  if (throttled !== undefined) {
    const [name, value] = throttled;
    return `Invalid value ${value} for configuration ${name}: write * or partition:broker,….`;
  }
  const before = overrides.get('min.compaction.lag.ms');
  const after = overrides.get('max.compaction.lag.ms');
  if (before !== undefined && after !== undefined && BigInt(before) > BigInt(after)) {
    return `min.compaction.lag.ms ${before} must not exceed max.compaction.lag.ms ${after}.`;
  }
  return undefined;
}

/** True for settings that are no list of throttled replicas. */
function isReplicaList(name: string, value: string): boolean {
  if (!name.endsWith('.replication.throttled.replicas')) return true;
  const elements = parseList(value);
  return value.trim() === '*' || elements.every((element) => /^\d+:\d+$/.test(element));
}

/** Whether `policy` (a cleanup.policy value) names `part`. */
export function hasCleanupPolicy(policy: string, part: 'delete' | 'compact'): boolean {
  return parseList(policy).includes(part);
}
