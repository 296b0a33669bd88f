/** The command itself: help, version, exit codes; each case is a process of its own. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const MAIN = new URL('../../src/cli/main.ts', import.meta.url).pathname;
const PACKAGE = new URL('../../package.json', import.meta.url);
/** Nothing listens there: only root may. */
const NOBODY = '127.0.0.1:1';

function twinlog(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, ...args], {
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

test('--version and --help', () => {
  const { version } = JSON.parse(readFileSync(PACKAGE, 'utf8')) as { version: string };
  assert.deepEqual(twinlog('--version'), { status: 0, stdout: `${version}\n`, stderr: '' });
  const help = twinlog('--help');
  assert.deepEqual([help.status, help.stderr], [0, '']);
  for (const command of ['serve', 'mirror', 'mirrors', 'quickstart', 'dump-log']) {
    assert.match(help.stdout, new RegExp(`^  ${command} .*\\S`, 'm'));
  }
  assert.ok(help.stdout.split('\n').every((line) => line.length <= 80));
  const serve = twinlog('serve', '--help').stdout;
  for (const shown of [/default: "twinlog-data"/, /default: "127\.0\.0\.1:9092"/]) {
    assert.match(serve, shown);
  }
  assert.doesNotMatch(serve, /default: (\[\]|false)/);
});

test('a wrong command line exits with 2 and says what is wrong on stderr alone', () => {
  const cases: [args: string[], message: RegExp][] = [
    [['bogus'], /unknown command 'bogus'/],
    [['serve', '--log-level', 'loud'], /--log-level.*Allowed choices/],
    [['mirrors', 'create', 'm'], /required option '--source/],
    [['mirrors', 'list', '--bootstrap-server', 'nope'], /--bootstrap-server nope: .*HOST:PORT/],
    [['serve', '--set', 'num.partitions=0'], /num\.partitions: it must be at least 1/],
    [['mirror', '--source', NOBODY, '--topics', '['], /--topics \[: /],
    [['quickstart', '--rate', 'fast'], /--rate.*whole number/],
  ];
  for (const [args, message] of cases) {
    const { status, stdout, stderr } = twinlog(...args);
    assert.deepEqual([status, stdout], [2, ''], args.join(' '));
    assert.match(stderr, message);
    assert.doesNotMatch(stderr, /^\s+at /m, 'no stack trace');
  }
});

test('what cannot be done exits with 1 and one sentence', () => {
  const unreachable = twinlog('mirrors', 'list', '--bootstrap-server', `${NOBODY},${NOBODY}`);
  assert.deepEqual(unreachable, {
    status: 1,
    stdout: '',
    stderr:
      `twinlog: Cannot reach twinlog at ${NOBODY},${NOBODY}: ECONNREFUSED. ` +
      'Check that it runs and that the address is right.\n',
  });
  const source = twinlog('mirror', '--source', NOBODY, '--json');
  assert.equal(source.status, 1);
  assert.match(source.stderr, /^twinlog: Cannot reach the source at 127\.0\.0\.1:1: ECONNREFUSED/);
});
