/**
 * Decides CreateTopics, DeleteTopics and CreatePartitions.
 *
 * Called by the embedded controller. Every topic of a request is judged alone; the records of all
 * accepted ones form one atomic batch. `mirror.name` is never accepted from outside (rule O2).
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import type {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../protocol/messages/19-create-topics.ts';
import type {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../protocol/messages/20-delete-topics.ts';
import type {
  CreatePartitionsRequest,
  CreatePartitionsResponse,
} from '../protocol/messages/37-create-partitions.ts';
import {
  type DecideContext,
  type Decision,
  duplicates,
  isRefusal,
  type Refusal,
  refuse,
} from './decide.ts';
import { type MetadataImage, MIRROR_NAME_CONFIG, type TopicImage } from './image.ts';
import { NewTopics, newTopicRecords, type TopicPlan } from './new-topics.ts';
import { assignReplicas, newPartitionRecord } from './placement.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';
import { MIRROR_STATE_TOPIC_NAME } from './topic-names.ts';

type NewTopic = CreateTopicsRequest['topics'][number];
type NewTopicResult = CreateTopicsResponse['topics'][number];
type NewPartitions = CreatePartitionsRequest['topics'][number];

/** `source` of an override in a CreateTopics response: dynamic topic config. */
const DYNAMIC_TOPIC_CONFIG = 1;
/** "Use the default" in CreateTopics. */
const UNSET = -1;

/** Decides CreateTopics; version 8 carries MirrorInfo (rule A1). */
export function decideCreateTopics(
  context: DecideContext,
  request: CreateTopicsRequest,
): Decision<CreateTopicsResponse> {
  const twice = duplicates(request.topics.map((topic) => topic.name));
  const answered = new Set<string>();
  const taken = new NewTopics(context.image);
  const records: MetadataRecord[] = [];
  const topics: NewTopicResult[] = [];
  for (const topic of request.topics) {
    if (answered.has(topic.name)) continue;
    answered.add(topic.name);
    const plan = twice.has(topic.name)
      ? refuse(ErrorCode.INVALID_REQUEST, `Topic '${topic.name}' occurs twice in the request.`)
      : planTopic(context, taken, topic);
    if (!isRefusal(plan)) {
      taken.take(plan.name, plan.id, plan.assignments.length);
      records.push(...newTopicRecords(context.image, plan));
    }
    topics.push(newTopicResult(topic.name, plan, request.validateOnly));
  }
  return {
    records: request.validateOnly ? [] : records,
    response: { throttleTimeMs: 0, topics },
  };
}

function newTopicResult(
  name: string,
  plan: TopicPlan | Refusal,
  validateOnly: boolean,
): NewTopicResult {
  if (isRefusal(plan)) {
    return {
      name,
      topicId: ZERO_UUID,
      errorCode: plan.error,
      errorMessage: plan.message,
      topicConfigErrorCode: 0,
      numPartitions: UNSET,
      replicationFactor: UNSET,
      configs: [],
    };
  }
  const configs = [...plan.configs].map(([key, value]) => ({
    name: key,
    value,
    readOnly: false,
    configSource: DYNAMIC_TOPIC_CONFIG,
    isSensitive: false,
  }));
  return {
    name,
    topicId: validateOnly ? ZERO_UUID : plan.id,
    errorCode: 0,
    errorMessage: null,
    topicConfigErrorCode: 0,
    numPartitions: plan.assignments.length,
    replicationFactor: plan.assignments[0]?.length ?? UNSET,
    configs,
  };
}

function planTopic(context: DecideContext, taken: NewTopics, topic: NewTopic): TopicPlan | Refusal {
  const problem = taken.checkName(topic.name);
  if (problem !== undefined) return problem;
  const requestedId = topic.mirrorInfo?.topicId;
  const idProblem = requestedId === undefined ? undefined : taken.checkId(requestedId);
  if (idProblem !== undefined) return idProblem;
  const configs = checkNewConfigs(context, topic);
  if (isRefusal(configs)) return configs;
  const assignments = planAssignments(context, taken, topic);
  if (isRefusal(assignments)) return assignments;
  return { name: topic.name, id: requestedId ?? context.newUuid(), assignments, configs };
}

function planAssignments(
  context: DecideContext,
  taken: NewTopics,
  topic: NewTopic,
): readonly (readonly number[])[] | Refusal {
  const manual = topic.assignments.length > 0 ? manualAssignments(topic) : undefined;
  if (isRefusal(manual)) return manual;
  const counts = manual === undefined ? requestedCounts(context, topic) : undefined;
  if (isRefusal(counts)) return counts;
  const count = counts?.partitions ?? manual?.length ?? 0;
  const tooMany = taken.checkPartitions(count);
  if (tooMany !== undefined) return tooMany;
  const wish = {
    firstPartition: 0,
    count,
    replicationFactor: counts?.replicas ?? manual?.[0]?.length ?? 0,
    seed: taken.seed(),
    activeOnly: topic.mirrorInfo !== null,
  };
  return assignReplicas(context.image, wish, manual);
}

function requestedCounts(
  context: DecideContext,
  topic: NewTopic,
): { partitions: number; replicas: number } | Refusal {
  const { numPartitions, replicationFactor } = topic;
  if (numPartitions !== UNSET && numPartitions < 1) {
    const message = `The number of partitions is ${numPartitions}, it must be at least 1.`;
    return refuse(ErrorCode.INVALID_PARTITIONS, message);
  }
  if (replicationFactor !== UNSET && replicationFactor < 1) {
    const message = `The replication factor is ${replicationFactor}, it must be at least 1.`;
    return refuse(ErrorCode.INVALID_REPLICATION_FACTOR, message);
  }
  return {
    partitions: numPartitions === UNSET ? context.defaultPartitions : numPartitions,
    replicas: replicationFactor === UNSET ? context.defaultReplicationFactor : replicationFactor,
  };
}

function manualAssignments(topic: NewTopic): number[][] | Refusal {
  if (topic.numPartitions !== UNSET || topic.replicationFactor !== UNSET) {
    return refuse(
      ErrorCode.INVALID_REQUEST,
      'With a manual assignment, partition count and replication factor must both be -1.',
    );
  }
  const byIndex = new Map(topic.assignments.map((a) => [a.partitionIndex, a.brokerIds]));
  const assignments: number[][] = [];
  for (let partition = 0; partition < topic.assignments.length; partition++) {
    const replicas = byIndex.get(partition);
    if (replicas === undefined) {
      return refuse(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        `The manual assignment must name each partition from 0 on once; ${partition} is missing.`,
      );
    }
    assignments.push(replicas);
  }
  return assignments;
}

function checkNewConfigs(
  context: DecideContext,
  topic: NewTopic,
): ReadonlyMap<string, string> | Refusal {
  const configs = new Map<string, string>();
  for (const { name, value } of topic.configs) {
    if (name === MIRROR_NAME_CONFIG) {
      return refuse(
        ErrorCode.INVALID_REQUEST,
        `The config ${MIRROR_NAME_CONFIG} is internal: add the topic to a mirror instead.`,
      );
    }
    if (value === null) {
      return refuse(ErrorCode.INVALID_CONFIG, `The config ${name} has no value.`);
    }
    if (configs.has(name)) {
      return refuse(ErrorCode.INVALID_CONFIG, `The config ${name} occurs twice.`);
    }
    configs.set(name, value);
  }
  const problem = context.validators.topic.check(configs);
  return problem === undefined ? configs : refuse(ErrorCode.INVALID_CONFIG, problem);
}

/** Decides DeleteTopics, by name or (v6) by id. */
export function decideDeleteTopics(
  context: DecideContext,
  request: DeleteTopicsRequest,
): Decision<DeleteTopicsResponse> {
  const wishes = [
    ...request.topics,
    ...request.topicNames.map((name) => ({ name, topicId: ZERO_UUID })),
  ];
  const named = new Set<string>();
  const records: MetadataRecord[] = [];
  const responses: DeleteTopicsResponse['responses'] = [];
  for (const wish of wishes) {
    const found = findTopicToDelete(context.image, wish);
    const topic =
      !isRefusal(found) && named.has(found.name)
        ? refuse(ErrorCode.INVALID_REQUEST, `Topic '${found.name}' occurs twice in the request.`)
        : found;
    if (isRefusal(topic)) {
      const { name, topicId } = wish;
      responses.push({ name, topicId, errorCode: topic.error, errorMessage: topic.message });
      continue;
    }
    named.add(topic.name);
    records.push(metadataRecord('RemoveTopicRecord', { topicId: topic.id }));
    responses.push({ name: topic.name, topicId: topic.id, errorCode: 0, errorMessage: null });
  }
  return { records, response: { throttleTimeMs: 0, responses } };
}

function findTopicToDelete(
  image: MetadataImage,
  wish: DeleteTopicsRequest['topics'][number],
): TopicImage | Refusal {
  const { name, topicId } = wish;
  if ((name === null) === (topicId === ZERO_UUID)) {
    return refuse(ErrorCode.INVALID_REQUEST, 'Exactly one of topic name and topic id is needed.');
  }
  const topic = name === null ? image.topicsById.get(topicId) : image.topicsByName.get(name);
  if (topic === undefined) {
    return name === null
      ? refuse(ErrorCode.UNKNOWN_TOPIC_ID, `There is no topic with the id ${topicId}.`)
      : refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, `There is no topic '${name}'.`);
  }
  if (topic.name === MIRROR_STATE_TOPIC_NAME && image.memberships.size > 0) {
    const member = image.memberships.keys().next().value;
    return refuse(
      ErrorCode.INVALID_REQUEST,
      `Topic '${topic.name}' holds the states of mirror topics such as '${member}'; ` +
        'it can be deleted when they are.',
    );
  }
  return topic;
}

/** Decides CreatePartitions. */
export function decideCreatePartitions(
  context: DecideContext,
  request: CreatePartitionsRequest,
): Decision<CreatePartitionsResponse> {
  const twice = duplicates(request.topics.map((topic) => topic.name));
  const taken = new NewTopics(context.image);
  const answered = new Set<string>();
  const records: MetadataRecord[] = [];
  const results: CreatePartitionsResponse['results'] = [];
  for (const wish of request.topics) {
    if (answered.has(wish.name)) continue;
    answered.add(wish.name);
    const added = twice.has(wish.name)
      ? refuse(ErrorCode.INVALID_REQUEST, `Topic '${wish.name}' occurs twice in the request.`)
      : planPartitions(context, taken, wish);
    if (!isRefusal(added)) records.push(...added);
    results.push({
      name: wish.name,
      errorCode: isRefusal(added) ? added.error : 0,
      errorMessage: isRefusal(added) ? added.message : null,
    });
  }
  return {
    records: request.validateOnly ? [] : records,
    response: { throttleTimeMs: 0, results },
  };
}

function planPartitions(
  context: DecideContext,
  taken: NewTopics,
  wish: NewPartitions,
): MetadataRecord[] | Refusal {
  const topic = context.image.topicsByName.get(wish.name);
  if (topic === undefined) {
    return refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, `There is no topic '${wish.name}'.`);
  }
  const current = topic.partitions.size;
  if (wish.count <= current) {
    return refuse(
      ErrorCode.INVALID_PARTITIONS,
      `Topic '${wish.name}' has ${current} partition(s); ${wish.count} would not be more.`,
    );
  }
  const count = wish.count - current;
  const tooMany = taken.checkPartitions(count);
  if (tooMany !== undefined) return tooMany;
  const manual = wish.assignments?.map((assignment) => assignment.brokerIds);
  if (manual !== undefined && manual.length !== count) {
    return refuse(
      ErrorCode.INVALID_REPLICA_ASSIGNMENT,
      `${count} partition(s) are to be added, but ${manual.length} are assigned.`,
    );
  }
  const replicationFactor = topic.partitions.get(0)?.replicas.length ?? 1;
  const start = topic.partitions.get(0)?.replicas[0] ?? 0;
  const seed = [...context.image.brokers.keys()].sort((a, b) => a - b).indexOf(start);
  const assignments = assignReplicas(
    context.image,
    {
      firstPartition: current,
      count,
      replicationFactor,
      seed: Math.max(0, seed),
      activeOnly: context.image.membership(topic.name) !== undefined,
    },
    manual,
  );
  if (isRefusal(assignments)) return assignments;
  // Counted so that the limit holds for the request; the name is taken by the topic anyway.
  taken.take(topic.name, topic.id, count);
  return assignments.map((replicas, index) =>
    newPartitionRecord(context.image, topic.id, current + index, replicas),
  );
}
