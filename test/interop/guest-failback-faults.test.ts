/**
 * A failback between real Apache Kafka clusters whose guest is killed at every step, while somebody
 * tries to write all the time (G29): what was accepted is kept aside, and both sides agree.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import {
  batchesOf,
  caughtUp,
  destroySides,
  failOver,
  isSame,
  keptTails,
  PARTITIONS,
  type Side,
  settled,
  startSides,
  TOPIC,
  write,
} from './failback-sides.ts';
import { Intruder, killAtPoints } from './guest-faults.ts';
import { interopSkipReason } from './kafka-jars.ts';

const isFull = process.env.TWINLOG_TEST === 'full';
const skip = isFull ? await interopSkipReason() : 'runs with TWINLOG_TEST=full';
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

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    [a, b] = await startSides('faults', {});
  });
  after(() => destroySides(a, b));
}

test('G29 killed at every step, while somebody writes all the time', { skip }, async () => {
  await write(a, 'first', [0, 1]);
  await b.guest.mirrors('add', b.mirror, TOPIC);
  await caughtUp(b, a);
  const common = await failOver(b);
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
