/**
 * Compaction beside Apache Kafka's, on the same log: mirrored first, then cut loose, so that both
 * clean the same batches with the same settings; what is left must be the same, round by round.
 *
 * A round adds records and one big one that begins a new segment, so that all before it is dirty on
 * both sides; the cleaner checkpoints say when both are through. Delete horizons hold the time of a
 * run, and compressed bytes depend on the library: those alone are not compared.
 */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../../src/base/random.ts';
import { javaClient, sourceCluster } from './clusters.ts';
import { compareLogs, compareSequences, dumpSegments, mirroredProducerId } from './compare.ts';
import type { ProduceRecord } from './java-client.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { type RawBatch, readTopic } from './raw-log.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const TOPIC = 'compacted-by-both';
const SEGMENT_BYTES = 1024 * 1024;
const DELETE_RETENTION_MS = 1000;
const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;
const KEYS = 12;
const COMPRESSION = 0x07;
const DELETE_HORIZON = 0x40;
const NEVER_MS = 10 ** 15;
const BOUND_MS = 30_000;

let twinlog: TwinlogBroker | undefined;
after(() => twinlog?.destroy());

const random = seededRandom(2024);
let written = 0;

/** A few records with keys from a small set; some are tombstones. */
function some(prefix: string): ProduceRecord[] {
  return Array.from({ length: 1 + random.below(5) }, () => ({
    topic: TOPIC,
    timestamp: 1_700_000_000_000 + written * 1000,
    key: `${prefix}${random.below(KEYS)}`,
    value: random.chance(0.2) ? null : `value ${written++} ${'x'.repeat(random.below(200))}`,
    headers: [['n', Buffer.from(String(written))]] as const,
  }));
}

/** Begins a segment: it does not fit behind anything. */
function filler(): ProduceRecord {
  const value = Buffer.from(random.bytes(SEGMENT_BYTES - 200));
  return { topic: TOPIC, timestamp: 1_700_000_000_000 + written++, key: 'filler', value };
}

/** All kinds of producers; every transaction ends. */
async function writeInput(bootstrap: string): Promise<void> {
  const java = await javaClient();
  const open = async (name: string, config: Record<string, string>): Promise<string> => {
    await java.openProducer(bootstrap, `${TOPIC}/${name}`, config);
    return `${TOPIC}/${name}`;
  };
  const plain = await open('plain', { 'enable.idempotence': 'false' });
  const idempotent: string[] = [];
  for (const codec of CODECS) idempotent.push(await open(codec, { 'compression.type': codec }));
  const transactional: string[] = [];
  for (const codec of ['none', 'lz4']) {
    const config = { 'transactional.id': `${TOPIC}-${codec}`, 'compression.type': codec };
    transactional.push(await open(`transactional-${codec}`, config));
  }
  // Data that only one producer's last batch holds, and is superseded: it must be remembered.
  await java.produceAll(idempotent[1] as string, some('k'));
  for (let round = 0; round < 12; round++) {
    for (const name of transactional) await java.begin(name);
    for (let n = 0; n < 4; n++) {
      await java.produceAll(plain, some('k'));
      await java.produceAll(idempotent[round % 5] as string, some('k'), some('j'));
      await java.produceAll(transactional[n % 2] as string, some('k'));
    }
    for (const name of transactional) {
      if (random.chance(0.5)) await java.commit(name);
      else await java.abort(name);
    }
    if (round % 4 === 3) await java.produceAll(plain, [filler()]);
  }
  for (const name of [plain, ...idempotent, ...transactional]) await java.closeProducer(name);
}

async function until(what: string, condition: () => Promise<boolean> | boolean): Promise<void> {
  const deadline = Date.now() + BOUND_MS;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`not within ${BOUND_MS} ms: ${what}`);
    await sleep(50);
  }
}

function cleanedOffset(dataDir: string): number {
  const path = join(dataDir, 'cleaner-offset-checkpoint');
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  return Number(new RegExp(`^${TOPIC} 0 (\\d+)$`, 'm').exec(text)?.[1] ?? -1);
}

/** Base offsets of the segments. */
function segments(dataDir: string): number[] {
  const names = readdirSync(join(dataDir, `${TOPIC}-0`));
  return names.filter((name) => /^\d+\.log$/.test(name)).map((name) => Number.parseInt(name, 10));
}

/** The fields of a batch that two cleaners must agree on. */
function comparable(batch: RawBatch, producerId: bigint): object {
  const { baseOffset, lastOffset, attributes, maxTimestamp, producerEpoch, baseSequence } = batch;
  const hasHorizon = (attributes & DELETE_HORIZON) !== 0;
  const isPlain = (attributes & COMPRESSION) === 0 && !hasHorizon;
  return {
    baseOffset,
    lastOffset,
    attributes,
    maxTimestamp,
    producerId,
    producerEpoch,
    baseSequence,
    count: batch.count,
    crcIsValid: batch.crcIsValid,
    baseTimestamp: hasHorizon ? undefined : batch.baseTimestamp,
    records: isPlain ? batch.records.toString('base64') : undefined,
  };
}

async function compareBoth(apache: string, ours: string): Promise<RawBatch[]> {
  const [left, right] = await Promise.all([readTopic(apache, TOPIC), readTopic(ours, TOPIC)]);
  const [source, copy] = [left.partitions[0], right.partitions[0]];
  assert(source !== undefined && copy !== undefined);
  assert.deepEqual([copy.logStart, copy.end], [source.logStart, source.end]);
  assert.deepEqual(
    copy.batches.map((batch) => comparable(batch, batch.producerId)),
    source.batches.map((batch) => comparable(batch, mirroredProducerId(batch.producerId))),
  );
  const java = await javaClient();
  const records = await java.readAll(apache, TOPIC, 'read_uncommitted');
  assert.deepEqual(
    compareSequences(records, await java.readAll(ours, TOPIC, 'read_uncommitted')),
    [],
  );
  const committed = await java.readAll(apache, TOPIC, 'read_committed');
  assert.deepEqual(
    compareSequences(committed, await java.readAll(ours, TOPIC, 'read_committed')),
    [],
  );
  return [...copy.batches];
}

test('P2 P3 F8: both clean the same log to the same batches', { skip }, async () => {
  const source = await sourceCluster();
  const apache = source.bootstrap;
  const java = await javaClient();
  twinlog = await startTwinlog({
    name: 'compacting',
    settings: {
      'log.segment.bytes': String(SEGMENT_BYTES),
      'log.roll.ms': String(NEVER_MS),
      'log.cleaner.backoff.ms': '200',
    },
  });
  const ours = twinlog.bootstrap;
  await java.createTopic(apache, TOPIC, 1, {
    'segment.bytes': String(SEGMENT_BYTES),
    // Markers have the present time, records an older one.
    'segment.ms': String(NEVER_MS),
    'retention.ms': '-1',
  });
  await writeInput(apache);
  await twinlog.mirrors('create', 'compacting', '--source', apache);
  await twinlog.mirrors('add', 'compacting', TOPIC);
  await until('the mirror has caught up', async () => {
    try {
      const options = { upTo: 'lastStable', producerIds: 'mirrored' } as const;
      return (await compareLogs(apache, ours, TOPIC, options)).length === 0;
    } catch {
      return false; // the topic is not there yet
    }
  });
  await twinlog.mirrors('remove', 'compacting', TOPIC);
  for (const bootstrap of [apache, ours]) {
    await java.alterConfigs(bootstrap, 'TOPIC', TOPIC, {
      'cleanup.policy': 'compact',
      'min.cleanable.dirty.ratio': '1.0',
      'delete.retention.ms': String(DELETE_RETENTION_MS),
    });
    await java.openProducer(bootstrap, `after/${bootstrap}`, { 'enable.idempotence': 'false' });
  }
  const setRatio = async (ratio: string): Promise<void> => {
    for (const bootstrap of [apache, ours]) {
      await java.alterConfigs(bootstrap, 'TOPIC', TOPIC, { 'min.cleanable.dirty.ratio': ratio });
    }
  };
  const dataDirs = [source.broker(1).dataDir, twinlog.dataDir] as const;
  assert.deepEqual(segments(dataDirs[1]), segments(dataDirs[0]));
  const counts: { records: number; horizons: number; empty: number; control: number }[] = [];
  for (let round = 0; round < 4; round++) {
    const lists = [some('k'), some('j'), [filler()]];
    const offsets: number[] = [];
    for (const bootstrap of [apache, ours]) {
      const all = await java.produceAll(`after/${bootstrap}`, ...lists);
      offsets.push(all.at(-1) ?? -1);
    }
    assert.equal(offsets[0], offsets[1]);
    // No ratio is above 1: neither cleans before both are to, and then each once.
    await setRatio('0.0');
    await until('both have cleaned up to the new segment', () =>
      dataDirs.every((dataDir) => cleanedOffset(dataDir) === offsets[0]),
    );
    await setRatio('1.0');
    assert.deepEqual(segments(dataDirs[1]), segments(dataDirs[0]), 'grouped alike');
    const batches = await compareBoth(apache, ours);
    counts.push({
      records: batches.reduce((sum, { count }) => sum + count, 0),
      horizons: batches.filter(({ attributes }) => attributes & DELETE_HORIZON).length,
      empty: batches.filter(({ count }) => count === 0).length,
      control: batches.filter(({ attributes }) => attributes & 0x20).length,
    });
    // Before the next round all horizons have passed.
    await sleep(DELETE_RETENTION_MS + 200);
  }
  const [first, , , last] = counts;
  assert(first !== undefined && last !== undefined);
  assert(first.horizons > 0 && first.empty > 0, JSON.stringify(counts));
  assert(last.control < first.control, JSON.stringify(counts));
});

test('Apache Kafka reads what our cleaner wrote without complaint', { skip }, async () => {
  const source = await sourceCluster();
  const { gaps } = await dumpSegments(source.broker(1).dataDir, TOPIC);
  assert(gaps.size > 5);
  await twinlog?.stop();
  const options = { allowedGaps: gaps, stopped: true };
  const { complaints, segments } = await dumpSegments(twinlog?.dataDir ?? '', TOPIC, options);
  assert.deepEqual(complaints, []);
  assert(segments >= 2);
});
