/**
 * IncrementalAlterConfigs as a table.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  AlterConfigOperation,
  decideIncrementalAlterConfigs,
} from '../../src/metadata/decide-configs.ts';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { errorName } from '../../src/protocol/errors.ts';
import { broker, config, contextOf, id, imageOf, topic } from './harness.ts';

const { TOPIC, BROKER, BROKER_LOGGER, GROUP, MIRROR } = ConfigResourceType;
const { SET, DELETE, APPEND, SUBTRACT } = AlterConfigOperation;

const image = imageOf([
  broker(1),
  ...topic('t', id(1), [1]),
  config(TOPIC, 't', 'retention.ms', '5'),
  config(TOPIC, 't', 'mirror.name', 'm'),
  config(MIRROR, 'm', 'bootstrap.servers', 'h:1'),
]);

type Alteration = [name: string, operation: number, value: string | null];

function alter(type: number, name: string, ...alterations: Alteration[]) {
  const configs = alterations.map(([key, configOperation, value]) => ({
    name: key,
    configOperation,
    value,
  }));
  const { records, response } = decideIncrementalAlterConfigs(contextOf(image), {
    resources: [{ resourceType: type, resourceName: name, configs }],
    validateOnly: false,
  });
  const result = response.responses[0];
  assert.deepEqual([result?.resourceType, result?.resourceName], [type, name]);
  return {
    error: errorName(result?.errorCode ?? -1),
    message: result?.errorMessage ?? '',
    records,
    after: imageOf(records, image).configs(type, name),
  };
}

describe('decideIncrementalAlterConfigs', () => {
  const refused: [type: number, name: string, Alteration, error: string][] = [
    [TOPIC, 'nope', ['retention.ms', SET, '1'], 'UNKNOWN_TOPIC_OR_PARTITION'],
    [TOPIC, 't', ['nope', SET, '1'], 'INVALID_CONFIG'],
    [TOPIC, 't', ['retention.ms', SET, 'bad'], 'INVALID_CONFIG'],
    [TOPIC, 't', ['retention.ms', SET, null], 'INVALID_REQUEST'],
    [TOPIC, 't', ['retention.ms', APPEND, '1'], 'INVALID_CONFIG'],
    [TOPIC, 't', ['retention.ms', 9, '1'], 'INVALID_REQUEST'],
    [BROKER, '2', ['log.cleaner.threads', SET, '1'], 'BROKER_ID_NOT_REGISTERED'],
    [BROKER, 'x', ['log.cleaner.threads', SET, '1'], 'INVALID_REQUEST'],
    [BROKER, '1', ['retention.ms', SET, '1'], 'INVALID_CONFIG'],
    [GROUP, '', ['consumer.session.timeout.ms', SET, '1'], 'INVALID_REQUEST'],
    [MIRROR, 'nope', ['request.timeout.ms', SET, '1'], 'RESOURCE_NOT_FOUND'],
    [MIRROR, 'm', ['bootstrap.servers', DELETE, null], 'INVALID_CONFIG'],
    [BROKER_LOGGER, '1', ['x', SET, '1'], 'INVALID_REQUEST'],
  ];
  for (const [type, name, alteration, error] of refused) {
    it(`refuses ${alteration.join(' ')} of ${type}:${name} with ${error}`, () => {
      const refusal = alter(type, name, alteration);
      assert.equal(refusal.error, error);
      assert.notEqual(refusal.message, '');
      assert.deepEqual(refusal.records, []);
    });
  }

  for (const operation of [SET, DELETE, APPEND, SUBTRACT]) {
    it(`O2: refuses mirror.name for operation ${operation}`, () => {
      const { error, records } = alter(TOPIC, 't', ['mirror.name', operation, 'x']);
      assert.equal(error, 'INVALID_REQUEST');
      assert.deepEqual(records, []);
    });
    it(`O4: refuses mirror.source.cluster.id for operation ${operation}`, () => {
      const alterations: Alteration[] = [
        ['request.timeout.ms', SET, '7'],
        ['mirror.source.cluster.id', operation, 'x'],
      ];
      const { error, message, records } = alter(MIRROR, 'm', ...alterations);
      assert.deepEqual([error, records], ['INVALID_REQUEST', []]);
      assert.match(message, /mirror\.source\.cluster\.id/);
    });
  }

  it('sets, deletes, appends to the default, subtracts; membership stays', () => {
    const { after } = alter(
      TOPIC,
      't',
      ['retention.ms', DELETE, null],
      ['segment.bytes', SET, '9'],
      ['cleanup.policy', APPEND, 'compact,delete'],
    );
    assert.deepEqual(
      [...after],
      [
        ['mirror.name', 'm'],
        ['segment.bytes', '9'],
        ['cleanup.policy', 'delete,compact'],
      ],
    );
    const less = alter(TOPIC, 't', ['cleanup.policy', SUBTRACT, 'delete']).after;
    assert.equal(less.get('cleanup.policy'), '');
  });

  it('A6: alters brokers, the broker default, groups and mirrors', () => {
    assert.equal(alter(BROKER, '1', ['log.cleaner.threads', SET, '2']).error, 'NONE');
    assert.equal(alter(BROKER, '', ['log.cleaner.threads', SET, '2']).error, 'NONE');
    assert.equal(alter(GROUP, 'g', ['consumer.session.timeout.ms', SET, '2']).error, 'NONE');
    const mirror = alter(MIRROR, 'm', ['bootstrap.servers', SET, 'h:2']);
    assert.equal(mirror.after.get('bootstrap.servers'), 'h:2');
  });

  it('writes no record for a setting that keeps its value', () => {
    const same = alter(TOPIC, 't', ['retention.ms', SET, '5'], ['segment.bytes', DELETE, null]);
    assert.deepEqual([same.error, same.records], ['NONE', []]);
  });

  it('refuses a list that grows beyond what a record can hold', () => {
    const long = 'x'.repeat(32_767);
    const { error, records } = alter(TOPIC, 't', ['cleanup.policy', APPEND, long]);
    assert.deepEqual([error, records], ['INVALID_CONFIG', []]);
  });

  it('accepts a resource whole or not at all, and each resource alone', () => {
    const set = (name: string, value: string) => ({ name, configOperation: SET, value });
    const request = {
      resources: [
        {
          resourceType: TOPIC,
          resourceName: 't',
          configs: [set('segment.bytes', '1'), set('nope', '1')],
        },
        { resourceType: BROKER, resourceName: '1', configs: [set('log.cleaner.threads', '1')] },
      ],
      validateOnly: false,
    };
    const { records, response } = decideIncrementalAlterConfigs(contextOf(image), request);
    assert.deepEqual(
      response.responses.map((r) => errorName(r.errorCode)),
      ['INVALID_CONFIG', 'NONE'],
    );
    assert.equal(records.length, 1);
    const dry = { ...request, validateOnly: true };
    assert.deepEqual(decideIncrementalAlterConfigs(contextOf(image), dry).records, []);
  });

  it('refuses a repeated resource and a repeated key', () => {
    const resource = { resourceType: TOPIC, resourceName: 't', configs: [] };
    const request = { resources: [resource, resource], validateOnly: false };
    const { response } = decideIncrementalAlterConfigs(contextOf(image), request);
    assert.deepEqual(
      response.responses.map((r) => errorName(r.errorCode)),
      ['INVALID_REQUEST'],
    );
    const key: Alteration = ['segment.bytes', SET, '1'];
    assert.equal(alter(TOPIC, 't', key, key).error, 'INVALID_REQUEST');
  });
});
