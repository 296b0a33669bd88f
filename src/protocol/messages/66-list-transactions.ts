/**
 * API 66, ListTransactions.
 *
 * Transactions a broker coordinates.
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

/** Request of API 66, versions 0-2. */
export const ListTransactionsRequest = message({
  apiKey: 66,
  name: 'ListTransactionsRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    stateFilters: array('0+', string),
    producerIdFilters: array('0+', int64Exact),
    durationFilter: int64('1+', { default: -1 }),
    transactionalIdPattern: nullable(string('2+'), '2+', { default: null }),
  },
});
/** A decoded {@link ListTransactionsRequest}. */
export type ListTransactionsRequest = MessageOf<typeof ListTransactionsRequest>;

/** Response of API 66. */
export const ListTransactionsResponse = message({
  apiKey: 66,
  name: 'ListTransactionsResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    unknownStateFilters: array('0+', string),
    transactionStates: array('0+', {
      transactionalId: string('0+'),
      producerId: int64Exact('0+'),
      transactionState: string('0+'),
    }),
  },
});
/** A decoded {@link ListTransactionsResponse}. */
export type ListTransactionsResponse = MessageOf<typeof ListTransactionsResponse>;
