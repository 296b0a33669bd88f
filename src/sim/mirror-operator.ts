/**
 * The operator of a simulated destination: creates the mirror, adds and removes topics.
 *
 * Each command is repeated until it has had its effect, because its answer may be lost with a
 * connection; whether it had is asked of the metadata. A refusal that the contract does not have
 * for the situation fails the run.
 */
import { assert } from '../base/assert.ts';
import { ZERO_UUID } from '../base/uuid.ts';
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';
import { errorName, errors } from '../protocol/errors.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../protocol/messages/19-create-topics.ts';
import {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../protocol/messages/12790-create-mirror.ts';
import {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../protocol/messages/12791-add-topics-to-mirror.ts';
import {
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../protocol/messages/12795-describe-mirrors.ts';
import type { SimClient } from './sim-client.ts';
import { BROKER_PORT, type SimCluster } from './sim-cluster.ts';

/** Pause before a command is repeated, in ms. */
const REPEAT_MS = 300;
/** Repetitions after which a command counts as never succeeding. */
const MAX_REPEATS = 2_000;

/** Answers that waiting or a healed network cures. */
const PASSING: ReadonlySet<number> = new Set<number>([
  errors.BROKER_NOT_AVAILABLE.code,
  errors.COORDINATOR_NOT_AVAILABLE.code,
  errors.COORDINATOR_LOAD_IN_PROGRESS.code,
  errors.NOT_COORDINATOR.code,
  errors.REQUEST_TIMED_OUT.code,
  errors.INVALID_UPDATE_VERSION.code,
  errors.KAFKA_STORAGE_ERROR.code,
  errors.INVALID_REPLICATION_FACTOR.code,
]);

interface Refused {
  readonly errorCode: number;
  readonly errorMessage: string | null;
}

/** See the file header. */
export class MirrorOperator {
  readonly #client: SimClient;
  readonly #mirror: string;

  constructor(client: SimClient, mirror: string) {
    this.#client = client;
    this.#mirror = mirror;
  }

  /** Creates a topic on this operator's cluster. */
  createTopic(name: string, numPartitions: number, settings: [string, string][]): Promise<void> {
    const configs = settings.map(([setting, value]) => ({ name: setting, value }));
    return this.#until(
      (image) => image.topicsByName.has(name),
      async () => {
        const topic = { name, numPartitions, replicationFactor: 1, assignments: [], configs };
        const value = { topics: [topic], timeoutMs: 2_000 };
        const answer = await this.#client.send(CreateTopicsRequest, CreateTopicsResponse, value);
        return answer?.topics[0];
      },
    );
  }

  /** CreateMirror, with the source at its address. */
  createMirror(source: SimCluster): Promise<void> {
    const config = [
      { name: 'bootstrap.servers', value: `${source.machine}:${BROKER_PORT}` },
      { name: 'request.timeout.ms', value: '2000' },
    ];
    return this.#until(
      (image) => image.configs(ConfigResourceType.MIRROR, this.#mirror).size > 0,
      () =>
        this.#client.send(CreateMirrorRequest, CreateMirrorResponse, {
          mirrorName: this.#mirror,
          config,
        }),
    );
  }

  /** AddTopicsToMirror. */
  add(topic: string): Promise<void> {
    return this.#until(
      (image) => {
        const membership = image.membership(topic);
        return membership?.mirror === this.#mirror && !membership.removed;
      },
      () =>
        this.#client.send(AddTopicsToMirrorRequest, AddTopicsToMirrorResponse, {
          topics: [{ topicId: ZERO_UUID, topicName: topic, mirrorName: this.#mirror }],
        }),
    );
  }

  /** RemoveTopicsFromMirror: the failover. */
  remove(topic: string): Promise<void> {
    return this.#until(
      (image) => image.membership(topic)?.removed === true,
      () =>
        this.#client.send(RemoveTopicsFromMirrorRequest, RemoveTopicsFromMirrorResponse, {
          mirrorName: this.#mirror,
          topics: [{ topicId: ZERO_UUID, topicName: topic }],
        }),
    );
  }

  /** What DescribeMirrors says of each partition of a topic; undefined: no answer. */
  async describe(topic: string) {
    const response = await this.#client.send(DescribeMirrorsRequest, DescribeMirrorsResponse, {
      mirrorNames: [this.#mirror],
    });
    return response?.mirrors[0]?.topics.find(({ topicName }) => topicName === topic)?.partitions;
  }

  async #until(
    done: (image: MetadataImage) => boolean,
    command: () => Promise<Refused | undefined>,
  ): Promise<void> {
    for (let i = 0; i < MAX_REPEATS; i++) {
      const image = this.#client.cluster.broker?.services.metadata.image;
      if (image !== undefined && done(image)) return;
      const answer = await command();
      const now = this.#client.cluster.broker?.services.metadata.image;
      const settled = now === undefined || done(now) || answer === undefined;
      if (answer?.errorCode === errors.NONE.code && now !== undefined && done(now)) return;
      const passing =
        answer === undefined || answer.errorCode === 0 || PASSING.has(answer.errorCode);
      assert(
        settled || passing,
        `refused: ${errorName(answer?.errorCode ?? 0)}: ${answer?.errorMessage}`,
      );
      await this.#client.sleep(REPEAT_MS);
    }
    assert(false, `a command had no effect in ${MAX_REPEATS} tries`);
  }
}
