/**
 * The mirror APIs that change something: CreateMirror, AddTopicsToMirror, RemoveTopicsFromMirror,
 * WriteMirrorStates (contract §11).
 *
 * Handlers hand in decoded requests. The broker validates what only it can (the source, the
 * partition states) and forwards to the controller what changes the metadata, with the offset at
 * which it was validated (A3). Reading APIs are in `queries.ts`.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import { mirrorTopicsResponse } from '../metadata/decide-mirrors.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  SOURCE_CLUSTER_ID_CONFIG,
  type TopicImage,
} from '../metadata/image.ts';
import { INTERNAL_TOPIC_NAMES } from '../metadata/topic-names.ts';
import { ApiKey } from '../protocol/api-keys.ts';
import { addressText } from '../protocol/connection-pool.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../protocol/messages/12790-create-mirror.ts';
import type {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../protocol/messages/12791-add-topics-to-mirror.ts';
import type {
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import type {
  LastMirroredOffsetsRequest,
  LastMirroredOffsetsResponse,
} from '../protocol/messages/12793-last-mirrored-offsets.ts';
import type {
  ListMirrorsRequest,
  ListMirrorsResponse,
} from '../protocol/messages/12794-list-mirrors.ts';
import type {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../protocol/messages/12795-describe-mirrors.ts';
import type {
  ReadMirrorStatesRequest,
  ReadMirrorStatesResponse,
} from '../protocol/messages/12796-read-mirror-states.ts';
import type {
  WriteMirrorStatesRequest,
  WriteMirrorStatesResponse,
} from '../protocol/messages/12797-write-mirror-states.ts';
import { type MirrorCause, MirrorFailure } from './causes.ts';
import type { MirrorRole } from './driver-context.ts';
import type { MirrorRows } from './mirror-coordinator.ts';
import type { MirrorManager } from './mirror-manager.ts';
import { MirrorQueries, type MirrorQueriesOptions } from './queries.ts';
import { checkMirrorConfigs, checkMirrorName, parseMirrorSettings } from './settings.ts';
import { SourceClient } from './source-client.ts';
import { parseRowKeyText } from './state-row.ts';
import { writeStates } from './state-writes.ts';
import { MirrorState, stateName } from './states.ts';

/** Who forwards; the handler has authorized the client (A5). */
const FORWARDED = { principal: 'User:ANONYMOUS' };

/** What {@link MirrorOperations} is made of. */
export interface MirrorOperationsOptions {
  readonly brokerId: number;
  /** This cluster's id. */
  readonly clusterId: string;
  readonly controller: Pick<ControllerPort, 'forward'>;
  readonly image: () => MetadataImage;
  readonly manager: MirrorManager;
  readonly coordinator: MirrorRows;
  readonly offlinePartitions: MirrorQueriesOptions['offlinePartitions'];
  /** Makes `__mirror_state` if it is missing (C1); 0 or an error code. */
  readonly ensureStateTopic: () => Promise<number>;
  /** `own`: a topic's id here says nothing about the source's (G12). */
  readonly topicIdentity: MirrorRole['topicIdentity'];
  readonly waitOf?: MirrorQueriesOptions['waitOf'];
}

type AddedTopic = AddTopicsToMirrorRequest['topics'][number];
type TopicResult = AddTopicsToMirrorResponse['topics'][number];

interface Refusal {
  readonly errorCode: ErrorCode;
  readonly errorMessage: string;
}

function refuse(errorCode: ErrorCode, errorMessage: string): Refusal {
  return { errorCode, errorMessage };
}

/** The error code that tells a client what kind of failure the source met it with. */
function codeOf(cause: MirrorCause): ErrorCode {
  switch (cause) {
    case 'SOURCE_TOPIC_MISSING':
      return errors.UNKNOWN_TOPIC_OR_PARTITION.code;
    case 'SOURCE_TIMED_OUT':
      return errors.REQUEST_TIMED_OUT.code;
    case 'SOURCE_AUTHENTICATION_FAILED':
      return errors.SASL_AUTHENTICATION_FAILED.code;
    case 'SOURCE_AUTHORIZATION_FAILED':
      return errors.CLUSTER_AUTHORIZATION_FAILED.code;
    case 'SOURCE_CLUSTER_CHANGED':
      return errors.INVALID_REQUEST.code;
    case 'INCONSISTENT_TOPIC_ID':
      return errors.INCONSISTENT_TOPIC_ID.code;
    default:
      return errors.BROKER_NOT_AVAILABLE.code;
  }
}

/** See the file header. */
export class MirrorOperations {
  readonly #runtime: Runtime;
  readonly #options: MirrorOperationsOptions;
  readonly #queries: MirrorQueries;

  constructor(runtime: Runtime, options: MirrorOperationsOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#queries = new MirrorQueries(options);
  }

  async createMirror(request: CreateMirrorRequest): Promise<CreateMirrorResponse> {
    const refused = this.#checkNewMirror(request);
    if (refused !== undefined) return { throttleTimeMs: 0, ...refused };
    const config = [...request.config];
    if (!request.skipValidation) {
      const probed = await this.#probe(request);
      if (typeof probed !== 'string') return { throttleTimeMs: 0, ...probed };
      config.push({ name: SOURCE_CLUSTER_ID_CONFIG, value: probed });
    }
    const topic = await this.#options.ensureStateTopic();
    if (topic !== errors.NONE.code) {
      const errorMessage = `The internal topic of mirror states cannot be made (error ${topic}).`;
      return { throttleTimeMs: 0, errorCode: topic, errorMessage };
    }
    const forwarded = { ...request, config };
    const { controller } = this.#options;
    return (await controller.forward(
      ApiKey.CreateMirror,
      0,
      forwarded,
      FORWARDED,
    )) as CreateMirrorResponse;
  }

  /** A2, O6: what needs no source. */
  #checkNewMirror(request: CreateMirrorRequest): Refusal | undefined {
    const badName = checkMirrorName(request.mirrorName);
    if (badName !== undefined) return refuse(errors.INVALID_REQUEST.code, badName);
    const name = request.mirrorName ?? '';
    if (this.#options.image().configs(ConfigResourceType.MIRROR, name).size > 0) {
      return refuse(errors.INVALID_REQUEST.code, `Mirror '${name}' already exists.`);
    }
    const configs = new Map<string, string>();
    for (const { name: setting, value } of request.config) {
      if (setting === SOURCE_CLUSTER_ID_CONFIG) {
        return refuse(errors.INVALID_CONFIG.code, `${setting} is set by the broker alone.`);
      }
      if (value === null) {
        return refuse(errors.INVALID_CONFIG.code, `The config ${setting} has no value.`);
      }
      configs.set(setting, value);
    }
    const badConfig = checkMirrorConfigs(configs);
    return badConfig === undefined ? undefined : refuse(errors.INVALID_CONFIG.code, badConfig);
  }

  /** A2: connects once; the source's cluster id, or why there shall be no such mirror. */
  async #probe(request: CreateMirrorRequest): Promise<string | Refusal> {
    const configs = new Map(request.config.map(({ name, value }) => [name, value ?? '']));
    const settings = parseMirrorSettings(configs);
    const { brokerId, clusterId } = this.#options;
    const client = new SourceClient(this.#runtime, {
      clientId: `broker-${brokerId}-mirror-metadata-manager-${request.mirrorName}`,
      settings,
    });
    const failures: MirrorFailure[] = [];
    try {
      for (const address of settings.bootstrapServers) {
        try {
          const id = (await client.metadata(address, [])).clusterId ?? '';
          if (id !== clusterId) return id;
          const text = `${addressText(address)} is this cluster itself (${id}), not a source.`;
          return refuse(errors.INVALID_REQUEST.code, `bootstrap.servers: ${text}`);
        } catch (error) {
          if (!(error instanceof MirrorFailure)) throw error;
          failures.push(error);
        }
      }
    } finally {
      client.close();
    }
    const reasons = failures.map(({ message }) => message).join('; ');
    const code = codeOf(failures[0]?.mirrorCause ?? 'SOURCE_UNREACHABLE');
    return refuse(code, `The source cannot be used: ${reasons}.`);
  }

  async addTopics(request: AddTopicsToMirrorRequest): Promise<AddTopicsToMirrorResponse> {
    const image = this.#options.image();
    const checked = await Promise.all(
      request.topics.map(async (topic) => ({ topic, checked: await this.#checkAdd(image, topic) })),
    );
    const accepted: AddedTopic[] = [];
    const refused = new Map<string, TopicResult>();
    for (const { topic, checked: result } of checked) {
      if (!('errorCode' in result)) accepted.push(result);
      else
        refused.set(topic.topicName, { name: topic.topicName, topicId: topic.topicId, ...result });
    }
    return this.#forwardTopics(ApiKey.AddTopicsToMirror, image, request, accepted, refused);
  }

  async removeTopics(
    request: RemoveTopicsFromMirrorRequest,
  ): Promise<RemoveTopicsFromMirrorResponse> {
    const image = this.#options.image();
    // Any state is fine (D7); whether the topic belongs to the mirror is the controller's to say.
    return this.#forwardTopics(
      ApiKey.RemoveTopicsFromMirror,
      image,
      request,
      request.topics,
      new Map(),
    );
  }

  async #forwardTopics(
    apiKey: number,
    image: MetadataImage,
    request: AddTopicsToMirrorRequest | RemoveTopicsFromMirrorRequest,
    topics: readonly { readonly topicName: string }[],
    refused: ReadonlyMap<string, TopicResult>,
  ): Promise<AddTopicsToMirrorResponse> {
    const results = new Map(refused);
    if (topics.length > 0) {
      const validatedAtOffset = newestOffset(image, topics);
      const forwarded = { ...request, topics, validatedAtOffset };
      const response = (await this.#options.controller.forward(
        apiKey,
        0,
        forwarded,
        FORWARDED,
      )) as AddTopicsToMirrorResponse;
      for (const result of response.topics) results.set(result.name, result);
    }
    const names = new Set(request.topics.map(({ topicName }) => topicName));
    return mirrorTopicsResponse([...names].flatMap((name) => results.get(name) ?? []));
  }

  /** The topic as it is to be forwarded, or why it is refused (A3). */
  async #checkAdd(image: MetadataImage, topic: AddedTopic): Promise<AddedTopic | Refusal> {
    const { topicName: name, mirrorName } = topic;
    const mirror = this.#options.manager.mirror(mirrorName ?? '');
    if (mirror === undefined || mirrorName === null) {
      const message = `There is no mirror '${mirrorName ?? ''}'.`;
      return refuse(errors.RESOURCE_NOT_FOUND.code, message);
    }
    if (INTERNAL_TOPIC_NAMES.has(name)) {
      const message = `Topic '${name}' is internal to each cluster and is never mirrored.`;
      return refuse(errors.INVALID_TOPIC_EXCEPTION.code, message);
    }
    if (topic.fullResync) {
      const message =
        "Full resync is not supported by this version. To take the source's copy of a topic " +
        'instead of the one here, delete it here (kafka-topics.sh --delete) and add it again.';
      return refuse(errors.INVALID_REQUEST.code, message);
    }
    try {
      const described = await mirror.source.topic(name);
      const { id } = described;
      const numPartitions = described.partitions.size;
      const local = image.topicsByName.get(name);
      const sameTopic = this.#options.topicIdentity === 'own' ? undefined : local;
      const conflict =
        wrongId(topic, sameTopic, id) ??
        tooManyPartitions(local, numPartitions) ??
        (local === undefined ? undefined : await this.#busy(image, local, mirrorName));
      return conflict ?? { ...topic, topicId: id, numPartitions };
    } catch (error) {
      if (!(error instanceof MirrorFailure)) throw error;
      return refuse(codeOf(error.mirrorCause), `${error.message}.`);
    }
  }

  /** A3: every existing partition must be UNKNOWN or STOPPED. */
  async #busy(
    image: MetadataImage,
    topic: TopicImage,
    mirrorName: string,
  ): Promise<Refusal | undefined> {
    const mirror = image.membership(topic.name)?.mirror ?? mirrorName;
    for (const partition of topic.partitions.keys()) {
      const key = { mirror, topicId: topic.id, partition };
      const answer = await this.#options.coordinator.read(key);
      if (!('row' in answer)) {
        const message = `The state of ${topic.name}-${partition} is not known yet: try again.`;
        return refuse(answer.error, message);
      }
      if (answer.row === undefined || answer.row.state === MirrorState.STOPPED) continue;
      return refuse(
        errors.INVALID_REQUEST.code,
        `Partition ${topic.name}-${partition} is ${stateName(answer.row.state)} in mirror ` +
          `'${mirror}': a topic is added when all its partitions are STOPPED.`,
      );
    }
    return undefined;
  }

  /**
   * The partition of `__mirror_state` that owns `mirror:topicId:partition` (C3); undefined for
   * other texts, and before the first CreateMirror.
   */
  partitionForKey(key: string): number | undefined {
    return parseRowKeyText(key) === undefined ? undefined : this.#options.coordinator.ownerOf(key);
  }

  listMirrors(request: ListMirrorsRequest): Promise<ListMirrorsResponse> {
    return this.#queries.listMirrors(request);
  }

  describeMirrors(request: DescribeMirrorsRequest): Promise<DescribeMirrorsResponse> {
    return this.#queries.describeMirrors(request);
  }

  lastMirroredOffsets(request: LastMirroredOffsetsRequest): Promise<LastMirroredOffsetsResponse> {
    return this.#queries.lastMirroredOffsets(request);
  }

  readMirrorStates(request: ReadMirrorStatesRequest): Promise<ReadMirrorStatesResponse> {
    return this.#queries.readMirrorStates(request);
  }

  writeMirrorStates(request: WriteMirrorStatesRequest): Promise<WriteMirrorStatesResponse> {
    return writeStates(this.#options.coordinator, this.#options.image(), request);
  }
}

/** Up to where the metadata and these memberships, which a guest keeps beside it, were seen. */
function newestOffset(
  image: MetadataImage,
  topics: readonly { readonly topicName: string }[],
): number {
  const seen = topics.map(({ topicName }) => image.membership(topicName)?.offset ?? -1);
  return seen.reduce((a, b) => Math.max(a, b), image.offset);
}

/** O3: both ids are named, nothing is changed. */
function wrongId(
  topic: AddedTopic,
  local: TopicImage | undefined,
  sourceId: Uuid,
): Refusal | undefined {
  if (sourceId === ZERO_UUID) return undefined;
  const code = errors.INCONSISTENT_TOPIC_ID.code;
  if (local !== undefined && local.id !== sourceId) {
    const message = `has id ${local.id} here and ${sourceId} at the source`;
    return refuse(code, `Topic '${topic.topicName}' ${message}.`);
  }
  if (topic.topicId === ZERO_UUID || topic.topicId === sourceId) return undefined;
  const message = `has id ${sourceId} at the source, but ${topic.topicId} was given`;
  return refuse(code, `Topic '${topic.topicName}' ${message}.`);
}

function tooManyPartitions(local: TopicImage | undefined, atSource: number): Refusal | undefined {
  const here = local?.partitions.size ?? 0;
  if (here <= atSource) return undefined;
  return refuse(
    errors.INVALID_PARTITIONS.code,
    `Topic '${local?.name}' has ${here} partitions here, but only ${atSource} at the source.`,
  );
}
