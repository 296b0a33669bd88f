/**
 * API 42, DeleteGroups.
 *
 * Deletes empty groups.
 */
import { array, int16, int32, type MessageOf, message, string } from '../schema.ts';

/** Request of API 42, versions 0-2. */
export const DeleteGroupsRequest = message({
  apiKey: 42,
  name: 'DeleteGroupsRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    groupsNames: array('0+', string),
  },
});
/** A decoded {@link DeleteGroupsRequest}. */
export type DeleteGroupsRequest = MessageOf<typeof DeleteGroupsRequest>;

/** Response of API 42. */
export const DeleteGroupsResponse = message({
  apiKey: 42,
  name: 'DeleteGroupsResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    results: array('0+', {
      groupId: string('0+'),
      errorCode: int16('0+'),
    }),
  },
});
/** A decoded {@link DeleteGroupsResponse}. */
export type DeleteGroupsResponse = MessageOf<typeof DeleteGroupsResponse>;
