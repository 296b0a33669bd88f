/** Producer ids on their way from a source: exact, one-to-one, refused when they do not fit. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  embeddedMapping,
  guestMapping,
  guestSourceId,
  isSameProducer,
  MAX_HOPS,
  MAX_TAG,
  mappingExcept,
  type ProducerIdMapping,
} from '../../src/mirror/producer-id-mapping.ts';
import { propertyRuns } from '../property-runs.ts';

const HOP = 1n << 56n;
const TAG = 1n << 40n;
const NEGATIVE = 1n << 62n;
const MAX_ID = (1n << 63n) - 1n;
const MIN_ID = -(1n << 63n);

function halvesOf(id: bigint) {
  return { high: Number(id >> 32n), low: Number(id & 0xffffffffn) };
}

function map(mapping: ProducerIdMapping, id: bigint): bigint | undefined {
  const { high, low } = halvesOf(id);
  const mapped = mapping.map(high, low);
  if (mapped === undefined) return undefined;
  assert.ok(mapped.low >= 0 && mapped.low <= 0xffff_ffff && (mapped.high | 0) === mapped.high);
  return (BigInt(mapped.high) << 32n) | BigInt(mapped.low);
}

function embedded(id: bigint): bigint {
  const mapped = map(embeddedMapping, id);
  assert.ok(mapped !== undefined, String(id));
  return mapped;
}

/** P1 as written, in exact arithmetic. */
function embeddedOracle(id: bigint): bigint {
  if (id === -1n) return -1n;
  return id >= 0n ? -(id + 2n) : id - HOP;
}

/** G20 as written, in exact arithmetic. */
function guestOracle(tag: number, id: bigint): bigint | undefined {
  if (id === -1n || id >= TAG) return id;
  if (id >= 0n) return id + TAG * BigInt(tag);
  return NEGATIVE + id >= 1n << 52n ? NEGATIVE + id : undefined;
}

const firstHop = fc.bigInt({ min: 0n, max: HOP - 3n });
const anyId = fc.oneof(
  fc.bigInt({ min: MIN_ID, max: MAX_ID }),
  fc.bigInt({ min: 0n, max: TAG + 10n }),
  fc.bigInt({ min: -NEGATIVE, max: 10n }),
);
const anyTag = fc.integer({ min: 1, max: MAX_TAG });

test('P1 every id below the limits maps exactly as the rule says', () => {
  fc.assert(
    fc.property(firstHop, (id) => embedded(id) === embeddedOracle(id)),
    propertyRuns(100),
  );
  const later = fc.bigInt({ min: -(126n * HOP) + 1n, max: -2n });
  fc.assert(
    fc.property(later, (id) => embedded(id) === embeddedOracle(id)),
    propertyRuns(100),
  );
});

test('P1 the ids around every carry and limit map exactly', () => {
  const edges = [0n, 1n, 0xffff_fffdn, 0xffff_fffen, 0xffff_ffffn, 1n << 32n, HOP - 3n];
  for (const id of edges) assert.equal(embedded(id), embeddedOracle(id), String(id));
  assert.equal(embedded(-1n), -1n);
  assert.equal(embedded(-2n), -2n - HOP);
});

test('P1 ids beyond the limits are refused, not wrapped', () => {
  assert.equal(map(embeddedMapping, HOP - 2n), undefined);
  assert.equal(map(embeddedMapping, MAX_ID), undefined);
  assert.notEqual(map(embeddedMapping, -(126n * HOP) + 1n), undefined);
  assert.equal(map(embeddedMapping, -(126n * HOP)), undefined);
  assert.equal(map(embeddedMapping, MIN_ID), undefined);
});

test('P1 an id survives 127 hops, all different, and is refused at the next', () => {
  for (const start of [0n, 41n, HOP - 3n]) {
    const seen = new Set<bigint>([start]);
    let id = start;
    for (let hop = 0; hop < MAX_HOPS; hop++) {
      id = embedded(id);
      seen.add(id);
    }
    assert.equal(seen.size, MAX_HOPS + 1);
    assert.equal(map(embeddedMapping, id), undefined);
  }
});

test('P1 two different ids never meet, whatever hop each has come to', () => {
  const chain = fc.tuple(firstHop, fc.integer({ min: 0, max: 20 }));
  const last = ([id, hops]: [bigint, number]): bigint => {
    let result = id;
    for (let hop = 0; hop < hops; hop++) result = embedded(result);
    return result;
  };
  fc.assert(
    fc.property(chain, chain, (a, b) => {
      const isSame = a[0] === b[0] && a[1] === b[1];
      return isSame || last(a) !== last(b);
    }),
    propertyRuns(100),
  );
});

test('G20 every id maps exactly as the rule says, or is refused', () => {
  fc.assert(
    fc.property(anyTag, anyId, (tag, id) => map(guestMapping(tag), id) === guestOracle(tag, id)),
    propertyRuns(100),
  );
});

test('G20 the ids around every limit map exactly', () => {
  const low = [0n, 1n, 0xffff_ffffn, 1n << 32n, TAG - 1n, TAG, TAG + 1n, MAX_ID];
  const negative = [-1n, -2n, -3n, -(1n << 32n), -(1n << 32n) - 1n, -HOP, -63n * HOP];
  for (const tag of [1, 2, MAX_TAG]) {
    for (const id of [...low, ...negative]) {
      assert.equal(map(guestMapping(tag), id), guestOracle(tag, id), `${id} with tag ${tag}`);
    }
  }
  assert.equal(map(guestMapping(1), (1n << 52n) - NEGATIVE), 1n << 52n);
  assert.equal(map(guestMapping(1), (1n << 52n) - NEGATIVE - 1n), undefined);
  assert.equal(map(guestMapping(1), MIN_ID), undefined);
});

test('G20 what a guest writes is never negative, except "none"', () => {
  fc.assert(
    fc.property(anyTag, anyId, (tag, id) => {
      const mapped = map(guestMapping(tag), id);
      return mapped === undefined || mapped >= 0n || (id === -1n && mapped === -1n);
    }),
    propertyRuns(100),
  );
});

test('G20 ids of a source meet neither each other, nor another tag’s, nor local ones', () => {
  const id = fc.oneof(
    fc.bigInt({ min: 0n, max: TAG - 1n }),
    fc.bigInt({ min: -63n * HOP, max: -2n }),
  );
  const local = fc.bigInt({ min: 0n, max: TAG - 1n });
  fc.assert(
    fc.property(anyTag, anyTag, id, id, local, (tagA, tagB, a, b, own) => {
      const [x, y] = [map(guestMapping(tagA), a), map(guestMapping(tagB), b)];
      if (x === own || y === own) return false;
      // Negative ids carry the hops they came by, not a tag.
      const isSame = a === b && (tagA === tagB || a < 0n);
      return isSame ? x === y : x !== y;
    }),
    propertyRuns(100),
  );
});

test('G20 a tag outside its range is a fault', () => {
  for (const tag of [0, -1, 1.5, MAX_TAG + 1]) assert.throws(() => guestMapping(tag), /no tag/);
});

test('T3 batches are of one producer when a mirror in either direction made the id', () => {
  const same = (a: bigint, b: bigint): boolean => {
    const found = isSameProducer(halvesOf(a), halvesOf(b));
    assert.equal(isSameProducer(halvesOf(b), halvesOf(a)), found, 'in both directions');
    return found;
  };
  fc.assert(
    fc.property(anyTag, anyId, (tag, id) => {
      const [byGuest, byEmbedded] = [map(guestMapping(tag), id), map(embeddedMapping, id)];
      if (byGuest !== undefined && !same(byGuest, id)) return false;
      return byEmbedded === undefined || same(byEmbedded, id);
    }),
    propertyRuns(100),
  );
  assert.equal(same(7n, 8n), false);
  assert.equal(same(7n, 7n + TAG * BigInt(MAX_TAG + 1)), false);
  assert.equal(same(7n, 7n + TAG + 1n), false);
  assert.equal(same(7n + TAG, 7n + 2n * TAG), false, 'no local id is that high');
  assert.equal(same(-1n, NEGATIVE - 1n), false, '"none" stays "none"');
});

test('G24a the id at the source comes back, but that of this cluster has none', () => {
  fc.assert(
    fc.property(anyTag, anyId, (tag, id) => {
      const here = map(guestMapping(tag), id);
      if (here === undefined || id === -1n) return true;
      // Among those that stay, some look like what others were made to.
      const stays = id >= TAG;
      return stays || guestSourceId(tag, here) === id;
    }),
    propertyRuns(100),
  );
  assert.equal(guestSourceId(5, TAG - 1n), undefined);
  assert.equal(guestSourceId(5, 6n * TAG + 1n), 6n * TAG + 1n, 'another tag was there before');
});

test('G24a an exception is of one id from its offset on', () => {
  const plain = guestMapping(3);
  assert.equal(mappingExcept(plain, []), plain);
  const producerId = 4n * TAG + 7n;
  const mapping = mappingExcept(plain, [{ fromOffset: 9, producerId, localProducerId: 7n }]);
  const at = (id: bigint, baseOffset: number): bigint | undefined =>
    map({ map: (high, low) => mapping.map(high, low, baseOffset) }, id);
  assert.equal(at(producerId, 9), 7n);
  assert.equal(at(producerId, 10), 7n);
  assert.equal(at(producerId, 8), producerId);
  assert.equal(at(producerId + 1n, 9), producerId + 1n);
  assert.equal(at(7n, 9), 3n * TAG + 7n);
});
