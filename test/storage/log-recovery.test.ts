/** What is there after an orderly stop, a kill, a power loss and damage. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type SeededRandom, seededRandom } from '../../src/base/random.ts';
import { DiskError } from '../../src/io/runtime.ts';
import { HIGH_WATERMARK_INTERVAL_MS } from '../../src/storage/log-manager.ts';
import {
  accepted,
  batchOf,
  DIRECTORY,
  follow,
  marker,
  readAll,
  type SeenBatch,
  SimHost,
} from './harness.ts';

const SMALL = { segmentBytes: 400, indexIntervalBytes: 100 };
const LOG = `${DIRECTORY}/00000000000000000000.log`;

function append(host: SimHost, count: number, text = 'r'): void {
  for (let index = 0; index < count; index++) {
    accepted(host.log.appendAsLeader(batchOf(`${text}${index}`, 2), 0, 'client'));
  }
}

function sizeOf(host: SimHost, path: string): number {
  return host.files().fileSize(path) ?? assert.fail(`no file ${path}`);
}

function truncateFile(host: SimHost, path: string, size: number): void {
  const file = host.files().open(path, 'update');
  file.truncate(size);
  file.close();
}

function flipByte(host: SimHost, path: string, position: number): void {
  const file = host.files().open(path, 'update');
  const byte = new Uint8Array(1);
  file.read(byte, position);
  file.write([new Uint8Array([(byte[0] ?? 0) ^ 0x55])], position);
  file.close();
}

test('after an orderly stop everything is as it was, and nothing is cut', async () => {
  const host = new SimHost(SMALL);
  append(host, 20);
  host.log.updateHighWatermark(31);
  const before = readAll(host.log);
  const files = host.files().list(DIRECTORY);
  await host.restart();
  assert.deepEqual(readAll(host.log), before);
  const { logEndOffset, highWatermark, recoveryPoint } = host.log;
  assert.deepEqual([logEndOffset, highWatermark, recoveryPoint], [40, 31, 40]);
  const names = (list: typeof files) => (list ?? []).map((entry) => entry.name);
  const added = names(host.files().list(DIRECTORY)).filter((name) => !names(files).includes(name));
  assert.deepEqual(added, ['00000000000000000040.snapshot', 'leader-epoch-checkpoint']);
  append(host, 1);
  assert.equal(readAll(host.log).length, 21);
});

test('a kill loses nothing, whether or not it was flushed', async () => {
  const host = new SimHost(SMALL);
  append(host, 10);
  await host.settle(host.log.flush());
  append(host, 10, 's');
  const before = readAll(host.log);
  await host.kill();
  assert.deepEqual(readAll(host.log), before);
  await host.kill();
  assert.deepEqual(readAll(host.log), before);
});

test('a tail torn at any byte of the last batch is cut behind the batch before', async () => {
  const whole = batchOf('the last batch', 3, {
    producerId: -7n,
    producerEpoch: 0,
    baseSequence: 0,
  });
  for (let kept = 0; kept <= whole.length; kept++) {
    const host = new SimHost();
    append(host, 3);
    const end = sizeOf(host, LOG);
    accepted(host.log.appendAsLeader(whole.slice(), 0, 'client'));
    host.stop();
    host.world.start('other');
    const runtime = host.world.start('machine');
    const file = runtime.disk.open(LOG, 'update');
    file.truncate(end + kept);
    file.close();
    host.stop();
    host.start();
    const expected = kept === whole.length ? 9 : 6;
    assert.equal(host.log.logEndOffset, expected, `${kept} bytes kept`);
    assert.equal(sizeOf(host, LOG), kept === whole.length ? end + kept : end);
    assert.equal(host.log.activeProducers().length, kept === whole.length ? 1 : 0);
    accepted(host.log.appendAsLeader(batchOf('next'), 0, 'client'));
    assert.equal(readAll(host.log).at(-1)?.baseOffset, expected);
  }
});

test('a damaged byte anywhere in the unflushed tail cuts there', () => {
  const random = seededRandom(5);
  for (let round = 0; round < 60; round++) {
    const host = new SimHost({ indexIntervalBytes: 0 });
    append(host, 6);
    const before = readAll(host.log);
    const position = random.below(sizeOf(host, LOG));
    host.stop();
    host.start();
    host.stop();
    host.runtime = host.world.start('machine');
    flipByte(host, LOG, position);
    host.stop();
    host.start();
    const left = readAll(host.log);
    const size = before.map((batch) => Buffer.from(batch.bytes, 'base64').length);
    let start = 0;
    let damaged = 0;
    while (start + (size[damaged] ?? 0) <= position) start += size[damaged++] ?? 0;
    // The CRC does not cover base offset (here a gap may be meant) and leader epoch.
    if (position - start < 8 || (position - start >= 12 && position - start < 16)) continue;
    assert.deepEqual(left, before.slice(0, damaged), `byte ${position}`);
  }
});

test('damage below the recovery point takes that partition offline and says where', async () => {
  const host = new SimHost(SMALL);
  append(host, 10);
  const other = { topic: 'other', partition: 3 };
  host.manager.createLog(other, undefined, host.log.config);
  await host.settle(host.log.flush());
  await host.world.simulator.runFor(1);
  await host.settle(host.manager.close());
  host.files().remove('/data/.kafka_cleanshutdown');
  const last = host.log.segments().at(-1) ?? assert.fail();
  truncateFile(host, last.path, last.sizeBytes - 5);
  host.stop();
  host.start();
  const offline = host.manager.offline();
  assert.deepEqual(
    offline.map((each) => each.topic),
    ['topic'],
  );
  assert.match(offline[0]?.reason ?? '', /\.log: .* position \d+, offset \d+, below .* 20/);
  assert.equal(host.manager.getLog(other)?.logEndOffset, 0);
});

test('missing and damaged indexes are rebuilt', async () => {
  const host = new SimHost(SMALL);
  append(host, 30);
  const before = readAll(host.log);
  const [first, second, third] = host.log.segments();
  await host.settle(host.manager.close());
  const index = (segment: typeof first, suffix: string) =>
    (segment?.path ?? '').replace(/log$/, suffix);
  host.files().remove(index(first, 'index'));
  host.files().remove(index(second, 'timeindex'));
  truncateFile(host, index(third, 'index'), 3);
  host.stop();
  host.start();
  assert.deepEqual(readAll(host.log), before);
  for (let offset = 0; offset < 60; offset++) {
    const at = host.log.read(offset, 1, 'logEnd', true);
    assert(at.error === 0 && at.records.length === 1);
  }
  const found = host.log.offsetForTimestamp(1_700_000_000_001n);
  assert.equal(typeof found === 'object' ? found.offset : found, 1);
});

test('a damaged checkpoint of offsets or epochs is not trusted, and made anew', async () => {
  const host = new SimHost(SMALL);
  for (let epoch = 3; epoch < 6; epoch++) {
    accepted(host.log.appendAsLeader(batchOf('x', 5), epoch, 'client'));
  }
  await host.settle(host.manager.close());
  for (const path of [
    `${DIRECTORY}/leader-epoch-checkpoint`,
    '/data/replication-offset-checkpoint',
  ]) {
    flipByte(host, path, 2);
  }
  host.stop();
  host.start();
  assert.equal(host.log.logEndOffset, 15);
  assert.deepEqual(host.log.epochEndOffset(4), { leaderEpoch: 4, endOffset: 10 });
});

test('open and aborted transactions survive kill and restart, with their index', async () => {
  const host = new SimHost({ segmentBytes: 500, indexIntervalBytes: 0 });
  const txn = (producerId: bigint, sequence: number) => ({
    producerId,
    producerEpoch: 0,
    baseSequence: sequence,
    isTransactional: true,
  });
  const send = (bytes: Uint8Array) => accepted(host.log.appendAsLeader(bytes, 0, 'client'));
  const end = (id: bigint, commit: boolean) =>
    accepted(host.log.appendAsLeader(marker(id, commit), 0, 'coordinator'));
  for (let round = 0; round < 5; round++) {
    send(batchOf('a', 2, txn(-4n, round * 2)));
    send(batchOf('b', 2, txn(8n, round * 2)));
    end(-4n, round % 2 === 0);
    end(8n, round % 2 === 1);
  }
  send(batchOf('open', 1, txn(-6n, 0)));
  const openAt = host.log.logEndOffset - 1;
  send(batchOf('behind', 3));
  const look = () => {
    host.log.updateHighWatermark(host.log.logEndOffset);
    const read = host.log.read(0, 100, 'lastStable', true);
    assert(read.error === 0);
    const aborted: string[] = [];
    for (let offset = 0; offset < host.log.lastStableOffset; offset += 6) {
      const part = host.log.read(offset, 1, 'lastStable', true);
      assert(part.error === 0);
      aborted.push(
        (part.abortedTransactions ?? []).map((a) => `${a.producerId}@${a.firstOffset}`).join(),
      );
    }
    return { lso: host.log.lastStableOffset, open: host.log.openTransactions(), aborted };
  };
  const before = look();
  assert.deepEqual([before.lso, before.open], [openAt, [{ producerId: -6n, firstOffset: openAt }]]);
  assert.equal(new Set(before.aborted).size > 2, true);
  await host.kill();
  assert.deepEqual(look(), before);
  await host.settle(host.log.flush());
  await host.kill();
  assert.deepEqual(look(), before);
  await host.restart();
  assert.deepEqual(look(), before);
  end(-6n, false);
  assert.equal(look().lso, host.log.logEndOffset);
});

test('a log directory in use is refused', () => {
  const host = new SimHost();
  const manager = new (
    host.manager.constructor as typeof import('../../src/storage/log-manager.ts').LogManager
  )(host.runtime, { logDir: '/data', defaultConfig: host.log.config });
  assert.throws(() => manager.load(() => host.log.config), { name: 'LogDirectoryInUse' });
});

/** Times as many seeds in the full tier. */
const MORE = process.env.TWINLOG_TEST === 'full' ? 20 : 1;

test('power losses with random flushes, rolls and cuts: what was durable is there', async () => {
  for (let seed = 1; seed <= 100 * MORE; seed++) await new CrashRun(seed, {}).run();
});

test('failing disk calls in appends, rolls, cuts and flushes, then a crash: the same', async () => {
  for (let seed = 1; seed <= 150 * MORE; seed++) await new CrashRun(seed, { fault: 0.08 }).run();
});

test('crashes between two disk changes of an append, roll, cut or flush: the same', async () => {
  for (let seed = 1; seed <= 150 * MORE; seed++) await new CrashRun(seed, { crash: 0.1 }).run();
});

/** Chances per step. */
interface CrashChances {
  readonly fault?: number;
  /** Of a crash in the middle of this step or one of the next. */
  readonly crash?: number;
}

/** Lives of one log that end by a crash, some of them after a failing disk call. */
class CrashRun {
  readonly #seed: number;
  readonly #chances: CrashChances;
  readonly #random: SeededRandom;
  readonly #host: SimHost;
  /** What a flush has promised. */
  #durable: SeenBatch[] = [];
  #syncFailed = false;
  /** The process ended in the middle of a step; what that step promised nobody heard. */
  #crashed = false;
  #crash = Promise.withResolvers<void>();
  /** What may be found, in this order. */
  #written: SeenBatch[] = [];

  constructor(seed: number, chances: CrashChances) {
    this.#seed = seed;
    this.#chances = chances;
    this.#random = seededRandom(seed);
    this.#host = new SimHost({ segmentBytes: 600, indexIntervalBytes: 150 }, seed);
    this.#host.manager.start();
  }

  async run(): Promise<void> {
    const random = this.#random;
    for (let life = 0; life < 4; life++) {
      this.#written = readAll(this.#host.log);
      const steps = 5 + random.below(30);
      for (let step = 0; step < steps; step++) {
        if (!(await this.#survives(() => this.#step(life, step)))) break;
      }
      this.#startAgain();
      const left = readAll(this.#host.log);
      const what = `seed ${this.#seed}, life ${life}`;
      assert.deepEqual(left, this.#written.slice(0, left.length), `${what}: nothing invented`);
      assert.deepEqual(left.slice(0, this.#durable.length), this.#durable, `${what}: durable`);
    }
    await this.#host.end();
  }

  /** False when a disk call failed. */
  async #survives(step: () => Promise<void>): Promise<boolean> {
    const random = this.#random;
    if (random.chance(this.#chances.crash ?? 0)) {
      this.#host.disk.crashAfter(random.below(8), () => {
        this.#crashed = true;
        this.#host.stop();
        this.#crash.resolve();
      });
    }
    if (random.chance(this.#chances.fault ?? 0)) {
      const operation = (['write', 'truncate', 'sync', 'rename', 'remove', 'open'] as const)[
        random.below(6)
      ];
      this.#host.disk.failNext(operation ?? 'write', /./, 'EIO');
      this.#syncFailed ||= operation === 'sync';
    }
    try {
      await step();
      return !this.#crashed && !this.#host.log.isOffline;
    } catch (error) {
      if (error instanceof DiskError) return false;
      throw error;
    }
  }

  async #step(life: number, step: number): Promise<void> {
    const random = this.#random;
    const host = this.#host;
    const dice = random.below(20);
    if (dice < 14) {
      const gap = random.chance(0.2) ? random.below(1000) : 0;
      const huge = random.chance(0.02) ? 2 ** 32 : 0;
      const baseOffset = host.log.logEndOffset + gap + huge;
      const count = 1 + random.below(3);
      const text = `${this.#seed}.${life}.${step}`;
      const bytes = batchOf(text, count, { baseOffset, partitionLeaderEpoch: life });
      const lastOffset = baseOffset + count - 1;
      this.#written.push({ baseOffset, lastOffset, bytes: Buffer.from(bytes).toString('base64') });
      follow(host.log, bytes);
    } else if (dice < 17) {
      const before = [...this.#written];
      // A flush that the crash cuts short is never answered.
      await host.settle(Promise.race([host.log.flush(), this.#crash.promise]));
      if (!this.#crashed) this.#durable = before;
    } else if (dice === 17) {
      await host.world.simulator.runFor(random.below(70) * 1000);
    } else if (dice === 18) {
      const near = Math.max(0, host.log.logEndOffset - random.below(20));
      const cut = random.below(5) === 0 ? 0 : near;
      this.#durable = this.#durable.filter((batch) => batch.lastOffset < cut);
      host.log.truncateTo(cut);
      if (!this.#crashed) this.#written = this.#written.filter((batch) => batch.lastOffset < cut);
    } else if (random.chance(0.3)) {
      this.#durable = [];
      host.log.truncateFullyAndStartAt(host.log.logEndOffset + random.below(100));
      if (!this.#crashed) this.#written = [];
    }
  }

  #startAgain(): void {
    const random = this.#random;
    const host = this.#host;
    host.disk.clearFaults();
    host.disk.cancelCrash();
    // After a failed sync the page cache shows what the disk may not have: only a reboot tells.
    if (random.chance(0.3) && !this.#syncFailed) {
      if (!this.#crashed) host.stop();
      host.start();
    } else {
      const unsynced = (['lose', 'prefix', 'subset'] as const)[random.below(3)] ?? 'lose';
      host.losePower({ unsynced, tornTail: random.chance(0.5) }, this.#crashed);
    }
    this.#syncFailed = false;
    this.#crashed = false;
    this.#crash = Promise.withResolvers();
    host.manager.start();
  }
}

test('checkpoints of high watermarks are written periodically', async () => {
  const host = new SimHost();
  host.manager.start();
  append(host, 5);
  host.log.updateHighWatermark(7);
  await host.world.simulator.runFor(HIGH_WATERMARK_INTERVAL_MS + 1);
  await host.kill();
  assert.equal(host.log.highWatermark, 7);
});

for (const way of ['restart below its start', 'cut below its start'] as const) {
  test(`F8 a log start that went back does not return with a crash: ${way}`, async () => {
    const host = new SimHost();
    append(host, 5);
    host.log.updateHighWatermark(10);
    host.log.maybeIncrementLogStartOffset(8);
    await host.restart();
    assert.equal(host.log.logStartOffset, 8);
    if (way === 'cut below its start') host.log.truncateTo(6);
    else host.log.truncateFullyAndStartAt(6);
    await host.kill();
    assert.deepEqual([host.log.logStartOffset, host.log.logEndOffset], [6, 6]);
    await host.end();
  });
}

test('T5 a log start inside the batch that is cut stays, and the log goes on there', async () => {
  const host = new SimHost();
  append(host, 5);
  host.log.updateHighWatermark(10);
  host.log.maybeIncrementLogStartOffset(9);
  assert.equal(host.log.truncateTo(9), true);
  const seen = () => [host.log.logStartOffset, host.log.highWatermark, host.log.logEndOffset];
  assert.deepEqual(seen(), [9, 9, 9]);
  await host.kill();
  assert.deepEqual(seen(), [9, 9, 9]);
  assert.deepEqual(readAll(host.log), []);
  await host.end();
});
