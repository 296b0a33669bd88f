/**
 * Child processes, ports and temporary directories of the interop tests.
 *
 * - Nothing leaks: a watchdog (one `sh`) holds a pipe to the test process; when the pipe ends, for
 *   whatever reason, it kills the children that are left and removes the temporary directories.
 * - Everything is bounded in time: a stop is SIGTERM, then SIGKILL; a run has a time-out.
 * - Processes are ended by pid only.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CACHE } from './cache.ts';

const WATCHDOG_SCRIPT = `
pids=" "; dirs=""
while read -r what arg; do
  case "$what" in
    +) pids="$pids$arg " ;;
    -) pids=$(printf '%s' "$pids" | sed "s/ $arg / /") ;;
    d) dirs="$dirs $arg" ;;
  esac
done
for p in $pids; do kill -9 "$p" 2>/dev/null; done
for d in $dirs; do rm -rf "$d"; done
`;

let watchdog: ChildProcess | undefined;

function tellWatchdog(line: string): void {
  if (watchdog === undefined) {
    // Detached: a Ctrl-C to the process group must not take the watchdog before the test process.
    watchdog = spawn('sh', ['-c', WATCHDOG_SCRIPT], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
    });
    watchdog.unref();
    const pipe = watchdog.stdin as unknown as { unref(): void };
    pipe.unref();
  }
  watchdog.stdin?.write(`${line}\n`);
}

/** A new temporary directory; removed when the test process ends (KEEP_TEMP=1 keeps it). */
export function temporaryDirectory(name: string): string {
  const path = mkdtempSync(join(tmpdir(), `twinlog-interop-${name}-`));
  if (process.env.KEEP_TEMP === undefined) tellWatchdog(`d ${path}`);
  return path;
}

/** A fresh log file under `.cache/interop-logs`; logs are kept until the cache is removed. */
export function logFile(name: string): string {
  const directory = join(CACHE, 'interop-logs');
  mkdirSync(directory, { recursive: true });
  return join(directory, `${name}-${process.pid}.log`);
}

/** The last lines of a log file, for error messages. */
export function tail(file: string, lines = 40): string {
  try {
    return readFileSync(file, 'utf8').split('\n').slice(-lines).join('\n');
  } catch {
    return '(no log)';
  }
}

const handedOut = new Set<number>();

function canListen(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

/**
 * A free loopback port below the ephemeral range, so that no outgoing connection takes it while
 * the server that owns it is being restarted.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 200; attempt++) {
    const port = 15_000 + Math.floor(Math.random() * 17_000);
    if (handedOut.has(port) || !(await canListen(port))) continue;
    handedOut.add(port);
    return port;
  }
  throw new Error('no free port found');
}

/** How a process ended. */
export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A child process that cannot outlive the test process. */
export interface ManagedProcess {
  readonly pid: number;
  readonly child: ChildProcess;
  readonly exited: Promise<Exit>;
  /** The exit, once it has happened. */
  exit(): Exit | undefined;
  /** SIGTERM, and SIGKILL when that takes longer than `boundMs`. Resolves when it is gone. */
  stop(boundMs?: number): Promise<Exit>;
  /** SIGKILL; resolves when it is gone. */
  kill9(): Promise<Exit>;
}

/** What to start. With `log`, stdin is empty and both outputs go to that file. */
export interface SpawnOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly log?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

/** Starts a process under the watchdog. Without `log`, stdin/stdout/stderr are pipes. */
export function spawnManaged(options: SpawnOptions): ManagedProcess {
  const log = options.log === undefined ? undefined : openSync(options.log, 'a');
  const child = spawn(options.command, options.args, {
    stdio: log === undefined ? ['pipe', 'pipe', 'pipe'] : ['ignore', log, log],
    env: { ...process.env, ...options.env },
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
  });
  if (log !== undefined) closeSync(log);
  const pid = child.pid;
  let exit: Exit | undefined;
  const exited = new Promise<Exit>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => {
      exit = { code, signal };
      if (pid !== undefined) tellWatchdog(`- ${pid}`);
      resolve(exit);
    });
  });
  exited.catch(() => undefined); // whoever awaits it gets the error; nobody must not crash the run
  if (pid === undefined) throw new Error(`cannot start ${options.command}`);
  tellWatchdog(`+ ${pid}`);
  const end = async (signal: NodeJS.Signals, boundMs: number): Promise<Exit> => {
    if (exit !== undefined) return exit;
    child.kill(signal);
    const killer = setTimeout(() => child.kill('SIGKILL'), boundMs);
    try {
      return await exited;
    } finally {
      clearTimeout(killer);
    }
  };
  return {
    pid,
    child,
    exited,
    exit: () => exit,
    stop: (boundMs = 15_000) => end('SIGTERM', boundMs),
    kill9: () => end('SIGKILL', 5_000),
  };
}

/** What a finished run printed. `timedOut`: it was killed at its bound. */
export interface RunResult extends Exit {
  readonly stdout: string;
  readonly stderr: string;
  readonly timedOut: boolean;
}

/** Runs a program to its end, at most `timeoutMs`, with `stdin` as its input. */
export async function run(
  command: string,
  args: readonly string[],
  options: {
    readonly stdin?: string;
    readonly timeoutMs?: number;
    readonly env?: Readonly<Record<string, string>>;
    readonly cwd?: string;
  } = {},
): Promise<RunResult> {
  const { stdin, timeoutMs = 60_000, ...rest } = options;
  const managed = spawnManaged({ command, args, ...rest });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  managed.child.stdout?.on('data', (chunk: Buffer) => out.push(chunk));
  managed.child.stderr?.on('data', (chunk: Buffer) => err.push(chunk));
  managed.child.stdin?.on('error', () => undefined); // it may have ended before reading its input
  managed.child.stdin?.end(stdin ?? '');
  const closed = new Promise<void>((resolve) => managed.child.once('close', () => resolve()));
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    managed.child.kill('SIGKILL');
  }, timeoutMs);
  try {
    const exit = await managed.exited;
    await closed;
    const stdout = Buffer.concat(out).toString('utf8');
    return { ...exit, stdout, stderr: Buffer.concat(err).toString('utf8'), timedOut };
  } finally {
    clearTimeout(timer);
  }
}

/** Like {@link run}, but throws with the output when the program fails. */
export async function runOrThrow(
  command: string,
  args: readonly string[],
  options: Parameters<typeof run>[2] = {},
): Promise<RunResult> {
  const result = await run(command, args, options);
  if (result.code === 0) return result;
  const why = result.timedOut ? 'timed out' : `ended with ${result.code ?? result.signal}`;
  throw new Error(
    `${command} ${args.slice(-6).join(' ')} ${why}\n${result.stdout}${result.stderr}`,
  );
}

/** True when `command` can be found and started. */
export async function isInstalled(command: string, versionFlag = '--version'): Promise<boolean> {
  try {
    return (await run(command, [versionFlag], { timeoutMs: 20_000 })).code === 0;
  } catch {
    return false;
  }
}

/** Removes a directory now rather than at the end of the run. */
export function removeDirectory(path: string): void {
  rmSync(path, { recursive: true, force: true, maxRetries: 5 });
}
