/**
 * What a peer's topic says, says not, or may not be asked: only a certain "no" is an answer.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../../src/base/uuid.ts';
import { PeerMirrorState, readPeerRows } from '../../../src/guest/state/peer-rows.ts';
import {
  encodeRow,
  encodeRowKey,
  MIRROR_STATE_TOPIC,
  type MirrorStateRow,
} from '../../../src/mirror/state-row.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { buildRecordBatch } from '../../../src/protocol/record.ts';
import { row } from '../../mirror/harness.ts';
import { fakeRuntime, ManualClock } from '../../replication/fakes.ts';
import { FakeKafka } from '../fake-kafka.ts';

const ID = 'dG9waWMtdG9waWMtdG9waQ' as Uuid;
const SETTINGS = {
  bootstrapServers: [{ host: 'broker', port: 9092 }],
  requestTimeoutMs: 5_000,
  connectionSetupTimeoutMs: 1_000,
};

class Bench {
  readonly clock = new ManualClock();
  readonly kafka = new FakeKafka(MIRROR_STATE_TOPIC, 1);
  readonly runtime = { ...fakeRuntime(this.clock), network: this.kafka.network() };

  /** Rows of partitions 0, 1, … of `t` that ended at these offsets, in one open transaction. */
  write(...ends: readonly number[]): void {
    this.writeRows({}, ends);
  }

  writeRows(fields: Partial<MirrorStateRow>, ends: readonly number[]): void {
    const { id: producerId, epoch: producerEpoch } = this.kafka.holderOf('x');
    const records = ends.map((lastMirroredOffset, partition) => ({
      key: encodeRowKey({ mirror: 'm', topicId: ID, partition }),
      value: encodeRow(row('STOPPED', { ...fields, lastMirroredOffset, sourceClusterId: 'here' })),
      timestamp: 1,
    }));
    const batch = { records, producerId, producerEpoch, baseSequence: 0, isTransactional: true };
    this.kafka.produceAs('x', 0, buildRecordBatch(batch));
  }

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
}

test('G22: no topic means no record, not allowed and not readable are errors', async () => {
  const bench = new Bench();
  const read = () => bench.run(readPeerRows(bench.runtime, SETTINGS));
  bench.kafka.topicError = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  assert.equal(await read(), 'absent');
  bench.kafka.topicError = errors.TOPIC_AUTHORIZATION_FAILED.code;
  await assert.rejects(read(), { mirrorCause: 'SOURCE_AUTHORIZATION_FAILED' });
  bench.kafka.topicError = 0;
  bench.kafka.fetchError = errors.TOPIC_AUTHORIZATION_FAILED.code;
  bench.write(5);
  bench.kafka.endAs('x', true);
  await assert.rejects(read(), { mirrorCause: 'SOURCE_AUTHORIZATION_FAILED' });
  bench.kafka.fetchError = 0;
  const peer = await read();
  assert.ok(peer !== 'absent');
  assert.equal(peer.clusterId, 'fake');
  assert.deepEqual(
    peer.rows.map(({ key, row: { lastMirroredOffset } }) => [key.partition, lastMirroredOffset]),
    [[0, 5]],
  );
});

test('G22: what is undecided there is waited for, and never taken for nothing', async () => {
  const bench = new Bench();
  bench.write(5);
  const read = () => bench.run(readPeerRows(bench.runtime, SETTINGS));
  await assert.rejects(read(), { mirrorCause: 'SOURCE_TIMED_OUT' });
  const waiting = read();
  setImmediate(() => bench.kafka.endAs('x', true));
  const peer = await waiting;
  assert.equal(peer === 'absent' ? -1 : peer.rows.length, 1);
});

test('G22: partitions that ask in one go share a reading, of what they ask for', async () => {
  const bench = new Bench();
  bench.write(5, 6, 7);
  bench.kafka.endAs('x', true);
  const peer = new PeerMirrorState(bench.runtime, SETTINGS, 'here');
  const ask = (partition: number) => peer.lastMirroredOffset('t', partition, ID);
  const answers = await bench.run(Promise.all([0, 1, 2, 3].map(ask)));
  assert.deepEqual(answers, [5, 6, 7, 'none']);
  // Log starts and log ends, once.
  assert.deepEqual(bench.kafka.calls, ['ListOffsets', 'ListOffsets']);
  assert.equal(await bench.run(peer.lastMirroredOffset('t', 1, ZERO_UUID)), 6);
  const elsewhere = new PeerMirrorState(bench.runtime, SETTINGS, 'elsewhere');
  assert.equal(await bench.run(elsewhere.lastMirroredOffset('t', 1, ID)), 'none');
});

test('G24a: the transactions that the other side closed where it stopped', async () => {
  const bench = new Bench();
  const closed = {
    producerId: 2n ** 41n + 3n,
    originalProducerId: 3n,
    producerEpoch: 2,
    firstOffset: 1,
    markerOffset: 5,
  };
  bench.writeRows({ closedTransactions: [closed] }, [5]);
  bench.kafka.endAs('x', true);
  const peer = new PeerMirrorState(bench.runtime, SETTINGS, 'here');
  assert.deepEqual(await bench.run(peer.closedTransactions('t', 0, ID)), [closed]);
  assert.equal(await bench.run(peer.closedTransactions('t', 1, ID)), 'none');
});
