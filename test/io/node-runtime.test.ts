import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { nodeClock } from '../../src/io/node/node-clock.ts';
import { nodeLogger } from '../../src/io/node/node-logger.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';

test('a logger writes one JSON object a line, with level, fields and children', () => {
  const lines: string[] = [];
  const logger = nodeLogger('info', { write: (line) => void lines.push(line) });
  logger.debug('hidden');
  logger.info('plain');
  logger.child({ broker: 1 }).error('broke', { error: new RangeError('reason') });
  const rows = lines.map((line) => JSON.parse(line));
  assert.equal(rows.length, 2);
  assert.deepEqual([rows[0].level, rows[0].msg], ['info', 'plain']);
  assert.deepEqual([rows[1].level, rows[1].broker], ['error', 1]);
  assert.deepEqual([rows[1].error.type, rows[1].error.message], ['RangeError', 'reason']);
});

test('a delay beyond what a Node timer holds is waited for in full', () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  let fired = 0;
  const days = 24 * 3600 * 1000;
  nodeClock().setTimer(60 * days, () => fired++);
  const cancelled = nodeClock().setTimer(40 * days, () => assert.fail('cancelled'));
  for (let day = 0; day < 30; day++) mock.timers.tick(days);
  cancelled.cancel();
  cancelled.cancel();
  for (let day = 30; day < 59; day++) mock.timers.tick(days);
  assert.equal(fired, 0);
  mock.timers.tick(days);
  mock.timers.tick(days);
  mock.timers.reset();
  assert.equal(fired, 1);
});

test('deferred callbacks run in order, after promises', async () => {
  const order: string[] = [];
  const clock = nodeClock();
  await new Promise<void>((resolve) => {
    clock.defer(() => order.push('first'));
    clock.defer(() => {
      order.push('second');
      resolve();
    });
    Promise.resolve().then(() => order.push('promise'), assert.fail);
  });
  assert.deepEqual(order, ['promise', 'first', 'second']);
});

test('the runtime brings every port', () => {
  const runtime = nodeRuntime({ logLevel: 'silent' });
  assert.equal(runtime.random.bytes(16).length, 16);
  const fraction = runtime.random.fraction();
  assert.ok(fraction >= 0 && fraction < 1);
  const before = runtime.clock.monotonicMs();
  assert.ok(runtime.clock.monotonicMs() >= before);
  assert.ok(runtime.clock.wallMs() > 0);
});
