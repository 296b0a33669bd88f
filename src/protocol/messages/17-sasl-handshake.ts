/**
 * API 17, SaslHandshake.
 *
 * Chooses the SASL mechanism.
 */
import { array, int16, type MessageOf, message, string } from '../schema.ts';

/** Request of API 17, versions 0-1. */
export const SaslHandshakeRequest = message({
  apiKey: 17,
  name: 'SaslHandshakeRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: 'none',
  fields: {
    mechanism: string('0+'),
  },
});
/** A decoded {@link SaslHandshakeRequest}. */
export type SaslHandshakeRequest = MessageOf<typeof SaslHandshakeRequest>;

/** Response of API 17. */
export const SaslHandshakeResponse = message({
  apiKey: 17,
  name: 'SaslHandshakeResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: 'none',
  fields: {
    errorCode: int16('0+'),
    mechanisms: array('0+', string),
  },
});
/** A decoded {@link SaslHandshakeResponse}. */
export type SaslHandshakeResponse = MessageOf<typeof SaslHandshakeResponse>;
