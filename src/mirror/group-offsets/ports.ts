/**
 * Where group offsets come from and where they go (rule Y6): the ports of the group offset job.
 *
 * `source.ts` reads a source cluster. Sinks: the broker's own group coordinator (`local-sink.ts`),
 * and for a guest the coordinators of its Apache Kafka cluster (guest/group-offset-sink.ts). Which
 * partitions take part is told by `local-partitions.ts`, or in a guest by its state rows as well.
 */
import type { Uuid } from '../../base/uuid.ts';
import type { HostPort } from '../settings.ts';

/** A partition of this cluster. */
export interface PartitionHere {
  readonly topic: string;
  readonly topicId: Uuid;
  readonly partition: number;
}

/** A partition of a mirror. */
export interface MirroredPartition extends PartitionHere {
  readonly mirror: string;
  /** The topic's id at the source; zero: the source is older than topic ids. */
  readonly sourceTopicId: Uuid;
}

/** What a log here holds: offsets from start up to, not including, end. */
export interface OffsetRange {
  readonly logStartOffset: number;
  readonly logEndOffset: number;
}

/** Which partitions are MIRRORING here, and what they hold. */
export interface MirroredPartitions {
  /** Those of a mirror that are MIRRORING now. */
  mirroring(mirror: string): Promise<readonly MirroredPartition[]>;
  /** Asked right before a commit; undefined: it is not MIRRORING any more. */
  range(partition: MirroredPartition): OffsetRange | undefined;
}

/** A broker of the source. */
export interface SourceBroker {
  readonly brokerId: number;
  readonly address: HostPort;
}

/** One committed offset as the source tells it. */
export interface SourceOffset {
  /** Empty when the source names topics by id. */
  readonly topic: string;
  /** Zero when the source names topics by name. */
  readonly topicId: Uuid;
  readonly partition: number;
  /** −1: none. */
  readonly offset: number;
  readonly metadata: string;
  readonly errorCode: number;
}

/** All that a group has committed at the source. */
export interface SourceGroup {
  readonly groupId: string;
  readonly errorCode: number;
  readonly offsets: readonly SourceOffset[];
}

/** The groups of one source cluster; every method rejects with a MirrorFailure. */
export interface GroupOffsetSource {
  brokers(): Promise<readonly SourceBroker[]>;
  /** The groups with committed offsets that this broker coordinates, or an error code. */
  groups(broker: SourceBroker): Promise<readonly string[] | { readonly error: number }>;
  /** Asked of the broker that coordinates them; in the order asked. */
  offsets(broker: SourceBroker, groupIds: readonly string[]): Promise<readonly SourceGroup[]>;
  /** Something about the brokers turned out to be old: `brokers` asks anew. */
  outdated(): void;
}

/** An offset committed here. */
export interface HeldOffset {
  readonly offset: number;
  readonly metadata: string;
}

/** What a group has committed here, by {@link partitionKey} of its storage. */
export interface HeldGroup {
  /** 0, or why the rest is not known. */
  readonly errorCode: number;
  /** Somebody is in it: it commits for itself. */
  readonly hasMembers: boolean;
  readonly offsets: ReadonlyMap<string, HeldOffset>;
}

/** An offset to be committed here. */
export interface OffsetToCommit extends PartitionHere {
  readonly offset: number;
  readonly metadata: string;
}

/** What became of one commit. */
export type CommitResult =
  /** Those not named in `failed` are committed. */
  | { readonly kind: 'done'; readonly failed: readonly FailedOffset[] }
  /** The group has members here by now. */
  | { readonly kind: 'members' }
  | { readonly kind: 'failed'; readonly errorCode: number };

/** A partition whose commit was refused. */
export interface FailedOffset {
  readonly topic: string;
  readonly partition: number;
  readonly errorCode: number;
}

/** A group whose committed offset was too high (B1). */
export interface LoweredOffset {
  readonly groupId: string;
  readonly from: number;
  /** Why it still is; undefined: it was lowered. */
  readonly left?: string;
}

/** What was lowered, and 0 or why it may not be all. */
export interface LowerResult {
  readonly errorCode: number;
  readonly lowered: readonly LoweredOffset[];
}

/** The groups of this cluster. What goes wrong is in the answers: no method rejects for it. */
export interface GroupOffsetSink {
  /** Every group asked for; one that does not exist is empty. */
  read(groupIds: readonly string[]): Promise<ReadonlyMap<string, HeldGroup>>;
  /**
   * A member-less commit with leader epoch −1 (G27). `offsets` is asked when nothing can come in
   * between any more but the write itself; empty: nothing is written.
   */
  commit(groupId: string, offsets: () => readonly OffsetToCommit[]): Promise<CommitResult>;
  /** Lowers what any group committed above `offset` of a partition (B1); repeatable. */
  lower(partition: PartitionHere, offset: number): Promise<LowerResult>;
}
