/**
 * A failback between real Apache Kafka clusters whose guest is killed at every step, while somebody
 * tries to write all the time (G29): what was accepted is kept aside, and both sides agree.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { compareSequences } from './compare.ts';
import {
  batchesOf,
  caughtUp,
  destroySides,
  ends,
  failOver,
  isSame,
  keptTails,
  overrides,
  PARTITIONS,
  type Side,
  settled,
  startSides,
  TOPIC,
  write,
} from './failback-sides.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { Intruder, killAtPoints } from './guest-faults.ts';
import { placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until, withAdmin } from './mirror-watch.ts';
import type { TwinlogBroker } from './twinlog.ts';

const isFull = process.env.TWINLOG_TEST === 'full';
const skip = isFull ? await interopSkipReason() : 'runs with TWINLOG_TEST=full';
const SECOND_ID = GUEST_ID + 1;
/** What the guest says at each step; it is killed then. */
const POINTS = [
  'native topic is taken into a mirror',
  'mirror takeover: partitions reassigned',
  'mirror partition is PREPARING',
  'mirror cut: tail kept',
  'mirror partition is MIRRORING',
];

let a: Side;
let b: Side;
/** Where the sides agreed at the first failover. */
let atFirst: number[];
let second: TwinlogBroker | undefined;

async function inSync(...ids: readonly number[]): Promise<void> {
  await until(`in sync: ${ids}`, async () => {
    const isrs = (await placement(a.cluster, TOPIC)).map(({ isr }) => String([...isr].sort()));
    assert.deepEqual(isrs, Array(PARTITIONS).fill(String(ids)));
    return true as const;
  });
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    [a, b] = await startSides('faults', {});
    await write(a, 'first', [0, 1]);
    await b.guest.mirrors('add', b.mirror, TOPIC);
    await caughtUp(b, a);
    atFirst = await failOver(b);
  });
  after(async () => {
    await second?.destroy();
    await destroySides(a, b);
  });
}

test('G29 killed at every step, while somebody writes all the time', { skip }, async () => {
  const common = atFirst;
  const held = common.map((_, index) => batchesOf(a, index));
  const java = await javaClient();
  const intruder = new Intruder(java, a.cluster.bootstrap, TOPIC, PARTITIONS);
  await write(b, 'second', [0, 1, 2]);
  await killAtPoints(a.guest, POINTS, () => a.guest.mirrors('add', a.mirror, TOPIC));
  await caughtUp(a, b);
  await settled(a);
  await intruder.stop();
  assert.ok(intruder.accepted.length > 0);
  const tails = common.map((_, index) => keptTails(a, index).flatMap(([, batches]) => batches));
  const lost = intruder.accepted.filter(({ partition, offset, value }) => {
    const isKept = tails[partition]?.some(
      ({ baseOffset, lastOffset, records }) =>
        baseOffset <= offset && offset <= lastOffset && records.includes(value),
    );
    return isKept !== true;
  });
  assert.deepEqual(lost, []);
  for (const [index, offset] of common.entries()) {
    await isSame(a, b, index, offset, held[index] ?? []);
  }
});

test('G23 G29 a second guest follows from there, and leads when the first dies', {
  skip,
}, async () => {
  const java = await javaClient();
  const common = await failOver(a);
  const held = common.map((_, index) => batchesOf(a, index));
  // The other side's record is older than ours by now: nothing below ours need be cut.
  await write(a, 'drill', [0, 1]);
  second = await startGuest({ name: 'faults-a-second', cluster: a.cluster, nodeId: SECOND_ID });
  await a.guest.mirrors('add', a.mirror, TOPIC);
  await caughtUp(a, b);
  await inSync(GUEST_ID, SECOND_ID);
  // A new leader epoch after a cut moves leadership from one guest to the other.
  const [{ leader } = { leader: -1 }] = await placement(a.cluster, TOPIC);
  const [dying, other] = leader === SECOND_ID ? [second, a.guest] : [a.guest, second];
  await dying.kill9();
  await write(b, 'third', [0, 1, 2]);
  await caughtUp({ ...a, guest: other }, b);
  for (const [index, offset] of common.entries()) {
    await isSame(a, b, index, offset, held[index] ?? []);
  }
  const expected = await java.readAll(b.cluster.bootstrap, TOPIC, 'read_committed');
  const read = await java.readAll(other.bootstrap, TOPIC, 'read_committed');
  assert.deepEqual(compareSequences(expected, read), []);
  await dying.start();
  await inSync(GUEST_ID, SECOND_ID);
  const wanted = await ends(b);
  // One of them runs the mirror's jobs, and says so to who asks the other.
  const gone = await failOver({ ...a, guest: other }).catch(() => failOver({ ...a, guest: dying }));
  assert.deepEqual(gone, wanted);
});

test('G29 taken and given back at once, the topic is as native as before', { skip }, async () => {
  const java = await javaClient();
  const at = await ends(b);
  // Its own record is of a mirror that it never reached here.
  const before = at.map((_, index) => batchesOf(b, index));
  for (const waitMs of [0, 100, 300, 600, 900, 1200]) {
    await withAdmin(b.guest, async (admin) => {
      await admin.addTopics(b.mirror, [TOPIC]);
      await sleep(waitMs);
      await admin.removeTopics(b.mirror, [TOPIC]);
    });
    await awaitState(b.guest, b.mirror, TOPIC, 'STOPPED');
    await until('no guest, no lock', async () => {
      const partitions = await placement(b.cluster, TOPIC);
      const ids = b.cluster.brokers.map(({ id }) => id);
      const replicas = partitions.map((each) => [...each.replicas].sort());
      assert.deepEqual(replicas, Array(PARTITIONS).fill(ids));
      assert.equal((await overrides(b))['max.message.bytes'], undefined);
      return true as const;
    });
    assert.deepEqual(await ends(b), at);
  }
  for (const [index, batches] of before.entries()) {
    assert.deepEqual(batchesOf(b, index), batches);
  }
  const { offset } = await java.tryProduce(b.cluster.bootstrap, TOPIC);
  assert.equal(offset, at[0]);
});
