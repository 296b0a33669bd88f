/**
 * API 48, DescribeClientQuotas.
 *
 * Shows client quotas that match a filter.
 */
import {
  array,
  bool,
  float64,
  int8,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 48, versions 0-1. */
export const DescribeClientQuotasRequest = message({
  apiKey: 48,
  name: 'DescribeClientQuotasRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '1+',
  fields: {
    components: array('0+', {
      entityType: string('0+'),
      matchType: int8('0+'),
      match: nullable(string('0+'), '0+'),
    }),
    strict: bool('0+'),
  },
});
/** A decoded {@link DescribeClientQuotasRequest}. */
export type DescribeClientQuotasRequest = MessageOf<typeof DescribeClientQuotasRequest>;

/** Response of API 48. */
export const DescribeClientQuotasResponse = message({
  apiKey: 48,
  name: 'DescribeClientQuotasResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '1+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
    entries: nullable(
      array('0+', {
        entity: array('0+', {
          entityType: string('0+'),
          entityName: nullable(string('0+'), '0+'),
        }),
        values: array('0+', {
          key: string('0+'),
          value: float64('0+'),
        }),
      }),
      '0+',
    ),
  },
});
/** A decoded {@link DescribeClientQuotasResponse}. */
export type DescribeClientQuotasResponse = MessageOf<typeof DescribeClientQuotasResponse>;
