/**
 * Reading what is committed: aborted, open, interleaved transactions; ends; logs that change.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../../src/base/uuid.ts';
import { ClusterClient } from '../../../src/guest/cluster-client.ts';
import { CommittedReader } from '../../../src/guest/state/committed-reader.ts';
import { errors } from '../../../src/protocol/errors.ts';
import { buildRecordBatch } from '../../../src/protocol/record.ts';
import { fakeRuntime, ManualClock, settle } from '../../replication/fakes.ts';
import { FakeKafka } from '../fake-kafka.ts';

class Bench {
  readonly clock = new ManualClock();
  readonly kafka = new FakeKafka('t', 2);
  readonly runtime = { ...fakeRuntime(this.clock), network: this.kafka.network() };
  readonly seen: string[] = [];
  readonly resets: number[] = [];
  readonly reader: CommittedReader;

  constructor(endsWhenRefused = false) {
    const client = (clientId: string) =>
      new ClusterClient(this.runtime, {
        clientId,
        bootstrap: () => [{ host: 'broker', port: 9092 }],
      });
    this.reader = new CommittedReader(this.runtime, {
      topic: 't',
      client: client('questions'),
      fetchClient: client('fetches'),
      onRecord: ({ partition, offset }, { value }) =>
        this.seen.push(`${partition}@${offset} ${Buffer.from(value ?? []).toString()}`),
      onReset: (partition) => this.resets.push(partition),
      endsWhenRefused,
    });
  }

  async start(): Promise<void> {
    const started = this.reader.start();
    await this.clock.advance(100);
    await started;
    await settle();
  }

  /** A batch in a transaction of `who`. */
  write(who: string, partition: number, ...values: string[]): void {
    const { id: producerId, epoch: producerEpoch } = this.kafka.holderOf(who);
    const records = values.map((value) => ({ key: null, value: Buffer.from(value), timestamp: 1 }));
    const batch = { records, producerId, producerEpoch, baseSequence: 0, isTransactional: true };
    this.kafka.produceAs(who, partition, buildRecordBatch(batch));
  }

  end(who: string, commit: boolean): void {
    this.kafka.endAs(who, commit);
  }
}

test('G22: committed records are handed over in order, aborted and open ones are not', async () => {
  const bench = new Bench();
  bench.write('a', 0, 'a1', 'a2');
  bench.write('b', 0, 'b1');
  bench.write('a', 0, 'a3');
  bench.end('b', false);
  bench.end('a', true);
  bench.write('b', 0, 'b2');
  bench.end('b', true);
  bench.write('a', 1, 'a4');
  await bench.start();
  assert.deepEqual(bench.seen, ['0@0 a1', '0@1 a2', '0@3 a3', '0@6 b2']);
  bench.end('a', true);
  await bench.clock.advance(100);
  assert.deepEqual(bench.seen.slice(4), ['1@0 a4']);
  bench.reader.close();
});

test('G22: the captured end is waited for: with what is undecided, or without', async () => {
  const bench = new Bench();
  bench.write('a', 0, 'a1');
  bench.end('a', true);
  bench.write('b', 0, 'b1');
  bench.write('a', 0, 'a2');
  bench.end('a', true);
  await bench.start();
  assert.deepEqual(bench.seen, ['0@0 a1']);
  const stable = bench.reader.readTo('lastStable', 1_000);
  await bench.clock.advance(100);
  await stable;
  let all = false;
  const read = bench.reader.readTo('highWatermark', 1_000).then(() => {
    all = true;
  });
  await bench.clock.advance(500);
  assert.equal(all, false);
  bench.end('b', false);
  await bench.clock.advance(100);
  await read;
  assert.deepEqual(bench.seen.slice(1), ['0@3 a2']);
  bench.write('b', 1, 'b2');
  const late = assert.rejects(bench.reader.readTo('highWatermark', 1_000), {
    kind: 'timedOut',
    message: /t-1 was not readable to offset 1 within 1000 ms: it stands at 0/,
  });
  await bench.clock.advance(1_100);
  await late;
  bench.reader.close();
});

test('G22: a partition whose log is gone begins anew', async () => {
  const bench = new Bench();
  bench.write('a', 0, 'a1', 'a2');
  bench.end('a', true);
  await bench.start();
  bench.kafka.wipe(0);
  await bench.clock.advance(100);
  assert.deepEqual(bench.resets, [0]);
  bench.write('a', 0, 'a3');
  bench.end('a', true);
  // Ends the fetch that waits for the other partition: this Kafka would wait for ever.
  bench.write('a', 1, 'a4');
  bench.end('a', true);
  const read = bench.reader.readTo('highWatermark', 1_000);
  await bench.clock.advance(1_000);
  await read;
  assert.deepEqual(bench.seen, ['0@0 a1', '0@1 a2', '1@0 a4', '0@0 a3']);
  bench.reader.close();
});

test('G22: a topic that was made again is another one', async () => {
  const bench = new Bench();
  await bench.start();
  bench.kafka.topicId = 'b3RoZXItb3RoZXItb3RoZQ' as Uuid;
  bench.kafka.fetchError = errors.UNKNOWN_TOPIC_ID.code;
  bench.kafka.wipe(0);
  await bench.clock.advance(2_000);
  assert.match(bench.reader.ended?.message ?? '', /deleted and made again/);
  await assert.rejects(bench.reader.readTo('lastStable', 1_000), { kind: 'refused' });
});

test('G22: what is not allowed is waited out, or ends the reading of a peer', async () => {
  for (const isPeer of [false, true]) {
    const bench = new Bench(isPeer);
    await bench.start();
    bench.kafka.fetchError = errors.TOPIC_AUTHORIZATION_FAILED.code;
    bench.kafka.wipe(0);
    await bench.clock.advance(500);
    assert.equal(bench.reader.ended?.errorCode, isPeer ? 29 : undefined);
    bench.kafka.fetchError = 0;
    bench.write('a', 0, 'a1');
    bench.end('a', true);
    await bench.clock.advance(2_000);
    assert.deepEqual(bench.seen, isPeer ? [] : ['0@0 a1']);
    bench.reader.close();
  }
});
