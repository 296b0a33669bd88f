/**
 * What serves one API: its schemas, the versions offered, and the function that answers.
 *
 * One file per API in `handlers/`, listed in `api-table.ts`; `request-handler.ts` decodes, calls
 * and encodes. Invariants: a handler answers every request it takes, errors included, and never
 * throws for what a client sent; what it throws is a defect, closes that connection and is logged.
 */

import type { GroupCoordinator } from '../coordinator/group-coordinator.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import type { FeatureRange } from '../metadata/image.ts';
import type { MetadataLoader } from '../metadata/metadata-loader.ts';
import type { MirrorOperations } from '../mirror/operations.ts';
import {
  type EncodableOf,
  type Message,
  type MessageOf,
  parseVersions,
  type VersionRange,
} from '../protocol/schema.ts';
import type { FetchSessions } from '../replication/fetch-sessions.ts';
import type { ReplicaManager } from '../replication/replica-manager.ts';
import type { Authorizer } from './authorizer.ts';
import type { BrokerConfig } from './broker-config.ts';
import type { ClientSession } from './client-session.ts';
import type { InternalTopics } from './internal-topics.ts';
import type { ProducerIds } from './producer-ids.ts';

/** The parts of a broker that handlers use. */
export interface BrokerServices {
  readonly runtime: Runtime;
  readonly config: BrokerConfig;
  readonly brokerId: number;
  readonly clusterId: string;
  readonly metadata: MetadataLoader;
  readonly controller: ControllerPort;
  readonly replicas: ReplicaManager;
  readonly fetchSessions: FetchSessions;
  readonly groups: GroupCoordinator;
  readonly mirrors: MirrorOperations;
  readonly producerIds: ProducerIds;
  readonly internalTopics: InternalTopics;
  /** What ApiVersions lists, in the order of the keys. */
  readonly listedApis: readonly ListedApi[];
  /** Only where this broker is a guest in an Apache Kafka cluster. */
  readonly guest?: GuestServices;
}

/** What only the handlers of a guest use. */
export interface GuestServices {
  /** As registered; ApiVersions tells them too. */
  readonly supportedFeatures: readonly FeatureRange[];
  /**
   * Asks an Apache broker for topics; those missing are made there, if the cluster's settings allow
   * it. Answers the error code of each topic that it could not be told about yet.
   */
  askForTopics(names: readonly string[]): Promise<ReadonlyMap<string, number>>;
  /** Undefined: everyone may do everything here. */
  readonly authorizer?: Authorizer | undefined;
  /** Decides about settings of mirrors (IncrementalAlterConfigs), which Apache cannot. */
  readonly mirrorAdmin: Pick<ControllerPort, 'forward'>;
  /** Asks an Apache broker who coordinates a key, which makes the coordinator's topic there. */
  askForCoordinator(keyType: number, key: string): Promise<void>;
  /** A request of this broker's own to the active controller; rejects when none answers. */
  askController<Q extends Message, S extends Message>(
    request: Q,
    response: S,
    value: EncodableOf<Q>,
  ): Promise<MessageOf<S>>;
}

/** An API and the versions that clients are offered. */
export interface ListedApi {
  readonly apiKey: number;
  readonly minVersion: number;
  readonly maxVersion: number;
}

/** Who asks, and how. */
export interface RequestContext {
  readonly apiVersion: number;
  readonly clientId: string | null;
  readonly clientHost: string;
  /** `User:ANONYMOUS` for whoever did not authenticate. */
  readonly principal: string;
  /** Name of the listener that the connection came in on. */
  readonly listenerName: string;
  /** Identifies the connection, for fetch sessions. */
  readonly connectionId: number;
  /** Undefined where nobody authenticates. */
  readonly session?: ClientSession | undefined;
}

/** The answer to a request that gets none on the wire (Produce with acks=0). */
export const NO_RESPONSE: unique symbol = Symbol('no response');

/** A handler with its message types erased, as the table holds it. */
export interface ApiHandler {
  readonly apiKey: number;
  readonly request: Message;
  readonly response: Message;
  /** Versions offered in ApiVersions. */
  readonly versions: VersionRange;
  /** Versions served without being offered to stock clients (rule A9). */
  readonly unlistedVersions: VersionRange;
  handle(services: BrokerServices, request: unknown, context: RequestContext): unknown;
}

/** A handler of request bodies that this broker does not look into, or decodes itself. */
export interface RawApiHandler extends Pick<ApiHandler, 'apiKey' | 'versions'> {
  /** Answers the body of the response, in the version of the request. */
  handleBody(
    services: BrokerServices,
    body: Uint8Array,
    context: RequestContext,
  ): Promise<Uint8Array>;
}

/** An API table: who serves which API key. */
export type ApiTable = ReadonlyMap<number, ApiHandler | RawApiHandler>;

/** What ApiVersions lists for the handlers, in the order of the keys. */
export function listed(handlers: Iterable<ApiHandler | RawApiHandler>): ListedApi[] {
  return [...handlers]
    .map(({ apiKey, versions }) => ({ apiKey, minVersion: versions.min, maxVersion: versions.max }))
    .sort((a, b) => a.apiKey - b.apiKey);
}

interface HandlerDeclaration<Q extends Message, S extends Message> {
  readonly request: Q;
  readonly response: S;
  readonly versions: string;
  readonly unlistedVersions?: string;
  handle(
    services: BrokerServices,
    request: MessageOf<Q>,
    context: RequestContext,
  ): EncodableOf<S> | typeof NO_RESPONSE | Promise<EncodableOf<S> | typeof NO_RESPONSE>;
}

/** Declares the handler of one API. */
export function apiHandler<Q extends Message, S extends Message>(
  declaration: HandlerDeclaration<Q, S>,
): ApiHandler {
  const { request, response, versions, unlistedVersions = 'none' } = declaration;
  return {
    apiKey: request.apiKey ?? -1,
    request,
    response,
    versions: parseVersions(versions),
    unlistedVersions: parseVersions(unlistedVersions),
    handle: (services, decoded, context) =>
      declaration.handle(services, decoded as MessageOf<Q>, context),
  };
}
