/**
 * API 41, DescribeDelegationToken.
 *
 * Shows delegation tokens by owner.
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

/** Request of API 41, versions 1-3. */
export const DescribeDelegationTokenRequest = message({
  apiKey: 41,
  name: 'DescribeDelegationTokenRequest',
  type: 'request',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    owners: nullable(
      array('0+', {
        principalType: string('0+'),
        principalName: string('0+'),
      }),
      '0+',
    ),
  },
});
/** A decoded {@link DescribeDelegationTokenRequest}. */
export type DescribeDelegationTokenRequest = MessageOf<typeof DescribeDelegationTokenRequest>;

/** Response of API 41. */
export const DescribeDelegationTokenResponse = message({
  apiKey: 41,
  name: 'DescribeDelegationTokenResponse',
  type: 'response',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    errorCode: int16('0+'),
    tokens: array('0+', {
      principalType: string('0+'),
      principalName: string('0+'),
      tokenRequesterPrincipalType: string('3+'),
      tokenRequesterPrincipalName: string('3+'),
      issueTimestamp: int64('0+'),
      expiryTimestamp: int64('0+'),
      maxTimestamp: int64('0+'),
      tokenId: string('0+'),
      hmac: bytes('0+'),
      renewers: array('0+', {
        principalType: string('0+'),
        principalName: string('0+'),
      }),
    }),
    throttleTimeMs: int32('0+'),
  },
});
/** A decoded {@link DescribeDelegationTokenResponse}. */
export type DescribeDelegationTokenResponse = MessageOf<typeof DescribeDelegationTokenResponse>;
