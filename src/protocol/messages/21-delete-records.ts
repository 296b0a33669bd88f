/**
 * API 21, DeleteRecords.
 *
 * Raises the log start offset.
 */
import { array, int16, int32, int64, type MessageOf, message, string } from '../schema.ts';

/** Request of API 21, versions 0-2. */
export const DeleteRecordsRequest = message({
  apiKey: 21,
  name: 'DeleteRecordsRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        offset: int64('0+'),
      }),
    }),
    timeoutMs: int32('0+'),
  },
});
/** A decoded {@link DeleteRecordsRequest}. */
export type DeleteRecordsRequest = MessageOf<typeof DeleteRecordsRequest>;

/** Response of API 21. */
export const DeleteRecordsResponse = message({
  apiKey: 21,
  name: 'DeleteRecordsResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        lowWatermark: int64('0+'),
        errorCode: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link DeleteRecordsResponse}. */
export type DeleteRecordsResponse = MessageOf<typeof DeleteRecordsResponse>;
