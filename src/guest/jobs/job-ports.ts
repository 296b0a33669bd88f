/**
 * What the guest's jobs are given: the cluster's controller, the mirror state, the metadata.
 *
 * The jobs (`mirror-admin.ts`, `topic-lock.ts`, `handover.ts`, `strays.ts`) know these ports only,
 * so that each step can be tried, and cut short, in a test. In a guest `GuestStateStore` and
 * `RemoteController` stand behind them.
 */
import type { Runtime } from '../../io/runtime.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import type { KeyedRow } from '../../mirror/coordinator-shard.ts';
import type { RowAnswer } from '../../mirror/mirror-coordinator.ts';
import type { MirrorStateRow, RowKey } from '../../mirror/state-row.ts';
import type { ErrorCode } from '../../protocol/errors.ts';
import type { EncodableOf, Message, MessageOf } from '../../protocol/schema.ts';
import type { MirrorJobsRow, MirrorSettingsRow, MirrorTopicRow } from '../state/catalog.ts';
import type { TopicRows } from './topic-rows.ts';

/** A request of our own to the active controller, whoever that is by now. */
export interface JobController {
  /** Rejects with what `isPassing` knows when no controller answered in time. */
  send<Q extends Message, R extends Message>(
    request: Q,
    response: R,
    value: EncodableOf<Q>,
  ): Promise<MessageOf<R>>;
}

/**
 * The rows of `__mirror_state`. A write resolves when it is durable, and by then the metadata image
 * shows what it means; or with the error why it was not made.
 */
export interface JobStore {
  mirrors(): readonly string[];
  settings(mirror: string): MirrorSettingsRow | undefined;
  topic(topicName: string): MirrorTopicRow | undefined;
  /** Names and rows of a mirror's topics, detached ones included. */
  topics(mirror: string): readonly (readonly [name: string, row: MirrorTopicRow])[];
  /** Who runs the mirror's jobs; undefined: none has claimed them. */
  jobs(mirror: string): MirrorJobsRow | undefined;
  rows(mirror: string): readonly KeyedRow[];
  /** Answers after all was read that anybody had written before the call. */
  read(key: RowKey): Promise<RowAnswer>;
  write(key: RowKey, row: MirrorStateRow | null): Promise<ErrorCode>;
  writeSettings(mirror: string, row: MirrorSettingsRow): Promise<ErrorCode>;
  writeTopic(topicName: string, row: MirrorTopicRow): Promise<ErrorCode>;
  deleteTopic(topicName: string): Promise<ErrorCode>;
  /** Fences the guest that ran them, if another did. */
  claimJobs(mirror: string): Promise<ErrorCode>;
}

/** What all jobs share. */
export interface JobContext {
  readonly runtime: Pick<Runtime, 'clock' | 'logger' | 'random'>;
  /** This guest's id. */
  readonly brokerId: number;
  readonly controller: JobController;
  readonly store: JobStore;
  /** Where rows of topics are changed. */
  readonly topicRows: TopicRows;
  readonly image: () => MetadataImage;
}

/** Names a partition in answers and errors. */
export interface PartitionName {
  readonly topic: string;
  readonly partition: number;
}

/** Text of a {@link PartitionName}. */
export function nameOf({ topic, partition }: PartitionName): string {
  return `${topic}-${partition}`;
}
