/**
 * What a broker of an Apache Kafka cluster gets that follows a partition led here (G14–G16): its
 * requests as they arrive in its versions, over real logs.
 */
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import { errors } from '../../src/protocol/errors.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../../src/protocol/messages/23-offset-for-leader-epoch.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { BrokerServices } from '../../src/server/api-handler.ts';
import {
  mirrored,
  OTHER_BROKER,
  type PartitionChange,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
  watch,
} from '../replication/harness.ts';
import { ask, Fetch, ListOffsets, servicesOf } from './call.ts';
import { settle } from './fakes.ts';

const OffsetForLeaderEpoch = {
  request: OffsetForLeaderEpochRequest,
  response: OffsetForLeaderEpochResponse,
};
/** The versions in which brokers of Apache Kafka 4.x fetch. */
const FETCH_VERSIONS = [16, 17, 18];
/** As large as an int32 offset delta. */
const MAX_SPAN = 0x7fff_ffff;
const OUT_OF_ISR = { replicas: [THIS_BROKER, OTHER_BROKER], isr: [THIS_BROKER] };

interface Asked {
  readonly topicId: Uuid;
  readonly partition?: number;
  readonly fetchOffset: number;
  readonly lastFetchedEpoch?: number;
  readonly currentLeaderEpoch?: number;
  readonly logStartOffset?: number;
  readonly maxBytes?: number;
}

/** A broker that leads mirror topics, and a follower of them. */
class Stage {
  readonly broker: TestBroker;
  /** Of the follower; absent: the fetch is a consumer's. */
  replicaState: { replicaId: number; replicaEpoch: number } | undefined = {
    replicaId: OTHER_BROKER,
    replicaEpoch: 102,
  };
  version = 17;
  maxWaitMs = 500;

  constructor(broker: TestBroker) {
    this.broker = broker;
  }

  topic(name: string, partitions = 1, change: PartitionChange = {}): Uuid {
    this.broker.gate.set(name, { topic: name, mirror: 'm', state: 'MIRRORING' });
    this.broker.admits = () => false;
    return this.broker.createTopic(name, partitions, { ...OUT_OF_ISR, ...change });
  }

  append(name: string, ...batches: Uint8Array[]): void {
    const partition = this.broker.partition(name);
    for (const each of batches) {
      const result = partition.appendMirrored([each], partition.leaderEpoch);
      assert.equal(result.error, 0, 'message' in result ? result.message : '');
    }
  }

  get services(): BrokerServices {
    const { replicas, sessions, image } = this.broker;
    return servicesOf({ image, replicas, fetchSessions: sessions });
  }

  /** A full fetch, as followers send them: no session, epoch 0. */
  async fetch(asked: readonly Asked[], maxBytes = 10_000_000) {
    const { replicaState } = this;
    const answer = await ask(Fetch, this.version, this.services, {
      ...(replicaState === undefined ? {} : { replicaState }),
      maxWaitMs: this.maxWaitMs,
      minBytes: 1,
      maxBytes,
      isolationLevel: 0,
      sessionId: 0,
      sessionEpoch: 0,
      topics: asked.map((each) => ({
        topicId: each.topicId,
        partitions: [
          {
            partition: each.partition ?? 0,
            fetchOffset: each.fetchOffset,
            currentLeaderEpoch: each.currentLeaderEpoch ?? 0,
            lastFetchedEpoch: each.lastFetchedEpoch ?? (each.fetchOffset > 0 ? 0 : -1),
            logStartOffset: each.logStartOffset ?? 0,
            partitionMaxBytes: each.maxBytes ?? 1_048_576,
          },
        ],
      })),
      forgottenTopicsData: [],
    });
    assert.equal(answer.errorCode, 0);
    const partitions = answer.responses.flatMap((topic) =>
      topic.partitions.map((each) => ({ ...each, topicId: topic.topicId })),
    );
    for (const each of partitions) {
      if (each.errorCode !== 0) continue;
      assert.ok(each.highWatermark >= each.logStartOffset, 'HW below log start on an OK answer');
    }
    return { ...answer, partitions };
  }

  async fetchOne(asked: Asked) {
    const [partition] = (await this.fetch([asked])).partitions;
    assert.ok(partition);
    return partition;
  }

  async offset(name: string, timestamp: bigint, version: number) {
    const answer = await ask(ListOffsets, version, this.services, {
      replicaId: OTHER_BROKER,
      isolationLevel: 0,
      topics: [{ name, partitions: [{ partitionIndex: 0, currentLeaderEpoch: 0, timestamp }] }],
    });
    const partition = answer.topics[0]?.partitions[0];
    assert.ok(partition);
    return [partition.errorCode, partition.offset, partition.leaderEpoch];
  }
}

async function stage(t: TestContext): Promise<Stage> {
  return new Stage(await startTestBroker(t));
}

interface Batches {
  readonly records: readonly Uint8Array[] | Uint8Array | null;
}

/** First and last offset of each batch. */
function spans({ records }: Batches): [number, number][] {
  const bytes = Buffer.concat(records instanceof Uint8Array ? [records] : (records ?? []));
  const found: [number, number][] = [];
  for (let at = 0; at < bytes.length; ) {
    const each = new RecordBatch(bytes, at);
    found.push([each.baseOffset, each.lastOffset]);
    at = each.end;
  }
  return found;
}

test('G14 session id 0 and every partition asked for, in order, in each version', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const ids = ['a', 'b', 'c'].map((name) => s.topic(name));
  s.append('b', mirrored(0, 3), mirrored(3, 2));
  for (const version of FETCH_VERSIONS) {
    s.version = version;
    for (let again = 0; again < 2; again++) {
      const answer = await s.fetch(ids.map((topicId) => ({ topicId, fetchOffset: 0 })));
      assert.equal(answer.sessionId, 0);
      assert.deepEqual(
        answer.partitions.map(({ topicId, errorCode }) => [topicId, errorCode]),
        ids.map((id) => [id, 0]),
      );
      assert.deepEqual(answer.partitions.map(spans), [
        [],
        [
          [0, 2],
          [3, 4],
        ],
        [],
      ]);
    }
  }
});

test('G14 a follower reads to the log end, without ReplicaState one is a consumer', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const topicId = s.topic('a', 1, { isr: OUT_OF_ISR.replicas });
  s.broker.admits = () => true;
  s.append('a', mirrored(0, 3));
  const read = await s.fetchOne({ topicId, fetchOffset: 0 });
  assert.deepEqual([spans(read), read.highWatermark], [[[0, 2]], 0]);
  s.replicaState = undefined;
  const consumed = await s.fetchOne({ topicId, fetchOffset: 0 });
  assert.deepEqual([consumed.errorCode, spans(consumed)], [0, []]);
});

test('G14 one batch may exceed the limits, of the partition and of the answer', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const [a, b] = ['a', 'b'].map((name) => s.topic(name)) as [Uuid, Uuid];
  for (const name of ['a', 'b']) s.append(name, mirrored(0, 50), mirrored(50, 1));
  const asked = [a, b].map((topicId) => ({ topicId, fetchOffset: 0, maxBytes: 100 }));
  const answer = await s.fetch(asked, 100);
  assert.deepEqual(answer.partitions.map(spans), [[[0, 49]], []]);
});

test('G14 with nothing to send the request is held until data comes or time is over', async (t) => {
  const s = await stage(t);
  const topicId = s.topic('a');
  const waiting = watch(s.fetchOne({ topicId, fetchOffset: 0 }));
  await s.broker.clock.advance(499);
  assert.equal(waiting.done, false);
  s.append('a', mirrored(0, 3));
  await settle();
  assert.deepEqual(waiting.value && spans(waiting.value), [[0, 2]]);
  const idle = watch(s.fetchOne({ topicId, fetchOffset: 3 }));
  await s.broker.clock.advance(499);
  assert.equal(idle.done, false);
  await s.broker.clock.advance(1);
  assert.deepEqual([idle.value?.errorCode, idle.value && spans(idle.value)], [0, []]);
  assert.equal(idle.value?.highWatermark, 3);
});

test('G14 a broker epoch older than the metadata is refused, of a fenced one too', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const topicId = s.topic('a', 1, { replicas: [THIS_BROKER, OTHER_BROKER, 3] });
  const errorOf = async (replicaId: number, replicaEpoch: number): Promise<number> => {
    s.replicaState = { replicaId, replicaEpoch };
    return (await s.fetchOne({ topicId, fetchOffset: 0 })).errorCode;
  };
  const refused = errors.NOT_LEADER_OR_FOLLOWER.code;
  assert.equal(await errorOf(OTHER_BROKER, 101), refused);
  assert.equal(await errorOf(OTHER_BROKER, 102), 0);
  assert.equal(await errorOf(OTHER_BROKER, 103), 0, 'our metadata is late');
  assert.equal(await errorOf(3, 102), refused);
  assert.equal(await errorOf(3, 103), 0);
  assert.equal(await errorOf(4, 104), refused, 'not a replica');
});

test('G14 an epoch or topic that is not ours is named as such', async (t) => {
  const s = await stage(t);
  const topicId = s.topic('a', 1, { leaderEpoch: 4 });
  const at = (currentLeaderEpoch: number) =>
    s.fetchOne({ topicId, fetchOffset: 0, currentLeaderEpoch });
  const old = await at(3);
  assert.equal(old.errorCode, errors.FENCED_LEADER_EPOCH.code);
  assert.deepEqual([old.currentLeader.leaderId, old.currentLeader.leaderEpoch], [THIS_BROKER, 4]);
  assert.equal((await at(5)).errorCode, errors.UNKNOWN_LEADER_EPOCH.code);
  const unknown = { topicId: 'dW5rbm93bi11bmtub3duLQ' as Uuid, fetchOffset: 0 };
  assert.equal((await s.fetchOne(unknown)).errorCode, errors.UNKNOWN_TOPIC_ID.code);
});

test('G14 an empty follower below the log start is told so, and finds the start', async (t) => {
  const s = await stage(t);
  const topicId = s.topic('a');
  s.append('a', mirrored(0, 5), mirrored(5, 5));
  assert.equal(s.broker.partition('a').followLogStart(7, 0), 0);
  const below = await s.fetchOne({ topicId, fetchOffset: 0 });
  assert.equal(below.errorCode, errors.OFFSET_OUT_OF_RANGE.code);
  assert.deepEqual(await s.offset('a', -1n, 11), [0, 10, 0]);
  assert.deepEqual(await s.offset('a', -2n, 11), [0, 7, 0]);
  const from = await s.fetchOne({ topicId, fetchOffset: 7, logStartOffset: 7 });
  assert.deepEqual([from.errorCode, from.logStartOffset, spans(from)], [0, 7, [[5, 9]]]);
});

test('G14 ListOffsets as replica: end, start, and nothing of what is not there', async (t) => {
  const s = await stage(t);
  s.topic('a', 1, { isr: OUT_OF_ISR.replicas });
  s.broker.admits = () => true;
  s.append('a', mirrored(0, 5));
  for (const version of [8, 9, 10, 11]) {
    assert.deepEqual(await s.offset('a', -1n, version), [0, 5, 0], 'the end, not the HW');
    assert.deepEqual(await s.offset('a', -2n, version), [0, 0, 0]);
    assert.deepEqual(await s.offset('a', -4n, version), [0, 0, 0]);
    const unsupported = [errors.UNSUPPORTED_VERSION.code, -1, -1];
    assert.deepEqual(await s.offset('a', -5n, version), version >= 9 ? [0, -1, -1] : unsupported);
    assert.deepEqual(await s.offset('a', -6n, version), version >= 11 ? [0, -1, -1] : unsupported);
  }
});

test('G14 OffsetForLeaderEpoch as replica: where each epoch ends here', async (t) => {
  const s = await stage(t);
  s.topic('a');
  s.append('a', mirrored(0, 5));
  s.broker.changePartition('a', 0, { leaderEpoch: 3 });
  s.append('a', mirrored(5, 2, 3));
  const end = async (leaderEpoch: number, currentLeaderEpoch = 3) => {
    const answer = await ask(OffsetForLeaderEpoch, 4, s.services, {
      replicaId: OTHER_BROKER,
      topics: [{ topic: 'a', partitions: [{ partition: 0, currentLeaderEpoch, leaderEpoch }] }],
    });
    const partition = answer.topics[0]?.partitions[0];
    return [partition?.errorCode, partition?.leaderEpoch, partition?.endOffset];
  };
  assert.deepEqual(await end(0), [0, 0, 5]);
  assert.deepEqual(await end(2), [0, 0, 5]);
  assert.deepEqual(await end(3), [0, 3, 7]);
  assert.deepEqual(await end(4), [0, -1, -1]);
  assert.deepEqual(await end(0, 2), [errors.FENCED_LEADER_EPOCH.code, -1, -1]);
});

test('G15 no answer spans more offsets than a segment of the follower can hold', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const topicId = s.topic('a');
  const bases = [0, 3, MAX_SPAN - 1, MAX_SPAN, 2 * MAX_SPAN, 2 * MAX_SPAN + 1, 10 * MAX_SPAN];
  const partition = s.broker.partition('a');
  const batches = bases.map((base) => mirrored(base, 1));
  assert.equal(partition.appendMirrored([Buffer.concat(batches)], 0).error, 0);
  const seen: number[] = [];
  let fetchOffset = 0;
  while (fetchOffset < partition.log.logEndOffset) {
    const read = spans(await s.fetchOne({ topicId, fetchOffset }));
    const [first, last] = [read[0], read.at(-1)];
    assert.ok(first && last, `nothing at ${fetchOffset}`);
    assert.ok(last[1] - first[0] <= MAX_SPAN, `${first[0]} to ${last[1]}`);
    seen.push(...read.map(([base]) => base));
    fetchOffset = last[1] + 1;
  }
  assert.deepEqual(seen, bases);
});

test('G15 no chunk is larger than a segment, though one batch may be', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const topicId = s.topic('a');
  s.append('a', ...[0, 5, 10, 15].map((base) => mirrored(base, 5)));
  s.broker.configs.set('a', { segmentBytes: 2 * mirrored(0, 5).length });
  s.broker.publish([], [], [{ type: 2, name: 'a' }]);
  assert.deepEqual(spans(await s.fetchOne({ topicId, fetchOffset: 0 })), [
    [0, 4],
    [5, 9],
  ]);
  s.broker.configs.set('a', { segmentBytes: 10 });
  s.broker.publish([], [], [{ type: 2, name: 'a' }]);
  assert.deepEqual(spans(await s.fetchOne({ topicId, fetchOffset: 10 })), [[10, 14]]);
});

test('F9 G15 a follower waits at the start of a log that ends below it', async (t) => {
  const s = await stage(t);
  const topicId = s.topic('a');
  const partition = s.broker.partition('a');
  s.append('a', mirrored(0, 5));
  assert.equal(partition.followLogStart(100, 0), 0);
  assert.equal(partition.restartForMirror(95, 100, 0), 0);
  assert.deepEqual(await s.offset('a', -1n, 11), [0, 100, 0]);
  assert.deepEqual(await s.offset('a', -2n, 11), [0, 100, 0]);
  const begun = { fetchOffset: 100, logStartOffset: 100, lastFetchedEpoch: -1 };
  const waiting = watch(s.fetchOne({ topicId, ...begun }));
  await s.broker.clock.advance(400);
  assert.equal(waiting.done, false);
  s.append('a', mirrored(95, 10));
  await settle();
  assert.deepEqual(waiting.value && [waiting.value.errorCode, spans(waiting.value)], [
    0,
    [[95, 104]],
  ]);
});

test('G15 the high watermark is never below the log start, whatever the start did', async (t) => {
  const s = await stage(t);
  s.maxWaitMs = 0;
  const topicId = s.topic('a');
  const partition = s.broker.partition('a');
  const check = async (): Promise<void> => {
    const { logStartOffset, logEndOffset } = partition.log;
    for (const fetchOffset of [logStartOffset, logEndOffset, logEndOffset + 1]) {
      await s.fetchOne({ topicId, fetchOffset });
    }
  };
  s.append('a', mirrored(0, 5), mirrored(5, 5));
  await check();
  partition.followLogStart(8, 0);
  await check();
  partition.truncateForMirror(6, 0);
  await check();
  partition.followLogStart(50, 0);
  await check();
  s.append('a', mirrored(70, 5));
  await check();
});

test('G13 a follower that has more than was cut is told where, before any new epoch', async (t) => {
  const s = await stage(t);
  const topicId = s.topic('a');
  s.append('a', mirrored(0, 5), mirrored(5, 5));
  s.broker.partition('a').truncateForMirror(5, 0);
  const ahead = { topicId, fetchOffset: 10, lastFetchedEpoch: 0 };
  const { errorCode, divergingEpoch } = await s.fetchOne(ahead);
  assert.deepEqual([errorCode, divergingEpoch.epoch, divergingEpoch.endOffset], [0, 0, 5]);
  s.broker.changePartition('a', 0, { leaderEpoch: 2 });
  const later = await s.fetchOne({ ...ahead, currentLeaderEpoch: 2 });
  assert.deepEqual([later.divergingEpoch.epoch, later.divergingEpoch.endOffset], [0, 5]);
});

test('G16 an epoch without data costs its leader one answer, and no loop', async (t) => {
  const s = await stage(t);
  const topicId = s.topic('a');
  s.append('a', mirrored(0, 5));
  // The other broker led in epoch 1 and wrote nothing.
  s.broker.changePartition('a', 0, { leaderEpoch: 1, leader: OTHER_BROKER });
  s.broker.changePartition('a', 0, { leaderEpoch: 2, leader: THIS_BROKER });
  const asked = { topicId, fetchOffset: 5, currentLeaderEpoch: 2 };
  const parted = await s.fetchOne({ ...asked, lastFetchedEpoch: 1 });
  assert.deepEqual([parted.divergingEpoch.epoch, parted.divergingEpoch.endOffset], [0, 5]);
  const waiting = watch(s.fetchOne({ ...asked, lastFetchedEpoch: 0 }));
  await s.broker.clock.advance(499);
  assert.equal(waiting.done, false);
  s.append('a', mirrored(5, 1, 2));
  await settle();
  assert.deepEqual(waiting.value && spans(waiting.value), [[5, 5]]);
});
