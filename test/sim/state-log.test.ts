/** The log of mirror states on a disk that fails: what operators see, and what a restart mends. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MirrorWorld, TOPICS } from '../../src/sim/mirror-world.ts';

const NAMES = TOPICS.map(({ name }) => name);

async function mirroring(seed: number): Promise<MirrorWorld> {
  const world = new MirrorWorld(seed);
  await world.begin();
  await world.play(world.operator.createMirror(world.source));
  for (const name of NAMES) await world.play(world.operator.add(name));
  await world.run(2_000);
  await world.settled(NAMES);
  return world;
}

test('S2 S5: a state that cannot become durable is not acted on; a restart goes on', async () => {
  const world = await mirroring(5);
  const { destination, operator } = world;
  destination.disk.failNext('sync', /__mirror_state-\d+\/.*\.log$/, 'EIO', 3);
  await world.play(operator.remove('orders'));
  await world.run(10_000);
  const stuck = await world.play(operator.describe('orders'));
  assert.deepEqual(
    stuck?.map(({ state, cause }) => [state, cause]),
    [
      ['MIRRORING', 'DESTINATION_BUSY'],
      ['MIRRORING', 'DESTINATION_BUSY'],
    ],
  );
  for (const { message } of stuck ?? [])
    assert.match(message ?? '', /^the row of the partition is not writable: /);
  for (let index = 0; index < 2; index++) {
    assert.equal(
      world.invariants.stateAt(`orders-${index}`),
      'MIRRORING',
      'durable is the old one',
    );
  }
  destination.disk.clearFaults();
  destination.kill();
  destination.start();
  await world.settle('STOPPED', ['orders']);
  await world.quiesce();
  await world.settle('MIRRORING', ['payments']);
});
