/**
 * FindCoordinator in guest mode: the Apache broker that coordinates a group, transaction or share.
 *
 * It leads the partition of the coordinator's topic that the key hashes to. A missing topic is
 * asked of an Apache broker, which makes it with the cluster's own settings; until it is there the
 * answer is COORDINATOR_NOT_AVAILABLE, upon which clients try again. Mirror partitions (key type
 * 64, rule C3) have no shard here: every guest knows all rows (rule G22), the one that leads the
 * partition first of all.
 */
import { present } from '../../base/assert.ts';
import { GROUP_METADATA_TOPIC, partitionOfKey } from '../../coordinator/group-coordinator.ts';
import { isGuest } from '../../guest/guest-brokers.ts';
import { NO_LEADER } from '../../metadata/image.ts';
import { SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC } from '../../metadata/topic-names.ts';
import { parseRowKeyText } from '../../mirror/state-row.ts';
import { errors } from '../../protocol/errors.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../../protocol/messages/10-find-coordinator.ts';
import { apiHandler, type BrokerServices, type RequestContext } from '../api-handler.ts';
import { brokerEndpoint } from '../cluster-view.ts';

const KEY_TYPE_MIRROR = 64;
const KEY_TYPE_SHARE = 2;
/** The topics that keep what is coordinated, by key type. */
const TOPICS: ReadonlyMap<number, string> = new Map([
  [0, GROUP_METADATA_TOPIC],
  [1, TRANSACTION_STATE_TOPIC],
  [KEY_TYPE_SHARE, SHARE_STATE_TOPIC],
]);
/** First version with key type 2. */
const SHARE_VERSION = 6;
const FIRST_BATCHED_VERSION = 4;
/** group:topicId:partition; the key is hashed as it is. */
const SHARE_KEY = /^[^:]+:[A-Za-z0-9_-]{22}:\d{1,10}$/;

interface Coordinator {
  readonly key: string;
  readonly errorCode: number;
  readonly errorMessage: string | null;
  readonly nodeId: number;
  readonly host: string;
  readonly port: number;
}

function failed(key: string, errorCode: number, errorMessage: string | null): Coordinator {
  return { key, errorCode, errorMessage, nodeId: -1, host: '', port: -1 };
}

function found(
  { metadata }: BrokerServices,
  key: string,
  brokerId: number,
  { listenerName }: RequestContext,
): Coordinator {
  const endpoint = brokerEndpoint(metadata.image, listenerName, brokerId);
  if (endpoint === undefined) return failed(key, errors.COORDINATOR_NOT_AVAILABLE.code, null);
  const { nodeId, host, port } = endpoint;
  return { key, errorCode: errors.NONE.code, errorMessage: null, nodeId, host, port };
}

function findMirror(services: BrokerServices, key: string, context: RequestContext): Coordinator {
  const parsed = parseRowKeyText(key);
  if (parsed === undefined || context.apiVersion < FIRST_BATCHED_VERSION) {
    const message = `${key} is not mirror:topicId:partition, or the version is below 4.`;
    return failed(key, errors.INVALID_REQUEST.code, message);
  }
  const { image } = services.metadata;
  const topic = image.topicsById.get(parsed.topicId);
  const leader = topic?.partitions.get(parsed.partition)?.leader ?? NO_LEADER;
  return found(services, key, isGuest(image, leader) ? leader : services.brokerId, context);
}

async function find(
  services: BrokerServices,
  keyType: number,
  key: string,
  context: RequestContext,
): Promise<Coordinator> {
  if (keyType === KEY_TYPE_MIRROR) return findMirror(services, key, context);
  const topic = TOPICS.get(keyType);
  const tooOld = keyType === KEY_TYPE_SHARE && context.apiVersion < SHARE_VERSION;
  const isBad = keyType === KEY_TYPE_SHARE && !SHARE_KEY.test(key);
  if (topic === undefined || tooOld || isBad) {
    const message = `There is no coordinator for keys of type ${keyType} such as ${key}.`;
    return failed(key, errors.INVALID_REQUEST.code, message);
  }
  const { metadata } = services;
  if (!metadata.image.topicsByName.has(topic)) {
    await present(services.guest, 'guest services').askForCoordinator(keyType, key);
  }
  const partitions = metadata.image.topicsByName.get(topic)?.partitions;
  if (partitions === undefined || partitions.size === 0) {
    const message = `Topic ${topic} is not there yet.`;
    return failed(key, errors.COORDINATOR_NOT_AVAILABLE.code, message);
  }
  const leader = partitions.get(partitionOfKey(key, partitions.size))?.leader ?? NO_LEADER;
  return found(services, key, leader, context);
}

/** API 10. */
export const findCoordinator = apiHandler({
  request: FindCoordinatorRequest,
  response: FindCoordinatorResponse,
  versions: '0-6',
  handle: async (services, { keyType, key, coordinatorKeys }, context) => {
    if (context.apiVersion < FIRST_BATCHED_VERSION) return find(services, keyType, key, context);
    const coordinators: Coordinator[] = [];
    for (const each of coordinatorKeys) {
      coordinators.push(await find(services, keyType, each, context));
    }
    return { coordinators };
  },
});
