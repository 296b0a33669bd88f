/**
 * What commands ask of a running twinlog: the mirror APIs over one connection.
 *
 * Used by every command but `serve`. Invariants: a refusal or an unreachable broker is a
 * CommandError whose sentence names who was asked; per-topic answers are returned, never thrown.
 */

import { ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { errorName } from '../protocol/errors.ts';
import { ConnectionError, KafkaConnection } from '../protocol/kafka-connection.ts';
import { MetadataRequest, MetadataResponse } from '../protocol/messages/03-metadata.ts';
import {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../protocol/messages/12790-create-mirror.ts';
import {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../protocol/messages/12791-add-topics-to-mirror.ts';
import {
  OpenTransactions,
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import {
  ListMirrorsRequest,
  ListMirrorsResponse,
} from '../protocol/messages/12794-list-mirrors.ts';
import {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../protocol/messages/12795-describe-mirrors.ts';
import { CommandError, parseAddress } from './output.ts';

const REQUEST_TIMEOUT_MS = 60_000;

/** Per topic, what became of a request; `message` is null for a success. */
export interface TopicOutcome {
  readonly topic: string;
  readonly error: string | null;
  readonly message: string | null;
}

/** A described mirror, as DescribeMirrors answers it. */
export type MirrorDescription = DescribeMirrorsResponse['mirrors'][number];

/** A topic at a cluster. */
export interface TopicListing {
  readonly name: string;
  readonly isInternal: boolean;
  readonly partitions: number;
}

function sentence(code: number, message: string | null): string {
  return message === null || message === '' ? errorName(code) : `${errorName(code)}: ${message}`;
}

interface TopicsResponse {
  readonly errorCode: number;
  readonly errorMessage: string | null;
  readonly topics: AddTopicsToMirrorResponse['topics'];
}

function outcomes(response: TopicsResponse): TopicOutcome[] {
  if (response.topics.length === 0 && response.errorCode !== 0) {
    throw new CommandError(sentence(response.errorCode, response.errorMessage));
  }
  return response.topics.map(({ name, errorCode, errorMessage }) => ({
    topic: name,
    error: errorCode === 0 ? null : errorName(errorCode),
    message: errorMessage,
  }));
}

/** A connection to one broker for admin requests; failures are CommandErrors. */
export class AdminClient {
  readonly #connection: KafkaConnection;

  private constructor(connection: KafkaConnection) {
    this.#connection = connection;
  }

  /**
   * Connects to the first of `HOST:PORT,…` that answers; `option` is named when they are no
   * addresses.
   */
  static async connectAny(
    runtime: Runtime,
    bootstrap: string,
    option: string,
    what: string,
    security?: ConnectionSecurity,
  ): Promise<AdminClient> {
    const addresses = bootstrap.split(',').map((text) => parseAddress(text, option));
    for (;;) {
      const address = addresses.shift();
      if (address === undefined) throw new CommandError(`${option}: no address is given.`, 2);
      try {
        return await AdminClient.connect(runtime, address, `${what} at ${bootstrap}`, security);
      } catch (error) {
        if (!(error instanceof CommandError) || addresses.length === 0) throw error;
      }
    }
  }

  /** Connects to `host:port`, named `what` in messages. */
  static async connect(
    runtime: Runtime,
    address: { readonly host: string; readonly port: number },
    what: string,
    security?: ConnectionSecurity,
  ): Promise<AdminClient> {
    try {
      const connection = await KafkaConnection.connect(runtime, {
        ...address,
        clientId: 'twinlog-admin',
        security,
        requestTimeoutMs: REQUEST_TIMEOUT_MS,
      });
      return new AdminClient(connection);
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      const reason = /^E[A-Z]+$/.test(error.cause) ? error.cause : error.message;
      throw new CommandError(
        `Cannot reach ${what}: ${reason}. Check that it runs and that the address is right.`,
      );
    }
  }

  close(): void {
    this.#connection.close();
  }

  /** The connection itself, for requests that are not administration. */
  get connection(): KafkaConnection {
    return this.#connection;
  }

  /** Every topic of the cluster. */
  async listTopics(): Promise<TopicListing[]> {
    const response = await this.#connection.send(MetadataRequest, MetadataResponse, {
      topics: null,
      allowAutoTopicCreation: false,
    });
    return response.topics.flatMap(({ name, isInternal, partitions, errorCode }) =>
      name !== null && errorCode === 0 ? [{ name, isInternal, partitions: partitions.length }] : [],
    );
  }

  /** Creates a mirror; answers the error's name and message when refused, null when done. */
  async createMirror(
    mirror: string,
    settings: readonly (readonly [string, string])[],
    skipValidation = false,
  ): Promise<{ error: string; message: string } | null> {
    const response = await this.#connection.send(CreateMirrorRequest, CreateMirrorResponse, {
      mirrorName: mirror,
      config: settings.map(([name, value]) => ({ name, value })),
      skipValidation,
    });
    if (response.errorCode === 0) return null;
    return { error: errorName(response.errorCode), message: response.errorMessage ?? '' };
  }

  /** Adds topics to a mirror. */
  async addTopics(mirror: string, topics: readonly string[]): Promise<TopicOutcome[]> {
    const response = await this.#connection.send(
      AddTopicsToMirrorRequest,
      AddTopicsToMirrorResponse,
      {
        topics: topics.map((topicName) => ({
          topicId: ZERO_UUID,
          topicName,
          mirrorName: mirror,
        })),
      },
    );
    return outcomes(response);
  }

  /** Removes topics from a mirror: stops mirroring them and makes them writable. */
  async removeTopics(
    mirror: string,
    topics: readonly string[],
    openTransactions: number = OpenTransactions.CUT,
  ): Promise<TopicOutcome[]> {
    const response = await this.#connection.send(
      RemoveTopicsFromMirrorRequest,
      RemoveTopicsFromMirrorResponse,
      {
        mirrorName: mirror,
        topics: topics.map((topicName) => ({ topicId: ZERO_UUID, topicName })),
        openTransactions,
      },
    );
    return outcomes(response);
  }

  /** Every mirror of the cluster. */
  async listMirrors(): Promise<ListMirrorsResponse['mirrors']> {
    const response = await this.#connection.send(ListMirrorsRequest, ListMirrorsResponse, {});
    if (response.errorCode !== 0) throw new CommandError(sentence(response.errorCode, null));
    return response.mirrors;
  }

  /** Describes mirrors, all of them when no name is given; an unknown name is a CommandError. */
  async describeMirrors(names: readonly string[]): Promise<MirrorDescription[]> {
    const response = await this.#connection.send(DescribeMirrorsRequest, DescribeMirrorsResponse, {
      mirrorNames: names.length === 0 ? null : names,
    });
    const bad = response.mirrors.find(({ errorCode }) => errorCode !== 0);
    if (bad !== undefined) {
      throw new CommandError(
        `Mirror ${bad.mirrorName}: ${errorName(bad.errorCode)}. ` +
          '`twinlog mirrors list` shows the mirrors there are.',
      );
    }
    return response.mirrors;
  }
}
