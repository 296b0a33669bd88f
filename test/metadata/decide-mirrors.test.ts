/**
 * CreateMirror, AddTopicsToMirror and RemoveTopicsFromMirror as tables.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import {
  decideAddTopicsToMirror,
  decideCreateMirror,
  decideRemoveTopicsFromMirror,
} from '../../src/metadata/decide-mirrors.ts';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { errorName } from '../../src/protocol/errors.ts';
import { broker, config, contextOf, feature, id, imageOf, topic } from './harness.ts';

const { TOPIC, MIRROR } = ConfigResourceType;
const image = imageOf([
  feature('mirror.version', 1),
  broker(1),
  config(MIRROR, 'm', 'bootstrap.servers', 'h:1'),
  config(MIRROR, 'n', 'bootstrap.servers', 'h:2'),
  ...topic('native', id(1), [1]),
  ...topic('mirrored', id(2), [1]),
  ...topic('stopped', id(3), [1]),
  ...topic('__consumer_offsets', id(4), [1]),
  config(TOPIC, 'mirrored', 'mirror.name', 'm'),
  config(TOPIC, 'stopped', 'mirror.name', 'm.removed'),
]);
const disabled = imageOf([feature('mirror.version', 0)], image);

function create(name: string | null, configs: [string, string | null][], on = image) {
  const { records, response } = decideCreateMirror(contextOf(on), {
    mirrorName: name,
    config: configs.map(([key, value]) => ({ name: key, value })),
    skipValidation: false,
  });
  return {
    records,
    error: errorName(response.errorCode),
    message: response.errorMessage ?? '',
  };
}

describe('decideCreateMirror', () => {
  const good: [string, string][] = [['bootstrap.servers', 'h:1']];
  const refused: [name: string | null, [string, string | null][], error: string, RegExp][] = [
    [null, good, 'INVALID_REQUEST', /missing/],
    ['', good, 'INVALID_REQUEST', /empty/],
    ['..', good, 'INVALID_REQUEST', /'\.\.'/],
    ['a b', good, 'INVALID_REQUEST', /contains " "/],
    ['x'.repeat(250), good, 'INVALID_REQUEST', /250/],
    ['x.removed', good, 'INVALID_REQUEST', /\.removed/],
    ['m', good, 'INVALID_REQUEST', /already exists/],
    ['new', [], 'INVALID_CONFIG', /bootstrap\.servers/],
    ['new', [...good, ['nope', '1']], 'INVALID_CONFIG', /nope/],
    ['new', [...good, ['request.timeout.ms', null]], 'INVALID_CONFIG', /no value/],
    ['new', [...good, ...good], 'INVALID_CONFIG', /twice/],
  ];
  for (const [name, configs, error, message] of refused) {
    it(`O6, A2: refuses ${name?.slice(0, 9)} ${JSON.stringify(configs)} with ${error}`, () => {
      const refusal = create(name, configs);
      assert.equal(refusal.error, error);
      assert.match(refusal.message, message);
      assert.deepEqual(refusal.records, []);
    });
  }

  it('O1: makes a mirror out of config records of type MIRROR', () => {
    const { records, error } = create('new', [...good, ['request.timeout.ms', '5']]);
    assert.equal(error, 'NONE');
    assert.deepEqual(
      [...imageOf(records, image).configs(MIRROR, 'new')],
      [
        ['bootstrap.servers', 'h:1'],
        ['request.timeout.ms', '5'],
      ],
    );
  });

  it('A8: is refused while the feature is off', () => {
    assert.equal(create('new', good, disabled).error, 'UNSUPPORTED_VERSION');
  });
});

type AddRequest = Parameters<typeof decideAddTopicsToMirror>[1];
type AddWish = Partial<AddRequest['topics'][number]>;

function add(wishes: [name: string, AddWish][], validatedAtOffset = -1, on = image) {
  const topics = wishes.map(([topicName, wish]) => ({
    topicId: ZERO_UUID,
    topicName,
    mirrorName: 'm',
    fullResync: false,
    numPartitions: -1,
    ...wish,
  }));
  const context = contextOf(on);
  const { records, response } = decideAddTopicsToMirror(context, { topics, validatedAtOffset });
  return {
    records,
    response,
    errors: response.topics.map((result) => errorName(result.errorCode)),
    message: response.errorMessage ?? '',
    after: imageOf(records, on),
  };
}

describe('decideAddTopicsToMirror', () => {
  const refused: [name: string, AddWish, error: string, RegExp][] = [
    ['native', { mirrorName: 'nope' }, 'RESOURCE_NOT_FOUND', /'nope'/],
    ['native', { mirrorName: null }, 'RESOURCE_NOT_FOUND', /no mirror/],
    ['a/b', { numPartitions: 1 }, 'INVALID_TOPIC_EXCEPTION', /"\/"/],
    ['new', {}, 'UNKNOWN_TOPIC_OR_PARTITION', /partition count/],
    ['new', { numPartitions: 10_001 }, 'POLICY_VIOLATION', /10000/],
    ['mirrored', { mirrorName: 'n' }, 'INVALID_REQUEST', /belongs to mirror 'm'/],
  ];
  for (const [name, wish, error, message] of refused) {
    it(`refuses ${name} ${JSON.stringify(wish)} with ${error}`, () => {
      const refusal = add([[name, wish]]);
      assert.deepEqual(refusal.errors, [error]);
      assert.match(refusal.message, message);
      assert.deepEqual(refusal.records, []);
    });
  }

  it('O5: refuses internal topics, existing or not', () => {
    for (const name of ['__consumer_offsets', '__mirror_state', '__cluster_metadata']) {
      const { errors, records } = add([[name, { numPartitions: 1 }]]);
      assert.deepEqual([errors, records], [['INVALID_TOPIC_EXCEPTION'], []]);
    }
  });

  it('O3: refuses another id for the name, and the id under another name, naming both', () => {
    const other = add([['native', { topicId: id(9) }]]);
    assert.deepEqual([other.errors, other.records], [['INCONSISTENT_TOPIC_ID'], []]);
    assert.match(other.message, new RegExp(`${id(1)}.*${id(9)}`));
    const taken = add([['new', { topicId: id(1), numPartitions: 1 }]]);
    assert.deepEqual([taken.errors, taken.records], [['INCONSISTENT_TOPIC_ID'], []]);
    assert.match(taken.message, new RegExp(`'new'.*${id(1)}.*'native'`));
  });

  it('Y1, A3: creates a missing topic with the source id and its membership in one batch', () => {
    const { records, response, after } = add([['new', { topicId: id(9), numPartitions: 3 }]]);
    assert.deepEqual(
      records.map((record) => record.type),
      ['TopicRecord', 'ConfigRecord', 'PartitionRecord', 'PartitionRecord', 'PartitionRecord'],
    );
    assert.equal(after.topicsById.get(id(9))?.name, 'new');
    assert.equal(after.topicsByName.get('new')?.partitions.size, 3);
    assert.deepEqual(after.membership('new'), {
      mirror: 'm',
      removed: false,
      offset: image.offset + 2,
    });
    assert.deepEqual([response.topicId, response.errorCode], [id(9), 0]);
  });

  it('O3: gives a topic of a source without topic ids an id of its own', () => {
    const { after, response } = add([['new', { numPartitions: 1 }]]);
    assert.equal(response.topicId, id(500));
    assert.equal(after.topicsByName.get('new')?.id, id(500));
    assert.deepEqual(add([['native', {}]]).errors, ['NONE']);
  });

  it('S7: adding again writes a newer membership record, after a removal too', () => {
    for (const name of ['mirrored', 'stopped', 'native']) {
      const { after, errors } = add([[name, {}]]);
      assert.deepEqual(errors, ['NONE']);
      assert.deepEqual(after.membership(name), {
        mirror: 'm',
        removed: false,
        offset: image.offset + 1,
      });
    }
    assert.deepEqual(add([['stopped', { mirrorName: 'n' }]]).errors, ['NONE']);
  });

  it('A3: refuses when the membership changed after the request was validated', () => {
    const at = image.membership('stopped')?.offset ?? -1;
    assert.deepEqual(add([['stopped', {}]], at).errors, ['NONE']);
    const late = add([['stopped', {}]], at - 1);
    assert.deepEqual([late.errors, late.records], [['INVALID_UPDATE_VERSION'], []]);
    assert.deepEqual(add([['native', {}]], 0).errors, ['NONE']);
  });

  it('A3: is all or nothing per topic; the singular fields carry the first failure', () => {
    const { errors, response, after } = add([
      ['new', { topicId: id(9), numPartitions: 2 }],
      ['native', { topicId: id(8) }],
      ['x', {}],
      ['x', { numPartitions: 1 }],
      ['other', { topicId: id(9), numPartitions: 1 }],
    ]);
    assert.deepEqual(errors, [
      'NONE',
      'INCONSISTENT_TOPIC_ID',
      'INVALID_REQUEST',
      'INVALID_REQUEST',
    ]);
    assert.equal(errorName(response.errorCode), 'INCONSISTENT_TOPIC_ID');
    assert.equal(response.topicId, id(8));
    assert.equal(after.membership('new')?.mirror, 'm');
    assert.equal(after.topicsByName.has('other'), false);
    assert.equal(after.membership('native'), undefined);
  });

  it('A8: is refused while the feature is off', () => {
    assert.deepEqual(add([['native', {}]], -1, disabled).errors, ['UNSUPPORTED_VERSION']);
  });
});

function remove(
  names: [string, ReturnType<typeof id>?][],
  mirrorName = '',
  validatedAtOffset = -1,
  openTransactions = 0,
) {
  const topics = names.map(([topicName, topicId]) => ({
    topicName,
    topicId: topicId ?? ZERO_UUID,
  }));
  const request = { mirrorName, topics, validatedAtOffset, openTransactions };
  const { records, response } = decideRemoveTopicsFromMirror(contextOf(image), request);
  return {
    records,
    errors: response.topics.map((result) => errorName(result.errorCode)),
    messages: response.topics.map((result) => result.errorMessage),
    after: imageOf(records, image),
  };
}

describe('decideRemoveTopicsFromMirror', () => {
  it('O2: marks the membership as removed and keeps the mirror in it', () => {
    const { after, errors } = remove([['mirrored', id(2)]], 'm');
    assert.deepEqual(errors, ['NONE']);
    assert.equal(after.configs(TOPIC, 'mirrored').get('mirror.name'), 'm.removed');
    assert.deepEqual(after.membership('mirrored'), {
      mirror: 'm',
      removed: true,
      offset: image.offset + 1,
    });
  });

  it('G24a: closing open transactions is refused, with the reason', () => {
    for (const [wish, reason] of [
      [1, /^Only a guest of an Apache Kafka cluster can close open transactions/],
      [2, /^Open transactions are cut \(0\) or closed \(1\), not 2\.$/],
    ] as const) {
      const { errors, messages, records } = remove([['mirrored', id(2)], ['nope']], 'm', -1, wish);
      assert.deepEqual(errors, ['INVALID_REQUEST', 'INVALID_REQUEST']);
      for (const message of messages) assert.match(message ?? '', reason);
      assert.deepEqual(records, []);
    }
  });

  it('D7: removing a removed topic is a success and writes nothing', () => {
    assert.deepEqual(
      [remove([['stopped']], 'm', 0).errors, remove([['stopped']], 'm', 0).records],
      [['NONE'], []],
    );
  });

  it('refuses topics that are unknown, of another id, of another mirror, or of none', () => {
    const { errors, records } = remove([['nope'], ['native'], ['mirrored', id(9)]], 'm');
    assert.deepEqual(errors, [
      'UNKNOWN_TOPIC_OR_PARTITION',
      'INVALID_REQUEST',
      'INCONSISTENT_TOPIC_ID',
    ]);
    assert.deepEqual(records, []);
    assert.deepEqual(remove([['mirrored']], 'n').errors, ['INVALID_REQUEST']);
  });

  it('A3: refuses when the membership changed after the request was validated', () => {
    const at = image.membership('mirrored')?.offset ?? -1;
    assert.deepEqual(remove([['mirrored']], 'm', at - 1).errors, ['INVALID_UPDATE_VERSION']);
    assert.deepEqual(remove([['mirrored']], 'm', at).errors, ['NONE']);
  });
});
