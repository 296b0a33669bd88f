/**
 * Logs under test: on the simulated disk, where processes and power can end, or on the real one.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '../../src/base/logger.ts';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import type { Runtime } from '../../src/io/runtime.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { buildRecordBatch, type NewBatch } from '../../src/protocol/record.ts';
import { forEachBatch } from '../../src/protocol/record-batch.ts';
import type { PowerLoss } from '../../src/sim/sim-file.ts';
import { SimWorld } from '../../src/sim/sim-runtime.ts';
import type { AppendResult, FetchIsolation, Log } from '../../src/storage/log.ts';
import { DEFAULT_LOG_CONFIG, type LogConfig } from '../../src/storage/log-config.ts';
import { LogManager, type LogManagerOptions } from '../../src/storage/log-manager.ts';

export const TP = { topic: 'topic', partition: 0 };
export const DIRECTORY = '/data/topic-0';
const MACHINE = 'machine';
const LOG_DIR = '/data';
const SETTLE_MS = 600_000;

/** A log that can be opened again. */
export interface LogHost {
  readonly log: Log;
  readonly runtime: Runtime;
  /** Runs what a promise waits for, then gives its result. */
  settle<T>(promise: Promise<T>): Promise<T>;
  /** Orderly stop, then a new start. */
  restart(): Promise<void>;
  /** kill -9, then a new start. */
  kill(): Promise<void>;
  end(): Promise<void>;
}

/** One log on a simulated machine. */
export class SimHost implements LogHost {
  readonly world: SimWorld;
  readonly #config: LogConfig;
  readonly #options: LogManagerOptions;
  runtime: Runtime;
  manager: LogManager;

  constructor(config: Partial<LogConfig> = {}, seed = 1, options: Partial<LogManagerOptions> = {}) {
    this.#config = { ...DEFAULT_LOG_CONFIG, ...config };
    this.#options = { logDir: LOG_DIR, defaultConfig: this.#config, ...options };
    this.world = new SimWorld(seed, nodeCompression());
    this.runtime = this.world.start(MACHINE);
    this.manager = this.#load();
    this.manager.createLog(TP, undefined, this.#config);
  }

  get log(): Log {
    const log = this.manager.getLog(TP);
    assert(log !== undefined, `offline: ${JSON.stringify(this.manager.offline())}`);
    return log;
  }

  get config(): LogConfig {
    return this.#config;
  }

  get disk() {
    return this.world.disk(MACHINE);
  }

  async settle<T>(promise: Promise<T>): Promise<T> {
    let done = false;
    const end = () => {
      done = true;
    };
    promise.then(end, end);
    await this.world.simulator.runUntil(() => done, SETTLE_MS);
    return promise;
  }

  async restart(): Promise<void> {
    await this.settle(this.manager.close());
    this.world.kill(MACHINE);
    this.start();
  }

  async kill(): Promise<void> {
    this.world.kill(MACHINE);
    this.start();
  }

  /** Ends the process only; `start` begins the next. */
  stop(): void {
    this.world.kill(MACHINE);
  }

  /** `isStopped`: the process had ended before. */
  losePower(loss: PowerLoss, isStopped = false): void {
    if (isStopped) this.disk.losePower(loss);
    else this.world.losePower(MACHINE, loss);
    this.start();
    // As the replica manager does it: a power loss can take a log that was never flushed.
    const isHere = this.manager.getLog(TP) !== undefined || this.manager.offline().length > 0;
    if (!isHere) this.manager.createLog(TP, undefined, this.#config);
  }

  start(): void {
    this.runtime = this.world.start(MACHINE);
    this.manager = this.#load();
  }

  /** A disk port to look at and damage files with, whatever process runs. */
  files() {
    return this.runtime.disk;
  }

  async end(): Promise<void> {
    await this.settle(this.manager.close());
  }

  #load(): LogManager {
    const manager = new LogManager(this.runtime, this.#options);
    manager.load(() => this.#config);
    return manager;
  }
}

/** One log on the machine's file system. */
export class NodeHost implements LogHost {
  readonly #parent = mkdtempSync(join(tmpdir(), 'twinlog-storage-'));
  #lives = 0;
  readonly #config: LogConfig;
  readonly runtime: Runtime = nodeRuntime({ logger: silentLogger });
  readonly #forgotten: LogManager[] = [];
  manager: LogManager;

  constructor(config: Partial<LogConfig> = {}) {
    this.#config = { ...DEFAULT_LOG_CONFIG, ...config };
    this.manager = this.#load();
    this.manager.createLog(TP, undefined, this.#config);
  }

  get log(): Log {
    const log = this.manager.getLog(TP);
    assert(log !== undefined, `offline: ${JSON.stringify(this.manager.offline())}`);
    return log;
  }

  get directory(): string {
    return join(this.#parent, String(this.#lives));
  }

  settle<T>(promise: Promise<T>): Promise<T> {
    return promise;
  }

  async restart(): Promise<void> {
    await this.manager.close();
    this.manager = this.#load();
  }

  /** What a kill leaves behind: everything written, nothing closed. */
  async kill(): Promise<void> {
    // The old manager cannot be stopped from what it still does: the new one gets a copy.
    const before = this.directory;
    this.#lives++;
    cpSync(before, this.directory, {
      recursive: true,
      filter: (path) => !/\.lock[^/]*$/.test(path),
    });
    this.#forgotten.push(this.manager);
    this.manager = this.#load();
  }

  async end(): Promise<void> {
    for (const manager of [...this.#forgotten, this.manager]) await manager.close();
    rmSync(this.#parent, { recursive: true, force: true });
  }

  #load(): LogManager {
    const options = { logDir: this.directory, defaultConfig: this.#config };
    const manager = new LogManager(this.runtime, options);
    manager.load(() => this.#config);
    return manager;
  }
}

const encoder = new TextEncoder();

/** A batch of `count` records whose values say `text`. */
export function batchOf(text: string, count = 1, batch: Partial<NewBatch> = {}): Uint8Array {
  const records = Array.from({ length: count }, (_, index) => ({
    key: encoder.encode(`k${index}`),
    value: encoder.encode(`${text}/${index}`),
    timestamp: 1_700_000_000_000 + index,
  }));
  return buildRecordBatch({ records, ...batch });
}

/** The end of a transaction. */
export function marker(producerId: bigint, commit: boolean, baseOffset = 0): Uint8Array {
  return buildTransactionMarker({
    commit,
    coordinatorEpoch: 1,
    producerId,
    producerEpoch: 0,
    timestamp: 1_700_000_000_000,
    baseOffset,
    partitionLeaderEpoch: 0,
  });
}

/** An append that must succeed. */
export function accepted(result: AppendResult): Extract<AppendResult, { error: 0 }> {
  assert(result.error === 0, `refused: ${JSON.stringify(result)}`);
  return result;
}

/** Appends as follower; must succeed. */
export function follow(log: Log, ...batches: Uint8Array[]): void {
  accepted(log.appendAsFollower(batches, { verifyCrc: true }));
}

/** A batch as it stands in the log. */
export interface SeenBatch {
  readonly baseOffset: number;
  readonly lastOffset: number;
  readonly bytes: string;
}

/** Every batch from `from` on, read in steps of `maxBytes`. */
export function readAll(
  log: Log,
  from = log.logStartOffset,
  isolation: FetchIsolation = 'logEnd',
  maxBytes = 300,
): SeenBatch[] {
  const seen: SeenBatch[] = [];
  for (let offset = from; ; ) {
    const result = log.read(offset, maxBytes, isolation, true);
    assert(result.error === 0, `read ${offset}: error ${result.error}`);
    if (result.records.length === 0) return seen;
    for (const bytes of result.records) {
      const scan = forEachBatch(bytes, 0, bytes.length, (batch) => {
        const { baseOffset, lastOffset } = batch;
        assert(batch.validCrc(), `CRC at ${baseOffset}`);
        seen.push({ baseOffset, lastOffset, bytes: Buffer.from(batch.slice()).toString('base64') });
        offset = batch.nextOffset;
      });
      assert(scan.ok, 'whole batches');
    }
  }
}
