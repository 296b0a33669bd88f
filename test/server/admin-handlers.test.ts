/** Handlers of administrators' APIs over fakes: what they answer, in every version. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { ConfigResourceType, type MetadataImage } from '../../src/metadata/image.ts';
import { metadataRecord } from '../../src/metadata/record-framing.ts';
import { mirrorSettingDefinitions } from '../../src/mirror/settings.ts';
import { errors } from '../../src/protocol/errors.ts';
import type { CreatePartitionsRequest } from '../../src/protocol/messages/37-create-partitions.ts';
import type {
  DescribeTopicPartitionsRequest,
  DescribeTopicPartitionsResponse,
} from '../../src/protocol/messages/75-describe-topic-partitions.ts';
import type { BrokerServices } from '../../src/server/api-handler.ts';
import { listedApis } from '../../src/server/api-table.ts';
import {
  ApiVersions,
  ask,
  CreatePartitions,
  DeleteTopics,
  DescribeConfigs,
  DescribeTopicPartitions,
  InitProducerId,
  ListPartitionReassignments,
  servicesOf,
  versionsOf,
} from './call.ts';
import { configRecord, fakeController, imageOf, topicRecords, uuidOf } from './fakes.ts';

test('DescribeTopicPartitions: pages join to the whole, in name order', async () => {
  const image = imageOf([
    ...topicRecords(1, 'b', 3),
    ...topicRecords(2, 'a', 2),
    ...topicRecords(3, 'c', 1),
  ]);
  for (const limit of [1, 2, 3, 5, 100]) {
    const seen: string[] = [];
    let cursor: DescribeTopicPartitionsRequest['cursor'] = null;
    do {
      const answer: DescribeTopicPartitionsResponse = await ask(
        DescribeTopicPartitions,
        0,
        servicesOf({ image }),
        {
          topics: [],
          responsePartitionLimit: limit,
          cursor,
        },
      );
      const page = answer.topics.flatMap(({ name, partitions }) =>
        partitions.map((each) => `${name}${each.partitionIndex}`),
      );
      assert.ok(page.length > 0 && page.length <= limit);
      seen.push(...page);
      cursor = answer.nextCursor;
    } while (cursor !== null);
    assert.deepEqual(seen, ['a0', 'a1', 'b0', 'b1', 'b2', 'c0'], `pages of ${limit}`);
  }
  const named = await ask(DescribeTopicPartitions, 0, servicesOf({ image }), {
    topics: [{ name: 'no' }, { name: 'c' }],
    responsePartitionLimit: 0,
  });
  assert.deepEqual(
    named.topics.map((each) => [each.name, each.errorCode]),
    [
      ['c', 0],
      ['no', errors.UNKNOWN_TOPIC_OR_PARTITION.code],
    ],
  );
});

async function describeConfigs(
  services: BrokerServices,
  resourceType: number,
  resourceName: string,
  version = 4,
) {
  const answer = await ask(DescribeConfigs, version, services, {
    resources: [{ resourceType, resourceName, configurationKeys: null }],
    includeSynonyms: true,
    includeDocumentation: version >= 3,
  });
  const [result] = answer.results;
  const configs = new Map(result?.configs.map((each) => [each.name, each]));
  return { errorCode: result?.errorCode, configs };
}

test('O2: DescribeConfigs shows where values come from, and never mirror.name', async () => {
  const { TOPIC } = ConfigResourceType;
  const image = imageOf([
    ...topicRecords(1, 't', 1),
    configRecord(TOPIC, 't', 'segment.bytes', '777'),
    configRecord(TOPIC, 't', 'mirror.name', 'secret-mirror'),
  ]);
  const settings = { 'log.retention.hours': '1', 'message.max.bytes': '99' };
  for (const version of versionsOf(DescribeConfigs)) {
    const { configs } = await describeConfigs(servicesOf({ image, settings }), TOPIC, 't', version);
    const shown = (name: string) => [configs.get(name)?.value, configs.get(name)?.configSource];
    assert.deepEqual(shown('segment.bytes'), ['777', 1]);
    assert.deepEqual(shown('retention.ms'), ['3600000', 4]);
    assert.deepEqual(shown('max.message.bytes'), ['99', 4]);
    assert.deepEqual(shown('cleanup.policy'), ['delete', 5]);
    assert.equal(configs.has('mirror.name'), false);
  }
  const missing = await describeConfigs(servicesOf({ image }), TOPIC, 'no');
  assert.equal(missing.errorCode, errors.UNKNOWN_TOPIC_OR_PARTITION.code);
});

test('DescribeConfigs: dynamic settings of a broker beat shared ones and the file', async () => {
  const { BROKER } = ConfigResourceType;
  const interval = 'mirror.metadata.refresh.interval.ms';
  const settings = { [interval]: '1000', 'num.partitions': '3' };
  const image = imageOf([
    configRecord(BROKER, '', interval, '2000'),
    configRecord(BROKER, '1', interval, '3000'),
  ]);
  const shared = imageOf([configRecord(BROKER, '', interval, '2000')]);
  const show = async (of: MetadataImage, name: string) => {
    const { configs } = await describeConfigs(servicesOf({ image: of, settings }), BROKER, name);
    const shown = configs.get(interval);
    return [shown?.value, shown?.configSource, shown?.readOnly, configs.size > 1];
  };
  assert.deepEqual(await show(image, '1'), ['3000', 2, false, true]);
  assert.deepEqual(await show(shared, '1'), ['2000', 3, false, true]);
  assert.deepEqual(await show(imageOf([]), '1'), ['1000', 4, false, true]);
  assert.deepEqual(await show(image, ''), ['2000', 3, false, false]);
  const other = await describeConfigs(servicesOf({ image }), BROKER, '2');
  assert.equal(other.errorCode, errors.INVALID_REQUEST.code);
});

test('A6: DescribeConfigs never shows a secret of a mirror', async () => {
  const { MIRROR } = ConfigResourceType;
  const secrets = mirrorSettingDefinitions.filter(({ type }) => type === 'password');
  assert.ok(secrets.length > 0);
  const image = imageOf([
    configRecord(MIRROR, 'm', 'bootstrap.servers', 'h:1'),
    ...secrets.map(({ name }) => configRecord(MIRROR, 'm', name, 'hunter2')),
  ]);
  const { configs } = await describeConfigs(servicesOf({ image }), MIRROR, 'm');
  assert.equal(configs.get('bootstrap.servers')?.value, 'h:1');
  for (const { name } of secrets) {
    const { value, isSensitive } = configs.get(name) ?? {};
    assert.deepEqual([value, isSensitive], [null, true], name);
  }
  assert.ok(!JSON.stringify([...configs]).includes('hunter2'));
  const none = await describeConfigs(servicesOf({ image }), MIRROR, 'other');
  assert.equal(none.errorCode, errors.INVALID_REQUEST.code);
});

test('forwarded: request and version go to the controller, its answer comes back', async () => {
  const seen: unknown[] = [];
  const controller = fakeController({
    forward: (key, version, body, { principal }) => {
      seen.push([key, version, principal, (body as CreatePartitionsRequest).validateOnly]);
      const result = { name: 't', errorCode: errors.INVALID_PARTITIONS.code };
      return Promise.resolve({ throttleTimeMs: 0, results: [result] });
    },
  });
  const request = { topics: [], timeoutMs: 5, validateOnly: true };
  for (const version of versionsOf(CreatePartitions)) {
    const answer = await ask(CreatePartitions, version, servicesOf({ controller }), request);
    assert.equal(answer.results[0]?.errorCode, errors.INVALID_PARTITIONS.code);
  }
  assert.deepEqual(
    seen,
    [0, 1, 2, 3].map((version) => [37, version, 'User:ANONYMOUS', true]),
  );
});

test('DeleteTopics: delete.topic.enable=false refuses every topic here', async () => {
  const services = servicesOf({
    settings: { 'delete.topic.enable': 'false' },
    controller: fakeController({}),
  });
  for (const version of versionsOf(DeleteTopics)) {
    const request =
      version >= 6
        ? {
            topicNames: [],
            topics: [
              { name: 'a', topicId: ZERO_UUID },
              { name: null, topicId: uuidOf(2) },
            ],
            timeoutMs: 1,
          }
        : { topicNames: ['a', 'b'], topics: [], timeoutMs: 1 };
    const { responses } = await ask(DeleteTopics, version, services, request);
    const code = version < 3 ? errors.INVALID_REQUEST : errors.TOPIC_DELETION_DISABLED;
    const codes = responses.map((each) => each.errorCode);
    assert.deepEqual(codes, [code.code, code.code]);
  }
});

test('InitProducerId: a fresh id in every version; transactions are refused for good', async () => {
  for (const version of versionsOf(InitProducerId)) {
    const producerIds = { next: () => Promise.resolve({ producerId: 12n }) };
    const request = { transactionalId: null, transactionTimeoutMs: 1 };
    const answer = await ask(InitProducerId, version, servicesOf({ producerIds }), request);
    assert.deepEqual([answer.errorCode, answer.producerId, answer.producerEpoch], [0, 12n, 0]);
  }
  const error = errors.COORDINATOR_LOAD_IN_PROGRESS.code;
  const producerIds = { next: () => Promise.resolve({ error }) };
  const failed = await ask(InitProducerId, 4, servicesOf({ producerIds }), {
    transactionalId: null,
    transactionTimeoutMs: 1,
  });
  assert.deepEqual([failed.errorCode, failed.producerId], [error, -1n]);
  const refused = await ask(InitProducerId, 4, servicesOf({}), {
    transactionalId: 'tx',
    transactionTimeoutMs: 1,
  });
  assert.equal(refused.errorCode, errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code);
});

test('ApiVersions: features from version 3, that may be 0 from 4; names checked', async () => {
  const image = imageOf([
    metadataRecord('FeatureLevelRecord', { name: 'mirror.version', featureLevel: 1 }),
  ]);
  const software = { clientSoftwareName: 'twinlog', clientSoftwareVersion: '0.1' };
  for (const version of versionsOf(ApiVersions)) {
    const request = version >= 3 ? software : {};
    const answer = await ask(ApiVersions, version, servicesOf({ image }), request);
    assert.deepEqual([answer.errorCode, answer.apiKeys.length], [0, listedApis.length]);
    const mins = answer.supportedFeatures.map(({ minVersion }) => minVersion);
    if (version < 3) assert.deepEqual(mins, []);
    if (version === 3) assert.ok(mins.length > 0 && !mins.includes(0));
    if (version === 4) assert.ok(mins.includes(0));
  }
  for (const name of ['', '-x', 'a b', 'x.']) {
    const answer = await ask(ApiVersions, 3, servicesOf({}), {
      ...software,
      clientSoftwareName: name,
    });
    assert.equal(answer.errorCode, errors.INVALID_REQUEST.code, name);
  }
});

test('ListPartitionReassignments: only partitions on the move', async () => {
  const [topic, ...partitions] = topicRecords(1, 't', 3);
  const moving = metadataRecord('PartitionChangeRecord', {
    topicId: uuidOf(1),
    partitionId: 1,
    replicas: [1, 2, 3],
    addingReplicas: [3],
  });
  const image = imageOf([topic, ...partitions, moving].filter((each) => each !== undefined));
  const { topics } = await ask(ListPartitionReassignments, 0, servicesOf({ image }), {
    topics: null,
    timeoutMs: 1,
  });
  assert.deepEqual(
    topics.map((each) => [each.name, each.partitions[0]?.addingReplicas]),
    [['t', [3]]],
  );
  const asked = { topics: [{ name: 't', partitionIndexes: [0, 2] }], timeoutMs: 1 };
  assert.deepEqual(
    (await ask(ListPartitionReassignments, 0, servicesOf({ image }), asked)).topics,
    [],
  );
});
