/**
 * Follows the metadata log of an Apache Kafka quorum as an observer (rules G1, G2).
 *
 * Used by the remote controller, one per subscription. Fetches from the active controller, wherever
 * that moves; passes on what is committed, in order, each offset once. Invariants:
 * - What lies at or above the high watermark waits in memory; a new leader may drop it again.
 * - What was passed on is never taken back. A leader that lacks it has lost committed metadata:
 *   that ends the observer with an error, as the broker's state can no longer be trusted.
 * - A log that begins later than wanted is replaced by the leader's snapshot, as a whole.
 */
import { Fault } from '../../base/assert.ts';
import { MalformedBytes } from '../../base/bytes.ts';
import { METADATA_TOPIC_ID, type Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { FetchRequest, FetchResponse } from '../../protocol/messages/01-fetch.ts';
import type { MetadataBatchListener, MetadataSnapshotListener } from '../controller-port.ts';
import type { MetadataRecord } from '../record-framing.ts';
import { type CommittedBatch, MetadataTail } from './metadata-tail.ts';
import { wrongCluster } from './probe.ts';
import {
  isPassing,
  type LeaderConnection,
  type QuorumClient,
  QuorumUnavailable,
  retryPauseMs,
} from './quorum-client.ts';
import { fetchSnapshot, type SnapshotId } from './snapshot-fetch.ts';

/** How long the leader may hold a fetch, in ms. */
const FETCH_WAIT_MS = 500;
/** How long the answer may take beyond that, in ms. */
const FETCH_GRACE_MS = 5_000;
/** Bytes asked for at a time; a larger batch comes whole. */
const FETCH_BYTES = 8 * 1024 * 1024;

/** What to observe, and whom to tell. */
export interface ObserverOptions {
  readonly client: QuorumClient;
  /** Names the connection, which is this observer's alone. */
  readonly purpose: string;
  readonly nodeId: number;
  readonly directoryId: Uuid;
  readonly fromOffset: number;
  readonly onBatch: MetadataBatchListener;
  readonly onSnapshot: MetadataSnapshotListener;
  /** The observer has ended and will not go on. */
  readonly onFailure: (error: Error) => void;
}

type Partition = FetchResponse['responses'][number]['partitions'][number];

/** See the file header. */
export class MetadataObserver {
  readonly #runtime: Runtime;
  readonly #options: ObserverOptions;
  readonly #tail: MetadataTail;
  readonly #caughtUp = Promise.withResolvers<void>();
  /** Where the log ended when it was first seen. */
  #target: number | undefined;
  #closed = false;

  constructor(runtime: Runtime, options: ObserverOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#tail = new MetadataTail(runtime.compression, options.fromOffset);
  }

  /** Resolves when what was committed at first sight has been passed on. */
  start(): Promise<void> {
    this.#run().then(
      () => this.#caughtUp.reject(new QuorumUnavailable('the observer has been closed')),
      (error: unknown) => {
        const reason = error instanceof Error ? error : new Fault(String(error));
        this.#caughtUp.reject(reason);
        this.#options.onFailure(reason);
      },
    );
    return this.#caughtUp.promise;
  }

  /** Nothing is passed on afterwards. */
  close(): void {
    this.#closed = true;
    this.#options.client.release(this.#options.purpose);
  }

  get #ended(): boolean {
    return this.#closed || this.#options.client.closed;
  }

  async #run(): Promise<void> {
    for (let failures = 0; !this.#ended; ) {
      try {
        await this.#fetch();
        failures = 0;
      } catch (error) {
        if (this.#ended) return;
        if (!isPassing(error)) throw error;
        // One failure is what every change of the controller looks like.
        const level = failures === 0 ? 'debug' : 'warn';
        this.#runtime.logger[level]('metadata could not be fetched', { reason: error.message });
        await this.#options.client.pause(retryPauseMs(failures++));
      }
    }
  }

  async #fetch(): Promise<void> {
    const { client, purpose } = this.#options;
    const at = await client.connect(purpose);
    const response = await this.#ask(at);
    if (this.#ended) return;
    if (response.errorCode === errors.INCONSISTENT_CLUSTER_ID.code) {
      throw wrongCluster(at.leader, client.clusterId);
    }
    const partition = response.responses[0]?.partitions[0];
    if (response.errorCode !== errors.NONE.code || partition === undefined) {
      client.lost(at.leader);
      throw new QuorumUnavailable(`metadata fetch failed: ${errorName(response.errorCode)}`);
    }
    if (partition.errorCode === errors.NONE.code) await this.#take(at, partition);
    else this.#refused(at, partition, response.nodeEndpoints);
  }

  async #ask({ leader, connection }: LeaderConnection): Promise<FetchResponse> {
    const { client } = this.#options;
    try {
      return await connection.send(FetchRequest, FetchResponse, this.#request(leader.epoch), {
        timeoutMs: FETCH_WAIT_MS + FETCH_GRACE_MS,
      });
    } catch (error) {
      if (isPassing(error)) client.lost(leader);
      throw error;
    }
  }

  #request(leaderEpoch: number) {
    const { client, nodeId, directoryId } = this.#options;
    return {
      clusterId: client.clusterId ?? null,
      replicaState: { replicaId: nodeId, replicaEpoch: -1 },
      maxWaitMs: FETCH_WAIT_MS,
      minBytes: 0,
      maxBytes: FETCH_BYTES,
      isolationLevel: 0,
      topics: [
        {
          topic: '',
          topicId: METADATA_TOPIC_ID,
          partitions: [
            {
              partition: 0,
              currentLeaderEpoch: leaderEpoch,
              fetchOffset: this.#tail.nextOffset,
              lastFetchedEpoch: this.#tail.lastEpoch,
              partitionMaxBytes: FETCH_BYTES,
              replicaDirectoryId: directoryId,
              highWatermark: BigInt(this.#tail.highWatermark),
            },
          ],
        },
      ],
      forgottenTopicsData: [],
    };
  }

  #refused(
    { leader }: LeaderConnection,
    { errorCode, currentLeader }: Partition,
    endpoints: FetchResponse['nodeEndpoints'],
  ): void {
    const { client } = this.#options;
    client.lost(leader);
    client.heard({ ...currentLeader, endpoints });
    const moved = client.leader !== undefined && currentLeader.leaderEpoch > leader.epoch;
    if (!moved) throw new QuorumUnavailable(`metadata fetch refused: ${errorName(errorCode)}`);
    this.#runtime.logger.info('the controller has moved', {
      from: leader.nodeId,
      to: currentLeader.leaderId,
      epoch: currentLeader.leaderEpoch,
    });
  }

  async #take(at: LeaderConnection, partition: Partition): Promise<void> {
    const { divergingEpoch, snapshotId, highWatermark } = partition;
    if (highWatermark >= 0) this.#target ??= highWatermark;
    if (snapshotId.endOffset >= 0) return await this.#loadSnapshot(at, snapshotId);
    if (divergingEpoch.endOffset >= 0) {
      const dropped = this.#tail.truncate(divergingEpoch.epoch, divergingEpoch.endOffset);
      this.#runtime.logger.info('uncommitted metadata dropped', { batches: dropped });
      return;
    }
    try {
      this.#tail.append(partition.records ?? new Uint8Array(0));
    } catch (error) {
      if (!(error instanceof MalformedBytes)) throw error;
      at.connection.close();
      const node = `node ${at.leader.nodeId}`;
      throw new QuorumUnavailable(`malformed metadata from ${node}: ${error.message}`);
    }
    this.#advance(highWatermark);
  }

  async #loadSnapshot(at: LeaderConnection, id: SnapshotId): Promise<void> {
    const { client, nodeId, directoryId, onSnapshot } = this.#options;
    const { compression } = this.#runtime;
    const records = await fetchSnapshot(at, id, { client, compression, nodeId, directoryId });
    if (records === undefined || this.#ended) return;
    this.#runtime.logger.info('metadata snapshot read', { ...id, records: records.length });
    this.#tail.restart(id.endOffset, id.epoch);
    onSnapshot(records, id.endOffset - 1, id.epoch);
    this.#advance(id.endOffset);
  }

  #advance(highWatermark: number): void {
    for (const { records, lastOffset, epoch } of merged(this.#tail.commit(highWatermark))) {
      this.#options.onBatch(records, lastOffset, epoch);
    }
    const target = this.#target ?? Number.POSITIVE_INFINITY;
    if (this.#tail.committedOffset >= target) this.#caughtUp.resolve();
  }
}

/** Adjoining batches of one epoch as one, since each costs every publisher a pass. */
function merged(batches: readonly CommittedBatch[]): CommittedBatch[] {
  const all: { records: MetadataRecord[]; lastOffset: number; epoch: number }[] = [];
  for (const { records, lastOffset, epoch } of batches) {
    let last = all.at(-1);
    // Offsets of records are counted back from the last one: no control record may lie between.
    const adjoins = last?.epoch === epoch && last.lastOffset === lastOffset - records.length;
    if (last === undefined || !adjoins) {
      last = { records: [], lastOffset, epoch };
      all.push(last);
    }
    for (const record of records) last.records.push(record);
    last.lastOffset = lastOffset;
  }
  return all;
}
