/**
 * The image: what each record does to it, what two images share, and that the way a log is cut into
 * batches does not matter.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../src/base/assert.ts';
import type { Uuid } from '../../src/base/uuid.ts';
import { ConfigResourceType, emptyImage, type MetadataImage } from '../../src/metadata/image.ts';
import { applyRecords } from '../../src/metadata/image-delta.ts';
import { type MetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import { placeRecords } from '../../src/metadata/transaction-buffer.ts';
import { propertyRuns } from '../property-runs.ts';
import { broker, CLUSTER_ID, config, id, imageOf, topic } from './harness.ts';

const { TOPIC, MIRROR, BROKER } = ConfigResourceType;

function change(
  topicId: Uuid,
  partitionId: number,
  fields: { leader?: number; isr?: number[] },
): MetadataRecord {
  return metadataRecord('PartitionChangeRecord', { topicId, partitionId, ...fields });
}

function deltaOf(image: MetadataImage, ...records: MetadataRecord[]) {
  const lastOffset = image.offset + records.length;
  return applyRecords(image, placeRecords(records, lastOffset), lastOffset, 1);
}

describe('metadata image', () => {
  const base = imageOf([
    broker(1),
    ...topic('a', id(1), [1, 2]),
    ...topic('b', id(2), [1]),
    config(TOPIC, 'a', 'retention.ms', '5'),
    config(TOPIC, 'b', 'mirror.name', 'm'),
  ]);

  it('raises the leader epoch exactly when a leader is set, the partition epoch always', () => {
    const rows: [fields: { leader?: number; isr?: number[] }, leaderEpoch: number][] = [
      [{ isr: [1] }, 0],
      [{ leader: 1 }, 1],
      [{ leader: -1 }, 1],
      [{ leader: 2, isr: [2] }, 1],
    ];
    for (const [fields, leaderEpoch] of rows) {
      const partition = deltaOf(base, change(id(1), 0, fields))
        .image.topicsByName.get('a')
        ?.partitions.get(0);
      assert.equal(partition?.leaderEpoch, leaderEpoch);
      assert.equal(partition?.partitionEpoch, 1);
      assert.equal(partition?.leader, fields.leader ?? 1);
      assert.deepEqual(partition?.isr, fields.isr ?? [1, 2]);
    }
  });

  it('shares what a batch does not change, and names what it does', () => {
    const delta = deltaOf(base, change(id(1), 0, { isr: [1] }));
    const { image, previous } = delta;
    assert.equal(previous, base);
    assert.deepEqual([...delta.changedTopics], [id(1)]);
    assert.equal(image.topicsByName.get('b'), base.topicsByName.get('b'));
    assert.notEqual(image.topicsByName.get('a'), base.topicsByName.get('a'));
    assert.equal(image.topicsByName.get('a'), image.topicsById.get(id(1)));
    assert.equal(image.configsByResource, base.configsByResource);
    assert.equal(image.brokers, base.brokers);
    assert.equal(image.memberships, base.memberships);
    assert.deepEqual(base.topicsByName.get('a')?.partitions.get(0)?.isr, [1, 2]);
  });

  it('S7: keeps the metadata offset of the last membership record', () => {
    assert.deepEqual(base.membership('b'), { mirror: 'm', removed: false, offset: 6 });
    assert.equal(base.membership('a'), undefined);
    const removed = deltaOf(base, config(TOPIC, 'b', 'mirror.name', 'm.removed')).image;
    assert.deepEqual(removed.membership('b'), { mirror: 'm', removed: true, offset: 7 });
    const again = deltaOf(removed, config(TOPIC, 'b', 'mirror.name', 'm.removed')).image;
    assert.equal(again.membership('b')?.offset, 8);
  });

  it('O2: an empty or deleted mirror.name is no membership', () => {
    for (const value of ['', null]) {
      const image = deltaOf(base, config(TOPIC, 'b', 'mirror.name', value)).image;
      assert.equal(image.membership('b'), undefined);
    }
  });

  it('removes a topic with its configs and its membership', () => {
    const remove = metadataRecord('RemoveTopicRecord', { topicId: id(2) });
    const delta = deltaOf(base, config(TOPIC, 'b', 'retention.ms', '1'), remove);
    assert.deepEqual(delta.deletedTopics, [base.topicsByName.get('b')]);
    assert.deepEqual(delta.changedConfigs, []);
    assert.equal(delta.image.topicsById.has(id(2)), false);
    assert.equal(delta.image.topicsByName.has('b'), false);
    assert.equal(delta.image.configs(TOPIC, 'b').size, 0);
    assert.equal(delta.image.membership('b'), undefined);
  });

  it('does not report a topic that came and went within the delta', () => {
    const remove = metadataRecord('RemoveTopicRecord', { topicId: id(3) });
    const delta = deltaOf(base, ...topic('c', id(3), [1]), remove);
    assert.deepEqual(delta.deletedTopics, []);
    assert.deepEqual([...delta.changedTopics], []);
  });

  it('names changed configs once and drops resources without overrides', () => {
    const delta = deltaOf(
      base,
      config(TOPIC, 'a', 'retention.ms', null),
      config(MIRROR, 'm', 'bootstrap.servers', 'h:1'),
      config(MIRROR, 'm', 'request.timeout.ms', '2'),
    );
    assert.deepEqual(delta.changedConfigs, [
      { type: TOPIC, name: 'a' },
      { type: MIRROR, name: 'm' },
    ]);
    assert.equal(delta.image.configsByResource.has('2:a'), false);
    assert.deepEqual(
      [...delta.image.configs(MIRROR, 'm').keys()],
      ['bootstrap.servers', 'request.timeout.ms'],
    );
    assert.deepEqual([...base.configs(TOPIC, 'a')], [['retention.ms', '5']]);
  });

  it('applies registration changes to the registration of that epoch only', () => {
    const fence = (brokerEpoch: number) =>
      metadataRecord('BrokerRegistrationChangeRecord', { brokerId: 1, brokerEpoch, fenced: 1 });
    const delta = deltaOf(base, fence(101));
    assert.equal(delta.image.brokers.get(1)?.fenced, true);
    assert.deepEqual([...delta.changedBrokers], [1]);
    assert.throws(() => deltaOf(base, fence(99)), Fault);
  });

  it('takes records that cannot be for a Fault: a log has one writer', () => {
    assert.throws(() => deltaOf(base, ...topic('a', id(9), [1])), Fault);
    assert.throws(() => deltaOf(base, ...topic('z', id(1), [1])), Fault);
    assert.throws(() => deltaOf(base, change(id(7), 0, { leader: 1 })), Fault);
    assert.throws(() => deltaOf(base, change(id(1), 7, { leader: 1 })), Fault);
  });

  it('clears eligible leaders as a change of each partition that has any', () => {
    const elr = (topicId: Uuid, lastKnownElr: number[]): MetadataRecord =>
      metadataRecord('PartitionChangeRecord', { topicId, partitionId: 0, lastKnownElr });
    const with2 = deltaOf(base, elr(id(1), [2])).image;
    const both = deltaOf(with2, elr(id(2), [1])).image;
    const clear = (topicName: string): MetadataRecord =>
      metadataRecord('ClearElrRecord', { topicName });
    const state = (image: MetadataImage) =>
      ['a', 'b'].map((name) => {
        const partition = image.topicsByName.get(name)?.partitions.get(0);
        return [partition?.lastKnownElr, partition?.partitionEpoch, partition?.leaderEpoch];
      });
    assert.deepEqual(state(both), [
      [[2], 1, 0],
      [[1], 1, 0],
    ]);
    const one = deltaOf(both, clear('a'));
    assert.deepEqual(state(one.image), [
      [[], 2, 0],
      [[1], 1, 0],
    ]);
    assert.deepEqual([...one.changedTopics], [id(1)]);
    // All topics: only those that have some change.
    const all = deltaOf(one.image, clear(''));
    assert.deepEqual(state(all.image), [
      [[], 2, 0],
      [[], 2, 0],
    ]);
    assert.deepEqual([...all.changedTopics], [id(2)]);
  });

  it('G7: keeps the cordoned directories until a record says otherwise', () => {
    const change = (fields: { fenced?: number; cordonedLogDirs?: Uuid[] }): MetadataRecord => ({
      ...metadataRecord('BrokerRegistrationChangeRecord', {
        brokerId: 1,
        brokerEpoch: 101,
        ...fields,
      }),
      version: 3,
    });
    const cordoned = (image: MetadataImage) => image.brokers.get(1)?.cordonedLogDirs;
    assert.deepEqual(cordoned(base), []);
    const on = deltaOf(base, change({ cordonedLogDirs: [id(2001)] })).image;
    assert.deepEqual(cordoned(on), [id(2001)]);
    const fenced = deltaOf(on, change({ fenced: 1 })).image;
    assert.deepEqual([cordoned(fenced), fenced.brokers.get(1)?.fenced], [[id(2001)], true]);
    assert.deepEqual(cordoned(deltaOf(fenced, change({ cordonedLogDirs: [] })).image), []);
  });
});

/** Makes a record that is legal after `image`, from three arbitrary numbers. */
function legalRecord(image: MetadataImage, kind: number, a: number, b: number): MetadataRecord {
  const name = `t${a % 5}`;
  const existing = image.topicsByName.get(name);
  const partition = existing?.partitions.get(0);
  switch (kind % 7) {
    case 0:
      if (existing !== undefined) break;
      // Ids are never used again, as in a real log.
      return metadataRecord('TopicRecord', { name, topicId: id(image.offset + 1) });
    case 1:
      if (existing === undefined) break;
      return topic(name, existing.id, [b % 3])[1] as MetadataRecord;
    case 2:
      if (existing === undefined || partition === undefined) break;
      return change(existing.id, 0, b % 2 === 0 ? { leader: b % 3 } : { isr: [b % 3] });
    case 3:
      if (existing === undefined || b % 3 !== 0) break;
      return metadataRecord('RemoveTopicRecord', { topicId: existing.id });
    case 4:
      if (existing === undefined) break;
      return config(TOPIC, name, 'mirror.name', ['m', 'm.removed', '', null][b % 4] ?? null);
    case 5:
      return broker(b % 3, { fenced: a % 2 === 0 });
    default:
      break;
  }
  return config(BROKER, String(a % 3), `k${b % 3}`, b % 2 === 0 ? String(b) : null);
}

describe('replay', () => {
  it('gives the same image whether records come one by one, in batches, or all at once', () => {
    const step = fc.tuple(fc.nat(50), fc.nat(50), fc.nat(50));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), fc.integer({ min: 2, max: 9 }), (steps, n) => {
        let oneByOne = emptyImage(CLUSTER_ID);
        const records: MetadataRecord[] = [];
        for (const [kind, a, b] of steps) {
          const record = legalRecord(oneByOne, kind, a, b);
          records.push(record);
          oneByOne = imageOf([record], oneByOne);
        }
        let inBatches = emptyImage(CLUSTER_ID);
        for (let i = 0; i < records.length; i += n) {
          inBatches = imageOf(records.slice(i, i + n), inBatches);
        }
        assert.deepEqual(inBatches, oneByOne);
        if (records.length > 0) assert.deepEqual(imageOf(records), oneByOne);
      }),
      propertyRuns(200),
    );
  });
});
