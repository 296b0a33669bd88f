/**
 * The topic `__mirror_state` of an Apache Kafka cluster, as a guest writes and reads it (G22, G23).
 *
 * Used by `state-store.ts`, which knows what rows mean. Every guest writes under a transactional id
 * of its own, made from its node id: whoever takes over from a guest takes that id first, so that
 * nothing of it can be appended any more. Each record names its writer in a header, so that one can
 * see whose id that is. Invariants:
 * - Rows are handed over in the order of their partition, committed ones only.
 * - `append` is one transaction: all rows are there, or none, or the outcome is not known and the
 *   session is over.
 */
import type { Runtime } from '../../io/runtime.ts';
import { MIRROR_STATE_TOPIC, ownerPartition } from '../../mirror/state-row.ts';
import type { BrokerAddress } from '../../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import type { DecodedRecord, NewRecord } from '../../protocol/record.ts';
import { ClusterClient, ClusterError } from '../cluster-client.ts';
import { CommittedReader, type ReadEnd, type ReadPosition } from './committed-reader.ts';
import { TransactionalProducer, takeTransactionalId } from './transactional-producer.ts';

/** Rows of one transaction. */
export const MAX_ROWS_PER_TRANSACTION = 500;
/** Their keys and values, in bytes: below `max.message.bytes` even if one partition owns all. */
export const MAX_BYTES_PER_TRANSACTION = 512 * 1024;
/** How long reading to an end may take, in ms: what a dead guest left open must time out. */
export const READ_BOUND_MS = 25_000;

/** How long a reading waits before it ends what dead guests left undecided, in ms. */
export const UNDECIDED_PATIENCE_MS = 1_000;

/** Header that names the guest which wrote a record. */
const WRITER_HEADER = 'guest';

/** A row to be written. */
export interface StateRecord {
  /** What is hashed for the partition (rule C3). */
  readonly text: string;
  readonly key: Uint8Array;
  /** Null deletes the row. */
  readonly value: Uint8Array | null;
}

/** A row that was read. */
export interface ReadRow {
  readonly at: ReadPosition;
  readonly key: Uint8Array;
  readonly value: Uint8Array | null;
  /** The guest that wrote it; undefined: not known. */
  readonly writer: number | undefined;
}

/** What a {@link StateTopic} is made of. */
export interface StateTopicOptions {
  /** This guest's. */
  readonly nodeId: number;
  /** Brokers of the cluster, none of them a guest's; asked at each need. */
  readonly brokers: () => readonly BrokerAddress[];
  readonly security?: ConnectionSecurity | undefined;
  /** Guests whose transactions nobody will end. */
  readonly deadGuests: () => readonly number[];
  readonly onRow: (row: ReadRow) => void;
  readonly onReset: (partition: number) => void;
}

/** The transactional id of a guest. */
export function transactionalIdOf(guestId: number): string {
  return `twinlog-mirror-state-${guestId}`;
}

/** The guest that a record's header names. */
export function writerOf({ headers }: Pick<DecodedRecord, 'headers'>): number | undefined {
  const value = headers.find(({ key }) => key === WRITER_HEADER)?.value;
  if (value === undefined || value === null) return undefined;
  const text = Buffer.from(value).toString('utf8');
  return /^\d{1,10}$/.test(text) ? Number(text) : undefined;
}

/** See the file header. */
export class StateTopic {
  readonly #clock: Runtime['clock'];
  readonly #logger: Runtime['logger'];
  readonly #nodeId: number;
  readonly #deadGuests: () => readonly number[];
  readonly #client: ClusterClient;
  readonly #fetchClient: ClusterClient;
  readonly #reader: CommittedReader;
  readonly #producer: TransactionalProducer;

  constructor(runtime: Runtime, options: StateTopicOptions) {
    const { nodeId, brokers, security, deadGuests, onRow, onReset } = options;
    this.#clock = runtime.clock;
    this.#logger = runtime.logger;
    this.#nodeId = nodeId;
    this.#deadGuests = deadGuests;
    const clientId = transactionalIdOf(nodeId);
    this.#client = new ClusterClient(runtime, { clientId, security, bootstrap: brokers });
    this.#fetchClient = new ClusterClient(runtime, {
      clientId: `${clientId}-reader`,
      security,
      bootstrap: brokers,
    });
    this.#producer = new TransactionalProducer(this.#client, clientId);
    this.#reader = new CommittedReader(runtime, {
      topic: MIRROR_STATE_TOPIC,
      client: this.#client,
      fetchClient: this.#fetchClient,
      onRecord: (at, record) => {
        const { key, value } = record;
        if (key !== null) onRow({ at, key, value, writer: writerOf(record) });
      },
      onReset,
    });
  }

  /** The partition that owns a text; undefined before the start. */
  ownerOf(text: string): number | undefined {
    const count = this.#reader.partitionCount;
    return count === 0 ? undefined : ownerPartition(text, count);
  }

  /**
   * Reads all rows, then tails; after `patienceMs` without those behind a transaction that is still
   * undecided. Rejects with a `ClusterError`, as when there is no such topic.
   */
  async start(patienceMs: number): Promise<void> {
    await this.#reader.start();
    await this.#reader.readTo('lastStable', READ_BOUND_MS);
    try {
      await this.#reader.readTo('highWatermark', patienceMs);
    } catch (error) {
      if (!(error instanceof ClusterError && error.kind === 'timedOut')) throw error;
      this.#logger.warn('mirror states are not all decided yet', { reason: error.message });
    }
  }

  close(): void {
    this.#reader.close();
    this.#client.close();
    this.#fetchClient.close();
  }

  /**
   * Resolves when all up to the present end has been handed over; see `CommittedReader`. What a
   * dead guest left undecided is ended, rather than waited for until it times out.
   */
  async readToEnd(end: ReadEnd): Promise<void> {
    const timer = this.#clock.setTimer(UNDECIDED_PATIENCE_MS, () => this.#endUndecided());
    try {
      await this.#reader.readTo(end, READ_BOUND_MS);
    } finally {
      timer.cancel();
    }
  }

  #endUndecided(): void {
    const dead = this.#deadGuests();
    if (dead.length === 0) return;
    this.#logger.info('ending what guests that are gone left undecided', { guests: dead });
    this.#fence(dead).catch((error: unknown) => {
      if (!(error instanceof ClusterError)) throw error;
      // Then it times out by itself.
      this.#logger.warn('it could not be ended', { error: error.message });
    });
  }

  async #fence(guestIds: Iterable<number>): Promise<void> {
    for (const guestId of guestIds) {
      await takeTransactionalId(this.#client, transactionalIdOf(guestId));
    }
  }

  /** Takes this guest's own transactional id: from now on it alone appends under it. */
  init(): Promise<void> {
    return this.#producer.init();
  }

  /** Writes rows in one transaction; answers their places (an offset of −1: not known). */
  async append(rows: readonly StateRecord[]): Promise<ReadPosition[]> {
    const timestamp = this.#clock.wallMs();
    const header = { key: WRITER_HEADER, value: Buffer.from(String(this.#nodeId)) };
    const batches = new Map<number, NewRecord[]>();
    const places = rows.map(({ text, key, value }) => {
      const partition = this.ownerOf(text) ?? 0;
      const batch = batches.get(partition) ?? [];
      batches.set(partition, batch);
      batch.push({ key, value, timestamp, headers: [header] });
      return { partition, index: batch.length - 1 };
    });
    const firstOffsets = await this.#producer.commit(MIRROR_STATE_TOPIC, batches);
    return places.map(({ partition, index }) => {
      const first = firstOffsets.get(partition) ?? -1;
      return { partition, offset: first < 0 ? -1 : first + index };
    });
  }

  /** Fences another guest, and reads all that it wrote; rejects with a `ClusterError`. */
  async takeOver(guestIds: Iterable<number>): Promise<void> {
    await this.#fence(guestIds);
    await this.readToEnd('highWatermark');
  }
}
