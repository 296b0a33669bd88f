/**
 * API 46, ListPartitionReassignments.
 *
 * Lists replicas on the move.
 */
import { array, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 46, version 0. */
export const ListPartitionReassignmentsRequest = message({
  apiKey: 46,
  name: 'ListPartitionReassignmentsRequest',
  type: 'request',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    timeoutMs: int32('0+', { default: 60000 }),
    topics: nullable(
      array('0+', {
        name: string('0+'),
        partitionIndexes: array('0+', int32),
      }),
      '0+',
      { default: null },
    ),
  },
});
/** A decoded {@link ListPartitionReassignmentsRequest}. */
export type ListPartitionReassignmentsRequest = MessageOf<typeof ListPartitionReassignmentsRequest>;

/** Response of API 46. */
export const ListPartitionReassignmentsResponse = message({
  apiKey: 46,
  name: 'ListPartitionReassignmentsResponse',
  type: 'response',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+'),
    topics: array('0+', {
      name: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        replicas: array('0+', int32),
        addingReplicas: array('0+', int32),
        removingReplicas: array('0+', int32),
      }),
    }),
  },
});
/** A decoded {@link ListPartitionReassignmentsResponse}. */
export type ListPartitionReassignmentsResponse = MessageOf<
  typeof ListPartitionReassignmentsResponse
>;
