/**
 * API 47, OffsetDelete.
 *
 * Deletes a group’s offsets.
 */
import { array, int16, int32, type MessageOf, message, string } from '../schema.ts';

/** Request of API 47, version 0. */
export const OffsetDeleteRequest = message({
  apiKey: 47,
  name: 'OffsetDeleteRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    groupId: string('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
      }),
    }),
  },
});
/** A decoded {@link OffsetDeleteRequest}. */
export type OffsetDeleteRequest = MessageOf<typeof OffsetDeleteRequest>;

/** Response of API 47. */
export const OffsetDeleteResponse = message({
  apiKey: 47,
  name: 'OffsetDeleteResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    errorCode: int16('0+'),
    throttleTimeMs: int32('0+', { ignorable: true }),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link OffsetDeleteResponse}. */
export type OffsetDeleteResponse = MessageOf<typeof OffsetDeleteResponse>;
