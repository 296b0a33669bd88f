/**
 * API 50, DescribeUserScramCredentials.
 *
 * Shows which SCRAM credentials users have, never the secrets.
 */
import { array, int8, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 50, version 0. */
export const DescribeUserScramCredentialsRequest = message({
  apiKey: 50,
  name: 'DescribeUserScramCredentialsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    users: nullable(
      array('0+', {
        name: string('0+'),
      }),
      '0+',
    ),
  },
});
/** A decoded {@link DescribeUserScramCredentialsRequest}. */
export type DescribeUserScramCredentialsRequest = MessageOf<
  typeof DescribeUserScramCredentialsRequest
>;

/** Response of API 50. */
export const DescribeUserScramCredentialsResponse = message({
  apiKey: 50,
  name: 'DescribeUserScramCredentialsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
    results: array('0+', {
      user: string('0+'),
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+'),
      credentialInfos: array('0+', {
        mechanism: int8('0+'),
        iterations: int32('0+'),
      }),
    }),
  },
});
/** A decoded {@link DescribeUserScramCredentialsResponse}. */
export type DescribeUserScramCredentialsResponse = MessageOf<
  typeof DescribeUserScramCredentialsResponse
>;
