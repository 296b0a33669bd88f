/**
 * API 36, SaslAuthenticate.
 *
 * Carries SASL tokens.
 */
import { bytes, int16, int64, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 36, versions 0-2. */
export const SaslAuthenticateRequest = message({
  apiKey: 36,
  name: 'SaslAuthenticateRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    authBytes: bytes('0+'),
  },
});
/** A decoded {@link SaslAuthenticateRequest}. */
export type SaslAuthenticateRequest = MessageOf<typeof SaslAuthenticateRequest>;

/** Response of API 36. */
export const SaslAuthenticateResponse = message({
  apiKey: 36,
  name: 'SaslAuthenticateResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
    authBytes: bytes('0+'),
    sessionLifetimeMs: int64('1+', { default: 0, ignorable: true }),
  },
});
/** A decoded {@link SaslAuthenticateResponse}. */
export type SaslAuthenticateResponse = MessageOf<typeof SaslAuthenticateResponse>;
