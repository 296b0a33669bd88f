/**
 * API 92, DeleteShareGroupOffsets.
 *
 * Forgets where a share group starts in topics.
 */
import { array, int16, int32, type MessageOf, message, nullable, string, uuid } from '../schema.ts';

/** Request of API 92, version 0. */
export const DeleteShareGroupOffsetsRequest = message({
  apiKey: 92,
  name: 'DeleteShareGroupOffsetsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    groupId: string('0+'),
    topics: array('0+', {
      topicName: string('0+'),
    }),
  },
});
/** A decoded {@link DeleteShareGroupOffsetsRequest}. */
export type DeleteShareGroupOffsetsRequest = MessageOf<typeof DeleteShareGroupOffsetsRequest>;

/** Response of API 92. */
export const DeleteShareGroupOffsetsResponse = message({
  apiKey: 92,
  name: 'DeleteShareGroupOffsetsResponse',
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
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+', { default: null }),
    }),
  },
});
/** A decoded {@link DeleteShareGroupOffsetsResponse}. */
export type DeleteShareGroupOffsetsResponse = MessageOf<typeof DeleteShareGroupOffsetsResponse>;
