/** Tables, addresses and settings from the command line. */
import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { brokerConfig, parseSetting } from '../../src/cli/broker-process.ts';
import { CommandError, parseAddress, table } from '../../src/cli/output.ts';

function usageError(pattern: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof CommandError);
    assert.equal(error.exitCode, 2);
    assert.match(error.message, pattern);
    return true;
  };
}

test('a table pads to the widest cell, numbers and the dashes among them to the right', () => {
  const rows = [
    ['long name', 1234, '-', ''],
    ['x', '-', '-', 'last'],
  ];
  assert.deepEqual(table(['NAME', 'N', 'D', 'C'], rows), [
    'NAME           N  D  C',
    'long name  1,234  -',
    'x              -  -  last',
  ]);
  assert.deepEqual(table(['A', 'B'], []), ['A  B']);
});

test('addresses: HOST:PORT and [v6]:PORT, anything else names the option', () => {
  assert.deepEqual(parseAddress(' broker-1.example:9092 ', '--source'), {
    host: 'broker-1.example',
    port: 9092,
  });
  assert.deepEqual(parseAddress('[::1]:65535', '--source'), { host: '::1', port: 65_535 });
  for (const bad of [
    '',
    'h',
    'h:',
    ':1',
    'h:65536',
    'h:x',
    '::1:9092',
    'PLAINTEXT://h:1',
    'a:1,b:2',
  ]) {
    assert.throws(() => parseAddress(bad, '--source'), usageError(/^--source .*HOST:PORT/), bad);
  }
});

test('settings: name=value, the value may hold more of them', () => {
  assert.deepEqual(parseSetting(' a.b = c=d '), ['a.b', 'c=d']);
  assert.deepEqual(parseSetting('a='), ['a', '']);
  for (const bad of ['a', '=b', '']) {
    assert.throws(() => parseSetting(bad), usageError(/name=value/), bad);
  }
});

test('broker settings: file, then options, then --set; defaults override nothing', (t) => {
  const properties = join(tmpdir(), `twinlog-test-${process.pid}.properties`);
  t.after(() => rmSync(properties));
  writeFileSync(
    properties,
    '# mine\r\nlog.dirs = /from-file\nlisteners=PLAINTEXT://h:1\n\nnode.id=7\n',
  );
  const base = { set: [], logLevel: 'warn' } as const;
  const plain = brokerConfig(base, 19_092);
  assert.equal(plain.text('listeners'), 'PLAINTEXT://127.0.0.1:19092');
  assert.equal(plain.text('log.dirs'), 'twinlog-data');
  const fromFile = brokerConfig({ ...base, properties }, 19_092);
  assert.deepEqual(
    ['log.dirs', 'listeners', 'node.id'].map((name) => fromFile.text(name)),
    ['/from-file', 'PLAINTEXT://h:1', '7'],
  );
  const options = { data: '/option', listen: 'o:2', set: ['node.id=8', 'log.dirs=/set'] };
  const all = brokerConfig({ ...base, properties, ...options }, 19_092);
  assert.deepEqual(
    ['log.dirs', 'listeners', 'node.id'].map((name) => all.text(name)),
    ['/set', 'PLAINTEXT://o:2', '8'],
  );
  const bad = { ...base, set: ['num.partitions=none'] };
  assert.throws(() => brokerConfig(bad, 1), usageError(/num\.partitions.*whole number/));
  assert.throws(() => brokerConfig({ ...base, listen: 'x' }, 1), usageError(/--listen x/));
  const absent = { ...base, properties: '/no/such/file' };
  assert.throws(() => brokerConfig(absent, 1), usageError(/\/no\/such\/file: ENOENT/));
});
