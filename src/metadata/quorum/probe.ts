/**
 * Asks one node of a cluster who the active controller is, and which cluster it is.
 *
 * Used by the quorum client when it knows no leader. DescribeCluster gives the cluster id and the
 * addresses of the controllers; a Fetch of the metadata log with leader epoch 0, which is always
 * too old, is refused with the leader's id, epoch and endpoint (rule G1).
 */
import { METADATA_TOPIC_ID } from '../../base/uuid.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { ConnectionError, type KafkaConnection } from '../../protocol/kafka-connection.ts';
import { FetchRequest, FetchResponse } from '../../protocol/messages/01-fetch.ts';
import {
  DescribeClusterRequest,
  DescribeClusterResponse,
} from '../../protocol/messages/60-describe-cluster.ts';

/** Where something listens. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** A controller and where it listens. */
export interface ControllerAddress extends HostPort {
  readonly nodeId: number;
}

/** The controllers are those of another cluster. Never retried. */
export class WrongCluster extends Error {
  override readonly name = 'WrongCluster';
}

/** What one node says. */
export interface Probe {
  /** Undefined when the node would not say. */
  readonly clusterId: string | undefined;
  readonly controllers: readonly ControllerAddress[];
  readonly leader: {
    readonly leaderId: number;
    readonly leaderEpoch: number;
    readonly endpoints: readonly ControllerAddress[];
  };
}

const CONTROLLERS = 2;
const NO_RIGHT =
  'its principal needs CLUSTER_ACTION on the cluster (twinlog guest check says how to grant it)';

/** Rejects with {@link WrongCluster}, or with a ConnectionError that says what the node is not. */
export async function probe(
  connection: KafkaConnection,
  clusterId: string | undefined,
): Promise<Probe> {
  const description = await describe(connection, clusterId);
  const leader = await askForLeader(connection, clusterId ?? description.clusterId);
  return { ...description, leader };
}

/** For messages, and as a key. */
export function addressText({ host, port }: HostPort): string {
  return `${host}:${port}`;
}

/** The error for a cluster that is not the expected one. */
export function wrongCluster(address: HostPort, expected: string | undefined): WrongCluster {
  const text = addressText(address);
  return new WrongCluster(
    `the controller at ${text} is not of cluster ${expected}: name the controllers of that ` +
      'cluster, or use another data directory',
  );
}

async function describe(
  connection: KafkaConnection,
  expected: string | undefined,
): Promise<Pick<Probe, 'clusterId' | 'controllers'>> {
  // Version 0 knows brokers only; without it the cluster id shows in the Fetch alone.
  if ((connection.version(DescribeClusterRequest) ?? 0) < 1) {
    return { clusterId: undefined, controllers: [] };
  }
  const answer = await connection.send(DescribeClusterRequest, DescribeClusterResponse, {
    includeClusterAuthorizedOperations: false,
    endpointType: CONTROLLERS,
    includeFencedBrokers: false,
  });
  const { errorCode, clusterId } = answer;
  if (errorCode === errors.MISMATCHED_ENDPOINT_TYPE.code) {
    const problem = `${addressText(connection)} is a listener for clients, not for controllers`;
    throw new ConnectionError('malformed', problem);
  }
  if (errorCode !== errors.NONE.code) return { clusterId: undefined, controllers: [] };
  if (expected !== undefined && clusterId !== expected) throw wrongCluster(connection, expected);
  const controllers = answer.brokers.map(({ brokerId, host, port }) => ({
    nodeId: brokerId,
    host,
    port,
  }));
  return { clusterId, controllers };
}

async function askForLeader(
  connection: KafkaConnection,
  clusterId: string | undefined,
): Promise<Probe['leader']> {
  const response = await connection.send(FetchRequest, FetchResponse, {
    clusterId: clusterId ?? null,
    maxWaitMs: 0,
    minBytes: 0,
    maxBytes: 1,
    isolationLevel: 0,
    topics: [
      {
        topic: '',
        topicId: METADATA_TOPIC_ID,
        partitions: [
          {
            partition: 0,
            currentLeaderEpoch: 0,
            fetchOffset: 0,
            lastFetchedEpoch: 0,
            partitionMaxBytes: 1,
          },
        ],
      },
    ],
    forgottenTopicsData: [],
  });
  if (response.errorCode === errors.INCONSISTENT_CLUSTER_ID.code) {
    throw wrongCluster(connection, clusterId);
  }
  if (response.errorCode === errors.CLUSTER_AUTHORIZATION_FAILED.code) {
    const refusal = `${addressText(connection)} does not let this node read the metadata`;
    throw new ConnectionError('authentication', `${refusal}: ${NO_RIGHT}`);
  }
  const partition = response.responses[0]?.partitions[0];
  if (response.errorCode !== errors.NONE.code || partition === undefined) {
    const problem = `${addressText(connection)} does not serve the metadata log`;
    throw new ConnectionError('malformed', `${problem}: ${errorName(response.errorCode)}`);
  }
  return { ...partition.currentLeader, endpoints: response.nodeEndpoints };
}
