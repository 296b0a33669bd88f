/**
 * API 23, OffsetForLeaderEpoch.
 *
 * End offset of a leader epoch, for truncation.
 */
import { array, int16, int32, int64, type MessageOf, message, string } from '../schema.ts';

/** Request of API 23, versions 2-4. */
export const OffsetForLeaderEpochRequest = message({
  apiKey: 23,
  name: 'OffsetForLeaderEpochRequest',
  type: 'request',
  validVersions: '2-4',
  flexibleVersions: '4+',
  fields: {
    replicaId: int32('3+', { default: -2, ignorable: true }),
    topics: array('0+', {
      topic: string('0+'),
      partitions: array('0+', {
        partition: int32('0+'),
        currentLeaderEpoch: int32('2+', { default: -1, ignorable: true }),
        leaderEpoch: int32('0+'),
      }),
    }),
  },
});
/** A decoded {@link OffsetForLeaderEpochRequest}. */
export type OffsetForLeaderEpochRequest = MessageOf<typeof OffsetForLeaderEpochRequest>;

/** Response of API 23. */
export const OffsetForLeaderEpochResponse = message({
  apiKey: 23,
  name: 'OffsetForLeaderEpochResponse',
  type: 'response',
  validVersions: '2-4',
  flexibleVersions: '4+',
  fields: {
    throttleTimeMs: int32('2+', { ignorable: true }),
    topics: array('0+', {
      topic: string('0+'),
      partitions: array('0+', {
        errorCode: int16('0+'),
        partition: int32('0+'),
        leaderEpoch: int32('1+', { default: -1, ignorable: true }),
        endOffset: int64('0+', { default: -1 }),
      }),
    }),
  },
});
/** A decoded {@link OffsetForLeaderEpochResponse}. */
export type OffsetForLeaderEpochResponse = MessageOf<typeof OffsetForLeaderEpochResponse>;
