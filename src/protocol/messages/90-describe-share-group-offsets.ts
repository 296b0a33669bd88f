/**
 * API 90, DescribeShareGroupOffsets.
 *
 * Where share groups start in their partitions.
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

/** Request of API 90, versions 0-1. */
export const DescribeShareGroupOffsetsRequest = message({
  apiKey: 90,
  name: 'DescribeShareGroupOffsetsRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    groups: array('0+', {
      groupId: string('0+'),
      topics: nullable(
        array('0+', {
          topicName: string('0+'),
          partitions: array('0+', int32),
        }),
        '0+',
      ),
    }),
  },
});
/** A decoded {@link DescribeShareGroupOffsetsRequest}. */
export type DescribeShareGroupOffsetsRequest = MessageOf<typeof DescribeShareGroupOffsetsRequest>;

/** Response of API 90. */
export const DescribeShareGroupOffsetsResponse = message({
  apiKey: 90,
  name: 'DescribeShareGroupOffsetsResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    groups: array('0+', {
      groupId: string('0+'),
      topics: array('0+', {
        topicName: string('0+'),
        topicId: uuid('0+'),
        partitions: array('0+', {
          partitionIndex: int32('0+'),
          startOffset: int64('0+'),
          leaderEpoch: int32('0+'),
          lag: int64('1+', { default: -1, ignorable: true }),
          errorCode: int16('0+'),
          errorMessage: nullable(string('0+'), '0+', { default: null }),
        }),
      }),
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+', { default: null }),
    }),
  },
});
/** A decoded {@link DescribeShareGroupOffsetsResponse}. */
export type DescribeShareGroupOffsetsResponse = MessageOf<typeof DescribeShareGroupOffsetsResponse>;
