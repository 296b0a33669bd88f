/**
 * Questions to the brokers of a source: metadata, offsets, epochs, last mirrored offsets.
 *
 * One connection per address, opened at the first question and kept; data never flows here, that is
 * `source-endpoint.ts`. Every answer is a value or a {@link MirrorFailure} with a cause that the
 * state machine knows. Used by `source-cluster.ts` and by the checks of CreateMirror (A2).
 */
import type { Uuid } from '../base/uuid.ts';
import { addressText, ConnectionPool } from '../protocol/connection-pool.ts';
import { errors } from '../protocol/errors.ts';
import { ConnectionError, type ConnectionRuntime } from '../protocol/kafka-connection.ts';
import { FetchRequest, FetchResponse } from '../protocol/messages/01-fetch.ts';
import { ListOffsetsRequest, ListOffsetsResponse } from '../protocol/messages/02-list-offsets.ts';
import { MetadataRequest, MetadataResponse } from '../protocol/messages/03-metadata.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../protocol/messages/23-offset-for-leader-epoch.ts';
import {
  LastMirroredOffsetsRequest,
  LastMirroredOffsetsResponse,
} from '../protocol/messages/12793-last-mirrored-offsets.ts';
import type { EncodableOf, Message, MessageOf } from '../protocol/schema.ts';
import type {
  EndpointEpochEnd,
  EndpointOffset,
  EpochQuestion,
  OffsetQuestion,
} from '../replication/leader-endpoint.ts';
import { MirrorFailure } from './causes.ts';
import type { HostPort, MirrorSettings } from './settings.ts';

/** A consumer's replica id. */
const CONSUMER = -1;

/** The failure that a connection error means for a mirror. */
export function sourceFailure(error: ConnectionError): MirrorFailure {
  switch (error.cause) {
    case 'timeout':
      return new MirrorFailure('SOURCE_TIMED_OUT', error.message);
    case 'authentication':
      return new MirrorFailure('SOURCE_AUTHENTICATION_FAILED', error.message);
    case 'malformed':
    case 'unsupportedVersion':
    case 'overloaded':
      return new MirrorFailure('SOURCE_ERROR', error.message);
    default:
      return new MirrorFailure('SOURCE_UNREACHABLE', error.message);
  }
}

/** What of a mirror's settings is for its connections. */
export type SourceConnectionSettings = Pick<
  MirrorSettings,
  'requestTimeoutMs' | 'connectionSetupTimeoutMs' | 'security'
>;

/** What a {@link SourceClient} needs to dial. */
export interface SourceClientOptions {
  readonly clientId: string;
  readonly settings: SourceConnectionSettings;
}

/** Groups questions by topic, keeping their order within it. */
function byTopic<T extends { readonly topic: string }>(questions: readonly T[]): Map<string, T[]> {
  const topics = new Map<string, T[]>();
  for (const question of questions) {
    const list = topics.get(question.topic);
    if (list === undefined) topics.set(question.topic, [question]);
    else list.push(question);
  }
  return topics;
}

/** See the file header. */
export class SourceClient {
  readonly #pool: ConnectionPool;

  constructor(runtime: ConnectionRuntime, options: SourceClientOptions) {
    this.#pool = new ConnectionPool(runtime, {
      clientId: options.clientId,
      connectTimeoutMs: options.settings.connectionSetupTimeoutMs,
      requestTimeoutMs: options.settings.requestTimeoutMs,
      security: options.settings.security,
    });
  }

  close(): void {
    this.#pool.close();
  }

  /** Whether an address has a connection, or one being made. */
  knows(address: HostPort): boolean {
    return this.#pool.knows(address);
  }

  /** Sends one request; rejects with a {@link MirrorFailure}. */
  async send<Q extends Message, R extends Message>(
    address: HostPort,
    request: Q,
    response: R,
    value: EncodableOf<Q>,
  ): Promise<MessageOf<R>> {
    try {
      const connection = await this.#pool.get(address);
      return await connection.send(request, response, value);
    } catch (error) {
      throw error instanceof ConnectionError ? sourceFailure(error) : error;
    }
  }

  /** The highest version of an API that the broker and we speak; undefined: none. */
  async version(address: HostPort, request: Message): Promise<number | undefined> {
    try {
      return (await this.#pool.get(address)).version(request);
    } catch (error) {
      throw error instanceof ConnectionError ? sourceFailure(error) : error;
    }
  }

  /** Whether the broker serves an API in a version that we speak. */
  async serves(address: HostPort, request: Message): Promise<boolean> {
    return (await this.version(address, request)) !== undefined;
  }

  /** Brokers, cluster id and the named topics (null: all). */
  async metadata(address: HostPort, topics: readonly string[] | null): Promise<MetadataResponse> {
    const response = await this.send(address, MetadataRequest, MetadataResponse, {
      topics: topics?.map((name) => ({ name })) ?? null,
      allowAutoTopicCreation: false,
    });
    if (response.errorCode === errors.NONE.code) return response;
    const message = `Metadata failed at ${addressText(address)} with error ${response.errorCode}`;
    throw new MirrorFailure('SOURCE_ERROR', message);
  }

  /** In the order of the questions; as a consumer, bounded by the high watermark. */
  async listOffsets(
    address: HostPort,
    questions: readonly OffsetQuestion[],
  ): Promise<EndpointOffset[]> {
    const response = await this.send(address, ListOffsetsRequest, ListOffsetsResponse, {
      replicaId: CONSUMER,
      isolationLevel: 0,
      topics: [...byTopic(questions)].map(([name, list]) => ({
        name,
        partitions: list.map(({ partition, currentLeaderEpoch, timestamp }) => ({
          partitionIndex: partition,
          currentLeaderEpoch,
          timestamp,
        })),
      })),
    });
    return questions.map(({ topic, partition }) => {
      const answer = response.topics
        .find(({ name }) => name === topic)
        ?.partitions.find(({ partitionIndex }) => partitionIndex === partition);
      return answer ?? missing({ offset: -1, timestamp: -1n, leaderEpoch: -1 });
    });
  }

  /** In the order of the questions. */
  async offsetsForLeaderEpoch(
    address: HostPort,
    questions: readonly EpochQuestion[],
  ): Promise<EndpointEpochEnd[]> {
    const response = await this.send(
      address,
      OffsetForLeaderEpochRequest,
      OffsetForLeaderEpochResponse,
      {
        replicaId: CONSUMER,
        topics: [...byTopic(questions)].map(([topic, list]) => ({
          topic,
          partitions: list.map(({ partition, currentLeaderEpoch, leaderEpoch }) => ({
            partition,
            currentLeaderEpoch,
            leaderEpoch,
          })),
        })),
      },
    );
    return questions.map((question) => {
      const answer = response.topics
        .find(({ topic }) => topic === question.topic)
        ?.partitions.find(({ partition }) => partition === question.partition);
      return answer ?? missing({ leaderEpoch: -1, endOffset: -1 });
    });
  }

  /** The bytes from the batch that holds `offset` on; a copy. */
  async fetchAt(
    address: HostPort,
    at: {
      readonly topic: string;
      readonly topicId: Uuid;
      readonly partition: number;
      readonly offset: number;
      readonly currentLeaderEpoch: number;
      readonly maxBytes: number;
    },
  ): Promise<{ readonly errorCode: number; readonly records: Uint8Array }> {
    const { topic, topicId, partition, maxBytes } = at;
    const response = await this.send(address, FetchRequest, FetchResponse, {
      maxWaitMs: 0,
      minBytes: 0,
      maxBytes,
      isolationLevel: 1,
      mirrorFetch: true,
      topics: [
        {
          topic,
          topicId,
          partitions: [
            {
              partition,
              currentLeaderEpoch: at.currentLeaderEpoch,
              fetchOffset: at.offset,
              partitionMaxBytes: maxBytes,
            },
          ],
        },
      ],
      forgottenTopicsData: [],
    });
    const answer = response.responses[0]?.partitions[0];
    if (response.errorCode !== 0 || answer === undefined) {
      return { errorCode: response.errorCode, records: new Uint8Array(0) };
    }
    return { errorCode: answer.errorCode, records: answer.records ?? new Uint8Array(0) };
  }

  /** What the source, a twinlog, mirrored from `requesterClusterId` of one partition (B2). */
  async lastMirroredOffset(
    address: HostPort,
    question: {
      readonly mirror: string;
      readonly topic: string;
      readonly topicId: Uuid;
      readonly partition: number;
      readonly requesterClusterId: string;
    },
  ): Promise<{ readonly errorCode: number; readonly offset: number }> {
    const { mirror, topic, topicId, partition, requesterClusterId } = question;
    const response = await this.send(
      address,
      LastMirroredOffsetsRequest,
      LastMirroredOffsetsResponse,
      {
        mirrorName: mirror,
        topics: [{ name: topic, topicId, partitions: [{ partitionIndex: partition }] }],
        requesterClusterId,
      },
    );
    const answer = response.topics[0]?.partitions[0];
    if (response.errorCode !== 0 || answer === undefined) {
      const errorCode = response.errorCode || errors.UNKNOWN_SERVER_ERROR.code;
      return { errorCode, offset: -1 };
    }
    return { errorCode: answer.errorCode, offset: answer.lastMirroredOffset };
  }
}

/** An answer that the broker left out. */
function missing<T>(nothing: T): T & { readonly errorCode: number } {
  return { ...nothing, errorCode: errors.UNKNOWN_SERVER_ERROR.code };
}
