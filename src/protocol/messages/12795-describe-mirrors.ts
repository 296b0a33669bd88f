/**
 * API 12795, DescribeMirrors: twinlog’s own (mirroring rules §11).
 *
 * State, lag and cause of every mirrored partition (rule A4); null or no names means all mirrors.
 * Offsets, lags and times are −1 while unknown.
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
} from '../schema.ts';

/** Request of API 12795, version 0. */
export const DescribeMirrorsRequest = message({
  apiKey: 12795,
  name: 'DescribeMirrorsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    mirrorNames: nullable(array('0+', string), '0+'),
    includeAuthorizedOperations: bool('0+', { default: false }),
    localOnly: tagged(bool('0+'), 0, '0+'),
  },
});
/** A decoded {@link DescribeMirrorsRequest}. */
export type DescribeMirrorsRequest = MessageOf<typeof DescribeMirrorsRequest>;

/** Response of API 12795. */
export const DescribeMirrorsResponse = message({
  apiKey: 12795,
  name: 'DescribeMirrorsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { default: 0, ignorable: true }),
    mirrors: array('0+', {
      errorCode: int16('0+'),
      mirrorName: string('0+'),
      topics: array('0+', {
        topicName: string('0+'),
        partitions: array('0+', {
          partitionIndex: int32('0+'),
          sourceOffset: int64('0+'),
          destinationOffset: int64('0+'),
          lag: int64('0+'),
          state: string('0+'),
          sourceLastStableOffset: tagged(int64('0+', { default: -1 }), 0, '0+'),
          lagMs: tagged(int64('0+', { default: -1 }), 1, '0+'),
          cause: tagged(string('0+'), 2, '0+'),
          message: tagged(string('0+'), 3, '0+'),
          sinceMs: tagged(int64('0+', { default: -1 }), 4, '0+'),
          nextRetryMs: tagged(int64('0+', { default: -1 }), 5, '0+'),
          lastMirroredOffset: tagged(int64('0+', { default: -1 }), 6, '0+'),
        }),
      }),
      authorizedOperations: int32('0+', { default: -2147483648 }),
    }),
  },
});
/** A decoded {@link DescribeMirrorsResponse}. */
export type DescribeMirrorsResponse = MessageOf<typeof DescribeMirrorsResponse>;
