/**
 * Random keyed logs, compacted again and again, against a plain model: the newest value of every
 * key, and nothing above the bound touched.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { nodeCompression } from '../../src/io/node/node-compression.ts';
import { propertyRuns } from '../property-runs.ts';
import {
  batchesOf,
  COMPACTED,
  type Pairs,
  put,
  restartFromBatches,
  segmentFiles,
} from './compaction-harness.ts';
import { marker, SimHost } from './harness.ts';

const PRODUCERS = [3n, -2n, -(2n ** 56n) - 5n];
const DELETE_RETENTION_MS = 10_000;
const CODECS = ['none', 'lz4', 'zstd'] as const;

type Step =
  | {
      kind: 'data';
      keys: readonly (number | null)[];
      tombstones: boolean;
      gap: number;
      producer: number;
      transactional: boolean;
      codec: number;
    }
  | { kind: 'marker'; producer: number; commit: boolean }
  | { kind: 'roll' | 'compact' | 'restart' | 'rebuild' }
  | { kind: 'wait'; ms: number };

const keys = fc.array(fc.oneof({ weight: 9, arbitrary: fc.nat(7) }, fc.constant(null)), {
  minLength: 1,
  maxLength: 4,
});

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant('data' as const),
      keys,
      tombstones: fc.integer({ min: 0, max: 3 }).map((n) => n === 0),
      gap: fc.constantFrom(0, 0, 0, 0, 3, 2 ** 31),
      producer: fc.integer({ min: -2, max: 2 }),
      transactional: fc.boolean(),
      codec: fc.nat(2),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('marker' as const),
      producer: fc.nat(2),
      commit: fc.boolean(),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constantFrom('roll' as const, 'compact' as const, 'restart' as const, 'rebuild'),
    }) as fc.Arbitrary<Step>,
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.nat(15_000) }),
  },
);

const FIRST: Step = {
  kind: 'data',
  keys: [0],
  tombstones: false,
  gap: 0,
  producer: -1,
  transactional: false,
  codec: 0,
};

interface ModelRecord {
  readonly offset: number;
  readonly key: string | null;
  readonly value: string | null;
  readonly producer: bigint | undefined;
  outcome: 'open' | 'committed' | 'aborted';
}

/** Runs steps on a log and a list of records. */
class Runner {
  readonly host: SimHost;
  readonly #records: ModelRecord[] = [];
  readonly #sequences = new Map<bigint, number>();
  readonly #open = new Set<bigint>();
  #count = 0;

  constructor(host: SimHost) {
    this.host = host;
  }

  async run(each: Step): Promise<void> {
    const { host } = this;
    const { log } = host;
    if (each.kind === 'data') this.#data(each);
    else if (each.kind === 'marker') this.#marker(each.producer, each.commit);
    else if (each.kind === 'wait') await host.world.simulator.runFor(each.ms);
    else if (each.kind === 'roll') log.roll();
    else if (each.kind === 'restart') await host.restart();
    else if (each.kind === 'rebuild') await this.#rebuild();
    else await this.#compact();
    host.log.updateHighWatermark(host.log.logEndOffset);
  }

  #data(each: Extract<Step, { kind: 'data' }>): void {
    const { log } = this.host;
    const producer = PRODUCERS[each.producer];
    const baseOffset = log.logEndOffset + each.gap;
    const isTransactional =
      producer !== undefined && (each.transactional || this.#isOpen(producer));
    const baseSequence = producer === undefined ? -1 : (this.#sequences.get(producer) ?? 0);
    const pairs: Pairs = each.keys.map((key, index) => [
      key === null ? null : `k${key}`,
      each.tombstones && index % 2 === 0 ? null : `v${this.#count++}`,
    ]);
    const type = CODECS[each.codec] ?? 'none';
    const compression = { type, port: nodeCompression() };
    const own = { producerId: producer ?? -1n, producerEpoch: 0, baseSequence, isTransactional };
    put(log, pairs, { baseOffset, compression, ...(producer === undefined ? {} : own) });
    if (producer !== undefined) this.#sequences.set(producer, baseSequence + pairs.length);
    if (isTransactional && producer !== undefined) this.#open.add(producer);
    pairs.forEach(([key, value], index) => {
      const outcome = isTransactional ? ('open' as const) : ('committed' as const);
      this.#records.push({ offset: baseOffset + index, key, value, producer, outcome });
    });
  }

  #isOpen(producer: bigint): boolean {
    return this.#open.has(producer);
  }

  #marker(index: number, commit: boolean): void {
    const { log } = this.host;
    const producer = PRODUCERS[index] as bigint;
    log.appendAsFollower([marker(producer, commit, log.logEndOffset)], { verifyCrc: true });
    this.#open.delete(producer);
    for (const record of this.#records) {
      if (record.producer !== producer || record.outcome !== 'open') continue;
      record.outcome = commit ? 'committed' : 'aborted';
    }
  }

  /** Indexes, snapshots and all are made anew: producers must come out the same. */
  async #rebuild(): Promise<void> {
    const known = () =>
      [...this.host.log.activeProducers()]
        .map((p) => `${p.producerId} ${p.producerEpoch} ${p.lastSequence} ${p.lastOffset}`)
        .sort();
    const before = known();
    const open = this.host.log.openTransactions();
    await restartFromBatches(this.host);
    assert.deepEqual(known(), before);
    assert.deepEqual(this.host.log.openTransactions(), open);
  }

  async #compact(): Promise<void> {
    const { host } = this;
    const plan = host.log.planCompaction();
    const untouched = this.#leftFrom(plan.firstUncleanableOffset);
    await host.settle(host.manager.compactNow());
    assert.deepEqual(this.#leftFrom(plan.firstUncleanableOffset), untouched);
    assert.doesNotMatch(segmentFiles(host).join(), /cleaned|swap/);
    this.check();
  }

  #leftFrom(offset: number): string[] {
    return batchesOf(this.host)
      .filter(({ batch }) => batch.baseOffset >= offset)
      .map(({ batch }) => Buffer.from(batch.slice()).toString('base64'));
  }

  /** Everything that must be true of the log at any time. */
  check(): void {
    const { log } = this.host;
    const cleanBelow = log.firstDirtyOffset ?? 0;
    const model = new Map(this.#records.map((record) => [record.offset, record]));
    const found = batchesOf(this.host).flatMap(({ records }) => records);
    const seen = new Set<string>();
    const view = new Map<string, string | null>();
    for (const { offset, key, value } of found) {
      const record = model.get(offset);
      assert.deepEqual([key, value], [record?.key, record?.value], `record ${offset}`);
      if (record?.outcome === 'committed' && key !== null) view.set(key, value);
      if (offset >= cleanBelow) continue;
      assert.equal(record?.outcome, 'committed', `aborted data at ${offset}`);
      assert(key !== null && !seen.has(key), `key ${key} at ${offset} is there twice`);
      seen.add(key);
    }
    const expected = new Map<string, string | null>();
    for (const { key, value, outcome } of this.#records) {
      if (key !== null && outcome === 'committed') expected.set(key, value);
    }
    const live = (map: Map<string, string | null>) =>
      [...map].filter(([, value]) => value !== null).sort();
    assert.deepEqual(live(view), live(expected));
    for (const [key, value] of view) assert.equal(value, expected.get(key), key);
  }
}

for (const dedupeBufferBytes of [1 << 20, 0]) {
  test(`the newest value of every key survives (map of ${dedupeBufferBytes} bytes)`, async () => {
    const property = fc.asyncProperty(
      fc.array(step, { minLength: 5, maxLength: 60 }),
      fc.integer({ min: 150, max: 2000 }),
      async (steps, segmentBytes) => {
        const config = { ...COMPACTED, segmentBytes, deleteRetentionMs: DELETE_RETENTION_MS };
        const runner = new Runner(new SimHost(config, 1, { cleaner: { dedupeBufferBytes } }));
        // A directory without topic id and records would not be a log at the next start.
        await runner.run(FIRST);
        for (const each of steps) await runner.run(each);
        await runner.run({ kind: 'roll' });
        await runner.run({ kind: 'compact' });
        await runner.run({ kind: 'rebuild' });
        runner.check();
        await runner.host.end();
      },
    );
    await fc.assert(property, propertyRuns(150));
  });
}
