/**
 * CreateTopics, DeleteTopics and CreatePartitions as tables: a wish, and what becomes of it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { METADATA_TOPIC_ID, ZERO_UUID } from '../../src/base/uuid.ts';
import {
  decideCreatePartitions,
  decideCreateTopics,
  decideDeleteTopics,
} from '../../src/metadata/decide-topics.ts';
import { ConfigResourceType, type MetadataImage } from '../../src/metadata/image.ts';
import { errorName } from '../../src/protocol/errors.ts';
import {
  type BrokerWish,
  broker,
  config,
  contextOf,
  createTopics,
  id,
  imageOf,
  newTopic,
  topic,
} from './harness.ts';

const { TOPIC } = ConfigResourceType;
const image = imageOf([
  broker(1),
  broker(2),
  broker(3, { fenced: true }),
  ...topic('old', id(1), [1, 2], [2, 1]),
  ...topic('my.topic', id(2), [1]),
]);

type Wish = Parameters<typeof newTopic>[1];

function create(name: string, wish: Wish = {}, on: MetadataImage = image) {
  const { records, response } = decideCreateTopics(
    contextOf(on),
    createTopics([newTopic(name, wish)]),
  );
  const result = response.topics[0];
  assert.ok(result);
  return { records, result, error: errorName(result.errorCode) };
}

function partitionsOf(records: readonly { type: string; value?: unknown }[]) {
  return records
    .filter((record) => record.type === 'PartitionRecord')
    .map((record) => record.value as { replicas: number[]; isr: number[]; leader: number });
}

function manual(...replicas: number[][]) {
  return replicas.map((brokerIds, partitionIndex) => ({ partitionIndex, brokerIds }));
}

describe('decideCreateTopics', () => {
  const refused: [name: string, wish: Wish, error: string, message: RegExp][] = [
    ['', {}, 'INVALID_TOPIC_EXCEPTION', /empty/],
    ['.', {}, 'INVALID_TOPIC_EXCEPTION', /'\.'/],
    ['..', {}, 'INVALID_TOPIC_EXCEPTION', /'\.\.'/],
    ['../etc/passwd', {}, 'INVALID_TOPIC_EXCEPTION', /contains "\/"/],
    ['naïve', {}, 'INVALID_TOPIC_EXCEPTION', /contains "ï"/],
    ['x'.repeat(250), {}, 'INVALID_TOPIC_EXCEPTION', /250 characters/],
    ['my_topic', {}, 'INVALID_TOPIC_EXCEPTION', /collides with existing topic 'my\.topic'/],
    ['old', {}, 'TOPIC_ALREADY_EXISTS', /already exists/],
    ['__cluster_metadata', {}, 'INVALID_REQUEST', /metadata log/],
    ['t', { numPartitions: 0 }, 'INVALID_PARTITIONS', /is 0/],
    ['t', { numPartitions: -2 }, 'INVALID_PARTITIONS', /is -2/],
    ['t', { replicationFactor: 0 }, 'INVALID_REPLICATION_FACTOR', /is 0/],
    ['t', { replicationFactor: 4 }, 'INVALID_REPLICATION_FACTOR', /3 registered broker/],
    ['t', { numPartitions: 10_001 }, 'POLICY_VIOLATION', /10000 partitions/],
    ['t', { assignments: manual([1]), numPartitions: 1 }, 'INVALID_REQUEST', /must both be -1/],
    ['t', { assignments: manual([]) }, 'INVALID_REPLICA_ASSIGNMENT', /no replica/],
    ['t', { assignments: manual([1, 1]) }, 'INVALID_REPLICA_ASSIGNMENT', /more than once/],
    ['t', { assignments: manual([9]) }, 'INVALID_REPLICA_ASSIGNMENT', /broker 9/],
    ['t', { assignments: manual([1], [1, 2]) }, 'INVALID_REPLICA_ASSIGNMENT', /2 replica/],
    ['t', { assignments: manual([3]) }, 'INVALID_REPLICA_ASSIGNMENT', /fenced/],
    [
      't',
      { assignments: [{ partitionIndex: 1, brokerIds: [1] }] },
      'INVALID_REPLICA_ASSIGNMENT',
      /0 is missing/,
    ],
    ['t', { configs: [{ name: 'nope', value: '1' }] }, 'INVALID_CONFIG', /nope/],
    ['t', { configs: [{ name: 'retention.ms', value: null }] }, 'INVALID_CONFIG', /no value/],
    ['t', { configs: [{ name: 'retention.ms', value: 'bad' }] }, 'INVALID_CONFIG', /bad/],
    ['t', { mirrorInfo: { topicId: id(1) } }, 'INVALID_REQUEST', /in use by topic 'old'/],
    ['t', { mirrorInfo: { topicId: ZERO_UUID } }, 'INVALID_REQUEST', /reserved/],
    ['t', { mirrorInfo: { topicId: METADATA_TOPIC_ID } }, 'INVALID_REQUEST', /reserved/],
  ];
  for (const [name, wish, error, message] of refused) {
    it(`refuses '${name.slice(0, 20)}' ${JSON.stringify(wish)} with ${error}`, () => {
      const refusal = create(name, wish);
      assert.equal(refusal.error, error);
      assert.match(refusal.result.errorMessage ?? '', message);
      assert.deepEqual(refusal.records, []);
    });
  }

  it('O2: refuses mirror.name, whatever its value', () => {
    for (const value of ['m', 'm.removed', '', null]) {
      const { error, result } = create('t', { configs: [{ name: 'mirror.name', value }] });
      assert.equal(error, 'INVALID_REQUEST');
      assert.match(result.errorMessage ?? '', /mirror\.name is internal/);
    }
  });

  it('fills in the default counts and writes topic, configs and partitions in one batch', () => {
    const { records, result, error } = create('t', {
      configs: [{ name: 'retention.ms', value: '7' }],
    });
    assert.equal(error, 'NONE');
    assert.deepEqual(
      records.map((record) => record.type),
      ['TopicRecord', 'ConfigRecord', 'PartitionRecord', 'PartitionRecord', 'PartitionRecord'],
    );
    assert.equal(result.topicId, id(500));
    assert.equal(result.numPartitions, 3);
    assert.equal(result.replicationFactor, 1);
    const created = imageOf(records, image).topicsByName.get('t');
    assert.deepEqual(created?.partitions.get(2), {
      topicId: id(500),
      topic: 't',
      partition: 2,
      replicas: [1],
      isr: [1],
      removingReplicas: [],
      addingReplicas: [],
      eligibleLeaderReplicas: [],
      lastKnownElr: [],
      leader: 1,
      leaderRecoveryState: 0,
      leaderEpoch: 0,
      partitionEpoch: 0,
      directories: [id(2001)],
    });
  });

  it('spreads leaders, and gives a fenced broker a replica only when there are too few', () => {
    const { records } = create('t', { numPartitions: 4, replicationFactor: 3 });
    const partitions = partitionsOf(records);
    assert.deepEqual(
      partitions.map((p) => p.leader),
      [1, 2, 1, 2],
    );
    for (const { replicas, isr } of partitions) {
      assert.equal(replicas.at(-1), 3);
      assert.deepEqual(isr, replicas.slice(0, 2));
    }
    assert.deepEqual(
      partitionsOf(create('t', { numPartitions: 2, replicationFactor: 2 }).records).map(
        (p) => p.replicas,
      ),
      [
        [1, 2],
        [2, 1],
      ],
    );
  });

  it('spreads replicas over racks', () => {
    const racks: BrokerWish[] = [{ rack: 'a' }, { rack: 'a' }, { rack: 'b' }, { rack: 'b' }];
    const cluster = imageOf(racks.map((wish, index) => broker(index, wish)));
    const wish = { numPartitions: 8, replicationFactor: 2 };
    for (const { replicas } of partitionsOf(create('t', wish, cluster).records)) {
      assert.equal(new Set(replicas.map((replica) => replica >> 1)).size, 2, `${replicas}`);
    }
  });

  it('keeps a manual assignment, its order and its fenced members out of the ISR', () => {
    const { records } = create('t', { assignments: manual([3, 2], [1, 3]) });
    assert.deepEqual(
      partitionsOf(records).map(({ replicas, isr, leader }) => ({ replicas, isr, leader })),
      [
        { replicas: [3, 2], isr: [2], leader: 2 },
        { replicas: [1, 3], isr: [1], leader: 1 },
      ],
    );
  });

  it('A1: MirrorInfo gives the topic its id, on active brokers only', () => {
    const wish = { mirrorInfo: { topicId: id(77) } };
    const { result, records } = create('t', { ...wish, numPartitions: 1, replicationFactor: 2 });
    assert.equal(result.topicId, id(77));
    assert.equal(imageOf(records, image).topicsById.get(id(77))?.name, 't');
    assert.equal(
      create('t', { ...wish, replicationFactor: 3 }).error,
      'INVALID_REPLICATION_FACTOR',
    );
    const manualWish = { ...wish, assignments: manual([1, 3]) };
    assert.equal(create('t', manualWish).error, 'INVALID_REPLICA_ASSIGNMENT');
    const stopping = imageOf([broker(1), broker(2, { stopping: true })]);
    const assigned = { ...wish, assignments: manual([1, 2]) };
    assert.equal(create('t', assigned, stopping).error, 'INVALID_REPLICA_ASSIGNMENT');
  });

  it('refuses everything while no broker is active', () => {
    assert.equal(
      create('t', {}, imageOf([broker(1, { fenced: true })])).error,
      'INVALID_REPLICATION_FACTOR',
    );
  });

  it('judges each topic of a request alone, counting what earlier ones took', () => {
    const wishes = [
      newTopic('a.b'),
      newTopic('a_b'),
      newTopic('twice'),
      newTopic('twice'),
      newTopic('c', { mirrorInfo: { topicId: id(9) } }),
      newTopic('d', { mirrorInfo: { topicId: id(9) } }),
      newTopic('big', { numPartitions: 9_992 }),
      newTopic('e'),
    ];
    const { records, response } = decideCreateTopics(contextOf(image), createTopics(wishes));
    assert.deepEqual(
      response.topics.map((result) => [result.name, errorName(result.errorCode)]),
      [
        ['a.b', 'NONE'],
        ['a_b', 'INVALID_TOPIC_EXCEPTION'],
        ['twice', 'INVALID_REQUEST'],
        ['c', 'NONE'],
        ['d', 'INVALID_REQUEST'],
        ['big', 'NONE'],
        ['e', 'POLICY_VIOLATION'],
      ],
    );
    assert.deepEqual([...imageOf(records, image).topicsByName.keys()].slice(2), [
      'a.b',
      'c',
      'big',
    ]);
  });

  it('writes nothing when it only validates', () => {
    const decision = decideCreateTopics(contextOf(image), createTopics([newTopic('t')], true));
    assert.deepEqual(decision.records, []);
    assert.equal(decision.response.topics[0]?.errorCode, 0);
    assert.equal(decision.response.topics[0]?.numPartitions, 3);
  });
});

describe('decideDeleteTopics', () => {
  const remove = (topics: { name: string | null; topicId: ReturnType<typeof id> }[], on = image) =>
    decideDeleteTopics(contextOf(on), { topics, topicNames: [], timeoutMs: 0 });

  it('deletes by name and by id, and answers with both', () => {
    const { records, response } = remove([
      { name: 'old', topicId: ZERO_UUID },
      { name: null, topicId: id(2) },
    ]);
    assert.deepEqual(
      response.responses.map((r) => [r.name, r.topicId, r.errorCode]),
      [
        ['old', id(1), 0],
        ['my.topic', id(2), 0],
      ],
    );
    assert.equal(imageOf(records, image).topicsById.size, 0);
  });

  it('deletes by the names of the old versions', () => {
    const request = { topics: [], topicNames: ['old', 'nope'], timeoutMs: 0 };
    const { records, response } = decideDeleteTopics(contextOf(image), request);
    assert.equal(records.length, 1);
    assert.deepEqual(
      response.responses.map((r) => errorName(r.errorCode)),
      ['NONE', 'UNKNOWN_TOPIC_OR_PARTITION'],
    );
  });

  it('refuses unknown, ambiguous and repeated topics', () => {
    const { response } = remove([
      { name: 'nope', topicId: ZERO_UUID },
      { name: null, topicId: id(99) },
      { name: 'old', topicId: id(1) },
      { name: null, topicId: ZERO_UUID },
      { name: 'old', topicId: ZERO_UUID },
      { name: null, topicId: id(1) },
    ]);
    assert.deepEqual(
      response.responses.map((r) => errorName(r.errorCode)),
      [
        'UNKNOWN_TOPIC_OR_PARTITION',
        'UNKNOWN_TOPIC_ID',
        'INVALID_REQUEST',
        'INVALID_REQUEST',
        'NONE',
        'INVALID_REQUEST',
      ],
    );
  });

  it('keeps __mirror_state while there are mirror topics', () => {
    const states = topic('__mirror_state', id(5), [1]);
    const without = imageOf(states, image);
    const wish = [{ name: '__mirror_state', topicId: ZERO_UUID }];
    assert.equal(remove(wish, without).records.length, 1);
    const member = imageOf([config(TOPIC, 'old', 'mirror.name', 'm.removed')], without);
    const refused = remove(wish, member);
    assert.deepEqual(refused.records, []);
    assert.match(refused.response.responses[0]?.errorMessage ?? '', /mirror topics such as 'old'/);
  });
});

describe('decideCreatePartitions', () => {
  const add = (
    name: string,
    count: number,
    assignments: { brokerIds: number[] }[] | null = null,
    validateOnly = false,
  ) => {
    const request = { topics: [{ name, count, assignments }], timeoutMs: 0, validateOnly };
    const { records, response } = decideCreatePartitions(contextOf(image), request);
    return { records, error: errorName(response.results[0]?.errorCode ?? -1) };
  };

  it('adds partitions with the replication factor of the topic, the stride going on', () => {
    const { records, error } = add('old', 4);
    assert.equal(error, 'NONE');
    const after = imageOf(records, image).topicsByName.get('old');
    assert.deepEqual([...(after?.partitions.keys() ?? [])], [0, 1, 2, 3]);
    assert.deepEqual(after?.partitions.get(2)?.replicas, [1, 2]);
    assert.deepEqual(after?.partitions.get(3)?.replicas, [2, 1]);
    assert.equal(after?.partitions.get(0), image.topicsByName.get('old')?.partitions.get(0));
  });

  it('takes a manual assignment for the new partitions', () => {
    const { records } = add('old', 3, [{ brokerIds: [2, 3] }]);
    assert.deepEqual(partitionsOf(records)[0]?.replicas, [2, 3]);
  });

  it('refuses what does not add up', () => {
    assert.equal(add('nope', 4).error, 'UNKNOWN_TOPIC_OR_PARTITION');
    assert.equal(add('old', 2).error, 'INVALID_PARTITIONS');
    assert.equal(add('old', 1).error, 'INVALID_PARTITIONS');
    assert.equal(add('old', 4, [{ brokerIds: [1, 2] }]).error, 'INVALID_REPLICA_ASSIGNMENT');
    assert.equal(add('old', 3, [{ brokerIds: [1] }]).error, 'INVALID_REPLICA_ASSIGNMENT');
    assert.equal(add('old', 20_000).error, 'POLICY_VIOLATION');
  });

  it('writes nothing when it only validates', () => {
    assert.deepEqual(add('old', 4, null, true), { records: [], error: 'NONE' });
  });
});
