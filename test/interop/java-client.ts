/**
 * The Java client as a service: one JVM (test/interop/java) answers many requests of a test run.
 *
 * - JSON lines over its stdin and stdout; requests run in parallel there and are matched by id.
 * - Compiled with javac at first use, into a jar in the cache keyed by its sources.
 * - Producers are named and live until closed, so that transactions can span requests; `abandon`
 *   leaves them open, as a client that died would.
 */
import { mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { buildOnce, CACHE, contentKey } from './cache.ts';
import type { Attempt, ClientRecord, HeaderList } from './client.ts';
import {
  classPath,
  type JvmMode,
  javaArguments,
  kafkaVersion,
  requireKafkaJars,
} from './kafka-jars.ts';
import {
  logFile,
  type ManagedProcess,
  removeDirectory,
  runOrThrow,
  spawnManaged,
} from './processes.ts';
import type { Isolation } from './raw-client.ts';

const SOURCES = join(import.meta.dirname, 'java');
const REQUEST_TIMEOUT_MS = 60_000;

/** The jar with the helper classes, compiled when its sources have changed. */
export async function helperJar(): Promise<string> {
  const libs = await requireKafkaJars();
  const sources = readdirSync(SOURCES)
    .filter((name) => name.endsWith('.java'))
    .sort()
    .map((name) => join(SOURCES, name));
  const target = join(CACHE, 'interop', `java-${contentKey(sources, kafkaVersion())}.jar`);
  return await buildOnce(target, async (temporary) => {
    const classes = `${temporary}.classes`;
    mkdirSync(classes, { recursive: true });
    try {
      const javac = ['-d', classes, '-proc:none', '-cp', classPath(libs), ...sources];
      await runOrThrow('javac', javac, { timeoutMs: 120_000 });
      await runOrThrow('jar', ['--create', '--file', temporary, '-C', classes, '.']);
    } finally {
      removeDirectory(classes);
    }
  });
}

/** A record to produce. Absent key or value: null. Absent partition: 0. */
export interface ProduceRecord {
  readonly topic: string;
  readonly partition?: number;
  readonly timestamp?: number;
  readonly key?: Buffer | string | null;
  readonly value?: Buffer | string | null;
  readonly headers?: HeaderList;
}

/** What became of the records of one `produce`, in order. */
export interface ProduceResult {
  readonly results: readonly {
    readonly partition?: number;
    readonly offset?: number;
    readonly error?: string;
    readonly message?: string;
  }[];
  readonly elapsedMs: number;
  /** Record-level retries that the producer counted. */
  readonly retries: number;
}

/** An error that the Java side reported: its exception class and message. */
export class JavaClientError extends Error {
  override readonly name = 'JavaClientError';
  readonly exception: string;
  constructor(exception: string, message: string) {
    super(`${exception}: ${message}`);
    this.exception = exception;
  }
}

type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

const encode = (bytes: Buffer | string | null | undefined): string | null =>
  bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString('base64');

const decode = (text: string | null): Buffer | null =>
  text === null ? null : Buffer.from(text, 'base64');

/** A record as the Java side prints it. */
type WireRecord = [
  partition: number,
  offset: number,
  timestamp: number,
  timestampType: string,
  leaderEpoch: number,
  key: string | null,
  value: string | null,
  headers: [string, string | null][],
];

function fromWire(record: WireRecord): ClientRecord {
  const [partition, offset, timestamp, timestampType, leaderEpoch, key, value, headers] = record;
  return {
    partition,
    offset,
    timestamp,
    timestampType,
    leaderEpoch,
    key: decode(key),
    value: decode(value),
    headers: headers.map(([name, bytes]) => [name, decode(bytes)] as const),
  };
}

interface Waiter {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/** One helper JVM. Call `close` when done. */
export class JavaClient {
  readonly #process: ManagedProcess;
  readonly #waiters = new Map<number, Waiter>();
  #nextId = 1;

  private constructor(process: ManagedProcess) {
    this.#process = process;
    const { stdout } = process.child;
    if (stdout === null) throw new Error('the helper has no output');
    createInterface({ input: stdout }).on('line', (line) => this.#onLine(line));
    process.exited.then(
      (exit) => this.#failAll(new Error(`helper JVM ended: ${JSON.stringify(exit)}`)),
      (error: Error) => this.#failAll(error),
    );
  }

  static async start(mode: JvmMode = 'fast', heap = '512m'): Promise<JavaClient> {
    const libs = await requireKafkaJars();
    const extraJars = [await helperJar()];
    const args = javaArguments(libs, 'InteropClient', [], { mode, heap, extraJars });
    const log = logFile('java-client');
    const command = ['-c', 'exec java "$@" 2>>"$0"', log, ...args];
    return new JavaClient(spawnManaged({ command: 'sh', args: command }));
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** Ends the JVM without closing producers: open transactions stay open. */
  async close(): Promise<void> {
    await this.#process.kill9();
  }

  #failAll(error: Error): void {
    for (const waiter of this.#waiters.values()) waiter.reject(error);
    this.#waiters.clear();
  }

  #onLine(line: string): void {
    const { id, result, exception, message } = JSON.parse(line) as {
      id: number;
      result?: unknown;
      exception?: string;
      message?: string;
    };
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    if (exception === undefined) waiter?.resolve(result);
    else waiter?.reject(new JavaClientError(exception, message ?? ''));
  }

  /** Sends a command of InteropClient.java; rejects with {@link JavaClientError}. */
  async request<T>(
    command: string,
    parameters: { readonly [key: string]: Json },
    timeoutMs = REQUEST_TIMEOUT_MS,
  ): Promise<T> {
    const exit = this.#process.exit();
    if (exit !== undefined) throw new Error(`helper JVM has ended: ${JSON.stringify(exit)}`);
    const id = this.#nextId++;
    let timer: NodeJS.Timeout | undefined;
    try {
      return await new Promise<T>((resolve, reject) => {
        this.#waiters.set(id, { resolve: (value) => resolve(value as T), reject });
        const late = (): void => reject(new Error(`${command} took over ${timeoutMs} ms`));
        timer = setTimeout(late, timeoutMs);
        this.#process.child.stdin?.write(`${JSON.stringify({ id, command, ...parameters })}\n`);
      });
    } finally {
      clearTimeout(timer);
      this.#waiters.delete(id);
    }
  }

  /**
   * Creates the producer `name`. Lists given to `produce` become batches of their own: it lingers
   * until flushed. With `transactional.id` in the config, `initTransactions` is called.
   */
  async openProducer(
    bootstrap: string,
    name: string,
    config: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    await this.request('openProducer', { bootstrap, name, config });
  }

  /** Sends the lists one after the other, flushing after each, so each makes its own batch. */
  async produce(
    name: string,
    ...lists: readonly (readonly ProduceRecord[])[]
  ): Promise<ProduceResult> {
    const batches = lists.map((list) =>
      list.map((record) => [
        record.topic,
        record.partition ?? 0,
        record.timestamp ?? null,
        encode(record.key),
        encode(record.value),
        (record.headers ?? []).map(([key, value]) => [key, encode(value)]),
      ]),
    );
    return await this.request<ProduceResult>('produce', { name, batches });
  }

  /** Like `produce`, but throws when a record failed; returns the offsets. */
  async produceAll(
    name: string,
    ...lists: readonly (readonly ProduceRecord[])[]
  ): Promise<number[]> {
    const { results } = await this.produce(name, ...lists);
    return results.map(({ offset, error, message }) => {
      if (offset === undefined) throw new JavaClientError(error ?? 'unknown', message ?? '');
      return offset;
    });
  }

  async begin(name: string): Promise<void> {
    await this.request('transaction', { name, action: 'begin' });
  }

  async commit(name: string): Promise<void> {
    await this.request('transaction', { name, action: 'commit' });
  }

  async abort(name: string): Promise<void> {
    await this.request('transaction', { name, action: 'abort' });
  }

  /** Closes the producer; an open transaction is left open when `abandon` is set. */
  async closeProducer(name: string, abandon = false): Promise<void> {
    await this.request('closeProducer', { name, abandon });
  }

  /** Every record from `from` (default: the beginning) to the present end, in order. */
  async readAll(
    bootstrap: string,
    topic: string,
    isolation: Isolation,
    from: Readonly<Record<number, number>> = {},
    config: Readonly<Record<string, string>> = {},
  ): Promise<ClientRecord[]> {
    const parameters = { bootstrap, topic, isolation, from: { ...from }, config };
    const { records } = await this.request<{ records: WireRecord[] }>('consume', parameters);
    return records.map(fromWire).sort((a, b) => a.partition - b.partition || a.offset - b.offset);
  }

  /**
   * Makes the consumer `name`, a member of `group` (config `group.protocol`: classic or consumer).
   * Without a committed offset it fails, unless the config says otherwise.
   */
  async openMember(
    bootstrap: string,
    name: string,
    group: string,
    topic: string,
    config: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const all = { ...config, 'group.id': group };
    await this.request('openMember', { bootstrap, name, topic, config: all });
  }

  /** Exactly so many records (0: it waits for an assignment), committed behind, as they came. */
  async readAsMember(name: string, count: number): Promise<ClientRecord[]> {
    const { records } = await this.request<{ records: WireRecord[] }>('readAsMember', {
      name,
      count,
    });
    return records.map(fromWire);
  }

  /** Leaves the group. */
  async closeMember(name: string): Promise<void> {
    await this.request('closeMember', { name });
  }

  /** One plain record to partition 0, as an application would send it. */
  async tryProduce(bootstrap: string, topic: string, partition = 0): Promise<Attempt> {
    return await this.request<Attempt>('tryProduce', { bootstrap, topic, partition });
  }

  async createTopic(
    bootstrap: string,
    topic: string,
    partitions: number,
    configs: Readonly<Record<string, string>> = {},
    assignments?: Readonly<Record<string, readonly number[]>>,
  ): Promise<void> {
    const parameters = { bootstrap, topic, partitions, configs, assignments: assignments ?? null };
    await this.request('createTopic', parameters);
  }

  async deleteTopic(bootstrap: string, topic: string): Promise<void> {
    await this.request('deleteTopic', { bootstrap, topic });
  }

  async createPartitions(bootstrap: string, topic: string, count: number): Promise<void> {
    await this.request('createPartitions', { bootstrap, topic, count });
  }

  /** Deletes the records below these offsets; returns the new log starts. */
  async deleteRecords(
    bootstrap: string,
    topic: string,
    before: Readonly<Record<number, number>>,
  ): Promise<Record<string, number>> {
    return await this.request('deleteRecords', { bootstrap, topic, before: { ...before } });
  }

  /** The overrides of a topic, a broker or a group (`source` is not a default). */
  async describeConfigs(
    bootstrap: string,
    type: 'TOPIC' | 'BROKER' | 'GROUP',
    name: string,
  ): Promise<Record<string, string>> {
    return await this.request('describeConfigs', { bootstrap, type, name });
  }

  /** Sets configs; a null value deletes the override. */
  async alterConfigs(
    bootstrap: string,
    type: 'TOPIC' | 'BROKER' | 'GROUP',
    name: string,
    configs: Readonly<Record<string, string | null>>,
  ): Promise<void> {
    await this.request('alterConfigs', { bootstrap, type, name, configs });
  }

  /** Per partition: earliest, latest (high watermark) and last stable offset. */
  async offsets(
    bootstrap: string,
    topic: string,
  ): Promise<Record<string, { earliest: number; latest: number; lastStable: number }>> {
    return await this.request('offsets', { bootstrap, topic });
  }

  /** Topic id (base64) and, per partition, leader, replicas and in-sync replicas. */
  async describeTopic(
    bootstrap: string,
    topic: string,
  ): Promise<{
    topicId: string;
    partitions: { partition: number; leader: number; replicas: number[]; isr: number[] }[];
  }> {
    return await this.request('describeTopic', { bootstrap, topic });
  }

  /** Moves partitions to these replicas (the first is preferred); resolves when all are in sync. */
  async reassign(
    bootstrap: string,
    topic: string,
    replicas: Readonly<Record<string, readonly number[]>>,
    timeoutMs = REQUEST_TIMEOUT_MS,
  ): Promise<void> {
    await this.request('reassign', { bootstrap, topic, replicas }, timeoutMs);
  }

  /** Makes the first replica the leader. */
  async electPreferredLeader(bootstrap: string, topic: string, partition: number): Promise<void> {
    await this.request('electPreferredLeader', { bootstrap, topic, partition });
  }

  async listGroups(bootstrap: string): Promise<{ group: string; type: string; state: string }[]> {
    return await this.request('listGroups', { bootstrap });
  }

  async commitOffsets(
    bootstrap: string,
    group: string,
    topic: string,
    offsets: Readonly<Record<number, number>>,
  ): Promise<void> {
    await this.request('commitOffsets', { bootstrap, group, topic, offsets: { ...offsets } });
  }

  /** Committed offsets by `topic-partition`. */
  async groupOffsets(bootstrap: string, group: string): Promise<Record<string, number>> {
    return await this.request('groupOffsets', { bootstrap, group });
  }
}
