/**
 * API 25, AddOffsetsToTxn.
 *
 * Adds a group’s offsets to a transaction.
 */
import { int16, int32, int64Exact, type MessageOf, message, string } from '../schema.ts';

/** Request of API 25, versions 0-4. */
export const AddOffsetsToTxnRequest = message({
  apiKey: 25,
  name: 'AddOffsetsToTxnRequest',
  type: 'request',
  validVersions: '0-4',
  flexibleVersions: '3+',
  fields: {
    transactionalId: string('0+'),
    producerId: int64Exact('0+'),
    producerEpoch: int16('0+'),
    groupId: string('0+'),
  },
});
/** A decoded {@link AddOffsetsToTxnRequest}. */
export type AddOffsetsToTxnRequest = MessageOf<typeof AddOffsetsToTxnRequest>;

/** Response of API 25. */
export const AddOffsetsToTxnResponse = message({
  apiKey: 25,
  name: 'AddOffsetsToTxnResponse',
  type: 'response',
  validVersions: '0-4',
  flexibleVersions: '3+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
  },
});
/** A decoded {@link AddOffsetsToTxnResponse}. */
export type AddOffsetsToTxnResponse = MessageOf<typeof AddOffsetsToTxnResponse>;
