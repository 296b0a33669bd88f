/**
 * What clients are shown of the cluster: brokers by listener, and partitions with their leaders.
 *
 * Shared by Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator, so that all of
 * them tell the same story. Fenced brokers are shown as offline, as in Apache Kafka.
 */
import type { MetadataImage, PartitionRegistration } from '../metadata/image.ts';
import { NO_LEADER } from '../metadata/image.ts';
import { errors } from '../protocol/errors.ts';

/** A broker as a client sees it. */
export interface BrokerEndpoint {
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
  readonly rack: string | null;
  readonly isFenced: boolean;
}

/** Brokers that have the listener, in the order of their ids. */
export function brokerEndpoints(
  image: MetadataImage,
  listenerName: string,
  includeFenced = false,
): BrokerEndpoint[] {
  const endpoints: BrokerEndpoint[] = [];
  for (const broker of image.brokers.values()) {
    if (broker.fenced && !includeFenced) continue;
    const listener = broker.listeners.find(({ name }) => name === listenerName);
    if (listener === undefined) continue;
    endpoints.push({
      nodeId: broker.id,
      host: listener.host,
      port: listener.port,
      rack: broker.rack,
      isFenced: broker.fenced,
    });
  }
  return endpoints.sort((a, b) => a.nodeId - b.nodeId);
}

/** The endpoint of one live broker, or undefined. */
export function brokerEndpoint(
  image: MetadataImage,
  listenerName: string,
  brokerId: number,
): BrokerEndpoint | undefined {
  return brokerEndpoints(image, listenerName).find(({ nodeId }) => nodeId === brokerId);
}

/** A partition as Metadata and DescribeTopicPartitions show it. */
export interface PartitionView {
  readonly errorCode: number;
  readonly partitionIndex: number;
  readonly leaderId: number;
  readonly leaderEpoch: number;
  readonly replicaNodes: readonly number[];
  readonly isrNodes: readonly number[];
  readonly offlineReplicas: readonly number[];
}

/** Leader and replicas of a partition, with LEADER_NOT_AVAILABLE where there is no leader. */
export function partitionView(
  image: MetadataImage,
  partition: PartitionRegistration,
): PartitionView {
  const isOffline = (id: number): boolean => image.brokers.get(id)?.fenced ?? true;
  const hasLeader = partition.leader !== NO_LEADER;
  return {
    errorCode: hasLeader ? errors.NONE.code : errors.LEADER_NOT_AVAILABLE.code,
    partitionIndex: partition.partition,
    leaderId: partition.leader,
    leaderEpoch: partition.leaderEpoch,
    replicaNodes: partition.replicas,
    isrNodes: partition.isr,
    offlineReplicas: partition.replicas.filter(isOffline),
  };
}

/** Endpoints of the named leaders, each once, for clients that asked the wrong broker (KIP-951). */
export function leaderEndpoints(
  image: MetadataImage,
  listenerName: string,
  leaderIds: readonly number[],
): Omit<BrokerEndpoint, 'isFenced'>[] {
  if (leaderIds.length === 0) return [];
  return brokerEndpoints(image, listenerName)
    .filter(({ nodeId }) => leaderIds.includes(nodeId))
    .map(({ nodeId, host, port, rack }) => ({ nodeId, host, port, rack }));
}
