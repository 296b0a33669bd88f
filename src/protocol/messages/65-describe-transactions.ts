/**
 * API 65, DescribeTransactions.
 *
 * State of transactions.
 */
import {
  array,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  string,
} from '../schema.ts';

/** Request of API 65, version 0. */
export const DescribeTransactionsRequest = message({
  apiKey: 65,
  name: 'DescribeTransactionsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    transactionalIds: array('0+', string),
  },
});
/** A decoded {@link DescribeTransactionsRequest}. */
export type DescribeTransactionsRequest = MessageOf<typeof DescribeTransactionsRequest>;

/** Response of API 65. */
export const DescribeTransactionsResponse = message({
  apiKey: 65,
  name: 'DescribeTransactionsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    transactionStates: array('0+', {
      errorCode: int16('0+'),
      transactionalId: string('0+'),
      transactionState: string('0+'),
      transactionTimeoutMs: int32('0+'),
      transactionStartTimeMs: int64('0+'),
      producerId: int64Exact('0+'),
      producerEpoch: int16('0+'),
      topics: array('0+', {
        topic: string('0+'),
        partitions: array('0+', int32),
      }),
    }),
  },
});
/** A decoded {@link DescribeTransactionsResponse}. */
export type DescribeTransactionsResponse = MessageOf<typeof DescribeTransactionsResponse>;
