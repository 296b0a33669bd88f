/**
 * API 15, DescribeGroups.
 *
 * State and members of classic groups.
 */
import {
  array,
  bool,
  bytes,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 15, versions 0-6. */
export const DescribeGroupsRequest = message({
  apiKey: 15,
  name: 'DescribeGroupsRequest',
  type: 'request',
  validVersions: '0-6',
  flexibleVersions: '5+',
  fields: {
    groups: array('0+', string),
    includeAuthorizedOperations: bool('3+'),
  },
});
/** A decoded {@link DescribeGroupsRequest}. */
export type DescribeGroupsRequest = MessageOf<typeof DescribeGroupsRequest>;

/** Response of API 15. */
export const DescribeGroupsResponse = message({
  apiKey: 15,
  name: 'DescribeGroupsResponse',
  type: 'response',
  validVersions: '0-6',
  flexibleVersions: '5+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    groups: array('0+', {
      errorCode: int16('0+'),
      errorMessage: nullable(string('6+'), '6+', { default: null }),
      groupId: string('0+'),
      groupState: string('0+'),
      protocolType: string('0+'),
      protocolData: string('0+'),
      members: array('0+', {
        memberId: string('0+'),
        groupInstanceId: nullable(string('4+', { ignorable: true }), '4+', { default: null }),
        clientId: string('0+'),
        clientHost: string('0+'),
        memberMetadata: bytes('0+'),
        memberAssignment: bytes('0+'),
      }),
      authorizedOperations: int32('3+', { default: -2147483648 }),
    }),
  },
});
/** A decoded {@link DescribeGroupsResponse}. */
export type DescribeGroupsResponse = MessageOf<typeof DescribeGroupsResponse>;
