/**
 * API 45, AlterPartitionReassignments.
 *
 * Starts or cancels moving replicas.
 */
import { array, bool, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 45, versions 0-1. */
export const AlterPartitionReassignmentsRequest = message({
  apiKey: 45,
  name: 'AlterPartitionReassignmentsRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    timeoutMs: int32('0+', { default: 60000 }),
    allowReplicationFactorChange: bool('1+', { default: true }),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        replicas: nullable(array('0+', int32), '0+', { default: null }),
      }),
    }),
  },
});
/** A decoded {@link AlterPartitionReassignmentsRequest}. */
export type AlterPartitionReassignmentsRequest = MessageOf<
  typeof AlterPartitionReassignmentsRequest
>;

/** Response of API 45. */
export const AlterPartitionReassignmentsResponse = message({
  apiKey: 45,
  name: 'AlterPartitionReassignmentsResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    allowReplicationFactorChange: bool('1+', { default: true, ignorable: true }),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
    responses: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+'),
      }),
    }),
  },
});
/** A decoded {@link AlterPartitionReassignmentsResponse}. */
export type AlterPartitionReassignmentsResponse = MessageOf<
  typeof AlterPartitionReassignmentsResponse
>;
