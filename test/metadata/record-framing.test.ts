/**
 * The bytes of metadata records: what is written is read back, what is not understood is kept or
 * refused.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MalformedBytes } from '../../src/base/bytes.ts';
import {
  decodeMetadataRecord,
  encodeMetadataRecord,
  type MetadataRecord,
  metadataRecord,
} from '../../src/metadata/record-framing.ts';
import { broker, config, id, topic } from './harness.ts';

function newer(record: MetadataRecord, version: number): MetadataRecord {
  return { ...record, version };
}

const registration = {
  brokerId: 1,
  incarnationId: id(1),
  brokerEpoch: 7,
  endPoints: [],
  features: [],
  rack: null,
  logDirs: [id(9)],
};

describe('metadata record framing', () => {
  const records: MetadataRecord[] = [
    broker(1, { rack: 'r1', fenced: true }),
    ...topic('t', id(1), [1, 2], [2, 1]),
    config(2, 't', 'retention.ms', '1'),
    config(2, 't', 'retention.ms', null),
    metadataRecord('PartitionChangeRecord', { partitionId: 1, topicId: id(1), leader: -1 }),
    metadataRecord('PartitionChangeRecord', {
      partitionId: 1,
      topicId: id(1),
      isr: [2],
      replicas: [2, 3],
      directories: [id(8), id(9)],
    }),
    metadataRecord('BrokerRegistrationChangeRecord', { brokerId: 1, brokerEpoch: 7, fenced: -1 }),
    metadataRecord('FeatureLevelRecord', { name: 'metadata.version', featureLevel: 29 }),
    metadataRecord('ProducerIdsRecord', {
      brokerId: 1,
      brokerEpoch: 7,
      nextProducerId: 2n ** 60n,
    }),
    metadataRecord('RemoveTopicRecord', { topicId: id(1) }),
    metadataRecord('UnregisterBrokerRecord', { brokerId: 1, brokerEpoch: 7 }),
    metadataRecord('BeginTransactionRecord', { name: 'x' }),
    metadataRecord('EndTransactionRecord', {}),
    metadataRecord('AbortTransactionRecord', {}),
    metadataRecord('NoOpRecord', {}),
    metadataRecord('ClearElrRecord', { topicName: 't' }),
    // As Apache Kafka 4.3 writes them.
    newer(metadataRecord('RegisterBrokerRecord', { ...registration, cordonedLogDirs: [id(9)] }), 4),
    newer(metadataRecord('RegisterBrokerRecord', { ...registration, cordonedLogDirs: null }), 4),
    newer(
      metadataRecord('BrokerRegistrationChangeRecord', {
        brokerId: 1,
        brokerEpoch: 7,
        cordonedLogDirs: [],
      }),
      3,
    ),
  ];

  for (const [index, record] of records.entries()) {
    it(`reads back what it wrote: ${record.type} (${index})`, () => {
      assert.deepEqual(decodeMetadataRecord(encodeMetadataRecord(record)), record);
    });
  }

  it('frames a record as version 1, type, record version, message', () => {
    const bytes = encodeMetadataRecord(records[5] as MetadataRecord);
    assert.deepEqual([...bytes.subarray(0, 3)], [1, 4, 0]);
  });

  it('keeps a record of a type it does not act on as bytes', () => {
    const bytes = Uint8Array.of(1, 10, 0, 7, 7, 7);
    const record = decodeMetadataRecord(bytes);
    assert.equal(record.type, 'UnknownRecord');
    assert.deepEqual(encodeMetadataRecord(record), bytes);
  });

  it('refuses a record version newer than it knows, and another frame version', () => {
    assert.throws(() => decodeMetadataRecord(Uint8Array.of(1, 2, 9)), MalformedBytes);
    assert.throws(() => decodeMetadataRecord(Uint8Array.of(2, 2, 0)), MalformedBytes);
    assert.throws(() => decodeMetadataRecord(Uint8Array.of()), MalformedBytes);
  });
});
