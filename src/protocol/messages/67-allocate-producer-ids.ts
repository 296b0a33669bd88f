/**
 * API 67, AllocateProducerIds.
 *
 * A broker takes a block of producer ids from the controller.
 */
import { int16, int32, int64, int64Exact, type MessageOf, message } from '../schema.ts';

/** Request of API 67, version 0. */
export const AllocateProducerIdsRequest = message({
  apiKey: 67,
  name: 'AllocateProducerIdsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+', { default: -1 }),
  },
});
/** A decoded {@link AllocateProducerIdsRequest}. */
export type AllocateProducerIdsRequest = MessageOf<typeof AllocateProducerIdsRequest>;

/** Response of API 67. */
export const AllocateProducerIdsResponse = message({
  apiKey: 67,
  name: 'AllocateProducerIdsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    producerIdStart: int64Exact('0+'),
    producerIdLen: int32('0+'),
  },
});
/** A decoded {@link AllocateProducerIdsResponse}. */
export type AllocateProducerIdsResponse = MessageOf<typeof AllocateProducerIdsResponse>;
