/**
 * API 32, DescribeConfigs.
 *
 * Reads configuration resources.
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 32, versions 1-4. */
export const DescribeConfigsRequest = message({
  apiKey: 32,
  name: 'DescribeConfigsRequest',
  type: 'request',
  validVersions: '1-4',
  flexibleVersions: '4+',
  fields: {
    resources: array('0+', {
      resourceType: int8('0+'),
      resourceName: string('0+'),
      configurationKeys: nullable(array('0+', string), '0+'),
    }),
    includeSynonyms: bool('1+', { default: false }),
    includeDocumentation: bool('3+', { default: false }),
  },
});
/** A decoded {@link DescribeConfigsRequest}. */
export type DescribeConfigsRequest = MessageOf<typeof DescribeConfigsRequest>;

/** Response of API 32. */
export const DescribeConfigsResponse = message({
  apiKey: 32,
  name: 'DescribeConfigsResponse',
  type: 'response',
  validVersions: '1-4',
  flexibleVersions: '4+',
  fields: {
    throttleTimeMs: int32('0+'),
    results: array('0+', {
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+'),
      resourceType: int8('0+'),
      resourceName: string('0+'),
      configs: array('0+', {
        name: string('0+'),
        value: nullable(string('0+'), '0+'),
        readOnly: bool('0+'),
        configSource: int8('1+', { default: -1, ignorable: true }),
        isSensitive: bool('0+'),
        synonyms: array(
          '1+',
          {
            name: string('1+'),
            value: nullable(string('1+'), '0+'),
            source: int8('1+'),
          },
          { ignorable: true },
        ),
        configType: int8('3+', { default: 0, ignorable: true }),
        documentation: nullable(string('3+', { ignorable: true }), '0+'),
      }),
    }),
  },
});
/** A decoded {@link DescribeConfigsResponse}. */
export type DescribeConfigsResponse = MessageOf<typeof DescribeConfigsResponse>;
