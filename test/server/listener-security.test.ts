/** What a broker's settings say of security, for one listener and for all. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Disk } from '../../src/io/runtime.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import {
  controllerSecurity,
  interBrokerListener,
  interBrokerSecurity,
  listenerProtocol,
  listenerSecurity,
} from '../../src/server/listener-security.ts';

const CERTIFICATE = '-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n';
const KEY = '-----BEGIN PRIVATE KEY-----\nBAUG\n-----END PRIVATE KEY-----\n';
const FILES: Readonly<Record<string, string>> = {
  '/all.pem': KEY + CERTIFICATE,
  '/inner.pem': `${KEY}${CERTIFICATE}${CERTIFICATE}`,
};
const disk = {
  readFile: (path: string) => (FILES[path] === undefined ? undefined : Buffer.from(FILES[path])),
} as Disk;

const PLAIN = 'x.PlainLoginModule required username="guest" password="p" user_admin="a";';
const SCRAM = 'x.ScramLoginModule required username="guest" password="s";';
const SETTINGS = {
  'listener.security.protocol.map': 'INNER:SASL_SSL,OUTER:SSL,CTRL:SASL_PLAINTEXT,OPEN:PLAINTEXT',
  'inter.broker.listener.name': 'inner',
  'controller.listener.names': 'CTRL',
  'sasl.mechanism.inter.broker.protocol': 'SCRAM-SHA-256',
  'sasl.mechanism.controller.protocol': 'PLAIN',
  'ssl.keystore.location': '/all.pem',
  'ssl.keystore.type': 'PEM',
  'ssl.client.auth': 'required',
  'listener.name.inner.ssl.keystore.location': '/inner.pem',
  'listener.name.inner.sasl.enabled.mechanisms': 'SCRAM-SHA-256,PLAIN',
  'listener.name.inner.plain.sasl.jaas.config': PLAIN,
  'listener.name.inner.scram-sha-256.sasl.jaas.config': SCRAM,
  'listener.name.ctrl.plain.sasl.jaas.config': PLAIN,
};

function configOf(changes: Readonly<Record<string, string>> = {}): BrokerConfig {
  return new BrokerConfig(new Map(Object.entries({ ...SETTINGS, ...changes })));
}

test('settings of a listener, or of a mechanism, are known ones', () => {
  assert.deepEqual(configOf({ 'listener.name.inner.nonsense': '1' }).unknownNames, [
    'listener.name.inner.nonsense',
  ]);
});

test('a listener has its own settings before those of all', () => {
  const inner = listenerSecurity(configOf(), disk, 'INNER');
  assert.equal(inner.tls?.identity.certificateChain, FILES['/inner.pem']);
  assert.equal(inner.tls?.clientAuth, 'none', 'where SASL authenticates');
  assert.deepEqual(inner.sasl?.mechanisms, ['PLAIN', 'SCRAM-SHA-256']);
  assert.deepEqual([...(inner.sasl?.plainUsers ?? [])], [['admin', 'a']]);
  const outer = listenerSecurity(configOf(), disk, 'OUTER');
  assert.equal(outer.tls?.identity.certificateChain, FILES['/all.pem']);
  assert.equal(outer.tls?.clientAuth, 'required');
  assert.equal(outer.sasl, undefined);
  const open = listenerSecurity(configOf(), disk, 'OPEN');
  assert.deepEqual(Object.keys(open).sort(), ['principalOf', 'protocol']);
  assert.equal(open.principalOf('CN=a'), 'CN=a');
});

test('G35 brokers and controllers are reached as their listeners want it', () => {
  const config = configOf();
  assert.equal(interBrokerListener(config), 'INNER');
  const brokers = interBrokerSecurity(config, disk);
  const scram = { mechanism: 'SCRAM-SHA-256', username: 'guest', password: 's' };
  assert.deepEqual(brokers?.sasl, scram);
  assert.equal(brokers?.tls?.checkHostName, true);
  const controllers = controllerSecurity(config, disk);
  assert.deepEqual(controllers, { sasl: { mechanism: 'PLAIN', username: 'guest', password: 'p' } });
  const plain = new BrokerConfig(new Map([['security.inter.broker.protocol', 'PLAINTEXT']]));
  assert.equal(interBrokerListener(plain), 'PLAINTEXT');
  assert.equal(interBrokerSecurity(plain, disk), undefined);
  assert.equal(controllerSecurity(plain, disk), undefined);
});

test('A6 what is wrong stops the start, named, without a secret', () => {
  const wrong: [Record<string, string>, string, RegExp][] = [
    [{ 'listener.name.inner.sasl.enabled.mechanisms': 'GSSAPI' }, 'INNER', /some of PLAIN/],
    [{ 'listener.name.inner.plain.sasl.jaas.config': 'hunter2' }, 'INNER', /user_NAME/],
    [{ 'ssl.keystore.location': '/none.pem' }, 'OUTER', /Listener OUTER: .*no file \/none/],
    [{}, 'NOWHERE', /no protocol for listener NOWHERE/],
    [
      { 'ssl.principal.mapping.rules': 'RULE:' },
      'OUTER',
      /principal\.mapping\.rules: RULE: begins/,
    ],
  ];
  for (const [changes, listener, message] of wrong) {
    assert.throws(
      () => listenerSecurity(configOf(changes), disk, listener),
      (error: Error) => message.test(error.message) && !/hunter2/.test(error.message),
    );
  }
  const mechanism = { 'sasl.mechanism.inter.broker.protocol': 'GSSAPI' };
  assert.throws(() => interBrokerSecurity(configOf(mechanism), disk), {
    message: /^Listener INNER: sasl\.mechanism\.inter\.broker\.protocol is GSSAPI/,
  });
  assert.equal(listenerProtocol(configOf(), 'CTRL'), 'SASL_PLAINTEXT');
});
