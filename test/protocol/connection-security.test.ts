/** Client settings of Kafka, as connections understand them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connectionSecurity, protocolCode } from '../../src/protocol/connection-security.ts';
import { parseJaas } from '../../src/protocol/jaas.ts';
import { normalPem } from '../../src/protocol/pem.ts';

const PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule';
const SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule';
const CERTIFICATE = '-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n';
const KEY = '-----BEGIN PRIVATE KEY-----\nBAUG\n-----END PRIVATE KEY-----\n';

function secured(
  settings: Readonly<Record<string, string>>,
  files: Readonly<Record<string, string>> = {},
) {
  return connectionSecurity({
    value: (name) => settings[name],
    readFile: (path) => (files[path] === undefined ? undefined : Buffer.from(files[path])),
  });
}

test('JAAS texts: module, options, quotes', () => {
  const users = parseJaas(`${PLAIN} required user_a="x;y=\\"z" user_b='q' n=1 ;`);
  assert.equal(users?.module, 'PlainLoginModule');
  assert.deepEqual(
    [...(users?.options ?? [])],
    [
      ['user_a', 'x;y="z'],
      ['user_b', 'q'],
      ['n', '1'],
    ],
  );
  assert.deepEqual(parseJaas(`${SCRAM} required;`)?.options.size, 0);
  for (const bad of [
    '',
    PLAIN,
    `${PLAIN} must a="b";`,
    `${PLAIN} required a="b"`,
    'a required b;',
  ]) {
    assert.equal(parseJaas(bad), undefined, bad);
  }
});

test('PEM in one line gets lines, whatever else there is stays', () => {
  const long = 'A'.repeat(100);
  const line = `-----BEGIN CERTIFICATE----- ${long} -----END CERTIFICATE-----`;
  const lines = `-----BEGIN CERTIFICATE-----\n${'A'.repeat(64)}\n${'A'.repeat(36)}\n`;
  assert.equal(normalPem(line), `${lines}-----END CERTIFICATE-----\n`);
  assert.equal(normalPem(normalPem(line)).trim(), normalPem(line).trim());
});

test('§12: every security protocol from its settings', () => {
  assert.equal(secured({}), undefined);
  assert.equal(secured({ 'security.protocol': 'PLAINTEXT', 'sasl.mechanism': 'X' }), undefined);
  const jaas = `${SCRAM} required username="bob" password="b;c";`;
  const sasl = { 'sasl.mechanism': 'SCRAM-SHA-512', 'sasl.jaas.config': jaas };
  const plain = secured({ 'security.protocol': 'SASL_PLAINTEXT', ...sasl });
  const credentials = { mechanism: 'SCRAM-SHA-512', username: 'bob', password: 'b;c' };
  assert.deepEqual(plain, { sasl: credentials });
  const both = secured({
    'security.protocol': 'SASL_SSL',
    'ssl.truststore.certificates': CERTIFICATE,
    'ssl.endpoint.identification.algorithm': '',
    ...sasl,
  });
  const tls = { trusted: CERTIFICATE, identity: undefined, checkHostName: false };
  assert.deepEqual(both, { tls, sasl: credentials });
  const files = {
    'security.protocol': 'SSL',
    'ssl.keystore.type': 'PEM',
    'ssl.keystore.location': '/k.pem',
    'ssl.key.password': 'p',
  };
  const identity = secured(files, { '/k.pem': KEY + CERTIFICATE })?.tls?.identity;
  const text = KEY + CERTIFICATE;
  assert.deepEqual(identity, { certificateChain: text, key: text, keyPassword: 'p' });
  assert.deepEqual(
    [undefined, { tls: {} as never }, plain, both].map((each) => protocolCode(each)),
    [0, 1, 2, 3],
  );
});

test('A6: what is wrong is told by its name, without a secret', () => {
  const jaas = `${PLAIN} required username="u" password="hunter2";`;
  const sasl = { 'security.protocol': 'SASL_SSL', 'sasl.mechanism': 'SCRAM-SHA-256' };
  const wrong: [Record<string, string>, RegExp][] = [
    [{ 'security.protocol': 'TLS' }, /^security\.protocol must be/],
    [{ 'security.protocol': 'SASL_SSL' }, /^sasl\.mechanism is missing/],
    [{ ...sasl, 'sasl.mechanism': 'OAUTHBEARER' }, /OAUTHBEARER, which is not supported/],
    [{ ...sasl, 'sasl.jaas.config': jaas }, /^sasl\.jaas\.config .*ScramLoginModule/],
    [{ ...sasl, 'sasl.jaas.config': `${SCRAM} required username="hunter2";` }, /^sasl\.jaas/],
    [{ 'security.protocol': 'SSL', 'ssl.keystore.key': 'hunter2' }, /set together/],
    [{ 'security.protocol': 'SSL', 'ssl.truststore.certificates': 'hunter2' }, /no PEM block/],
    [{ 'security.protocol': 'SSL', 'ssl.truststore.type': 'JKS' }, /type must be PEM/],
    [
      {
        'security.protocol': 'SSL',
        'ssl.truststore.type': 'PEM',
        'ssl.truststore.location': '/nowhere',
      },
      /there is no file \/nowhere/,
    ],
  ];
  for (const [settings, message] of wrong) {
    assert.throws(
      () => secured(settings),
      (error: Error) => message.test(error.message) && !error.message.includes('hunter2'),
      JSON.stringify(settings),
    );
  }
});
