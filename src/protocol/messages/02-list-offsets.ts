/**
 * API 2, ListOffsets.
 *
 * Finds offsets by timestamp or by special negative timestamps (earliest, latest, …).
 */
import {
  array,
  int8,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  string,
} from '../schema.ts';

/** Request of API 2, versions 1-11. */
export const ListOffsetsRequest = message({
  apiKey: 2,
  name: 'ListOffsetsRequest',
  type: 'request',
  validVersions: '1-11',
  flexibleVersions: '6+',
  fields: {
    replicaId: int32('0+'),
    isolationLevel: int8('2+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        currentLeaderEpoch: int32('4+', { default: -1, ignorable: true }),
        timestamp: int64Exact('0+'),
      }),
    }),
    timeoutMs: int32('10+', { ignorable: true }),
  },
});
/** A decoded {@link ListOffsetsRequest}. */
export type ListOffsetsRequest = MessageOf<typeof ListOffsetsRequest>;

/** Response of API 2. */
export const ListOffsetsResponse = message({
  apiKey: 2,
  name: 'ListOffsetsResponse',
  type: 'response',
  validVersions: '1-11',
  flexibleVersions: '6+',
  fields: {
    throttleTimeMs: int32('2+', { ignorable: true }),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        timestamp: int64Exact('1+', { default: -1n }),
        offset: int64('1+', { default: -1 }),
        leaderEpoch: int32('4+', { default: -1 }),
      }),
    }),
  },
});
/** A decoded {@link ListOffsetsResponse}. */
export type ListOffsetsResponse = MessageOf<typeof ListOffsetsResponse>;
