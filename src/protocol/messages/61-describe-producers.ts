/**
 * API 61, DescribeProducers.
 *
 * Active producers of partitions.
 */
import {
  array,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 61, version 0. */
export const DescribeProducersRequest = message({
  apiKey: 61,
  name: 'DescribeProducersRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    topics: array('0+', {
      name: string('0+'),
      partitionIndexes: array('0+', int32),
    }),
  },
});
/** A decoded {@link DescribeProducersRequest}. */
export type DescribeProducersRequest = MessageOf<typeof DescribeProducersRequest>;

/** Response of API 61. */
export const DescribeProducersResponse = message({
  apiKey: 61,
  name: 'DescribeProducersResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+', { default: null }),
        activeProducers: array('0+', {
          producerId: int64Exact('0+'),
          producerEpoch: int32('0+'),
          lastSequence: int32('0+', { default: -1 }),
          lastTimestamp: int64Exact('0+', { default: -1n }),
          coordinatorEpoch: int32('0+'),
          currentTxnStartOffset: int64('0+', { default: -1 }),
        }),
      }),
    }),
  },
});
/** A decoded {@link DescribeProducersResponse}. */
export type DescribeProducersResponse = MessageOf<typeof DescribeProducersResponse>;
