/**
 * API 12796, ReadMirrorStates: twinlog’s own (mirroring rules §11).
 *
 * Rows of the mirror coordinator’s log, as its owner has them (rules C1–C4).
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  string,
  tagged,
  uuid,
} from '../schema.ts';

/** Request of API 12796, version 0. */
export const ReadMirrorStatesRequest = message({
  apiKey: 12796,
  name: 'ReadMirrorStatesRequest',
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
    needPartitionStates: bool('0+', { default: true }),
  },
});
/** A decoded {@link ReadMirrorStatesRequest}. */
export type ReadMirrorStatesRequest = MessageOf<typeof ReadMirrorStatesRequest>;

/** Response of API 12796. */
export const ReadMirrorStatesResponse = message({
  apiKey: 12796,
  name: 'ReadMirrorStatesResponse',
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
        state: int8('0+'),
        errorCode: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link ReadMirrorStatesResponse}. */
export type ReadMirrorStatesResponse = MessageOf<typeof ReadMirrorStatesResponse>;
