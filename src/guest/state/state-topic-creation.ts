/**
 * Makes `__mirror_state` in a cluster that this broker is a guest of (G22, C1).
 *
 * Called before the first mirror is created. Its replicas are on the cluster's own brokers only, so
 * that nothing of the mirror state depends on a guest, least of all on the one that writes it.
 */
import type { MetadataImage } from '../../metadata/image.ts';
import { MIRROR_STATE_TOPIC } from '../../mirror/state-row.ts';
import { errors } from '../../protocol/errors.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../protocol/messages/19-create-topics.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import { openBrokers, spreadReplicas, topicSeed } from '../guest-brokers.ts';
import type { JobController } from '../jobs/job-ports.ts';

/** How long the controller may take, in ms. */
const CREATE_TIMEOUT_MS = 30_000;
/** Replicas from which on one may be down while rows are written. */
const REPLICAS_FOR_TWO_IN_SYNC = 3;

/** How the topic shall be. */
export interface StateTopicWish {
  readonly partitions: number;
  /** Fewer where there are fewer brokers. */
  readonly replicationFactor: number;
}

/** The request that makes it; undefined without a live broker of the cluster's own. */
export function stateTopicRequest(
  image: MetadataImage,
  { partitions, replicationFactor }: StateTopicWish,
): EncodableOf<typeof CreateTopicsRequest> | undefined {
  const brokers = openBrokers(image);
  if (brokers.length === 0) return undefined;
  const replicas = Math.min(replicationFactor, brokers.length);
  const wish = { partitions, replicationFactor: replicas, seed: topicSeed(MIRROR_STATE_TOPIC) };
  const assignments = spreadReplicas(brokers, wish).map((brokerIds, partitionIndex) => ({
    partitionIndex,
    brokerIds,
  }));
  const minIsr = replicas >= REPLICAS_FOR_TWO_IN_SYNC ? '2' : '1';
  const configs = [
    { name: 'cleanup.policy', value: 'compact' },
    { name: 'compression.type', value: 'producer' },
    { name: 'min.insync.replicas', value: minIsr },
    { name: 'unclean.leader.election.enable', value: 'false' },
  ];
  const topic = { name: MIRROR_STATE_TOPIC, numPartitions: -1, replicationFactor: -1 };
  return {
    topics: [{ ...topic, assignments, configs }],
    timeoutMs: CREATE_TIMEOUT_MS,
    validateOnly: false,
  };
}

/** Makes the topic; an existing one is a success. 0 or an error code. */
export async function createStateTopic(
  controller: JobController,
  image: MetadataImage,
  wish: StateTopicWish,
): Promise<number> {
  const request = stateTopicRequest(image, wish);
  if (request === undefined) return errors.BROKER_NOT_AVAILABLE.code;
  const { topics } = await controller.send(CreateTopicsRequest, CreateTopicsResponse, request);
  const code = topics[0]?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
  return code === errors.TOPIC_ALREADY_EXISTS.code ? errors.NONE.code : code;
}
