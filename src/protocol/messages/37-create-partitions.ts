/**
 * API 37, CreatePartitions.
 *
 * Adds partitions to topics.
 */
import { array, bool, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 37, versions 0-3. */
export const CreatePartitionsRequest = message({
  apiKey: 37,
  name: 'CreatePartitionsRequest',
  type: 'request',
  validVersions: '0-3',
  flexibleVersions: '2+',
  fields: {
    topics: array('0+', {
      name: string('0+'),
      count: int32('0+'),
      assignments: nullable(
        array('0+', {
          brokerIds: array('0+', int32),
        }),
        '0+',
      ),
    }),
    timeoutMs: int32('0+'),
    validateOnly: bool('0+'),
  },
});
/** A decoded {@link CreatePartitionsRequest}. */
export type CreatePartitionsRequest = MessageOf<typeof CreatePartitionsRequest>;

/** Response of API 37. */
export const CreatePartitionsResponse = message({
  apiKey: 37,
  name: 'CreatePartitionsResponse',
  type: 'response',
  validVersions: '0-3',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    results: array('0+', {
      name: string('0+'),
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+', { default: null }),
    }),
  },
});
/** A decoded {@link CreatePartitionsResponse}. */
export type CreatePartitionsResponse = MessageOf<typeof CreatePartitionsResponse>;
