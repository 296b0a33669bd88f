/**
 * API 26, EndTxn.
 *
 * Commits or aborts a transaction.
 */
import { bool, int16, int32, int64Exact, type MessageOf, message, string } from '../schema.ts';

/** Request of API 26, versions 0-5. */
export const EndTxnRequest = message({
  apiKey: 26,
  name: 'EndTxnRequest',
  type: 'request',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    transactionalId: string('0+'),
    producerId: int64Exact('0+'),
    producerEpoch: int16('0+'),
    committed: bool('0+'),
  },
});
/** A decoded {@link EndTxnRequest}. */
export type EndTxnRequest = MessageOf<typeof EndTxnRequest>;

/** Response of API 26. */
export const EndTxnResponse = message({
  apiKey: 26,
  name: 'EndTxnResponse',
  type: 'response',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    producerId: int64Exact('5+', { default: -1n, ignorable: true }),
    producerEpoch: int16('5+', { default: -1, ignorable: true }),
  },
});
/** A decoded {@link EndTxnResponse}. */
export type EndTxnResponse = MessageOf<typeof EndTxnResponse>;
