/** G10 over real logs: what a transaction coordinator of the cluster finds and leaves in them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import {
  WriteTxnMarkersRequest,
  WriteTxnMarkersResponse,
} from '../../src/protocol/messages/27-write-txn-markers.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import {
  batch,
  OTHER_BROKER,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
  transactional,
} from '../replication/harness.ts';
import { servicesOf } from './call.ts';
import { askGuest } from './guest-call.ts';

const WriteTxnMarkers = { request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse };
const READ_ONLY = { topic: 't', mirror: 'm', state: 'MIRRORING' };

async function end(broker: TestBroker, producerId: bigint, commit: boolean, topic = 't') {
  const { runtime, replicas, image } = broker;
  const services = servicesOf({ runtime, replicas, metadata: { image } });
  const marker = { producerId, producerEpoch: 0, transactionResult: commit, coordinatorEpoch: 4 };
  const topics = [{ name: topic, partitionIndexes: [0] }];
  const { markers } = await askGuest(WriteTxnMarkers, 1, services, {
    markers: [{ ...marker, topics }],
  });
  return markers[0]?.topics[0]?.partitions[0]?.errorCode;
}

test('G10: an open transaction from before the mirror is ended, another is not', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('t');
  const partition = broker.partition('t');
  assert.equal(partition.append('client', transactional(7n, 2), 1).error, 0);
  broker.gate.set('t', READ_ONLY);
  const { log } = partition;
  assert.deepEqual([log.logEndOffset, log.lastStableOffset], [2, 0]);
  // One that was added to a transaction and got no record, before and behind.
  assert.equal(await end(broker, 8n, true), 0);
  assert.equal(log.logEndOffset, 2);
  assert.equal(await end(broker, 7n, false), 0);
  assert.deepEqual([log.logEndOffset, log.lastStableOffset], [3, 3]);
  assert.deepEqual(log.openTransactions(), []);
  // The coordinator asks again when the answer was lost.
  assert.equal(await end(broker, 7n, false), 0);
  assert.equal(log.logEndOffset, 3);
  assert.equal(partition.append('client', batch(), 1).error, errors.POLICY_VIOLATION.code);
});

test('G10: a mirrored transaction is not ended, whoever asks', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('t');
  const partition = broker.partition('t');
  const mirroredId = 2n ** 40n + 7n;
  broker.gate.set('t', READ_ONLY);
  const records = transactional(mirroredId, 2);
  new RecordBatch(records).setPartitionLeaderEpoch(0);
  assert.equal(partition.appendMirrored([records], 0).error, 0);
  for (const commit of [true, false]) assert.equal(await end(broker, mirroredId, commit), 0);
  const { log } = partition;
  assert.deepEqual([log.logEndOffset, log.lastStableOffset], [2, 0]);
  assert.equal(log.hasOpenTransaction(mirroredId), true);
});

test('G10: a partition that another broker leads is asked there', async (t) => {
  const broker = await startTestBroker(t);
  broker.createTopic('t', 1, {
    replicas: [OTHER_BROKER, THIS_BROKER],
    isr: [OTHER_BROKER, THIS_BROKER],
    leader: OTHER_BROKER,
  });
  assert.equal(await end(broker, 7n, true), errors.NOT_LEADER_OR_FOLLOWER.code);
  assert.equal(await end(broker, 7n, true, 'no'), errors.UNKNOWN_TOPIC_OR_PARTITION.code);
  assert.equal(broker.partition('t').log.logEndOffset, 0);
});
