/**
 * CreateMirror, AddTopicsToMirror, RemoveTopicsFromMirror and changes of mirror settings where an
 * Apache controller cannot decide them: they become rows of `__mirror_state` (G12, G22).
 *
 * Called by the guest's controller port with requests that `mirror/operations.ts` has validated;
 * what the embedded controller checks (`metadata/decide-mirrors.ts`) is checked here with the same
 * functions. Invariants:
 * - Requests are worked on one after the other, and only by the guest that runs the mirror's jobs.
 * - A row is durable before anything that follows from it, and before the answer (S2).
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import type { ConfigValidators } from '../../metadata/config-validator.ts';
import { type DecideContext, isRefusal, type Refusal, refuse } from '../../metadata/decide.ts';
import { decideIncrementalAlterConfigs } from '../../metadata/decide-configs.ts';
import {
  decideCreateMirror,
  decideRemoveTopicsFromMirror,
  mirrorTopicsResponse,
} from '../../metadata/decide-mirrors.ts';
import { MIRROR_FEATURE } from '../../metadata/features.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  metadataImage,
  SOURCE_CLUSTER_ID_CONFIG,
} from '../../metadata/image.ts';
import { murmur2 } from '../../mirror/state-row.ts';
import { ApiKey } from '../../protocol/api-keys.ts';
import { errors } from '../../protocol/errors.ts';
import type {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../protocol/messages/44-incremental-alter-configs.ts';
import type {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../../protocol/messages/12790-create-mirror.ts';
import {
  OpenTransactions,
  type RemoveTopicsFromMirrorRequest,
  type RemoveTopicsFromMirrorResponse,
} from '../../protocol/messages/12792-remove-topics-from-mirror.ts';
import type { MirrorSettingsRow } from '../state/catalog.ts';
import { type JobOwnership, storeRefusal } from './job-ownership.ts';
import type { JobContext, JobStore } from './job-ports.ts';
import {
  newMembershipOffset,
  TopicAdditions,
  type TopicAdditionsOptions,
} from './topic-additions.ts';

/** Tags of producer ids (G20): 1 to this; 0 is the cluster's own ids. */
export const MAX_PRODUCER_ID_TAG = 4095;

/** What a {@link GuestMirrorAdmin} is made of. */
export interface GuestMirrorAdminOptions extends TopicAdditionsOptions {
  readonly validators: ConfigValidators;
}

type AddRequest = Parameters<TopicAdditions['add']>[0];
type RemovedTopic = RemoveTopicsFromMirrorRequest['topics'][number];
type TopicResult = RemoveTopicsFromMirrorResponse['topics'][number];

/**
 * The tag of a new mirror's source (G20): that of another mirror of the same source, else one that
 * no other source has here. It is drawn from the source's id, so that clusters which do not know of
 * each other rarely give one tag to two sources. Undefined: all tags are taken.
 */
export function producerIdTag(store: JobStore, mirror: string, sourceClusterId: string) {
  const taken = new Set<number>();
  for (const name of store.mirrors()) {
    const row = store.settings(name);
    if (row === undefined || name === mirror) continue;
    const source = row.configs.get(SOURCE_CLUSTER_ID_CONFIG) ?? '';
    if (source !== '' && source === sourceClusterId) return row.producerIdTag;
    taken.add(row.producerIdTag);
  }
  const text = sourceClusterId === '' ? `mirror ${mirror}` : sourceClusterId;
  const first = (murmur2(Buffer.from(text, 'utf8')) & 0x7fffffff) % MAX_PRODUCER_ID_TAG;
  for (let i = 0; i < MAX_PRODUCER_ID_TAG; i++) {
    const tag = ((first + i) % MAX_PRODUCER_ID_TAG) + 1;
    if (!taken.has(tag)) return tag;
  }
  return undefined;
}

/** The image as the decide functions want it: Apache's features do not know of mirrors. */
function withMirrorFeature(image: MetadataImage): MetadataImage {
  const features = new Map([...image.features, [MIRROR_FEATURE, 1]]);
  return metadataImage({ ...image, features });
}

/** See the file header. */
export class GuestMirrorAdmin {
  readonly #options: GuestMirrorAdminOptions;
  readonly #context: JobContext;
  readonly #ownership: JobOwnership;
  readonly #additions: TopicAdditions;
  /** The request that is worked on, and those that wait for it. */
  #tail: Promise<unknown> = Promise.resolve();

  constructor(options: GuestMirrorAdminOptions) {
    this.#options = options;
    this.#context = options.context;
    this.#ownership = options.ownership;
    this.#additions = new TopicAdditions(options);
  }

  /** Requests of API keys 12790, 12791, 12792 and, for mirrors, 44: decoded in, decoded out. */
  forward(apiKey: number, request: unknown): Promise<unknown> {
    switch (apiKey) {
      case ApiKey.CreateMirror:
        return this.#inTurn(() => this.#createMirror(request as CreateMirrorRequest));
      case ApiKey.AddTopicsToMirror:
        return this.#inTurn(() => this.#additions.add(request as AddRequest));
      case ApiKey.RemoveTopicsFromMirror:
        return this.#inTurn(() => this.#removeTopics(request as RemoveTopicsFromMirrorRequest));
      case ApiKey.IncrementalAlterConfigs:
        return this.#inTurn(() => this.#alterMirrors(request as IncrementalAlterConfigsRequest));
      default:
        throw new RangeError(`API ${apiKey} is none of the mirror APIs`);
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    // A request that failed must not fail those behind it; its own promise carries the failure.
    this.#tail = result.then(
      () => {},
      () => {},
    );
    return result;
  }

  #decideContext(): DecideContext {
    const image = withMirrorFeature(this.#context.image());
    return {
      image,
      nextOffset: image.offset + 1,
      validators: this.#options.validators,
      // Of topics that an embedded controller would make; a guest never makes them this way.
      defaultPartitions: 1,
      defaultReplicationFactor: 1,
      newUuid: () => ZERO_UUID,
    };
  }

  // --- mirrors ----------------------------------------------------------------------------------

  /** O1, A2; who creates a mirror runs its jobs. */
  async #createMirror(request: CreateMirrorRequest): Promise<CreateMirrorResponse> {
    const decided = decideCreateMirror(this.#decideContext(), request);
    if (decided.response.errorCode !== errors.NONE.code) return decided.response;
    const name = request.mirrorName ?? '';
    const refused = await this.#recordMirror(
      name,
      new Map(request.config.map((config) => [config.name, config.value ?? ''])),
    );
    if (refused === undefined) return decided.response;
    return { throttleTimeMs: 0, errorCode: refused.error, errorMessage: refused.message };
  }

  async #recordMirror(
    name: string,
    configs: ReadonlyMap<string, string>,
  ): Promise<Refusal | undefined> {
    const { store } = this.#context;
    const source = configs.get(SOURCE_CLUSTER_ID_CONFIG) ?? '';
    const tag = producerIdTag(store, name, source);
    if (tag === undefined) {
      const message = `This cluster has ${MAX_PRODUCER_ID_TAG} sources already, the most it can.`;
      return refuse(errors.POLICY_VIOLATION.code, message);
    }
    const refused = await this.#ownership.ensure(name);
    if (refused !== undefined) return refused;
    const row: MirrorSettingsRow = { configs, producerIdTag: tag };
    return storeRefusal(await store.writeSettings(name, row), `Mirror '${name}'`);
  }

  /** A6. */
  async #alterMirrors(
    request: IncrementalAlterConfigsRequest,
  ): Promise<IncrementalAlterConfigsResponse> {
    const { records, response } = decideIncrementalAlterConfigs(this.#decideContext(), request);
    const changed = new Map<string, Map<string, string>>();
    for (const record of records) {
      if (record.type !== 'ConfigRecord') continue;
      const { resourceType, resourceName, name, value } = record.value;
      if (resourceType !== ConfigResourceType.MIRROR) continue;
      const before = this.#context.store.settings(resourceName)?.configs;
      const configs = changed.get(resourceName) ?? new Map(before);
      if (value === null) configs.delete(name);
      else configs.set(name, value);
      changed.set(resourceName, configs);
    }
    const responses: IncrementalAlterConfigsResponse['responses'] = [];
    for (const answer of response.responses) {
      const configs = changed.get(answer.resourceName);
      const refused = configs && (await this.#alterMirror(answer.resourceName, configs));
      responses.push(
        refused === undefined
          ? answer
          : { ...answer, errorCode: refused.error, errorMessage: refused.message },
      );
    }
    return { ...response, responses };
  }

  async #alterMirror(
    name: string,
    configs: ReadonlyMap<string, string>,
  ): Promise<Refusal | undefined> {
    const { store } = this.#context;
    const refused = await this.#ownership.ensure(name);
    if (refused !== undefined) return refused;
    const tag = store.settings(name)?.producerIdTag ?? 0;
    const code = await store.writeSettings(name, { configs, producerIdTag: tag });
    return storeRefusal(code, `The settings of mirror '${name}'`);
  }

  // --- removal ----------------------------------------------------------------------------------

  /** D6, D7: rows in one go; the topics themselves are stopped by what sees the rows. */
  async #removeTopics(
    request: RemoveTopicsFromMirrorRequest,
  ): Promise<RemoveTopicsFromMirrorResponse> {
    const { openTransactions } = request;
    const isKnown = Object.values<number>(OpenTransactions).includes(openTransactions);
    if (!isKnown) return decideRemoveTopicsFromMirror(this.#decideContext(), request).response;
    const image = this.#context.image();
    const undone = new Map<string, TopicResult>();
    const topics: RemovedTopic[] = [];
    for (const wish of request.topics) {
      if (this.#isHalfDone(image, wish.topicName)) {
        undone.set(wish.topicName, await this.#undo(wish));
      } else topics.push(this.#localIdOf(image, wish));
    }
    const decided = decideRemoveTopicsFromMirror(this.#decideContext(), {
      ...request,
      topics,
      openTransactions: OpenTransactions.CUT,
    });
    const leaving = new Set(
      decided.records.flatMap((record) =>
        record.type === 'ConfigRecord' ? [record.value.resourceName] : [],
      ),
    );
    const results = await Promise.all(
      decided.response.topics.map((result) =>
        leaving.has(result.name) ? this.#detach(result, openTransactions) : result,
      ),
    );
    for (const result of results) undone.set(result.name, result);
    const names = new Set(request.topics.map(({ topicName }) => topicName));
    return mirrorTopicsResponse([...names].flatMap((name) => undone.get(name) ?? []));
  }

  /** A row that was written for a topic that was then never made. */
  #isHalfDone(image: MetadataImage, topic: string): boolean {
    const row = this.#context.store.topic(topic);
    return row?.topicId === ZERO_UUID && !image.topicsByName.has(topic);
  }

  async #undo(wish: RemovedTopic): Promise<TopicResult> {
    const { store } = this.#context;
    const { topicName: name, topicId } = wish;
    const mirror = store.topic(name)?.mirrorName ?? '';
    const refused =
      (await this.#ownership.ensure(mirror)) ??
      storeRefusal(await store.deleteTopic(name), `The removal of topic '${name}'`);
    return resultOf(name, topicId, refused);
  }

  /** The source's id of a mirrored topic names it as well as ours does. */
  #localIdOf(image: MetadataImage, wish: RemovedTopic): RemovedTopic {
    const row = this.#context.store.topic(wish.topicName);
    const isSources = row !== undefined && row.sourceTopicId === wish.topicId;
    const local = image.topicsByName.get(wish.topicName)?.id;
    return isSources && local !== undefined ? { ...wish, topicId: local } : wish;
  }

  async #detach(result: TopicResult, openTransactions: number): Promise<TopicResult> {
    const { name, topicId } = result;
    const { store } = this.#context;
    const row = store.topic(name);
    if (row === undefined) {
      const message = `Topic '${name}' belongs to no mirror.`;
      return resultOf(name, topicId, refuse(errors.INVALID_REQUEST.code, message));
    }
    const owned = await this.#ownership.ensure(row.mirrorName);
    if (isRefusal(owned)) return resultOf(name, topicId, owned);
    const code = await this.#context.topicRows.change(name, (current) => ({
      ...current,
      topicId,
      removed: true,
      openTransactions,
      membershipOffset: newMembershipOffset(this.#context.image(), current.membershipOffset),
    }));
    return resultOf(name, topicId, storeRefusal(code, `The removal of topic '${name}'`));
  }
}

function resultOf(
  name: string,
  topicId: TopicResult['topicId'],
  refused: Refusal | undefined,
): TopicResult {
  if (refused === undefined) return { name, topicId, errorCode: 0, errorMessage: null };
  return { name, topicId, errorCode: refused.error, errorMessage: refused.message };
}
