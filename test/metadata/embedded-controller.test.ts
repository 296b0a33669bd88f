/**
 * The embedded controller over a log whose unflushed bytes a crash loses: durability, order,
 * restarts, sessions.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  BROKER_SESSION_TIMEOUT_MS,
  ControllerUnavailable,
  type EmbeddedController,
} from '../../src/metadata/embedded-controller.ts';
import type { MetadataImage } from '../../src/metadata/image.ts';
import type { MetadataDelta } from '../../src/metadata/image-delta.ts';
import { MetadataLoader } from '../../src/metadata/metadata-loader.ts';
import { MetadataLog } from '../../src/metadata/metadata-log.ts';
import { errorName } from '../../src/protocol/errors.ts';
import type { CreateTopicsResponse } from '../../src/protocol/messages/19-create-topics.ts';
import { decodeRecords } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import {
  CLUSTER_ID,
  createTopics,
  heartbeat,
  id,
  MemoryLog,
  newTopic,
  openController,
  registration,
  type TestRuntime,
  testRuntime,
  VALIDATORS,
} from './harness.ts';

const PRINCIPAL = { principal: 'User:test' };

async function create(controller: EmbeddedController, ...names: string[]): Promise<string[]> {
  const request = createTopics(names.map((name) => newTopic(name, { numPartitions: 2 })));
  const response = (await controller.forward(19, 7, request, PRINCIPAL)) as CreateTopicsResponse;
  return response.topics.map((result) => errorName(result.errorCode));
}

async function join(controller: EmbeddedController, brokerId: number, incarnation: number) {
  const { errorCode, brokerEpoch } = await controller.registerBroker(
    registration(brokerId, incarnation),
  );
  if (errorCode === 0) await controller.brokerHeartbeat(heartbeat(brokerId, brokerEpoch));
  return { error: errorName(errorCode), brokerEpoch };
}

interface Cluster {
  readonly runtime: TestRuntime;
  readonly log: MemoryLog;
  readonly controller: EmbeddedController;
  readonly loader: MetadataLoader;
  readonly deltas: MetadataDelta[];
}

async function start(log = new MemoryLog(), runtime = testRuntime()): Promise<Cluster> {
  const controller = await openController(runtime, log);
  const deltas: MetadataDelta[] = [];
  const publish = (delta: MetadataDelta) => deltas.push(delta);
  const loader = new MetadataLoader(CLUSTER_ID, [{ name: 'test', publish }]);
  await loader.start(controller);
  return { runtime, log, controller, loader, deltas };
}

/** Lets promises that are ready run. */
function settle(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

function leaderOf(image: MetadataImage, name: string) {
  const partition = image.topicsByName.get(name)?.partitions.get(0);
  return [partition?.leader, partition?.leaderEpoch];
}

describe('EmbeddedController', () => {
  it('A8: starts a cluster with a leader change, metadata.version and mirror.version', async () => {
    const { log, loader, runtime } = await start();
    assert.deepEqual(
      [...loader.image.features],
      [
        ['metadata.version', 29],
        ['mirror.version', 1],
      ],
    );
    const bytes = log.bytes();
    const control = new RecordBatch(bytes);
    assert.equal(control.isControl, true);
    assert.equal(control.partitionLeaderEpoch, 1);
    const [record] = [...decodeRecords(control, runtime.compression, 1000)];
    assert.deepEqual([...(record?.key ?? [])], [0, 0, 0, 2]);
    assert.equal(new RecordBatch(bytes, control.end).baseOffset, 1);
    const state = runtime.disk.readFile(`${log.directory}/quorum-state`);
    assert.deepEqual(JSON.parse(Buffer.from(state ?? []).toString()), {
      clusterId: CLUSTER_ID,
      leaderId: 0,
      leaderEpoch: 1,
      votedId: -1,
      appliedOffset: 0,
      currentVoters: [{ voterId: 0 }],
      data_version: 0,
    });
  });

  it('leads in a new epoch after every start, even when the log of the last is lost', async () => {
    const runtime = testRuntime();
    const { log } = await start(new MemoryLog(), runtime);
    assert.equal(log.latestEpoch, 1);
    assert.equal((await start(log.afterCrash(), runtime)).log.latestEpoch, 2);
    const empty = (await start(new MemoryLog(), runtime)).log;
    assert.equal(empty.latestEpoch, 3);
  });

  it('answers after fsync, and publishes before it answers', async () => {
    const { controller, log, loader, deltas } = await start();
    await join(controller, 0, 1);
    const published = deltas.length;
    log.holdFlushes = true;
    let answered = false;
    const answer = create(controller, 'a').then((errors) => {
      answered = true;
      assert.ok(loader.image.topicsByName.has('a'));
      return errors;
    });
    await settle();
    assert.deepEqual([answered, deltas.length], [false, published]);
    log.release();
    assert.deepEqual(await answer, ['NONE']);
    assert.equal(deltas.length, published + 1);
  });

  it('lets an answer that writes nothing wait for what it is based on', async () => {
    const { controller, log } = await start();
    await join(controller, 0, 1);
    log.holdFlushes = true;
    const order: string[] = [];
    const first = create(controller, 'a').then((errors) => order.push(`first ${errors}`));
    const second = create(controller, 'a').then((errors) => order.push(`second ${errors}`));
    await settle();
    assert.deepEqual(order, []);
    log.release();
    await Promise.all([first, second]);
    assert.deepEqual(order, ['first NONE', 'second TOPIC_ALREADY_EXISTS']);
  });

  it('shares one fsync, and one publication, among requests that arrive during one', async () => {
    const { controller, log, loader, deltas } = await start();
    await join(controller, 0, 1);
    const before = log.flushes;
    const published = deltas.length;
    log.holdFlushes = true;
    const answers = ['a', 'b', 'c', 'd'].map((name) => create(controller, name));
    await settle();
    log.holdFlushes = false;
    log.release();
    await Promise.all(answers);
    assert.equal(log.flushes, before + 2);
    assert.deepEqual(
      deltas.slice(published).map((delta) => delta.changedTopics.size),
      [1, 3],
    );
    assert.deepEqual([...loader.image.topicsByName.keys()], ['a', 'b', 'c', 'd']);
  });

  it('is the same after a restart, one leader election apart', async () => {
    const { controller, log, loader } = await start();
    await join(controller, 0, 1);
    await create(controller, 'a', 'b');
    const before = loader.image;
    assert.deepEqual(leaderOf(before, 'a'), [0, 0]);
    const block = await controller.allocateProducerIds(0, before.brokers.get(0)?.epoch ?? -1);
    assert.deepEqual(block, { error: 0, firstProducerId: 0n, length: 1000 });

    const again = await start(log.afterCrash());
    const { image } = again.loader;
    assert.deepEqual(image.topicsById, before.topicsById);
    assert.deepEqual(image.features, before.features);
    assert.equal(again.deltas.length, 1);
    assert.equal(image.epoch, 2);

    // A restarted broker does not wait for the session of its former self.
    const joined = await join(again.controller, 0, 2);
    assert.equal(joined.error, 'NONE');
    assert.deepEqual(leaderOf(again.loader.image, 'a'), [0, 2]);
    const next = await again.controller.allocateProducerIds(0, joined.brokerEpoch);
    assert.equal('firstProducerId' in next && next.firstProducerId, 1000n);
  });

  it('replays a restarted log into the image that incremental deltas gave', async () => {
    const { controller, log, loader } = await start();
    await join(controller, 0, 1);
    await create(controller, 'a');
    await join(controller, 0, 1);
    await create(controller, 'b', 'c');
    const copy = log.afterCrash();
    const metadata = new MetadataLog(testRuntime(), copy);
    const replayed = new MetadataLoader(CLUSTER_ID, []);
    metadata.forEach(0, metadata.nextOffset, ({ records, lastOffset, epoch }) => {
      replayed.replayBatch(records, lastOffset, epoch);
    });
    assert.deepEqual(replayed.image, loader.image);
  });

  it('loses a request whole when the crash comes before the fsync', async () => {
    const { controller, log } = await start();
    await join(controller, 0, 1);
    await create(controller, 'kept');
    log.holdFlushes = true;
    let answered = false;
    create(controller, 'lost1', 'lost2').then(() => {
      answered = true;
    });
    await settle();
    const again = await start(log.afterCrash());
    assert.equal(answered, false);
    assert.deepEqual([...again.loader.image.topicsByName.keys()], ['kept']);
  });

  it('ends when the log fails: nothing more is answered, the owner hears of it once', async () => {
    for (const failure of ['failNextAppend', 'failNextFlush'] as const) {
      const failures: Error[] = [];
      const log = new MemoryLog();
      const controller = await openController(testRuntime(), log, {
        onFailure: (error) => failures.push(error),
      });
      await join(controller, 0, 1);
      log[failure] = true;
      await assert.rejects(create(controller, 'a'), ControllerUnavailable);
      log[failure] = false;
      await assert.rejects(create(controller, 'b'), ControllerUnavailable);
      assert.equal(failures.length, 1);
    }
  });

  it('survives a decision that throws: nothing has been written then', async () => {
    const broken = { check: () => assert.fail('broken'), listDefault: () => undefined };
    const validators = { ...VALIDATORS, topic: broken };
    const log = new MemoryLog();
    const controller = await openController(testRuntime(), log, { validators });
    await join(controller, 0, 1);
    const before = log.logEndOffset;
    await assert.rejects(create(controller, 'a'), /broken/);
    assert.equal(log.logEndOffset, before);
    assert.equal((await join(controller, 1, 2)).error, 'NONE');
    await controller.close();
  });

  it('refuses work after close, which waits for what was appended', async () => {
    const { controller, log } = await start();
    await join(controller, 0, 1);
    log.holdFlushes = true;
    const answer = create(controller, 'a');
    const closed = controller.close();
    await assert.rejects(create(controller, 'b'), ControllerUnavailable);
    await settle();
    log.release();
    await closed;
    assert.deepEqual(await answer, ['NONE']);
    assert.deepEqual([...(await start(log.afterCrash())).loader.image.topicsByName.keys()], ['a']);
  });

  it('refuses to forward what a controller does not decide', async () => {
    const { controller } = await start();
    await assert.rejects(controller.forward(0, 9, {}, PRINCIPAL), RangeError);
  });

  it('gives a late subscriber all committed batches, in order, then the new ones', async () => {
    const { controller, log } = await start();
    await join(controller, 0, 1);
    await create(controller, 'a');
    const seen: number[] = [];
    await controller.subscribe(2, (_records, lastOffset) => seen.push(lastOffset));
    const end = log.logEndOffset - 1;
    assert.equal(seen[0], 2);
    assert.equal(seen.at(-1), end);
    await create(controller, 'b');
    assert.equal(seen.at(-1), log.logEndOffset - 1);
    assert.deepEqual(
      [...seen].sort((a, b) => a - b),
      seen,
    );
  });
});

describe('broker sessions', () => {
  it('fences a broker that falls silent, and moves its leaderships', async () => {
    const { controller, loader, runtime } = await start();
    const own = await join(controller, 0, 1);
    const other = await join(controller, 1, 2);
    for (let ms = 0; ms <= BROKER_SESSION_TIMEOUT_MS; ms += 1000) {
      runtime.clock.advance(1000);
      await controller.brokerHeartbeat(heartbeat(0, own.brokerEpoch));
    }
    await settle();
    assert.equal(loader.image.brokers.get(0)?.fenced, false);
    assert.equal(loader.image.brokers.get(1)?.fenced, true);
    assert.equal((await join(controller, 1, 3)).error, 'NONE');
    assert.notEqual(loader.image.brokers.get(1)?.epoch, other.brokerEpoch);
    await controller.close();
  });

  it('refuses a second incarnation while the first is heard of', async () => {
    const { controller, runtime } = await start();
    await join(controller, 0, 1);
    await join(controller, 1, 2);
    assert.equal((await join(controller, 1, 3)).error, 'DUPLICATE_BROKER_REGISTRATION');
    assert.equal((await join(controller, 0, 4)).error, 'DUPLICATE_BROKER_REGISTRATION');
    runtime.clock.advance(BROKER_SESSION_TIMEOUT_MS);
    assert.equal((await join(controller, 1, 3)).error, 'NONE');
    await controller.close();
  });

  it('does not fence brokers whose heartbeats a stalled process could not read', async () => {
    const { controller, loader, runtime } = await start();
    const { brokerEpoch } = await join(controller, 0, 1);
    runtime.clock.advance(4000);
    runtime.clock.stall(30_000);
    runtime.clock.advance(1000);
    await settle();
    assert.equal(loader.image.brokers.get(0)?.fenced, false);
    await controller.brokerHeartbeat(heartbeat(0, brokerEpoch));
    runtime.clock.advance(BROKER_SESSION_TIMEOUT_MS + 1000);
    await settle();
    assert.equal(loader.image.brokers.get(0)?.fenced, true);
    await controller.close();
  });

  it('lets the only broker stop in two heartbeats', async () => {
    const { controller, loader } = await start();
    const { brokerEpoch } = await join(controller, 0, 1);
    await create(controller, 'a');
    const stop = heartbeat(0, brokerEpoch, { wantShutDown: true });
    assert.equal((await controller.brokerHeartbeat(stop)).shouldShutDown, false);
    assert.deepEqual(leaderOf(loader.image, 'a'), [-1, 1]);
    assert.equal((await controller.brokerHeartbeat(stop)).shouldShutDown, true);
    assert.equal(loader.image.brokers.get(0)?.fenced, true);
    await controller.close();
  });

  it('lets a broker stop only when the others have seen that it leads nothing', async () => {
    const { controller, loader } = await start();
    const own = await join(controller, 0, 1);
    const other = await join(controller, 1, 2);
    const stop = heartbeat(1, other.brokerEpoch, { wantShutDown: true });
    await controller.brokerHeartbeat(heartbeat(0, own.brokerEpoch, { currentMetadataOffset: 3 }));
    await controller.brokerHeartbeat(stop);
    assert.equal((await controller.brokerHeartbeat(stop)).shouldShutDown, false);
    const seen = { currentMetadataOffset: loader.image.offset };
    await controller.brokerHeartbeat(heartbeat(0, own.brokerEpoch, seen));
    assert.equal((await controller.brokerHeartbeat(stop)).shouldShutDown, true);
    await controller.close();
  });

  it('T5: starts a leader epoch with the same leader', async () => {
    const { controller, loader } = await start();
    await join(controller, 0, 1);
    await create(controller, 'a');
    const topicId = loader.image.topicsByName.get('a')?.id ?? id(0);
    const result = await controller.electSameLeader(topicId, 0, 0);
    assert.deepEqual(result, { error: 0, leaderEpoch: 1 });
    assert.deepEqual(leaderOf(loader.image, 'a'), [0, 1]);
    await controller.close();
  });
});
