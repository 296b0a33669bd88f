/**
 * API 59, FetchSnapshot.
 *
 * Reads a snapshot of the metadata log.
 */
import {
  array,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  records,
  string,
  struct,
  tagged,
  uint16,
  uuid,
} from '../schema.ts';

/** Request of API 59, versions 0-1. */
export const FetchSnapshotRequest = message({
  apiKey: 59,
  name: 'FetchSnapshotRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    clusterId: tagged(nullable(string('0+'), '0+', { default: null }), 0, '0+'),
    replicaId: int32('0+', { default: -1 }),
    maxBytes: int32('0+', { default: 0x7fffffff }),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partition: int32('0+'),
        currentLeaderEpoch: int32('0+'),
        snapshotId: struct('0+', {
          endOffset: int64('0+'),
          epoch: int32('0+'),
        }),
        position: int64('0+'),
        replicaDirectoryId: tagged(uuid('1+', { ignorable: true }), 0, '1+'),
      }),
    }),
  },
});
/** A decoded {@link FetchSnapshotRequest}. */
export type FetchSnapshotRequest = MessageOf<typeof FetchSnapshotRequest>;

/** Response of API 59. */
export const FetchSnapshotResponse = message({
  apiKey: 59,
  name: 'FetchSnapshotResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+', { ignorable: true }),
    errorCode: int16('0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        index: int32('0+'),
        errorCode: int16('0+'),
        snapshotId: struct('0+', {
          endOffset: int64('0+'),
          epoch: int32('0+'),
        }),
        currentLeader: tagged(
          struct('0+', {
            leaderId: int32('0+'),
            leaderEpoch: int32('0+'),
          }),
          0,
          '0+',
        ),
        size: int64('0+'),
        position: int64('0+'),
        unalignedRecords: records('0+'),
      }),
    }),
    nodeEndpoints: tagged(
      array('1+', {
        nodeId: int32('1+'),
        host: string('1+'),
        port: uint16('1+'),
      }),
      0,
      '1+',
    ),
  },
});
/** A decoded {@link FetchSnapshotResponse}. */
export type FetchSnapshotResponse = MessageOf<typeof FetchSnapshotResponse>;
