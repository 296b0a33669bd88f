/**
 * What processes have cost: CPU seconds and memory from /proc, with their children (Linux only).
 */
import { readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';

/** USER_HZ, fixed at 100 on every Linux that Node runs on. */
const TICKS_PER_SECOND = 100;

function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return text.split(' ').filter(Boolean).map(Number);
  } catch {
    return []; // it has ended
  }
}

/** CPU seconds (user and system) that a process and its children, dead ones too, have used. */
function cpuOf(pid: number): number {
  let own = 0;
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The command may hold spaces; fields are counted behind its closing parenthesis.
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    const ticks = fields.slice(11, 15).map(Number); // utime, stime, cutime, cstime
    own = ticks.reduce((sum, each) => sum + each, 0) / TICKS_PER_SECOND;
  } catch {
    return 0;
  }
  return childrenOf(pid).reduce((sum, child) => sum + cpuOf(child), own);
}

/** CPU seconds that these processes have used so far. */
export function cpuSeconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + cpuOf(pid), 0);
}

function memoryMiB(pids: readonly number[], line: 'VmHWM' | 'VmRSS'): number {
  const of = (pid: number): number => {
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      return Number(new RegExp(`${line}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1024;
    } catch {
      return 0;
    }
  };
  return Math.round(pids.reduce((sum, pid) => sum + of(pid), 0));
}

/** Peak resident memory of these processes, in MiB. */
export function peakMemoryMiB(pids: readonly number[]): number {
  return memoryMiB(pids, 'VmHWM');
}

/** Resident memory of these processes now, in MiB. */
export function residentMemoryMiB(pids: readonly number[]): number {
  return memoryMiB(pids, 'VmRSS');
}

/** The machine in one line. */
export function machine(): string {
  const all = cpus();
  const gib = Math.round(totalmem() / 2 ** 30);
  return `${all.length} cores (${all[0]?.model.trim()}), ${gib} GiB, Node ${process.version}`;
}
