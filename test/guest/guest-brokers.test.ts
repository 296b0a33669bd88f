/**
 * Who is a guest, and where replicas belong (G25).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  apacheBrokers,
  guests,
  isGuest,
  isLive,
  spreadReplicas,
  topicSeed,
  topicTargets,
} from '../../src/guest/guest-brokers.ts';
import { ConfigResourceType, type MetadataImage } from '../../src/metadata/image.ts';
import { broker, config, id, imageOf, topic } from '../metadata/harness.ts';

const { BROKER } = ConfigResourceType;

function cluster(racks: readonly (string | undefined)[]): MetadataImage {
  return imageOf([
    ...racks.map((rack, i) => broker(i + 1, rack === undefined ? {} : { rack })),
    broker(201),
    broker(202, { fenced: true }),
    config(BROKER, '201', 'twinlog.guest', 'true'),
    config(BROKER, '202', 'twinlog.guest', 'true'),
    config(BROKER, '1', 'twinlog.guest', 'no'),
  ]);
}

function counts(lists: readonly (readonly number[])[]): number[] {
  const count = new Map<number, number>();
  for (const each of lists.flat()) count.set(each, (count.get(each) ?? 0) + 1);
  return [...count.values()].sort((a, b) => a - b);
}

describe('who is a guest', () => {
  const image = cluster(['a', 'b']);

  test('the BROKER config of its id says so, and nothing else', () => {
    assert.equal(isGuest(image, 201), true);
    assert.equal(isGuest(image, 202), true);
    assert.equal(isGuest(image, 1), false);
    assert.equal(isGuest(image, 77), false);
    assert.equal(isGuest(image, -1), false);
  });

  test('fenced guests are guests, but not live', () => {
    assert.deepEqual(
      guests(image).map((each) => each.id),
      [201, 202],
    );
    assert.deepEqual(
      apacheBrokers(image).map((each) => each.id),
      [1, 2],
    );
    assert.equal(isLive(image, 201), true);
    assert.equal(isLive(image, 202), false);
    assert.equal(isLive(image, 9), false);
  });
});

describe('G25: replicas are spread over the Apache brokers', () => {
  const layouts: [racks: (string | undefined)[], partitions: number, replicationFactor: number][] =
    [
      [['a', 'b', 'c'], 12, 3],
      [['a', 'b', 'c'], 7, 2],
      [['a', 'a', 'b', 'b', 'c', 'c'], 30, 3],
      [['a', 'a', 'a', 'b'], 12, 2],
      [[undefined, undefined, undefined, undefined, undefined], 25, 3],
      [['a'], 4, 3],
    ];
  for (const [racks, partitions, replicationFactor] of layouts) {
    const title = `${racks.map((rack) => rack ?? '-').join('')} ${partitions}×${replicationFactor}`;
    test(title, () => {
      const brokers = apacheBrokers(cluster(racks));
      const lists = spreadReplicas(brokers, { partitions, replicationFactor, seed: 5 });
      assert.equal(lists.length, partitions);
      const rackOf = new Map(brokers.map((each) => [each.id, each.rack]));
      const size = Math.min(replicationFactor, brokers.length);
      const rackCount = new Set(racks).size;
      for (const list of lists) {
        assert.equal(new Set(list).size, size, `${list}`);
        const used = new Set(list.map((each) => rackOf.get(each)));
        assert.equal(used.size, Math.min(size, rackCount), `racks of ${list}`);
      }
      const leaders = counts(lists.map((list) => list.slice(0, 1)));
      assert.ok((leaders.at(-1) ?? 0) - (leaders[0] ?? 0) <= 1, `leaders ${leaders}`);
      if (rackCount === racks.length || rackCount === 1) {
        const all = counts(lists);
        assert.ok((all.at(-1) ?? 0) - (all[0] ?? 0) <= 2, `replicas ${all}`);
      }
    });
  }

  test('equal racks get equal shares', () => {
    const brokers = apacheBrokers(cluster(['a', 'a', 'b', 'b', 'c', 'c']));
    const lists = spreadReplicas(brokers, { partitions: 60, replicationFactor: 3, seed: 11 });
    assert.deepEqual(counts(lists), [30, 30, 30, 30, 30, 30]);
  });

  test('no broker: empty lists', () => {
    const lists = spreadReplicas([], { partitions: 2, replicationFactor: 3, seed: 1 });
    assert.deepEqual(lists, [[], []]);
  });

  test('the same cluster and topic give the same lists, other topics start elsewhere', () => {
    const image = imageOf(topic('t', id(1), [1]), cluster(['a', 'b', 'c']));
    const once = topicTargets(image, 't', 6, 2);
    assert.deepEqual(topicTargets(image, 't', 6, 2), once);
    assert.ok(once.flat().every((each) => each <= 3));
    const firsts = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) =>
      topicTargets(image, name, 1, 1),
    );
    assert.equal(new Set(firsts.flat(2)).size, 3);
    assert.ok(topicSeed('x') >= 0);
  });
});
