/** Questions of a guest to its Apache peers: whom they go to, and what comes of the answers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ApacheQuestions } from '../../src/guest/apache-questions.ts';
import {
  type CallOptions,
  type ClusterClient,
  ClusterError,
  type ClusterTarget,
} from '../../src/guest/cluster-client.ts';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import { MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import { FindCoordinatorRequest } from '../../src/protocol/messages/10-find-coordinator.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import { brokerRecord, configRecord, imageOf } from '../server/fakes.ts';

const IMAGE = imageOf([
  brokerRecord(1),
  brokerRecord(2, true),
  brokerRecord(3),
  brokerRecord(201),
  configRecord(ConfigResourceType.BROKER, '201', 'twinlog.guest', 'true'),
]);

/** A client whose brokers answer with `answer`, but for those that are down. */
class FakeClient implements Pick<ClusterClient, 'call'> {
  readonly asked: unknown[] = [];
  readonly requests: unknown[] = [];
  readonly #down: readonly number[];
  readonly #answer: unknown;

  constructor(down: readonly number[], answer: unknown) {
    this.#down = down;
    this.#answer = answer;
  }

  call<Q extends Message, R extends Message>(
    target: ClusterTarget,
    request: Q,
    _response: R,
    value: EncodableOf<Q>,
    options: CallOptions<R> = {},
  ): Promise<MessageOf<R>> {
    assert.ok(target.to === 'broker');
    this.asked.push(target.id);
    this.requests.push([request.name, value, options.retryBoundMs]);
    if (this.#down.includes(target.id)) {
      return Promise.reject(new ClusterError('unreachable', 'down'));
    }
    return Promise.resolve(this.#answer as MessageOf<R>);
  }
}

function metadataAnswer(topics: readonly (readonly [string, number])[]) {
  const schema = codec(MetadataResponse, 12);
  const bytes = schema.encodeToBytes({
    brokers: [],
    clusterId: 'c',
    controllerId: 1,
    topics: topics.map(([name, errorCode]) => ({ name, errorCode, partitions: [] })),
  });
  return schema.decode(bytes);
}

test('topics are asked of live Apache brokers in turn, errors are passed on', async () => {
  const missing = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
  const client = new FakeClient(
    [],
    metadataAnswer([
      ['a', 0],
      ['b', missing],
    ]),
  );
  const questions = new ApacheQuestions(client, () => IMAGE);
  for (let i = 0; i < 3; i++) {
    assert.deepEqual(await questions.askForTopics(['a', 'b']), new Map([['b', missing]]));
  }
  assert.deepEqual(client.asked, [1, 3, 1]);
  const topics = [{ name: 'a' }, { name: 'b' }];
  const value = { topics, allowAutoTopicCreation: true };
  assert.deepEqual(client.requests[0], ['MetadataRequest', value, 0]);
});

test('a broker that is down is passed over; without any, clients try again', async () => {
  const one = new FakeClient([1], metadataAnswer([]));
  assert.deepEqual(await new ApacheQuestions(one, () => IMAGE).askForTopics(['a']), new Map());
  assert.deepEqual(one.asked, [1, 3]);
  const all = new FakeClient([1, 3], undefined);
  const questions = new ApacheQuestions(all, () => IMAGE);
  const { code } = errors.LEADER_NOT_AVAILABLE;
  assert.deepEqual(await questions.askForTopics(['a']), new Map([['a', code]]));
  assert.deepEqual(all.asked, [1, 3]);
  await questions.askForCoordinator(0, 'g');
  assert.deepEqual(all.asked, [1, 3, 3, 1]);
});

test('a coordinator is asked for in the batched form of Apache Kafka 4', async () => {
  const client = new FakeClient([], {});
  await new ApacheQuestions(client, () => IMAGE).askForCoordinator(2, 'sg:x:0');
  type Value = EncodableOf<typeof FindCoordinatorRequest>;
  const [[name, value]] = client.requests as [[string, Value]];
  assert.deepEqual(
    [name, value],
    ['FindCoordinatorRequest', { keyType: 2, coordinatorKeys: ['sg:x:0'] }],
  );
  codec(FindCoordinatorRequest, 6).encodeToBytes(value);
});
