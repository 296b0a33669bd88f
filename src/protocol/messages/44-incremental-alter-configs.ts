/**
 * API 44, IncrementalAlterConfigs.
 *
 * Changes single configuration values.
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

/** Request of API 44, versions 0-1. */
export const IncrementalAlterConfigsRequest = message({
  apiKey: 44,
  name: 'IncrementalAlterConfigsRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '1+',
  fields: {
    resources: array('0+', {
      resourceType: int8('0+'),
      resourceName: string('0+'),
      configs: array('0+', {
        name: string('0+'),
        configOperation: int8('0+'),
        value: nullable(string('0+'), '0+'),
      }),
    }),
    validateOnly: bool('0+'),
  },
});
/** A decoded {@link IncrementalAlterConfigsRequest}. */
export type IncrementalAlterConfigsRequest = MessageOf<typeof IncrementalAlterConfigsRequest>;

/** Response of API 44. */
export const IncrementalAlterConfigsResponse = message({
  apiKey: 44,
  name: 'IncrementalAlterConfigsResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '1+',
  fields: {
    throttleTimeMs: int32('0+'),
    responses: array('0+', {
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+'),
      resourceType: int8('0+'),
      resourceName: string('0+'),
    }),
  },
});
/** A decoded {@link IncrementalAlterConfigsResponse}. */
export type IncrementalAlterConfigsResponse = MessageOf<typeof IncrementalAlterConfigsResponse>;
