/**
 * AddTopicsToMirror: row, topic, row; cut short anywhere and repeated (G12).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../../src/base/uuid.ts';
import { VISIBLE_TIMEOUT_MS } from '../../../src/guest/jobs/topic-additions.ts';
import type { DescribedConfig } from '../../../src/guest/jobs/topic-settings.ts';
import { ConfigResourceType, type MetadataImage } from '../../../src/metadata/image.ts';
import { metadataRecord } from '../../../src/metadata/record-framing.ts';
import { MirrorFailure } from '../../../src/mirror/causes.ts';
import { ApiKey } from '../../../src/protocol/api-keys.ts';
import { errorName, errors } from '../../../src/protocol/errors.ts';
import type { CreateTopicsRequest } from '../../../src/protocol/messages/19-create-topics.ts';
import type {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../../../src/protocol/messages/12791-add-topics-to-mirror.ts';
import { broker, config, id, topic } from '../../metadata/harness.ts';
import {
  GUEST,
  killPoints,
  MIRROR,
  OTHER_GUEST,
  override,
  SOURCE_ID,
  TestCluster,
  untilKilled,
} from '../jobs-harness.ts';

const { BROKER } = ConfigResourceType;
const SOURCE = { t: [override('retention.ms', '1000'), override('min.insync.replicas', '2')] };

interface Wish {
  readonly topicName: string;
  readonly topicId?: Uuid;
  readonly mirrorName?: string | null;
  readonly numPartitions?: number;
}

function request(wishes: readonly Wish[], validatedAtOffset = -1): AddTopicsToMirrorRequest {
  return {
    topics: wishes.map((wish) => ({
      topicId: SOURCE_ID,
      mirrorName: MIRROR,
      fullResync: false,
      numPartitions: 2,
      ...wish,
    })),
    validatedAtOffset,
  };
}

async function add(
  cluster: TestCluster,
  wishes: readonly (Wish | string)[],
  source: Readonly<Record<string, readonly DescribedConfig[]>> = SOURCE,
): Promise<AddTopicsToMirrorResponse> {
  const list = wishes.map((wish) => (typeof wish === 'string' ? { topicName: wish } : wish));
  const admin = cluster.admin(source);
  return (await admin.forward(
    ApiKey.AddTopicsToMirror,
    request(list),
  )) as AddTopicsToMirrorResponse;
}

const outcomes = (response: AddTopicsToMirrorResponse): string[] =>
  response.topics.map(({ name, errorCode }) => `${name} ${errorName(errorCode)}`);

const LOCKED = {
  'compression.type': 'gzip',
  'max.message.bytes': '78',
  'min.insync.replicas': '1',
  'retention.ms': '1000',
  'unclean.leader.election.enable': 'false',
};

describe('G12: a topic is made', () => {
  test('row, topic with lock and settings, row with its id', async () => {
    const cluster = await new TestCluster().withMirror();
    const response = await add(cluster, ['t']);
    assert.deepEqual(outcomes(response), ['t NONE']);
    const made = cluster.image.topicsByName.get('t');
    assert.equal(response.topicId, made?.id);
    assert.notEqual(made?.id, SOURCE_ID);
    assert.match(cluster.trace[1] ?? '', /^create t \[201(,[123]){3}\] \[201(,[123]){3}\]$/);
    assert.deepEqual(
      [cluster.trace[0], cluster.trace[2]],
      ['row t m without id', 'row t m with id'],
    );
    assert.equal(cluster.trace.length, 3);
    assert.deepEqual(cluster.overrides('t'), LOCKED);
    const row = cluster.catalog.topic('t');
    assert.equal(row?.topicId, made?.id);
    assert.equal(row?.sourceTopicId, SOURCE_ID);
    assert.equal(row?.targetReplicationFactor, 3);
    assert.deepEqual(
      row?.finalConfigs.filter(({ value }) => value !== null),
      [{ name: 'retention.ms', value: '1000' }],
    );
    assert.equal(cluster.partition('t', 0).leader, GUEST);
    assert.equal(cluster.partition('t', 1).leader, GUEST);
    // G25: two partitions prefer different Apache brokers.
    const firsts = [0, 1].map((partition) => cluster.partition('t', partition).replicas[1]);
    assert.notEqual(firsts[0], firsts[1]);
  });

  test('Y1: the metadata shows the membership before the topic', async () => {
    const cluster = await new TestCluster().withMirror();
    const images: MetadataImage[] = [];
    const { effect } = cluster;
    cluster.effect = (what, act) => {
      images.push(cluster.image);
      return effect.call(cluster, what, act) as ReturnType<typeof act>;
    };
    await add(cluster, ['t']);
    const [beforeRow, beforeCreate] = images;
    assert.equal(beforeRow?.membership('t'), undefined);
    assert.equal(beforeCreate?.membership('t')?.mirror, MIRROR);
    assert.equal(beforeCreate?.topicsByName.has('t'), false);
  });

  test('other live guests come right after this one', async () => {
    const cluster = await new TestCluster(
      broker(OTHER_GUEST),
      broker(203, { fenced: true }),
      config(BROKER, `${OTHER_GUEST}`, 'twinlog.guest', 'true'),
      config(BROKER, '203', 'twinlog.guest', 'true'),
    ).withMirror();
    await add(cluster, ['t']);
    assert.match(cluster.trace[1] ?? '', /^create t \[201,202(,[123]){3}\]/);
  });

  test('fewer Apache brokers than the default wants: as many replicas as there are', async () => {
    const cluster = await new TestCluster().withMirror();
    for (const gone of [2, 3]) {
      cluster.commit(
        metadataRecord('UnregisterBrokerRecord', { brokerId: gone, brokerEpoch: 100 + gone }),
      );
    }
    assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t NONE']);
    assert.deepEqual(cluster.partition('t').replicas, [GUEST, 1]);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 1);
  });

  test('a cordoned broker, which Kafka refuses to name, gets none', async () => {
    const cluster = await new TestCluster().withMirror();
    cluster.cordon(2, true);
    assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t NONE']);
    assert.deepEqual([...cluster.partition('t').replicas].sort(), [1, GUEST, 3].sort());
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 3);
  });

  test('many partitions are made by several requests that a controller can take', async () => {
    const cluster = await new TestCluster().withMirror();
    const sizes: number[] = [];
    const { send } = cluster.controller;
    cluster.controller.send = (request, response, value) => {
      const { topics, validateOnly } = value as unknown as CreateTopicsRequest;
      if (!validateOnly) sizes.push(topics.flatMap(({ assignments }) => assignments).length);
      return send(request, response, value);
    };
    const wishes = [3_000, 2_000, 1, 6_000, 4_000].map((numPartitions, i) => {
      return { topicName: `t${i}`, numPartitions };
    });
    const response = await add(cluster, wishes);
    assert.equal(response.errorCode, 0);
    assert.deepEqual(sizes, [5_000, 1, 6_000, 4_000]);
    assert.equal(cluster.image.topicsByName.get('t3')?.partitions.size, 6_000);
  });

  test('waits until the topic shows, and does not wait for ever', async () => {
    const cluster = await new TestCluster().withMirror();
    cluster.held = [];
    const adding = add(cluster, ['t']);
    for (let i = 0; i < 100; i++) await Promise.resolve();
    assert.deepEqual(cluster.trace.at(-1)?.slice(0, 8), 'create t');
    cluster.runtime.clock.advance(VISIBLE_TIMEOUT_MS - 100);
    await new Promise(setImmediate);
    cluster.release();
    cluster.runtime.clock.advance(100);
    assert.deepEqual(outcomes(await adding), ['t NONE']);
    const late = await new TestCluster().withMirror();
    late.held = [];
    const waiting = add(late, ['t']);
    for (let i = 0; i < 3_000; i++) {
      await Promise.resolve();
      late.runtime.clock.advance(20);
    }
    assert.deepEqual(outcomes(await waiting), ['t REQUEST_TIMED_OUT']);
    late.release();
    assert.deepEqual(outcomes(await add(late, ['t'])), ['t NONE']);
  });
});

describe('Y4: settings of the source', () => {
  test('what the controller refuses is left out and the rest is kept', async () => {
    const cluster = await new TestCluster().withMirror();
    cluster.refusedConfigs.set('odd.config', 'Unknown topic config name: odd.config');
    const source = { t: [override('odd.config', '1'), override('retention.ms', '5')] };
    assert.deepEqual(outcomes(await add(cluster, ['t'], source)), ['t NONE']);
    assert.equal(cluster.overrides('t')['retention.ms'], '5');
    assert.equal('odd.config' in cluster.overrides('t'), false);
    const final = cluster.catalog.topic('t')?.finalConfigs ?? [];
    assert.equal(
      final.some(({ name }) => name === 'odd.config'),
      false,
    );
  });

  test('a source that does not tell them refuses the topic: an error is no empty set', async () => {
    const cluster = await new TestCluster().withMirror();
    const source = new Proxy(SOURCE, {
      get: () => {
        throw new MirrorFailure('SOURCE_AUTHORIZATION_FAILED', 'not allowed');
      },
    });
    const response = await add(cluster, ['t'], source);
    assert.deepEqual(outcomes(response), ['t BROKER_NOT_AVAILABLE']);
    assert.match(response.errorMessage ?? '', /not allowed/);
    assert.deepEqual(cluster.trace, []);
  });
});

describe('what is refused leaves nothing behind', () => {
  const refused: [title: string, wish: Wish, error: string][] = [
    ['no mirror', { topicName: 't', mirrorName: null }, 'RESOURCE_NOT_FOUND'],
    ['another mirror', { topicName: 't', mirrorName: 'nope' }, 'RESOURCE_NOT_FOUND'],
    ['a bad name', { topicName: 'a/b' }, 'INVALID_TOPIC_EXCEPTION'],
    ['O5', { topicName: '__consumer_offsets' }, 'INVALID_TOPIC_EXCEPTION'],
    ['no partition count', { topicName: 't', numPartitions: -1 }, 'UNKNOWN_TOPIC_OR_PARTITION'],
    ['G12: an existing topic', { topicName: 'native' }, 'TOPIC_ALREADY_EXISTS'],
  ];
  for (const [title, wish, error] of refused) {
    test(`${title} is ${error}`, async () => {
      const cluster = await new TestCluster(...topic('native', id(5), [1, 2])).withMirror();
      const response = await add(cluster, [wish]);
      assert.deepEqual(outcomes(response), [`${wish.topicName} ${error}`]);
      assert.notEqual(response.errorMessage, null);
      assert.deepEqual(cluster.trace, []);
      assert.equal(cluster.catalog.topic(wish.topicName), undefined);
    });
  }

  test('a topic twice in a request; others of it are made', async () => {
    const cluster = await new TestCluster().withMirror();
    const response = await add(cluster, ['t', 'u', 't']);
    assert.deepEqual(outcomes(response), ['t INVALID_REQUEST', 'u NONE']);
    assert.equal(cluster.image.topicsByName.has('t'), false);
  });

  test('no Apache broker, or a fenced guest', async () => {
    const cluster = await new TestCluster().withMirror();
    cluster.fence(GUEST, true);
    assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t BROKER_NOT_AVAILABLE']);
    cluster.fence(GUEST, false);
    for (const brokerId of [1, 2, 3]) cluster.cordon(brokerId, true);
    const response = await add(cluster, ['t']);
    assert.deepEqual(outcomes(response), ['t INVALID_REPLICATION_FACTOR']);
    assert.match(response.errorMessage ?? '', /broker\(s\) 1, 2, 3 are cordoned/);
    for (const brokerId of [1, 2, 3]) {
      cluster.commit(
        metadataRecord('UnregisterBrokerRecord', { brokerId, brokerEpoch: 100 + brokerId }),
      );
    }
    assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t INVALID_REPLICATION_FACTOR']);
    assert.deepEqual(cluster.trace, []);
  });

  test('a refusal of the controller takes the row with it', async () => {
    const cluster = await new TestCluster().withMirror();
    cluster.failures.set(ApiKey.CreateTopics, errors.POLICY_VIOLATION.code);
    const response = await add(cluster, ['t']);
    assert.deepEqual(outcomes(response), ['t POLICY_VIOLATION']);
    assert.equal(cluster.catalog.topic('t'), undefined);
    assert.equal(cluster.image.membership('t'), undefined);
    assert.deepEqual(cluster.trace, ['row t m without id', 'row t gone']);
  });

  test('G29 is not there yet: a topic that was mirrored is refused with the way out', async () => {
    const cluster = await new TestCluster(...topic('t', id(5), [1, 2])).withMirror();
    await cluster.storeOf(GUEST).writeTopic('t', {
      mirrorName: MIRROR,
      removed: true,
      membershipOffset: 3,
      topicId: id(5),
      sourceTopicId: SOURCE_ID,
      finalConfigs: [],
      targetReplicationFactor: 0,
    });
    cluster.trace.length = 0;
    const response = await add(cluster, ['t']);
    assert.deepEqual(outcomes(response), ['t INVALID_REQUEST']);
    assert.match(response.errorMessage ?? '', /failback/);
    assert.deepEqual(cluster.trace, []);
    assert.equal(cluster.image.membership('t')?.removed, true);
  });
});

describe('G12: repeated', () => {
  test('a member is a success without effects; another source topic is not', async () => {
    const cluster = await new TestCluster().withMirror();
    const first = await add(cluster, ['t']);
    cluster.trace.length = 0;
    const second = await add(cluster, ['t']);
    assert.deepEqual(second.topics, first.topics);
    assert.deepEqual(cluster.trace, []);
    const other = await add(cluster, [{ topicName: 't', topicId: id(901) }]);
    assert.deepEqual(outcomes(other), ['t INCONSISTENT_TOPIC_ID']);
  });

  test('Y5: a member that was handed over is no success', async () => {
    const cluster = await new TestCluster().withMirror();
    await add(cluster, ['t']);
    for (const index of [0, 1]) {
      const { topicId } = cluster.partition('t', index);
      const moved = { topicId, partitionId: index, replicas: [1, 2, 3], isr: [1, 2, 3], leader: 1 };
      cluster.commit(metadataRecord('PartitionChangeRecord', moved));
    }
    cluster.trace.length = 0;
    assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t INVALID_REQUEST']);
    assert.deepEqual(cluster.trace, []);
  });

  test('killed before or after each step, the same request ends the same', async () => {
    const reference = await new TestCluster().withMirror();
    reference.restart();
    await add(reference, ['t', 'u']);
    const count = reference.effects;
    assert.equal(count, 6);
    for (const point of killPoints(count)) {
      const cluster = await new TestCluster().withMirror();
      cluster.restart(point);
      assert.equal(await untilKilled(() => add(cluster, ['t', 'u'])), true);
      cluster.restart();
      const where = `killed ${point.when} at ${point.effects}`;
      assert.deepEqual(outcomes(await add(cluster, ['t', 'u'])), ['t NONE', 'u NONE'], where);
      for (const name of ['t', 'u']) {
        const creations = cluster.trace.filter((effect) => effect.startsWith(`create ${name}`));
        assert.equal(creations.length, 1, `${where}: ${name} was made ${creations.length} times`);
        const made = cluster.image.topicsByName.get(name);
        assert.equal(cluster.catalog.topic(name)?.topicId, made?.id, where);
        assert.deepEqual(
          cluster.catalog.topic(name)?.finalConfigs,
          reference.catalog.topic(name)?.finalConfigs,
          where,
        );
        assert.deepEqual(cluster.overrides(name), reference.overrides(name), where);
      }
      const firstRow = cluster.trace.indexOf('row t m without id');
      const creation = cluster.trace.findIndex((effect) => effect.startsWith('create t'));
      assert.ok(firstRow >= 0 && firstRow < creation, `${where}: ${cluster.trace}`);
    }
  });

  test('an answer that is lost is not taken for a refusal', async () => {
    for (const failure of ['unreachable', 'done, unanswered'] as const) {
      const cluster = await new TestCluster().withMirror();
      cluster.failures.set(ApiKey.CreateTopics, failure);
      assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t REQUEST_TIMED_OUT'], failure);
      assert.equal(cluster.catalog.topic('t')?.topicId, ZERO_UUID, failure);
      assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t NONE'], failure);
      assert.equal(cluster.trace.filter((effect) => effect.startsWith('create')).length, 1);
    }
  });

  test('a topic that somebody else made meanwhile is left alone, and so is its name', async () => {
    const cluster = await new TestCluster().withMirror();
    cluster.failures.set(ApiKey.CreateTopics, 'unreachable');
    await add(cluster, ['t']);
    cluster.commit(...topic('t', id(5), [1, 2]));
    const response = await add(cluster, ['t']);
    assert.deepEqual(outcomes(response), ['t TOPIC_ALREADY_EXISTS']);
    assert.equal(cluster.image.membership('t'), undefined);
    assert.deepEqual(cluster.overrides('t'), {});
    assert.equal(
      cluster.trace.some((effect) => effect.startsWith('create')),
      false,
    );
  });

  test('B2: the topic was deleted since: a new life with a newer membership', async () => {
    const cluster = await new TestCluster().withMirror();
    await add(cluster, ['t']);
    const first = cluster.catalog.topic('t');
    cluster.commit(metadataRecord('RemoveTopicRecord', { topicId: first?.topicId ?? ZERO_UUID }));
    assert.deepEqual(outcomes(await add(cluster, ['t'])), ['t NONE']);
    const second = cluster.catalog.topic('t');
    assert.notEqual(second?.topicId, first?.topicId);
    assert.ok((second?.membershipOffset ?? 0) > (first?.membershipOffset ?? 0));
  });
});
