/**
 * What a client of a guest must be allowed to, API by API (G35, A5).
 *
 * The same rights as at an Apache broker. Topics that a client may not know are left out where it
 * asked for all, and refused by name where it named them. Replicas are brokers: their fetches need
 * CLUSTER_ACTION. Produce and the coordinators' APIs are refused to everyone by their handlers.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';
import { errors } from '../protocol/errors.ts';
import { FetchRequest, FetchResponse } from '../protocol/messages/01-fetch.ts';
import { ListOffsetsRequest, ListOffsetsResponse } from '../protocol/messages/02-list-offsets.ts';
import { MetadataRequest, MetadataResponse } from '../protocol/messages/03-metadata.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../protocol/messages/10-find-coordinator.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../protocol/messages/22-init-producer-id.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../protocol/messages/23-offset-for-leader-epoch.ts';
import {
  WriteTxnMarkersRequest,
  WriteTxnMarkersResponse,
} from '../protocol/messages/27-write-txn-markers.ts';
import {
  DescribeConfigsRequest,
  DescribeConfigsResponse,
} from '../protocol/messages/32-describe-configs.ts';
import {
  DescribeProducersRequest,
  DescribeProducersResponse,
} from '../protocol/messages/61-describe-producers.ts';
import {
  DescribeTopicPartitionsRequest,
  DescribeTopicPartitionsResponse,
} from '../protocol/messages/75-describe-topic-partitions.ts';
import { type Access, type Guard, type Guarded, guard } from './access-guard.ts';
import { AclOperation } from './authorizer.ts';
import { clusterGuards } from './guest-cluster-guards.ts';

const { READ, WRITE, CREATE, DESCRIBE, CLUSTER_ACTION } = AclOperation;
const { DESCRIBE_CONFIGS, IDEMPOTENT_WRITE } = AclOperation;
const TOPIC_REFUSED = errors.TOPIC_AUTHORIZATION_FAILED.code;
const GROUP_REFUSED = errors.GROUP_AUTHORIZATION_FAILED.code;
const CLUSTER_REFUSED = errors.CLUSTER_AUTHORIZATION_FAILED.code;
const ID_REFUSED = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code;
const FIRST_BATCHED_FIND = 4;
const NO_RECORDS = new Uint8Array(0);

/** The topic's name, also where only its id is given; undefined: there is no such topic. */
function nameOf(image: MetadataImage, name: string | null | undefined, id: string | undefined) {
  return name || image.topicsById.get((id ?? '') as never)?.name;
}

/** Those that pass, and those that do not. */
function divided<T>(all: readonly T[], passes: (each: T) => boolean): [T[], T[]] {
  return [all.filter(passes), all.filter((each) => !passes(each))];
}

const metadata = guard(MetadataRequest, MetadataResponse, async (guarded) => {
  const { access, request, services, context, call } = guarded;
  const { topics } = request;
  if (topics === null || (context.apiVersion === 0 && topics.length === 0)) {
    const all = await call(request);
    const known = all.topics.filter(({ name }) => access.topic(DESCRIBE, name ?? ''));
    return { ...all, topics: known };
  }
  const { image } = services.metadata;
  const mayCreate = access.cluster(CREATE);
  const [allowed, refused] = divided(topics, ({ name, topicId }) => {
    const known = nameOf(image, name, topicId);
    if (known === undefined) return true;
    const isMissing = request.allowAutoTopicCreation && !image.topicsByName.has(known);
    const mayMake = !isMissing || mayCreate || access.topic(CREATE, known);
    return access.topic(DESCRIBE, known) && mayMake;
  });
  const answer = await call({ ...request, topics: allowed });
  // For version 0 no topic at all means all topics.
  const described = allowed.length === 0 ? [] : answer.topics;
  const refusals = refused.map(({ name, topicId }) =>
    name === null
      ? { errorCode: errors.UNKNOWN_TOPIC_ID.code, name, topicId, partitions: [] }
      : { errorCode: TOPIC_REFUSED, name, topicId: ZERO_UUID, partitions: [] },
  );
  return { ...answer, topics: [...described, ...refusals] };
});

const describeTopicPartitions = guard(
  DescribeTopicPartitionsRequest,
  DescribeTopicPartitionsResponse,
  async ({ access, request, services, call }) => {
    const all = request.topics.length === 0;
    const names = [...services.metadata.image.topicsByName.keys()];
    const asked = all ? names.map((name) => ({ name })) : request.topics;
    const [allowed, refused] = divided(asked, ({ name }) => access.topic(DESCRIBE, name));
    const answer =
      allowed.length === 0 ? { topics: [] } : await call({ ...request, topics: allowed });
    if (all) return answer;
    const refusals = refused.map(({ name }) => ({
      errorCode: TOPIC_REFUSED,
      name,
      topicId: ZERO_UUID,
      partitions: [],
    }));
    return { ...answer, topics: [...answer.topics, ...refusals] };
  },
);

type FetchGuarded = Guarded<typeof FetchRequest, typeof FetchResponse>;

/** Replicas get all or nothing; sessions hold topics, so that answers are looked through. */
async function guardFetch({ access, request, services, call }: FetchGuarded) {
  const isReplica = request.replicaId >= 0 || request.replicaState.replicaId >= 0;
  if (isReplica) {
    if (access.cluster(CLUSTER_ACTION)) return call(request);
    return { errorCode: CLUSTER_REFUSED, sessionId: 0, responses: [] };
  }
  const answer = await call(request);
  const { image } = services.metadata;
  const responses = answer.responses.map((topic) => {
    const name = nameOf(image, topic.topic, topic.topicId);
    if (name === undefined || access.topic(READ, name)) return topic;
    const partitions = topic.partitions.map(({ partitionIndex }) => ({
      partitionIndex,
      errorCode: TOPIC_REFUSED,
      highWatermark: -1,
      lastStableOffset: -1,
      logStartOffset: -1,
      abortedTransactions: null,
      records: NO_RECORDS,
    }));
    return { ...topic, partitions };
  });
  return { ...answer, responses };
}

/** DESCRIBE, or being a broker. */
function maySee(access: Access, replicaId: number, topic: string): boolean {
  return access.topic(DESCRIBE, topic) || (replicaId >= 0 && access.cluster(CLUSTER_ACTION));
}

const listOffsets = guard(ListOffsetsRequest, ListOffsetsResponse, async (guarded) => {
  const { access, request, call } = guarded;
  const [allowed, refused] = divided(request.topics, ({ name }) =>
    maySee(access, request.replicaId, name),
  );
  const answer = await call({ ...request, topics: allowed });
  const refusals = refused.map(({ name, partitions }) => ({
    name,
    partitions: partitions.map(({ partitionIndex }) => ({
      partitionIndex,
      errorCode: TOPIC_REFUSED,
    })),
  }));
  return { ...answer, topics: [...answer.topics, ...refusals] };
});

const offsetForLeaderEpoch = guard(
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
  async ({ access, request, call }) => {
    const [allowed, refused] = divided(request.topics, ({ topic }) =>
      maySee(access, request.replicaId, topic),
    );
    const answer = await call({ ...request, topics: allowed });
    const refusals = refused.map(({ topic, partitions }) => ({
      topic,
      partitions: partitions.map(({ partition }) => ({
        partition,
        errorCode: TOPIC_REFUSED,
        leaderEpoch: -1,
        endOffset: -1,
      })),
    }));
    return { ...answer, topics: [...answer.topics, ...refusals] };
  },
);

const describeProducers = guard(
  DescribeProducersRequest,
  DescribeProducersResponse,
  async ({ access, request, call }) => {
    const [allowed, refused] = divided(request.topics, ({ name }) => access.topic(READ, name));
    const answer = await call({ ...request, topics: allowed });
    const refusals = refused.map(({ name, partitionIndexes }) => ({
      name,
      partitions: partitionIndexes.map((partitionIndex) => ({
        partitionIndex,
        errorCode: TOPIC_REFUSED,
        errorMessage: null,
        activeProducers: [],
      })),
    }));
    return { ...answer, topics: [...answer.topics, ...refusals] };
  },
);

/** Why the configs of a resource are not shown; 0: they are. */
function configsError(access: Access, type: number, name: string): number {
  switch (type) {
    case ConfigResourceType.TOPIC:
      return access.topic(DESCRIBE_CONFIGS, name) ? 0 : TOPIC_REFUSED;
    case ConfigResourceType.GROUP:
      return access.group(DESCRIBE_CONFIGS, name) ? 0 : GROUP_REFUSED;
    case ConfigResourceType.MIRROR:
      return access.cluster(DESCRIBE) ? 0 : CLUSTER_REFUSED;
    default:
      return access.cluster(DESCRIBE_CONFIGS) ? 0 : CLUSTER_REFUSED;
  }
}

const describeConfigs = guard(
  DescribeConfigsRequest,
  DescribeConfigsResponse,
  async ({ access, request, call }) => {
    const errorOf = (each: DescribeConfigsRequest['resources'][number]): number =>
      configsError(access, each.resourceType, each.resourceName);
    const [allowed, refused] = divided(request.resources, (each) => errorOf(each) === 0);
    const answer = await call({ ...request, resources: allowed });
    const refusals = refused.map((each) => ({
      errorCode: errorOf(each),
      errorMessage: null,
      resourceType: each.resourceType,
      resourceName: each.resourceName,
      configs: [],
    }));
    return { ...answer, results: [...answer.results, ...refusals] };
  },
);

const TRANSACTION = 1;
const MIRROR_KEYS = 64;
const SHARE = 2;

/** Why a key's coordinator is not told; 0: it is. */
function coordinatorError(access: Access, keyType: number, key: string): number {
  if (keyType === TRANSACTION) return access.transactionalId(DESCRIBE, key) ? 0 : ID_REFUSED;
  if (keyType === SHARE) return access.cluster(CLUSTER_ACTION) ? 0 : CLUSTER_REFUSED;
  if (keyType === MIRROR_KEYS) return access.cluster(DESCRIBE) ? 0 : CLUSTER_REFUSED;
  return access.group(DESCRIBE, key) ? 0 : GROUP_REFUSED;
}

const findCoordinator = guard(
  FindCoordinatorRequest,
  FindCoordinatorResponse,
  async ({ access, request, context, call }) => {
    const nowhere = { errorMessage: null, nodeId: -1, host: '', port: -1 };
    const errorOf = (key: string): number => coordinatorError(access, request.keyType, key);
    if (context.apiVersion < FIRST_BATCHED_FIND) {
      const errorCode = errorOf(request.key);
      return errorCode === 0 ? call(request) : { errorCode, ...nowhere };
    }
    const [allowed, refused] = divided(request.coordinatorKeys, (key) => errorOf(key) === 0);
    const answer = await call({ ...request, coordinatorKeys: allowed });
    const refusals = refused.map((key) => ({ key, errorCode: errorOf(key), ...nowhere }));
    return { ...answer, coordinators: [...(answer.coordinators ?? []), ...refusals] };
  },
);

const initProducerId = guard(
  InitProducerIdRequest,
  InitProducerIdResponse,
  ({ access, request, call }) => {
    const { transactionalId } = request;
    const refuse = (errorCode: number) => ({ errorCode, producerId: -1n, producerEpoch: -1 });
    if (transactionalId !== null && !access.transactionalId(WRITE, transactionalId)) {
      return refuse(ID_REFUSED);
    }
    const mayWrite = access.cluster(IDEMPOTENT_WRITE) || access.someTopic(WRITE);
    return transactionalId !== null || mayWrite ? call(request) : refuse(CLUSTER_REFUSED);
  },
);

const writeTxnMarkers = guard(
  WriteTxnMarkersRequest,
  WriteTxnMarkersResponse,
  ({ access, request, call }) => {
    if (access.cluster(CLUSTER_ACTION) || access.cluster(AclOperation.ALTER)) return call(request);
    const markers = request.markers.map(({ producerId, topics }) => ({
      producerId,
      topics: topics.map(({ name, partitionIndexes }) => ({
        name,
        partitions: partitionIndexes.map((partitionIndex) => ({
          partitionIndex,
          errorCode: CLUSTER_REFUSED,
        })),
      })),
    }));
    return { markers };
  },
);

/** The guards of a guest. */
export const guestGuards: readonly Guard[] = [
  metadata,
  describeTopicPartitions,
  guard(FetchRequest, FetchResponse, guardFetch),
  listOffsets,
  offsetForLeaderEpoch,
  describeProducers,
  describeConfigs,
  findCoordinator,
  initProducerId,
  writeTxnMarkers,
  ...clusterGuards,
];
