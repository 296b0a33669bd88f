/**
 * API 64, UnregisterBroker.
 *
 * Forgets a broker.
 */
import { int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 64, version 0. */
export const UnregisterBrokerRequest = message({
  apiKey: 64,
  name: 'UnregisterBrokerRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
  },
});
/** A decoded {@link UnregisterBrokerRequest}. */
export type UnregisterBrokerRequest = MessageOf<typeof UnregisterBrokerRequest>;

/** Response of API 64. */
export const UnregisterBrokerResponse = message({
  apiKey: 64,
  name: 'UnregisterBrokerResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
  },
});
/** A decoded {@link UnregisterBrokerResponse}. */
export type UnregisterBrokerResponse = MessageOf<typeof UnregisterBrokerResponse>;
