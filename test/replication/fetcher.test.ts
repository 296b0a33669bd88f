/** The fetcher loop: removal safety, isolation of errors, order, changes only. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import {
  FETCH_BACKOFF,
  FetcherLoop,
  type FetchFailure,
  type FetchSink,
  PARTITION_BACKOFF,
  type SinkAction,
} from '../../src/replication/fetcher.ts';
import type {
  FetchChanges,
  FetchedPartition,
  FetchOutcome,
  FetchTarget,
  LeaderEndpoint,
} from '../../src/replication/leader-endpoint.ts';
import { fakeRuntime, ManualClock, settle } from './fakes.ts';

function target(partition: number, fetchOffset = 0): FetchTarget {
  return {
    topic: 't',
    topicId: ZERO_UUID,
    partition,
    fetchOffset,
    currentLeaderEpoch: 0,
    lastFetchedEpoch: -1,
    logStartOffset: -1,
    maxBytes: 1000,
  };
}

function fetched(errorCode = 0, bytes = 1): FetchedPartition {
  const records = new Uint8Array(bytes);
  return { errorCode, highWatermark: 9, lastStableOffset: 9, logStartOffset: 0, records };
}

/** Answers when the test says so. */
class FakeEndpoint implements LeaderEndpoint {
  readonly description = 'fake';
  readonly changes: FetchChanges[] = [];
  closed = false;
  #pending:
    | { deliver: (t: FetchTarget, f: FetchedPartition) => void; end: (o: FetchOutcome) => void }
    | undefined;

  get inFlight(): boolean {
    return this.#pending !== undefined;
  }

  fetch(
    changes: FetchChanges,
    deliver: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome> {
    assert.equal(this.#pending, undefined, 'one fetch at a time');
    this.changes.push(changes);
    return new Promise((end) => {
      this.#pending = { deliver, end };
    });
  }

  async answer(
    partitions: readonly [FetchTarget, FetchedPartition][],
    outcome: FetchOutcome = { kind: 'ok' },
  ): Promise<void> {
    const pending = this.#pending;
    assert.ok(pending);
    this.#pending = undefined;
    for (const [asked, answer] of partitions) pending.deliver(asked, answer);
    pending.end(outcome);
    await settle();
  }

  /** The partitions that the last fetch told about. */
  lastUpdated(): string[] {
    return (this.changes.at(-1)?.updated ?? []).map((t) => `${t.partition}@${t.fetchOffset}`);
  }

  lastRemoved(): number[] {
    return (this.changes.at(-1)?.removed ?? []).map((t) => t.partition);
  }

  listOffsets(): Promise<never> {
    return Promise.reject(new Error('unused'));
  }

  offsetsForLeaderEpoch(): Promise<never> {
    return Promise.reject(new Error('unused'));
  }

  close(): void {
    this.closed = true;
  }
}

/** Moves each partition on by one offset, unless told otherwise. */
class FakeSink implements FetchSink {
  readonly seen: string[] = [];
  readonly failures: FetchFailure[] = [];
  answers = 0;
  readonly actions = new Map<number, (asked: FetchTarget) => SinkAction>();

  onPartition(asked: FetchTarget, answer: FetchedPartition): SinkAction {
    this.seen.push(`${asked.partition}@${asked.fetchOffset}`);
    const action = this.actions.get(asked.partition);
    if (action !== undefined) return action(asked);
    if (answer.errorCode !== 0) return { kind: 'retry' };
    return { kind: 'continue', target: { ...asked, fetchOffset: asked.fetchOffset + 1 } };
  }

  onFailure(failure: FetchFailure): void {
    this.failures.push(failure);
  }

  onAnswer(): void {
    this.answers++;
  }
}

function start(...targets: FetchTarget[]) {
  const clock = new ManualClock();
  const endpoint = new FakeEndpoint();
  const sink = new FakeSink();
  const loop = new FetcherLoop(fakeRuntime(clock), endpoint, sink);
  for (const each of targets) loop.update(each);
  return { clock, endpoint, sink, loop };
}

test('fetches all partitions at once, then tells only what changed', async () => {
  const targets = [target(0), target(1), target(2)];
  const { endpoint, sink } = start(...targets);
  await settle();
  assert.deepEqual(endpoint.lastUpdated(), ['0@0', '1@0', '2@0']);
  await endpoint.answer([[targets[1]!, fetched()]]);
  assert.deepEqual(sink.seen, ['1@0']);
  assert.deepEqual(endpoint.lastUpdated(), ['1@1']);
  await endpoint.answer([]);
  assert.deepEqual(endpoint.lastUpdated(), []);
  assert.equal(sink.answers, 2);
});

test('a removed partition never reaches the sink, not even from the fetch in flight', async () => {
  const targets = [target(0), target(1)];
  const { endpoint, sink, loop } = start(...targets);
  await settle();
  assert.equal(loop.remove(target(0)), true);
  assert.equal(loop.remove(target(0)), false);
  await endpoint.answer([
    [targets[0]!, fetched()],
    [targets[1]!, fetched()],
  ]);
  assert.deepEqual(sink.seen, ['1@0']);
  assert.deepEqual(endpoint.lastRemoved(), [0]);
  assert.equal(loop.size, 1);
});

test('a partition removed in the sink call of another is skipped in that response', async () => {
  const targets = [target(0), target(1)];
  const { endpoint, sink, loop } = start(...targets);
  sink.actions.set(0, (asked) => {
    loop.remove(target(1));
    return { kind: 'continue', target: asked };
  });
  await settle();
  await endpoint.answer([
    [targets[0]!, fetched()],
    [targets[1]!, fetched()],
  ]);
  assert.deepEqual(sink.seen, ['0@0']);
});

test('an answer to an older target is dropped', async () => {
  const old = target(0, 0);
  const { endpoint, sink, loop } = start(old);
  await settle();
  const moved = target(0, 50);
  loop.update(moved);
  await endpoint.answer([[old, fetched()]]);
  assert.deepEqual(sink.seen, []);
  assert.deepEqual(endpoint.lastUpdated(), ['0@50']);
  await endpoint.answer([[moved, fetched()]]);
  assert.deepEqual(sink.seen, ['0@50']);
});

test("one partition's error delays that partition alone, longer each time", async () => {
  const targets = [target(0), target(1)];
  const { clock, endpoint, sink, loop } = start(...targets);
  await settle();
  await endpoint.answer([
    [targets[0]!, fetched(6, 0)],
    [targets[1]!, fetched()],
  ]);
  assert.equal(loop.stateOf(target(0)), 'delayed');
  assert.deepEqual(endpoint.lastRemoved(), [0]);
  assert.deepEqual(endpoint.lastUpdated(), ['1@1']);
  await clock.advance(PARTITION_BACKOFF.maxMs);
  assert.equal(loop.stateOf(target(0)), 'ready');
  await endpoint.answer([]);
  assert.deepEqual(endpoint.lastUpdated(), ['0@0']);
  await endpoint.answer([[targets[0]!, fetched(6, 0)]]);
  await clock.advance(PARTITION_BACKOFF.initialMs);
  assert.equal(loop.stateOf(target(0)), 'delayed', 'the second delay is longer');
  assert.equal(sink.failures.length, 0);
});

test('removing a delayed partition leaves no timer behind', async () => {
  const only = target(0);
  const { clock, endpoint, loop } = start(only);
  await settle();
  await endpoint.answer([[only, fetched(6, 0)]]);
  assert.equal(clock.pendingTimers, 1);
  loop.remove(only);
  assert.equal(clock.pendingTimers, 0);
  assert.equal(endpoint.inFlight, false);
});

test('a failed fetch backs the whole loop off, with a cap, until a success', async () => {
  const only = target(0);
  const { clock, endpoint, sink } = start(only);
  await settle();
  const failed = { kind: 'failed', cause: 'ECONNREFUSED', message: 'refused' } as const;
  for (let attempt = 1; attempt <= 8; attempt++) {
    await endpoint.answer([], failed);
    assert.equal(endpoint.inFlight, false);
    assert.equal(sink.failures.at(-1)?.attempt, attempt);
    await clock.advance(FETCH_BACKOFF.maxMs);
    assert.equal(endpoint.inFlight, true);
  }
  assert.ok(sink.failures.every((each) => each.retryInMs <= FETCH_BACKOFF.maxMs));
  assert.ok(sink.failures[0]!.retryInMs < sink.failures[7]!.retryInMs);
  await endpoint.answer([]);
  await endpoint.answer([], failed);
  assert.equal(sink.failures.at(-1)?.attempt, 1);
});

test('a lost session is repaired at once, lost again and again it backs off', async () => {
  const { endpoint, sink } = start(target(0));
  await settle();
  await endpoint.answer([], { kind: 'sessionLost', errorCode: 70 });
  assert.equal(endpoint.inFlight, true);
  assert.equal(sink.failures.length, 0);
  await endpoint.answer([], { kind: 'sessionLost', errorCode: 70 });
  assert.equal(endpoint.inFlight, false);
  assert.equal(sink.failures.length, 1);
});

test('a paused partition waits for update, the others go on', async () => {
  const targets = [target(0), target(1)];
  const { endpoint, sink, loop } = start(...targets);
  sink.actions.set(0, () => ({ kind: 'pause' }));
  await settle();
  await endpoint.answer([
    [targets[0]!, fetched()],
    [targets[1]!, fetched()],
  ]);
  assert.equal(loop.stateOf(target(0)), 'paused');
  sink.actions.delete(0);
  loop.update(target(0, 7));
  await endpoint.answer([]);
  assert.deepEqual(endpoint.lastUpdated(), ['0@7']);
});

test('an emptied loop rests, and goes on when a partition is added', async () => {
  const only = target(0);
  const { endpoint, loop } = start(only);
  await settle();
  loop.remove(only);
  await endpoint.answer([]);
  assert.equal(endpoint.inFlight, false);
  loop.update(target(3));
  await settle();
  assert.deepEqual(endpoint.lastUpdated(), ['3@0']);
  assert.deepEqual(endpoint.lastRemoved(), [0]);
});

test('close ends the endpoint; a late answer reaches nobody', async () => {
  const only = target(0);
  const { endpoint, sink, loop } = start(only);
  await settle();
  loop.close();
  assert.equal(endpoint.closed, true);
  await endpoint.answer([[only, fetched()]], { kind: 'failed', cause: 'closed', message: '' });
  assert.deepEqual(sink.seen, []);
  assert.equal(sink.failures.length, 0);
});
