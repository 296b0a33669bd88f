/**
 * Mirror settings and names: what is accepted, and what is said about the rest.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  checkMirrorConfigs,
  checkMirrorName,
  mirrorSettingDefinitions,
  parseHostPort,
  parseMirrorSettings,
} from '../../src/mirror/settings.ts';

const BOOTSTRAP: [string, string] = ['bootstrap.servers', 'a:9092,b:9093'];

function check(...configs: [string, string][]): string | undefined {
  return checkMirrorConfigs(new Map(configs));
}

test('A2 an unknown key is refused and named', () => {
  assert.equal(check(BOOTSTRAP, ['no.such', '1']), 'Unknown mirror configuration: no.such.');
});

test('A2 bootstrap.servers must be present and made of addresses', () => {
  assert.equal(check(), 'Missing required configuration bootstrap.servers.');
  assert.match(check(['bootstrap.servers', 'a:9092,b']) ?? '', /b is not host:port/);
  assert.match(check(['bootstrap.servers', 'a:0']) ?? '', /a:0 is not host:port/);
  assert.equal(check(BOOTSTRAP), undefined);
});

test('A2 every setting accepts its own default', () => {
  for (const { name, default: value } of mirrorSettingDefinitions) {
    if (value !== null) assert.equal(check(BOOTSTRAP, [name, value]), undefined, name);
  }
});

test('A2 a bad value is refused with setting, value and reason', () => {
  const said = check(BOOTSTRAP, ['request.timeout.ms', 'soon']);
  const reason = 'it must be a whole number';
  assert.equal(said, `Invalid value soon for configuration request.timeout.ms: ${reason}.`);
  assert.match(check(BOOTSTRAP, ['request.timeout.ms', '0']) ?? '', /at least 1/);
  assert.match(check(BOOTSTRAP, ['mirror.topics.include', 'a,(']) ?? '', /\( is not a regular/);
  const policy = check(BOOTSTRAP, ['mirror.source.divergence.policy', 'hope']);
  assert.match(policy ?? '', /one of truncate, fail/);
});

test('A2 security is checked as a whole, and what is not built is refused', () => {
  const jaas = 'x.ScramLoginModule required username="u" password="hunter2";';
  const scram = ['security.protocol=SASL_SSL', 'sasl.mechanism=SCRAM-SHA-512'];
  const check = (...settings: string[]): string | undefined =>
    checkMirrorConfigs(
      new Map([BOOTSTRAP, ...settings.map((each) => each.split(/=(.*)/s, 2) as [string, string])]),
    );
  assert.equal(check(...scram, `sasl.jaas.config=${jaas}`), undefined);
  assert.match(check(...scram) ?? '', /^sasl\.jaas\.config must be/);
  const plain = check(...scram, 'sasl.mechanism=PLAIN', `sasl.jaas.config=${jaas}`) ?? '';
  assert.match(plain, /PlainLoginModule/);
  assert.doesNotMatch(plain, /hunter2/);
  assert.match(check('security.protocol=SASL_SSL', 'sasl.mechanism=OAUTHBEARER') ?? '', /OAUTH/);
  assert.match(check('ssl.truststore.type=JKS') ?? '', /one of PEM/);
  const { security } = parseMirrorSettings(
    new Map([
      BOOTSTRAP,
      ['security.protocol', 'SSL'],
      ['ssl.endpoint.identification.algorithm', ''],
    ]),
  );
  assert.equal(security?.tls?.checkHostName, false);
});

test('A6 a secret is not shown in a message', () => {
  const said = check(BOOTSTRAP, ['sasl.jaas.config', 'password=hunter2']);
  assert.doesNotMatch(said ?? '', /hunter2/);
});

test('O6 mirror names follow topic names and do not end in .removed', () => {
  assert.equal(checkMirrorName('dc1.to_dc-2'), undefined);
  assert.equal(checkMirrorName('x'.repeat(249)), undefined);
  assert.match(checkMirrorName('x'.repeat(250)) ?? '', /longer than 249/);
  assert.match(checkMirrorName('a b') ?? '', /characters other than/);
  assert.match(checkMirrorName('..') ?? '', /must not be \.\./);
  assert.match(checkMirrorName('m.removed') ?? '', /\.removed/);
  assert.match(checkMirrorName('') ?? '', /missing/);
  assert.match(checkMirrorName(null) ?? '', /missing/);
});

test('addresses are host:port, IPv6 in brackets', () => {
  assert.deepEqual(parseHostPort('[::1]:9092'), { host: '::1', port: 9092 });
  assert.deepEqual(parseHostPort(' kafka.example:1 '), { host: 'kafka.example', port: 1 });
  for (const bad of ['a', 'a:', ':1', 'a:70000', '::1:9092', 'a b:1']) {
    assert.equal(parseHostPort(bad), undefined, bad);
  }
});

test('settings that are not given have their defaults', () => {
  assert.deepEqual(parseMirrorSettings(new Map([BOOTSTRAP])), {
    bootstrapServers: [
      { host: 'a', port: 9092 },
      { host: 'b', port: 9093 },
    ],
    security: undefined,
    requestTimeoutMs: 30_000,
    metadataMaxAgeMs: 300_000,
    connectionSetupTimeoutMs: 10_000,
    reconnectBackoffMs: 50,
    reconnectBackoffMaxMs: 1000,
    retryBackoffMs: 100,
    lostAndFoundEnable: true,
    divergencePolicy: 'truncate',
    groupsInclude: ['.*'],
    groupsExclude: [],
    groupOffsetSyncIntervalMs: 1000,
    sourceClusterId: '',
  });
});
