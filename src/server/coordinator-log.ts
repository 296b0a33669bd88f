/**
 * The coordinators' log, over the partitions of this broker: the port of `coordinator/runtime.ts`.
 *
 * An append is one batch under the leader epoch that the coordinator was elected in; a newer epoch
 * refuses it. Loading first waits until all that the log holds is committed (a new leader's high
 * watermark can lag behind what its predecessor acknowledged), then reads it, control batches
 * skipped.
 */
import type { CoordinatorLog, CoordinatorRecord } from '../coordinator/runtime.ts';
import type { Runtime } from '../io/runtime.ts';
import { type ErrorCode, errorName, errors } from '../protocol/errors.ts';
import { buildRecordBatch, decodeRecords } from '../protocol/record.ts';
import { forEachBatch } from '../protocol/record-batch.ts';
import type { Partition } from '../replication/partition.ts';
import type { ReplicaManager } from '../replication/replica-manager.ts';

/** Bytes read at a time while loading. */
const LOAD_BYTES = 1024 * 1024;
/** Largest decompressed batch; what coordinators write is never compressed. */
const MAX_BATCH_BYTES = 64 * 1024 * 1024;
const ALL_REPLICAS = -1;

type OnRecord = (offset: number, key: Uint8Array, value: Uint8Array | null) => void;

/** See the file header. */
export class PartitionCoordinatorLog implements CoordinatorLog {
  readonly #runtime: Runtime;
  readonly #replicas: () => ReplicaManager;

  /** `replicas` is asked at each call: coordinators are built before the replica manager. */
  constructor(runtime: Runtime, replicas: () => ReplicaManager) {
    this.#runtime = runtime;
    this.#replicas = replicas;
  }

  append(
    topic: string,
    index: number,
    leaderEpoch: number,
    records: CoordinatorRecord[],
  ): { offset: number; committed: Promise<void> } | { error: ErrorCode } {
    const partition = this.#replicas().partition(topic, index);
    if (partition === undefined) return { error: errors.NOT_LEADER_OR_FOLLOWER.code };
    const error = partition.leaderError(leaderEpoch);
    if (error !== errors.NONE.code) return { error };
    const result = partition.append('coordinator', this.#batch(records), ALL_REPLICAS);
    if (result.error !== errors.NONE.code) return { error: result.error };
    const offset = result.lastOffset + 1;
    return { offset, committed: this.#committed(partition, offset) };
  }

  #batch(records: readonly CoordinatorRecord[]): Uint8Array {
    const nowMs = this.#runtime.clock.wallMs();
    return buildRecordBatch({
      records: records.map(({ key, value, timestampMs }) => ({
        key,
        value,
        timestamp: timestampMs ?? nowMs,
      })),
    });
  }

  async #committed(partition: Partition, offset: number): Promise<void> {
    const error = await this.#replicas().whenCommitted(partition, offset);
    if (error !== errors.NONE.code) {
      const { topic, partition: index } = partition.topicPartition;
      throw new Error(`${topic}-${index} up to ${offset}: ${errorName(error)}`);
    }
  }

  async load(topic: string, index: number, onRecord: OnRecord): Promise<void> {
    const partition = this.#replicas().partition(topic, index);
    if (partition === undefined) throw new Error(`${topic}-${index} is not on this broker`);
    await this.#committed(partition, partition.log.logEndOffset);
    let offset = partition.log.logStartOffset;
    while (offset < partition.log.highWatermark) {
      const next = this.#loadFrom(partition, offset, onRecord);
      if (next === offset) return;
      offset = next;
      // Between two reads others get their turn.
      await new Promise<void>((resolve) => this.#runtime.clock.defer(resolve));
    }
  }

  /** One read; answers the offset after it. */
  #loadFrom(partition: Partition, from: number, onRecord: OnRecord): number {
    const read = partition.log.read(from, LOAD_BYTES, 'highWatermark', true);
    if (read.error !== errors.NONE.code) {
      const { topic, partition: index } = partition.topicPartition;
      throw new Error(`${topic}-${index} at offset ${from}: ${errorName(read.error)}`);
    }
    let next = from;
    for (const chunk of read.records) {
      forEachBatch(chunk, 0, chunk.length, (batch) => {
        next = batch.nextOffset;
        if (batch.isControl) return;
        const { compression } = this.#runtime;
        for (const { offset, key, value } of decodeRecords(batch, compression, MAX_BATCH_BYTES)) {
          if (key !== null && offset >= from) onRecord(offset, key, value);
        }
      });
    }
    return next;
  }
}
