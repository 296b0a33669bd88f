/**
 * API 18, ApiVersions.
 *
 * Which APIs and features a broker serves; its response always has header version 0.
 */
import {
  array,
  bool,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  string,
  tagged,
} from '../schema.ts';

/** Request of API 18, versions 0-4. */
export const ApiVersionsRequest = message({
  apiKey: 18,
  name: 'ApiVersionsRequest',
  type: 'request',
  validVersions: '0-4',
  flexibleVersions: '3+',
  fields: {
    clientSoftwareName: string('3+', { ignorable: true }),
    clientSoftwareVersion: string('3+', { ignorable: true }),
  },
});
/** A decoded {@link ApiVersionsRequest}. */
export type ApiVersionsRequest = MessageOf<typeof ApiVersionsRequest>;

/** Response of API 18. */
export const ApiVersionsResponse = message({
  apiKey: 18,
  name: 'ApiVersionsResponse',
  type: 'response',
  validVersions: '0-4',
  flexibleVersions: '3+',
  fields: {
    errorCode: int16('0+'),
    apiKeys: array('0+', {
      apiKey: int16('0+'),
      minVersion: int16('0+'),
      maxVersion: int16('0+'),
    }),
    throttleTimeMs: int32('1+', { ignorable: true }),
    supportedFeatures: tagged(
      array(
        '3+',
        {
          name: string('3+'),
          minVersion: int16('3+'),
          maxVersion: int16('3+'),
        },
        { ignorable: true },
      ),
      0,
      '3+',
    ),
    finalizedFeaturesEpoch: tagged(int64('3+', { default: -1, ignorable: true }), 1, '3+'),
    finalizedFeatures: tagged(
      array(
        '3+',
        {
          name: string('3+'),
          maxVersionLevel: int16('3+'),
          minVersionLevel: int16('3+'),
        },
        { ignorable: true },
      ),
      2,
      '3+',
    ),
    zkMigrationReady: tagged(bool('3+', { default: false, ignorable: true }), 3, '3+'),
  },
});
/** A decoded {@link ApiVersionsResponse}. */
export type ApiVersionsResponse = MessageOf<typeof ApiVersionsResponse>;
