/**
 * API 43, ElectLeaders.
 *
 * Triggers preferred or unclean leader election.
 */
import { array, int8, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 43, versions 0-2. */
export const ElectLeadersRequest = message({
  apiKey: 43,
  name: 'ElectLeadersRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    electionType: int8('1+'),
    topicPartitions: nullable(
      array('0+', {
        topic: string('0+'),
        partitions: array('0+', int32),
      }),
      '0+',
    ),
    timeoutMs: int32('0+', { default: 60000 }),
  },
});
/** A decoded {@link ElectLeadersRequest}. */
export type ElectLeadersRequest = MessageOf<typeof ElectLeadersRequest>;

/** Response of API 43. */
export const ElectLeadersResponse = message({
  apiKey: 43,
  name: 'ElectLeadersResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('1+'),
    replicaElectionResults: array('0+', {
      topic: string('0+'),
      partitionResult: array('0+', {
        partitionId: int32('0+'),
        errorCode: int16('0+'),
        errorMessage: nullable(string('0+'), '0+'),
      }),
    }),
  },
});
/** A decoded {@link ElectLeadersResponse}. */
export type ElectLeadersResponse = MessageOf<typeof ElectLeadersResponse>;
