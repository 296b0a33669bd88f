/**
 * API 22, InitProducerId.
 *
 * Allocates producer ids and fences transactional producers.
 */
import {
  bool,
  int16,
  int32,
  int64Exact,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 22, versions 0-6. */
export const InitProducerIdRequest = message({
  apiKey: 22,
  name: 'InitProducerIdRequest',
  type: 'request',
  validVersions: '0-6',
  flexibleVersions: '2+',
  latestVersionUnstable: true,
  fields: {
    transactionalId: nullable(string('0+'), '0+'),
    transactionTimeoutMs: int32('0+'),
    producerId: int64Exact('3+', { default: -1n }),
    producerEpoch: int16('3+', { default: -1 }),
    enable2Pc: bool('6+', { default: false }),
    keepPreparedTxn: bool('6+', { default: false }),
  },
});
/** A decoded {@link InitProducerIdRequest}. */
export type InitProducerIdRequest = MessageOf<typeof InitProducerIdRequest>;

/** Response of API 22. */
export const InitProducerIdResponse = message({
  apiKey: 22,
  name: 'InitProducerIdResponse',
  type: 'response',
  validVersions: '0-6',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+', { ignorable: true }),
    errorCode: int16('0+'),
    producerId: int64Exact('0+', { default: -1n }),
    producerEpoch: int16('0+'),
    ongoingTxnProducerId: int64Exact('6+', { default: -1n }),
    ongoingTxnProducerEpoch: int16('6+', { default: -1 }),
  },
});
/** A decoded {@link InitProducerIdResponse}. */
export type InitProducerIdResponse = MessageOf<typeof InitProducerIdResponse>;
