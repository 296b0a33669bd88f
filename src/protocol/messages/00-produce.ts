/**
 * API 0, Produce.
 *
 * Appends record batches to partitions; also carries transactional writes (KIP-98, KIP-890).
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
  uuid,
} from '../schema.ts';

/** Request of API 0, versions 3-13. */
export const ProduceRequest = message({
  apiKey: 0,
  name: 'ProduceRequest',
  type: 'request',
  validVersions: '3-13',
  flexibleVersions: '9+',
  fields: {
    transactionalId: nullable(string('3+'), '3+', { default: null }),
    acks: int16('0+'),
    timeoutMs: int32('0+'),
    topicData: array('0+', {
      name: string('0-12', { ignorable: true }),
      topicId: uuid('13+', { ignorable: true }),
      partitionData: array('0+', {
        index: int32('0+'),
        records: nullable(records('0+'), '0+'),
      }),
    }),
  },
});
/** A decoded {@link ProduceRequest}. */
export type ProduceRequest = MessageOf<typeof ProduceRequest>;

/** Response of API 0. */
export const ProduceResponse = message({
  apiKey: 0,
  name: 'ProduceResponse',
  type: 'response',
  validVersions: '3-13',
  flexibleVersions: '9+',
  fields: {
    responses: array('0+', {
      name: string('0-12', { ignorable: true }),
      topicId: uuid('13+', { ignorable: true }),
      partitionResponses: array('0+', {
        index: int32('0+'),
        errorCode: int16('0+'),
        baseOffset: int64('0+'),
        logAppendTimeMs: int64('2+', { default: -1, ignorable: true }),
        logStartOffset: int64('5+', { default: -1, ignorable: true }),
        recordErrors: array(
          '8+',
          {
            batchIndex: int32('8+'),
            batchIndexErrorMessage: nullable(string('8+'), '8+', { default: null }),
          },
          { ignorable: true },
        ),
        errorMessage: nullable(string('8+', { ignorable: true }), '8+', { default: null }),
        currentLeader: tagged(
          struct('10+', {
            leaderId: int32('10+', { default: -1 }),
            leaderEpoch: int32('10+', { default: -1 }),
          }),
          0,
          '10+',
        ),
      }),
    }),
    throttleTimeMs: int32('1+', { default: 0, ignorable: true }),
    nodeEndpoints: tagged(
      array('10+', {
        nodeId: int32('10+'),
        host: string('10+'),
        port: int32('10+'),
        rack: nullable(string('10+'), '10+', { default: null }),
      }),
      0,
      '10+',
    ),
  },
});
/** A decoded {@link ProduceResponse}. */
export type ProduceResponse = MessageOf<typeof ProduceResponse>;
