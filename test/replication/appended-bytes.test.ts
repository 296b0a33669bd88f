/** The byte counter behind long polls with a minimum size. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppendedBytes, MAX_ENTRIES } from '../../src/replication/appended-bytes.ts';

test('counts the bytes below each bound', () => {
  const bytes = new AppendedBytes(10);
  bytes.appended(12, 100);
  bytes.appended(15, 50);
  assert.deepEqual(
    [10, 11, 12, 14, 15].map((offset) => bytes.upTo(offset)),
    [0, 0, 100, 100, 150],
  );
  bytes.prune(12);
  assert.deepEqual([bytes.upTo(12), bytes.upTo(15)], [100, 150]);
});

test('stays bounded and right at the log end, whatever lags behind', () => {
  const bytes = new AppendedBytes(0);
  const appends = MAX_ENTRIES * 4;
  for (let i = 1; i <= appends; i++) bytes.appended(i, 10);
  assert.equal(bytes.upTo(appends), appends * 10);
  assert.equal(bytes.upTo(0), 0);
  const middle = bytes.upTo(appends / 2);
  assert.ok(middle <= appends * 5 && middle > 0);
});

test('a cut log counts on from where it was', () => {
  const bytes = new AppendedBytes(0);
  bytes.appended(5, 500);
  bytes.reset(3);
  assert.equal(bytes.upTo(3), 500);
  bytes.appended(4, 7);
  assert.equal(bytes.upTo(4) - bytes.upTo(3), 7);
});
