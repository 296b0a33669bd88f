/**
 * The state store over a Kafka that fails where a real one rarely does: between an act and its
 * answer, at each step of a transaction, and while the guest is fenced.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../../src/base/uuid.ts';
import {
  GuestStateStore,
  type GuestStateStoreOptions,
  START_PATIENCE_MS,
  WRITE_BOUND_MS,
} from '../../../src/guest/state/state-store.ts';
import { transactionalIdOf } from '../../../src/guest/state/state-topic.ts';
import { emptyImage } from '../../../src/metadata/image.ts';
import {
  encodeRow,
  encodeRowKey,
  MIRROR_STATE_TOPIC,
  type MirrorStateRow,
  type RowKey,
  rowKeyText,
} from '../../../src/mirror/state-row.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { buildRecordBatch } from '../../../src/protocol/record.ts';
import { row } from '../../mirror/harness.ts';
import { fakeRuntime, ManualClock } from '../../replication/fakes.ts';
import { FakeKafka, type Fate } from '../fake-kafka.ts';

const { NONE, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE } = errors;
const OWN = transactionalIdOf(1);
const KEY: RowKey = { mirror: 'm', topicId: 'dG9waWMtdG9waWMtdG9waQ' as Uuid, partition: 0 };
const OTHER: RowKey = { ...KEY, partition: 1 };

class Bench {
  readonly clock = new ManualClock();
  readonly kafka = new FakeKafka(MIRROR_STATE_TOPIC, 2);
  readonly runtime = { ...fakeRuntime(this.clock), network: this.kafka.network() };

  async store(nodeId = 1, options: Partial<GuestStateStoreOptions> = {}): Promise<GuestStateStore> {
    const store = new GuestStateStore(this.runtime, {
      nodeId,
      brokers: () => [{ host: 'broker', port: 9092 }],
      otherGuests: () => [],
      image: () => emptyImage('fake'),
      mayOwn: async () => true,
      onOverlay: () => {},
      onChange: () => {},
      ...options,
    });
    await this.run(store.start());
    return store;
  }

  /** Lets time pass until the promise is settled. */
  async run<T>(promise: Promise<T>): Promise<T> {
    let settled = false;
    const watch = (): void => {
      settled = true;
    };
    promise.then(watch, watch);
    for (let steps = 0; !settled; steps++) {
      assert.ok(steps < 20_000, 'it never ends');
      await this.clock.advance(10);
    }
    return promise;
  }

  /** The next requests of this name meet these fates; all others are answered. */
  fates(name: string, ...fates: readonly Fate[]): void {
    const left = [...fates];
    this.kafka.onCall = (called) => (called === name ? left.shift() : undefined);
  }
}

test('G22 S2: an end whose answer is lost is asked again, and happens once', async () => {
  const bench = new Bench();
  const store = await bench.store();
  bench.fates('EndTxn', 'unanswered');
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
  assert.equal(bench.kafka.batches().length, 1);
  assert.deepEqual(await bench.run(store.read(KEY)), { error: 0, row: row('PREPARING') });
  assert.equal(bench.kafka.calls.filter((name) => name === 'InitProducerId').length, 1);
  assert.equal(bench.kafka.calls.filter((name) => name === 'EndTxn').length, 2);
  store.close();
});

test('G22 S4: of an end that never comes the outcome is looked up, whatever it was', async () => {
  for (const fate of ['lost', 'unanswered'] as const) {
    const bench = new Bench();
    const store = await bench.store();
    let isDown = true;
    bench.kafka.onCall = (name) => {
      if (name === 'InitProducerId' && bench.kafka.calls.includes('EndTxn')) isDown = false;
      return name === 'EndTxn' && isDown ? fate : undefined;
    };
    assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code, fate);
    // Lost: aborted, and written again. Unanswered: it was committed, the repeat is the same row.
    assert.equal(bench.kafka.batches().length, fate === 'lost' ? 2 : 1);
    const other = await bench.store(2);
    assert.deepEqual(other.rows('m'), [{ key: KEY, row: row('PREPARING') }]);
    store.close();
    other.close();
  }
});

test('G22: without a coordinator a write waits, and is answered within its bound', async () => {
  const bench = new Bench();
  const store = await bench.store();
  bench.kafka.onCall = (name) =>
    name === 'FindCoordinator' ? COORDINATOR_NOT_AVAILABLE.code : undefined;
  const before = bench.clock.monotonicMs();
  const answer = await bench.run(store.write(KEY, row('PREPARING')));
  assert.equal(answer, COORDINATOR_NOT_AVAILABLE.code);
  // One attempt to take the id may be under way when the bound is reached.
  assert.ok(bench.clock.monotonicMs() - before < 2.5 * WRITE_BOUND_MS);
  assert.equal(bench.kafka.batches().length, 0);
  bench.kafka.onCall = () => undefined;
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
  store.close();
});

test('G22: a batch that is refused for a moment is sent again with the same epoch', async () => {
  const bench = new Bench();
  const store = await bench.store();
  bench.fates('Produce', errors.CONCURRENT_TRANSACTIONS.code, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
  assert.deepEqual(
    bench.kafka.batches().map(({ epoch }) => epoch),
    [0],
  );
  store.close();
});

test('G22 G23: a fenced guest refuses all, and writes again only when it may own', async () => {
  const bench = new Bench();
  const order: string[] = [];
  let owns = true;
  const store = await bench.store(1, {
    mayOwn: async () => {
      order.push(`mayOwn after epoch ${bench.kafka.holderOf(OWN).epoch}`);
      return owns;
    },
  });
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
  const taker = await bench.store(2);
  owns = false;
  await bench.run(taker.takeOver(1));
  const next = row('MIRRORING', { stateEpoch: 2 });
  const writes = [store.write(KEY, next), store.write(OTHER, row('PREPARING', { partition: 1 }))];
  assert.deepEqual(await bench.run(Promise.all(writes)), [
    NOT_COORDINATOR.code,
    NOT_COORDINATOR.code,
  ]);
  assert.equal(await store.write(KEY, next), NOT_COORDINATOR.code);
  await bench.clock.advance(10_000);
  assert.equal(store.isFenced, true);
  assert.equal(bench.kafka.batches().length, 1);
  owns = true;
  await bench.clock.advance(10_000);
  assert.equal(store.isFenced, false);
  assert.equal(await bench.run(store.write(KEY, next)), NONE.code);
  // Each time the id was taken before the question was asked: the epochs differ.
  assert.equal(new Set(order).size, order.length);
  assert.ok(order.length > 2);
  store.close();
  taker.close();
});

test('G22: whoever wrote a row last is fenced before it is replaced, and only then', async () => {
  const bench = new Bench();
  const one = await bench.store(1);
  const two = await bench.store(2, { otherGuests: () => [1, 3] });
  const taken: string[] = [];
  bench.kafka.onCall = (name, id) => {
    if (name === 'InitProducerId') taken.push(id ?? '');
    return undefined;
  };
  assert.equal(await bench.run(one.write(KEY, row('PREPARING'))), NONE.code);
  assert.equal(await bench.run(two.write(OTHER, row('PREPARING', { partition: 1 }))), NONE.code);
  assert.deepEqual(taken, [OWN, transactionalIdOf(2)]);
  const refused = row('MIRRORING', { stateEpoch: 7 });
  assert.equal(await bench.run(two.write(KEY, refused)), errors.FENCED_STATE_EPOCH.code);
  assert.deepEqual(taken.length, 2);
  const claimed = row('PREPARING', { stateEpoch: 2, leaderEpoch: 2 });
  assert.equal(await bench.run(two.write(KEY, claimed)), NONE.code);
  assert.deepEqual(taken.slice(2), [OWN]);
  const further = row('MIRRORING', { stateEpoch: 3, leaderEpoch: 2 });
  assert.equal(await bench.run(two.write(KEY, further)), NONE.code);
  assert.equal(taken.length, 3);
  // A first row under a later leader epoch: somebody led before, and may have one on its way.
  const first = row('PREPARING', { partition: 2, leaderEpoch: 4 });
  assert.equal(await bench.run(two.write({ ...KEY, partition: 2 }, first)), NONE.code);
  assert.deepEqual(taken.slice(3), [OWN, transactionalIdOf(3)]);
  one.close();
  two.close();
});

test('G22: many rows that change hands cost the other guest one fencing', async () => {
  const bench = new Bench();
  const one = await bench.store(1);
  const two = await bench.store(2);
  const keys = Array.from({ length: 1_200 }, (_, partition) => ({ ...KEY, partition }));
  const write = (store: GuestStateStore, fields: Partial<MirrorStateRow>) =>
    bench.run(
      Promise.all(
        keys.map((key) => {
          const { partition } = key;
          return store.write(key, row('PREPARING', { partition, ...fields }));
        }),
      ),
    );
  assert.deepEqual(new Set(await write(one, {})), new Set([NONE.code]));
  const before = bench.kafka.holderOf(OWN).epoch;
  const claim = { stateEpoch: 2, leaderEpoch: 2 };
  assert.deepEqual(new Set(await write(two, claim)), new Set([NONE.code]));
  assert.equal(bench.kafka.holderOf(OWN).epoch, before + 1);
  assert.ok(bench.kafka.batches().length > 4);
  one.close();
  two.close();
});

/** A row of its own in a transaction of guest `id` that stays open. */
function leaveOpen(bench: Bench, id: number, partition: number): void {
  const { id: producerId, epoch: producerEpoch } = bench.kafka.holderOf(transactionalIdOf(id));
  const key = encodeRowKey({ ...KEY, mirror: 'open' });
  const records = [{ key, value: encodeRow(row('STOPPED')), timestamp: 1 }];
  const batch = { records, producerId, producerEpoch, baseSequence: 0, isTransactional: true };
  bench.kafka.produceAs(transactionalIdOf(id), partition, buildRecordBatch(batch));
}

test('G22: what this guest left open when it was killed is ended by the first read', async () => {
  const bench = new Bench();
  const before = await bench.store();
  assert.equal(await bench.run(before.write(KEY, row('PREPARING'))), NONE.code);
  before.close();
  for (const partition of [0, 1]) leaveOpen(bench, 1, partition);
  const began = bench.clock.monotonicMs();
  const after = await bench.store();
  assert.ok(bench.clock.monotonicMs() - began <= START_PATIENCE_MS + 100);
  const { row: found } = (await bench.run(after.read(KEY))) as { row: unknown };
  assert.deepEqual(found, row('PREPARING'));
  assert.ok(bench.clock.monotonicMs() - began <= START_PATIENCE_MS + 500);
  assert.deepEqual(after.rows('open'), []);
  after.close();
});

test('G22: what another guest left open is ended when it is dead, else waited for', async () => {
  for (const isDead of [true, false]) {
    const bench = new Bench();
    // A guest that is not in the image is not live.
    const store = await bench.store(1, { otherGuests: () => (isDead ? [2] : []) });
    assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
    for (const partition of [0, 1]) leaveOpen(bench, 2, partition);
    const answer = await bench.run(store.read(KEY));
    assert.equal(answer.error, isDead ? NONE.code : COORDINATOR_NOT_AVAILABLE.code);
    bench.kafka.endAs(transactionalIdOf(2), false);
    assert.deepEqual(await bench.run(store.read(KEY)), { error: 0, row: row('PREPARING') });
    store.close();
  }
});

test('G23: a guest that cannot ask whether it may write does not, and asks again', async () => {
  const bench = new Bench();
  let asked = 0;
  const store = await bench.store(1, {
    mayOwn: async () => {
      asked++;
      if (asked < 3) throw new Error('no controller');
      return true;
    },
  });
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NOT_COORDINATOR.code);
  await bench.clock.advance(5_000);
  assert.equal(asked, 3);
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
  store.close();
});

test('G22 S4: what the other guest had on its way decides, not what was known before', async () => {
  const bench = new Bench();
  const one = await bench.store(1);
  const two = await bench.store(2);
  assert.equal(await bench.run(one.write(KEY, row('PREPARING'))), NONE.code);
  await bench.run(two.read(KEY));
  // Committed by guest 1 at the moment in which guest 2 takes its id.
  bench.kafka.onCall = (name, id) => {
    if (name !== 'InitProducerId' || id !== OWN) return undefined;
    bench.kafka.onCall = () => undefined;
    const value = encodeRow(row('MIRRORING', { stateEpoch: 2 }));
    const { id: producerId, epoch: producerEpoch } = bench.kafka.holderOf(OWN);
    const batch = buildRecordBatch({
      records: [{ key: encodeRowKey(KEY), value, timestamp: 1 }],
      producerId,
      producerEpoch,
      baseSequence: 0,
      isTransactional: true,
    });
    bench.kafka.produceAs(OWN, two.ownerOf(rowKeyText(KEY)) ?? 0, batch);
    bench.kafka.endAs(OWN, true);
    return undefined;
  };
  const claimed = row('PREPARING', { stateEpoch: 2, leaderEpoch: 2 });
  assert.equal(await bench.run(two.write(KEY, claimed)), errors.FENCED_STATE_EPOCH.code);
  const { row: now } = (await bench.run(two.read(KEY))) as { row: unknown };
  assert.deepEqual(now, row('MIRRORING', { stateEpoch: 2 }));
  one.close();
  two.close();
});

test('S4: a row that is written again while it is on its way sees the one before', async () => {
  const bench = new Bench();
  const store = await bench.store();
  const writes = [
    store.write(KEY, row('PREPARING')),
    store.write(KEY, row('MIRRORING', { stateEpoch: 2 })),
    store.write(KEY, row('MIRRORING', { stateEpoch: 2 })),
    store.write(KEY, row('STOPPED', { stateEpoch: 3 })),
    store.write(KEY, null),
  ];
  assert.deepEqual(await bench.run(Promise.all(writes)), [
    NONE.code,
    NONE.code,
    NONE.code,
    errors.INVALID_REQUEST.code,
    NONE.code,
  ]);
  assert.deepEqual(await bench.run(store.read(KEY)), { error: 0, row: undefined });
  assert.equal(await bench.run(store.write(KEY, row('PREPARING'))), NONE.code);
  await bench.clock.advance(1_000);
  assert.deepEqual(store.rows('m'), [{ key: KEY, row: row('PREPARING') }]);
  store.close();
});

test('B2: rows of topics that are gone are deleted, by whoever runs the jobs', async () => {
  const bench = new Bench();
  let owns = false;
  const one = await bench.store(1, { mayOwn: async () => owns });
  const two = await bench.store(2);
  owns = true;
  assert.equal(await bench.run(one.write(KEY, row('PREPARING'))), NONE.code);
  assert.equal(await bench.run(one.claimJobs('m')), NONE.code);
  await bench.run(two.read(KEY));
  two.sweep();
  await bench.clock.advance(1_000);
  assert.equal(one.rows('m').length, 1);
  // Not by one whose metadata may be older than the row.
  owns = false;
  one.sweep();
  await bench.clock.advance(1_000);
  assert.equal(one.rows('m').length, 1);
  owns = true;
  one.sweep();
  await bench.clock.advance(1_000);
  assert.deepEqual(one.rows('m'), []);
  assert.deepEqual(two.rows('m'), []);
  one.close();
  two.close();
});

test('C1 G22: without the topic there is no start, and nothing is answered before it', async () => {
  const bench = new Bench();
  bench.kafka.topicError = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  await assert.rejects(bench.store(), { name: 'ClusterError', errorCode: 3 });
});
