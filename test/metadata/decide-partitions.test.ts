/**
 * ISR changes, re-elections and producer id blocks as tables.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  decideAlterPartition,
  decideElectSameLeader,
} from '../../src/metadata/decide-partitions.ts';
import {
  decideAllocateProducerIds,
  PRODUCER_ID_BLOCK_SIZE,
} from '../../src/metadata/decide-producer-ids.ts';
import { metadataRecord } from '../../src/metadata/record-framing.ts';
import { errorName } from '../../src/protocol/errors.ts';
import type { AlterPartitionRequest } from '../../src/protocol/messages/56-alter-partition.ts';
import { broker, contextOf, id, imageOf, topic } from './harness.ts';

type PartitionWish = AlterPartitionRequest['topics'][number]['partitions'][number];

const image = imageOf([
  broker(1),
  broker(2),
  broker(3, { fenced: true }),
  ...topic('t', id(1), [1, 2, 3], [2, 1]),
  metadataRecord('PartitionChangeRecord', { topicId: id(1), partitionId: 0, isr: [1] }),
]);

function wish(isr: number[], fields: Partial<PartitionWish> = {}): PartitionWish {
  return {
    partitionIndex: 0,
    leaderEpoch: 0,
    newIsr: [],
    newIsrWithEpochs: isr.map((brokerId) => ({ brokerId, brokerEpoch: 100 + brokerId })),
    leaderRecoveryState: 0,
    partitionEpoch: 1,
    ...fields,
  };
}

function alter(partitions: PartitionWish[], topicId = id(1), brokerEpoch = 101) {
  const request = { brokerId: 1, brokerEpoch, topics: [{ topicId, partitions }] };
  const { records, response } = decideAlterPartition(contextOf(image), request);
  const results = response.topics[0]?.partitions ?? [];
  const errors = results.map((result) => errorName(result.errorCode));
  return { records, results, errors, error: errorName(response.errorCode) };
}

describe('decideAlterPartition', () => {
  const epochs = [{ brokerId: 1, brokerEpoch: 101 }];
  const refused: [what: string, PartitionWish, error: string][] = [
    ['unknown partition', wish([1], { partitionIndex: 9 }), 'UNKNOWN_TOPIC_OR_PARTITION'],
    ['later leader epoch', wish([1], { leaderEpoch: 1 }), 'NOT_CONTROLLER'],
    ['later partition epoch', wish([1], { partitionEpoch: 2 }), 'NOT_CONTROLLER'],
    ['older leader epoch', wish([1], { leaderEpoch: -1 }), 'FENCED_LEADER_EPOCH'],
    ['older partition epoch', wish([1], { partitionEpoch: 0 }), 'INVALID_UPDATE_VERSION'],
    ['not the leader', wish([1], { partitionIndex: 1, partitionEpoch: 0 }), 'INVALID_REQUEST'],
    ['not a replica', wish([1, 9]), 'INVALID_REQUEST'],
    ['twice the same', wish([1, 1]), 'INVALID_REQUEST'],
    ['without the leader', wish([2]), 'INVALID_REQUEST'],
    ['empty', wish([]), 'INVALID_REQUEST'],
    ['back to recovering', wish([1], { leaderRecoveryState: 1 }), 'INVALID_REQUEST'],
    ['a fenced broker', wish([1, 3]), 'INELIGIBLE_REPLICA'],
    [
      'an older incarnation',
      wish([], { newIsrWithEpochs: [...epochs, { brokerId: 2, brokerEpoch: 5 }] }),
      'INELIGIBLE_REPLICA',
    ],
  ];
  for (const [what, request, error] of refused) {
    it(`refuses ${what} with ${error}`, () => {
      const { records, errors } = alter([request]);
      assert.deepEqual([errors, records], [[error], []]);
    });
  }

  it('refuses an unknown topic id, and all of a stale broker epoch', () => {
    assert.deepEqual(alter([wish([1])], id(8)).errors, ['UNKNOWN_TOPIC_ID']);
    const stale = alter([wish([1])], id(1), 7);
    assert.deepEqual([stale.error, stale.results], ['STALE_BROKER_EPOCH', []]);
  });

  it('expands the ISR: partition epoch +1, leader epoch unchanged', () => {
    const { records, results } = alter([wish([2, 1])]);
    const partition = imageOf(records, image).topicsById.get(id(1))?.partitions.get(0);
    assert.deepEqual(partition?.isr, [1, 2]);
    assert.deepEqual(results[0], {
      partitionIndex: 0,
      errorCode: 0,
      leaderId: 1,
      leaderEpoch: 0,
      isr: [1, 2],
      leaderRecoveryState: 0,
      partitionEpoch: 2,
    });
    assert.equal(partition?.partitionEpoch, 2);
  });

  it('reads the ISR of version 2, which has no broker epochs', () => {
    const old = wish([], { newIsr: [1, 2] });
    assert.deepEqual(alter([old]).results[0]?.isr, [1, 2]);
  });

  it('answers an unchanged ISR with what there is, and writes nothing', () => {
    const { records, results } = alter([wish([1])]);
    assert.deepEqual(records, []);
    assert.equal(results[0]?.partitionEpoch, 1);
  });

  it('judges a repeated partition after its first change', () => {
    const { errors, records } = alter([wish([1, 2]), wish([1])]);
    assert.deepEqual(errors, ['NONE', 'INVALID_UPDATE_VERSION']);
    assert.equal(records.length, 1);
  });
});

describe('decideElectSameLeader', () => {
  const elect = (partition: number, leaderEpoch: number, on = image) => {
    const context = contextOf(on);
    const { records, response } = decideElectSameLeader(context, id(1), partition, leaderEpoch);
    return {
      response,
      after: imageOf(records, on).topicsById.get(id(1))?.partitions.get(partition),
    };
  };

  it('T5: starts a new leader epoch with the same leader and ISR', () => {
    const { response, after } = elect(0, 0);
    assert.deepEqual(response, { error: 0, leaderEpoch: 1 });
    assert.deepEqual(
      [after?.leader, after?.leaderEpoch, after?.partitionEpoch, after?.isr],
      [1, 1, 2, [1]],
    );
  });

  it('T5: refuses an epoch that is over, a leaderless and an unknown partition', () => {
    assert.equal(errorName(elect(0, 3).response.error), 'FENCED_LEADER_EPOCH');
    assert.equal(errorName(elect(7, 0).response.error), 'UNKNOWN_TOPIC_OR_PARTITION');
    const gone = { topicId: id(1), partitionId: 0, leader: -1 };
    const leaderless = imageOf([metadataRecord('PartitionChangeRecord', gone)], image);
    assert.equal(errorName(elect(0, 1, leaderless).response.error), 'LEADER_NOT_AVAILABLE');
  });
});

describe('decideAllocateProducerIds', () => {
  it('P4: hands out blocks that follow each other', () => {
    const first = decideAllocateProducerIds(contextOf(image), 1, 101);
    assert.deepEqual(first.response, {
      error: 0,
      firstProducerId: 0n,
      length: PRODUCER_ID_BLOCK_SIZE,
    });
    const next = decideAllocateProducerIds(contextOf(imageOf(first.records, image)), 2, 102);
    assert.equal('firstProducerId' in next.response && next.response.firstProducerId, 1000n);
  });

  it('refuses a stale broker epoch, and ids that could not be mirrored', () => {
    const stale = decideAllocateProducerIds(contextOf(image), 1, 7);
    assert.equal(errorName(stale.response.error), 'STALE_BROKER_EPOCH');
    const nextProducerId = 2n ** 56n - 1000n;
    const used = metadataRecord('ProducerIdsRecord', { brokerId: 1, nextProducerId });
    const spent = decideAllocateProducerIds(contextOf(imageOf([used], image)), 1, 101);
    assert.deepEqual(
      [errorName(spent.response.error), spent.records],
      ['UNKNOWN_SERVER_ERROR', []],
    );
  });
});
