/**
 * The mirror state machine: its table walked, and what each step puts into the row.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../src/base/assert.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { DiskError } from '../../src/io/runtime.ts';
import {
  adviceFor,
  allCauses,
  causeOf,
  failureOf,
  isRetryable,
  MirrorFailure,
} from '../../src/mirror/causes.ts';
import type { MirrorStateRow } from '../../src/mirror/state-row.ts';
import {
  isLegalMove,
  type MirrorEvent,
  MirrorState,
  type MirrorStateName,
  type StepResult,
  stateName,
  step,
  TRANSITIONS,
} from '../../src/mirror/states.ts';
import { row as plainRow } from './harness.ts';

const NAMES = Object.keys(MirrorState) as MirrorStateName[];

const EVENTS: Record<MirrorEvent['type'], MirrorEvent> = {
  prepare: { type: 'prepare', membershipOffset: 100 },
  prepared: { type: 'prepared' },
  pause: { type: 'pause' },
  resume: { type: 'resume' },
  stop: { type: 'stop', membershipOffset: 100 },
  stopped: { type: 'stopped', lastMirroredOffset: 7 },
  closing: { type: 'closing', transactions: [] },
  settled: { type: 'settled', lastMirroredOffset: 7 },
  fail: { type: 'fail', cause: 'SOURCE_TIMED_OUT', message: 'slow', progressed: false },
  retry: { type: 'retry' },
  claim: { type: 'claim', membershipOffset: 100 },
  learn: { type: 'learn', sourceClusterId: 'src' },
  lower: { type: 'lower', lastMirroredOffset: 3 },
};

function row(state: MirrorStateName, fields: Partial<MirrorStateRow> = {}): MirrorStateRow {
  return plainRow(state, {
    lastMirroredOffset: 5,
    stateEpoch: 4,
    leaderEpoch: 2,
    membershipOffset: 50,
    sourceClusterId: 'src',
    sourceEpochs: [{ epoch: 0, startOffset: 0 }],
    previousState: MirrorState.MIRRORING,
    retryAttempt: 2,
    sinceMs: 10,
    reachedMirroring: true,
    ...fields,
  });
}

function take(from: MirrorStateRow | undefined, event: MirrorEvent): StepResult {
  return step({ topicName: 't', partition: 0, leaderEpoch: 3, row: from }, event, 1000);
}

function after(from: MirrorStateRow | undefined, event: MirrorEvent): MirrorStateRow {
  const result = take(from, event);
  const refusal = 'illegal' in result ? result.illegal : 'no record';
  assert.ok('row' in result && result.row !== undefined, refusal);
  return result.row;
}

function effects(from: MirrorStateRow | undefined, event: MirrorEvent): string[] {
  const result = take(from, event);
  assert.ok('effects' in result);
  return result.effects.map(({ type }) => type);
}

test('S1 every move of the table carries a rule, and step agrees with the table', () => {
  for (const name of NAMES) {
    for (const type of Object.keys(EVENTS) as MirrorEvent['type'][]) {
      const transition = TRANSITIONS[name][type];
      const result = take(name === 'UNKNOWN' ? undefined : row(name), EVENTS[type]);
      if (transition === undefined) {
        assert.ok('illegal' in result, `${type} in ${name}`);
        continue;
      }
      assert.match(transition.rule, /^[A-Z]\d+a?$/, `${type} in ${name}`);
      assert.ok('effects' in result, `${type} in ${name}`);
      if (transition.isNoMove) assert.equal(result.row, undefined);
    }
  }
});

test('S1 the legal moves are those of the contract', () => {
  const moves = NAMES.flatMap((from) =>
    NAMES.filter((to) => from !== to && to !== 'UNKNOWN').flatMap((to) => {
      const previous = row(from, { previousState: MirrorState[to] });
      const isLegal = isLegalMove(from === 'UNKNOWN' ? undefined : previous, MirrorState[to]);
      return isLegal ? [`${from}→${to}`] : [];
    }),
  );
  assert.deepEqual(
    moves.sort(),
    [
      'FAILED→MIRRORING',
      'FAILED→PAUSED',
      'FAILED→PREPARING',
      'FAILED→STOPPED',
      'FAILED→STOPPING',
      'MIRRORING→FAILED',
      'MIRRORING→PAUSED',
      'MIRRORING→STOPPING',
      'PAUSED→FAILED',
      'PAUSED→MIRRORING',
      'PAUSED→STOPPING',
      'PREPARING→FAILED',
      'PREPARING→MIRRORING',
      'PREPARING→STOPPING',
      'STOPPED→PREPARING',
      'STOPPING→FAILED',
      'STOPPING→STOPPED',
      'UNKNOWN→FAILED',
      'UNKNOWN→PREPARING',
      'UNKNOWN→STOPPING',
    ].sort(),
  );
});

test('S1 every state can reach STOPPED', () => {
  const reaches = new Set<MirrorStateName>(['STOPPED']);
  for (let grew = true; grew; ) {
    grew = false;
    for (const name of NAMES) {
      const next = Object.values(TRANSITIONS[name]).map(({ to }) => to);
      if (!reaches.has(name) && next.some((to) => reaches.has(to as MirrorStateName))) {
        reaches.add(name);
        grew = true;
      }
    }
  }
  assert.deepEqual([...reaches].sort(), [...NAMES].sort());
});

test('S1 STOPPED never fails, and FAILED out of STOPPING returns to STOPPING only', () => {
  assert.ok('illegal' in take(row('STOPPED'), EVENTS.fail));
  const failed = after(row('STOPPING', { reachedMirroring: true }), EVENTS.fail);
  assert.equal(stateName(failed.previousState), 'STOPPING');
  assert.equal(stateName(after(failed, EVENTS.retry).state), 'STOPPING');
  assert.equal(isLegalMove(failed, MirrorState.MIRRORING), false);
});

test('S3 a claim takes over leader epoch, raises the state epoch, and repeats the entry', () => {
  const entry: Partial<Record<MirrorStateName, string[]>> = {
    PREPARING: ['haltFetch', 'prepare'],
    MIRRORING: ['fetch'],
    PAUSED: ['haltFetch'],
    STOPPING: ['haltFetch', 'cut'],
    STOPPED: ['haltFetch', 'open'],
    FAILED: ['haltFetch', 'scheduleRetry'],
  };
  for (const [name, expected] of Object.entries(entry)) {
    const before = row(name as MirrorStateName, { cause: 'SOURCE_TIMED_OUT' });
    assert.deepEqual(effects(before, EVENTS.claim), expected, name);
    const claimed = after(before, EVENTS.claim);
    assert.deepEqual(
      claimed,
      { ...before, leaderEpoch: 3, stateEpoch: 5, membershipOffset: 100 },
      name,
    );
  }
});

test('S4 every written row is one state epoch above the one before', () => {
  assert.equal(after(undefined, EVENTS.prepare).stateEpoch, 1);
  assert.equal(after(row('MIRRORING'), EVENTS.learn).stateEpoch, 5);
  assert.equal(after(row('MIRRORING'), EVENTS.stop).stateEpoch, 5);
});

test('S5 FAILED keeps cause, message, since, where it came from, and the attempt', () => {
  const failed = after(row('MIRRORING'), EVENTS.fail);
  assert.equal(failed.cause, 'SOURCE_TIMED_OUT');
  assert.equal(failed.message, 'slow');
  assert.equal(failed.sinceMs, 1000);
  assert.equal(stateName(failed.previousState), 'MIRRORING');
  assert.equal(failed.retryAttempt, 3);
  const anew = after(row('MIRRORING'), { ...EVENTS.fail, progressed: true } as MirrorEvent);
  assert.equal(anew.retryAttempt, 1);
});

test('S5 causes that need a person do not retry by themselves and say what resolves them', () => {
  for (const cause of allCauses()) {
    const event: MirrorEvent = { type: 'fail', cause, message: 'm', progressed: false };
    const expected = isRetryable(cause) ? ['haltFetch', 'scheduleRetry'] : ['haltFetch'];
    assert.deepEqual(effects(row('MIRRORING'), event), expected, cause);
    const advice = adviceFor(cause, { mirror: 'east', topic: 'orders' });
    assert.ok(advice.length > 10, cause);
    if (!isRetryable(cause)) assert.match(advice, /`twinlog mirrors remove east orders`/, cause);
  }
  const people = allCauses().filter((cause) => !isRetryable(cause));
  for (const cause of ['SOURCE_CLUSTER_CHANGED', 'LOOP', 'SOURCE_DIVERGED', 'WOULD_DISCARD_ALL']) {
    assert.ok(
      people.some((each) => each === cause),
      cause,
    );
  }
});

test('S7 STOPPED is prepared again only for a newer membership record', () => {
  const stopped = row('STOPPED', { membershipOffset: 100 });
  assert.ok('illegal' in take(stopped, EVENTS.prepare));
  const newer = after(row('STOPPED', { membershipOffset: 99 }), EVENTS.prepare);
  assert.equal(stateName(newer.state), 'PREPARING');
  assert.equal(newer.membershipOffset, 100);
  assert.equal(newer.lastMirroredOffset, 5);
  assert.equal(newer.reachedMirroring, false);
});

test('D2 a stop before MIRRORING keeps the previous LMO, or none', () => {
  const stopping = after(undefined, EVENTS.stop);
  assert.equal(stopping.reachedMirroring, false);
  const stopped = after(stopping, { type: 'stopped', lastMirroredOffset: undefined });
  assert.equal(stopped.lastMirroredOffset, -1);
  const again = after(row('STOPPED', { membershipOffset: 1 }), EVENTS.prepare);
  const cut = after(after(again, EVENTS.stop), { type: 'stopped', lastMirroredOffset: undefined });
  assert.equal(cut.lastMirroredOffset, 5);
});

test('G24 a settled stop keeps its offset, is entered again without a cut, and cannot fail', () => {
  const settled = after(row('STOPPING'), EVENTS.settled);
  assert.equal(stateName(settled.state), 'STOPPING');
  assert.deepEqual([settled.settled, settled.lastMirroredOffset], [true, 7]);
  assert.deepEqual(effects(row('STOPPING'), EVENTS.settled), []);
  assert.deepEqual(effects(settled, EVENTS.claim), ['haltFetch']);
  assert.ok('illegal' in take(settled, EVENTS.fail));
  const stopped = after(settled, { type: 'stopped', lastMirroredOffset: undefined });
  assert.deepEqual([stateName(stopped.state), stopped.lastMirroredOffset], ['STOPPED', 7]);
});

test('G24a transactions to close are in the row until the stop is settled, or MIRRORING', () => {
  const closed = {
    producerId: 2n ** 40n,
    originalProducerId: 0n,
    producerEpoch: 1,
    firstOffset: 3,
    markerOffset: 7,
  };
  const closing: MirrorEvent = { type: 'closing', transactions: [closed] };
  const planned = after(row('STOPPING'), closing);
  assert.deepEqual(planned, { ...row('STOPPING'), ...planned, closedTransactions: [closed] });
  assert.deepEqual(effects(row('STOPPING'), closing), []);
  assert.deepEqual(effects(planned, EVENTS.claim), ['haltFetch', 'cut']);
  const settled = after(planned, EVENTS.settled);
  assert.deepEqual([settled.closedTransactions, settled.lastMirroredOffset], [[closed], 7]);
  assert.ok('illegal' in take(settled, closing));
  assert.ok('illegal' in take(row('MIRRORING'), closing));
  const again = after({ ...settled, state: MirrorState.STOPPED }, EVENTS.prepare);
  assert.deepEqual(again.closedTransactions, [closed]);
  assert.deepEqual(after(again, EVENTS.stop).closedTransactions, [closed]);
  assert.deepEqual(after(again, EVENTS.prepared).closedTransactions, []);
});

test('G24a what the source closed is learned, and kept by what else is learned', () => {
  const closedAtSource = [
    { producerId: 9n, originalProducerId: 5n, producerEpoch: 1, firstOffset: 3, markerOffset: 7 },
  ];
  const learned = after(row('PREPARING'), { type: 'learn', closedAtSource });
  assert.deepEqual(learned.closedAtSource, closedAtSource);
  assert.deepEqual(after(learned, EVENTS.learn).closedAtSource, closedAtSource);
});

test('G24 D2 a stop before MIRRORING settles with the previous LMO, or none', () => {
  const nothing: MirrorEvent = { type: 'settled', lastMirroredOffset: undefined };
  assert.equal(after(row('STOPPING'), nothing).lastMirroredOffset, 5);
  assert.equal(after(after(undefined, EVENTS.stop), nothing).lastMirroredOffset, -1);
});

test('G24 the next episode, and the next stop, begin unsettled', () => {
  const settled = row('STOPPED', { settled: true, membershipOffset: 1 });
  const again = after(settled, EVENTS.prepare);
  assert.equal(again.settled, false);
  assert.equal(after(row('MIRRORING', { settled: true }), EVENTS.stop).settled, false);
});

test('D1 STOPPED and the last mirrored offset are one row', () => {
  const stopped = after(row('STOPPING'), EVENTS.stopped);
  assert.equal(stateName(stopped.state), 'STOPPED');
  assert.equal(stopped.lastMirroredOffset, 7);
});

test('D7 a stop while STOPPING or STOPPED is a success without a record', () => {
  for (const name of ['STOPPING', 'STOPPED'] as const) {
    assert.deepEqual(take(row(name), EVENTS.stop), { row: undefined, effects: [] });
  }
});

test('T3 lowering never raises the last mirrored offset', () => {
  assert.equal(after(row('PREPARING'), EVENTS.lower).lastMirroredOffset, 3);
  const low = row('PREPARING', { lastMirroredOffset: 1 });
  assert.equal(after(low, EVENTS.lower).lastMirroredOffset, 1);
});

test('S5 whatever is thrown becomes a failure with a cause, but a Fault stays one', () => {
  const cases: [error: unknown, cause: string, message: RegExp][] = [
    [new MirrorFailure('LOOP', 'round'), 'LOOP', /^round$/],
    [new DiskError('EIO', 'write', 'x.log'), 'STORAGE_BUSY', /EIO/],
    [new TypeError('no such thing'), 'INTERNAL_ERROR', /^TypeError: no such thing$/],
    ['text', 'INTERNAL_ERROR', /^text$/],
  ];
  for (const [error, cause, message] of cases) {
    const failure = failureOf(error, silentLogger);
    assert.equal(failure.mirrorCause, cause);
    assert.match(failure.message, message);
  }
  const fault = new Fault('broken');
  assert.throws(
    () => failureOf(fault, silentLogger),
    (thrown) => thrown === fault,
  );
  assert.deepEqual(['LOOP', 'SESSION'].map(causeOf), ['LOOP', 'SOURCE_ERROR']);
});
