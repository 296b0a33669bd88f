/**
 * API 39, RenewDelegationToken.
 *
 * Extends the life of a delegation token.
 */
import { bytes, int16, int32, int64, type MessageOf, message } from '../schema.ts';

/** Request of API 39, versions 1-2. */
export const RenewDelegationTokenRequest = message({
  apiKey: 39,
  name: 'RenewDelegationTokenRequest',
  type: 'request',
  validVersions: '1-2',
  flexibleVersions: '2+',
  fields: {
    hmac: bytes('0+'),
    renewPeriodMs: int64('0+'),
  },
});
/** A decoded {@link RenewDelegationTokenRequest}. */
export type RenewDelegationTokenRequest = MessageOf<typeof RenewDelegationTokenRequest>;

/** Response of API 39. */
export const RenewDelegationTokenResponse = message({
  apiKey: 39,
  name: 'RenewDelegationTokenResponse',
  type: 'response',
  validVersions: '1-2',
  flexibleVersions: '2+',
  fields: {
    errorCode: int16('0+'),
    expiryTimestampMs: int64('0+'),
    throttleTimeMs: int32('0+'),
  },
});
/** A decoded {@link RenewDelegationTokenResponse}. */
export type RenewDelegationTokenResponse = MessageOf<typeof RenewDelegationTokenResponse>;
