/**
 * A snapshot in the place of an image: what the delta names, what the new image shares with it.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigResourceType, type MetadataImage } from '../../src/metadata/image.ts';
import { replaceImage } from '../../src/metadata/image-diff.ts';
import type { MetadataRecord } from '../../src/metadata/record-framing.ts';
import { broker, config, feature, id, imageOf, topic } from './harness.ts';

const { TOPIC, BROKER, MIRROR } = ConfigResourceType;

const replaced = (image: MetadataImage, ...records: MetadataRecord[]) =>
  replaceImage(
    image,
    records.map((record) => ({ record, offset: 900 })),
    900,
    7,
  );

describe('replaceImage', () => {
  const before = imageOf([
    broker(1),
    broker(2),
    ...topic('same', id(1), [1, 2], [2, 1]),
    ...topic('moved', id(2), [1]),
    ...topic('gone', id(3), [1]),
    ...topic('again', id(4), [1]),
    config(TOPIC, 'same', 'retention.ms', '5'),
    config(TOPIC, 'gone', 'retention.ms', '5'),
    config(TOPIC, 'moved', 'segment.bytes', '1'),
    config(BROKER, '1', 'log.cleaner.threads', '2'),
    config(MIRROR, 'm', 'bootstrap.servers', 'h:1'),
    feature('metadata.version', 29),
  ]);
  const { image, ...delta } = replaced(
    before,
    broker(2, { fenced: true }),
    ...topic('same', id(1), [1, 2], [2, 1]),
    ...topic('moved', id(2), [2]),
    ...topic('again', id(5), [1]),
    ...topic('new', id(6), [1]),
    config(TOPIC, 'same', 'retention.ms', '5'),
    config(TOPIC, 'new', 'mirror.name', 'm'),
    config(MIRROR, 'm', 'bootstrap.servers', 'h:2'),
    feature('metadata.version', 30),
  );

  it('stands where the snapshot ends', () => {
    assert.deepEqual([image.offset, image.epoch, image.clusterId], [900, 7, before.clusterId]);
    assert.equal(delta.previous, before);
    assert.equal(image.features.get('metadata.version'), 30);
  });

  it('names changed, new and deleted topics; one made again under its name is both', () => {
    assert.deepEqual([...delta.changedTopics].sort(), [id(2), id(5), id(6)]);
    assert.deepEqual(
      delta.deletedTopics.map(({ name, id: topicId }) => [name, topicId]),
      [
        ['gone', id(3)],
        ['again', id(4)],
      ],
    );
    assert.deepEqual([...image.topicsByName.keys()], ['same', 'moved', 'again', 'new']);
    assert.equal(image.topicsByName.get('again')?.id, id(5));
  });

  it('shares what is equal', () => {
    assert.equal(image.topicsByName.get('same'), before.topicsByName.get('same'));
    assert.equal(image.topicsById.get(id(1)), before.topicsById.get(id(1)));
    assert.notEqual(image.topicsByName.get('moved'), before.topicsByName.get('moved'));
  });

  it('names changed configs and memberships, and removed ones, but none of a gone topic', () => {
    const named = delta.changedConfigs.map(({ type, name }) => `${type} ${name}`);
    assert.deepEqual(named.sort(), ['2 moved', '2 new', '4 1', '64 m']);
    assert.deepEqual(image.membership('new'), { mirror: 'm', removed: false, offset: 900 });
    assert.equal(image.configs(BROKER, '1').size, 0);
  });

  it('names changed and removed brokers', () => {
    assert.deepEqual([...delta.changedBrokers].sort(), [1, 2]);
    assert.deepEqual([...image.brokers.keys()], [2]);
  });

  it('sees no change in another order of features, listeners or topics', () => {
    const registration = (reversed: boolean): MetadataRecord => {
      const record = broker(1);
      assert.equal(record.type, 'RegisterBrokerRecord');
      const features = ['a', 'b'].map((name) => ({
        name,
        minSupportedVersion: 0,
        maxSupportedVersion: 1,
      }));
      const listeners = ['A', 'B'].map((name) => ({
        name,
        host: 'h',
        port: 1,
        securityProtocol: 0,
      }));
      const value = {
        ...record.value,
        features: reversed ? features.reverse() : features,
        endPoints: reversed ? listeners.reverse() : listeners,
      };
      return { ...record, value };
    };
    const base = imageOf([
      registration(false),
      ...topic('a', id(1), [1]),
      ...topic('b', id(2), [1]),
    ]);
    const same = replaced(
      base,
      ...topic('b', id(2), [1]),
      ...topic('a', id(1), [1]),
      registration(true),
    );
    assert.equal(same.changedBrokers.size, 0);
    assert.equal(same.changedTopics.size, 0);
    assert.deepEqual([same.deletedTopics, same.changedConfigs], [[], []]);
    assert.equal(same.image.brokers.get(1), base.brokers.get(1));
  });
});
