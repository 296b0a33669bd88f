/**
 * API 56, AlterPartition.
 *
 * A leader reports its in-sync replicas to the controller.
 */
import { array, int8, int16, int32, int64, type MessageOf, message, uuid } from '../schema.ts';

/** Request of API 56, versions 2-3. */
export const AlterPartitionRequest = message({
  apiKey: 56,
  name: 'AlterPartitionRequest',
  type: 'request',
  validVersions: '2-3',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+', { default: -1 }),
    topics: array('0+', {
      topicId: uuid('2+', { ignorable: true }),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        leaderEpoch: int32('0+'),
        newIsr: array('0-2', int32),
        newIsrWithEpochs: array('3+', {
          brokerId: int32('3+'),
          brokerEpoch: int64('3+', { default: -1 }),
        }),
        leaderRecoveryState: int8('1+', { default: 0 }),
        partitionEpoch: int32('0+'),
      }),
    }),
  },
});
/** A decoded {@link AlterPartitionRequest}. */
export type AlterPartitionRequest = MessageOf<typeof AlterPartitionRequest>;

/** Response of API 56. */
export const AlterPartitionResponse = message({
  apiKey: 56,
  name: 'AlterPartitionResponse',
  type: 'response',
  validVersions: '2-3',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    topics: array('0+', {
      topicId: uuid('2+', { ignorable: true }),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        leaderId: int32('0+'),
        leaderEpoch: int32('0+'),
        isr: array('0+', int32),
        leaderRecoveryState: int8('1+', { default: 0, ignorable: true }),
        partitionEpoch: int32('0+'),
      }),
    }),
  },
});
/** A decoded {@link AlterPartitionResponse}. */
export type AlterPartitionResponse = MessageOf<typeof AlterPartitionResponse>;
