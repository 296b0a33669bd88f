/**
 * FindCoordinator: which broker keeps a group's offsets, or a mirror partition's state.
 *
 * The coordinator is the leader of the internal topic's partition that the key hashes to; the topic
 * is made on the first look-up. Key type MIRROR is 64 (rule C3). Transactions and share groups are
 * not served yet and say so.
 */

import { GROUP_METADATA_TOPIC } from '../../coordinator/group-coordinator.ts';
import { NO_LEADER } from '../../metadata/image.ts';
import { MIRROR_STATE_TOPIC } from '../../mirror/state-row.ts';
import { errors } from '../../protocol/errors.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../../protocol/messages/10-find-coordinator.ts';
import { apiHandler, type BrokerServices, type RequestContext } from '../api-handler.ts';
import { brokerEndpoint } from '../cluster-view.ts';

const KEY_TYPE_GROUP = 0;
const KEY_TYPE_MIRROR = 64;
const FIRST_BATCHED_VERSION = 4;

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

async function find(
  services: BrokerServices,
  keyType: number,
  key: string,
  context: RequestContext,
): Promise<Coordinator> {
  if (keyType !== KEY_TYPE_GROUP && keyType !== KEY_TYPE_MIRROR) {
    const message = `Groups and mirrors are coordinated here; key type ${keyType} is not served.`;
    return failed(key, errors.INVALID_REQUEST.code, message);
  }
  if (keyType === KEY_TYPE_MIRROR && context.apiVersion < FIRST_BATCHED_VERSION) {
    const message = 'Mirror coordinators are looked up with FindCoordinator version 4 or newer.';
    return failed(key, errors.INVALID_REQUEST.code, message);
  }
  const topic = keyType === KEY_TYPE_GROUP ? GROUP_METADATA_TOPIC : MIRROR_STATE_TOPIC;
  // Groups come with their first look-up; mirror states only with the first mirror (rule C1).
  const error =
    keyType === KEY_TYPE_GROUP ? await services.internalTopics.ensure(topic) : errors.NONE.code;
  if (error !== errors.NONE.code) {
    return failed(key, errors.COORDINATOR_NOT_AVAILABLE.code, `Topic ${topic} is not available.`);
  }
  const index =
    keyType === KEY_TYPE_GROUP
      ? services.groups.partitionFor(key)
      : services.mirrors.partitionForKey(key);
  if (index === undefined) {
    return failed(key, errors.INVALID_REQUEST.code, `${key} is not mirror:topicId:partition.`);
  }
  const { image } = services.metadata;
  const leader = image.topicsByName.get(topic)?.partitions.get(index)?.leader ?? NO_LEADER;
  const endpoint = brokerEndpoint(image, context.listenerName, leader);
  if (endpoint === undefined) {
    return failed(key, errors.COORDINATOR_NOT_AVAILABLE.code, null);
  }
  const { nodeId, host, port } = endpoint;
  return { key, errorCode: errors.NONE.code, errorMessage: null, nodeId, host, port };
}

/** API 10. */
export const findCoordinator = apiHandler({
  request: FindCoordinatorRequest,
  response: FindCoordinatorResponse,
  versions: '0-6',
  handle: async (services, request, context) => {
    if (context.apiVersion >= FIRST_BATCHED_VERSION) {
      const coordinators: Coordinator[] = [];
      for (const key of request.coordinatorKeys) {
        coordinators.push(await find(services, request.keyType, key, context));
      }
      return { coordinators };
    }
    return find(services, request.keyType, request.key, context);
  },
});
