/**
 * The quorum as a guest sees it: which controller is asked, what of the log is passed on.
 */
import assert from 'node:assert/strict';
import { afterEach, describe, it } from 'node:test';
import { ByteReader, ByteWriter } from '../../../src/base/bytes.ts';
import { LostMetadata } from '../../../src/metadata/quorum/metadata-tail.ts';
import { type HostPort, WrongCluster } from '../../../src/metadata/quorum/probe.ts';
import { QuorumUnavailable } from '../../../src/metadata/quorum/quorum-client.ts';
import type { RemoteControllerOptions } from '../../../src/metadata/quorum/remote-controller.ts';
import {
  EnvelopeRefused,
  RemoteController,
} from '../../../src/metadata/quorum/remote-controller.ts';
import { codec } from '../../../src/protocol/codec.ts';
import {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../../../src/protocol/messages/20-delete-topics.ts';
import { EnvelopeRequest, EnvelopeResponse } from '../../../src/protocol/messages/58-envelope.ts';
import {
  BrokerHeartbeatRequest,
  BrokerHeartbeatResponse,
} from '../../../src/protocol/messages/63-broker-heartbeat.ts';
import {
  AllocateProducerIdsRequest,
  AllocateProducerIdsResponse,
} from '../../../src/protocol/messages/67-allocate-producer-ids.ts';
import { readRequestHeader, writeResponseHeader } from '../../../src/protocol/request-header.ts';
import { heartbeat, id } from '../harness.ts';
import { FakeQuorum, metadataBatch, named } from './fake-quorum.ts';

type Passed = [what: 'batch' | 'snapshot', names: string[], lastOffset: number, epoch: number];

const open: RemoteController[] = [];
afterEach(() => {
  for (const controller of open.splice(0)) controller.close();
});

function setup(wish: Partial<RemoteControllerOptions> = {}, bootstrap: HostPort[] = []) {
  const quorum = new FakeQuorum();
  const failures: Error[] = [];
  const controller = new RemoteController(quorum.runtime, {
    bootstrapControllers: bootstrap.length > 0 ? bootstrap : [FakeQuorum.address(1)],
    clusterId: undefined,
    nodeId: 9,
    directoryId: id(9),
    refence: () => Promise.resolve(),
    schemasOf: () => undefined,
    onFatal: (error) => failures.push(error),
    ...wish,
  });
  open.push(controller);
  return { quorum, controller, failures };
}

/** Follows the log; `seen` resolves when so many batches or snapshots have come. */
function follow(controller: RemoteController) {
  const passed: Passed[] = [];
  let wake = (): void => {};
  const note =
    (what: Passed[0]) =>
    (records: Parameters<typeof named>[0], lastOffset: number, epoch: number): void => {
      passed.push([what, named(records), lastOffset, epoch]);
      wake();
    };
  const caughtUp = controller.subscribe(0, note('batch'), note('snapshot'));
  const seen = async (count: number): Promise<Passed[]> => {
    while (passed.length < count) {
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
    return passed;
  };
  return { caughtUp, seen, passed };
}

function answerHeartbeats(quorum: FakeQuorum): void {
  quorum.serve(BrokerHeartbeatRequest, BrokerHeartbeatResponse, (_value, nodeId) => ({
    throttleTimeMs: 0,
    errorCode: nodeId === quorum.leaderId ? 0 : 41,
    isFenced: false,
    shouldShutDown: false,
  }));
}

describe('finding the active controller', () => {
  it('G1: any controller names it; the cluster id is learned', async () => {
    const { quorum, controller } = setup();
    quorum.elect(3);
    answerHeartbeats(quorum);
    assert.equal((await controller.brokerHeartbeat(heartbeat(9, 1))).errorCode, 0);
    assert.deepEqual(quorum.asked, ['1 60', '1 1', '3 63']);
    assert.equal(await controller.clusterId(), 'test-cluster');
    assert.deepEqual([...controller.controllerIds].sort(), [1, 2, 3]);
  });

  it('follows NOT_CONTROLLER to the next one, and needs no bootstrap address then', async () => {
    const { quorum, controller } = setup();
    answerHeartbeats(quorum);
    await controller.brokerHeartbeat(heartbeat(9, 1));
    quorum.elect(2);
    await controller.brokerHeartbeat(heartbeat(9, 1));
    quorum.stop(1);
    quorum.stop(2);
    quorum.elect(3);
    await controller.brokerHeartbeat(heartbeat(9, 1));
    assert.deepEqual(
      quorum.asked.filter((each) => each.endsWith(' 63')),
      ['1 63', '1 63', '2 63', '3 63'],
    );
  });

  it('asks a leader that it gave up last of all, since it may hang', async () => {
    const { quorum, controller } = setup();
    quorum.elect(3);
    answerHeartbeats(quorum);
    await controller.brokerHeartbeat(heartbeat(9, 1));
    quorum.stop(3);
    quorum.elect(1);
    await controller.brokerHeartbeat(heartbeat(9, 1));
    // To ask, to send; the connection ended, so once more; then 2 names 1.
    assert.deepEqual(quorum.dialled, [1, 3, 3, 2, 1]);
  });

  it('G5: passes a node that hangs, in time for a heartbeat', async () => {
    const { quorum, controller } = setup({}, [1, 2].map(FakeQuorum.address));
    quorum.hung.add(1);
    quorum.elect(2);
    answerHeartbeats(quorum);
    assert.equal((await controller.brokerHeartbeat(heartbeat(9, 1))).errorCode, 0);
    assert.deepEqual(quorum.asked, ['2 60', '2 1', '2 63']);
  });

  it('believes no leader of an epoch older than one it has heard of', async () => {
    const { quorum, controller } = setup();
    quorum.epoch = 5;
    answerHeartbeats(quorum);
    await controller.brokerHeartbeat(heartbeat(9, 1));
    // It comes back from a partition and still thinks that it leads.
    quorum.epoch = 4;
    quorum.stop(1);
    quorum.leaderId = 2;
    await assert.rejects(
      controller.send(
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
        { brokerId: 1 },
        { timeoutMs: 300 },
      ),
      QuorumUnavailable,
    );
  });

  it('says what it found when nobody answers', async () => {
    const { controller } = setup({}, [FakeQuorum.address(8), FakeQuorum.address(9)]);
    const question = controller.send(
      AllocateProducerIdsRequest,
      AllocateProducerIdsResponse,
      { brokerId: 1 },
      { timeoutMs: 200 },
    );
    await assert.rejects(question, /no active controller: .*c8:9093: .*; .*c9:9093: /);
  });

  it('takes no other cluster for its own, and does not try again', async () => {
    const { quorum, controller } = setup({ clusterId: 'mine' });
    await assert.rejects(controller.brokerHeartbeat(heartbeat(9, 1)), WrongCluster);
    assert.deepEqual(quorum.asked, ['1 60']);
  });

  it('G5: heartbeats, ids and the log each have a connection of their own', async () => {
    const { quorum, controller } = setup();
    answerHeartbeats(quorum);
    quorum.serve(AllocateProducerIdsRequest, AllocateProducerIdsResponse, () => ({
      throttleTimeMs: 0,
      errorCode: 0,
      producerIdStart: 7000n,
      producerIdLen: 1000,
    }));
    await controller.brokerHeartbeat(heartbeat(9, 1));
    await controller.brokerHeartbeat(heartbeat(9, 1));
    const block = await controller.allocateProducerIds(9, 1);
    assert.deepEqual(block, { error: 0, firstProducerId: 7000n, length: 1000 });
    // One to ask for the leader, one for each purpose.
    assert.deepEqual(quorum.dialled, [1, 1, 1]);
  });
});

describe('following the metadata log', () => {
  it('G1: passes on what is committed, asks as an observer, and waits for more', async () => {
    const { quorum, controller } = setup();
    quorum.batches = [metadataBatch(0, 1, 'control'), metadataBatch(1, 1, ['a', 'b'])];
    quorum.append(metadataBatch(3, 1, ['c']), 3);
    const { caughtUp, seen, passed } = follow(controller);
    await caughtUp;
    assert.deepEqual(passed, [['batch', ['a', 'b'], 2, 1]]);
    quorum.highWatermark = 4;
    quorum.kick();
    await seen(2);
    quorum.append(metadataBatch(4, 1, ['d']), 5);
    assert.deepEqual((await seen(3)).slice(1), [
      ['batch', ['c'], 3, 1],
      ['batch', ['d'], 4, 1],
    ]);
    const [first, second] = quorum.fetched;
    assert.deepEqual(first?.replicaState, { replicaId: 9, replicaEpoch: -1 });
    const asked = [first, second].map((request) => {
      const { fetchOffset, lastFetchedEpoch, highWatermark, replicaDirectoryId } =
        request?.topics[0]?.partitions[0] ?? {};
      return [fetchOffset, lastFetchedEpoch, highWatermark, replicaDirectoryId];
    });
    assert.deepEqual(asked, [
      [0, 0, -1n, id(9)],
      [4, 1, 3n, id(9)],
    ]);
  });

  it('control batches part runs of records, so that every record keeps its offset', async () => {
    const { quorum, controller } = setup();
    quorum.batches = [
      metadataBatch(0, 1, ['a']),
      metadataBatch(1, 1, ['b']),
      metadataBatch(2, 1, 'control'),
      metadataBatch(3, 1, ['c']),
      metadataBatch(4, 2, ['d']),
    ];
    quorum.highWatermark = 5;
    const { caughtUp, passed } = follow(controller);
    await caughtUp;
    assert.deepEqual(passed, [
      ['batch', ['a', 'b'], 1, 1],
      ['batch', ['c'], 3, 1],
      ['batch', ['d'], 4, 2],
    ]);
  });

  it('G1: goes to the new leader and drops what was never committed', async () => {
    const { quorum, controller } = setup();
    quorum.batches = [metadataBatch(0, 1, ['a']), metadataBatch(1, 1, ['lost'])];
    quorum.highWatermark = 1;
    const { caughtUp, seen } = follow(controller);
    await caughtUp;
    quorum.batches = [metadataBatch(0, 1, ['a']), metadataBatch(1, 2, ['b'])];
    quorum.highWatermark = 2;
    quorum.diverging = { epoch: 1, endOffset: 1 };
    quorum.elect(2);
    assert.deepEqual(await seen(2), [
      ['batch', ['a'], 0, 1],
      ['batch', ['b'], 1, 2],
    ]);
  });

  it('G1: a dead leader is left for the next one', async () => {
    const { quorum, controller } = setup();
    quorum.append(metadataBatch(0, 1, ['a']), 1);
    const { caughtUp, seen } = follow(controller);
    await caughtUp;
    quorum.leaderId = 3;
    quorum.epoch = 2;
    quorum.stop(1);
    quorum.append(metadataBatch(1, 2, ['b']), 2);
    assert.deepEqual((await seen(2))[1], ['batch', ['b'], 1, 2]);
  });

  it('metadata that was passed on and is gone ends it', async () => {
    const { quorum, controller, failures } = setup();
    quorum.append(metadataBatch(0, 1, ['a']), 1);
    const { caughtUp } = follow(controller);
    await caughtUp;
    quorum.diverging = { epoch: 0, endOffset: 0 };
    quorum.elect(2);
    while (failures.length === 0) await new Promise((resolve) => setImmediate(resolve));
    assert.ok(failures[0] instanceof LostMetadata);
  });

  it('G1: a snapshot in pieces, then the log behind it', async () => {
    const { quorum, controller } = setup();
    const bytes = Buffer.concat([
      metadataBatch(0, 0, 'control'),
      metadataBatch(1, 0, ['a', 'b']),
      metadataBatch(3, 0, ['c']),
      metadataBatch(4, 0, 'control'),
    ]);
    quorum.snapshot = { endOffset: 40, epoch: 3, bytes };
    quorum.epoch = 4;
    quorum.append(metadataBatch(40, 4, ['d']), 41);
    const { caughtUp, passed } = follow(controller);
    await caughtUp;
    assert.deepEqual(passed, [
      ['snapshot', ['a', 'b', 'c'], 39, 3],
      ['batch', ['d'], 40, 4],
    ]);
    assert.ok(quorum.asked.filter((each) => each.endsWith(' 59')).length > 2);
    const { fetchOffset, lastFetchedEpoch } = quorum.fetched[1]?.topics[0]?.partitions[0] ?? {};
    assert.deepEqual([fetchOffset, lastFetchedEpoch], [40, 3]);
  });

  it('G1: a snapshot that is replaced while it is read is begun again', async () => {
    const { quorum, controller } = setup();
    const old = Buffer.concat([metadataBatch(0, 0, ['x']), metadataBatch(1, 0, ['y'])]);
    quorum.snapshot = { endOffset: 40, epoch: 3, bytes: old };
    quorum.highWatermark = 50;
    const replace = (): void => {
      quorum.snapshot = { endOffset: 50, epoch: 3, bytes: metadataBatch(0, 0, ['z']) };
    };
    quorum.afterPiece = replace;
    const { caughtUp, passed } = follow(controller);
    await caughtUp;
    assert.deepEqual(passed, [['snapshot', ['z'], 49, 3]]);
  });

  it('readImage reads the present and stops', async () => {
    const { quorum, controller } = setup();
    quorum.append(metadataBatch(0, 1, ['a']), 1);
    const image = await controller.readImage();
    assert.deepEqual([...image.configs(4, '')], [['a', 'v']]);
    assert.equal(image.clusterId, 'test-cluster');
    const fetches = quorum.fetched.length;
    quorum.append(metadataBatch(1, 1, ['b']), 2);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(quorum.fetched.length, fetches);
  });
});

describe('asking the controller', () => {
  const schemas = { request: DeleteTopicsRequest, response: DeleteTopicsResponse };
  const request = { topics: [{ name: 't', topicId: id(1) }], topicNames: [], timeoutMs: 5 };
  const context = { principal: 'User:bob', clientAddress: '::ffff:10.1.2.3', clientId: 'app' };

  it('forwards a request whole, with principal and address, in a version both know', async () => {
    const { quorum, controller } = setup({
      schemasOf: (key) => (key === 20 ? schemas : undefined),
    });
    quorum.serve(DeleteTopicsRequest, DeleteTopicsResponse, () => assert.fail('not by itself'));
    quorum.serve(EnvelopeRequest, EnvelopeResponse, (value) => {
      assert.deepEqual(
        [...(value.requestPrincipal ?? [])],
        [0, 0, 5, ...Buffer.from('User'), 4, ...Buffer.from('bob'), 0, 0],
      );
      assert.deepEqual([...value.clientHostAddress], [10, 1, 2, 3]);
      const reader = new ByteReader(value.requestData);
      const header = readRequestHeader(reader);
      assert.deepEqual([header.apiKey, header.clientId], [20, 'app']);
      const inner = codec(DeleteTopicsRequest, header.apiVersion).read(reader);
      assert.equal(inner.topics[0]?.name, 't');
      const writer = new ByteWriter();
      writeResponseHeader(writer, 20, header.apiVersion, header.correlationId);
      codec(DeleteTopicsResponse, header.apiVersion).write(writer, {
        responses: [{ name: 't', topicId: id(1), errorCode: 29 }],
      });
      return { responseData: writer.toBytes(), errorCode: 0 };
    });
    const answer = (await controller.forward(20, 6, request, context)) as DeleteTopicsResponse;
    assert.deepEqual([answer.responses[0]?.name, answer.responses[0]?.errorCode], ['t', 29]);
    await assert.rejects(controller.forward(21, 1, {}, context), RangeError);
  });

  it('G34: a refused envelope names the right that is missing', async () => {
    const { quorum, controller } = setup();
    const refuse = () => ({ responseData: null, errorCode: 31 });
    quorum.serve(EnvelopeRequest, EnvelopeResponse, refuse);
    await assert.rejects(controller.forwardRaw(20, 6, new Uint8Array(1), context), (error) => {
      assert.ok(error instanceof EnvelopeRefused);
      assert.equal(error.errorCode, 31);
      assert.match(error.message, /DeleteTopics .* needs CLUSTER_ACTION on the cluster/);
      return true;
    });
  });

  it('T5: a new epoch is a fencing, unless the epoch is old already', async () => {
    let epoch = 3;
    let fenced = 0;
    const refence = (): Promise<void> => {
      fenced++;
      epoch += 2;
      return Promise.resolve();
    };
    const { controller } = setup({ refence, leaderEpochOf: () => epoch });
    const stale = await controller.electSameLeader(id(1), 0, 2);
    assert.deepEqual([stale.error, fenced], [74, 0]);
    assert.deepEqual(await controller.electSameLeader(id(1), 0, 3), { error: 0, leaderEpoch: 5 });
    assert.equal(fenced, 1);
  });
});
