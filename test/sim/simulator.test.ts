import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { seededRandom } from '../../src/base/random.ts';
import { EventQueue } from '../../src/sim/event-queue.ts';
import { SimWorld } from '../../src/sim/sim-runtime.ts';
import { SimulationFailure, Simulator } from '../../src/sim/simulator.ts';
import { chatter } from './chatter.ts';

test('events come by time, then by insertion', () => {
  const queue = new EventQueue();
  const random = seededRandom(7);
  const all = Array.from({ length: 500 }, (_, order) => {
    return { atMs: random.below(40), order, label: '', run: () => {}, cancelled: false };
  });
  for (const event of all) queue.push(event);
  const expected = [...all].sort((a, b) => a.atMs - b.atMs || a.order - b.order);
  assert.deepEqual(
    all.map(() => queue.pop()),
    expected,
  );
  assert.equal(queue.pop(), undefined);
});

test('virtual timers fire in order, cancelled never, deferred before time moves', async () => {
  const world = new SimWorld(1);
  const { clock } = world.start('a');
  const seen: string[] = [];
  const note = (what: string) => () => void seen.push(`${clock.monotonicMs()} ${what}`);
  clock.setTimer(20, note('late'));
  clock.setTimer(10, () => {
    note('first')();
    clock.defer(note('deferred'));
    Promise.resolve().then(note('promise'), assert.fail);
  });
  clock.setTimer(10, note('second'));
  clock.setTimer(15, note('cancelled')).cancel();
  clock.setTimer(3 * 24 * 3600 * 1000, note('after three days'));
  const wallMs = clock.wallMs();
  await world.simulator.runUntilIdle(1e12);
  assert.deepEqual(seen, [
    '10 first',
    '10 promise',
    '10 second',
    '10 deferred',
    '20 late',
    '259200000 after three days',
  ]);
  assert.equal(clock.wallMs() - wallMs, 259_200_000);
  world.jumpWallClock('a', -5000);
  assert.equal(clock.wallMs() - wallMs, 259_195_000);
  assert.equal(clock.monotonicMs(), 259_200_000);
});

test('a killed process loses timers and callbacks; the next life starts afresh', async () => {
  const world = new SimWorld(2);
  const first = world.start('a');
  first.clock.setTimer(5, () => assert.fail('timer of a dead process'));
  first.clock.defer(() => assert.fail('deferred by a dead process'));
  world.kill('a');
  first.clock.setTimer(1, () => assert.fail('set by a dead process'));
  assert.equal(world.isRunning('a'), false);
  const second = world.start('a');
  let fired = 0;
  second.clock.setTimer(5, () => fired++);
  await world.simulator.runUntilIdle(100);
  assert.equal(fired, 1);
  assert.throws(() => world.start('a'), /already runs/);
});

describe('repeatability', () => {
  test('the same seed gives the same trace, another seed another', async () => {
    const first = await chatter(42);
    const second = await chatter(42);
    const other = await chatter(43);
    assert.equal(first.hash, second.hash);
    assert.deepEqual(first.heard, second.heard);
    assert.notEqual(first.hash, other.hash);
    assert.ok(first.events > 500, `${first.events} events`);
  });

  test('a part that draws more does not change what another part draws', () => {
    const [one, two] = [new Simulator(5), new Simulator(5)];
    one.fork('a').uint32();
    assert.equal(one.fork('b').uint32(), two.fork('b').uint32());
    assert.notEqual(one.fork('b').uint32(), one.fork('c').uint32());
  });
});

describe('failures name the seed and the last events', () => {
  const failing = async (run: (simulator: Simulator) => Promise<void>): Promise<string> => {
    const simulator = new Simulator(77);
    for (let i = 0; i < 80; i++) simulator.schedule(i, `step ${i}`, () => {});
    const error = await run(simulator).then(
      () => assert.fail('did not fail'),
      (caught: unknown) => caught,
    );
    assert.ok(error instanceof SimulationFailure);
    assert.match(error.message, /seed 77, last 50 events/);
    assert.match(error.message, /79\.000 step 79$/m);
    assert.doesNotMatch(error.message, /step 20$/m);
    return error.message;
  };

  test('a broken invariant', async () => {
    const message = await failing((simulator) => {
      simulator.addInvariant('time is short', () => assert.ok(simulator.nowMs < 79, 'too late'));
      return simulator.runFor(100);
    });
    assert.match(message, /invariant "time is short" is broken: .*too late/);
  });

  test('an error thrown by an event', async () => {
    const message = await failing((simulator) => {
      simulator.schedule(80, 'thrower', () => {
        throw new TypeError('from the event');
      });
      return simulator.runFor(100);
    });
    assert.match(message, /TypeError: from the event/);
  });

  test('a promise that nobody handles', () => {
    // In a process of its own: the test runner would blame this test for the rejection.
    const module = new URL('../../src/sim/simulator.ts', import.meta.url).href;
    const script = `
      import { Simulator } from ${JSON.stringify(module)};
      const simulator = new Simulator(77);
      simulator.schedule(1, 'rejecter', () => void Promise.reject(new RangeError('lost')));
      await simulator.runFor(5).catch((error) => console.log(error.message));
    `;
    const output = execFileSync(process.execPath, ['--input-type=module', '-e', script]);
    assert.match(
      output.toString(),
      /unhandled rejection: RangeError: lost\nseed 77, last 1 events/,
    );
  });

  test('a condition that does not come true', async () => {
    const never = (): boolean => false;
    const idle = await failing((simulator) => simulator.runUntil(never, 1000, 'peace'));
    assert.match(idle, /peace did not come true: nothing is left to happen/);
    const late = await failing((simulator) => {
      simulator.schedule(5000, 'far away', () => {});
      return simulator.runUntil(never, 1000, 'peace');
    });
    assert.match(late, /peace did not come true: 1000 ms passed/);
  });
});
