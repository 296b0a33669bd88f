/**
 * API 60, DescribeCluster.
 *
 * Brokers or controllers of the cluster.
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 60, versions 0-2. */
export const DescribeClusterRequest = message({
  apiKey: 60,
  name: 'DescribeClusterRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    includeClusterAuthorizedOperations: bool('0+'),
    endpointType: int8('1+', { default: 1 }),
    includeFencedBrokers: bool('2+'),
  },
});
/** A decoded {@link DescribeClusterRequest}. */
export type DescribeClusterRequest = MessageOf<typeof DescribeClusterRequest>;

/** Response of API 60. */
export const DescribeClusterResponse = message({
  apiKey: 60,
  name: 'DescribeClusterResponse',
  type: 'response',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    errorMessage: nullable(string('0+'), '0+', { default: null }),
    endpointType: int8('1+', { default: 1 }),
    clusterId: string('0+'),
    controllerId: int32('0+', { default: -1 }),
    brokers: array('0+', {
      brokerId: int32('0+'),
      host: string('0+'),
      port: int32('0+'),
      rack: nullable(string('0+'), '0+', { default: null }),
      isFenced: bool('2+'),
    }),
    clusterAuthorizedOperations: int32('0+', { default: -2147483648 }),
  },
});
/** A decoded {@link DescribeClusterResponse}. */
export type DescribeClusterResponse = MessageOf<typeof DescribeClusterResponse>;
