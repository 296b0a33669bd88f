/** Files with client settings, as Kafka's tools take them. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { commandSecurity, mirrorSettings } from '../../src/cli/client-config.ts';
import { parseProperties } from '../../src/cli/properties.ts';
import { checkMirrorConfigs } from '../../src/mirror/settings.ts';

const directory = mkdtempSync(join(tmpdir(), 'twinlog-client-'));
after(() => rmSync(directory, { recursive: true }));

function file(name: string, lines: readonly string[]): string {
  const path = join(directory, name);
  writeFileSync(path, `${lines.join('\n')}\n`);
  return path;
}

const CERTIFICATE = '-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n';
const KEY = '-----BEGIN PRIVATE KEY-----\nBAUG\n-----END PRIVATE KEY-----\n';

test('properties: comments, separators, continued lines, escapes', () => {
  const text = [
    '# a comment',
    '! another = one',
    '',
    'a=1',
    '  b : two words  ',
    'c 3',
    'd\\=e = x=y',
    'long = one, \\',
    '    two, \\',
    '    three',
    'tab=\\t|\\u00e4|\\\\',
    'empty=',
    'pem=-----BEGIN X-----\\nAQ==\\n-----END X-----',
  ].join('\n');
  assert.deepEqual(parseProperties(text), [
    ['a', '1'],
    ['b', 'two words'],
    ['c', '3'],
    ['d=e', 'x=y'],
    ['long', 'one, two, three'],
    ['tab', '\t|ä|\\'],
    ['empty', ''],
    ['pem', '-----BEGIN X-----\nAQ==\n-----END X-----'],
  ]);
});

test('a command connects as its file says', () => {
  const trust = file('ca.pem', [CERTIFICATE]);
  const path = file('client', [
    'security.protocol=SASL_SSL',
    'sasl.mechanism=PLAIN',
    'sasl.jaas.config=a.PlainLoginModule required username="u" password="p";',
    'ssl.truststore.type=PEM',
    `ssl.truststore.location=${trust}`,
    'request.timeout.ms=5',
  ]);
  const security = commandSecurity(path);
  assert.deepEqual(security?.sasl, { mechanism: 'PLAIN', username: 'u', password: 'p' });
  assert.equal(security?.tls?.trusted, CERTIFICATE);
  assert.equal(commandSecurity(undefined), undefined);
  assert.throws(() => commandSecurity(join(directory, 'none')), /Cannot read .*none: ENOENT/);
  const bad = file('bad', ['security.protocol=SASL_SSL', 'sasl.mechanism=GSSAPI']);
  assert.throws(() => commandSecurity(bad), /bad: sasl\.mechanism is GSSAPI, which is not/);
});

test("files that a mirror's settings name become part of them", () => {
  const store = file('keystore.pem', [KEY, CERTIFICATE]);
  const path = file('source', [
    'security.protocol=SSL',
    'ssl.keystore.type=PEM',
    `ssl.keystore.location=${store}`,
  ]);
  const settings = new Map(mirrorSettings(path));
  assert.equal(settings.has('ssl.keystore.location'), false);
  assert.match(settings.get('ssl.keystore.key') ?? '', /BEGIN PRIVATE KEY/);
  settings.set('bootstrap.servers', 'a:1');
  assert.equal(checkMirrorConfigs(settings), undefined);
  const jks = file('jks', ['ssl.keystore.type=JKS', `ssl.keystore.location=${store}`]);
  assert.throws(() => mirrorSettings(jks), /must be a PEM file/);
});
