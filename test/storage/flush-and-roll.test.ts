/** flush.ms and segment.jitter.ms: durability and rolls by time. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { accepted, batchOf, SimHost, TP } from './harness.ts';

const HOUR_MS = 3_600_000;

test('flush.ms makes an append durable in that time, nothing later than needed', async () => {
  const host = new SimHost({ flushMs: 2000 });
  const append = () => accepted(host.log.appendAsLeader(batchOf('r'), 0, 'client'));
  append();
  await host.world.simulator.runFor(1990);
  append();
  assert.equal(host.log.recoveryPoint, 0);
  await host.world.simulator.runFor(100);
  assert.equal(host.log.recoveryPoint, 2, 'counted from the first append that was not durable');
  append();
  await host.world.simulator.runFor(1990);
  assert.equal(host.log.recoveryPoint, 2);
  await host.world.simulator.runFor(100);
  assert.equal(host.log.recoveryPoint, 3);
  host.losePower({ unsynced: 'lose', tornTail: false });
  assert.equal(host.log.logEndOffset, 3);
});

test('logs with flush.ms share a timer; each is flushed in time, closed ones never', async () => {
  const host = new SimHost();
  const logs = [500, 1000, 30 * 24 * HOUR_MS].map((flushMs, partition) => {
    const config = { ...DEFAULT_LOG_CONFIG, flushMs };
    return host.manager.createLog({ topic: 'other', partition }, undefined, config);
  });
  for (const log of logs.toReversed()) accepted(log.appendAsLeader(batchOf('r'), 0, 'client'));
  const flushed = () => logs.map((log) => log.recoveryPoint);
  await host.world.simulator.runFor(600);
  assert.deepEqual(flushed(), [1, 0, 0]);
  await host.world.simulator.runFor(500);
  assert.deepEqual(flushed(), [1, 1, 0]);
  await host.world.simulator.runFor(20 * 24 * HOUR_MS);
  assert.deepEqual(flushed(), [1, 1, 0]);
  accepted(host.log.appendAsLeader(batchOf('r'), 0, 'client'));
  await host.world.simulator.runFor(11 * 24 * HOUR_MS);
  assert.deepEqual([...flushed(), host.log.recoveryPoint], [1, 1, 1, 0], 'TP has no flush.ms');
});

test('segment.jitter.ms spreads rolls over its range', () => {
  const rolledAfter = (seed: number, segmentJitterMs: number): number => {
    const config = { segmentMs: 10 * HOUR_MS, segmentJitterMs };
    const host = new SimHost({ ...config, messageTimestampType: 'LogAppendTime' }, seed);
    for (let hours = 0; ; hours++) {
      accepted(host.log.appendAsLeader(batchOf('r'), 0, 'client'));
      if (host.log.segments().length > 1) return hours;
      host.world.jumpWallClock('machine', HOUR_MS);
    }
  };
  const seeds = Array.from({ length: 30 }, (_, index) => index + 1);
  assert.deepEqual(new Set(seeds.map((seed) => rolledAfter(seed, 0))), new Set([11]));
  const spread = seeds.map((seed) => rolledAfter(seed, 4 * HOUR_MS));
  assert.deepEqual([Math.min(...spread), Math.max(...spread)], [7, 10]);
  assert(new Set(spread).size === 4, `${spread}`);
  const capped = seeds.map((seed) => rolledAfter(seed, 1000 * HOUR_MS));
  assert(Math.max(...capped) <= 10, 'the jitter is at most segment.ms');
});

test('a log without records has nothing to flush', async () => {
  const host = new SimHost({ flushMs: 100 });
  await host.world.simulator.runFor(1000);
  assert.equal(host.manager.getLog(TP)?.checkpointedRecoveryPoint, undefined);
});
