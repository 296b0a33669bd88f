/**
 * The published package: packed, installed in an empty folder, run as a user would.
 *
 * What is installed must be the built JavaScript with all it needs, started by the Node that the
 * package brings, whatever the machine's own is.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const INSTALL_BOUND_MS = 240_000;

let folder = '';

function npm(args: readonly string[], cwd: string): string {
  const options = { cwd, encoding: 'utf8', timeout: INSTALL_BOUND_MS, stdio: 'pipe' } as const;
  return execFileSync('npm', args, options);
}

/** The environment that `npx` gives a command. */
function npxEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, PATH: `${join(folder, 'node_modules', '.bin')}:${process.env.PATH}` };
}

async function firstLine(child: ChildProcess): Promise<string> {
  assert.ok(child.stdout);
  for await (const line of createInterface({ input: child.stdout })) return line;
  throw new Error('the command ended without a line');
}

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'twinlog-package-'));
  npm(['pack', '--silent', '--pack-destination', folder], ROOT);
  const tarball = readdirSync(folder).find((name) => name.endsWith('.tgz'));
  assert.ok(tarball);
  npm(['init', '-y'], folder);
  npm(['install', '--no-audit', '--no-fund', join(folder, tarball)], folder);
});

after(() => rmSync(folder, { recursive: true, force: true }));

test('the installed command knows its version', () => {
  const options = { cwd: folder, env: npxEnvironment(), encoding: 'utf8' } as const;
  const { version } = JSON.parse(
    execFileSync('npm', ['pkg', 'get', '--json'], { cwd: ROOT, encoding: 'utf8' }),
  ) as { version: string };
  assert.equal(execFileSync('twinlog', ['--version'], options).trim(), version);
});

test('the installed command serves and stops cleanly', async () => {
  const args = ['serve', '--json', '--listen', '127.0.0.1:0', '--data', join(folder, 'data')];
  const child = spawn('twinlog', args, { cwd: folder, env: npxEnvironment() });
  const ended = new Promise<number | null>((resolve) => child.on('exit', resolve));
  const started = JSON.parse(await firstLine(child)) as { event: string; port: number };
  assert.equal(started.event, 'started');
  assert.ok(started.port > 0);
  child.kill('SIGTERM');
  assert.equal(await ended, 0);
});
