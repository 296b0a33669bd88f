/**
 * API 78, ShareFetch.
 *
 * Acquires records for a share group, and acknowledges earlier ones (KIP-932).
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  records,
  string,
  struct,
  uuid,
} from '../schema.ts';

/** Request of API 78, versions 1-2. */
export const ShareFetchRequest = message({
  apiKey: 78,
  name: 'ShareFetchRequest',
  type: 'request',
  validVersions: '1-2',
  flexibleVersions: '0+',
  fields: {
    groupId: nullable(string('0+'), '0+', { default: null }),
    memberId: nullable(string('0+'), '0+'),
    shareSessionEpoch: int32('0+'),
    maxWaitMs: int32('0+'),
    minBytes: int32('0+'),
    maxBytes: int32('0+', { default: 0x7fffffff }),
    maxRecords: int32('1+'),
    batchSize: int32('1+'),
    shareAcquireMode: int8('2+', { default: 0, ignorable: true }),
    isRenewAck: bool('2+', { default: false }),
    topics: array('0+', {
      topicId: uuid('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        partitionMaxBytes: int32('0'),
        acknowledgementBatches: array('0+', {
          firstOffset: int64('0+'),
          lastOffset: int64('0+'),
          acknowledgeTypes: array('0+', int8),
        }),
      }),
    }),
    forgottenTopicsData: array('0+', {
      topicId: uuid('0+'),
      partitions: array('0+', int32),
    }),
  },
});
/** A decoded {@link ShareFetchRequest}. */
export type ShareFetchRequest = MessageOf<typeof ShareFetchRequest>;

/** Response of API 78. */
export const ShareFetchResponse = message({
  apiKey: 78,
  name: 'ShareFetchResponse',
  type: 'response',
  validVersions: '1-2',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+', { default: null }),
    acquisitionLockTimeoutMs: int32('1+'),
    responses: array('0+', {
      topicId: uuid('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+', { default: null }),
        acknowledgeErrorCode: int16('0+'),
        acknowledgeErrorMessage: nullable(string('0+'), '0+', { default: null }),
        currentLeader: struct('0+', {
          leaderId: int32('0+'),
          leaderEpoch: int32('0+'),
        }),
        records: nullable(records('0+'), '0'),
        acquiredRecords: array('0+', {
          firstOffset: int64('0+'),
          lastOffset: int64('0+'),
          deliveryCount: int16('0+'),
        }),
      }),
    }),
    nodeEndpoints: array('0+', {
      nodeId: int32('0+'),
      host: string('0+'),
      port: int32('0+'),
      rack: nullable(string('0+'), '0+', { default: null }),
    }),
  },
});
/** A decoded {@link ShareFetchResponse}. */
export type ShareFetchResponse = MessageOf<typeof ShareFetchResponse>;
