/**
 * API 12797, WriteMirrorStates: twinlog’s own (mirroring rules §11).
 *
 * Partition leaders record state changes with the mirror coordinator (rules S2–S4).
 * LastMirroredOffset −1 and state UNKNOWN leave what is recorded.
 */
import {
  array,
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

/** Request of API 12797, version 0. */
export const WriteMirrorStatesRequest = message({
  apiKey: 12797,
  name: 'WriteMirrorStatesRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    mirrorName: string('0+'),
    topicsUpdated: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        lastMirroredOffset: int64('0+'),
        state: int8('0+'),
        leaderEpoch: tagged(int32('0+', { default: -1 }), 0, '0+'),
        stateEpoch: tagged(int32('0+', { default: -1 }), 1, '0+'),
      }),
      topicId: tagged(uuid('0+'), 0, '0+'),
    }),
    removedTopics: array('0+', string),
  },
});
/** A decoded {@link WriteMirrorStatesRequest}. */
export type WriteMirrorStatesRequest = MessageOf<typeof WriteMirrorStatesRequest>;

/** Response of API 12797. */
export const WriteMirrorStatesResponse = message({
  apiKey: 12797,
  name: 'WriteMirrorStatesResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { default: 0, ignorable: true }),
    errorCode: int16('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', { partitionIndex: int32('0+'), errorCode: int16('0+') }),
    }),
  },
});
/** A decoded {@link WriteMirrorStatesResponse}. */
export type WriteMirrorStatesResponse = MessageOf<typeof WriteMirrorStatesResponse>;
