/**
 * API 74, ListConfigResources.
 *
 * Names of configuration resources by type.
 */
import { array, int8, int16, int32, type MessageOf, message, string } from '../schema.ts';

/** Request of API 74, versions 0-1. */
export const ListConfigResourcesRequest = message({
  apiKey: 74,
  name: 'ListConfigResourcesRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    resourceTypes: array('1+', int8),
  },
});
/** A decoded {@link ListConfigResourcesRequest}. */
export type ListConfigResourcesRequest = MessageOf<typeof ListConfigResourcesRequest>;

/** Response of API 74. */
export const ListConfigResourcesResponse = message({
  apiKey: 74,
  name: 'ListConfigResourcesResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    configResources: array('0+', {
      resourceName: string('0+'),
      resourceType: int8('1+', { default: 16, ignorable: true }),
    }),
  },
});
/** A decoded {@link ListConfigResourcesResponse}. */
export type ListConfigResourcesResponse = MessageOf<typeof ListConfigResourcesResponse>;
