/**
 * API 27, WriteTxnMarkers.
 *
 * Writes commit or abort markers, from coordinator to partition leaders.
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64Exact,
  type MessageOf,
  message,
  string,
} from '../schema.ts';

/** Request of API 27, versions 1-2. */
export const WriteTxnMarkersRequest = message({
  apiKey: 27,
  name: 'WriteTxnMarkersRequest',
  type: 'request',
  validVersions: '1-2',
  flexibleVersions: '1+',
  fields: {
    markers: array('0+', {
      producerId: int64Exact('0+'),
      producerEpoch: int16('0+'),
      transactionResult: bool('0+'),
      topics: array('0+', {
        name: string('0+'),
        partitionIndexes: array('0+', int32),
      }),
      coordinatorEpoch: int32('0+'),
      transactionVersion: int8('2+', { default: 0, ignorable: true }),
    }),
  },
});
/** A decoded {@link WriteTxnMarkersRequest}. */
export type WriteTxnMarkersRequest = MessageOf<typeof WriteTxnMarkersRequest>;

/** Response of API 27. */
export const WriteTxnMarkersResponse = message({
  apiKey: 27,
  name: 'WriteTxnMarkersResponse',
  type: 'response',
  validVersions: '1-2',
  flexibleVersions: '1+',
  fields: {
    markers: array('0+', {
      producerId: int64Exact('0+'),
      topics: array('0+', {
        name: string('0+'),
        partitions: array('0+', {
          partitionIndex: int32('0+'),
          errorCode: int16('0+'),
        }),
      }),
    }),
  },
});
/** A decoded {@link WriteTxnMarkersResponse}. */
export type WriteTxnMarkersResponse = MessageOf<typeof WriteTxnMarkersResponse>;
