/**
 * Failing back between two real Apache Kafka clusters, each with its guest (G29, G32): what was
 * written on either side after a failover, and where every record is afterwards.
 *
 * The native topic of A is mirrored to B, fails over to B, is written on both sides, and is taken
 * back by A's guest; then the same the other way round. Tests build on each other.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ensureAppCds } from './app-cds.ts';
import { clients, javaClient } from './clusters.ts';
import { compareSequences } from './compare.ts';
import {
  CONFIGS,
  caughtUp,
  destroySides,
  ends,
  failBack,
  failOver,
  overrides,
  type Side,
  startSides,
  TOPIC,
  write,
} from './failback-sides.ts';
import { GUEST_ID } from './guest.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';

const skip = await interopSkipReason();
/** Nothing had been written to it by the first failover. */
const EMPTY = 2;
const GROUP = 'readers';

let a: Side;
let b: Side;
/** Where the sides last agreed, per partition. */
let common: number[];

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    [a, b] = await startSides('back');
  });
  after(() => destroySides(a, b));
}

/** A refusal changes nothing. */
async function refusesToTakeBack(why: RegExp): Promise<void> {
  const before = [await placement(a.cluster, TOPIC), await overrides(a)];
  await assert.rejects(a.guest.mirrors('add', a.mirror, TOPIC), why);
  assert.deepEqual([await placement(a.cluster, TOPIC), await overrides(a)], before);
}

test('G29 the way there: mirrored, failed over, written on both sides', { skip }, async () => {
  await write(a, 'first', [0, 1]);
  await b.guest.mirrors('add', b.mirror, TOPIC);
  await caughtUp(b, a);
  await assert.rejects(a.guest.mirrors('add', a.mirror, 'plain'), /was not made by a mirror/);
  await refusesToTakeBack(/still mirrors topic 'there-and-back' from here/);
  common = await failOver(b);
  assert.equal(common[EMPTY], 0);
  await write(a, 'lost', [0, 2]);
  await write(b, 'second', [0, 1, 2]);
  const java = await javaClient();
  const past = { 0: (await ends(a))[0] ?? 0, 1: 3 };
  await java.commitOffsets(a.cluster.bootstrap, GROUP, TOPIC, past);
});

test('G29 it is taken back: what was cut is kept, what both had stays', { skip }, async () => {
  await failBack(a, b, common);
});

test('G32 groups of A that had read what was cut start where the sides agreed', {
  skip,
}, async () => {
  const java = await javaClient();
  const offsets = await java.groupOffsets(a.cluster.bootstrap, GROUP);
  assert.deepEqual(offsets, { [`${TOPIC}-0`]: common[0], [`${TOPIC}-1`]: 3 });
});

test('G29 killed and started again, the guest goes on where it was', { skip }, async () => {
  await a.guest.kill9();
  await write(b, 'meanwhile', [0, 2]);
  await a.guest.start();
  await caughtUp(a, b);
  for (const { leader, isr } of await placement(a.cluster, TOPIC)) {
    assert.deepEqual([leader, isr], [GUEST_ID, [GUEST_ID]]);
  }
});

for (const isolation of ['read_uncommitted', 'read_committed'] as const) {
  test(`G29 every client of A reads all of it, ${isolation}`, { skip }, async () => {
    for (const client of await clients()) {
      const expected = await client.readAll(b.cluster.bootstrap, TOPIC, isolation);
      for (const bootstrap of [a.guest.bootstrap, a.cluster.bootstrap]) {
        const read = await client.readAll(bootstrap, TOPIC, isolation);
        assert.deepEqual(compareSequences(expected, read), [], client.name);
      }
    }
  });
}

test('G24 it fails over at A: native, with the settings that it had', { skip }, async () => {
  const wanted = await ends(b);
  common = await failOver(a);
  assert.deepEqual(common, wanted);
  assert.deepEqual(await overrides(a), CONFIGS);
  const java = await javaClient();
  const { offset } = await java.tryProduce(a.cluster.bootstrap, TOPIC);
  assert.equal(offset, common[0]);
});

test('G29 and back again to B, twice round', { skip }, async () => {
  await write(a, 'third', [0, 1]);
  await write(b, 'lost-too', [1, 2]);
  await failBack(b, a, common);
  common = await failOver(b);
  assert.deepEqual(common, await ends(a));
  await write(b, 'fourth', [0, 1, 2]);
  await failBack(a, b, common);
});
