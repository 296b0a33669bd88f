/**
 * Metadata records about the cluster: configs, features, producer id blocks, metadata transactions.
 *
 * In the log a frame version, the record type (`apiKey`) and the record version precede each.
 */
import {
  int8,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  nullable,
  string,
  tagged,
} from '../../protocol/schema.ts';

/** Metadata record type 4. */
export const ConfigRecord = message({
  apiKey: 4,
  name: 'ConfigRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    resourceType: int8('0+'),
    resourceName: string('0+'),
    name: string('0+'),
    value: nullable(string('0+'), '0+'),
  },
});
/** A decoded {@link ConfigRecord}. */
export type ConfigRecord = MessageOf<typeof ConfigRecord>;

/** Metadata record type 12. */
export const FeatureLevelRecord = message({
  apiKey: 12,
  name: 'FeatureLevelRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    name: string('0+'),
    featureLevel: int16('0+'),
  },
});
/** A decoded {@link FeatureLevelRecord}. */
export type FeatureLevelRecord = MessageOf<typeof FeatureLevelRecord>;

/** Metadata record type 15. */
export const ProducerIdsRecord = message({
  apiKey: 15,
  name: 'ProducerIdsRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+', { default: -1 }),
    nextProducerId: int64Exact('0+'),
  },
});
/** A decoded {@link ProducerIdsRecord}. */
export type ProducerIdsRecord = MessageOf<typeof ProducerIdsRecord>;

/** Metadata record type 20. */
export const NoOpRecord = message({
  apiKey: 20,
  name: 'NoOpRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {},
});
/** A decoded {@link NoOpRecord}. */
export type NoOpRecord = MessageOf<typeof NoOpRecord>;

/** Metadata record type 23. */
export const BeginTransactionRecord = message({
  apiKey: 23,
  name: 'BeginTransactionRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    name: tagged(nullable(string('0+'), '0+', { default: null }), 0, '0+'),
  },
});
/** A decoded {@link BeginTransactionRecord}. */
export type BeginTransactionRecord = MessageOf<typeof BeginTransactionRecord>;

/** Metadata record type 24. */
export const EndTransactionRecord = message({
  apiKey: 24,
  name: 'EndTransactionRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {},
});
/** A decoded {@link EndTransactionRecord}. */
export type EndTransactionRecord = MessageOf<typeof EndTransactionRecord>;

/** Metadata record type 25. */
export const AbortTransactionRecord = message({
  apiKey: 25,
  name: 'AbortTransactionRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    reason: tagged(nullable(string('0+'), '0+', { default: null }), 0, '0+'),
  },
});
/** A decoded {@link AbortTransactionRecord}. */
export type AbortTransactionRecord = MessageOf<typeof AbortTransactionRecord>;
