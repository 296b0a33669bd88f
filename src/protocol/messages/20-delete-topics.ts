/**
 * API 20, DeleteTopics.
 *
 * Deletes topics by name or by id.
 */
import { array, int16, int32, type MessageOf, message, nullable, string, uuid } from '../schema.ts';

/** Request of API 20, versions 1-6. */
export const DeleteTopicsRequest = message({
  apiKey: 20,
  name: 'DeleteTopicsRequest',
  type: 'request',
  validVersions: '1-6',
  flexibleVersions: '4+',
  fields: {
    topics: array('6+', {
      name: nullable(string('6+'), '6+', { default: null }),
      topicId: uuid('6+'),
    }),
    topicNames: array('0-5', string, { ignorable: true }),
    timeoutMs: int32('0+'),
  },
});
/** A decoded {@link DeleteTopicsRequest}. */
export type DeleteTopicsRequest = MessageOf<typeof DeleteTopicsRequest>;

/** Response of API 20. */
export const DeleteTopicsResponse = message({
  apiKey: 20,
  name: 'DeleteTopicsResponse',
  type: 'response',
  validVersions: '1-6',
  flexibleVersions: '4+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    responses: array('0+', {
      name: nullable(string('0+'), '6+'),
      topicId: uuid('6+', { ignorable: true }),
      errorCode: int16('0+'),
      errorMessage: nullable(string('5+', { ignorable: true }), '5+', { default: null }),
    }),
  },
});
/** A decoded {@link DeleteTopicsResponse}. */
export type DeleteTopicsResponse = MessageOf<typeof DeleteTopicsResponse>;
