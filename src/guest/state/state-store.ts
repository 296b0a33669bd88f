/**
 * The mirror state of a cluster with guests: rows, mirrors, mirrored topics (G22, G23; S2, S4).
 *
 * What `mirror-coordinator.ts` is where the controller is embedded: drivers and jobs read and write
 * rows through it. It holds all rows in memory, as the topic says, and checks every write against
 * them before it writes. Invariants:
 * - A read answers what is durable, after all that anybody had committed by then was read (S2); a
 *   write that answered NONE is committed, and by then rows and metadata overlay show it.
 * - Before a row that another guest wrote last is replaced, that guest's transactional id is taken
 *   and all it wrote is read, so that nothing of it can follow (G22).
 * - Once fenced, everything is answered NOT_COORDINATOR until the id is taken anew, `mayOwn` agreed
 *   after that, and all rows were read again. What became of a failed transaction is never assumed.
 */
import { SharedRun } from '../../base/shared-run.ts';
import type { Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import type { PlacedRecord } from '../../metadata/transaction-buffer.ts';
import { failureOf } from '../../mirror/causes.ts';
import type { KeyedRow } from '../../mirror/coordinator-shard.ts';
import type { MirrorStateStore, RowAnswer, RowsAnswer } from '../../mirror/mirror-coordinator.ts';
import {
  encodeRowKey,
  type MirrorStateRow,
  type RowKey,
  rowKeyText,
} from '../../mirror/state-row.ts';
import type { BrokerAddress } from '../../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import { type ErrorCode, errors } from '../../protocol/errors.ts';
import { type BackoffPolicy, backoffMs } from '../../replication/backoff.ts';
import { ClusterError } from '../cluster-client.ts';
import { isLive } from '../guest-brokers.ts';
import {
  type CatalogKey,
  catalogKeyText,
  encodeCatalogKey,
  encodeJobs,
  encodeSettings,
  encodeTopic,
  type MirrorJobsRow,
  type MirrorSettingsRow,
  type MirrorTopicRow,
} from './catalog.ts';
import { StateRows } from './state-rows.ts';
import { StateSession } from './state-session.ts';
import {
  MAX_BYTES_PER_TRANSACTION,
  MAX_ROWS_PER_TRANSACTION,
  type ReadRow,
  type StateRecord,
  StateTopic,
} from './state-topic.ts';
import { ProducerFenced } from './transactional-producer.ts';

/** Writes that may wait; more are answered COORDINATOR_NOT_AVAILABLE. */
export const MAX_WAITING_WRITES = 100_000;
/** How long a write is tried before it is answered COORDINATOR_NOT_AVAILABLE, in ms. */
export const WRITE_BOUND_MS = 20_000;
/** Pauses between attempts to write. */
export const STORE_RETRY: BackoffPolicy = { initialMs: 50, maxMs: 2_000 };
/** How long the start waits for what is undecided, in ms; later it comes as it is decided. */
export const START_PATIENCE_MS = 2_000;

/** What a {@link GuestStateStore} is made of. */
export interface GuestStateStoreOptions {
  /** This guest's. */
  readonly nodeId: number;
  /** Brokers of the cluster that are not guests; asked at each need. */
  readonly brokers: () => readonly BrokerAddress[];
  /** How connections to them are secured. */
  readonly security?: ConnectionSecurity | undefined;
  /** Other guests of the cluster, dead ones included. */
  readonly otherGuests: () => readonly number[];
  readonly image: () => MetadataImage;
  /**
   * Asked after this guest's transactional id was taken: whether it is a member in good standing
   * by metadata that was read from the controller *after* the call. Then it knows of every
   * leadership whose owner fenced it before, and rows it may not write any more have no driver.
   */
  readonly mayOwn: () => Promise<boolean>;
  /** Memberships and settings changed: the overlay on the metadata (see `catalog.ts`). */
  readonly onOverlay: (records: readonly PlacedRecord[]) => void;
  /** Called, once for many, after rows changed. */
  readonly onChange: () => void;
}

type Decided = { readonly error: ErrorCode } | { readonly value: Uint8Array | null };

interface Write {
  /** Of its arrival. */
  readonly number: number;
  readonly text: string;
  readonly key: Uint8Array;
  readonly deadlineMs: number;
  /** Against the rows as they are now. */
  readonly decide: () => Decided;
  /** Guests to be fenced first, besides the last writer. */
  readonly alsoFence: () => readonly number[];
  readonly resolve: (error: ErrorCode) => void;
}

const NOTHING: readonly number[] = [];

/** See the file header. */
export class GuestStateStore implements MirrorStateStore {
  readonly #runtime: Runtime;
  readonly #options: GuestStateStoreOptions;
  readonly #topic: StateTopic;
  readonly #rows = new StateRows();
  readonly #session: StateSession;
  readonly #reading: SharedRun<void>;
  /** Before the start is complete, what the overlay will be. */
  #history: PlacedRecord[] | undefined = [];
  #queue: Write[] = [];
  #arrived = 0;
  /** By guest: up to which write its id was taken after the write had come. */
  readonly #takenFor = new Map<number, number>();
  #working = false;
  #attempts = 0;
  #changed = false;
  #sweeping = false;
  #closed = false;

  constructor(runtime: Runtime, options: GuestStateStoreOptions) {
    this.#runtime = runtime;
    this.#options = options;
    this.#topic = new StateTopic(runtime, {
      nodeId: options.nodeId,
      brokers: options.brokers,
      security: options.security,
      deadGuests: () => options.otherGuests().filter((id) => !isLive(options.image(), id)),
      onRow: (row) => this.#take(row),
      onReset: (partition) => this.#rows.forgetPlaces(partition),
    });
    const { nodeId, mayOwn } = options;
    this.#session = new StateSession(runtime, { nodeId, topic: this.#topic, mayOwn });
    this.#reading = new SharedRun(() => {
      this.#session.begin();
      // Not to the last stable offset: what is committed may lie beyond it.
      return this.#topic.readToEnd('highWatermark');
    });
  }

  /**
   * Reads all rows, hands over the overlay, then tails. Rejects with a `ClusterError`, as when the
   * topic does not exist: making it is not this file's job.
   */
  async start(): Promise<void> {
    await this.#topic.start(START_PATIENCE_MS);
    const history = this.#history ?? [];
    this.#history = undefined;
    if (history.length > 0) this.#options.onOverlay(history);
    this.#options.onChange();
  }

  close(): void {
    this.#closed = true;
    this.#session.close();
    this.#topic.close();
    this.#answerAll(this.#queue.splice(0), errors.NOT_COORDINATOR.code);
  }

  /** Nothing is written until the transactional id was taken anew. */
  get isFenced(): boolean {
    return this.#session.isFenced;
  }

  /** The partition that owns a key's text (rule C3); undefined before the start. */
  ownerOf(text: string): number | undefined {
    return this.#topic.ownerOf(text);
  }

  /** A guest never leads the topic: nothing to do. */
  onBecomeLeader(_partition: number, _leaderEpoch: number): void {}

  /** The same. */
  onLoseLeadership(_partition: number): void {}

  // --- reading ----------------------------------------------------------------------------------

  async read(key: RowKey): Promise<RowAnswer> {
    const error = await this.#readToEnd();
    if (error !== errors.NONE.code) return { error };
    return { error, row: this.#rows.shard.row(key) };
  }

  async rowsOfPartition(topicId: Uuid, partition: number): Promise<RowsAnswer> {
    const error = await this.#readToEnd();
    if (error !== errors.NONE.code) return { error };
    return { error, rows: this.#rows.shard.rowsOf(topicId, partition) };
  }

  /** A partition's row as far as the topic was read. */
  known(key: RowKey): MirrorStateRow | undefined {
    return this.#rows.shard.row(key);
  }

  /** All partition rows known of a mirror. */
  rows(mirror: string): KeyedRow[] {
    return this.#rows.shard.rows().filter(({ key }) => key.mirror === mirror);
  }

  /** Names of the mirrors known, sorted. */
  mirrors(): string[] {
    return this.#rows.catalog.mirrors();
  }

  settings(mirror: string): MirrorSettingsRow | undefined {
    return this.#rows.catalog.settings(mirror);
  }

  topic(topicName: string): MirrorTopicRow | undefined {
    return this.#rows.catalog.topic(topicName);
  }

  /** Names and rows of a mirror's topics, detached ones included, sorted by name. */
  topics(mirror: string): [name: string, row: MirrorTopicRow][] {
    return this.#rows.catalog.topics(mirror);
  }

  /** Who runs the mirror's jobs; a guest that is fenced runs none (rule G23). */
  jobs(mirror: string): MirrorJobsRow | undefined {
    const jobs = this.#rows.catalog.jobs(mirror);
    return this.isFenced && jobs?.guestId === this.#options.nodeId ? undefined : jobs;
  }

  async #readToEnd(): Promise<ErrorCode> {
    if (this.#history !== undefined) return errors.COORDINATOR_LOAD_IN_PROGRESS.code;
    try {
      await this.#reading.run();
      return errors.NONE.code;
    } catch (error) {
      return this.#unavailable(error, 'mirror state could not be read to its end');
    }
  }

  /** What a failure of the cluster means to whoever asked; anything else is thrown on. */
  #unavailable(error: unknown, what: string): ErrorCode {
    if (!(error instanceof ClusterError)) throw error;
    if (this.#closed) return errors.NOT_COORDINATOR.code;
    this.#runtime.logger.warn(what, { error: error.message });
    return errors.COORDINATOR_NOT_AVAILABLE.code;
  }

  // --- rows that arrive -------------------------------------------------------------------------

  #take(row: ReadRow): void {
    const records = this.#rows.apply(row);
    if (records === undefined) return;
    if (this.#history !== undefined) {
      for (const record of records) this.#history.push(record);
      return;
    }
    if (records.length > 0) this.#options.onOverlay(records);
    if (this.#changed) return;
    this.#changed = true;
    this.#runtime.clock.defer(() => {
      this.#changed = false;
      if (!this.#closed) this.#options.onChange();
    });
  }

  // --- writing ----------------------------------------------------------------------------------

  write(key: RowKey, row: MirrorStateRow | null): Promise<ErrorCode> {
    const othersBefore = row !== null && row.leaderEpoch > 0;
    return this.#enqueue({
      text: rowKeyText(key),
      key: encodeRowKey(key),
      decide: () => {
        const { records, response } = this.#rows.shard.decideWrite([{ key, row }]);
        const [record] = records;
        return record === undefined ? { error: response[0] ?? 0 } : { value: record.value };
      },
      // Somebody else led before, and may have a first row on its way.
      alsoFence: () =>
        othersBefore && this.#rows.shard.row(key) === undefined
          ? this.#options.otherGuests()
          : NOTHING,
    });
  }

  discard(key: RowKey, membershipOffset: number): Promise<ErrorCode> {
    return this.#enqueue({
      text: rowKeyText(key),
      key: encodeRowKey(key),
      decide: () => {
        const { records, response } = this.#rows.shard.decideDiscard(key, membershipOffset);
        return records.length === 0 ? { error: response } : { value: null };
      },
      alsoFence: () => NOTHING,
    });
  }

  /** Null deletes the mirror. */
  writeSettings(mirror: string, row: MirrorSettingsRow | null): Promise<ErrorCode> {
    const value = row === null ? null : encodeSettings(row);
    return this.#writeCatalog({ type: 'settings', mirror }, () => ({ value }));
  }

  /** INVALID_REQUEST when another membership comes with an offset that is not newer (S7). */
  writeTopic(topicName: string, row: MirrorTopicRow): Promise<ErrorCode> {
    return this.#writeCatalog({ type: 'topic', topic: topicName }, () => {
      const before = this.#rows.catalog.topic(topicName);
      const isSame = before?.mirrorName === row.mirrorName && before.removed === row.removed;
      const newerThan = (before?.membershipOffset ?? -1) - (isSame ? 1 : 0);
      if (row.membershipOffset <= newerThan) return { error: errors.INVALID_REQUEST.code };
      return { value: encodeTopic(row) };
    });
  }

  deleteTopic(topicName: string): Promise<ErrorCode> {
    return this.#writeCatalog({ type: 'topic', topic: topicName }, () => ({ value: null }));
  }

  /** Makes this guest the one that runs the mirror's jobs, fencing the one that did (G23). */
  async claimJobs(mirror: string): Promise<ErrorCode> {
    const { nodeId } = this.#options;
    const value = encodeJobs({ guestId: nodeId, claimedAtMs: this.#runtime.clock.wallMs() });
    const owner = (): number | undefined => this.#rows.catalog.jobs(mirror)?.guestId;
    const error = await this.#readToEnd();
    if (error !== errors.NONE.code) return error;
    return this.#writeCatalog(
      { type: 'jobs', mirror },
      () => (owner() === nodeId ? { error: errors.NONE.code } : { value }),
      () => [owner() ?? nodeId],
    );
  }

  #writeCatalog(
    key: CatalogKey,
    decide: () => Decided,
    alsoFence: Write['alsoFence'] = () => NOTHING,
  ): Promise<ErrorCode> {
    return this.#enqueue({
      text: catalogKeyText(key),
      key: encodeCatalogKey(key),
      decide: () => {
        const decided = decide();
        if ('error' in decided) return decided;
        const current = this.#rows.catalog.encoded(key) ?? null;
        const { value } = decided;
        const isSame =
          current === value ||
          (current !== null && value !== null && Buffer.compare(current, value) === 0);
        return isSame ? { error: errors.NONE.code } : decided;
      },
      alsoFence,
    });
  }

  /** Fences another guest's writes and reads all that it wrote; rejects with a `ClusterError`. */
  async takeOver(guestId: number): Promise<void> {
    if (guestId !== this.#options.nodeId) await this.#topic.takeOver([guestId]);
  }

  #enqueue(write: Omit<Write, 'number' | 'deadlineMs' | 'resolve'>): Promise<ErrorCode> {
    const refusal = this.#refusal();
    if (refusal !== undefined) return Promise.resolve(refusal);
    const { clock } = this.#runtime;
    return new Promise((resolve) => {
      const number = ++this.#arrived;
      const deadlineMs = clock.monotonicMs() + WRITE_BOUND_MS;
      this.#queue.push({ ...write, number, deadlineMs, resolve });
      if (this.#working) return;
      this.#working = true;
      // Deferred, so that writes that come in one go are one transaction.
      clock.defer(() => void this.#work());
    });
  }

  #refusal(): ErrorCode | undefined {
    if (this.#closed || this.isFenced) return errors.NOT_COORDINATOR.code;
    if (this.#history !== undefined) return errors.COORDINATOR_LOAD_IN_PROGRESS.code;
    if (this.#queue.length < MAX_WAITING_WRITES) return undefined;
    return errors.COORDINATOR_NOT_AVAILABLE.code;
  }

  #answerAll(writes: readonly Write[], error: ErrorCode): void {
    for (const write of writes) write.resolve(error);
  }

  /** Writes transaction after transaction until nothing waits. */
  async #work(): Promise<void> {
    while (!this.#closed && this.#queue.length > 0) {
      const batch = this.#nextBatch();
      const failure = await this.#transact(batch).then(
        () => undefined,
        (error: unknown) => ({ error }),
      );
      if (failure === undefined) this.#attempts = 0;
      else await this.#failed(batch, failure.error);
    }
    this.#working = false;
  }

  /** One write per row, as many rows as a transaction takes; those that are late are answered. */
  #nextBatch(): Write[] {
    const now = this.#runtime.clock.monotonicMs();
    const late = this.#queue.filter(({ deadlineMs }) => deadlineMs <= now);
    this.#answerAll(late, errors.COORDINATOR_NOT_AVAILABLE.code);
    const batch = new Map<string, Write>();
    const left: Write[] = [];
    for (const write of this.#queue) {
      if (write.deadlineMs <= now) continue;
      const fits = batch.size < MAX_ROWS_PER_TRANSACTION && !batch.has(write.text);
      if (fits) batch.set(write.text, write);
      else left.push(write);
    }
    this.#queue = left;
    return [...batch.values()];
  }

  /** What is not answered when this rejects goes back to the queue. */
  async #transact(batch: Write[]): Promise<void> {
    if (batch.length === 0) return;
    await this.#session.ensure();
    let writes = this.#decide(batch);
    const foreign = this.#foreignTo(writes.map(({ write }) => write));
    if (foreign.size > 0) {
      this.#runtime.logger.info('fencing guests whose mirror states change hands', {
        guests: [...foreign],
      });
      const upTo = this.#arrived;
      await this.#topic.takeOver(foreign);
      for (const guest of foreign) this.#takenFor.set(guest, upTo);
      writes = this.#decide(batch);
    }
    if (writes.length === 0) return;
    const places = await this.#topic.append(writes.map(({ record }) => record));
    // The cluster said "written before" instead of where: read it.
    if (places.some(({ offset }) => offset < 0)) await this.#topic.readToEnd('highWatermark');
    for (const [index, { record, write }] of writes.entries()) {
      const at = places[index];
      const { key, value } = record;
      if (at !== undefined && at.offset >= 0) {
        this.#take({ at, key, value, writer: this.#options.nodeId });
      }
      write.resolve(errors.NONE.code);
    }
    batch.length = 0;
  }

  /**
   * Answers what needs no record and takes it out of the batch; the rest with its records. What
   * exceeds the size of a transaction goes back to the queue.
   */
  #decide(batch: Write[]): { readonly write: Write; readonly record: StateRecord }[] {
    const writes: { write: Write; record: StateRecord }[] = [];
    const later: Write[] = [];
    let bytes = 0;
    for (const write of batch.splice(0)) {
      const decided = this.#decideOne(write);
      if ('error' in decided) {
        write.resolve(decided.error);
        continue;
      }
      const { text, key } = write;
      const { value } = decided;
      const size = key.length + (value?.length ?? 0);
      if (size > MAX_BYTES_PER_TRANSACTION) {
        write.resolve(errors.RECORD_LIST_TOO_LARGE.code);
      } else if (bytes + size > MAX_BYTES_PER_TRANSACTION) {
        later.push(write);
      } else {
        bytes += size;
        batch.push(write);
        writes.push({ write, record: { text, key, value } });
      }
    }
    this.#queue.unshift(...later);
    return writes;
  }

  /** A row that cannot be encoded is an answer to whoever wrote it, not the end of the process. */
  #decideOne(write: Write): Decided {
    try {
      return write.decide();
    } catch (error) {
      failureOf(error, this.#runtime.logger);
      return { error: errors.UNKNOWN_SERVER_ERROR.code };
    }
  }

  /**
   * Guests whose id must be taken before these writes. Once is enough for a write: a guest comes
   * back only with metadata by which it knows what this guest knew when the write came.
   */
  #foreignTo(writes: readonly Write[]): Set<number> {
    const foreign = new Set<number>();
    for (const { number, text, alsoFence } of writes) {
      for (const guest of [this.#rows.writerOf(text), ...alsoFence()]) {
        if (guest === undefined || guest === this.#options.nodeId) continue;
        if ((this.#takenFor.get(guest) ?? 0) < number) foreign.add(guest);
      }
    }
    return foreign;
  }

  /** Puts back what was not answered; a fenced guest refuses it instead, and tries to come back. */
  async #failed(batch: readonly Write[], error: unknown): Promise<void> {
    const { clock, random, logger } = this.#runtime;
    if (error instanceof ProducerFenced) {
      if (this.#closed) return this.#answerAll(batch, errors.NOT_COORDINATOR.code);
      this.#session.fence(error.message);
      this.#answerAll([...batch, ...this.#queue.splice(0)], errors.NOT_COORDINATOR.code);
      return;
    }
    this.#session.lose();
    if (!(error instanceof ClusterError)) {
      failureOf(error, logger);
      this.#answerAll(batch, errors.UNKNOWN_SERVER_ERROR.code);
      return;
    }
    this.#queue.unshift(...batch);
    if (this.#closed) return this.#answerAll(this.#queue.splice(0), errors.NOT_COORDINATOR.code);
    logger.warn('mirror states were not written, trying again', { error: error.message });
    this.#attempts++;
    const pauseMs = backoffMs(STORE_RETRY, this.#attempts, random);
    await new Promise<void>((resolve) => clock.setTimer(pauseMs, resolve));
  }

  // --- deleted topics ---------------------------------------------------------------------------

  /** Tombstones the rows whose topic is gone (B2); what fails is left to the next sweep. */
  sweep(): void {
    if (this.#sweeping || this.#history !== undefined) return;
    const gone = this.#gone();
    if (gone.length === 0) return;
    this.#sweeping = true;
    this.#sweep(gone).then(
      () => {
        this.#sweeping = false;
      },
      (error: unknown) => {
        this.#sweeping = false;
        failureOf(error, this.#runtime.logger);
      },
    );
  }

  /** Rows of topics that the image does not have, where no other guest is responsible. */
  #gone(): KeyedRow[] {
    const image = this.#options.image();
    const { nodeId } = this.#options;
    return this.#rows.shard.rows().filter(({ key }) => {
      if (image.topicsById.has(key.topicId)) return false;
      return (this.#rows.catalog.jobs(key.mirror)?.guestId ?? nodeId) === nodeId;
    });
  }

  /**
   * A row exists only after its topic does, but another guest may have seen that first: the topic
   * is gone if it is not in metadata that is newer than the row either.
   */
  async #sweep(rows: readonly KeyedRow[]): Promise<void> {
    if (!(await this.#session.mayOwn())) return;
    const image = this.#options.image();
    const gone = rows.filter(({ key }) => !image.topicsById.has(key.topicId));
    const written = await Promise.all(gone.map(({ key }) => this.write(key, null)));
    const count = written.filter((error) => error === errors.NONE.code).length;
    if (count === 0) return;
    this.#runtime.logger.info('mirror states of deleted topics removed', { rows: count });
  }
}
