/**
 * What a guest has its Apache peers do: make topics that clients ask for, by their own settings.
 *
 * Used by the handlers of Metadata and FindCoordinator, through `GuestServices`. A guest makes no
 * topics itself, as it does not know how many partitions and replicas the cluster wants them to
 * have, nor whether it wants them at all. Each question goes to one live Apache broker, to the next
 * where that one does not answer, never to another guest.
 */
import { isActive } from '../metadata/decide.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { errors } from '../protocol/errors.ts';
import { MetadataRequest, MetadataResponse } from '../protocol/messages/03-metadata.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../protocol/messages/10-find-coordinator.ts';
import type { EncodableOf, Message, MessageOf } from '../protocol/schema.ts';
import { type ClusterClient, ClusterError } from './cluster-client.ts';
import { apacheBrokers } from './guest-brokers.ts';

/** How long one broker may take to answer, in ms; the client behind the question is waiting. */
const QUESTION_TIMEOUT_MS = 3_000;
/** So many brokers are tried. */
const MAX_BROKERS = 3;

/** See the file header. */
export class ApacheQuestions {
  readonly #client: Pick<ClusterClient, 'call'>;
  readonly #image: () => MetadataImage;
  /** The brokers take turns. */
  #turn = 0;

  constructor(client: Pick<ClusterClient, 'call'>, image: () => MetadataImage) {
    this.#client = client;
    this.#image = image;
  }

  /**
   * Asks for topics by name, which makes those that are missing where the brokers' settings allow
   * it. Answers the error code of each one that is not there (yet).
   */
  async askForTopics(names: readonly string[]): Promise<ReadonlyMap<string, number>> {
    const answer = await this.#ask(MetadataRequest, MetadataResponse, {
      topics: names.map((name) => ({ name })),
      allowAutoTopicCreation: true,
    });
    if (answer === undefined) {
      return new Map(names.map((name) => [name, errors.LEADER_NOT_AVAILABLE.code]));
    }
    const missing = answer.topics.flatMap(({ name, errorCode }) =>
      name !== null && errorCode !== errors.NONE.code ? [[name, errorCode] as const] : [],
    );
    return new Map(missing);
  }

  /** Asks who coordinates a key, which makes the coordinator's topic if it is missing. */
  async askForCoordinator(keyType: number, key: string): Promise<void> {
    const question = { keyType, coordinatorKeys: [key] };
    await this.#ask(FindCoordinatorRequest, FindCoordinatorResponse, question);
  }

  /** Undefined when no broker answered. */
  async #ask<Q extends Message, S extends Message>(
    request: Q,
    response: S,
    value: EncodableOf<Q>,
  ): Promise<MessageOf<S> | undefined> {
    const live = apacheBrokers(this.#image()).filter(isActive);
    const first = this.#turn++;
    for (let i = 0; i < Math.min(live.length, MAX_BROKERS); i++) {
      const broker = live[(first + i) % live.length];
      if (broker === undefined) break;
      const target = { to: 'broker', id: broker.id } as const;
      const options = { requestTimeoutMs: QUESTION_TIMEOUT_MS, retryBoundMs: 0 };
      try {
        return await this.#client.call(target, request, response, value, options);
      } catch (error) {
        if (!(error instanceof ClusterError)) throw error;
      }
    }
    return undefined;
  }
}
