/**
 * What admin clients ask every broker, or any, to list: transactions and config resources.
 *
 * A guest coordinates no transactions, so its part of that list is empty. Groups are listed by the
 * shared handler.
 */
import { ConfigResourceType, type MetadataImage } from '../../metadata/image.ts';
import { errors } from '../../protocol/errors.ts';
import {
  ListTransactionsRequest,
  ListTransactionsResponse,
} from '../../protocol/messages/66-list-transactions.ts';
import {
  ListConfigResourcesRequest,
  ListConfigResourcesResponse,
} from '../../protocol/messages/74-list-config-resources.ts';
import { type ApiHandler, apiHandler } from '../api-handler.ts';
import { brokerEndpoints } from '../cluster-view.ts';

const TRANSACTION_STATES: ReadonlySet<string> = new Set([
  'Empty',
  'Ongoing',
  'PrepareCommit',
  'PrepareAbort',
  'CompleteCommit',
  'CompleteAbort',
  'Dead',
  'PrepareEpochFence',
]);

const listTransactions = apiHandler({
  request: ListTransactionsRequest,
  response: ListTransactionsResponse,
  versions: '0-2',
  handle: (_services, { stateFilters }) => ({
    throttleTimeMs: 0,
    errorCode: errors.NONE.code,
    unknownStateFilters: stateFilters.filter((state) => !TRANSACTION_STATES.has(state)),
    transactionStates: [],
  }),
});

const { TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP } = ConfigResourceType;
const LISTED_TYPES: readonly number[] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
/** The only version-0 type. */
const FIRST_TYPES: readonly number[] = [CLIENT_METRICS];
const FIRST_TYPED_VERSION = 1;

/** Names of the resources that have overrides. */
function overridden(image: MetadataImage, type: number): string[] {
  const prefix = `${type}:`;
  return [...image.configsByResource.keys()]
    .filter((key) => key.startsWith(prefix))
    .map((key) => key.slice(prefix.length));
}

function namesOf(image: MetadataImage, type: number, listenerName: string): string[] {
  if (type === TOPIC) return [...image.topicsByName.keys()];
  if (type === BROKER || type === BROKER_LOGGER) {
    return brokerEndpoints(image, listenerName).map(({ nodeId }) => String(nodeId));
  }
  return overridden(image, type);
}

const listConfigResources = apiHandler({
  request: ListConfigResourcesRequest,
  response: ListConfigResourcesResponse,
  versions: '0-1',
  handle: ({ metadata }, { resourceTypes }, { apiVersion, listenerName }) => {
    const all = apiVersion < FIRST_TYPED_VERSION ? FIRST_TYPES : LISTED_TYPES;
    const types = resourceTypes.length === 0 ? all : [...new Set(resourceTypes)];
    if (types.some((type) => !all.includes(type))) {
      const errorCode = errors.UNSUPPORTED_VERSION.code;
      return { throttleTimeMs: 0, errorCode, configResources: [] };
    }
    const configResources = types.flatMap((resourceType) =>
      namesOf(metadata.image, resourceType, listenerName).map((resourceName) => ({
        resourceName,
        resourceType,
      })),
    );
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, configResources };
  },
});

/** APIs 66 and 74. */
export const listingApis: readonly ApiHandler[] = [listTransactions, listConfigResources];
