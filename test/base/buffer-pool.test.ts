/** Memory that is used again: only what was lent and given back, once, within the limit. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  BufferPool,
  MAX_FREE_BYTES,
  MAX_POOLED_BYTES,
  MIN_POOLED_BYTES,
} from '../../src/base/buffer-pool.ts';

test('what is given back by any view of it is taken again, by a piece of like size', () => {
  const pool = new BufferPool();
  const first = pool.take(70_000);
  assert.equal(first.length, 70_000);
  pool.give(first.subarray(10, 20));
  const second = pool.take(100_000);
  assert.equal(second.buffer, first.buffer);
  assert.equal(second.length, 100_000);
  assert.notEqual(pool.take(100_000).buffer, first.buffer, 'on loan: not lent twice');
});

test('a piece given back twice, or never lent, is not kept', () => {
  const pool = new BufferPool();
  const piece = pool.take(MIN_POOLED_BYTES);
  pool.give(piece);
  pool.give(piece);
  assert.equal(pool.freeBytes, MIN_POOLED_BYTES);
  assert.notEqual(pool.take(MIN_POOLED_BYTES).buffer, pool.take(MIN_POOLED_BYTES).buffer);
  pool.give(new Uint8Array(MIN_POOLED_BYTES));
  pool.give(Buffer.from('from the shared pool of Node'));
  assert.equal(pool.freeBytes, 0);
});

test('sizes that are not pooled are exact, and what is kept is bounded', () => {
  const pool = new BufferPool();
  for (const length of [0, 1, MIN_POOLED_BYTES - 1, MAX_POOLED_BYTES + 1]) {
    const piece = pool.take(length);
    assert.equal(piece.length, length);
    pool.give(piece);
    assert.equal(pool.freeBytes, 0);
  }
  const pieces = Array.from({ length: 10 }, () => pool.take(MAX_POOLED_BYTES));
  for (const piece of pieces) pool.give(piece);
  assert.equal(pool.freeBytes, MAX_FREE_BYTES);
});
