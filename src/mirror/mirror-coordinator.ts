/**
 * The mirror coordinator of this broker: the shards of `__mirror_state` that it leads (C1–C4).
 *
 * Partition drivers and the mirror APIs reach rows through {@link MirrorStateStore}; this is its
 * implementation for rows whose owner is this broker. For others it answers NOT_COORDINATOR until
 * the routed form (a later issue) sends Read/WriteMirrorStates to the owner. Writes that come in
 * one go are written as one batch per shard (rule D6).
 *
 * Rows of deleted topics are tombstoned by whoever owns them (B2): at each deletion, whenever a
 * shard is loaded and at each pass of the mirror manager, so a missed deletion is repaired.
 */
import type { Uuid } from '../base/uuid.ts';
import {
  type CoordinatorError,
  type CoordinatorLog,
  CoordinatorRuntime,
  type Decision,
  isCoordinatorError,
} from '../coordinator/runtime.ts';
import type { Runtime } from '../io/runtime.ts';
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import { failureOf } from './causes.ts';
import { type KeyedRow, MirrorShard, type RowWrite } from './coordinator-shard.ts';
import {
  MIRROR_STATE_TOPIC,
  type MirrorStateRow,
  ownerPartition,
  type RowKey,
  rowKeyText,
} from './state-row.ts';

/** Rows in one batch of the state log: well below `max.message.bytes`. */
export const MAX_ROWS_PER_WRITE = 100;

/** A durable row, a definite "no row", or why neither is known. */
export type RowAnswer =
  | { readonly error: 0; readonly row: MirrorStateRow | undefined }
  | { readonly error: ErrorCode };

/** Rows about one partition of a topic, of any mirror, or why they are not known. */
export type RowsAnswer =
  | { readonly error: 0; readonly rows: readonly KeyedRow[] }
  | { readonly error: ErrorCode };

/** Reads and writes rows through whoever owns them; answers only what is durable (rule S2). */
export interface MirrorStateStore {
  read(key: RowKey): Promise<RowAnswer>;
  /** All mirrors that this cluster knows are asked. */
  rowsOfPartition(topicId: Uuid, partition: number): Promise<RowsAnswer>;
  /** Resolves when the row is durable, or with the reason why it was refused. */
  write(key: RowKey, row: MirrorStateRow | null): Promise<ErrorCode>;
  /** Deletes a row that was not stopped and serves a membership older than the given (S7). */
  discard(key: RowKey, membershipOffset: number): Promise<ErrorCode>;
}

/** A store as a broker holds it: fed by leadership and metadata, and closed with the broker. */
export interface MirrorRows extends MirrorStateStore {
  /** The partition of `__mirror_state` that owns a key's text (C3); undefined before it exists. */
  ownerOf(text: string): number | undefined;
  /** This broker leads a partition of `__mirror_state` from now on. */
  onBecomeLeader(partition: number, leaderEpoch: number): void;
  onLoseLeadership(partition: number): void;
  /** Tombstones the rows whose topic is gone (B2); what fails is left to the next sweep. */
  sweep(): void;
  close(): void;
}

interface QueuedWrite extends RowWrite {
  readonly resolve: (error: ErrorCode) => void;
}

/** What a {@link MirrorCoordinator} is made of. */
export interface MirrorCoordinatorOptions {
  readonly log: CoordinatorLog;
  readonly image: () => MetadataImage;
}

/** See the file header. */
export class MirrorCoordinator implements MirrorRows {
  readonly #runtime: Runtime;
  readonly #image: () => MetadataImage;
  readonly #shards: CoordinatorRuntime<MirrorShard>;
  #queued = new Map<number, QueuedWrite[]>();

  constructor(runtime: Runtime, options: MirrorCoordinatorOptions) {
    this.#runtime = runtime;
    this.#image = options.image;
    this.#shards = new CoordinatorRuntime(runtime, {
      topic: MIRROR_STATE_TOPIC,
      log: options.log,
      // Deferred: the runtime counts the shard as loaded only after this.
      newShard: (partition) =>
        new MirrorShard(() => runtime.clock.defer(() => void this.#sweep(partition))),
    });
  }

  onBecomeLeader(partition: number, leaderEpoch: number): void {
    this.#shards.onBecomeLeader(partition, leaderEpoch);
  }

  onLoseLeadership(partition: number): void {
    this.#shards.onLoseLeadership(partition);
  }

  close(): void {
    this.#shards.close();
  }

  ownerOf(text: string): number | undefined {
    const topic = this.#image().topicsByName.get(MIRROR_STATE_TOPIC);
    return topic === undefined ? undefined : ownerPartition(text, topic.partitions.size);
  }

  async read(key: RowKey): Promise<RowAnswer> {
    const owner = this.ownerOf(rowKeyText(key));
    if (owner === undefined) return { error: errors.COORDINATOR_NOT_AVAILABLE.code };
    const answer = await this.#shards.readCommitted(owner, (shard) => ({ row: shard.row(key) }));
    if (isCoordinatorError(answer)) return answer;
    return { error: errors.NONE.code, row: answer.row };
  }

  async rowsOfPartition(topicId: Uuid, partition: number): Promise<RowsAnswer> {
    const rows: KeyedRow[] = [];
    for (const mirror of mirrorNames(this.#image())) {
      const key = { mirror, topicId, partition };
      const answer = await this.read(key);
      if (!('row' in answer)) return answer;
      if (answer.row !== undefined) rows.push({ key, row: answer.row });
    }
    return { error: errors.NONE.code, rows };
  }

  write(key: RowKey, row: MirrorStateRow | null): Promise<ErrorCode> {
    const owner = this.ownerOf(rowKeyText(key));
    if (owner === undefined) return Promise.resolve(errors.COORDINATOR_NOT_AVAILABLE.code);
    return new Promise((resolve) => {
      if (this.#queued.size === 0) this.#runtime.clock.defer(() => this.#flush());
      const queue = this.#queued.get(owner) ?? [];
      queue.push({ key, row, resolve });
      this.#queued.set(owner, queue);
    });
  }

  async discard(key: RowKey, membershipOffset: number): Promise<ErrorCode> {
    const owner = this.ownerOf(rowKeyText(key));
    if (owner === undefined) return errors.COORDINATOR_NOT_AVAILABLE.code;
    const answer = await this.#decide(owner, (shard) => shard.decideDiscard(key, membershipOffset));
    return isCoordinatorError(answer) ? answer.error : answer;
  }

  sweep(): void {
    for (const partition of this.#shards.activePartitions()) void this.#sweep(partition);
  }

  async #sweep(partition: number): Promise<void> {
    const isGone = ({ key, row }: KeyedRow): boolean => {
      const image = this.#image();
      // A row of a membership that this image does not hold yet is of a topic made later.
      return !image.topicsById.has(key.topicId) && row.membershipOffset <= image.offset;
    };
    for (;;) {
      const deleted = await this.#decide(partition, (shard) =>
        shard.decideSweep(isGone, MAX_ROWS_PER_WRITE),
      );
      if (isCoordinatorError(deleted) || deleted === 0) return;
      const fields = { partition, rows: deleted };
      this.#runtime.logger.info('mirror states of deleted topics removed', fields);
    }
  }

  /** A row that cannot be encoded is an answer to whoever wrote it, not the end of the process. */
  async #decide<R>(
    owner: number,
    decide: (shard: MirrorShard) => Decision<R>,
  ): Promise<R | CoordinatorError> {
    try {
      return await this.#shards.write(owner, decide);
    } catch (error) {
      failureOf(error, this.#runtime.logger);
      return { error: errors.UNKNOWN_SERVER_ERROR.code };
    }
  }

  #flush(): void {
    const queued = this.#queued;
    this.#queued = new Map();
    for (const [owner, writes] of queued) {
      for (let from = 0; from < writes.length; from += MAX_ROWS_PER_WRITE) {
        void this.#writeBatch(owner, writes.slice(from, from + MAX_ROWS_PER_WRITE));
      }
    }
  }

  async #writeBatch(owner: number, writes: readonly QueuedWrite[]): Promise<void> {
    const answer = await this.#decide(owner, (shard) => shard.decideWrite(writes));
    for (const [index, { resolve }] of writes.entries()) {
      const refused = isCoordinatorError(answer) ? answer.error : answer[index];
      resolve(refused ?? errors.UNKNOWN_SERVER_ERROR.code);
    }
  }
}

/** The mirrors that this cluster has. */
export function mirrorNames(image: MetadataImage): string[] {
  const prefix = `${ConfigResourceType.MIRROR}:`;
  const names = [...image.configsByResource.keys()]
    .filter((key) => key.startsWith(prefix))
    .map((key) => key.slice(prefix.length));
  return names.sort();
}
