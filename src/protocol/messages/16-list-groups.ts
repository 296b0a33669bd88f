/**
 * API 16, ListGroups.
 *
 * All groups a broker coordinates.
 */
import { array, int16, int32, type MessageOf, message, string } from '../schema.ts';

/** Request of API 16, versions 0-5. */
export const ListGroupsRequest = message({
  apiKey: 16,
  name: 'ListGroupsRequest',
  type: 'request',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    statesFilter: array('4+', string),
    typesFilter: array('5+', string),
  },
});
/** A decoded {@link ListGroupsRequest}. */
export type ListGroupsRequest = MessageOf<typeof ListGroupsRequest>;

/** Response of API 16. */
export const ListGroupsResponse = message({
  apiKey: 16,
  name: 'ListGroupsResponse',
  type: 'response',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    errorCode: int16('0+'),
    groups: array('0+', {
      groupId: string('0+'),
      protocolType: string('0+'),
      groupState: string('4+', { ignorable: true }),
      groupType: string('5+', { ignorable: true }),
    }),
  },
});
/** A decoded {@link ListGroupsResponse}. */
export type ListGroupsResponse = MessageOf<typeof ListGroupsResponse>;
