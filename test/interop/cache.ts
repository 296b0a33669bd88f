/**
 * The cache folder of the interop tests: things fetched or built once per machine, not per run.
 *
 * - Everything lies under `.cache/` of the repository (git-ignored); removing it is always safe.
 * - `buildOnce` is safe against several test processes at a time: one builds beside the target and
 *   renames it into place, the others wait. A finished entry is never changed.
 */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export const REPOSITORY = dirname(dirname(import.meta.dirname));
export const CACHE = join(REPOSITORY, '.cache');

/** A builder that does not finish in this time is taken for dead and its lock is broken. */
const BUILD_LIMIT_MS = 240_000;

function holderIsAlive(lock: string): boolean {
  try {
    const pid = Number(readFileSync(join(lock, 'pid'), 'utf8'));
    process.kill(pid, 0);
    return Date.now() - statSync(lock).mtimeMs < BUILD_LIMIT_MS;
  } catch {
    // No pid yet (the holder is between mkdir and write) or no such process.
    return existsSync(lock) && Date.now() - statSync(lock).mtimeMs < 2_000;
  }
}

function tryLock(lock: string): boolean {
  try {
    mkdirSync(lock);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns `target`, after `build(temporaryPath)` has made it if it did not exist: `build` must
 * leave a file or directory at the path it is given.
 */
export async function buildOnce(
  target: string,
  build: (temporaryPath: string) => Promise<void>,
): Promise<string> {
  if (existsSync(target)) return target;
  mkdirSync(dirname(target), { recursive: true });
  const lock = `${target}.lock`;
  while (!tryLock(lock)) {
    if (existsSync(target)) return target;
    if (!holderIsAlive(lock)) rmSync(lock, { recursive: true, force: true });
    await sleep(100);
  }
  try {
    if (existsSync(target)) return target;
    writeFileSync(join(lock, 'pid'), String(process.pid));
    const temporary = `${target}.${process.pid}.tmp`;
    rmSync(temporary, { recursive: true, force: true });
    try {
      await build(temporary);
      renameSync(temporary, target);
    } finally {
      rmSync(temporary, { recursive: true, force: true });
    }
    return target;
  } finally {
    rmSync(lock, { recursive: true, force: true });
  }
}

/** A short hash over files and strings, to key cache entries by what they are built from. */
export function contentKey(files: readonly string[], ...strings: readonly string[]): string {
  const hash = createHash('sha256');
  for (const file of files) hash.update(readFileSync(file));
  for (const string of strings) hash.update(string);
  return hash.digest('hex').slice(0, 12);
}
