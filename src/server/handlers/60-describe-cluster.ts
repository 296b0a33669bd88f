/**
 * DescribeCluster: the cluster's id and its brokers.
 *
 * Only the broker endpoint type is served here; controllers have no listener of their own while
 * they live inside the broker.
 */
import { errors } from '../../protocol/errors.ts';
import {
  DescribeClusterRequest,
  DescribeClusterResponse,
} from '../../protocol/messages/60-describe-cluster.ts';
import { apiHandler } from '../api-handler.ts';
import { brokerEndpoints } from '../cluster-view.ts';

const BROKER_ENDPOINTS = 1;

/** API 60. */
export const describeCluster = apiHandler({
  request: DescribeClusterRequest,
  response: DescribeClusterResponse,
  versions: '0-2',
  handle: ({ clusterId, metadata }, request, { listenerName }) => {
    if (request.endpointType !== BROKER_ENDPOINTS) {
      return {
        throttleTimeMs: 0,
        errorCode: errors.MISMATCHED_ENDPOINT_TYPE.code,
        errorMessage: 'This is a broker listener: ask with endpoint type 1.',
        clusterId: '',
        brokers: [],
        endpointType: request.endpointType,
      };
    }
    const shown = brokerEndpoints(metadata.image, listenerName, request.includeFencedBrokers);
    return {
      throttleTimeMs: 0,
      errorCode: errors.NONE.code,
      clusterId,
      controllerId: shown[0]?.nodeId ?? -1,
      brokers: shown.map(({ nodeId, ...rest }) => ({ brokerId: nodeId, ...rest })),
    };
  },
});
