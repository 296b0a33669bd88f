/**
 * One run for all who ask before it starts; none for those who ask while it is under way.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedRun } from '../../src/base/shared-run.ts';
import { settle } from '../replication/fakes.ts';

test('who asks in one go shares a run, who asks during it shares the next one', async () => {
  const ends: ((value: number) => void)[] = [];
  const shared = new SharedRun<number>(() => new Promise((resolve) => ends.push(resolve)));
  const first = [shared.run(), shared.run()];
  await settle();
  assert.equal(ends.length, 1);
  const second = [shared.run(), shared.run()];
  await settle();
  assert.equal(ends.length, 1);
  ends[0]?.(1);
  assert.deepEqual(await Promise.all(first), [1, 1]);
  await settle();
  assert.equal(ends.length, 2);
  ends[1]?.(2);
  assert.deepEqual(await Promise.all(second), [2, 2]);
});

test('a failed run fails for those who share it, and the next one runs', async () => {
  let runs = 0;
  const shared = new SharedRun(async () => {
    runs++;
    if (runs === 1) throw new Error('first');
    return runs;
  });
  const failed = shared.run();
  const during = failed.catch(() => shared.run());
  await assert.rejects(failed, { message: 'first' });
  assert.equal(await during, 2);
  assert.equal(await shared.run(), 3);
});
