/**
 * API 28, TxnOffsetCommit.
 *
 * Stores a group’s offsets within a transaction.
 */
import {
  array,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 28, versions 0-5. */
export const TxnOffsetCommitRequest = message({
  apiKey: 28,
  name: 'TxnOffsetCommitRequest',
  type: 'request',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    transactionalId: string('0+'),
    groupId: string('0+'),
    producerId: int64Exact('0+'),
    producerEpoch: int16('0+'),
    generationId: int32('3+', { default: -1 }),
    memberId: string('3+', { default: '' }),
    groupInstanceId: nullable(string('3+'), '3+', { default: null }),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        committedOffset: int64('0+'),
        committedLeaderEpoch: int32('2+', { default: -1, ignorable: true }),
        committedMetadata: nullable(string('0+'), '0+'),
      }),
    }),
  },
});
/** A decoded {@link TxnOffsetCommitRequest}. */
export type TxnOffsetCommitRequest = MessageOf<typeof TxnOffsetCommitRequest>;

/** Response of API 28. */
export const TxnOffsetCommitResponse = message({
  apiKey: 28,
  name: 'TxnOffsetCommitResponse',
  type: 'response',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    throttleTimeMs: int32('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link TxnOffsetCommitResponse}. */
export type TxnOffsetCommitResponse = MessageOf<typeof TxnOffsetCommitResponse>;
