/**
 * Reads all partitions of one topic, READ_COMMITTED, from the beginning and then as they grow.
 *
 * Used for `__mirror_state` of the own cluster (it tails) and of a peer's (one pass). One loop per
 * broker that leads partitions, one fetch in flight each, over connections of its own: a fetch that
 * waits must not hold up questions. Invariants:
 * - Records of a partition are handed over in order, each once, none of an aborted or undecided
 *   transaction; after `onReset` a partition begins anew.
 * - `readTo` resolves only after everything below the end that it captured has been handed over.
 * - A topic that was deleted and made again is another topic: reading it ends with an error.
 */
import { MalformedBytes } from '../../base/bytes.ts';
import type { Runtime, Timer } from '../../io/runtime.ts';
import { errorName, errors, isRetriable } from '../../protocol/errors.ts';
import { FetchRequest, FetchResponse } from '../../protocol/messages/01-fetch.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../protocol/messages/02-list-offsets.ts';
import { type DecodedRecord, decodeRecords } from '../../protocol/record.ts';
import { forEachBatch, type RecordBatch } from '../../protocol/record-batch.ts';
import { type BackoffPolicy, backoffMs } from '../../replication/backoff.ts';
import {
  CLUSTER_RETRY_BOUND_MS,
  type ClusterClient,
  ClusterError,
  type ClusterTopic,
} from '../cluster-client.ts';

/** How long a fetch waits for data, in ms. */
export const FETCH_WAIT_MS = 500;
/** What one fetch asks for, of all partitions and of one, in bytes. */
export const FETCH_MAX_BYTES = 16 * 1024 * 1024;
const PARTITION_MAX_BYTES = 1024 * 1024;
/** Largest payload that a batch may inflate to, in bytes. */
const MAX_PAYLOAD_BYTES = 64 * 1024 * 1024;
/** Pauses of a loop after failures. */
export const READ_BACKOFF: BackoffPolicy = { initialMs: 50, maxMs: 1_000 };

const CONSUMER = -1;
const READ_COMMITTED = 1;
const EARLIEST = -2n;
const LATEST = -1n;

/** Which end is captured: of what READ_COMMITTED shows, or of all that is replicated. */
export type ReadEnd = 'lastStable' | 'highWatermark';

/** Where a record was. */
export interface ReadPosition {
  readonly partition: number;
  readonly offset: number;
}

/** What a {@link CommittedReader} is made of. */
export interface CommittedReaderOptions {
  readonly topic: string;
  /** For questions. */
  readonly client: ClusterClient;
  /** For fetches, which wait. */
  readonly fetchClient: ClusterClient;
  readonly onRecord: (at: ReadPosition, record: DecodedRecord) => void;
  /** The log of the partition lost what was read: it begins anew. */
  readonly onReset: (partition: number) => void;
  /** An error that waiting does not cure ends the reading, instead of being waited out. */
  readonly endsWhenRefused?: boolean;
}

interface Waiter {
  readonly ends: ReadonlyMap<number, number>;
  readonly settle: (error: ClusterError | undefined) => void;
}

type FetchedPartition = FetchResponse['responses'][number]['partitions'][number];

/** See the file header. */
export class CommittedReader {
  readonly #runtime: Pick<Runtime, 'clock' | 'random' | 'compression' | 'logger'>;
  readonly #options: CommittedReaderOptions;
  /** Next offset to read, by partition. */
  readonly #positions = new Map<number, number>();
  readonly #loops = new Set<number>();
  readonly #waiters = new Set<Waiter>();
  #topic: ClusterTopic | undefined;
  /** As at the start: partitions that are added later hold no rows. */
  #partitions: readonly number[] = [];
  #refreshing = false;
  #refreshTimer: Timer | undefined;
  #ended: ClusterError | undefined;

  constructor(
    runtime: Pick<Runtime, 'clock' | 'random' | 'compression' | 'logger'>,
    options: CommittedReaderOptions,
  ) {
    this.#runtime = runtime;
    this.#options = options;
  }

  /** Of the topic at the start; 0 before it. */
  get partitionCount(): number {
    return this.#partitions.length;
  }

  /** Why nothing more is read; undefined while it goes on. */
  get ended(): ClusterError | undefined {
    return this.#ended;
  }

  /** Begins at the log starts; rejects with a {@link ClusterError}, as for a missing topic. */
  async start(retryBoundMs?: number): Promise<void> {
    const { client, topic } = this.#options;
    this.#topic = await client.topic(topic, retryBoundMs);
    this.#partitions = [...this.#topic.leaders.keys()];
    const starts = await this.#listOffsets(this.#partitions, EARLIEST, 0, retryBoundMs);
    for (const [partition, offset] of starts) this.#positions.set(partition, offset);
    this.#startLoops();
  }

  close(): void {
    this.#end(new ClusterError('closed', 'closed by this side'));
  }

  #end(error: ClusterError): void {
    if (this.#ended !== undefined) return;
    this.#ended = error;
    this.#refreshTimer?.cancel();
    for (const waiter of [...this.#waiters]) waiter.settle(error);
  }

  /**
   * Captures the present end and resolves when all below it has been handed over; rejects with a
   * {@link ClusterError}, `timedOut` after `boundMs`, as while a transaction below it stays open.
   */
  async readTo(end: ReadEnd, boundMs: number): Promise<void> {
    if (this.#ended !== undefined) throw this.#ended;
    const { clock } = this.#runtime;
    const deadline = clock.monotonicMs() + boundMs;
    const isolation = end === 'lastStable' ? READ_COMMITTED : 0;
    const ends = await this.#listOffsets(this.#partitions, LATEST, isolation, boundMs);
    if (this.#ended !== undefined) throw this.#ended;
    if (this.#hasReached(ends)) return;
    const leftMs = Math.max(deadline - clock.monotonicMs(), 0);
    await new Promise<void>((resolve, reject) => {
      const settle = (error: ClusterError | undefined): void => {
        if (!this.#waiters.delete(waiter)) return;
        timer.cancel();
        if (error === undefined) resolve();
        else reject(error);
      };
      const waiter = { ends, settle };
      this.#waiters.add(waiter);
      const timer = clock.setTimer(leftMs, () => settle(this.#late(ends, boundMs)));
    });
  }

  #late(ends: ReadonlyMap<number, number>, boundMs: number): ClusterError {
    const behind = [...ends].find(([partition, end]) => this.#position(partition) < end);
    const [partition, end] = behind ?? [-1, -1];
    const name = `${this.#options.topic}-${partition}`;
    const at = this.#position(partition);
    const text =
      `${name} was not readable to offset ${end} within ${boundMs} ms: it stands at ${at}; ` +
      'a transaction may be open there';
    return new ClusterError('timedOut', text);
  }

  #position(partition: number): number {
    return this.#positions.get(partition) ?? 0;
  }

  #hasReached(ends: ReadonlyMap<number, number>): boolean {
    for (const [partition, end] of ends) if (this.#position(partition) < end) return false;
    return true;
  }

  /** The offsets that `timestamp` stands for, asked of the leaders until all have answered. */
  #listOffsets(
    partitions: readonly number[],
    timestamp: bigint,
    isolationLevel: number,
    boundMs = CLUSTER_RETRY_BOUND_MS,
  ): Promise<Map<number, number>> {
    const { client, topic: name } = this.#options;
    return client.atLeaders(name, partitions, boundMs, async (id, asked) => {
      const topics = [
        { name, partitions: asked.map((partitionIndex) => ({ partitionIndex, timestamp })) },
      ];
      const response = await client.call(
        { to: 'broker', id },
        ListOffsetsRequest,
        ListOffsetsResponse,
        { replicaId: CONSUMER, isolationLevel, topics },
        { retryBoundMs: 0 },
      );
      const answers = response.topics.flatMap((each) => each.partitions);
      return new Map(
        answers.map(({ partitionIndex, errorCode, offset: value }) => [
          partitionIndex,
          { errorCode, value },
        ]),
      );
    });
  }

  // --- fetching ---------------------------------------------------------------------------------

  #startLoops(): void {
    for (const leader of new Set(this.#topic?.leaders.values())) {
      if (leader < 0 || this.#loops.has(leader)) continue;
      this.#loops.add(leader);
      void this.#loop(leader);
    }
  }

  #ledBy(leader: number): number[] {
    const led: number[] = [];
    for (const [partition, id] of this.#topic?.leaders ?? []) {
      if (id === leader && this.#positions.has(partition)) led.push(partition);
    }
    return led;
  }

  /** Fetches from one broker for as long as it leads something. */
  async #loop(leader: number): Promise<void> {
    const { clock, random } = this.#runtime;
    for (let failures = 0; ; ) {
      const partitions = this.#ledBy(leader);
      if (this.#ended !== undefined || partitions.length === 0) break;
      const isGood = await this.#fetch(leader, partitions, failures === 0 ? 'warn' : 'debug');
      failures = isGood ? 0 : failures + 1;
      if (isGood || this.#ended !== undefined) continue;
      this.#refresh();
      const pauseMs = backoffMs(READ_BACKOFF, failures, random);
      await new Promise<void>((resolve) => clock.setTimer(pauseMs, resolve));
    }
    this.#loops.delete(leader);
  }

  /** False: something did not go well, so leaders are looked up again. */
  async #fetch(
    leader: number,
    partitions: readonly number[],
    level: 'warn' | 'debug',
  ): Promise<boolean> {
    const { fetchClient, topic } = this.#options;
    try {
      const response = await fetchClient.call(
        { to: 'broker', id: leader },
        FetchRequest,
        FetchResponse,
        this.#request(partitions),
        { retryBoundMs: 0 },
      );
      if (this.#ended !== undefined) return true;
      if (response.errorCode !== errors.NONE.code) {
        throw new ClusterError('refused', errorName(response.errorCode), response.errorCode);
      }
      let isGood = true;
      for (const answer of response.responses.flatMap((each) => each.partitions)) {
        isGood = this.#take(answer, level) && isGood;
      }
      this.#wake();
      return isGood;
    } catch (error) {
      if (!(error instanceof ClusterError || error instanceof MalformedBytes)) throw error;
      if (this.#ended === undefined) {
        const fields = { topic, broker: leader, error: error.message };
        this.#runtime.logger[level]('reading the state topic failed, trying again', fields);
      }
      return false;
    }
  }

  #request(partitions: readonly number[]) {
    return {
      maxWaitMs: FETCH_WAIT_MS,
      minBytes: 1,
      maxBytes: FETCH_MAX_BYTES,
      isolationLevel: READ_COMMITTED,
      topics: [
        {
          topic: this.#options.topic,
          ...(this.#topic === undefined ? {} : { topicId: this.#topic.id }),
          partitions: partitions.map((partition) => ({
            partition,
            fetchOffset: this.#position(partition),
            partitionMaxBytes: PARTITION_MAX_BYTES,
          })),
        },
      ],
      forgottenTopicsData: [],
    };
  }

  #wake(): void {
    for (const waiter of [...this.#waiters]) {
      if (this.#hasReached(waiter.ends)) waiter.settle(undefined);
    }
  }

  #take(answer: FetchedPartition, level: 'warn' | 'debug'): boolean {
    const { partitionIndex: partition, errorCode } = answer;
    if (errorCode === errors.OFFSET_OUT_OF_RANGE.code) {
      this.#reset(partition);
      return true;
    }
    if (errorCode === errors.NONE.code) this.#readBatches(partition, answer);
    else this.#refused(partition, errorCode, level);
    return errorCode === errors.NONE.code;
  }

  #refused(partition: number, errorCode: number, level: 'warn' | 'debug'): void {
    const { topic, endsWhenRefused } = this.#options;
    const error = errorName(errorCode);
    this.#runtime.logger[level]('the state topic is not readable', { topic, partition, error });
    if (endsWhenRefused !== true || isRetriable(errorCode)) return;
    const text = `${topic}-${partition} is not readable: ${error}`;
    this.#end(new ClusterError('refused', text, errorCode));
  }

  /** What was read is not there any more (records deleted, or an unclean election). */
  #reset(partition: number): void {
    const { topic, onReset } = this.#options;
    const offset = this.#position(partition);
    this.#runtime.logger.error('the state topic lost what was read, reading it again', {
      topic,
      partition,
      offset,
    });
    onReset(partition);
    this.#positions.delete(partition);
    this.#listOffsets([partition], EARLIEST, 0).then(
      (starts) => {
        this.#positions.set(partition, starts.get(partition) ?? 0);
        this.#startLoops();
      },
      (error: unknown) => {
        if (!(error instanceof ClusterError)) throw error;
        this.#end(error);
      },
    );
  }

  /** As a READ_COMMITTED consumer does: the answer names the aborted transactions in it. */
  #readBatches(partition: number, answer: FetchedPartition): void {
    const bytes = answer.records;
    if (bytes === null || bytes.length === 0) return;
    const started = [...(answer.abortedTransactions ?? [])];
    started.sort((a, b) => a.firstOffset - b.firstOffset);
    const aborted = new Set<bigint>();
    let next = 0;
    const scan = forEachBatch(bytes, 0, bytes.length, (batch) => {
      if (!batch.validCrc()) throw new MalformedBytes('batch with a wrong CRC', batch.position);
      for (; (started[next]?.firstOffset ?? Number.POSITIVE_INFINITY) <= batch.lastOffset; next++) {
        aborted.add(started[next]?.producerId ?? -1n);
      }
      const isDropped = batch.isTransactional && aborted.has(batch.producerId);
      // A marker ends the producer's transaction; a later one of it is in the list by itself.
      if (batch.isControl) aborted.delete(batch.producerId);
      else if (!isDropped) this.#readRecords(partition, batch);
      this.#positions.set(partition, Math.max(this.#position(partition), batch.nextOffset));
    });
    if (!scan.ok && scan.problem !== 'truncated') {
      throw new MalformedBytes(`batch: ${scan.problem}`, scan.position);
    }
  }

  #readRecords(partition: number, batch: RecordBatch): void {
    const from = this.#position(partition);
    for (const record of decodeRecords(batch, this.#runtime.compression, MAX_PAYLOAD_BYTES)) {
      const { offset } = record;
      if (offset >= from) this.#options.onRecord({ partition, offset }, record);
    }
  }

  // --- leaders ----------------------------------------------------------------------------------

  #refresh(): void {
    if (this.#refreshing || this.#ended !== undefined) return;
    this.#refreshing = true;
    const { client, topic } = this.#options;
    client.topic(topic, 0).then(
      (described) => {
        this.#refreshing = false;
        this.#adopt(described);
      },
      (error: unknown) => {
        this.#refreshing = false;
        if (!(error instanceof ClusterError)) throw error;
        this.#refreshLater();
      },
    );
  }

  #refreshLater(): void {
    if (this.#ended !== undefined) return;
    this.#refreshTimer?.cancel();
    this.#refreshTimer = this.#runtime.clock.setTimer(READ_BACKOFF.maxMs, () => this.#refresh());
  }

  #adopt(described: ClusterTopic): void {
    if (this.#ended !== undefined) return;
    if (this.#topic !== undefined && described.id !== this.#topic.id) {
      const { topic } = this.#options;
      const text = `topic ${topic} was deleted and made again: its rows are lost`;
      this.#runtime.logger.error(text, { before: this.#topic.id, now: described.id });
      this.#end(new ClusterError('refused', text, errors.UNKNOWN_TOPIC_ID.code));
      return;
    }
    this.#topic = described;
    this.#startLoops();
    // A partition without a leader is in no loop that could notice its next one.
    if ([...described.leaders.values()].some((leader) => leader < 0)) this.#refreshLater();
  }
}
