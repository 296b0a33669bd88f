/**
 * API 40, ExpireDelegationToken.
 *
 * Ends a delegation token, now or later.
 */
import { bytes, int16, int32, int64, type MessageOf, message } from '../schema.ts';

/** Request of API 40, versions 1-2. */
export const ExpireDelegationTokenRequest = message({
  apiKey: 40,
  name: 'ExpireDelegationTokenRequest',
  type: 'request',
  validVersions: '1-2',
  flexibleVersions: '2+',
  fields: {
    hmac: bytes('0+'),
    expiryTimePeriodMs: int64('0+'),
  },
});
/** A decoded {@link ExpireDelegationTokenRequest}. */
export type ExpireDelegationTokenRequest = MessageOf<typeof ExpireDelegationTokenRequest>;

/** Response of API 40. */
export const ExpireDelegationTokenResponse = message({
  apiKey: 40,
  name: 'ExpireDelegationTokenResponse',
  type: 'response',
  validVersions: '1-2',
  flexibleVersions: '2+',
  fields: {
    errorCode: int16('0+'),
    expiryTimestampMs: int64('0+'),
    throttleTimeMs: int32('0+'),
  },
});
/** A decoded {@link ExpireDelegationTokenResponse}. */
export type ExpireDelegationTokenResponse = MessageOf<typeof ExpireDelegationTokenResponse>;
