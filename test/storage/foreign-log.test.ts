/**
 * Logs that Apache Kafka wrote, found after a kill: what its files may look like and ours do not.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CLEANER_OFFSET_FILE, writeOffsetCheckpoint } from '../../src/storage/checkpoints.ts';
import { batchOf, DIRECTORY, follow, readAll, SimHost, TP } from './harness.ts';

/** Two segments, the second at offset 20; of the first, nothing above offset 10 is left. */
async function compactedHost(firstDirtyOffset: number | undefined): Promise<SimHost> {
  const host = new SimHost();
  const { log } = host;
  follow(log, batchOf('kept', 10));
  const kept = log.sizeBytes;
  follow(log, batchOf('compacted away', 10, { baseOffset: 10 }));
  log.roll();
  follow(log, batchOf('behind the hole', 5, { baseOffset: 20 }));
  const disk = host.files();
  const segment = disk.open(`${DIRECTORY}/${'0'.repeat(20)}.log`, 'update');
  segment.truncate(kept);
  segment.close();
  disk.remove('/data/recovery-point-offset-checkpoint');
  if (firstDirtyOffset !== undefined) {
    const rows = [{ ...TP, offset: firstDirtyOffset }];
    writeOffsetCheckpoint(disk, `/data/${CLEANER_OFFSET_FILE}`, rows);
  }
  await host.kill();
  return host;
}

test('a hole that compaction left between two segments is no lost tail', async () => {
  const { log } = await compactedHost(20);
  assert.equal(log.logEndOffset, 25);
  assert.deepEqual(
    readAll(log).map(({ baseOffset }) => baseOffset),
    [0, 20],
  );
});

test('a hole above the compacted part is a lost tail', async () => {
  for (const firstDirtyOffset of [undefined, 10, 19]) {
    const { log } = await compactedHost(firstDirtyOffset);
    assert.equal(log.logEndOffset, 10);
    assert.deepEqual(
      readAll(log).map(({ baseOffset }) => baseOffset),
      [0],
    );
  }
});
