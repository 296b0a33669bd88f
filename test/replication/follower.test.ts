/** A broker that follows another: from its own end, from an offset, and back to leadership. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import { forEachBatch } from '../../src/protocol/record-batch.ts';
import type { Log } from '../../src/storage/log.ts';
import { type Pair, startPair, TOPIC } from './followers.ts';
import {
  batch,
  fetchParams,
  fetchPartition,
  marker,
  mirrored,
  OTHER_BROKER,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
  transactional,
  watch,
} from './harness.ts';

const BOTH = [THIS_BROKER, OTHER_BROKER];
const OPEN = 7n;

/** Batches of a log from `from` on, by base offset and epoch, with their bytes. */
function contents(log: Log, from = log.localLogStartOffset): string[] {
  const seen: string[] = [];
  for (let offset = from; offset < log.logEndOffset; ) {
    const read = log.read(offset, 1_000_000, 'logEnd', true);
    assert(read.error === 0 && read.bytes > 0);
    for (const chunk of read.records) {
      forEachBatch(chunk, 0, chunk.length, (each) => {
        const text = Buffer.from(each.slice()).toString('base64');
        seen.push(`${each.baseOffset} e${each.partitionLeaderEpoch} ${text}`);
        offset = each.nextOffset;
      });
    }
  }
  return seen;
}

const logOf = (broker: TestBroker): Log => broker.partition(TOPIC).log;

function starts({ logStartOffset, localLogStartOffset, logEndOffset }: Log): number[] {
  return [logStartOffset, localLogStartOffset, logEndOffset];
}

function askedIsr(broker: TestBroker): number[] {
  const asked = broker.alterations.at(-1)?.topics[0]?.partitions[0]?.newIsrWithEpochs;
  return (asked ?? []).map(({ brokerId }) => brokerId);
}

function produce(broker: TestBroker, count: number, each = batch(1)): void {
  for (let index = 0; index < count; index++) {
    const result = broker.partition(TOPIC).append('client', each.slice(), 1);
    assert.equal(result.error, 0);
  }
}

/** The first broker has led in epochs 0, 1 and 2; a transaction that began at 25 is open. */
async function history(pair: Pair): Promise<void> {
  pair.createTopic();
  produce(pair.first, 10);
  pair.change({ leaderEpoch: 1 });
  produce(pair.first, 10);
  pair.change({ leaderEpoch: 2 });
  produce(pair.first, 5);
  produce(pair.first, 1, transactional(OPEN));
  produce(pair.first, 10);
  await pair.first.replicas.deleteRecords(0, [{ topic: TOPIC, partition: 0, offset: 4 }]);
  assert.deepEqual(starts(logOf(pair.first)), [4, 4, 36]);
}

test('G23 a follower has what its leader has, byte for byte', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 'logStart');
  pair.createTopic();
  produce(pair.first, 5, batch(3));
  await pair.run();
  assert.deepEqual(contents(logOf(pair.second)), contents(logOf(pair.first)));
  assert.deepEqual(askedIsr(pair.first), BOTH);
  produce(pair.first, 5, transactional(OPEN).slice());
  pair.first.partition(TOPIC).append('marker', marker(OPEN, false), -1);
  await pair.run();
  assert.deepEqual(contents(logOf(pair.second)), contents(logOf(pair.first)));
  const { highWatermark, lastStableOffset } = logOf(pair.second);
  assert.equal(highWatermark, logOf(pair.first).logEndOffset);
  assert.equal(lastStableOffset, highWatermark);
  await pair.first.replicas.deleteRecords(0, [{ topic: TOPIC, partition: 0, offset: 7 }]);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.second)), starts(logOf(pair.first)));
  assert.equal(logOf(pair.second).logStartOffset, 7);
});

test('G23 without the wish, or as a broker that does not follow, nothing is fetched', async (t) => {
  const pair = await startPair(t);
  pair.createTopic();
  produce(pair.first, 5);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.second)), [0, 0, 0]);
  assert.deepEqual(pair.calls.get(OTHER_BROKER), []);
  pair.from.set(OTHER_BROKER, 'logStart');
  pair.second.replicas.reviewFollowing();
  await pair.run();
  assert.equal(logOf(pair.second).logEndOffset, 5);
  pair.from.delete(OTHER_BROKER);
  pair.second.replicas.reviewFollowing();
  assert.equal(pair.calls.get(OTHER_BROKER)?.[0]?.isClosed, true);
  produce(pair.first, 5);
  await pair.run();
  assert.equal(logOf(pair.second).logEndOffset, 5);
  const alone = await startTestBroker(t);
  alone.createTopic(TOPIC, 1, { replicas: BOTH, isr: [OTHER_BROKER], leader: OTHER_BROKER });
  alone.replicas.reviewFollowing();
  assert.equal(logOf(alone).logEndOffset, 0);
});

test('G29 a follower begins at an offset and knows epochs and transactions below', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 30);
  await history(pair);
  await pair.run();
  const log = logOf(pair.second);
  assert.deepEqual(starts(log), [4, 30, 36]);
  assert.deepEqual(contents(log), contents(logOf(pair.first), 30));
  for (const epoch of [0, 1, 2]) {
    assert.deepEqual(log.epochEndOffset(epoch), logOf(pair.first).epochEndOffset(epoch));
  }
  assert.deepEqual(log.openTransactions(), [{ producerId: OPEN, firstOffset: 25 }]);
  assert.equal(log.lastStableOffset, 25);
  assert.equal(pair.calls.get(OTHER_BROKER)?.at(-1)?.seen[0], '30');
  assert.equal(pair.calls.get(OTHER_BROKER)?.length, 1);
  assert.deepEqual(askedIsr(pair.first), BOTH);
  // What the leader deletes meanwhile, a partial log follows.
  await pair.first.replicas.deleteRecords(0, [{ topic: TOPIC, partition: 0, offset: 12 }]);
  await pair.run();
  assert.deepEqual(starts(log), [12, 30, 36]);
});

test('G29 a follower whose begin its leader has not yet waits for it', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 40);
  await history(pair);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.second)), [0, 0, 0]);
  produce(pair.first, 10);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.second)), [4, 40, 46]);
});

test('G30 a follower that begins inside a batch has all of that batch', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 14);
  pair.createTopic();
  produce(pair.first, 1, transactional(OPEN));
  produce(pair.first, 3, batch(5));
  await pair.run();
  const log = logOf(pair.second);
  assert.deepEqual(starts(log), [0, 11, 16]);
  assert.deepEqual(contents(log), contents(logOf(pair.first), 11));
  assert.deepEqual(log.openTransactions(), [{ producerId: OPEN, firstOffset: 0 }]);
});

/** After `history`: the second broker has followed from 30, is elected, and cuts to 30. */
async function failBack(pair: Pair): Promise<void> {
  pair.from.set(OTHER_BROKER, 30);
  pair.from.set(THIS_BROKER, 'logStart');
  await history(pair);
  await pair.run();
  for (const broker of [pair.first, pair.second]) {
    broker.gate.set(TOPIC, { topic: TOPIC, mirror: 'm', state: 'PREPARING' });
  }
  pair.change({ leader: OTHER_BROKER, leaderEpoch: 3, isr: [OTHER_BROKER] });
  const cut = pair.second.partition(TOPIC).truncateForMirror(30, 3);
  assert.deepEqual(cut, { error: 0, logEndOffset: 30 });
}

test('G29 once elected and cut, those with more are cut there and keep all below', async (t) => {
  const pair = await startPair(t);
  await failBack(pair);
  const below = contents(logOf(pair.first)).slice(0, 26);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.first)), [4, 4, 30]);
  assert.deepEqual(contents(logOf(pair.first)), below);
  assert.deepEqual(pair.calls.get(THIS_BROKER)?.[0]?.seen.slice(0, 3), [
    '36',
    'diverging 2@30',
    '30',
  ]);
  const { highWatermark, lastStableOffset } = logOf(pair.second);
  assert.deepEqual([highWatermark, lastStableOffset], [30, 25]);
  pair.change({ leader: OTHER_BROKER, leaderEpoch: 5 });
  const partition = pair.second.partition(TOPIC);
  assert.equal(partition.appendMirrored([mirrored(30, 2, 5), mirrored(40, 1, 5)], 5).error, 0);
  await pair.run();
  assert.deepEqual(contents(logOf(pair.first)).slice(0, 26), below);
  assert.deepEqual(contents(logOf(pair.first), 30), contents(logOf(pair.second)));
  assert.deepEqual(starts(logOf(pair.first)), [4, 4, 41]);
  assert.deepEqual(starts(logOf(pair.second)), [4, 30, 41]);
  assert.deepEqual(logOf(pair.first).epochEndOffset(2), { leaderEpoch: 2, endOffset: 30 });
  assert.equal(partition.isrReachedLogEnd(), true);
});

test('G29 a replica that had parted below the begin is cut there, not at the begin', async (t) => {
  const pair = await startPair(t);
  await failBack(pair);
  const params = fetchParams({ replicaId: THIS_BROKER, replicaEpoch: 101, maxWaitMs: 0 });
  const ask = async (fetchOffset: number, lastFetchedEpoch: number) => {
    const request = fetchPartition(TOPIC, 0, fetchOffset, { lastFetchedEpoch, logStartOffset: 0 });
    const [answer] = await pair.second.replicas.fetch(params, [request]);
    assert(answer !== undefined);
    return answer;
  };
  // It wrote on in epoch 0 when epoch 1 had begun elsewhere.
  assert.deepEqual((await ask(33, 0)).divergingEpoch, { epoch: 0, endOffset: 10 });
  assert.deepEqual((await ask(18, 0)).divergingEpoch, { epoch: 0, endOffset: 10 });
  assert.deepEqual((await ask(33, 2)).divergingEpoch, { epoch: 2, endOffset: 30 });
  // Same history, but less than we have: not cut, not sent to start over, told to ask again.
  for (const offset of [8, 4]) {
    const answer = await ask(offset, 0);
    assert.equal(answer.error, errors.NOT_LEADER_OR_FOLLOWER.code);
    assert.equal(answer.divergingEpoch, undefined);
  }
  assert.equal((await ask(4, -1)).error, errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal((await ask(3, -1)).error, errors.OFFSET_OUT_OF_RANGE.code);
});

test('G29 consumers below the begin go to a replica that has it, or wait', async (t) => {
  const pair = await startPair(t);
  await failBack(pair);
  const fetch = (offset: number, fields = {}) => {
    const params = fetchParams({ canChangeReplica: true, ...fields });
    return watch(pair.second.replicas.fetch(params, [fetchPartition(TOPIC, 0, offset)]));
  };
  for (const call of pair.calls.get(THIS_BROKER) ?? []) call.isAway = true;
  const early = fetch(8);
  await pair.second.clock.advance(499);
  assert.equal(early.done, false, 'no follower has fetched yet');
  await pair.second.clock.advance(1);
  assert.equal(early.value?.[0]?.error, errors.NOT_LEADER_OR_FOLLOWER.code);
  for (const call of pair.calls.get(THIS_BROKER) ?? []) call.isAway = false;
  await pair.run();
  const sent = fetch(8);
  const stays = fetch(8, { canChangeReplica: false });
  await pair.second.clock.advance(0);
  const [answer] = sent.value ?? [];
  assert.deepEqual(
    [answer?.error, answer?.preferredReadReplica, answer?.bytes],
    [0, THIS_BROKER, 0],
  );
  assert.equal(stays.done, false);
  await pair.second.clock.advance(500);
  assert.equal(stays.value?.[0]?.error, errors.NOT_LEADER_OR_FOLLOWER.code);
});

test('G23 a second guest begins where the first one has', async (t) => {
  const pair = await startPair(t);
  const leader = { leader: OTHER_BROKER, isr: [OTHER_BROKER], leaderEpoch: 4 };
  pair.createTopic(leader);
  const log = logOf(pair.second);
  log.beginAt(30, 4, [
    { epoch: 0, startOffset: 0 },
    { epoch: 2, startOffset: 20 },
  ]);
  pair.second.gate.set(TOPIC, { topic: TOPIC, mirror: 'm', state: 'MIRRORING' });
  const partition = pair.second.partition(TOPIC);
  assert.equal(partition.appendMirrored([mirrored(30, 2, 4), mirrored(40, 1, 4)], 4).error, 0);
  pair.from.set(THIS_BROKER, 'logStart');
  pair.first.replicas.reviewFollowing();
  await pair.run();
  assert.deepEqual(starts(logOf(pair.first)), [4, 30, 41]);
  assert.deepEqual(contents(logOf(pair.first)), contents(log));
  for (const epoch of [0, 2, 4]) {
    assert.deepEqual(logOf(pair.first).epochEndOffset(epoch), log.epochEndOffset(epoch));
  }
  assert.deepEqual(askedIsr(pair.second), [OTHER_BROKER, THIS_BROKER]);
});

test('G29 transactions open at the begin are known again after a cut below it', async (t) => {
  const pair = await startPair(t);
  await failBack(pair);
  const partition = pair.second.partition(TOPIC);
  assert.deepEqual(partition.truncateForMirror(28, 3), { error: 0, logEndOffset: 28 });
  assert.deepEqual(partition.log.openTransactions(), []);
  const [open] = logOf(pair.first).activeProducers();
  assert(open !== undefined);
  assert.equal(partition.adoptProducers([open], 2), errors.FENCED_LEADER_EPOCH.code);
  assert.equal(partition.adoptProducers([open], 3), 0);
  assert.equal(partition.log.lastStableOffset, 25);
  assert.equal(partition.appendMirrored([mirrored(28, 1, 3)], 3).error, 0);
  assert.equal(partition.adoptProducers([open], 3), errors.INVALID_REQUEST.code);
});

test('KIP-595 a follower cuts what its leader never had, and says how much', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 'logStart');
  pair.from.set(THIS_BROKER, 'logStart');
  pair.createTopic();
  produce(pair.first, 10);
  await pair.run();
  for (const call of pair.calls.get(OTHER_BROKER) ?? []) call.isAway = true;
  produce(pair.first, 5);
  // An unclean election: the second broker did not have the last five.
  pair.change({ leader: OTHER_BROKER, leaderEpoch: 1, isr: [OTHER_BROKER] });
  produce(pair.second, 2);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.first)), [0, 0, 12]);
  assert.deepEqual(contents(logOf(pair.first)), contents(logOf(pair.second)));
});

test('G16 who led without appending follows on, asked once', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 'logStart');
  pair.createTopic();
  produce(pair.first, 10);
  await pair.run();
  pair.change({ leader: OTHER_BROKER, leaderEpoch: 1, isr: BOTH });
  pair.change({ leader: THIS_BROKER, leaderEpoch: 2, isr: [THIS_BROKER] });
  await pair.run();
  const { seen } = pair.calls.get(OTHER_BROKER)?.at(-1) ?? { seen: [] };
  assert.equal(seen.filter((what) => what.startsWith('diverging')).length, 1, seen.join(' '));
  assert.deepEqual(askedIsr(pair.first), BOTH);
  produce(pair.first, 3);
  await pair.run();
  assert.deepEqual(contents(logOf(pair.second)), contents(logOf(pair.first)));
});

test('a follower starts over where its leader begins behind its end', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 'logStart');
  pair.createTopic();
  produce(pair.first, 4);
  await pair.run();
  for (const call of pair.calls.get(OTHER_BROKER) ?? []) call.isAway = true;
  await pair.run();
  produce(pair.first, 20);
  pair.change({ isr: [THIS_BROKER] });
  await pair.first.replicas.deleteRecords(0, [{ topic: TOPIC, partition: 0, offset: 15 }]);
  for (const call of pair.calls.get(OTHER_BROKER) ?? []) call.isAway = false;
  await pair.run();
  assert.deepEqual(starts(logOf(pair.second)), [15, 15, 24]);
  assert.deepEqual(contents(logOf(pair.second)), contents(logOf(pair.first), 15));
});

test('a leader that does not answer is asked again with backoff, for ever', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 30);
  await history(pair);
  const [call] = pair.calls.get(OTHER_BROKER) ?? [];
  assert(call !== undefined);
  call.isAway = true;
  await pair.run();
  call.isAway = false;
  await pair.second.clock.advance(10_000);
  await pair.run();
  assert.deepEqual(starts(logOf(pair.second)), [4, 30, 36]);
});

test('what an old leader answers is not appended under the next epoch', async (t) => {
  const pair = await startPair(t);
  pair.from.set(OTHER_BROKER, 'logStart');
  pair.createTopic();
  await pair.run();
  // The fetch that waits is answered by this, but the follower has moved on by then.
  produce(pair.first, 3);
  pair.second.changePartition(TOPIC, 0, { leader: -1, leaderEpoch: 1 });
  await pair.run();
  assert.equal(logOf(pair.second).logEndOffset, 0);
  assert.equal(pair.second.partition(TOPIC).followedLog(0), undefined);
});
