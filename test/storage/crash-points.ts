/**
 * A disk whose calls are counted, so that a test can end the process or the power at each of them.
 */
import { type Disk, DiskError, type DiskFile, type Runtime } from '../../src/io/runtime.ts';
import type { PowerLoss } from '../../src/sim/sim-file.ts';

/** How a process ends. */
export type Ending = 'kill' | PowerLoss;

/** One of each kind. */
export const ENDINGS: readonly Ending[] = [
  'kill',
  { unsynced: 'lose', tornTail: false },
  { unsynced: 'prefix', tornTail: true },
  { unsynced: 'subset', tornTail: true },
];

/** For test titles. */
export function nameOf(ending: Ending): string {
  return ending === 'kill' ? 'kill' : `power loss, ${ending.unsynced}`;
}

const FILE_CALLS: readonly (keyof DiskFile)[] = ['write', 'truncate', 'sync', 'syncNow'];

/** A runtime whose disk calls are counted: before number `fatal`, `crash` ends the process. */
export function counted(runtime: Runtime, fatal: number, crash: () => void) {
  const state = { calls: 0, armed: false };
  const count = (what: string): void => {
    if (!state.armed || state.calls++ !== fatal) return;
    crash();
    throw new DiskError('EIO', what, 'the process ends here');
  };
  const wrap = <T extends object>(target: T, names: readonly (keyof T)[]): T =>
    new Proxy(target, {
      get: (object, name) => {
        const value = object[name as keyof T];
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          if (names.includes(name as keyof T)) count(String(name));
          const result: unknown = value.apply(object, args);
          return name === 'open' ? wrap(result as DiskFile, FILE_CALLS) : result;
        };
      },
    });
  const disk = wrap<Disk>(runtime.disk, ['open', 'rename', 'remove', 'syncDirectory']);
  return { runtime: { ...runtime, disk }, state };
}
