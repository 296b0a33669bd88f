/**
 * API 12791, AddTopicsToMirror: twinlog’s own (mirroring rules §11).
 *
 * Makes topics members of a mirror (rules A3, Y1); the controller gets it forwarded with the
 * metadata offset at which a broker validated it.
 */
import {
  array,
  bool,
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

/** Request of API 12791, version 0. */
export const AddTopicsToMirrorRequest = message({
  apiKey: 12791,
  name: 'AddTopicsToMirrorRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    topics: array('0+', {
      topicId: uuid('0+'),
      topicName: string('0+'),
      mirrorName: nullable(string('0+'), '0+'),
      fullResync: tagged(bool('0+'), 0, '0+'),
      numPartitions: tagged(int32('0+', { default: -1 }), 1, '0+'),
    }),
    validatedAtOffset: tagged(int64('0+', { default: -1 }), 0, '0+'),
  },
});
/** A decoded {@link AddTopicsToMirrorRequest}. */
export type AddTopicsToMirrorRequest = MessageOf<typeof AddTopicsToMirrorRequest>;

/** Response of API 12791. */
export const AddTopicsToMirrorResponse = message({
  apiKey: 12791,
  name: 'AddTopicsToMirrorResponse',
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
/** A decoded {@link AddTopicsToMirrorResponse}. */
export type AddTopicsToMirrorResponse = MessageOf<typeof AddTopicsToMirrorResponse>;
