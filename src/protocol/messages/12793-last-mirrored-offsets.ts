/**
 * API 12793, LastMirroredOffsets: twinlog’s own (mirroring rules §11).
 *
 * Up to where this cluster was mirrored from the asker, per partition: where a failback starts
 * (rules T2, B2, B3); also the clusters upstream of it, against loops (rule T8).
 */
import {
  array,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  string,
  tagged,
  uuid,
} from '../schema.ts';

/** Request of API 12793, version 0. */
export const LastMirroredOffsetsRequest = message({
  apiKey: 12793,
  name: 'LastMirroredOffsetsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    mirrorName: string('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', { partitionIndex: int32('0+') }),
      topicId: tagged(uuid('0+'), 0, '0+'),
    }),
    requesterClusterId: tagged(string('0+'), 0, '0+'),
  },
});
/** A decoded {@link LastMirroredOffsetsRequest}. */
export type LastMirroredOffsetsRequest = MessageOf<typeof LastMirroredOffsetsRequest>;

/** Response of API 12793. */
export const LastMirroredOffsetsResponse = message({
  apiKey: 12793,
  name: 'LastMirroredOffsetsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { default: 0, ignorable: true }),
    errorCode: int16('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        lastMirroredOffset: int64('0+'),
        errorCode: int16('0+'),
      }),
      upstreamClusterIds: tagged(array('0+', string), 0, '0+'),
    }),
  },
});
/** A decoded {@link LastMirroredOffsetsResponse}. */
export type LastMirroredOffsetsResponse = MessageOf<typeof LastMirroredOffsetsResponse>;
