/**
 * The metadata log `__cluster_metadata-0` of a single voter, in KRaft's format.
 *
 * Owned by the embedded controller. One decision is one record batch, so a crash keeps all of its
 * records or none. Each start of the process leads in an epoch of its own: the epoch is made
 * durable in `quorum-state` first and then announced by a LeaderChange control batch, so that no
 * epoch is ever used twice. A flush is the commit: the only voter has what its disk has.
 */

import { Fault, present } from '../base/assert.ts';
import { METADATA_TOPIC_ID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { codec } from '../protocol/codec.ts';
import { ControlRecordType, controlRecordKey } from '../protocol/control-record.ts';
import { LeaderChangeMessage } from '../protocol/messages/control-records.ts';
import { buildRecordBatch, decodeRecords } from '../protocol/record.ts';
import { forEachBatch, type RecordBatch } from '../protocol/record-batch.ts';
import { writeFileAtomically } from '../storage/checkpoints.ts';
import type { Log } from '../storage/log.ts';
import { DEFAULT_LOG_CONFIG, type LogConfig } from '../storage/log-config.ts';
import { type LogManager, METADATA_TOPIC } from '../storage/log-manager.ts';
import {
  decodeMetadataRecord,
  encodeMetadataRecord,
  type MetadataRecord,
} from './record-framing.ts';

/** Bytes of the log read at a time. */
const READ_BYTES = 1024 * 1024;
/** Limit on a decompressed batch that is read back; what is written is never compressed. */
const MAX_BATCH_BYTES = 256 * 1024 * 1024;
/** File of the election state, in the log's directory. */
export const QUORUM_STATE_FILE = 'quorum-state';
/** Both the quorum-state format and the LeaderChange message of a log with static voters. */
const STATIC_VOTERS_VERSION = 0;

/** The part of a {@link Log} that the metadata log needs. */
export type MetadataLogStorage = Pick<
  Log,
  | 'appendAsLeader'
  | 'directory'
  | 'flush'
  | 'latestEpoch'
  | 'logEndOffset'
  | 'logStartOffset'
  | 'read'
  | 'updateHighWatermark'
>;

/** A batch read back; control batches have no records. */
export interface MetadataBatch {
  readonly records: readonly MetadataRecord[];
  readonly lastOffset: number;
  readonly epoch: number;
}

/** Nothing is ever deleted from the metadata log: replaying it is what a restart does. */
export const METADATA_LOG_CONFIG: LogConfig = Object.freeze({
  ...DEFAULT_LOG_CONFIG,
  retentionMs: -1,
  retentionBytes: -1,
});

/** Opens `__cluster_metadata-0` in a loaded log directory, or creates it. */
export function openMetadataLog(logManager: LogManager): Log {
  const topicPartition = { topic: METADATA_TOPIC, partition: 0 };
  const existing = logManager.getLog(topicPartition);
  if (existing !== undefined) {
    existing.updateConfig(METADATA_LOG_CONFIG);
    return existing;
  }
  const broken = logManager.offline().find((offline) => offline.topic === METADATA_TOPIC);
  if (broken !== undefined) {
    throw new MetadataLogError(`the metadata log cannot be opened: ${broken.reason}`);
  }
  return logManager.createLog(topicPartition, METADATA_TOPIC_ID, METADATA_LOG_CONFIG);
}

/** The log refused or could not store a batch. */
export class MetadataLogError extends Error {
  override readonly name = 'MetadataLogError';
}

/** See the file header. */
export class MetadataLog {
  readonly #runtime: Runtime;
  readonly #log: MetadataLogStorage;
  #epoch = 0;

  constructor(runtime: Runtime, log: MetadataLogStorage) {
    this.#runtime = runtime;
    this.#log = log;
  }

  /** The epoch led; 0 before {@link lead}. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Offset of the next record. */
  get nextOffset(): number {
    return this.#log.logEndOffset;
  }

  /** Starts an epoch that was never used before; nothing is durable until {@link commit}. */
  lead(nodeId: number, clusterId: string): void {
    const path = `${this.#log.directory}/${QUORUM_STATE_FILE}`;
    const known = readQuorumEpoch(this.#runtime.disk.readFile(path), path);
    const epoch = Math.max(known, this.#log.latestEpoch ?? 0) + 1;
    const state = {
      clusterId,
      leaderId: nodeId,
      leaderEpoch: epoch,
      votedId: -1,
      appliedOffset: 0,
      currentVoters: [{ voterId: nodeId }],
      data_version: STATIC_VOTERS_VERSION,
    };
    writeFileAtomically(this.#runtime.disk, path, JSON.stringify(state));
    this.#epoch = epoch;
    this.#appendLeaderChange(nodeId);
  }

  #appendLeaderChange(nodeId: number): void {
    const voters = [{ voterId: nodeId }];
    const value = codec(LeaderChangeMessage, STATIC_VOTERS_VERSION).encodeToBytes({
      version: STATIC_VOTERS_VERSION,
      leaderId: nodeId,
      voters,
      grantingVoters: voters,
    });
    const key = controlRecordKey(ControlRecordType.leaderChange);
    const timestamp = this.#runtime.clock.wallMs();
    this.append(buildRecordBatch({ records: [{ key, value, timestamp }], isControl: true }));
  }

  /** Records as the bytes of one batch. */
  encode(records: readonly MetadataRecord[]): Uint8Array {
    const timestamp = this.#runtime.clock.wallMs();
    const encoded = records.map((record) => ({
      key: null,
      value: encodeMetadataRecord(record),
      timestamp,
    }));
    return buildRecordBatch({ records: encoded });
  }

  /** Appends what {@link encode} made, or throws; returns the offset of the last record. */
  append(batch: Uint8Array): number {
    const result = this.#log.appendAsLeader(batch, this.#epoch, 'raftLeader');
    if (result.error !== 0) {
      throw new MetadataLogError(`metadata log refused a batch: ${result.message}`);
    }
    return result.lastOffset;
  }

  /** Makes everything appended so far durable and readable. */
  async commit(): Promise<void> {
    const end = this.#log.logEndOffset;
    await this.#log.flush();
    this.#log.updateHighWatermark(end);
  }

  /** Reads batches from the one that holds `fromOffset` to the one before `toOffset`. */
  forEach(fromOffset: number, toOffset: number, visit: (batch: MetadataBatch) => void): void {
    let offset = Math.max(fromOffset, this.#log.logStartOffset);
    while (offset < toOffset) {
      const read = this.#log.read(offset, READ_BYTES, 'logEnd', true);
      if (read.error !== 0) throw new Fault(`metadata log unreadable at ${offset}: ${read.error}`);
      const before = offset;
      for (const chunk of read.records) {
        const scan = forEachBatch(chunk, 0, chunk.length, (batch) => {
          if (batch.baseOffset >= toOffset) return false;
          if (batch.lastOffset >= offset) visit(this.#decode(batch));
          offset = batch.nextOffset;
          return true;
        });
        if (!scan.ok) throw new Fault(`metadata log corrupt behind ${offset}: ${scan.problem}`);
      }
      if (offset === before) throw new Fault(`metadata log ends at ${offset}, not ${toOffset}`);
    }
  }

  #decode(batch: RecordBatch): MetadataBatch {
    const { lastOffset, partitionLeaderEpoch: epoch } = batch;
    if (batch.isControl) return { records: [], lastOffset, epoch };
    const records: MetadataRecord[] = [];
    for (const record of decodeRecords(batch, this.#runtime.compression, MAX_BATCH_BYTES)) {
      const value = present(record.value, `value of metadata record ${record.offset}`);
      records.push(decodeMetadataRecord(value));
    }
    return { records, lastOffset, epoch };
  }
}

function readQuorumEpoch(bytes: Uint8Array | undefined, path: string): number {
  if (bytes === undefined) return 0;
  const state: unknown = JSON.parse(Buffer.from(bytes).toString('utf8'));
  const epoch =
    typeof state === 'object' && state !== null && 'leaderEpoch' in state ? state.leaderEpoch : 0;
  if (!Number.isSafeInteger(epoch)) throw new Fault(`${path} has no leaderEpoch`);
  return epoch as number;
}
