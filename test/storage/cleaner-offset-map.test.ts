/** The offset map of compaction against a Map, its limits, and its hash. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seededRandom } from '../../src/base/random.ts';
import { CleanerOffsetMap, KeyHash, offsetMapBytes } from '../../src/storage/cleaner-offset-map.ts';

const NO_SEED = new Uint8Array(16);

test('the hash is MurmurHash3 x86 128', () => {
  const hash = new KeyHash(NO_SEED);
  const of = (text: string): string => {
    const bytes = Buffer.from(`__${text}__`);
    hash.of(bytes, 2, bytes.length - 2);
    const words = [hash.h1, hash.h2, hash.h3, hash.h4];
    return words.map((word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
  };
  // Published vectors of the reference implementation, seed 0.
  assert.equal(of(''), '00000000000000000000000000000000');
  const text = "I will not buy this tobacconist's, it is scratched.";
  assert.equal(of(text), '9b5b7ba2ef3f7866889adeaf00f3f98e');
});

test('it answers as a Map does, for keys of all lengths', () => {
  const random = seededRandom(3);
  const map = new CleanerOffsetMap(offsetMapBytes(5000), random.bytes(16));
  const model = new Map<string, number>();
  const bytes = random.bytes(4000);
  for (let offset = 0; offset < 20_000; offset++) {
    const start = random.below(120);
    const end = start + random.below(40);
    assert.equal(map.put(bytes, start, end, offset), true);
    model.set(Buffer.from(bytes.subarray(start, end)).toString('hex'), offset);
  }
  assert.equal(map.size, model.size);
  for (const [key, offset] of model) {
    const keyBytes = Buffer.from(key, 'hex');
    assert.equal(map.get(keyBytes, 0, keyBytes.length), offset);
  }
  assert.equal(map.get(bytes, 1000, 1020), -1);
});

test('a full map takes newer offsets of its keys and no new keys', () => {
  const map = new CleanerOffsetMap(24 * 100, NO_SEED);
  const key = (n: number) => Buffer.from(`key ${n}`);
  for (let n = 0; n < map.limit; n++) assert(map.put(key(n), 0, key(n).length, n));
  assert.equal(map.put(key(-1), 0, key(-1).length, 1000), false);
  assert.equal(map.put(key(3), 0, key(3).length, 1001), true);
  assert.equal(map.get(key(3), 0, key(3).length), 1001);
  assert.equal(map.get(key(-1), 0, key(-1).length), -1);
  assert(new CleanerOffsetMap(offsetMapBytes(1234), NO_SEED).limit >= 1234);
});
