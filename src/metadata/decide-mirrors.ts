/**
 * Decides CreateMirror, AddTopicsToMirror and RemoveTopicsFromMirror.
 *
 * Called by the embedded controller with requests that a broker has validated: it has looked at
 * the source and at the partition states. Here the rules that need the metadata are decided, at
 * the one place where nothing can change in between. Invariants:
 * - A topic missing here is created together with its membership in one batch (Y1, A3): it is
 *   never writable in between.
 * - Each topic of a request is accepted or refused whole; a refused one leaves no record.
 * - A membership that changed after the broker looked refuses the topic (A3).
 */
import type { Uuid } from '../base/uuid.ts';
import { ZERO_UUID } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import type {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../protocol/messages/12790-create-mirror.ts';
import type {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../protocol/messages/12791-add-topics-to-mirror.ts';
import {
  OpenTransactions,
  type RemoveTopicsFromMirrorRequest,
  type RemoveTopicsFromMirrorResponse,
} from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import {
  type DecideContext,
  type Decision,
  duplicates,
  isRefusal,
  type Refusal,
  refuse,
} from './decide.ts';
import { MIRROR_FEATURE } from './features.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  MIRROR_NAME_CONFIG,
  REMOVED_SUFFIX,
  type TopicImage,
} from './image.ts';
import { NewTopics, newTopicRecords, topicConfigRecord } from './new-topics.ts';
import { assignReplicas } from './placement.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';
import { INTERNAL_TOPIC_NAMES, mirrorNameProblem, topicNameProblem } from './topic-names.ts';

type AddedTopic = AddTopicsToMirrorRequest['topics'][number];
type RemovedTopic = RemoveTopicsFromMirrorRequest['topics'][number];
type TopicResult = AddTopicsToMirrorResponse['topics'][number];

function featureProblem(image: MetadataImage): Refusal | undefined {
  if ((image.features.get(MIRROR_FEATURE) ?? 0) >= 1) return undefined;
  return refuse(ErrorCode.UNSUPPORTED_VERSION, `The feature ${MIRROR_FEATURE} is not enabled.`);
}

/** Decides CreateMirror: the mirror is its settings, config records of type MIRROR (O1, A2). */
export function decideCreateMirror(
  context: DecideContext,
  request: CreateMirrorRequest,
): Decision<CreateMirrorResponse> {
  const records = planMirror(context, request);
  if (isRefusal(records)) {
    const { error: errorCode, message: errorMessage } = records;
    return { records: [], response: { throttleTimeMs: 0, errorCode, errorMessage } };
  }
  return { records, response: { throttleTimeMs: 0, errorCode: 0, errorMessage: null } };
}

function planMirror(
  context: DecideContext,
  request: CreateMirrorRequest,
): MetadataRecord[] | Refusal {
  const { image, validators } = context;
  const disabled = featureProblem(image);
  if (disabled !== undefined) return disabled;
  const problem = mirrorNameProblem(request.mirrorName);
  if (problem !== undefined) return refuse(ErrorCode.INVALID_REQUEST, problem);
  const resourceType = ConfigResourceType.MIRROR;
  const resourceName = request.mirrorName ?? '';
  if (image.configs(resourceType, resourceName).size > 0) {
    return refuse(ErrorCode.INVALID_REQUEST, `Mirror '${resourceName}' already exists.`);
  }
  const configs = new Map<string, string>();
  for (const { name, value } of request.config) {
    if (value === null) return refuse(ErrorCode.INVALID_CONFIG, `The config ${name} has no value.`);
    if (configs.has(name)) return refuse(ErrorCode.INVALID_CONFIG, `${name} is given twice.`);
    configs.set(name, value);
  }
  const invalid = validators.mirror.check(configs);
  if (invalid !== undefined) return refuse(ErrorCode.INVALID_CONFIG, invalid);
  if (configs.size === 0) return refuse(ErrorCode.INVALID_CONFIG, 'A mirror needs settings.');
  return [...configs].map(([name, value]) =>
    metadataRecord('ConfigRecord', { resourceType, resourceName, name, value }),
  );
}

/** Decides AddTopicsToMirror. */
export function decideAddTopicsToMirror(
  context: DecideContext,
  request: AddTopicsToMirrorRequest,
): Decision<AddTopicsToMirrorResponse> {
  const taken = new NewTopics(context.image);
  return decidePerTopic(context, request.topics, (topic) =>
    planAddition(context, taken, topic, request.validatedAtOffset),
  );
}

/** Closing is a choice of guests (G24a), which never ask here; everywhere else a stop cuts (D1). */
function closingRefusal(openTransactions: number): Refusal {
  if (openTransactions !== OpenTransactions.CLOSE) {
    const message = `Open transactions are cut (0) or closed (1), not ${openTransactions}.`;
    return refuse(ErrorCode.INVALID_REQUEST, message);
  }
  return refuse(
    ErrorCode.INVALID_REQUEST,
    'Only a guest of an Apache Kafka cluster can close open transactions (G24a); a twinlog ' +
      'cluster cuts them off and keeps them in lost-and-found.',
  );
}

/** Decides RemoveTopicsFromMirror (D6: any number of topics is one batch; D7). */
export function decideRemoveTopicsFromMirror(
  context: DecideContext,
  request: RemoveTopicsFromMirrorRequest,
): Decision<RemoveTopicsFromMirrorResponse> {
  if (request.openTransactions !== OpenTransactions.CUT) {
    const { error: errorCode, message: errorMessage } = closingRefusal(request.openTransactions);
    const topics = request.topics.map(({ topicName: name, topicId }) => {
      return { name, topicId, errorCode, errorMessage };
    });
    return { records: [], response: mirrorTopicsResponse(topics) };
  }
  return decidePerTopic(context, request.topics, (topic) =>
    planRemoval(context.image, request, topic),
  );
}

interface TopicPlan {
  readonly topicId: Uuid;
  readonly records: readonly MetadataRecord[];
}

function decidePerTopic<T extends { readonly topicName: string; readonly topicId: Uuid }>(
  context: DecideContext,
  wishes: readonly T[],
  plan: (wish: T) => TopicPlan | Refusal,
): Decision<AddTopicsToMirrorResponse> {
  const disabled = featureProblem(context.image);
  const twice = duplicates(wishes.map((wish) => wish.topicName));
  const answered = new Set<string>();
  const records: MetadataRecord[] = [];
  const topics: TopicResult[] = [];
  for (const wish of wishes) {
    const name = wish.topicName;
    if (answered.has(name)) continue;
    answered.add(name);
    const repeated = twice.has(name)
      ? refuse(ErrorCode.INVALID_REQUEST, `Topic '${name}' occurs twice in the request.`)
      : undefined;
    const result = disabled ?? repeated ?? plan(wish);
    if (isRefusal(result)) {
      const { error: errorCode, message: errorMessage } = result;
      topics.push({ name, topicId: wish.topicId, errorCode, errorMessage });
    } else {
      records.push(...result.records);
      topics.push({ name, topicId: result.topicId, errorCode: 0, errorMessage: null });
    }
  }
  return { records, response: mirrorTopicsResponse(topics) };
}

/** The response of Add and Remove: the singular fields carry the first failure (A3). */
export function mirrorTopicsResponse(topics: TopicResult[]): AddTopicsToMirrorResponse {
  const first = topics.find((topic) => topic.errorCode !== 0) ?? topics[0];
  return {
    throttleTimeMs: 0,
    topicId: first?.topicId ?? ZERO_UUID,
    errorCode: first?.errorCode ?? 0,
    errorMessage: first?.errorMessage ?? null,
    topics,
  };
}

function planAddition(
  context: DecideContext,
  taken: NewTopics,
  wish: AddedTopic,
  validatedAtOffset: number,
): TopicPlan | Refusal {
  const { image } = context;
  const name = wish.topicName;
  const mirror = wish.mirrorName;
  if (mirror === null || image.configs(ConfigResourceType.MIRROR, mirror).size === 0) {
    return refuse(ErrorCode.RESOURCE_NOT_FOUND, `There is no mirror '${mirror ?? ''}'.`);
  }
  const problem = topicNameProblem(name);
  if (problem !== undefined) return refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, problem);
  if (INTERNAL_TOPIC_NAMES.has(name)) {
    const message = `Topic '${name}' is internal to each cluster and is never mirrored.`;
    return refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, message);
  }
  const topic = image.topicsByName.get(name);
  if (topic === undefined) return planCreation(context, taken, wish, mirror);
  const conflict = idConflict(topic, wish.topicId) ?? changedSince(image, name, validatedAtOffset);
  if (conflict !== undefined) return conflict;
  const membership = image.membership(name);
  if (membership !== undefined && !membership.removed && membership.mirror !== mirror) {
    return refuse(
      ErrorCode.INVALID_REQUEST,
      `Topic '${name}' belongs to mirror '${membership.mirror}': remove it there first.`,
    );
  }
  return { topicId: topic.id, records: [topicConfigRecord(name, MIRROR_NAME_CONFIG, mirror)] };
}

/** A topic that is missing here is made with the source's id (O3) and its membership. */
function planCreation(
  context: DecideContext,
  taken: NewTopics,
  wish: AddedTopic,
  mirror: string,
): TopicPlan | Refusal {
  const { image } = context;
  const name = wish.topicName;
  const holder = image.topicsById.get(wish.topicId);
  if (holder !== undefined) {
    return refuse(
      ErrorCode.INCONSISTENT_TOPIC_ID,
      `Topic '${name}' has the id ${wish.topicId} at the source, but here that is the id of ` +
        `topic '${holder.name}' (${holder.id}).`,
    );
  }
  if (wish.numPartitions < 1) {
    const message = `Topic '${name}' does not exist here, nor is its partition count given.`;
    return refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message);
  }
  // Sources older than topic ids have none to give (O3).
  const id = wish.topicId === ZERO_UUID ? context.newUuid() : wish.topicId;
  const problem =
    taken.checkName(name) ?? taken.checkId(id) ?? taken.checkPartitions(wish.numPartitions);
  if (problem !== undefined) return problem;
  const assignments = assignReplicas(
    image,
    {
      firstPartition: 0,
      count: wish.numPartitions,
      replicationFactor: context.defaultReplicationFactor,
      seed: taken.seed(),
      activeOnly: true,
    },
    undefined,
  );
  if (isRefusal(assignments)) return assignments;
  taken.take(name, id, wish.numPartitions);
  const configs = new Map([[MIRROR_NAME_CONFIG, mirror]]);
  return { topicId: id, records: newTopicRecords(image, { name, id, assignments, configs }) };
}

/** Rule O3; a zero id says that the other side knows none, and matches by name. */
function idConflict(topic: TopicImage, requested: Uuid): Refusal | undefined {
  if (requested === ZERO_UUID || requested === topic.id) return undefined;
  return refuse(
    ErrorCode.INCONSISTENT_TOPIC_ID,
    `Topic '${topic.name}' has the id ${topic.id} here, but ${requested} was given.`,
  );
}

function changedSince(
  image: MetadataImage,
  topic: string,
  validatedAtOffset: number,
): Refusal | undefined {
  const membership = image.membership(topic);
  if (validatedAtOffset < 0 || membership === undefined) return undefined;
  if (membership.offset <= validatedAtOffset) return undefined;
  return refuse(
    ErrorCode.INVALID_UPDATE_VERSION,
    `The membership of topic '${topic}' changed at metadata offset ${membership.offset}, after ` +
      `the request was checked at ${validatedAtOffset}: try again.`,
  );
}

function planRemoval(
  image: MetadataImage,
  request: RemoveTopicsFromMirrorRequest,
  wish: RemovedTopic,
): TopicPlan | Refusal {
  const name = wish.topicName;
  const topic = image.topicsByName.get(name);
  if (topic === undefined) {
    return refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, `There is no topic '${name}'.`);
  }
  const conflict = idConflict(topic, wish.topicId);
  if (conflict !== undefined) return conflict;
  const membership = image.membership(name);
  if (membership === undefined) {
    return refuse(ErrorCode.INVALID_REQUEST, `Topic '${name}' belongs to no mirror.`);
  }
  const { mirror } = membership;
  if (request.mirrorName !== '' && request.mirrorName !== mirror) {
    return refuse(
      ErrorCode.INVALID_REQUEST,
      `Topic '${name}' belongs to mirror '${mirror}', not '${request.mirrorName}'.`,
    );
  }
  if (membership.removed) return { topicId: topic.id, records: [] };
  const changed = changedSince(image, name, request.validatedAtOffset);
  if (changed !== undefined) return changed;
  const value = `${mirror}${REMOVED_SUFFIX}`;
  return { topicId: topic.id, records: [topicConfigRecord(name, MIRROR_NAME_CONFIG, value)] };
}
