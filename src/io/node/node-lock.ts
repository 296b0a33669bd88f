/**
 * An exclusive lock between processes that a kill -9 does not leave behind.
 *
 * Node has no flock. Every contender creates a claim file whose *name* says who it is
 * (`<path>.<pid>-<start time>-<boot id>`), and only then looks for other claims. It wins when every
 * other claim belongs to a dead process (those are removed), else it takes its own claim back.
 * Since each one writes before it reads, two can never both win; racing, both may lose.
 *
 * Limits: the start time comes from /proc; where that is absent (not Linux), a claim whose pid was
 * given to another process looks alive until it is removed by hand. Contenders must share one pid
 * space and one local file system: containers and machines sharing a volume do not see each other.
 */
import fs from 'node:fs';

/** Field 22 of /proc/PID/stat, counted from the field after the command name's `)`. */
const START_TIME_FIELD = 19;

function readProc(path: string): string | undefined {
  try {
    return fs.readFileSync(path, 'latin1');
  } catch {
    return undefined; // no such process, or no /proc on this system: both mean "unknown"
  }
}

/** Fields of /proc/PID/stat from the state on; undefined when not known. */
function statFields(pid: number): string[] | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Clock ticks between boot and the start of the process; undefined when not known. */
function startTicks(pid: number): string | undefined {
  return statFields(pid)?.at(START_TIME_FIELD);
}

/** Ended, but not yet waited for by its parent: holds no file any more. */
function isZombie(pid: number): boolean {
  const state = statFields(pid)?.[0];
  return state === 'Z' || state === 'X';
}

function bootId(): string {
  return readProc('/proc/sys/kernel/random/boot_id')?.slice(0, 8) ?? '0';
}

function pidExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function claimOf(pid: number): string {
  return `${pid}-${startTicks(pid) ?? '0'}-${bootId()}`;
}

function isAlive(claim: string): boolean {
  const pid = Number(claim.split('-', 1)[0]);
  return pidExists(pid) && claimOf(pid) === claim && !isZombie(pid);
}

/** The other claims on `path`, as file paths with the claim. */
function otherClaims(path: string, own: string): { file: string; claim: string }[] {
  const slash = path.lastIndexOf('/');
  const directory = slash < 0 ? '.' : path.slice(0, slash) || '/';
  const prefix = `${path.slice(slash + 1)}.`;
  return fs
    .readdirSync(directory)
    .filter((name) => name.startsWith(prefix))
    .map((name) => ({ file: `${directory}/${name}`, claim: name.slice(prefix.length) }))
    .filter(({ claim }) => claim !== own && /^\d+-\d+-[0-9a-f]+$/.test(claim));
}

/** Takes the lock, or undefined when another owner lives (this process included). Errno errors. */
export function takeLock(path: string): { release(): void } | undefined {
  const own = claimOf(process.pid);
  const file = `${path}.${own}`;
  try {
    fs.closeSync(fs.openSync(file, 'wx'));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined;
    throw error;
  }
  const others = otherClaims(path, own);
  if (others.some(({ claim }) => isAlive(claim))) {
    fs.rmSync(file, { force: true });
    return undefined;
  }
  for (const other of others) fs.rmSync(other.file, { force: true });
  return { release: () => fs.rmSync(file, { force: true }) };
}
