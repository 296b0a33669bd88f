/**
 * The process or the power ends at every disk call of a compaction, and again in the recovery after
 * it: what is found then is the old log or the new one, of each batch, and no key is lost.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seededRandom } from '../../src/base/random.ts';
import { type Disk, DiskError } from '../../src/io/runtime.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { RECOVERY_POINT_FILE } from '../../src/storage/checkpoints.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import { COMPACTED, compact, left, put, segmentFiles } from './compaction-harness.ts';
import { counted, ENDINGS, type Ending, nameOf } from './crash-points.ts';
import { marker, readAll, type SeenBatch, SimHost, TP } from './harness.ts';

const CONFIG = { ...COMPACTED, segmentBytes: 700, deleteRetentionMs: 0, fileDeleteDelayMs: 1000 };
const MACHINE = 'machine';
/** More calls than a compaction makes. */
const MANY = 10_000;

type Files = ReadonlyMap<string, Uint8Array>;

function filesBelow(disk: Disk, directory: string): [string, Uint8Array][] {
  return (disk.list(directory) ?? []).flatMap(({ name, isDirectory }) => {
    const path = `${directory}/${name}`;
    if (isDirectory) return filesBelow(disk, path);
    return [[path, disk.readFile(path) ?? new Uint8Array(0)] as [string, Uint8Array]];
  });
}

/** A machine with these files, durable, and no process. */
function machineWith(files: Files): SimHost {
  const host = new SimHost(CONFIG, 1);
  host.stop();
  // Later than when the files were made: horizons have passed.
  host.world.jumpWallClock(MACHINE, 3_600_000);
  const { disk } = host.world.start(MACHINE);
  for (const [path] of filesBelow(disk, '/data')) disk.remove(path);
  for (const [path, bytes] of files) {
    const file = disk.open(path, 'create');
    file.write([bytes], 0);
    file.syncNow();
    file.close();
    disk.syncDirectory(path.slice(0, path.lastIndexOf('/')));
  }
  host.stop();
  return host;
}

/** The files of a log that is worth compacting. */
async function dirtyLog(): Promise<Files> {
  const host = new SimHost(CONFIG, 1);
  const producer = (baseSequence: number, isTransactional: boolean) => {
    return { producerId: -5n, producerEpoch: 0, baseSequence, isTransactional };
  };
  for (let round = 0; round < 6; round++) {
    for (let n = 0; n < 5; n++)
      put(host.log, [
        [`k${n}`, `${round}`],
        ['often', `${round}.${n}`],
      ]);
    put(host.log, [[`once ${round}`, 'x']]);
    if (round < 3) put(host.log, [['gone', round === 2 ? null : `${round}`]]);
    put(host.log, [['k1', `transaction ${round}`]], producer(round, true));
    const end = marker(-5n, round % 2 === 0, host.log.logEndOffset);
    host.log.appendAsFollower([end], { verifyCrc: true });
    // The rest finds a log that was compacted before, with a tombstone that has its horizon.
    if (round === 2) await compact(host);
  }
  put(host.log, [
    ['k3', 'last'],
    ['often', 'last'],
    ['once 1', null],
  ]);
  host.log.updateHighWatermark(host.log.logEndOffset);
  host.log.roll();
  put(host.log, [['active', '1']]);
  host.log.updateHighWatermark(host.log.logEndOffset);
  await host.settle(host.manager.close());
  const files = new Map(filesBelow(host.files(), '/data'));
  // The run itself has to say that what it compacts is durable.
  assert(files.delete(`/data/${RECOVERY_POINT_FILE}`));
  return files;
}

/**
 * Loads the log and runs the cleaner, and ends at disk call `fatal` of one or the other, or behind;
 * whether there was such a call.
 */
async function crashAt(
  host: SimHost,
  phase: 'load' | 'compact',
  fatal: number,
  ending: Ending,
): Promise<boolean> {
  let happened = false;
  const crash = () => {
    happened = true;
    if (ending === 'kill') host.world.kill(MACHINE);
    else host.world.losePower(MACHINE, ending);
  };
  const { runtime, state } = counted(host.world.start(MACHINE), fatal, crash);
  const config = { ...host.config };
  const manager = new LogManager(runtime, { logDir: '/data', defaultConfig: config });
  state.armed = phase === 'load';
  try {
    manager.load(() => config);
  } catch (error) {
    if (!(error instanceof DiskError) || !happened) throw error;
  }
  if (phase === 'compact') {
    const log = manager.getLog(TP) ?? assert.fail(JSON.stringify(manager.offline()));
    log.updateHighWatermark(log.logEndOffset);
    state.armed = true;
    manager.compactNow().catch((error) => {
      if (!(error instanceof DiskError) || !happened) throw error;
    });
    await host.world.simulator.runFor(500);
  }
  const wasReached = happened;
  if (!wasReached) crash();
  return wasReached;
}

/** The newest values; transactions of odd rounds were aborted. */
const view = (rows: readonly string[]): string[] => {
  const newest = new Map<string, string>();
  for (const row of rows) {
    const [, key = '', value = ''] = /^\d+:(.*)=(.*)$/.exec(row) ?? [];
    if (!/^transaction [135]$/.test(value)) newest.set(key, value);
  }
  return [...newest]
    .filter(([, value]) => value !== 'null')
    .map(String)
    .sort();
};

interface Expected {
  readonly before: readonly SeenBatch[];
  readonly rowsBefore: readonly string[];
  readonly after: readonly SeenBatch[];
  readonly rowsAfter: readonly string[];
}

/** A delete horizon tells the time of its run. */
function hasHorizon({ bytes }: SeenBatch): boolean {
  return new RecordBatch(Buffer.from(bytes, 'base64')).hasDeleteHorizon;
}

function checkFound(host: SimHost, expected: Expected, what: string): void {
  const { log } = host;
  log.updateHighWatermark(log.logEndOffset);
  const rows = left(host);
  assert.deepEqual(view(rows), view(expected.rowsBefore), what);
  const old = new Set(expected.rowsBefore);
  for (const row of rows) assert(old.has(row), `${what}: ${row} was invented`);
  const found = new Set(rows);
  for (const row of expected.rowsAfter) assert(found.has(row), `${what}: ${row} is lost`);
  const bytes = new Set([...expected.before, ...expected.after].map((batch) => batch.bytes));
  for (const batch of readAll(log)) {
    assert(bytes.has(batch.bytes) || hasHorizon(batch), `${what}: batch ${batch.baseOffset}`);
  }
  const offsets = readAll(log).map((batch) => batch.baseOffset);
  assert.deepEqual(
    offsets,
    [...new Set(offsets)].sort((a, b) => a - b),
    what,
  );
  assert.doesNotMatch(segmentFiles(host).join(), /cleaned|swap/, what);
}

async function expectations(files: Files): Promise<Expected> {
  const host = machineWith(files);
  host.start();
  host.log.updateHighWatermark(host.log.logEndOffset);
  const [before, rowsBefore] = [readAll(host.log), left(host)];
  await host.settle(host.manager.compactNow());
  const [after, rowsAfter] = [readAll(host.log), left(host)];
  assert(after.length < before.length);
  assert(rowsAfter.length < rowsBefore.length);
  assert.equal(rowsAfter.filter((row) => /:gone=/.test(row)).length, 0, 'the tombstone has gone');
  return { before, rowsBefore, after, rowsAfter };
}

for (const ending of ENDINGS) {
  const name = nameOf(ending);
  test(`${name} at every disk call of a compaction`, async () => {
    const files = await dirtyLog();
    const expected = await expectations(files);
    const random = seededRandom(11);
    let fatal = 0;
    for (; fatal < MANY; fatal++) {
      const host = machineWith(files);
      if (!(await crashAt(host, 'compact', fatal, ending))) break;
      // Recovery is interrupted, too, at some call of its own.
      for (let again = 0; again < 2; again++) {
        await crashAt(host, 'load', random.below(30), ending);
      }
      host.start();
      checkFound(host, expected, `${name} at call ${fatal}`);
      await compact(host);
      const wanted = new Set(expected.rowsAfter);
      const extra = left(host).filter((row) => !wanted.has(row));
      assert.deepEqual(extra, [], `${name} at call ${fatal}: compacted again`);
    }
    assert(fatal > 30, `${fatal} calls`);
  });
}
