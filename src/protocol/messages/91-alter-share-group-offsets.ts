/**
 * API 91, AlterShareGroupOffsets.
 *
 * Sets where a share group starts.
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

/** Request of API 91, version 0. */
export const AlterShareGroupOffsetsRequest = message({
  apiKey: 91,
  name: 'AlterShareGroupOffsetsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    groupId: string('0+'),
    topics: array('0+', {
      topicName: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        startOffset: int64('0+'),
      }),
    }),
  },
});
/** A decoded {@link AlterShareGroupOffsetsRequest}. */
export type AlterShareGroupOffsetsRequest = MessageOf<typeof AlterShareGroupOffsetsRequest>;

/** Response of API 91. */
export const AlterShareGroupOffsetsResponse = message({
  apiKey: 91,
  name: 'AlterShareGroupOffsetsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+', { default: null }),
    responses: array('0+', {
      topicName: string('0+'),
      topicId: uuid('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+', { default: null }),
      }),
    }),
  },
});
/** A decoded {@link AlterShareGroupOffsetsResponse}. */
export type AlterShareGroupOffsetsResponse = MessageOf<typeof AlterShareGroupOffsetsResponse>;
