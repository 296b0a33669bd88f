/**
 * API 9, OffsetFetch.
 *
 * Reads a group’s offsets; batched over groups since version 8.
 */
import {
  array,
  bool,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  uuid,
} from '../schema.ts';

/** Request of API 9, versions 1-10. */
export const OffsetFetchRequest = message({
  apiKey: 9,
  name: 'OffsetFetchRequest',
  type: 'request',
  validVersions: '1-10',
  flexibleVersions: '6+',
  fields: {
    groupId: string('0-7'),
    topics: nullable(
      array('0-7', {
        name: string('0-7'),
        partitionIndexes: array('0-7', int32),
      }),
      '2-7',
    ),
    groups: array('8+', {
      groupId: string('8+'),
      memberId: nullable(string('9+', { ignorable: true }), '9+', { default: null }),
      memberEpoch: int32('9+', { default: -1, ignorable: true }),
      topics: nullable(
        array('8+', {
          name: string('8-9', { ignorable: true }),
          topicId: uuid('10+', { ignorable: true }),
          partitionIndexes: array('8+', int32),
        }),
        '8+',
      ),
    }),
    requireStable: bool('7+', { default: false }),
  },
});
/** A decoded {@link OffsetFetchRequest}. */
export type OffsetFetchRequest = MessageOf<typeof OffsetFetchRequest>;

/** Response of API 9. */
export const OffsetFetchResponse = message({
  apiKey: 9,
  name: 'OffsetFetchResponse',
  type: 'response',
  validVersions: '1-10',
  flexibleVersions: '6+',
  fields: {
    throttleTimeMs: int32('3+', { ignorable: true }),
    topics: array('0-7', {
      name: string('0-7'),
      partitions: array('0-7', {
        partitionIndex: int32('0-7'),
        committedOffset: int64('0-7'),
        committedLeaderEpoch: int32('5-7', { default: -1, ignorable: true }),
        metadata: nullable(string('0-7'), '0-7'),
        errorCode: int16('0-7'),
      }),
    }),
    errorCode: int16('2-7', { default: 0, ignorable: true }),
    groups: array('8+', {
      groupId: string('8+'),
      topics: array('8+', {
        name: string('8-9', { ignorable: true }),
        topicId: uuid('10+', { ignorable: true }),
        partitions: array('8+', {
          partitionIndex: int32('8+'),
          committedOffset: int64('8+'),
          committedLeaderEpoch: int32('8+', { default: -1, ignorable: true }),
          metadata: nullable(string('8+'), '8+'),
          errorCode: int16('8+'),
        }),
      }),
      errorCode: int16('8+', { default: 0 }),
    }),
  },
});
/** A decoded {@link OffsetFetchResponse}. */
export type OffsetFetchResponse = MessageOf<typeof OffsetFetchResponse>;
