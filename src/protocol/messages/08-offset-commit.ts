/**
 * API 8, OffsetCommit.
 *
 * Stores a group’s offsets.
 */
import {
  array,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  uuid,
} from '../schema.ts';

/** Request of API 8, versions 2-10. */
export const OffsetCommitRequest = message({
  apiKey: 8,
  name: 'OffsetCommitRequest',
  type: 'request',
  validVersions: '2-10',
  flexibleVersions: '8+',
  fields: {
    groupId: string('0+'),
    generationIdOrMemberEpoch: int32('1+', { default: -1, ignorable: true }),
    memberId: string('1+', { ignorable: true }),
    groupInstanceId: nullable(string('7+'), '7+', { default: null }),
    retentionTimeMs: int64('2-4', { default: -1, ignorable: true }),
    topics: array('0+', {
      name: string('0-9', { ignorable: true }),
      topicId: uuid('10+', { ignorable: true }),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        committedOffset: int64('0+'),
        committedLeaderEpoch: int32('6+', { default: -1, ignorable: true }),
        committedMetadata: nullable(string('0+'), '0+'),
      }),
    }),
  },
});
/** A decoded {@link OffsetCommitRequest}. */
export type OffsetCommitRequest = MessageOf<typeof OffsetCommitRequest>;

/** Response of API 8. */
export const OffsetCommitResponse = message({
  apiKey: 8,
  name: 'OffsetCommitResponse',
  type: 'response',
  validVersions: '2-10',
  flexibleVersions: '8+',
  fields: {
    throttleTimeMs: int32('3+', { ignorable: true }),
    topics: array('0+', {
      name: string('0-9', { ignorable: true }),
      topicId: uuid('10+', { ignorable: true }),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link OffsetCommitResponse}. */
export type OffsetCommitResponse = MessageOf<typeof OffsetCommitResponse>;
