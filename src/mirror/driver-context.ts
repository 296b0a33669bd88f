/**
 * What partition drivers are given and what they show: the types between a driver and its owners.
 *
 * The mirror manager makes one context for all drivers; `queries.ts` reads statuses. The role is
 * what differs between a broker of our own cluster and a guest of an Apache Kafka cluster.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import type { GroupOffsetLowering } from './group-offsets/lowering.ts';
import type { MirrorStateStore } from './mirror-coordinator.ts';
import type { PartitionFetch } from './partition-fetch.ts';
import type { MirrorPartitionStates } from './partition-states.ts';
import { embeddedMapping, type ProducerIdMapping } from './producer-id-mapping.ts';
import type { MirrorBrokerSettings, MirrorSettings } from './settings.ts';
import type { SourceCluster } from './source-cluster.ts';
import type { ClosedTransaction, MirrorStateRow } from './state-row.ts';
import type { MirrorStateName } from './states.ts';

/** What the kind of cluster that this broker belongs to decides. */
export interface MirrorRole {
  /** Of a mirror's source: P1, or G20. */
  producerIds(mirror: string): ProducerIdMapping;
  /** `same`: a topic has its source's id (O3). `own`: its own, the source's is noted (G12). */
  readonly topicIdentity: 'same' | 'own';
  /** With `own`: the id at the source with which the topic was added; undefined when not known. */
  sourceTopicIdOf(topic: string): Uuid | undefined;
  /** A stop ends settled, and STOPPED is written by whoever hands the partition over (G24). */
  readonly handover: boolean;
  /**
   * What the rows of a source without LastMirroredOffsets, if it has rows, say was mirrored there
   * from this cluster (G22). Rejects with a MirrorFailure while they are not known.
   */
  peerLastMirroredOffset?(
    mirror: string,
    topic: string,
    partition: number,
  ): Promise<number | 'none'>;
  /**
   * Up to where a native topic that was taken into a mirror is the source's, as recorded when it
   * was taken (G29); undefined: it was not.
   */
  takenFrom?(topic: string, partition: number): number | undefined;
  /** Absent: a stop always cuts at the last stable offset (D1). */
  readonly closing?: ClosingRole;
}

/** Stops that end open transactions with markers (G24a). */
export interface ClosingRole {
  /** Whether a topic was removed with that wish. */
  isWanted(topic: string): boolean;
  /** The id that a local producer has at a mirror's source; undefined: it is this cluster's own. */
  sourceIdOf(mirror: string, producerId: bigint): bigint | undefined;
  /**
   * What the source closed where it stopped mirroring from here; `none`: it never did mirror from
   * here. Rejects with a MirrorFailure while that is not known.
   */
  closedAtSource(
    mirror: string,
    topic: string,
    partition: number,
  ): Promise<readonly ClosedTransaction[] | 'none'>;
}

/** The role of a broker of our own cluster. */
export const EMBEDDED_ROLE: MirrorRole = {
  producerIds: () => embeddedMapping,
  topicIdentity: 'same',
  sourceTopicIdOf: () => undefined,
  handover: false,
};

/** What drivers share. */
export interface DriverContext {
  readonly runtime: Runtime;
  /** This cluster's id. */
  readonly clusterId: string;
  readonly store: MirrorStateStore;
  readonly states: MirrorPartitionStates;
  readonly controller: Pick<ControllerPort, 'electSameLeader'>;
  readonly limits: MirrorBrokerSettings;
  readonly role: MirrorRole;
  /** Undefined: the mirror has no settings (yet). */
  mirror(
    name: string,
  ): { readonly source: SourceCluster; readonly settings: MirrorSettings } | undefined;
  /**
   * Lowers what groups committed above an offset of a partition (B1, G32); answers why it could
   * not, as a sentence.
   */
  readonly lowerGroupOffsets?: GroupOffsetLowering | undefined;
  /** An event that the table does not allow: counted, never silent (S1). */
  onIllegal(message: string): void;
}

/** What DescribeMirrors says of a partition besides its log (A4). */
export interface DriverStatus {
  readonly state: MirrorStateName;
  readonly row: MirrorStateRow | undefined;
  readonly cause: string;
  readonly message: string;
  /** Wall times in ms, −1 unknown. */
  readonly sinceMs: number;
  readonly nextRetryMs: number;
  readonly progress: ReturnType<PartitionFetch['progress']> | undefined;
}
