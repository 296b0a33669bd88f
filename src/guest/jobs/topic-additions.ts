/**
 * AddTopicsToMirror in an Apache Kafka cluster: row, then topic, then the row with the topic's id
 * (G12).
 *
 * Used by `mirror-admin.ts`. Each step finds out by itself whether it is done already, so that an
 * add that was cut short anywhere is finished by the same request. Invariants:
 * - Nothing is created before the row is durable and the metadata image shows the membership: no
 *   mirror topic is writable here for a moment. The topic is born locked.
 * - A topic that exists is taken up only where a row of a half-done add names it and it looks as we
 *   would have made it.
 * - A refusal that is certain takes its row with it; after an uncertain one the row stays.
 */
import { type Uuid, ZERO_UUID } from '../../base/uuid.ts';
import { duplicates, isRefusal, type Refusal, refuse } from '../../metadata/decide.ts';
import { mirrorTopicsResponse } from '../../metadata/decide-mirrors.ts';
import { ConfigResourceType, type MetadataImage, type TopicImage } from '../../metadata/image.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import { INTERNAL_TOPIC_NAMES, topicNameProblem } from '../../metadata/topic-names.ts';
import { MirrorFailure } from '../../mirror/causes.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../protocol/messages/19-create-topics.ts';
import type {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../../protocol/messages/12791-add-topics-to-mirror.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import {
  apacheBrokers,
  cordonProblem,
  isGuest,
  isLive,
  openBrokers,
  otherLiveGuests,
  spreadReplicas,
  topicSeed,
  uncordonedBrokers,
} from '../guest-brokers.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import type { FailbackWish } from './failback.ts';
import { type JobOwnership, storeRefusal } from './job-ownership.ts';
import type { JobContext } from './job-ports.ts';
import {
  copiedOverrides,
  creationConfigs,
  type DescribedConfig,
  excludedProperties,
  finalConfigs,
  isLocked,
  type SkippedConfig,
} from './topic-settings.ts';

/** Topics that are worked on at once. */
export const ADDITION_BATCH = 50;
/** Partitions made with one request: a controller writes 10,000 records in one batch. */
export const CREATION_PARTITIONS = 5_000;
/** How long the controller may take to make topics, in ms. */
const CREATE_TIMEOUT_MS = 30_000;
/** How long a made topic may take to show in the metadata, in ms. */
export const VISIBLE_TIMEOUT_MS = 30_000;
/** Time between two looks at the metadata, in ms. */
const VISIBLE_POLL_MS = 20;
/** Replicas on Apache brokers where the controller does not tell its default. */
const FALLBACK_REPLICATION_FACTOR = 3;

/** What a {@link TopicAdditions} is made of. */
export interface TopicAdditionsOptions {
  readonly context: JobContext;
  readonly ownership: JobOwnership;
  /** All configs of a topic at a mirror's source; rejects with a {@link MirrorFailure}. */
  readonly sourceConfigs: (mirror: string, topic: string) => Promise<readonly DescribedConfig[]>;
  /** Replicas on Apache brokers after failover; undefined: the controller's default. */
  readonly replicationFactor: () => number | undefined;
  /** Runs what needs this guest's log directory to take replicas (G7). */
  readonly whileUncordoned: <T>(action: () => Promise<T>) => Promise<T>;
  /** Takes a native topic into a mirror (`failback.ts`); absent: never. */
  readonly takeBack?: (wish: FailbackWish) => Promise<Refusal | 'none' | undefined>;
}

type Wish = AddTopicsToMirrorRequest['topics'][number];
type TopicResult = AddTopicsToMirrorResponse['topics'][number];
type NewTopic = EncodableOf<typeof CreateTopicsRequest>['topics'][number];
type CreatedTopic = CreateTopicsResponse['topics'][number];

/** One topic on its way in. */
interface Addition {
  readonly name: string;
  readonly mirror: string;
  readonly sourceTopicId: Uuid;
  readonly partitions: number;
  /** Of a half-done add, to be taken up where it stands. */
  readonly row: MirrorTopicRow | undefined;
}

/** The settings that a topic of its own accord would have, as the controller accepts them. */
interface AcceptedSettings {
  readonly overrides: ReadonlyMap<string, string>;
  readonly skipped: readonly SkippedConfig[];
  readonly replicationFactor: number;
}

/** Errors after which the topic may have been made all the same, or still will be. */
const UNCERTAIN: ReadonlySet<number> = new Set([
  errors.REQUEST_TIMED_OUT.code,
  errors.NOT_CONTROLLER.code,
  errors.NETWORK_EXCEPTION.code,
  errors.UNKNOWN_SERVER_ERROR.code,
]);

/** The offset that a membership gets now: newer than `previous`, not older than the metadata. */
export function newMembershipOffset(image: MetadataImage, previous: number | undefined): number {
  return Math.max(image.offset, (previous ?? -1) + 1);
}

/** Whether every partition has a replica on a guest: not so once it was handed over (Y5). */
function isOnGuests(image: MetadataImage, topic: TopicImage): boolean {
  return [...topic.partitions.values()].every(({ replicas }) =>
    replicas.some((id) => isGuest(image, id)),
  );
}

/** Whether an existing topic is what a half-done add of ours would have made: locked, on guests. */
export function looksHalfDone(image: MetadataImage, topic: TopicImage): boolean {
  return isOnGuests(image, topic) && isLocked(image.configs(ConfigResourceType.TOPIC, topic.name));
}

/** Where partitions of a new mirror topic go: this guest, other guests, Apache brokers (G12). */
export function mirrorAssignments(
  image: MetadataImage,
  brokerId: number,
  topic: { readonly name: string; readonly partitions: number; readonly replicationFactor: number },
): number[][] {
  const { name, partitions, replicationFactor } = topic;
  const others = otherLiveGuests(image, brokerId);
  const open = openBrokers(image);
  const brokers = open.length >= replicationFactor ? open : uncordonedBrokers(image);
  const wish = { partitions, replicationFactor, seed: topicSeed(name) };
  return spreadReplicas(brokers, wish).map((targets) => [brokerId, ...others, ...targets]);
}

/** Of a topic that exists and cannot be taken back (G29): nobody knows what both sides share. */
function failbackRefusal(topic: TopicImage, row: MirrorTopicRow | undefined): Refusal {
  const { name } = topic;
  if (row?.topicId === topic.id) {
    return refuse(
      errors.INVALID_REQUEST.code,
      `Topic '${name}' was mirrored before and is a native topic now. Taking it back into a ` +
        'mirror (failback) needs a record of what was mirrored from one side to the other, and ' +
        'neither has one: to copy it anew, delete it here first.',
    );
  }
  return refuse(
    errors.TOPIC_ALREADY_EXISTS.code,
    `Topic '${name}' exists here (${topic.id}) and was not made by a mirror: it is left alone. ` +
      'To mirror the topic of that name, delete the one here first.',
  );
}

/** See the file header. */
export class TopicAdditions {
  readonly #options: TopicAdditionsOptions;
  readonly #context: JobContext;

  constructor(options: TopicAdditionsOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  async add(request: AddTopicsToMirrorRequest): Promise<AddTopicsToMirrorResponse> {
    const twice = duplicates(request.topics.map(({ topicName }) => topicName));
    const results = new Map<string, TopicResult>();
    const todo: Addition[] = [];
    for (const wish of request.topics) {
      const { topicName: name } = wish;
      if (results.has(name) || todo.some((addition) => addition.name === name)) continue;
      const checked = twice.has(name)
        ? refuse(errors.INVALID_REQUEST.code, `Topic '${name}' occurs twice in the request.`)
        : await this.#check(wish, request.validatedAtOffset);
      if (isRefusal(checked)) results.set(name, refused(name, wish.topicId, checked));
      else if ('member' in checked) results.set(name, added(name, checked.member));
      else todo.push(checked);
    }
    for (let from = 0; from < todo.length; from += ADDITION_BATCH) {
      const batch = todo.slice(from, from + ADDITION_BATCH);
      for (const result of await this.#addBatch(batch)) results.set(result.name, result);
    }
    const names = new Set(request.topics.map(({ topicName }) => topicName));
    return mirrorTopicsResponse([...names].flatMap((name) => results.get(name) ?? []));
  }

  // --- may it be added? -------------------------------------------------------------------------

  async #check(
    wish: Wish,
    validatedAtOffset: number,
  ): Promise<Addition | { readonly member: Uuid } | Refusal> {
    const image = this.#context.image();
    const { topicName: name, mirrorName: mirror, topicId: sourceTopicId } = wish;
    if (mirror === null || image.configs(ConfigResourceType.MIRROR, mirror).size === 0) {
      return refuse(errors.RESOURCE_NOT_FOUND.code, `There is no mirror '${mirror ?? ''}'.`);
    }
    const problem = nameProblem(name) ?? changedSince(image, name, validatedAtOffset);
    if (problem !== undefined) return problem;
    const row = this.#context.store.topic(name);
    const topic = image.topicsByName.get(name);
    const isOurs = row !== undefined && (topic === undefined || isSameLife(row, topic));
    if (isOurs && !row.removed && row.mirrorName !== mirror) {
      return refuse(
        errors.INVALID_REQUEST.code,
        `Topic '${name}' belongs to mirror '${row.mirrorName}': remove it there first.`,
      );
    }
    const owned = await this.#options.ownership.ensure(mirror);
    if (owned !== undefined) return owned;
    if (topic !== undefined) return this.#checkExisting(image, topic, row, wish);
    return this.#checkNew(image, row, { ...wish, mirrorName: mirror, topicId: sourceTopicId });
  }

  async #checkExisting(
    image: MetadataImage,
    topic: TopicImage,
    row: MirrorTopicRow | undefined,
    wish: Wish,
  ): Promise<Addition | { readonly member: Uuid } | Refusal> {
    if (row === undefined || row.removed || !isSameLife(row, topic)) {
      return (await this.#takeBack(topic, wish)) ?? failbackRefusal(topic, row);
    }
    const conflict = sourceIdConflict(topic.name, row, wish.topicId);
    if (conflict !== undefined) return conflict;
    if (row.topicId === topic.id) {
      return isOnGuests(image, topic) ? { member: topic.id } : failbackRefusal(topic, row);
    }
    if (!looksHalfDone(image, topic)) {
      return await this.#giveUp(topic.name, failbackRefusal(topic, undefined));
    }
    const { mirrorName: mirror, sourceTopicId } = row;
    return { name: topic.name, mirror, sourceTopicId, partitions: topic.partitions.size, row };
  }

  /** G29; undefined: the source never had this topic from here, nor we from there. */
  async #takeBack(
    topic: TopicImage,
    { mirrorName, topicId: sourceTopicId, numPartitions: partitions }: Wish,
  ): Promise<{ readonly member: Uuid } | Refusal | undefined> {
    const wish = { mirror: mirrorName ?? '', topic, sourceTopicId, partitions };
    const { takeBack = async () => 'none' as const } = this.#options;
    const refused = await takeBack(wish);
    return refused === 'none' ? undefined : (refused ?? { member: topic.id });
  }

  #checkNew(
    image: MetadataImage,
    row: MirrorTopicRow | undefined,
    wish: Wish & { readonly mirrorName: string },
  ): Addition | Refusal {
    const { topicName: name, mirrorName: mirror, topicId: sourceTopicId, numPartitions } = wish;
    if (numPartitions < 1) {
      const message = `Topic '${name}' does not exist here, nor is its partition count given.`;
      return refuse(errors.UNKNOWN_TOPIC_OR_PARTITION.code, message);
    }
    if (uncordonedBrokers(image).length === 0) {
      const apache = apacheBrokers(image).map(({ id }) => id);
      const why = cordonProblem(image, apache) ?? 'none is registered';
      const message = `A mirror topic needs a broker that is no guest: ${why}.`;
      return refuse(errors.INVALID_REPLICATION_FACTOR.code, message);
    }
    if (!isLive(image, this.#context.brokerId)) {
      const message = `Guest ${this.#context.brokerId} is fenced: try again when it is not.`;
      return refuse(errors.BROKER_NOT_AVAILABLE.code, message);
    }
    const isHalfDone = row !== undefined && row.topicId === ZERO_UUID && !row.removed;
    if (isHalfDone && row.sourceTopicId === sourceTopicId) {
      return { name, mirror, sourceTopicId, partitions: numPartitions, row };
    }
    return { name, mirror, sourceTopicId, partitions: numPartitions, row: undefined };
  }

  // --- adding -----------------------------------------------------------------------------------

  async #addBatch(batch: readonly Addition[]): Promise<TopicResult[]> {
    const results: TopicResult[] = [];
    const recorded: [Addition, MirrorTopicRow][] = [];
    await Promise.all(
      batch.map(async (addition) => {
        const row = await this.#recordRow(addition);
        if (isRefusal(row)) {
          results.push(refused(addition.name, addition.sourceTopicId, row));
        } else recorded.push([addition, row]);
      }),
    );
    const made = await this.#create(recorded);
    await Promise.all(
      recorded.map(async ([addition, row]) => {
        const { name } = addition;
        const outcome = made.get(name) ?? (await this.#finish(name, row));
        results.push(
          isRefusal(outcome)
            ? refused(name, addition.sourceTopicId, outcome)
            : added(name, outcome.topicId),
        );
      }),
    );
    return results;
  }

  /** The durable row that the topic is made by; the gate knows it then. */
  async #recordRow(addition: Addition): Promise<MirrorTopicRow | Refusal> {
    const { name, mirror } = addition;
    const row = addition.row ?? (await this.#newRow(addition));
    if (isRefusal(row)) return row;
    if (row !== addition.row) {
      const code = await this.#context.store.writeTopic(name, row);
      const problem = storeRefusal(code, `The addition of topic '${name}'`);
      if (problem !== undefined) return problem;
    }
    const membership = this.#context.image().membership(name);
    if (membership?.mirror === mirror && !membership.removed) return row;
    const message = `The membership of topic '${name}' is recorded, not in force yet: try again.`;
    return refuse(errors.COORDINATOR_NOT_AVAILABLE.code, message);
  }

  async #newRow(addition: Addition): Promise<MirrorTopicRow | Refusal> {
    const { name, mirror, sourceTopicId } = addition;
    const settings = await this.#settings(addition);
    if (isRefusal(settings)) return settings;
    const { overrides, skipped, replicationFactor } = settings;
    for (const { name: config, reason } of skipped) {
      const fields = { mirror, topic: name, config, reason };
      this.#context.runtime.logger.warn('topic config of the source not copied', fields);
    }
    const image = this.#context.image();
    return {
      mirrorName: mirror,
      removed: false,
      membershipOffset: newMembershipOffset(
        image,
        this.#context.store.topic(name)?.membershipOffset,
      ),
      topicId: ZERO_UUID,
      sourceTopicId,
      finalConfigs: finalConfigs(image, overrides),
      targetReplicationFactor: replicationFactor,
    };
  }

  /** Y4; asks the controller what it makes of them, without making anything. */
  async #settings(addition: Addition): Promise<AcceptedSettings | Refusal> {
    const { name, mirror } = addition;
    const excluded = excludedProperties(
      this.#context.image().configs(ConfigResourceType.MIRROR, mirror),
    );
    let described: readonly DescribedConfig[];
    try {
      described = await this.#options.sourceConfigs(mirror, name);
    } catch (error) {
      if (!(error instanceof MirrorFailure)) throw error;
      return refuse(errors.BROKER_NOT_AVAILABLE.code, `${error.message}.`);
    }
    const { overrides, skipped } = copiedOverrides(described, excluded);
    const tried = await this.#tryCreate(addition, overrides);
    if (!isRefusal(tried)) return { overrides, skipped, replicationFactor: tried };
    if (tried.error !== errors.INVALID_CONFIG.code) return tried;
    for (const [config, value] of [...overrides]) {
      const alone = await this.#tryCreate(addition, new Map([[config, value]]));
      if (!isRefusal(alone)) continue;
      if (alone.error !== errors.INVALID_CONFIG.code) return alone;
      overrides.delete(config);
      skipped.push({ name: config, reason: alone.message });
    }
    const rest = await this.#tryCreate(addition, overrides);
    return isRefusal(rest) ? rest : { overrides, skipped, replicationFactor: rest };
  }

  /** What CreateTopics would say; the replicas on Apache brokers if it would succeed. */
  async #tryCreate(
    { name, partitions }: Addition,
    overrides: ReadonlyMap<string, string>,
  ): Promise<number | Refusal> {
    const wished = this.#options.replicationFactor();
    const most = apacheBrokers(this.#context.image()).length;
    for (const replicationFactor of [wished ?? -1, 1]) {
      const topic = { name, numPartitions: partitions, replicationFactor, assignments: [] };
      const answers = await this.#send([{ ...topic, configs: configList(overrides) }], true);
      if (isRefusal(answers)) return answers;
      const answer = answers.get(name);
      const error = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
      // Fewer brokers than the default wants: the topic gets as many as there are.
      if (error === errors.INVALID_REPLICATION_FACTOR.code && replicationFactor !== 1) continue;
      if (error !== errors.NONE.code) return controllerRefusal(name, answer);
      if (replicationFactor === 1 && wished !== 1) return most;
      const told = answer?.replicationFactor ?? -1;
      return Math.min(told > 0 ? told : FALLBACK_REPLICATION_FACTOR, most);
    }
    return refuse(errors.INVALID_REPLICATION_FACTOR.code, `No broker can hold topic '${name}'.`);
  }

  /** Makes those topics that are not there yet; the ones that cannot be made, with the reason. */
  async #create(
    recorded: readonly (readonly [Addition, MirrorTopicRow])[],
  ): Promise<Map<string, Refusal>> {
    const image = this.#context.image();
    const missing = recorded.filter(([{ name }]) => !image.topicsByName.has(name));
    const failed = new Map<string, Refusal>();
    if (missing.length === 0) return failed;
    for (const batch of byPartitions(missing)) {
      const answers = await this.#options.whileUncordoned(() => {
        // Who is live may have changed meanwhile.
        const now = this.#context.image();
        const topics = batch.map(([addition, row]) => this.#newTopic(now, addition, row));
        return this.#send(topics, false);
      });
      for (const [{ name }] of batch) {
        const refusal = await this.#refusalOf(name, answers);
        if (refusal !== undefined) failed.set(name, refusal);
      }
    }
    return failed;
  }

  /** Why a topic was not made; undefined: it was, or had been. */
  async #refusalOf(
    name: string,
    answers: Map<string, CreatedTopic> | Refusal,
  ): Promise<Refusal | undefined> {
    if (isRefusal(answers)) return answers;
    const answer = answers.get(name);
    const code = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
    if (code === errors.NONE.code || code === errors.TOPIC_ALREADY_EXISTS.code) return undefined;
    const refusal = controllerRefusal(name, answer);
    return UNCERTAIN.has(code) ? refusal : await this.#giveUp(name, refusal);
  }

  #newTopic(image: MetadataImage, addition: Addition, row: MirrorTopicRow): NewTopic {
    const { name, partitions } = addition;
    const replicationFactor = Math.max(row.targetReplicationFactor, 1);
    const lists = mirrorAssignments(image, this.#context.brokerId, {
      name,
      partitions,
      replicationFactor,
    });
    return {
      name,
      numPartitions: -1,
      replicationFactor: -1,
      assignments: lists.map((brokerIds, partitionIndex) => ({ partitionIndex, brokerIds })),
      configs: configList(creationConfigs(row.finalConfigs)),
    };
  }

  /** The topic was certainly not made: its row goes. */
  async #giveUp(name: string, refusal: Refusal): Promise<Refusal> {
    const code = await this.#context.store.deleteTopic(name);
    return storeRefusal(code, `That topic '${name}' was not made (${refusal.message})`) ?? refusal;
  }

  /** Waits for the topic to show, and records its id. */
  async #finish(name: string, row: MirrorTopicRow): Promise<MirrorTopicRow | Refusal> {
    const topic = await this.#whenVisible(name);
    if (topic === undefined) {
      const message = `Topic '${name}' was made, but does not show here yet: repeat the request.`;
      return refuse(errors.REQUEST_TIMED_OUT.code, message);
    }
    if (!looksHalfDone(this.#context.image(), topic)) {
      return await this.#giveUp(name, failbackRefusal(topic, undefined));
    }
    const done = { ...row, topicId: topic.id };
    const code = await this.#context.topicRows.change(name, (current) => ({
      ...current,
      topicId: topic.id,
    }));
    return storeRefusal(code, `The id of topic '${name}'`) ?? done;
  }

  async #whenVisible(name: string): Promise<TopicImage | undefined> {
    const { clock } = this.#context.runtime;
    const deadlineMs = clock.monotonicMs() + VISIBLE_TIMEOUT_MS;
    for (;;) {
      const topic = this.#context.image().topicsByName.get(name);
      if (topic !== undefined || clock.monotonicMs() >= deadlineMs) return topic;
      await new Promise<void>((resolve) => {
        clock.setTimer(VISIBLE_POLL_MS, resolve);
      });
    }
  }

  async #send(
    topics: NewTopic[],
    validateOnly: boolean,
  ): Promise<Map<string, CreatedTopic> | Refusal> {
    try {
      const request = { topics, timeoutMs: CREATE_TIMEOUT_MS, validateOnly };
      const response = await this.#context.controller.send(
        CreateTopicsRequest,
        CreateTopicsResponse,
        request,
      );
      return new Map(response.topics.map((topic) => [topic.name, topic]));
    } catch (error) {
      if (!isPassing(error)) throw error;
      const message = `The controller did not answer: ${error.message}. Repeat the request.`;
      return refuse(errors.REQUEST_TIMED_OUT.code, message);
    }
  }
}

/** Lists of at most {@link CREATION_PARTITIONS} partitions, or of one topic that has more. */
function byPartitions<T>(
  topics: readonly (readonly [Addition, T])[],
): (readonly [Addition, T])[][] {
  const batches: (readonly [Addition, T])[][] = [];
  let left = 0;
  for (const topic of topics) {
    const { partitions } = topic[0];
    if (partitions > left || batches.length === 0) {
      batches.push([]);
      left = CREATION_PARTITIONS;
    }
    batches.at(-1)?.push(topic);
    left -= partitions;
  }
  return batches;
}

/** Whether a row is about this topic, and not about one that was deleted since. */
function isSameLife(row: MirrorTopicRow, topic: TopicImage): boolean {
  return row.topicId === ZERO_UUID || row.topicId === topic.id;
}

function configList(configs: ReadonlyMap<string, string>): { name: string; value: string }[] {
  return [...configs].map(([name, value]) => ({ name, value }));
}

function nameProblem(name: string): Refusal | undefined {
  const problem = topicNameProblem(name);
  if (problem !== undefined) return refuse(errors.INVALID_TOPIC_EXCEPTION.code, problem);
  if (!INTERNAL_TOPIC_NAMES.has(name)) return undefined;
  const message = `Topic '${name}' is internal to each cluster and is never mirrored.`;
  return refuse(errors.INVALID_TOPIC_EXCEPTION.code, message);
}

/** A3: somebody changed the membership after the request was checked. */
function changedSince(image: MetadataImage, topic: string, offset: number): Refusal | undefined {
  const membership = image.membership(topic);
  if (offset < 0 || membership === undefined || membership.offset <= offset) return undefined;
  return refuse(
    errors.INVALID_UPDATE_VERSION.code,
    `The membership of topic '${topic}' changed at metadata offset ${membership.offset}, after ` +
      `the request was checked at ${offset}: try again.`,
  );
}

/** The source's topic is another than the one that this topic mirrors (F12). */
function sourceIdConflict(name: string, row: MirrorTopicRow, requested: Uuid): Refusal | undefined {
  const { sourceTopicId } = row;
  if (requested === ZERO_UUID || sourceTopicId === ZERO_UUID || requested === sourceTopicId) {
    return undefined;
  }
  return refuse(
    errors.INCONSISTENT_TOPIC_ID.code,
    `Topic '${name}' mirrors the source's topic ${sourceTopicId}, but ${requested} was given.`,
  );
}

function controllerRefusal(name: string, answer: CreatedTopic | undefined): Refusal {
  const code = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
  const why = answer?.errorMessage ?? errorName(code);
  return refuse(code, `The controller does not make topic '${name}': ${why}`);
}

function added(name: string, topicId: Uuid): TopicResult {
  return { name, topicId, errorCode: 0, errorMessage: null };
}

function refused(name: string, topicId: Uuid, { error, message }: Refusal): TopicResult {
  return { name, topicId, errorCode: error, errorMessage: message };
}
