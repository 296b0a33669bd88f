/**
 * READ_COMMITTED consumers on a mirror: a real Apache Kafka's transactions (committed, aborted,
 * interleaved, open) are mirrored into twinlog, and every client gets there what was committed, as
 * at the source; also after kill -9, when whole responses are aborted data, and down a chain.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClientRecord, ReadOptions } from './client.ts';
import { clients, javaClient, sourceCluster } from './clusters.ts';
import { compareLogs, compareSequences } from './compare.ts';
import type { JavaClient, ProduceRecord } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { RawClient } from './raw-client.ts';
import { parseBatches } from './raw-log.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const TOPIC = 'transactions';
const MIRROR = 'transactions-mirror';
/** Interleaved transactions; one that is aborted as a whole; one that stays open. */
const [MIXED, ABORTED, OPEN] = [0, 1, 2] as const;
const ABORTED_BATCHES = 300;
const ABORTED_BATCH_BYTES = 50 * 1024;
/** A response holds one aborted batch at most. */
const SMALL: ReadOptions = { maxBytes: 64 * 1024 };
const MIRRORED = { upTo: 'lastStable', producerIds: 'mirrored' } as const;
// Timestamps are old: retention must not take them away.
const TOPIC_CONFIG = { 'segment.bytes': '1048576', 'retention.ms': '-1' };
const CATCH_UP_BOUND_MS = 20_000;
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;

let twinlog: TwinlogBroker;
let chained: TwinlogBroker;
/** `partition@offset` of all that was committed, in order. */
const committed: string[] = [];
/** Offsets inside aborted batches. */
const insideAborted: number[] = [];
let open: Writer;

/** A transactional producer at the source that notes what it wrote. */
class Writer {
  readonly #java: JavaClient;
  readonly #name: string;
  readonly #written: string[] = [];

  private constructor(java: JavaClient, name: string) {
    this.#java = java;
    this.#name = name;
  }

  static async open(name: string, codec: string): Promise<Writer> {
    const java = await javaClient();
    await java.openProducer((await sourceCluster()).bootstrap, `${TOPIC}/${name}`, {
      'transactional.id': `${TOPIC}-${name}`,
      'transaction.timeout.ms': '600000',
      'compression.type': codec,
    });
    return new Writer(java, `${TOPIC}/${name}`);
  }

  begin(): Promise<void> {
    return this.#java.begin(this.#name);
  }

  /** Each list is a batch. Returns the offsets. */
  async write(...lists: ProduceRecord[][]): Promise<number[]> {
    const offsets = await this.#java.produceAll(this.#name, ...lists);
    const partition = lists[0]?.[0]?.partition ?? 0;
    this.#written.push(...offsets.map((offset) => `${partition}@${offset}`));
    return offsets;
  }

  async commit(): Promise<void> {
    await this.#java.commit(this.#name);
    committed.push(...this.#written.splice(0));
  }

  async abort(): Promise<void> {
    await this.#java.abort(this.#name);
    this.#written.length = 0;
  }

  close(): Promise<void> {
    return this.#java.closeProducer(this.#name);
  }
}

function records(partition: number, label: string, count = 5): ProduceRecord[] {
  return Array.from({ length: count }, (_, index) => ({
    topic: TOPIC,
    partition,
    timestamp: 1_700_000_000_000 + index,
    key: `${label}-${index}`,
    value: `${label} `.repeat(20),
  }));
}

/** Rounds in which every codec's producer writes, and every second transaction is aborted. */
async function writeMixed(): Promise<void> {
  const writers = await Promise.all(CODECS.map((codec) => Writer.open(codec, codec)));
  const late = await Writer.open('late', 'none');
  for (let round = 0; round < 4; round++) {
    // One transaction spans a whole round, so that the others end within it.
    await late.begin();
    await late.write(records(MIXED, `late ${round}`));
    for (const writer of writers) await writer.begin();
    for (let part = 0; part < 3; part++) {
      for (const [index, writer] of writers.entries()) {
        const label = `${CODECS[index]} ${round}.${part}`;
        const offsets = await writer.write(records(MIXED, label), records(MIXED, label, 2));
        if ((index + round) % 2 === 0) insideAborted.push((offsets[0] ?? 0) + 2);
      }
    }
    for (const [index, writer] of writers.entries()) {
      if ((index + round) % 2 === 0) await writer.abort();
      else await writer.commit();
    }
    if (round % 2 === 0) await late.abort();
    else await late.commit();
  }
  for (const writer of [...writers, late]) await writer.close();
}

async function writeAborted(): Promise<void> {
  const writer = await Writer.open('large', 'none');
  await writer.begin();
  const value = Buffer.alloc(ABORTED_BATCH_BYTES, 'aborted ');
  const batch: ProduceRecord[] = [{ topic: TOPIC, partition: ABORTED, value }];
  for (let done = 0; done < ABORTED_BATCHES; done += 50) {
    await writer.write(...Array.from({ length: 50 }, () => batch));
  }
  await writer.abort();
  await writer.begin();
  await writer.write(records(ABORTED, 'behind'));
  await writer.commit();
  await writer.close();
}

async function writeOpen(): Promise<void> {
  const other = await Writer.open('other', 'lz4');
  open = await Writer.open('open', 'gzip');
  await other.begin();
  await other.write(records(OPEN, 'before'));
  await other.commit();
  await other.begin();
  await other.write(records(OPEN, 'aborted'));
  await open.begin();
  await open.write(records(OPEN, 'open'));
  await other.abort();
  await open.write(records(OPEN, 'open'));
  await other.close();
}

const places = (read: readonly ClientRecord[]): string[] =>
  read.map(({ partition, offset }) => `${partition}@${offset}`);

/** In the order of partitions and offsets, as reads are. */
function expectedPlaces(): string[] {
  const parsed = committed.map((place) => place.split('@').map(Number) as [number, number]);
  parsed.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  return parsed.map(([partition, offset]) => `${partition}@${offset}`);
}

/** What clients read must be the committed records, as the Java client gets them at the source. */
async function checkClients(
  bootstrap: string,
  options: ReadOptions = {},
  leftOut?: string,
): Promise<void> {
  const source = (await sourceCluster()).bootstrap;
  const reference = await (await javaClient()).readAll(source, TOPIC, 'read_committed');
  assert.deepEqual(places(reference), expectedPlaces());
  for (const { name, keepsHeaderOrder, readAll } of await clients()) {
    if (name === leftOut) continue;
    const read = await readAll(bootstrap, TOPIC, 'read_committed', options);
    const found = compareSequences(reference, read, keepsHeaderOrder);
    assert.deepEqual(found.slice(0, 3), [], `${name} at ${bootstrap}`);
  }
}

/**
 * The same at the source, without kafkajs: it takes the list of aborted transactions for sorted by
 * first offset, and hands out aborted records of interleaved transactions at any Apache Kafka.
 */
async function checkSource(options: ReadOptions = {}): Promise<void> {
  await checkClients((await sourceCluster()).bootstrap, options, 'kafkajs');
}

/** Waits until `to` has all that `from` has decided, or says after the bound what differs. */
async function differences(from: string, to: string): Promise<string[]> {
  const deadline = Date.now() + CATCH_UP_BOUND_MS;
  for (;;) {
    let found: string[];
    try {
      found = await compareLogs(from, to, TOPIC, MIRRORED);
    } catch (error) {
      found = [String(error)]; // the topic is not there yet
    }
    if (found.length === 0 || Date.now() > deadline) return found;
    await sleep(100);
  }
}

/** The same for the mirror of the source. */
async function differencesFromSource(): Promise<string[]> {
  return await differences((await sourceCluster()).bootstrap, twinlog.bootstrap);
}

if (skip === false) {
  before(async () => {
    const { bootstrap } = await sourceCluster();
    await (await javaClient()).createTopic(bootstrap, TOPIC, 3, TOPIC_CONFIG);
    await writeMixed();
    await writeAborted();
    await writeOpen();
    twinlog = await startTwinlog({ name: 'committed' });
    await twinlog.mirrors('create', MIRROR, '--source', bootstrap);
    await twinlog.mirrors('add', MIRROR, TOPIC);
    assert.deepEqual(await differencesFromSource(), []);
  });
  after(async () => {
    await twinlog?.destroy();
    await chained?.destroy();
  });
}

test('P3 P2: every client reads what is committed, as at the source', { skip }, async () => {
  await checkSource();
  await checkClients(twinlog.bootstrap);
});

test('P3: clients go on when whole responses are aborted data', { skip }, async () => {
  await checkSource(SMALL);
  await checkClients(twinlog.bootstrap, SMALL);
});

test('P3: a consumer that starts inside an aborted batch goes on behind it', { skip }, async () => {
  const java = await javaClient();
  const { bootstrap } = await sourceCluster();
  assert.ok(insideAborted.length > 20);
  for (const offset of [...insideAborted.slice(0, 3), ...insideAborted.slice(-3)]) {
    const from = { [MIXED]: offset };
    const there = await java.readAll(bootstrap, TOPIC, 'read_committed', from);
    const here = await java.readAll(twinlog.bootstrap, TOPIC, 'read_committed', from);
    assert.deepEqual(compareSequences(there, here), [], `from ${offset}`);
  }
});

test('P3 P2: the same after kill -9 and restart', { skip }, async () => {
  await twinlog.kill9();
  await twinlog.start();
  assert.deepEqual(await differencesFromSource(), []);
  await checkClients(twinlog.bootstrap, SMALL);
});

test('P3: when the open transaction is aborted, it is hidden, too', { skip }, async () => {
  await open.abort();
  await open.begin();
  await open.write(records(OPEN, 'last'));
  await open.commit();
  assert.deepEqual(await differencesFromSource(), []);
  await checkSource();
  await checkClients(twinlog.bootstrap);
});

test('P3 P1: a chained twinlog gets the log as it is, its clients what is committed', {
  skip,
}, async () => {
  chained = await startTwinlog({ name: 'chained' });
  await chained.mirrors('create', MIRROR, '--source', twinlog.bootstrap);
  await chained.mirrors('add', MIRROR, TOPIC);
  assert.deepEqual(await differences(twinlog.bootstrap, chained.bootstrap), []);
  await checkClients(chained.bootstrap);
});

test('P3: a response of aborted data is one stand-in a batch', { skip }, async () => {
  await using client = await RawClient.connect(twinlog.host, twinlog.port);
  const options = { isolation: 'read_committed', maxBytes: 10 * ABORTED_BATCH_BYTES } as const;
  const { records } = await client.fetch(TOPIC, ABORTED, 0n, options);
  const batches = parseBatches(records);
  // The limit counts what is in the log: nine whole batches with their headers.
  assert.deepEqual(
    batches.map(({ baseOffset }) => baseOffset),
    [0n, 1n, 2n, 3n, 4n, 5n, 6n, 7n, 8n],
  );
  assert.ok(batches.every(({ crcIsValid, attributes }) => crcIsValid && attributes === 0x30));
  assert.ok(records.length < 9 * 100);
});
