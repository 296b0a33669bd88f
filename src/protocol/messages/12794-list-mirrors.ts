/**
 * API 12794, ListMirrors: twinlog’s own (mirroring rules §11).
 *
 * Names, sources and topic counts of all mirrors, with the clusters upstream of them (rule T8).
 */
import { array, int16, int32, type MessageOf, message, string, tagged } from '../schema.ts';

/** Request of API 12794, version 0. */
export const ListMirrorsRequest = message({
  apiKey: 12794,
  name: 'ListMirrorsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {},
});
/** A decoded {@link ListMirrorsRequest}. */
export type ListMirrorsRequest = MessageOf<typeof ListMirrorsRequest>;

/** Response of API 12794. */
export const ListMirrorsResponse = message({
  apiKey: 12794,
  name: 'ListMirrorsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { default: 0, ignorable: true }),
    errorCode: int16('0+'),
    mirrors: array('0+', {
      mirrorName: string('0+'),
      sourceBootstrap: string('0+'),
      topicCount: int32('0+', { default: 0 }),
      sourceClusterId: tagged(string('0+'), 0, '0+'),
      upstreamClusterIds: tagged(array('0+', string), 1, '0+'),
    }),
  },
});
/** A decoded {@link ListMirrorsResponse}. */
export type ListMirrorsResponse = MessageOf<typeof ListMirrorsResponse>;
