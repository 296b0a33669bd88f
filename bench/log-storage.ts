/**
 * The rows of `npm run bench -- log` that measure the log itself, without a broker around it: each
 * in a fresh process (bench/log-task.ts), in a directory of its own.
 */
import { join } from 'node:path';
import { removeDirectory, run, runOrThrow, temporaryDirectory } from '../test/interop/processes.ts';
import type { LogTask } from './log-task.ts';
import type { Measurement } from './report.ts';

const SCRIPT = join(import.meta.dirname, 'log-task.ts');
const TASK_BOUND_MS = 600_000;
const KIB = 1024;

/** A row: what it is called, and how one run of it is made. */
export interface StorageRow {
  readonly scenario: string;
  readonly name: string;
  readonly measure: () => Promise<Measurement>;
}

async function task(name: string, options: LogTask): Promise<Measurement> {
  const args = [SCRIPT, name, JSON.stringify(options)];
  const { stdout } = await runOrThrow(process.execPath, args, { timeoutMs: TASK_BOUND_MS });
  return JSON.parse(stdout) as Measurement;
}

async function inDirectory<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = temporaryDirectory('bench-log');
  try {
    return await work(join(directory, 'data'));
  } finally {
    removeDirectory(directory);
  }
}

/** A log of `megabytes` that was not closed. */
async function fill(options: LogTask): Promise<void> {
  const args = [SCRIPT, 'fill', JSON.stringify(options)];
  const { signal } = await run(process.execPath, args, { timeoutMs: TASK_BOUND_MS });
  if (signal !== 'SIGKILL') throw new Error('the log was not filled');
  await runOrThrow('sync', [], { timeoutMs: TASK_BOUND_MS }); // no writing back meanwhile
}

function appendRow(
  how: 'appendAsLeader' | 'appendAsFollower',
  batchKib: number,
  megabytes: number,
  compression: LogTask['compression'] = 'none',
): StorageRow {
  const batchBytes = batchKib * KIB;
  const codec = compression === 'none' ? '' : `, ${compression}`;
  return {
    scenario: how === 'appendAsLeader' ? 'append as leader' : 'append as follower',
    name: `batches of ${batchKib} KiB${codec}`,
    measure: () =>
      inDirectory((directory) => task(how, { directory, batchBytes, megabytes, compression })),
  };
}

function filledRow(scenario: string, name: string, kind: string, megabytes: number): StorageRow {
  return {
    scenario,
    name,
    measure: () =>
      inDirectory(async (directory) => {
        const options: LogTask = {
          directory,
          batchBytes: 64 * KIB,
          megabytes,
          compression: 'none',
        };
        await fill(options);
        return await task(kind, options);
      }),
  };
}

/** All rows; `megabytes` is how much each of them writes. */
export function storageRows(megabytes: number): StorageRow[] {
  const rows: StorageRow[] = [];
  for (const how of ['appendAsLeader', 'appendAsFollower'] as const) {
    for (const batchKib of [1, 16, 64, 1024]) rows.push(appendRow(how, batchKib, megabytes));
    rows.push(appendRow(how, 64, megabytes, 'lz4'));
  }
  rows.push(filledRow('read', 'sequential, 1 MiB each', 'readSequentially', megabytes));
  rows.push(filledRow('read', 'random, 64 KiB each', 'readAtRandom', megabytes));
  rows.push(filledRow('recovery', 'unclean tail, batches of 64 KiB', 'recover', megabytes));
  for (const kind of ['roll', 'truncate'] as const) {
    rows.push({
      scenario: 'roll and cut',
      name: kind === 'roll' ? 'roll' : 'truncate by a record, durably',
      measure: () =>
        inDirectory((directory) => {
          const options: LogTask = {
            directory,
            batchBytes: KIB,
            megabytes: 16,
            compression: 'none',
          };
          return task(kind, options);
        }),
    });
  }
  return rows;
}
