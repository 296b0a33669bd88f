/**
 * API 12790, CreateMirror: twinlog’s own (mirroring rules §11).
 *
 * Creates a mirror: a named set of connection and sync settings (rules O1, A2).
 */
import {
  array,
  bool,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  tagged,
} from '../schema.ts';

/** Request of API 12790, version 0. */
export const CreateMirrorRequest = message({
  apiKey: 12790,
  name: 'CreateMirrorRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    mirrorName: nullable(string('0+'), '0+'),
    config: array('0+', { name: string('0+'), value: nullable(string('0+'), '0+') }),
    skipValidation: tagged(bool('0+'), 0, '0+'),
  },
});
/** A decoded {@link CreateMirrorRequest}. */
export type CreateMirrorRequest = MessageOf<typeof CreateMirrorRequest>;

/** Response of API 12790. */
export const CreateMirrorResponse = message({
  apiKey: 12790,
  name: 'CreateMirrorResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { default: 0, ignorable: true }),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+', { ignorable: true }), '0+', { default: null }),
  },
});
/** A decoded {@link CreateMirrorResponse}. */
export type CreateMirrorResponse = MessageOf<typeof CreateMirrorResponse>;
