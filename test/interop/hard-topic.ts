/**
 * Writes a topic that holds everything that makes mirroring hard, on a real Apache Kafka.
 *
 * Content, offsets and record timestamps are the same in every run (delete horizons of the cleaner,
 * marker timestamps and producer ids are the broker's). Per partition:
 *
 * - 0: a compacted region with gaps, tombstones, batches emptied by the cleaner, batches with a
 *   delete horizon, markers; then every codec, null and empty keys and values, all kinds of
 *   headers, big records; two leader epochs; part of a committed transaction.
 * - 1: several segments, then a log start above 0 (inside a batch unless told otherwise);
 *   committed, aborted and interleaved transactions.
 * - 2: committed data, then a transaction *left open*, then data behind it. A mirror is bounded by
 *   the source's last stable offset (F1), so exactly the offsets below its `firstOffset`
 *   must cross; the rest, markers included, once `commit` or `abort` was called.
 */
import type { KafkaCluster } from './apache-kafka.ts';
import type { HeaderList } from './client.ts';
import type { JavaClient, ProduceRecord } from './java-client.ts';

const START_MS = 1_700_000_000_000;
const HOUR_MS = 3_600_000;
const CLEANER_BOUND_MS = 30_000;
const BIG_RECORD_BYTES = 900 * 1024;
const SEGMENT_BYTES = 1024 * 1024;
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;

/** What was written. */
export interface HardTopic {
  readonly topic: string;
  readonly partitions: 3;
  /** The log start of partition 1. */
  readonly logStart: number;
  /** Offsets that the cleaner left over in partition 0, below `compactedBelow`. */
  readonly compactedOffsets: readonly number[];
  readonly compactedBelow: number;
  readonly openTransaction: {
    readonly partition: 2;
    readonly firstOffset: number;
    commit(): Promise<void>;
    abort(): Promise<void>;
  };
}

/** Choices. */
export interface HardTopicOptions {
  readonly topic?: string;
  /** Restart the broker in the middle, for a second leader epoch. Default true. */
  readonly restart?: boolean;
  /** Put partition 1's log start inside a batch. Default true. */
  readonly logStartInsideBatch?: boolean;
}

/** Names producers per topic, so that several hard topics can be written in one run. */
interface Writer {
  readonly java: JavaClient;
  readonly bootstrap: string;
  readonly topic: string;
  open(name: string, config?: Readonly<Record<string, string>>): Promise<string>;
}

function writerFor(java: JavaClient, bootstrap: string, topic: string): Writer {
  return {
    java,
    bootstrap,
    topic,
    async open(name, config = {}) {
      const full = `${topic}/${name}`;
      await java.openProducer(bootstrap, full, config);
      return full;
    },
  };
}

const hours = (count: number): number => START_MS + count * HOUR_MS;

/** Bytes that no codec makes smaller, the same in every run. */
function noise(length: number, seed: number): Buffer {
  const bytes = Buffer.alloc(length);
  let state = seed;
  for (let index = 0; index < length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}

type KeyValue = readonly [key: string, value: Buffer | string | null];

function keyed(topic: string, timestamp: number, pairs: readonly KeyValue[]): ProduceRecord[] {
  return pairs.map(([key, value], index) => ({
    topic,
    timestamp: timestamp + index,
    key,
    value,
    headers: [['round', Buffer.from(String(timestamp))]],
  }));
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, index) => from + index);

/** Offsets that must be left below `end` when every key but its newest record is gone. */
function survivors(log: ReadonlyMap<number, string>, end: number): number[] {
  const newest = new Map<string, number>();
  for (const [offset, key] of log) if (offset < end) newest.set(key, offset);
  return [...newest.values()].sort((a, b) => a - b);
}

/** Writes the rounds that the cleaner will thin out: four segments and an active one. */
async function writeCompactable(w: Writer): Promise<{ log: Map<number, string>; end: number }> {
  const { java, topic } = w;
  const plain = await w.open('plain', { 'enable.idempotence': 'false' });
  const gone = await w.open('gone', { 'compression.type': 'gzip' });
  const refill = await w.open('refill', { 'compression.type': 'zstd' });
  const kept = await w.open('kept', { 'compression.type': 'lz4' });
  const transactional = await w.open('compacted', { 'transactional.id': `${topic}-compacted` });
  const log = new Map<number, string>();
  const write = async (producer: string, hour: number, pairs: readonly KeyValue[]) => {
    const offsets = await java.produceAll(producer, keyed(topic, hours(hour), pairs));
    for (const [index, offset] of offsets.entries()) log.set(offset, pairs[index]?.[0] ?? '');
    return offsets;
  };
  const pairs = (prefix: string, from: number, to: number, value: string): KeyValue[] =>
    range(from, to).map((index) => [`${prefix}${index}`, `${value} of ${prefix}${index}`]);
  await write(plain, 0, pairs('k', 0, 10, 'first'));
  await write(gone, 0, pairs('k', 0, 5, 'second'));
  await write(kept, 2, [...pairs('k', 0, 8, 'third'), ['k9', null]]);
  await write(plain, 4, [...pairs('k', 8, 9, 'fourth'), ['only', 'once'], ['k1', null]]);
  await java.begin(transactional);
  const aborted = await write(transactional, 4.2, pairs('k', 5, 7, 'aborted'));
  await java.abort(transactional);
  for (const offset of aborted) log.delete(offset);
  // Markers carry the wall time, so no later record is late enough to begin a segment: size must.
  await java.begin(transactional);
  await write(transactional, 4.4, pairs('k', 2, 4, 'committed'));
  await java.commit(transactional);
  const filler = noise(1500, 98).toString('base64');
  await write(refill, 4.6, pairs('z', 0, 12, filler));
  await write(refill, 4.7, pairs('z', 0, 12, `again ${filler}`));
  const value = noise(SEGMENT_BYTES - 1000, 99);
  const [end = 0] = await write(kept, 4.8, [['begins the segment that stays dirty', value]]);
  for (const name of [plain, gone, refill, kept, transactional]) await java.closeProducer(name);
  return { log, end };
}

async function awaitCleaner(w: Writer, expected: readonly number[], end: number): Promise<void> {
  const wanted = expected.join();
  const deadline = Date.now() + CLEANER_BOUND_MS;
  for (;;) {
    const records = await w.java.readAll(w.bootstrap, w.topic, 'read_uncommitted');
    const offsets = records.filter((r) => r.partition === 0 && r.offset < end);
    const found = offsets.map(({ offset }) => offset).join();
    if (found === wanted) return;
    if (Date.now() > deadline) throw new Error(`cleaner left ${found}, expected ${wanted}`);
  }
}

const HEADERS: readonly HeaderList[] = [
  [],
  [['name', Buffer.from('value')]],
  [['null', null]],
  [['empty', Buffer.alloc(0)]],
  [
    ['twice', Buffer.from('a')],
    ['twice', Buffer.from('b')],
    ['other', Buffer.from([0, 255, 1])],
    ['twice', null],
  ],
  [['', Buffer.from('empty name')]],
];

/** Every kind of key, value and headers, in one batch. */
function varied(topic: string, partition: number, timestamp: number): ProduceRecord[] {
  const keys = ['key', null, '', 'schlüssel', 'k'.repeat(300)];
  const values = ['value', null, '', '値'.repeat(50), 'repeated '.repeat(200)];
  return range(0, 30).map((index) => ({
    topic,
    partition,
    // Out of order on purpose: the batch's maximum is not its last record's.
    timestamp: timestamp + ((index * 7) % 30) * 1000,
    key: keys[index % keys.length] ?? null,
    value: values[(index * 3 + 1) % values.length] ?? null,
    headers: HEADERS[index % HEADERS.length] ?? [],
  }));
}

async function writeCodecs(w: Writer, firstHour: number): Promise<void> {
  const { java, topic } = w;
  for (const [index, codec] of CODECS.entries()) {
    const idempotent = index % 2 === 0 ? 'true' : 'false';
    const config = { 'compression.type': codec, 'enable.idempotence': idempotent };
    const name = await w.open(codec, config);
    const timestamp = hours(firstHour + index);
    const lists = range(0, 3).map((n) => varied(topic, 0, timestamp + n * 40_000));
    const value = noise(BIG_RECORD_BYTES, index + 1);
    const big: ProduceRecord = { topic, timestamp: timestamp + 300_000, key: 'big', value };
    await java.produceAll(name, ...lists, ...(index % 2 === 0 ? [[big]] : []));
    await java.closeProducer(name);
  }
}

/** Six segments of two batches each, in partition 1. */
async function writeSegments(w: Writer): Promise<number[]> {
  const name = await w.open('segments', { 'compression.type': 'snappy' });
  const list = (hour: number): ProduceRecord[] =>
    range(0, 25).map((index) => ({
      topic: w.topic,
      partition: 1,
      timestamp: hours(hour) + index,
      key: `s${hour}-${index}`,
      value: 'x'.repeat(100 + index),
    }));
  const lists = range(0, 6).flatMap((n) => [list(2 * n), list(2 * n + 0.25)]);
  const offsets = await w.java.produceAll(name, ...lists);
  await w.java.closeProducer(name);
  return offsets;
}

function some(w: Writer, partition: number, hour: number, label: string, count = 5) {
  return range(0, count).map((index) => ({
    topic: w.topic,
    partition,
    timestamp: hours(hour) + index,
    key: `${label}-${index}`,
    value: `${label} ${index}`,
  }));
}

/** Committed, aborted and interleaved transactions over partitions 0 and 1. */
async function writeTransactions(w: Writer, hour: number): Promise<void> {
  const { java, topic } = w;
  const config = (id: string, codec: string) => ({
    'transactional.id': `${topic}-${id}`,
    'compression.type': codec,
  });
  const a = await w.open('a', config('a', 'none'));
  const b = await w.open('b', config('b', 'lz4'));
  const plain = await w.open('between', { 'enable.idempotence': 'false' });
  await java.begin(a);
  await java.produceAll(a, some(w, 1, hour, 'committed'), some(w, 0, hour, 'committed'));
  await java.commit(a);
  await java.begin(b);
  await java.produceAll(b, some(w, 1, hour, 'aborted'), some(w, 1, hour + 0.1, 'aborted'));
  await java.abort(b);
  await java.begin(a);
  await java.begin(b);
  await java.produceAll(a, some(w, 1, hour + 0.2, 'a-interleaved'));
  await java.produceAll(b, some(w, 1, hour + 0.2, 'b-interleaved'), some(w, 0, hour + 0.2, 'b'));
  await java.produceAll(plain, some(w, 1, hour + 0.2, 'plain-interleaved'));
  await java.produceAll(a, some(w, 1, hour + 0.3, 'a-interleaved'));
  await java.abort(a);
  await java.produceAll(b, some(w, 1, hour + 0.3, 'b-interleaved'));
  await java.commit(b);
  await java.produceAll(plain, some(w, 1, hour + 0.4, 'after'), some(w, 0, hour + 0.4, 'after'));
  for (const name of [a, b, plain]) await java.closeProducer(name);
}

/** Partition 2: the transaction that stays open, with committed data before and behind it. */
async function writeOpenTransaction(
  w: Writer,
  hour: number,
): Promise<HardTopic['openTransaction']> {
  const { java, topic } = w;
  const before = await w.open('before', { 'transactional.id': `${topic}-before` });
  const open = await w.open('open', {
    'transactional.id': `${topic}-open`,
    'transaction.timeout.ms': '3600000',
  });
  await java.begin(before);
  await java.produceAll(before, some(w, 2, hour, 'before'));
  await java.commit(before);
  await java.begin(open);
  const [firstOffset = 0] = await java.produceAll(open, some(w, 2, hour + 0.1, 'open'));
  await java.begin(before);
  await java.produceAll(before, some(w, 2, hour + 0.2, 'behind'));
  await java.commit(before);
  await java.produceAll(open, some(w, 2, hour + 0.3, 'open'));
  await java.closeProducer(before);
  return {
    partition: 2,
    firstOffset,
    commit: () => java.commit(open),
    abort: () => java.abort(open),
  };
}

/** Builds the topic on a single-broker cluster. Takes about ten seconds. */
export async function writeHardTopic(
  cluster: KafkaCluster,
  java: JavaClient,
  options: HardTopicOptions = {},
): Promise<HardTopic> {
  const topic = options.topic ?? 'hard';
  const { bootstrap } = cluster;
  const w = writerFor(java, bootstrap, topic);
  await java.createTopic(bootstrap, topic, 3, {
    'cleanup.policy': 'compact',
    'min.cleanable.dirty.ratio': '0.01',
    'segment.ms': String(HOUR_MS),
    'segment.bytes': String(SEGMENT_BYTES),
    'retention.ms': '-1',
    'max.message.bytes': '2097152',
  });
  const { log, end } = await writeCompactable(w);
  const compactedOffsets = survivors(log, end);
  await awaitCleaner(w, compactedOffsets, end);
  // From here on null keys are written, which a compacted topic refuses, and records deleted.
  await java.alterConfigs(bootstrap, 'TOPIC', topic, { 'cleanup.policy': 'delete' });
  await writeCodecs(w, 8);
  const segments = await writeSegments(w);
  if (options.restart !== false) {
    await cluster.stop();
    await cluster.start();
  }
  await writeTransactions(w, 20);
  const openTransaction = await writeOpenTransaction(w, 20);
  // Batches hold 25 records: 60 is inside the third, 75 the base of the fourth.
  const index = options.logStartInsideBatch === false ? 75 : 60;
  const logStart = segments[index] ?? 0;
  await java.deleteRecords(bootstrap, topic, { 1: logStart });
  const compactedBelow = end;
  return { topic, partitions: 3, logStart, compactedOffsets, compactedBelow, openTransaction };
}
