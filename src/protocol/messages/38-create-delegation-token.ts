/**
 * API 38, CreateDelegationToken.
 *
 * Makes a delegation token.
 */
import {
  array,
  bytes,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 38, versions 1-3. */
export const CreateDelegationTokenRequest = message({
  apiKey: 38,
  name: 'CreateDelegationTokenRequest',
  type: 'request',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    ownerPrincipalType: nullable(string('3+'), '3+'),
    ownerPrincipalName: nullable(string('3+'), '3+'),
    renewers: array('0+', {
      principalType: string('0+'),
      principalName: string('0+'),
    }),
    maxLifetimeMs: int64('0+'),
  },
});
/** A decoded {@link CreateDelegationTokenRequest}. */
export type CreateDelegationTokenRequest = MessageOf<typeof CreateDelegationTokenRequest>;

/** Response of API 38. */
export const CreateDelegationTokenResponse = message({
  apiKey: 38,
  name: 'CreateDelegationTokenResponse',
  type: 'response',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    errorCode: int16('0+'),
    principalType: string('0+'),
    principalName: string('0+'),
    tokenRequesterPrincipalType: string('3+'),
    tokenRequesterPrincipalName: string('3+'),
    issueTimestampMs: int64('0+'),
    expiryTimestampMs: int64('0+'),
    maxTimestampMs: int64('0+'),
    tokenId: string('0+'),
    hmac: bytes('0+'),
    throttleTimeMs: int32('0+'),
  },
});
/** A decoded {@link CreateDelegationTokenResponse}. */
export type CreateDelegationTokenResponse = MessageOf<typeof CreateDelegationTokenResponse>;
