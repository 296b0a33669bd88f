/**
 * One measurement of the log itself, in a process of its own: `node bench/log-task.ts TASK JSON`.
 *
 * Started by bench/log-storage.ts; prints the figures as one JSON line. CPU is this process's, so
 * what the kernel does later to write pages back is not in it. Files are in the page cache.
 */
import { seededRandom } from '../src/base/random.ts';
import { nodeRuntime } from '../src/io/node/node-runtime.ts';
import { buildRecordBatch } from '../src/protocol/record.ts';
import { RecordBatch } from '../src/protocol/record-batch.ts';
import type { Log } from '../src/storage/log.ts';
import { DEFAULT_LOG_CONFIG } from '../src/storage/log-config.ts';
import { LogManager } from '../src/storage/log-manager.ts';
import type { Measurement } from './report.ts';

/** What a task is told. */
export interface LogTask {
  readonly directory: string;
  readonly batchBytes: number;
  readonly megabytes: number;
  readonly compression: 'none' | 'lz4';
}

const TOPIC_PARTITION = { topic: 'bench', partition: 0 };
const CONFIG = { ...DEFAULT_LOG_CONFIG, maxMessageBytes: 2 * 1024 * 1024 };
const RECORD_BYTES = 1024;
/** What a record costs beside its value. */
const RECORD_OVERHEAD = 12;
const BATCH_OVERHEAD = 61;
const POOL_BYTES = 16 * 1024 * 1024;
const FETCH_BYTES = 1024 * 1024;
const RANDOM_READ_BYTES = 64 * 1024;
const RANDOM_READS = 20_000;
const ROLLS = 500;
const CUTS = 100;

const runtime = nodeRuntime({ logLevel: 'error' });
const random = seededRandom(42);

/** JSON-like text that lz4 makes about half as large. */
function payload(): Buffer {
  const words = ['"customer":"', '","orderReference":"', '","deliveryAddress":"'];
  let text = '{';
  while (text.length < RECORD_BYTES) {
    text += words[random.below(words.length)];
    for (let n = 0; n < 14; n++) text += String.fromCharCode(48 + random.below(75));
  }
  return Buffer.from(text.slice(0, RECORD_BYTES), 'latin1');
}

function batches({ batchBytes, compression }: LogTask): Uint8Array[] {
  const perRecord = RECORD_BYTES + RECORD_OVERHEAD;
  const count = Math.max(1, Math.floor((batchBytes - BATCH_OVERHEAD) / perRecord));
  const timestamp = runtime.clock.wallMs();
  return Array.from({ length: Math.ceil(POOL_BYTES / (count * perRecord)) }, () => {
    const records = Array.from({ length: count }, () => {
      return { key: null, value: payload(), timestamp };
    });
    const codec = { type: compression, port: runtime.compression };
    return buildRecordBatch({ records, ...(compression === 'none' ? {} : { compression: codec }) });
  });
}

function recordBytes(batch: Uint8Array): number {
  return new RecordBatch(batch).count * RECORD_BYTES;
}

function open(directory: string): LogManager {
  const manager = new LogManager(runtime, { logDir: directory, defaultConfig: CONFIG });
  manager.load(() => CONFIG);
  return manager;
}

function logOf(manager: LogManager): Log {
  const log = manager.getLog(TOPIC_PARTITION);
  return log ?? manager.createLog(TOPIC_PARTITION, undefined, CONFIG);
}

/** Seconds of wall time and CPU that `work` takes. */
async function timed(work: () => void | Promise<void>): Promise<{ wall: number; cpu: number }> {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const used = process.cpuUsage(cpu);
  return { wall: (performance.now() - start) / 1000, cpu: (used.user + used.system) / 1e6 };
}

function perGb(bytes: number, { wall, cpu }: { wall: number; cpu: number }): Measurement {
  return { mbPerSecond: bytes / 1e6 / wall, cpuPerGb: cpu / (bytes / 1e9) };
}

function accept(result: { readonly error: number; readonly message?: string }): void {
  if (result.error !== 0) throw new Error(`append refused: ${result.error} ${result.message}`);
}

/** Appends up to `megabytes` of records, as a client's produce does. */
function appendAsLeader(log: Log, task: LogTask, pool: readonly Uint8Array[]): number {
  let bytes = 0;
  for (let index = 0; bytes < task.megabytes * 1e6; index++) {
    const batch = pool[index % pool.length] as Uint8Array;
    new RecordBatch(batch).setBaseOffset(0);
    accept(log.appendAsLeader(batch, 1, 'client'));
    bytes += recordBytes(batch);
  }
  return bytes;
}

/** The same in chunks of a fetch response, as followers and mirrors do. */
function appendAsFollower(log: Log, task: LogTask, pool: readonly Uint8Array[]): number {
  let bytes = 0;
  let index = 0;
  while (bytes < task.megabytes * 1e6) {
    const chunk: Uint8Array[] = [];
    let chunkBytes = 0;
    let offset = log.logEndOffset;
    while (chunk.length < pool.length && (chunkBytes === 0 || chunkBytes < FETCH_BYTES)) {
      const bytesOfBatch = pool[index++ % pool.length] as Uint8Array;
      const batch = new RecordBatch(bytesOfBatch);
      batch.setBaseOffset(offset);
      batch.setPartitionLeaderEpoch(1);
      offset = batch.nextOffset;
      chunk.push(bytesOfBatch);
      chunkBytes += bytesOfBatch.length;
      bytes += recordBytes(bytesOfBatch);
    }
    accept(log.appendAsFollower(chunk, { verifyCrc: true }));
  }
  return bytes;
}

async function append(task: LogTask, how: typeof appendAsLeader): Promise<Measurement> {
  const pool = batches(task);
  const manager = open(task.directory);
  const log = logOf(manager);
  how(log, { ...task, megabytes: task.megabytes / 8 }, pool); // the compiler's warming up
  let bytes = 0;
  const time = await timed(() => {
    bytes = how(log, task, pool);
  });
  await manager.close();
  return perGb(bytes, time);
}

/** Leaves a log as a crash does. */
function fill(task: LogTask): never {
  appendAsFollower(logOf(open(task.directory)), task, batches(task));
  process.kill(process.pid, 'SIGKILL');
  throw new Error('still alive');
}

async function recover(task: LogTask): Promise<Measurement> {
  let manager: LogManager | undefined;
  const time = await timed(() => {
    manager = open(task.directory);
  });
  if (manager === undefined) throw new Error('not opened');
  const bytes = logOf(manager).sizeBytes;
  await manager.close();
  const gb = bytes / 1e9;
  return { secondsPerGb: time.wall / gb, cpuPerGb: time.cpu / gb };
}

function readAll(log: Log): number {
  let bytes = 0;
  for (let offset = log.logStartOffset; offset < log.logEndOffset; ) {
    const read = log.read(offset, FETCH_BYTES, 'logEnd', true);
    const chunk = read.error === 0 ? read.records.at(-1) : undefined;
    if (read.error !== 0 || chunk === undefined) throw new Error(`nothing at ${offset}`);
    bytes += read.bytes;
    offset = lastOffsetOf(chunk) + 1;
  }
  return bytes;
}

function lastOffsetOf(chunk: Uint8Array): number {
  let batch = new RecordBatch(chunk);
  while (batch.end < chunk.length) batch = new RecordBatch(chunk, batch.end);
  return batch.lastOffset;
}

async function readSequentially(task: LogTask): Promise<Measurement> {
  const manager = open(task.directory);
  const log = logOf(manager);
  readAll(log);
  let bytes = 0;
  const time = await timed(() => {
    bytes = readAll(log);
  });
  await manager.close();
  return perGb(bytes, time);
}

async function readAtRandom(task: LogTask): Promise<Measurement> {
  const manager = open(task.directory);
  const log = logOf(manager);
  let bytes = 0;
  const read = (): void => {
    const found = log.read(random.below(log.logEndOffset), RANDOM_READ_BYTES, 'logEnd', true);
    if (found.error !== 0) throw new Error('unreadable');
    bytes += found.bytes;
  };
  for (let n = 0; n < RANDOM_READS / 10; n++) read();
  bytes = 0;
  const time = await timed(() => {
    for (let n = 0; n < RANDOM_READS; n++) read();
  });
  await manager.close();
  return { ...perGb(bytes, time), microsecondsEach: (time.wall * 1e6) / RANDOM_READS };
}

async function rollOften(task: LogTask): Promise<Measurement> {
  const pool = batches(task);
  const manager = open(task.directory);
  const log = logOf(manager);
  let wall = 0;
  let cpu = 0;
  for (let n = 0; n < ROLLS; n++) {
    appendAsLeader(log, { ...task, megabytes: 0.001 }, pool);
    const time = await timed(() => log.roll());
    wall += time.wall;
    cpu += time.cpu;
  }
  await manager.close();
  return { microsecondsEach: (wall * 1e6) / ROLLS, cpuMicrosecondsEach: (cpu * 1e6) / ROLLS };
}

async function truncateOften(task: LogTask): Promise<Measurement> {
  const pool = batches(task);
  const manager = open(task.directory);
  const log = logOf(manager);
  appendAsLeader(log, task, pool);
  await log.flush();
  let wall = 0;
  let cpu = 0;
  for (let n = 0; n < CUTS; n++) {
    appendAsLeader(log, { ...task, megabytes: 0.001 }, pool);
    const time = await timed(() => {
      log.truncateTo(log.logEndOffset - 1);
    });
    wall += time.wall;
    cpu += time.cpu;
  }
  await manager.close();
  return { microsecondsEach: (wall * 1e6) / CUTS, cpuMicrosecondsEach: (cpu * 1e6) / CUTS };
}

const TASKS: Readonly<Record<string, (task: LogTask) => Promise<Measurement> | Measurement>> = {
  appendAsLeader: (task) => append(task, appendAsLeader),
  appendAsFollower: (task) => append(task, appendAsFollower),
  fill,
  recover,
  readSequentially,
  readAtRandom,
  roll: rollOften,
  truncate: truncateOften,
};

const [name = '', json = ''] = process.argv.slice(2);
const run = TASKS[name];
if (run === undefined) throw new Error(`unknown task ${name}`);
process.stdout.write(`${JSON.stringify(await run(JSON.parse(json) as LogTask))}\n`);
