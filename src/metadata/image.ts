/**
 * The metadata image: everything the metadata log says, as one immutable value.
 *
 * Made by `image-delta.ts` from the previous image and the records of one committed batch; read by
 * every part of the broker and by the controller's decide functions. Invariants:
 * - Nothing reachable from an image ever changes; a reader may keep it across awaits.
 * - Images share structure: a map is copied only when a batch changes it, and a topic that no
 *   record names is the same object in both images.
 * - `topicsByName` and `topicsById` hold the same topics.
 */
import type { Uuid } from '../base/uuid.ts';
import { NO_SECURITY, type SecurityImage } from './security-image.ts';

/** Resource types of a ConfigRecord and of the config APIs. MIRROR is rule O1. */
export const ConfigResourceType = {
  TOPIC: 2,
  BROKER: 4,
  BROKER_LOGGER: 8,
  CLIENT_METRICS: 16,
  GROUP: 32,
  MIRROR: 64,
} as const;

/** Topic config that holds a topic's membership in a mirror (rule O2): internal, never settable. */
export const MIRROR_NAME_CONFIG = 'mirror.name';
/** Mirror config that holds the id of the source cluster (rule O4): internal, never settable. */
export const SOURCE_CLUSTER_ID_CONFIG = 'mirror.source.cluster.id';
/** Ending of a membership value once the topic is detached or detaching (rule O2). */
export const REMOVED_SUFFIX = '.removed';
/** A partition's leader when it has none. */
export const NO_LEADER = -1;
/** The id of a log directory that a record does not name (KIP-858). */
export const UNASSIGNED_DIRECTORY = 'AAAAAAAAAAAAAAAAAAAAAA' as Uuid;

/** What the metadata log says about one partition. Replica lists hold broker ids. */
export interface PartitionRegistration {
  readonly topicId: Uuid;
  readonly topic: string;
  readonly partition: number;
  /** In order of preference. */
  readonly replicas: readonly number[];
  readonly isr: readonly number[];
  readonly removingReplicas: readonly number[];
  readonly addingReplicas: readonly number[];
  readonly eligibleLeaderReplicas: readonly number[];
  readonly lastKnownElr: readonly number[];
  /** {@link NO_LEADER} when there is none. */
  readonly leader: number;
  /** 1 after an unclean election until the leader has recovered. */
  readonly leaderRecoveryState: number;
  /** Grows by one exactly when a record sets the leader, even to the same broker. */
  readonly leaderEpoch: number;
  /** Grows by one with every change. */
  readonly partitionEpoch: number;
  /** Log directory ids, in the order of `replicas`. */
  readonly directories: readonly Uuid[];
}

/** A topic and its partitions, by partition index. */
export interface TopicImage {
  readonly id: Uuid;
  readonly name: string;
  readonly partitions: ReadonlyMap<number, PartitionRegistration>;
}

/** Where a broker can be reached. */
export interface BrokerListener {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL. */
  readonly securityProtocol: number;
}

/** The feature levels a broker supports. */
export interface FeatureRange {
  readonly name: string;
  readonly minSupportedVersion: number;
  readonly maxSupportedVersion: number;
}

/** A broker as registered with the controller. */
export interface BrokerRegistrationImage {
  readonly id: number;
  /** Metadata offset of its registration. */
  readonly epoch: number;
  readonly incarnationId: Uuid;
  readonly rack: string | null;
  /** A fenced broker leads nothing and is shown to no client. */
  readonly fenced: boolean;
  readonly inControlledShutdown: boolean;
  readonly listeners: readonly BrokerListener[];
  readonly features: readonly FeatureRange[];
  readonly logDirs: readonly Uuid[];
  /** Those of them that take no new replicas (KIP-1066). */
  readonly cordonedLogDirs: readonly Uuid[];
}

/** A topic's membership in a mirror (rule O2). */
export interface MirrorMembership {
  /** The mirror's name, without the ending that marks a removed one. */
  readonly mirror: string;
  /** Detached or detaching: the record's value ended in `.removed`. */
  readonly removed: boolean;
  /** Metadata offset of the record (rule S7). */
  readonly offset: number;
}

/** All of the metadata as of one offset. */
export interface MetadataImage {
  /** Offset of the last applied record; −1 before the first. */
  readonly offset: number;
  /** Leader epoch of the metadata log at that offset. */
  readonly epoch: number;
  readonly clusterId: string;
  readonly topicsByName: ReadonlyMap<string, TopicImage>;
  readonly topicsById: ReadonlyMap<Uuid, TopicImage>;
  readonly brokers: ReadonlyMap<number, BrokerRegistrationImage>;
  /** Finalised feature levels. */
  readonly features: ReadonlyMap<string, number>;
  /** First producer id that no block holds yet. */
  readonly nextProducerId: bigint;
  /** Keyed by {@link configKey}; use {@link configs}. */
  readonly configsByResource: ReadonlyMap<string, ReadonlyMap<string, string>>;
  /** Keyed by topic name; use {@link membership}. */
  readonly memberships: ReadonlyMap<string, MirrorMembership>;
  readonly security: SecurityImage;
  /** The overrides set on a resource, empty when there are none. */
  configs(resourceType: number, name: string): ReadonlyMap<string, string>;
  /** Undefined when the topic is not, and was not, mirrored. */
  membership(topicName: string): MirrorMembership | undefined;
}

/** The fields of an image, from which {@link metadataImage} makes one. */
export type MetadataImageFields = Omit<MetadataImage, 'configs' | 'membership'>;

/** A config resource. */
export interface ConfigResource {
  readonly type: number;
  readonly name: string;
}

const NO_CONFIGS: ReadonlyMap<string, string> = new Map();

class Image implements MetadataImage {
  readonly offset: number;
  readonly epoch: number;
  readonly clusterId: string;
  readonly topicsByName: ReadonlyMap<string, TopicImage>;
  readonly topicsById: ReadonlyMap<Uuid, TopicImage>;
  readonly brokers: ReadonlyMap<number, BrokerRegistrationImage>;
  readonly features: ReadonlyMap<string, number>;
  readonly nextProducerId: bigint;
  readonly configsByResource: ReadonlyMap<string, ReadonlyMap<string, string>>;
  readonly memberships: ReadonlyMap<string, MirrorMembership>;
  readonly security: SecurityImage;

  constructor(fields: MetadataImageFields) {
    this.offset = fields.offset;
    this.epoch = fields.epoch;
    this.clusterId = fields.clusterId;
    this.topicsByName = fields.topicsByName;
    this.topicsById = fields.topicsById;
    this.brokers = fields.brokers;
    this.features = fields.features;
    this.nextProducerId = fields.nextProducerId;
    this.configsByResource = fields.configsByResource;
    this.memberships = fields.memberships;
    this.security = fields.security;
  }

  configs(resourceType: number, name: string): ReadonlyMap<string, string> {
    return this.configsByResource.get(configKey(resourceType, name)) ?? NO_CONFIGS;
  }

  membership(topicName: string): MirrorMembership | undefined {
    return this.memberships.get(topicName);
  }
}

/** Key of a resource in `configsByResource`. */
export function configKey(resourceType: number, name: string): string {
  return `${resourceType}:${name}`;
}

/** Makes an image of its fields, which must not change afterwards. */
export function metadataImage(fields: MetadataImageFields): MetadataImage {
  return new Image(fields);
}

/** The image before any record. */
export function emptyImage(clusterId: string): MetadataImage {
  return metadataImage({
    offset: -1,
    epoch: 0,
    clusterId,
    topicsByName: new Map(),
    topicsById: new Map(),
    brokers: new Map(),
    features: new Map(),
    nextProducerId: 0n,
    configsByResource: new Map(),
    memberships: new Map(),
    security: NO_SECURITY,
  });
}

/** What a `mirror.name` value at `offset` means; undefined for an empty one. */
export function parseMembership(value: string, offset: number): MirrorMembership | undefined {
  if (value === '') return undefined;
  const removed = value.endsWith(REMOVED_SUFFIX);
  const mirror = removed ? value.slice(0, -REMOVED_SUFFIX.length) : value;
  return { mirror, removed, offset };
}
