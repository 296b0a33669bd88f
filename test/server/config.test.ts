/** Settings: tables against Apache Kafka's, checks and messages, values in force, LogConfig. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigResourceType, emptyImage } from '../../src/metadata/image.ts';
import {
  BrokerConfig,
  brokerConfigDefinition,
  brokerConfigDefinitions,
  parseListener,
} from '../../src/server/broker-config.ts';
import {
  type ConfigDefinition,
  checkConfigValue,
  definitionTable,
  parseList,
} from '../../src/server/config-definition.ts';
import { logConfigOf } from '../../src/server/log-config.ts';
import {
  checkTopicConfigs,
  topicConfigDefinition,
  topicConfigDefinitions,
} from '../../src/server/topic-config.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { configRecord, imageOf } from './fakes.ts';

/** What LogConfig of Apache Kafka 4.2.0 defines: name, type, default, least, greatest. */
const APACHE_TOPIC_CONFIGS = `
cleanup.policy list delete
compression.gzip.level int -1
compression.lz4.level int 9
compression.type string producer
compression.zstd.level int 3
delete.retention.ms long 86400000 0
file.delete.delay.ms long 60000 0
flush.messages long 9223372036854775807 1
flush.ms long 9223372036854775807 0
follower.replication.throttled.replicas list -
index.interval.bytes int 4096 0
leader.replication.throttled.replicas list -
local.retention.bytes long -2 -2
local.retention.ms long -2 -2
max.compaction.lag.ms long 9223372036854775807 1
max.message.bytes int 1048588 0
message.timestamp.after.max.ms long 3600000 0
message.timestamp.before.max.ms long 9223372036854775807 0
message.timestamp.type string CreateTime
min.cleanable.dirty.ratio double 0.5 0 1
min.compaction.lag.ms long 0 0
min.insync.replicas int 1 1
preallocate boolean false
remote.log.copy.disable boolean false
remote.log.delete.on.disable boolean false
remote.storage.enable boolean false
retention.bytes long -1
retention.ms long 604800000 -1
segment.bytes int 1073741824 1048576
segment.index.bytes int 10485760 4
segment.jitter.ms long 0 0
segment.ms long 604800000 1
unclean.leader.election.enable boolean false`;

/** Where the table differs on purpose. */
const TIERED_STORAGE = /^(local\.|remote\.)/;
const COMPRESSION_LEVEL = /^compression\.\w+\.level$/;
/** A source older than 4.0 may have smaller segments; a mirror takes its settings over. */
const WIDER: ReadonlyMap<string, string> = new Map([
  ['segment.bytes', 'segment.bytes int 1073741824 14'],
]);
const OWN = ['mirror.replication.throttled.replicas'];

function line({ name, type, default: value, min, max }: ConfigDefinition): string {
  const text = value === '' ? '-' : value;
  return [name, type, text, min, max].filter((part) => part !== undefined).join(' ');
}

test('topic settings are those of Apache Kafka 4.2, but for the listed differences', () => {
  const apache = APACHE_TOPIC_CONFIGS.trim()
    .split('\n')
    .map((each) => WIDER.get(each.split(' ')[0] ?? '') ?? each)
    .filter((each) => !TIERED_STORAGE.test(each))
    .filter((each) => !COMPRESSION_LEVEL.test(each.split(' ')[0] ?? ''));
  const ours = topicConfigDefinitions.filter(({ name }) => !OWN.includes(name)).map(line);
  assert.deepEqual(ours, apache);
});

test('every default passes its own check', () => {
  for (const definition of [...topicConfigDefinitions, ...brokerConfigDefinitions]) {
    if (definition.default === null) continue;
    assert.equal(checkConfigValue(definition, definition.default), undefined, definition.name);
  }
  const defaults = topicConfigDefinitions.map((each) => [each.name, each.default ?? ''] as const);
  assert.equal(checkTopicConfigs(new Map(defaults)), undefined);
});

test('a bad value is told with setting, value and what is legal', () => {
  const cases: [name: string, value: string, legal: RegExp][] = [
    ['retention.ms', '', /whole number/],
    ['retention.ms', '-2', /at least -1/],
    ['retention.ms', '9223372036854775808', /fit a long/],
    ['segment.bytes', '2147483648', /fit a int/],
    ['segment.ms', '1.5', /whole number/],
    ['min.cleanable.dirty.ratio', 'half', /a number/],
    ['min.cleanable.dirty.ratio', '1.01', /at most 1/],
    ['preallocate', 'yes', /true or false/],
    ['cleanup.policy', 'delete,shred', /one of delete, compact/],
    ['compression.type', 'LZ4', /one of uncompressed, zstd, lz4, snappy, gzip, producer/],
    ['leader.replication.throttled.replicas', '1:2,*', /\* or partition:broker/],
  ];
  for (const [name, value, legal] of cases) {
    const problem = checkTopicConfigs(new Map([[name, value]])) ?? '';
    assert.ok(problem.includes(`Invalid value ${value} for configuration ${name}: `), problem);
    assert.match(problem, legal);
  }
});

test('what Apache Kafka takes is taken: blanks, signs, capitals, empty lists', () => {
  const legal: [string, string][] = [
    ['cleanup.policy', ''],
    ['cleanup.policy', 'compact, delete'],
    ['unclean.leader.election.enable', ' TRUE '],
    ['retention.ms', '+5'],
    ['retention.bytes', '-7'],
    ['min.cleanable.dirty.ratio', '1e-1'],
    ['compression.type', ' lz4'],
    ['follower.replication.throttled.replicas', '1:2,3:4'],
    ['follower.replication.throttled.replicas', '*'],
  ];
  for (const [name, value] of legal) {
    assert.equal(checkTopicConfigs(new Map([[name, value]])), undefined, `${name}=${value}`);
  }
});

test('O2: mirror.name is no topic setting; unknown names and crossed limits are refused', () => {
  assert.equal(topicConfigDefinition('mirror.name'), undefined);
  assert.match(checkTopicConfigs(new Map([['mirror.name', 'm']])) ?? '', /Unknown.*mirror\.name/);
  const crossed = new Map([
    ['min.compaction.lag.ms', '9'],
    ['max.compaction.lag.ms', '8'],
  ]);
  assert.match(checkTopicConfigs(crossed) ?? '', /min\.compaction\.lag\.ms 9.*8/);
});

test('a broker refuses bad values and reports unknown names', () => {
  assert.throws(() => new BrokerConfig(new Map([['num.partitions', '0']])), /num\.partitions.*1/);
  const config = new BrokerConfig(new Map([['process.roles', 'broker']]));
  assert.deepEqual(config.unknownNames, ['process.roles']);
  assert.equal(config.number('num.partitions'), 1);
  assert.equal(config.value('broker.rack'), null);
  assert.equal(brokerConfigDefinition('no.such'), undefined);
});

test('coarser retention settings give way to finer ones', () => {
  const retention = (given: Record<string, string>): string =>
    new BrokerConfig(new Map(Object.entries(given))).topicDefault('retention.ms');
  assert.equal(retention({}), '604800000');
  assert.equal(retention({ 'log.retention.hours': '2' }), '7200000');
  assert.equal(retention({ 'log.retention.hours': '-1' }), '-1');
  assert.equal(retention({ 'log.retention.hours': '2', 'log.retention.minutes': '3' }), '180000');
  assert.equal(retention({ 'log.retention.minutes': '3', 'log.retention.ms': '4' }), '4');
  assert.equal(
    new BrokerConfig(new Map([['log.roll.hours', '1']])).topicDefault('segment.ms'),
    '3600000',
  );
});

test('listeners are parsed, and a bad one is told how to be written', () => {
  assert.deepEqual(parseListener(' plaintext://[::1]:9092'), {
    name: 'PLAINTEXT',
    host: '::1',
    port: 9092,
  });
  for (const bad of ['127.0.0.1:9092', 'PLAINTEXT://h', 'PLAINTEXT://h:65536', 'PLAINTEXT://h:x']) {
    assert.throws(() => parseListener(bad), /PLAINTEXT:\/\/HOST:PORT/, bad);
  }
  assert.deepEqual(parseListener('SASL_SSL://h:1'), { name: 'SASL_SSL', host: 'h', port: 1 });
  assert.throws(() => parseListener('INTERNAL://h:1'), /no security protocol for INTERNAL/);
  const map = new Map([['INTERNAL', 'SSL']]);
  assert.equal(parseListener('internal://h:1', map).name, 'INTERNAL');
});

test('LogConfig: defaults are storage’s own', () => {
  const config = new BrokerConfig(new Map());
  assert.deepEqual(logConfigOf('t', emptyImage('c'), config), DEFAULT_LOG_CONFIG);
});

test('LogConfig: overrides beat broker defaults, whatever their blanks and capitals', () => {
  const config = new BrokerConfig(
    new Map([
      ['log.segment.bytes', '1000'],
      ['message.max.bytes', '2000'],
    ]),
  );
  const set = (key: string, value: string) =>
    configRecord(ConfigResourceType.TOPIC, 't', key, value);
  const image = imageOf([
    set('max.message.bytes', ' 77 '),
    set('unclean.leader.election.enable', 'TRUE'),
    set('compression.type', 'uncompressed'),
    set('cleanup.policy', 'compact, delete'),
    set('retention.bytes', '9007199254740993'),
    configRecord(ConfigResourceType.TOPIC, 'other', 'segment.bytes', '5000'),
  ]);
  assert.deepEqual(logConfigOf('t', image, config), {
    ...DEFAULT_LOG_CONFIG,
    segmentBytes: 1000,
    maxMessageBytes: 77,
    uncleanLeaderElectionEnable: true,
    compressionType: 'none',
    cleanupPolicy: 'delete,compact',
    retentionBytes: Number.MAX_SAFE_INTEGER,
  });
});

test('lists and tables', () => {
  assert.deepEqual(parseList(' a, b ,c '), ['a', 'b', 'c']);
  assert.deepEqual(parseList('  '), []);
  const twice = { name: 'x', type: 'int', default: '1', doc: '' } as const;
  assert.throws(() => definitionTable([twice, twice]), /same name/);
});
