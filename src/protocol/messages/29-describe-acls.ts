/**
 * API 29, DescribeAcls.
 *
 * Lists access control entries.
 */
import { array, int8, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 29, versions 1-3. */
export const DescribeAclsRequest = message({
  apiKey: 29,
  name: 'DescribeAclsRequest',
  type: 'request',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    resourceTypeFilter: int8('0+'),
    resourceNameFilter: nullable(string('0+'), '0+'),
    patternTypeFilter: int8('1+', { default: 3 }),
    principalFilter: nullable(string('0+'), '0+'),
    hostFilter: nullable(string('0+'), '0+'),
    operation: int8('0+'),
    permissionType: int8('0+'),
  },
});
/** A decoded {@link DescribeAclsRequest}. */
export type DescribeAclsRequest = MessageOf<typeof DescribeAclsRequest>;

/** Response of API 29. */
export const DescribeAclsResponse = message({
  apiKey: 29,
  name: 'DescribeAclsResponse',
  type: 'response',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
    resources: array('0+', {
      resourceType: int8('0+'),
      resourceName: string('0+'),
      patternType: int8('1+', { default: 3 }),
      acls: array('0+', {
        principal: string('0+'),
        host: string('0+'),
        operation: int8('0+'),
        permissionType: int8('0+'),
      }),
    }),
  },
});
/** A decoded {@link DescribeAclsResponse}. */
export type DescribeAclsResponse = MessageOf<typeof DescribeAclsResponse>;
