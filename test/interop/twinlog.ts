/**
 * Starts, stops, kills and restarts twinlog brokers as processes of their own, through the command
 * line, as users do.
 *
 * A broker keeps its port and data over `stop`/`kill9` and `start`. "Started" means that it
 * answered a Metadata request that names itself.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { REPOSITORY } from './cache.ts';
import {
  type Exit,
  freePort,
  logFile,
  type ManagedProcess,
  type RunResult,
  removeDirectory,
  run,
  spawnManaged,
  tail,
  temporaryDirectory,
} from './processes.ts';
import { RawClient } from './raw-client.ts';

/** The program that `twinlog` is. */
export const MAIN = join(REPOSITORY, 'src', 'cli', 'main.ts');
const START_BOUND_MS = 30_000;
const STOP_BOUND_MS = 15_000;
const COMMAND_BOUND_MS = 60_000;

/** Runs a `twinlog` command to its end; failure is a result. */
export function runTwinlog(
  args: readonly string[],
  timeoutMs = COMMAND_BOUND_MS,
): Promise<RunResult> {
  return run(process.execPath, [MAIN, ...args], { timeoutMs });
}

/** Runs a `twinlog` command and returns its standard output; throws with all output on failure. */
export async function twinlogCommand(...args: readonly string[]): Promise<string> {
  const { code, signal, stdout, stderr } = await runTwinlog(args);
  if (code === 0) return stdout;
  throw new Error(`twinlog ${args.join(' ')} ended with ${code ?? signal}\n${stdout}${stderr}`);
}

/** What to start. */
export interface TwinlogOptions {
  readonly name: string;
  /** Broker settings, as in server.properties. */
  readonly settings?: Readonly<Record<string, string>>;
  readonly logLevel?: 'debug' | 'info' | 'warn' | 'error';
  /** The command that runs a broker, and its own options; `serve` by default. */
  readonly command?: readonly string[];
  /** A program of the tests that runs a broker with these options; twinlog itself by default. */
  readonly program?: string;
  /** A command and its arguments that become twinlog (`nsenter …`); they must keep the pid. */
  readonly wrapper?: readonly string[];
}

/** A twinlog broker, with its embedded controller or as a guest. */
export class TwinlogBroker {
  readonly name: string;
  readonly host = '127.0.0.1';
  readonly port: number;
  /** Holds `<topic>-<partition>` directories. */
  readonly dataDir: string;
  readonly log: string;
  readonly #settings: readonly string[];
  readonly #logLevel: string;
  readonly #command: readonly string[];
  readonly #program: string;
  readonly #wrapper: readonly string[];
  #process: ManagedProcess | undefined;

  constructor(options: TwinlogOptions, port: number) {
    this.name = options.name;
    this.port = port;
    this.dataDir = temporaryDirectory(options.name);
    this.log = logFile(options.name);
    const settings = Object.entries(options.settings ?? {});
    this.#settings = settings.flatMap(([key, value]) => ['--set', `${key}=${value}`]);
    this.#logLevel = options.logLevel ?? 'info';
    this.#command = options.command ?? ['serve'];
    this.#program = options.program ?? MAIN;
    this.#wrapper = options.wrapper ?? [];
  }

  get bootstrap(): string {
    return `${this.host}:${this.port}`;
  }

  get pid(): number {
    if (this.#process === undefined) throw new Error(`${this.name} is not running`);
    return this.#process.pid;
  }

  get isRunning(): boolean {
    return this.#process !== undefined && this.#process.exit() === undefined;
  }

  /** Throws with the end of the log when the process has died. */
  checkAlive(): void {
    if (!this.isRunning) throw new Error(`${this.name} is not running:\n${tail(this.log)}`);
  }

  /** Starts the process without waiting until it serves. */
  launch(): void {
    if (this.isRunning) throw new Error(`${this.name} is already running`);
    const place = ['--data', this.dataDir, '--listen', this.bootstrap];
    const args = [
      this.#program,
      ...this.#command,
      ...place,
      '--log-level',
      this.#logLevel,
      ...this.#settings,
    ];
    const [command = process.execPath, ...rest] = [...this.#wrapper, process.execPath];
    this.#process = spawnManaged({ command, args: [...rest, ...args], log: this.log });
  }

  /** Resolves when the process has ended by itself or otherwise. */
  async exited(): Promise<Exit> {
    if (this.#process === undefined) throw new Error(`${this.name} is not running`);
    return await this.#process.exited;
  }

  /** Starts the process and waits until it serves. */
  async start(): Promise<void> {
    this.launch();
    await this.serving();
  }

  /** Waits until the launched process serves; throws when it dies first. */
  async serving(): Promise<void> {
    const deadline = Date.now() + START_BOUND_MS;
    for (;;) {
      this.checkAlive();
      if (Date.now() > deadline) throw new Error(`${this.name} is not up:\n${tail(this.log)}`);
      try {
        await using client = await RawClient.connect(this.host, this.port, 1_000);
        if ((await client.metadata([])).brokers.length > 0) return;
      } catch {
        // Not up yet; the deadline bounds the retries.
      }
      await sleep(20);
    }
  }

  async stop(boundMs = STOP_BOUND_MS): Promise<void> {
    await this.#process?.stop(boundMs);
  }

  async kill9(): Promise<void> {
    await this.#process?.kill9();
  }

  /** Kills the process and removes the data. */
  async destroy(): Promise<void> {
    await this.kill9();
    removeDirectory(this.dataDir);
  }

  /** `twinlog mirrors …` against this broker; returns its standard output. */
  mirrors(...args: readonly string[]): Promise<string> {
    return twinlogCommand('mirrors', ...args, '--bootstrap-server', this.bootstrap);
  }
}

/** Starts a broker on a free loopback port, with an empty data directory. */
export async function startTwinlog(options: TwinlogOptions): Promise<TwinlogBroker> {
  const broker = new TwinlogBroker(options, await freePort());
  try {
    await broker.start();
    return broker;
  } catch (error) {
    await broker.destroy();
    throw error;
  }
}
