/**
 * API 1, Fetch.
 *
 * Reads record batches, for consumers, follower replicas, KRaft observers and mirrors.
 * Tagged field 1279 (rule P3) is ours: a mirror asks for the log as it is.
 * The high watermark of a request is a bigint, as its default is the largest int64.
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  nullable,
  records,
  string,
  struct,
  tagged,
  uuid,
} from '../schema.ts';

/** Request of API 1, versions 4-18. */
export const FetchRequest = message({
  apiKey: 1,
  name: 'FetchRequest',
  type: 'request',
  validVersions: '4-18',
  flexibleVersions: '12+',
  fields: {
    clusterId: tagged(
      nullable(string('12+', { ignorable: true }), '12+', { default: null }),
      0,
      '12+',
    ),
    replicaId: int32('0-14', { default: -1 }),
    replicaState: tagged(
      struct('15+', {
        replicaId: int32('15+', { default: -1 }),
        replicaEpoch: int64('15+', { default: -1 }),
      }),
      1,
      '15+',
    ),
    maxWaitMs: int32('0+'),
    minBytes: int32('0+'),
    maxBytes: int32('3+', { default: 0x7fffffff, ignorable: true }),
    isolationLevel: int8('4+', { default: 0, ignorable: true }),
    sessionId: int32('7+', { default: 0, ignorable: true }),
    sessionEpoch: int32('7+', { default: -1, ignorable: true }),
    topics: array('0+', {
      topic: string('0-12', { ignorable: true }),
      topicId: uuid('13+', { ignorable: true }),
      partitions: array('0+', {
        partition: int32('0+'),
        currentLeaderEpoch: int32('9+', { default: -1, ignorable: true }),
        fetchOffset: int64('0+'),
        lastFetchedEpoch: int32('12+', { default: -1 }),
        logStartOffset: int64('5+', { default: -1, ignorable: true }),
        partitionMaxBytes: int32('0+'),
        replicaDirectoryId: tagged(uuid('17+', { ignorable: true }), 0, '17+'),
        highWatermark: tagged(
          int64Exact('18+', { default: 9223372036854775807n, ignorable: true }),
          1,
          '18+',
        ),
      }),
    }),
    forgottenTopicsData: array('7+', {
      topic: string('7-12', { ignorable: true }),
      topicId: uuid('13+', { ignorable: true }),
      partitions: array('7+', int32),
    }),
    rackId: string('11+', { default: '', ignorable: true }),
    mirrorFetch: tagged(bool('12+', { ignorable: true }), 1279, '12+'),
  },
});
/** A decoded {@link FetchRequest}. */
export type FetchRequest = MessageOf<typeof FetchRequest>;

/** Response of API 1. */
export const FetchResponse = message({
  apiKey: 1,
  name: 'FetchResponse',
  type: 'response',
  validVersions: '4-18',
  flexibleVersions: '12+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    errorCode: int16('7+', { ignorable: true }),
    sessionId: int32('7+', { default: 0 }),
    responses: array('0+', {
      topic: string('0-12', { ignorable: true }),
      topicId: uuid('13+', { ignorable: true }),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        highWatermark: int64('0+'),
        lastStableOffset: int64('4+', { default: -1, ignorable: true }),
        logStartOffset: int64('5+', { default: -1, ignorable: true }),
        divergingEpoch: tagged(
          struct('12+', {
            epoch: int32('12+', { default: -1 }),
            endOffset: int64('12+', { default: -1 }),
          }),
          0,
          '12+',
        ),
        currentLeader: tagged(
          struct('12+', {
            leaderId: int32('12+', { default: -1 }),
            leaderEpoch: int32('12+', { default: -1 }),
          }),
          1,
          '12+',
        ),
        snapshotId: tagged(
          struct('12+', {
            endOffset: int64('0+', { default: -1 }),
            epoch: int32('0+', { default: -1 }),
          }),
          2,
          '12+',
        ),
        abortedTransactions: nullable(
          array(
            '4+',
            {
              producerId: int64Exact('4+'),
              firstOffset: int64('4+'),
            },
            { ignorable: true },
          ),
          '4+',
        ),
        preferredReadReplica: int32('11+', { default: -1 }),
        records: nullable(records('0+'), '0+'),
      }),
    }),
    nodeEndpoints: tagged(
      array('16+', {
        nodeId: int32('16+'),
        host: string('16+'),
        port: int32('16+'),
        rack: nullable(string('16+'), '16+', { default: null }),
      }),
      0,
      '16+',
    ),
  },
});
/** A decoded {@link FetchResponse}. */
export type FetchResponse = MessageOf<typeof FetchResponse>;
