/**
 * A disk that can be filled: a small tmpfs that only a holder process and those who enter its mount
 * namespace see, so nothing stays mounted when a test dies. Where that is not allowed (no root),
 * a limit on the size of files of the broker's process, which fails writes just as well.
 */
import { rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { run, runOrThrow, spawnManaged } from './processes.ts';
import { TwinlogBroker, type TwinlogOptions } from './twinlog.ts';

const DISK_BYTES = 64 * 1024 * 1024;
const MOUNT_BOUND_MS = 10_000;

/** A broker whose disk can be filled and freed. */
export interface SmallDisk {
  readonly kind: 'tmpfs' | 'file size limit';
  readonly broker: TwinlogBroker;
  /** Leaves room for about `bytes` more (tmpfs), or for no file of more than that. */
  fill(bytes: number): Promise<void>;
  free(): Promise<void>;
  destroy(): Promise<void>;
}

/** A broker on a small disk; not started. */
export async function brokerOnSmallDisk(options: TwinlogOptions, port: number): Promise<SmallDisk> {
  return (await onTmpfs(options, port)) ?? limited(options, port);
}

async function onTmpfs(options: TwinlogOptions, port: number): Promise<SmallDisk | undefined> {
  if ((await run('unshare', ['-m', 'true']).catch(() => ({ code: 1 }))).code !== 0) {
    return undefined;
  }
  // The directory must be known before the mount, the holder's pid before the broker: in between
  // stands a wrapper whose arguments are filled in once the holder runs.
  const wrapper: string[] = [];
  const broker = new TwinlogBroker({ ...options, wrapper }, port);
  const mount = `mount -t tmpfs -o size=${DISK_BYTES} tmpfs "$0" && touch "$0/mounted" && cat`;
  const args = ['-m', 'sh', '-c', mount, broker.dataDir];
  const holder = spawnManaged({ command: 'unshare', args });
  const seen = join('/proc', String(holder.pid), 'root', broker.dataDir);
  const ballast = join(seen, 'ballast');
  const destroy = async (): Promise<void> => {
    await broker.destroy();
    await holder.kill9();
  };
  const deadline = Date.now() + MOUNT_BOUND_MS;
  while ((await run('test', ['-e', join(seen, 'mounted')])).code !== 0) {
    if (holder.exit() === undefined && Date.now() < deadline) await sleep(20);
    else {
      await destroy();
      return undefined;
    }
  }
  wrapper.push('nsenter', `--mount=/proc/${holder.pid}/ns/mnt`);
  const fill = async (bytes: number): Promise<void> => {
    const { bavail, bsize } = statfsSync(seen);
    writeFileSync(ballast, Buffer.alloc(bavail * bsize - bytes));
  };
  const free = async (): Promise<void> => rmSync(ballast);
  return { kind: 'tmpfs', broker, fill, free, destroy };
}

function limited(options: TwinlogOptions, port: number): SmallDisk {
  const broker = new TwinlogBroker(options, port);
  const limit = async (bytes: number | 'unlimited'): Promise<void> => {
    const soft = [`--fsize=${bytes}:unlimited`];
    await runOrThrow('prlimit', ['--pid', String(broker.pid), ...soft]);
  };
  return {
    kind: 'file size limit',
    broker,
    fill: (bytes) => limit(bytes),
    free: () => limit('unlimited'),
    destroy: () => broker.destroy(),
  };
}
