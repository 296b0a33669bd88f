/**
 * API 79, ShareAcknowledge.
 *
 * Acknowledges records that were acquired for a share group (KIP-932).
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
  string,
  struct,
  uuid,
} from '../schema.ts';

/** Request of API 79, versions 1-2. */
export const ShareAcknowledgeRequest = message({
  apiKey: 79,
  name: 'ShareAcknowledgeRequest',
  type: 'request',
  validVersions: '1-2',
  flexibleVersions: '0+',
  fields: {
    groupId: nullable(string('0+'), '0+', { default: null }),
    memberId: nullable(string('0+'), '0+'),
    shareSessionEpoch: int32('0+'),
    isRenewAck: bool('2+', { default: false }),
    topics: array('0+', {
      topicId: uuid('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        acknowledgementBatches: array('0+', {
          firstOffset: int64('0+'),
          lastOffset: int64('0+'),
          acknowledgeTypes: array('0+', int8),
        }),
      }),
    }),
  },
});
/** A decoded {@link ShareAcknowledgeRequest}. */
export type ShareAcknowledgeRequest = MessageOf<typeof ShareAcknowledgeRequest>;

/** Response of API 79. */
export const ShareAcknowledgeResponse = message({
  apiKey: 79,
  name: 'ShareAcknowledgeResponse',
  type: 'response',
  validVersions: '1-2',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+', { default: null }),
    acquisitionLockTimeoutMs: int32('2+', { ignorable: true }),
    responses: array('0+', {
      topicId: uuid('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+', { default: null }),
        currentLeader: struct('0+', {
          leaderId: int32('0+'),
          leaderEpoch: int32('0+'),
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
/** A decoded {@link ShareAcknowledgeResponse}. */
export type ShareAcknowledgeResponse = MessageOf<typeof ShareAcknowledgeResponse>;
