/**
 * Calls the handler of an API as a client would: over encoded bytes, in a version.
 */
import type { MetadataImage } from '../../src/metadata/image.ts';
import { codec } from '../../src/protocol/codec.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../src/protocol/messages/02-list-offsets.ts';
import { MetadataRequest, MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../../src/protocol/messages/10-find-coordinator.ts';
import {
  ApiVersionsRequest,
  ApiVersionsResponse,
} from '../../src/protocol/messages/18-api-versions.ts';
import {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../../src/protocol/messages/20-delete-topics.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../../src/protocol/messages/22-init-producer-id.ts';
import {
  DescribeConfigsRequest,
  DescribeConfigsResponse,
} from '../../src/protocol/messages/32-describe-configs.ts';
import {
  CreatePartitionsRequest,
  CreatePartitionsResponse,
} from '../../src/protocol/messages/37-create-partitions.ts';
import {
  ListPartitionReassignmentsRequest,
  ListPartitionReassignmentsResponse,
} from '../../src/protocol/messages/46-list-partition-reassignments.ts';
import {
  DescribeClusterRequest,
  DescribeClusterResponse,
} from '../../src/protocol/messages/60-describe-cluster.ts';
import {
  DescribeTopicPartitionsRequest,
  DescribeTopicPartitionsResponse,
} from '../../src/protocol/messages/75-describe-topic-partitions.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import {
  type ApiHandler,
  type BrokerServices,
  NO_RESPONSE,
  type RequestContext,
} from '../../src/server/api-handler.ts';
import { apiTable, listedApis } from '../../src/server/api-table.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import { imageOf } from './fakes.ts';

/** The messages of one API. */
export interface Api<Q extends Message, R extends Message> {
  readonly request: Q;
  readonly response: R;
}

export const Produce = { request: ProduceRequest, response: ProduceResponse };
export const Fetch = { request: FetchRequest, response: FetchResponse };
export const ListOffsets = { request: ListOffsetsRequest, response: ListOffsetsResponse };
export const Metadata = { request: MetadataRequest, response: MetadataResponse };
export const FindCoordinator = {
  request: FindCoordinatorRequest,
  response: FindCoordinatorResponse,
};
export const ApiVersions = { request: ApiVersionsRequest, response: ApiVersionsResponse };
export const CreatePartitions = {
  request: CreatePartitionsRequest,
  response: CreatePartitionsResponse,
};
export const DeleteTopics = { request: DeleteTopicsRequest, response: DeleteTopicsResponse };
export const InitProducerId = { request: InitProducerIdRequest, response: InitProducerIdResponse };
export const DescribeConfigs = {
  request: DescribeConfigsRequest,
  response: DescribeConfigsResponse,
};
export const ListPartitionReassignments = {
  request: ListPartitionReassignmentsRequest,
  response: ListPartitionReassignmentsResponse,
};
export const DescribeCluster = {
  request: DescribeClusterRequest,
  response: DescribeClusterResponse,
};
export const DescribeTopicPartitions = {
  request: DescribeTopicPartitionsRequest,
  response: DescribeTopicPartitionsResponse,
};

/** Services by name; what is left out must not be used. */
export interface Fakes {
  readonly image?: MetadataImage;
  readonly settings?: Record<string, string>;
  readonly [service: string]: unknown;
}

/** The services of a broker, of which only `fakes` work. */
export function servicesOf({ image = imageOf([]), settings = {}, ...rest }: Fakes): BrokerServices {
  return {
    brokerId: 1,
    clusterId: 'test-cluster',
    config: new BrokerConfig(new Map(Object.entries(settings))),
    metadata: { image },
    listedApis,
    ...rest,
  } as unknown as BrokerServices;
}

/** The handler of an API. */
export function handlerOf(apiKey: number | undefined): ApiHandler {
  const handler = apiTable.get(apiKey ?? -1);
  if (handler === undefined) throw new Error(`API ${apiKey} is not served`);
  return handler;
}

/** Every version of an API that clients are offered. */
export function versionsOf({ request }: Api<Message, Message>): number[] {
  const { min, max } = handlerOf(request.apiKey).versions;
  return Array.from({ length: max - min + 1 }, (_, i) => min + i);
}

/** Calls a handler with the request as it arrives in `version`; the answer as it arrives back. */
export async function call<Q extends Message, R extends Message>(
  api: Api<Q, R>,
  version: number,
  services: BrokerServices,
  request: EncodableOf<Q>,
  listenerName = 'PLAINTEXT',
): Promise<MessageOf<R> | typeof NO_RESPONSE> {
  const context: RequestContext = {
    apiVersion: version,
    clientId: 'me',
    clientHost: '192.0.2.7',
    principal: 'User:ANONYMOUS',
    listenerName,
    connectionId: 1,
  };
  const arriving = codec(api.request, version);
  const decoded = arriving.decode(arriving.encodeToBytes(request));
  const answer = await handlerOf(api.request.apiKey).handle(services, decoded, context);
  if (answer === NO_RESPONSE) return NO_RESPONSE;
  const response = codec(api.response, version);
  return response.decode(response.encodeToBytes(answer as EncodableOf<R>));
}

/** {@link call} of a request that is answered. */
export async function ask<Q extends Message, R extends Message>(
  ...args: Parameters<typeof call<Q, R>>
): Promise<MessageOf<R>> {
  const answer = await call<Q, R>(...args);
  if (answer === NO_RESPONSE) throw new Error('no answer');
  return answer;
}
