/**
 * API 58, Envelope.
 *
 * Forwards a client request to the controller.
 */
import { bytes, int16, type MessageOf, message, nullable } from '../schema.ts';

/** Request of API 58, version 0. */
export const EnvelopeRequest = message({
  apiKey: 58,
  name: 'EnvelopeRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    requestData: bytes('0+'),
    requestPrincipal: nullable(bytes('0+'), '0+'),
    clientHostAddress: bytes('0+'),
  },
});
/** A decoded {@link EnvelopeRequest}. */
export type EnvelopeRequest = MessageOf<typeof EnvelopeRequest>;

/** Response of API 58. */
export const EnvelopeResponse = message({
  apiKey: 58,
  name: 'EnvelopeResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    responseData: nullable(bytes('0+'), '0+', { default: null }),
    errorCode: int16('0+'),
  },
});
/** A decoded {@link EnvelopeResponse}. */
export type EnvelopeResponse = MessageOf<typeof EnvelopeResponse>;
