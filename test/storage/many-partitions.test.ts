/**
 * Many idle partitions cost little: disk calls, fsyncs, open files and timers are counted, on the
 * real disk, and never in proportion to partitions where they need not be.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { silentLogger } from '../../src/base/logger.ts';
import type { Uuid } from '../../src/base/uuid.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import type { Clock, Disk, DiskFile, Runtime } from '../../src/io/runtime.ts';
import { startBroker } from '../../src/server/broker.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import { DEFAULT_LOG_CONFIG, type LogConfig } from '../../src/storage/log-config.ts';
import {
  FLUSH_INTERVAL_MS,
  HIGH_WATERMARK_INTERVAL_MS,
  LogManager,
  RETENTION_INTERVAL_MS,
} from '../../src/storage/log-manager.ts';
import { MAX_OPEN_FILES } from '../../src/storage/open-files.ts';
import { accepted, batchOf } from './harness.ts';

const TOPIC_ID = 'c2x9lhyPQ_aBcDeFgHiJkQ' as Uuid;
const MANY = 2000;
const ACTIVE = 20;
const directories: string[] = [];

after(() => {
  for (const directory of directories) rmSync(directory, { recursive: true, force: true });
});

function newDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'twinlog-many-'));
  directories.push(directory);
  return join(directory, 'data');
}

/** Calls by kind since the last `take`, and files open now. */
class DiskCounter {
  #calls = new Map<string, number>();
  openFiles = 0;
  mostOpenFiles = 0;

  count(kind: string): void {
    this.#calls.set(kind, (this.#calls.get(kind) ?? 0) + 1);
  }

  opened(change: number): void {
    this.openFiles += change;
    this.mostOpenFiles = Math.max(this.mostOpenFiles, this.openFiles);
  }

  /** The calls so far, which are forgotten. */
  take(): { total: number; syncs: number; calls: Record<string, number> } {
    const calls = Object.fromEntries(this.#calls);
    this.#calls = new Map();
    const total = Object.values(calls).reduce((sum, each) => sum + each, 0);
    return { total, syncs: (calls.sync ?? 0) + (calls.syncDirectory ?? 0), calls };
  }
}

function countedFile(file: DiskFile, counter: DiskCounter): DiskFile {
  const counted = <A extends unknown[], R>(kind: string, call: (...args: A) => R) => {
    return (...args: A): R => {
      counter.count(kind);
      return call(...args);
    };
  };
  return {
    path: file.path,
    size: counted('size', () => file.size()),
    read: counted('read', (target: Uint8Array, at: number) => file.read(target, at)),
    write: counted('write', (chunks: readonly Uint8Array[], at: number) => file.write(chunks, at)),
    truncate: counted('truncate', (size: number) => file.truncate(size)),
    sync: counted('sync', () => file.sync()),
    syncNow: counted('sync', () => file.syncNow()),
    close: counted('close', () => {
      counter.opened(-1);
      file.close();
    }),
  };
}

function countedDisk(disk: Disk, counter: DiskCounter): Disk {
  const counted = { ...disk } as { -readonly [K in keyof Disk]: Disk[K] };
  for (const kind of Object.keys(disk) as (keyof Disk)[]) {
    const call = disk[kind] as (...args: unknown[]) => unknown;
    counted[kind] = ((...args: unknown[]) => {
      counter.count(kind);
      return call(...args);
    }) as never;
  }
  counted.open = (path, mode) => {
    counter.count('open');
    counter.opened(1);
    return countedFile(disk.open(path, mode), counter);
  };
  return counted;
}

/** A clock that moves only when told, and knows its timers. */
class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Map<{ due: number; callback: () => void }, number>();

  wallMs(): number {
    return 1_700_000_000_000 + this.#now;
  }

  monotonicMs(): number {
    return this.#now;
  }

  setTimer(delayMs: number, callback: () => void) {
    const timer = { due: this.#now + delayMs, callback };
    this.#timers.set(timer, timer.due);
    return { cancel: () => void this.#timers.delete(timer) };
  }

  defer(callback: () => void): void {
    setImmediate(callback);
  }

  get timerCount(): number {
    return this.#timers.size;
  }

  /** Runs what is due within `ms`, letting pending work end after each step. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const [next] = [...this.#timers.keys()].sort((a, b) => a.due - b.due);
      if (next === undefined || next.due > end) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.due);
      next.callback();
      for (let turn = 0; turn < 50; turn++) await new Promise((done) => setImmediate(done));
    }
    this.#now = end;
  }
}

class Machine {
  readonly counter = new DiskCounter();
  readonly directory: string;
  clock = new ManualClock();
  manager!: LogManager;
  readonly #config: LogConfig;

  constructor(config: Partial<LogConfig> = {}) {
    this.directory = newDirectory();
    this.#config = { ...DEFAULT_LOG_CONFIG, ...config };
    this.start();
  }

  start(): void {
    const real = nodeRuntime({ logLevel: 'error' });
    this.clock = new ManualClock();
    // The dead process of `kill` is this one.
    const lock = () => ({ release: () => {} });
    const disk = { ...countedDisk(real.disk, this.counter), lock };
    const runtime: Runtime = { ...real, disk, clock: this.clock, logger: silentLogger };
    const options = { logDir: this.directory, defaultConfig: this.#config };
    this.manager = new LogManager(runtime, options);
    this.manager.load(() => this.#config);
    this.manager.start();
  }

  /** As `kill -9` leaves it. */
  kill(): void {
    rmSync(join(this.directory, '.kafka_cleanshutdown'), { force: true });
    this.start();
  }

  create(count: number): void {
    for (let partition = 0; partition < count; partition++) {
      this.manager.createLog({ topic: 'topic', partition }, TOPIC_ID, this.#config);
    }
  }

  append(partition: number): void {
    const log = this.manager.getLog({ topic: 'topic', partition });
    assert(log !== undefined);
    accepted(log.appendAsLeader(batchOf(`p${partition}`), 0, 'client'));
    log.updateHighWatermark(log.logEndOffset);
  }
}

async function filled(count: number, active: number): Promise<Machine> {
  const machine = new Machine();
  machine.create(count);
  for (let partition = 0; partition < active; partition++) machine.append(partition);
  await machine.manager.close();
  machine.start();
  machine.counter.take();
  return machine;
}

test('creating partitions takes no fsync, keeps no file open and sets no timer', () => {
  const machine = new Machine();
  const timers = machine.clock.timerCount;
  const before = machine.counter.openFiles;
  machine.counter.take();
  machine.create(MANY);
  const { syncs, total } = machine.counter.take();
  assert.equal(syncs, 0);
  assert(total <= 15 * MANY, `${total} disk calls`);
  assert.equal(machine.counter.openFiles, before);
  assert.equal(machine.clock.timerCount, timers);
});

test('the passes over idle partitions use the disk no more than for a few', async () => {
  const periodMs = 2 * Math.max(FLUSH_INTERVAL_MS, RETENTION_INTERVAL_MS);
  const machine = await filled(MANY, ACTIVE);
  await machine.clock.advance(periodMs);
  machine.counter.take();
  await machine.clock.advance(periodMs);
  const idle = machine.counter.take();
  assert.equal(idle.total, 0, JSON.stringify(idle.calls));
  machine.append(7);
  await machine.clock.advance(HIGH_WATERMARK_INTERVAL_MS + FLUSH_INTERVAL_MS);
  const one = machine.counter.take();
  assert(one.total < 60, JSON.stringify(one.calls));
  await machine.manager.close();
});

test('an orderly stop and start take fsyncs for active partitions only', async () => {
  const machine = new Machine();
  machine.create(MANY);
  machine.counter.take();
  for (let partition = 0; partition < ACTIVE; partition++) machine.append(partition);
  await machine.manager.close();
  const stop = machine.counter.take();
  assert(stop.syncs <= 10 * ACTIVE + 20, JSON.stringify(stop.calls));
  assert(stop.total <= 40 * ACTIVE + 40, JSON.stringify(stop.calls));
  machine.start();
  const start = machine.counter.take();
  assert(start.syncs <= 5, JSON.stringify(start.calls));
  assert(start.total <= 8 * MANY, JSON.stringify(start.calls));
  assert(machine.counter.openFiles <= 4 * ACTIVE);
  await machine.manager.close();
  const idleStop = machine.counter.take();
  assert(idleStop.total <= 4 * ACTIVE + 20, JSON.stringify(idleStop.calls));
});

test('after a crash only partitions with unflushed records are synced', async () => {
  const machine = await filled(MANY, ACTIVE);
  for (let partition = 5; partition < 9; partition++) machine.append(partition);
  machine.kill();
  const crashed = machine.counter.take();
  assert(crashed.syncs <= 4 * 8 + 10, JSON.stringify(crashed.calls));
  const ends = [4, 5, 8, 9, ACTIVE].map((partition) => {
    return machine.manager.getLog({ topic: 'topic', partition })?.logEndOffset;
  });
  assert.deepEqual(ends, [1, 2, 2, 1, 0]);
  await machine.manager.close();
});

test('open files stay within the limit with more partitions than it allows', async () => {
  const machine = new Machine();
  machine.create(MANY);
  for (let round = 0; round < 2; round++) {
    for (let partition = 0; partition < MANY; partition++) machine.append(partition);
  }
  for (let partition = 0; partition < MANY; partition++) {
    const log = machine.manager.getLog({ topic: 'topic', partition });
    const read = log?.read(0, 1000, 'logEnd', true);
    assert(read?.error === 0 && read.records.length > 0);
  }
  assert(machine.counter.mostOpenFiles <= MAX_OPEN_FILES + 8, `${machine.counter.mostOpenFiles}`);
  await machine.manager.close();
  assert.equal(machine.counter.openFiles, 0);
});

test('deleting a topic takes one sync and one timer, whatever its partitions', async () => {
  const machine = await filled(MANY, ACTIVE);
  const timers = machine.clock.timerCount;
  for (let partition = 0; partition < MANY; partition++) {
    machine.manager.deleteLog({ topic: 'topic', partition });
  }
  await new Promise((done) => setImmediate(done));
  const { syncs } = machine.counter.take();
  assert.equal(syncs, 1);
  assert.equal(machine.clock.timerCount, timers + 1);
  await machine.clock.advance(DEFAULT_LOG_CONFIG.fileDeleteDelayMs + 1);
  assert.equal(machine.counter.take().calls.remove, MANY);
  await machine.manager.close();
});

test('a broker has as many timers and open files with many partitions as with few', async () => {
  const counted = async (partitions: number): Promise<{ timers: number; files: number }> => {
    const real = nodeRuntime({ logLevel: 'error' });
    const counter = new DiskCounter();
    let timers = 0;
    const clock: Clock = {
      ...real.clock,
      setTimer: (delayMs, callback) => {
        timers++;
        let isLive = true;
        const end = () => {
          if (isLive) timers--;
          isLive = false;
        };
        const timer = real.clock.setTimer(delayMs, () => {
          end();
          callback();
        });
        const cancel = () => {
          end();
          timer.cancel();
        };
        return { cancel };
      },
    };
    const runtime = { ...real, clock, disk: countedDisk(real.disk, counter), logger: silentLogger };
    const settings = { 'log.dirs': newDirectory(), listeners: 'PLAINTEXT://127.0.0.1:0' };
    const config = new BrokerConfig(new Map(Object.entries({ ...settings, 'node.id': '1' })));
    const broker = await startBroker(runtime, { config });
    const topic = { name: 'topic', numPartitions: partitions, replicationFactor: 1 };
    const topics = [{ ...topic, assignments: [], configs: [], mirrorInfo: null }];
    const request = { topics, timeoutMs: 30_000, validateOnly: false };
    await broker.services.controller.forward(19, 7, request, { principal: 'User:test' });
    const { image } = broker.services.metadata;
    assert.equal(image.topicsByName.get('topic')?.partitions.size, partitions);
    assert(broker.services.replicas.partition('topic', partitions - 1)?.isLeader());
    const result = { timers, files: counter.openFiles };
    await broker.close();
    return result;
  };
  assert.deepEqual(await counted(1000), await counted(10));
});
