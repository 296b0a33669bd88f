/**
 * Metadata: brokers, topics and their leaders; creates a topic on its first use where allowed.
 *
 * Answers from the image that this broker has applied. Auto-creation goes through the controller
 * like any creation, so a topic with membership (rule R4) already exists and is never created here.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import type { MetadataImage, TopicImage } from '../../metadata/image.ts';
import { INTERNAL_TOPIC_NAMES } from '../../metadata/topic-names.ts';
import { ApiKey } from '../../protocol/api-keys.ts';
import { errors } from '../../protocol/errors.ts';
import { MetadataRequest, MetadataResponse } from '../../protocol/messages/03-metadata.ts';
import type { CreateTopicsResponse } from '../../protocol/messages/19-create-topics.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import {
  type ApiHandler,
  apiHandler,
  type BrokerServices,
  type RequestContext,
} from '../api-handler.ts';
import { brokerEndpoints, partitionView } from '../cluster-view.ts';
import { isOnDemandTopic } from '../internal-topics.ts';

type TopicAnswer = EncodableOf<typeof MetadataResponse>['topics'][number];

const CREATE_TIMEOUT_MS = 30_000;
const CREATE_VERSION = 7;
/** First version that may ask by id, and answer without a name. */
const TOPIC_ID_VERSION = 12;

function describeTopic(image: MetadataImage, topic: TopicImage): TopicAnswer {
  const partitions = [...topic.partitions.values()].sort((a, b) => a.partition - b.partition);
  return {
    errorCode: errors.NONE.code,
    name: topic.name,
    topicId: topic.id,
    isInternal: INTERNAL_TOPIC_NAMES.has(topic.name),
    partitions: partitions.map((partition) => partitionView(image, partition)),
  };
}

function missing(errorCode: number, name: string | null, topicId = ZERO_UUID): TopicAnswer {
  return { errorCode, name, topicId, partitions: [] };
}

/** Makes topics that were asked for by name; answers the error of each one that failed. */
export type TopicCreation = (
  services: BrokerServices,
  names: readonly string[],
  context: RequestContext,
) => Promise<ReadonlyMap<string, number>>;

const createHere: TopicCreation = async (services, names, { principal }) => {
  const failures = new Map<string, number>();
  const internal = names.filter(isOnDemandTopic);
  for (const name of internal) {
    const error = await services.internalTopics.ensure(name);
    if (error !== errors.NONE.code) failures.set(name, error);
  }
  const ordinary = names.filter((name) => !isOnDemandTopic(name));
  if (ordinary.length === 0) return failures;
  const topics = ordinary.map((name) => ({
    name,
    numPartitions: -1,
    replicationFactor: -1,
    assignments: [],
    configs: [],
    mirrorInfo: null,
  }));
  const response = (await services.controller.forward(
    ApiKey.CreateTopics,
    CREATE_VERSION,
    { topics, timeoutMs: CREATE_TIMEOUT_MS, validateOnly: false },
    { principal },
  )) as CreateTopicsResponse;
  for (const { name, errorCode } of response.topics) {
    const exists = errorCode === errors.TOPIC_ALREADY_EXISTS.code;
    if (errorCode !== errors.NONE.code && !exists) failures.set(name, errorCode);
  }
  return failures;
};

async function describeNamed(
  services: BrokerServices,
  request: MetadataRequest,
  context: RequestContext,
  create: TopicCreation,
): Promise<TopicAnswer[]> {
  const wanted = request.topics ?? [];
  const before = services.metadata.image;
  const absent = wanted.flatMap(({ name }) =>
    name !== null && !before.topicsByName.has(name) ? [name] : [],
  );
  const mayCreate =
    request.allowAutoTopicCreation && services.config.boolean('auto.create.topics.enable');
  const failures =
    mayCreate && absent.length > 0
      ? await create(services, [...new Set(absent)], context)
      : new Map<string, number>();
  const { image } = services.metadata;
  return wanted.map(({ name, topicId }) => {
    if (name === null) {
      if (context.apiVersion < TOPIC_ID_VERSION) return missing(errors.INVALID_REQUEST.code, '');
      const byId = image.topicsById.get(topicId);
      return byId === undefined
        ? missing(errors.UNKNOWN_TOPIC_ID.code, null, topicId)
        : describeTopic(image, byId);
    }
    const topic = image.topicsByName.get(name);
    if (topic !== undefined) return describeTopic(image, topic);
    return missing(failures.get(name) ?? errors.UNKNOWN_TOPIC_OR_PARTITION.code, name);
  });
}

/** API 3 with who makes the topics that are missing. */
export function metadataHandler(create: TopicCreation): ApiHandler {
  return apiHandler({
    request: MetadataRequest,
    response: MetadataResponse,
    versions: '0-13',
    handle: async (services, request, context) => {
      // Version 0 has no null: there, an empty list means every topic.
      const all =
        request.topics === null || (context.apiVersion === 0 && request.topics.length === 0);
      const topics = all
        ? [...services.metadata.image.topicsByName.values()].map((topic) =>
            describeTopic(services.metadata.image, topic),
          )
        : await describeNamed(services, request, context, create);
      const { image } = services.metadata;
      const brokers = brokerEndpoints(image, context.listenerName);
      return {
        brokers,
        clusterId: services.clusterId,
        controllerId: brokers[0]?.nodeId ?? -1,
        topics,
      };
    },
  });
}

/** API 3. */
export const metadata = metadataHandler(createHere);
