/**
 * API 12792, RemoveTopicsFromMirror: twinlog’s own (mirroring rules §11).
 *
 * Detaches topics from their mirror: failover (rules D1–D7, A3).
 */
import {
  array,
  int8,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  tagged,
  uuid,
} from '../schema.ts';

/** What becomes of transactions that are undecided where a topic is stopped. */
export const OpenTransactions = { CUT: 0, CLOSE: 1 } as const;

/** Request of API 12792, version 0. */
export const RemoveTopicsFromMirrorRequest = message({
  apiKey: 12792,
  name: 'RemoveTopicsFromMirrorRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    mirrorName: string('0+', { ignorable: true }),
    topics: array('0+', { topicId: uuid('0+'), topicName: string('0+') }),
    validatedAtOffset: tagged(int64('0+', { default: -1 }), 0, '0+'),
    /** {@link OpenTransactions} (guest rule G24a). */
    openTransactions: tagged(int8('0+', { default: 0 }), 1, '0+'),
  },
});
/** A decoded {@link RemoveTopicsFromMirrorRequest}. */
export type RemoveTopicsFromMirrorRequest = MessageOf<typeof RemoveTopicsFromMirrorRequest>;

/** Response of API 12792. */
export const RemoveTopicsFromMirrorResponse = message({
  apiKey: 12792,
  name: 'RemoveTopicsFromMirrorResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { default: 0, ignorable: true }),
    topicId: uuid('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+', { ignorable: true }), '0+', { default: null }),
    topics: tagged(
      array('0+', {
        name: string('0+'),
        topicId: uuid('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+', { default: null }),
      }),
      0,
      '0+',
    ),
  },
});
/** A decoded {@link RemoveTopicsFromMirrorResponse}. */
export type RemoveTopicsFromMirrorResponse = MessageOf<typeof RemoveTopicsFromMirrorResponse>;
