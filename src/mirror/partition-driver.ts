/**
 * Drives one mirrored partition through its states while this broker leads it.
 *
 * Made by the mirror manager per leadership (leader epoch) and membership; performs what `step`
 * decides. What happens while the partition mirrors is `mirroring-stay.ts`. Invariants:
 * - Events go through one queue: a transition is decided, written, durable, and only then performed
 *   and shown to the gate (S2, S4).
 * - What acts in a state is void once the state or the leadership has moved on (`#action`).
 * - With no event waiting, the membership is compared with the state: a missed notice is repaired
 *   by the next one (T1).
 * - A failed write is retried; a fenced one makes the driver read its row again (D3, S4). Neither
 *   is silent: while the row is out of reach the state is UNKNOWN and the reason is shown.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import type { Timer } from '../io/runtime.ts';
import type { MirrorMembership } from '../metadata/image.ts';
import { type BackoffPolicy, backoffMs } from '../replication/backoff.ts';
import type { Partition } from '../replication/partition.ts';
import { failureOf, type MirrorCause, MirrorFailure } from './causes.ts';
import type { DriverContext, DriverStatus } from './driver-context.ts';
import { LOWER_AT_STOP_BOUND_MS } from './group-offsets/lowering.ts';
import { MirroringStay, type StayOwner } from './mirroring-stay.ts';
import {
  checkAddedTopicId,
  checkSourceCluster,
  checkTopicId,
  compareBelow,
  epochsBelow,
  servesLastMirrored,
  truncationOffset,
} from './prepare.ts';
import { RowAccess } from './row-access.ts';
import type { MirrorSettings } from './settings.ts';
import type { SourceCluster, SourceTopic } from './source-cluster.ts';
import type { ClosedTransaction, MirrorStateRow, RowKey, SourceEpoch } from './state-row.ts';
import { type MirrorEffect, type MirrorEvent, stateName, step } from './states.ts';
import {
  adoptOpen,
  appendMarkers,
  checkOpenAt,
  hasReopened,
  isSamePlan,
  planClosing,
} from './transaction-closing.ts';
import {
  type CutContext,
  cutAt,
  cutTo,
  cutToLastStable,
  type EpochDebt,
  endBehindLastBatch,
  endOfBatches,
  lowerRows,
  Superseded,
  startNewEpoch,
  whenLiveReplicasFollowed,
  whenReplicasFollowed,
} from './truncation.ts';

/** Backoff of FAILED partitions (S5). */
export const FAILED_BACKOFF: BackoffPolicy = { initialMs: 1_000, maxMs: 300_000 };
/** Pause after an event that ended in an error nobody expected. */
const UNEXPECTED_RETRY_MS = 30_000;
/** Events that may wait; there are never more than a few, as each action posts one. */
export const MAX_QUEUED_EVENTS = 100;

interface QueuedEvent {
  readonly event: MirrorEvent;
  readonly done: (durable: boolean) => void;
}

/** See the file header. */
export class PartitionDriver {
  readonly partition: Partition;
  readonly leaderEpoch: number;
  readonly key: RowKey;
  readonly #context: DriverContext;
  readonly #rows: RowAccess;
  #membership: MirrorMembership;
  #row: MirrorStateRow | undefined;
  #loaded = false;
  #closed = false;
  #queue: QueuedEvent[] = [];
  #working = false;
  /** Number of the action that may act; older ones are void. */
  #action = 0;
  /** An election that a cut of this leadership still needs (T5). */
  readonly #debt: EpochDebt = { owed: false };
  #stay: MirroringStay | undefined;
  #retryTimer: Timer | undefined;
  #nextRetryMs = -1;

  constructor(context: DriverContext, partition: Partition, membership: MirrorMembership) {
    this.#context = context;
    this.partition = partition;
    this.leaderEpoch = partition.leaderEpoch;
    this.#membership = membership;
    const { topicId, topicPartition } = partition;
    this.key = { mirror: membership.mirror, topicId, partition: topicPartition.partition };
    this.#rows = new RowAccess(context.runtime, context.store, this.key);
  }

  start(): void {
    void this.#load();
  }

  /** Drops all that is in memory (S6): leadership or membership is gone. */
  close(): void {
    this.#closed = true;
    this.#rows.close();
    this.#haltFetch();
    for (const { done } of this.#queue) done(false);
    this.#queue = [];
  }

  /** The membership as of now, changed or not. */
  membershipIs(membership: MirrorMembership): void {
    this.#membership = membership;
    void this.#work();
  }

  /** The mirror's source was made anew (A6): what hangs on the old one starts again. */
  sourceReplaced(): void {
    if (this.#closed || this.#stay === undefined) return;
    this.#haltFetch();
    if (this.#row !== undefined && stateName(this.#row.state) === 'MIRRORING') this.#startFetch();
  }

  status(): DriverStatus {
    // While the row is out of reach nothing is known of it (S2).
    const row = this.#loaded ? this.#row : undefined;
    const trouble = this.#rows.trouble ?? this.#stay?.trouble;
    const state = row === undefined ? 'UNKNOWN' : stateName(row.state);
    return {
      state,
      row,
      cause: trouble?.cause ?? row?.cause ?? '',
      message: trouble?.message ?? row?.message ?? '',
      sinceMs: trouble?.sinceMs ?? row?.sinceMs ?? -1,
      nextRetryMs: trouble?.nextRetryMs ?? this.#nextRetryMs,
      progress: this.#stay?.progress(),
    };
  }

  // --- the row ----------------------------------------------------------------------------------

  async #load(): Promise<void> {
    const answer = await this.#rows.read();
    if (answer === undefined) return;
    let { row } = answer;
    if (row !== undefined && row.membershipOffset > this.#membership.offset) {
      // Whoever wrote it knows more of the metadata than we do, or our topic's life is over.
      this.#again(`the row serves membership ${row.membershipOffset}, unknown here so far`);
      return;
    }
    if (row !== undefined && this.#isOfFormerLife(row)) {
      const outcome = await this.#rows.discard(this.#membership.offset);
      if (outcome === 'void') return;
      row = undefined;
    }
    this.#row = row;
    this.#loaded = true;
    // A newer membership takes a STOPPED row over by its own event, whatever the leader epoch.
    if (row === undefined || this.#needsPrepare()) {
      void this.#work();
      return;
    }
    this.#show(row);
    const { removed, offset } = this.#membership;
    const membershipOffset = removed ? offset : row.membershipOffset;
    void this.#post({ type: 'claim', membershipOffset });
  }

  /**
   * Membership is renewed only when everything is STOPPED (A3): a row in any other state under an
   * older one was left by a topic that was deleted and made again under the same id (B2).
   */
  #isOfFormerLife(row: MirrorStateRow): boolean {
    const { removed, offset } = this.#membership;
    return !removed && row.membershipOffset < offset && stateName(row.state) !== 'STOPPED';
  }

  /** Forgets what we know of the row and reads it again after a pause; `why` is shown. */
  #again(why: string, cause: MirrorCause = 'DESTINATION_BUSY', delayMs?: number): void {
    this.#haltFetch();
    this.#loaded = false;
    this.#context.states.clear(this.key.topicId, this.key.partition);
    const waiting = this.#queue;
    this.#queue = [];
    for (const { done } of waiting) done(false);
    void this.#rows.pause(why, cause, delayMs).then(() => {
      if (!this.#closed) void this.#load();
    });
  }

  #show(row: MirrorStateRow): void {
    const { topicId, partition, mirror } = this.key;
    // A STOPPED row that a newer membership has overtaken opens nothing.
    if (this.#needsPrepare()) this.#context.states.clear(topicId, partition);
    else this.#context.states.set(topicId, partition, mirror, stateName(row.state));
  }

  // --- events -----------------------------------------------------------------------------------

  /** Resolves true when the event's row is durable, false when it was refused or is void. */
  #post(event: MirrorEvent): Promise<boolean> {
    if (this.#closed || this.#queue.length >= MAX_QUEUED_EVENTS) return Promise.resolve(false);
    return new Promise((resolve) => {
      this.#queue.push({ event, done: resolve });
      void this.#work();
    });
  }

  async #work(): Promise<void> {
    if (this.#working || this.#closed || !this.#loaded) return;
    this.#working = true;
    while (!this.#closed && this.#loaded) {
      const next = this.#queue.shift() ?? this.#fromMembership();
      if (next === undefined) break;
      next.done(await this.#handle(next.event).catch((error: unknown) => this.#unexpected(error)));
    }
    this.#working = false;
  }

  /** The event that the membership calls for in this state, if any (T1, S7). */
  #fromMembership(): QueuedEvent | undefined {
    const state = this.#row === undefined ? 'UNKNOWN' : stateName(this.#row.state);
    const { removed, offset } = this.#membership;
    const done = (): void => {};
    if (removed && state !== 'STOPPING' && state !== 'STOPPED') {
      return { event: { type: 'stop', membershipOffset: offset }, done };
    }
    if (!this.#needsPrepare()) return undefined;
    return { event: { type: 'prepare', membershipOffset: offset }, done };
  }

  #needsPrepare(): boolean {
    const { removed, offset } = this.#membership;
    if (removed) return false;
    if (this.#row === undefined) return true;
    return stateName(this.#row.state) === 'STOPPED' && this.#row.membershipOffset < offset;
  }

  async #handle(event: MirrorEvent): Promise<boolean> {
    const input = {
      topicName: this.partition.topic,
      partition: this.key.partition,
      leaderEpoch: this.leaderEpoch,
      row: this.#row,
    };
    const decided = step(input, event, this.#context.runtime.clock.wallMs());
    if ('illegal' in decided) {
      this.#context.onIllegal(`${this.partition.topic}-${this.key.partition}: ${decided.illegal}`);
      return false;
    }
    if (decided.row === undefined) return true;
    if (!(await this.#write(decided.row))) return false;
    const before = this.#row?.state;
    this.#row = decided.row;
    this.#show(decided.row);
    if (before !== decided.row.state) this.#log(decided.row, event.type);
    for (const effect of decided.effects) this.#perform(effect);
    return true;
  }

  /** An event that ends in an error nobody expected: shown, and all is read and entered anew. */
  #unexpected(error: unknown): boolean {
    const { mirrorCause, message } = failureOf(error, this.#context.runtime.logger);
    if (!this.#closed) this.#again(message, mirrorCause, UNEXPECTED_RETRY_MS);
    return false;
  }

  #log(row: MirrorStateRow, event: string): void {
    const { topicName, partition, cause, message } = row;
    const fields = { mirror: this.key.mirror, topic: topicName, partition, event };
    const why = cause === '' ? {} : { cause, message };
    const text = `mirror partition is ${stateName(row.state)}`;
    this.#context.runtime.logger.info(text, { ...fields, ...why });
  }

  /** True: durable. */
  async #write(row: MirrorStateRow): Promise<boolean> {
    const outcome = await this.#rows.write(row);
    if (outcome === 'refused') {
      this.#context.onIllegal(`the coordinator refused a move to ${stateName(row.state)}`);
    }
    if (outcome === 'fenced') {
      const known =
        this.#row === undefined ? 'no row' : `a row of leader epoch ${this.#row.leaderEpoch}`;
      this.#again(`somebody else holds the row: ${known}, leader epoch ${this.leaderEpoch} here`);
    }
    return outcome === 'durable';
  }

  // --- effects ----------------------------------------------------------------------------------

  #perform(effect: MirrorEffect): void {
    switch (effect.type) {
      case 'haltFetch':
        this.#haltFetch();
        break;
      case 'fetch':
        this.#startFetch();
        break;
      case 'prepare':
        this.#act((isCurrent) => this.#prepare(isCurrent));
        break;
      case 'cut':
        this.#act((isCurrent) => this.#stop(isCurrent));
        break;
      case 'scheduleRetry':
        this.#scheduleRetry(effect.attempt);
        break;
      case 'open':
        // The gate was shown the state when it became durable.
        break;
    }
  }

  #haltFetch(): void {
    this.#action++;
    this.#retryTimer?.cancel();
    this.#retryTimer = undefined;
    this.#nextRetryMs = -1;
    this.#stay?.close();
    this.#stay = undefined;
  }

  /** Runs what a state does on entry; its failure is an event. */
  #act(action: (isCurrent: () => boolean) => Promise<void>): void {
    const number = ++this.#action;
    const isCurrent = (): boolean => !this.#closed && this.#action === number;
    void action(isCurrent).catch((error: unknown) => {
      if (error instanceof Superseded) return;
      const { mirrorCause, message } = failureOf(error, this.#context.runtime.logger);
      if (isCurrent()) this.#fail(mirrorCause, message, false);
    });
  }

  #fail(cause: MirrorCause, message: string, progressed: boolean): void {
    void this.#post({ type: 'fail', cause, message, progressed });
  }

  #mirror(): { readonly source: SourceCluster; readonly settings: MirrorSettings } {
    const mirror = this.#context.mirror(this.key.mirror);
    if (mirror !== undefined) return mirror;
    throw new MirrorFailure('DESTINATION_BUSY', `mirror ${this.key.mirror} has no settings`);
  }

  #cutContext(isCurrent: () => boolean): CutContext {
    const { runtime, store, controller } = this.#context;
    const keepsTail = this.#context.mirror(this.key.mirror)?.settings.lostAndFoundEnable !== false;
    const { leaderEpoch } = this;
    const debt = this.#debt;
    return { runtime, store, controller, keepsTail, leaderEpoch, debt, isCurrent };
  }

  /** T2–T6. */
  async #prepare(isCurrent: () => boolean): Promise<void> {
    const { source } = this.#mirror();
    const { partition } = this;
    const topic = await source.topic(partition.topic);
    this.#checkTopicId(topic);
    checkSourceCluster(this.#row?.sourceClusterId ?? '', source.clusterId);
    const { clusterId, role, store } = this.#context;
    // Recorded and compared when the topic was taken; zero is then no lack of memory.
    const takenFrom = role.takenFrom?.(partition.topic, this.key.partition);
    const offset =
      takenFrom ?? (await truncationOffset(source, store, { ...this.key, topic, clusterId, role }));
    if (!isCurrent()) return;
    if (offset === 0 && partition.log.logEndOffset > 0 && takenFrom === undefined) {
      throw new MirrorFailure(
        'WOULD_DISCARD_ALL',
        `nothing is known to be mirrored, but the log holds offsets up to ` +
          `${partition.log.logEndOffset}, which would all be dropped`,
      );
    }
    await compareBelow(source, partition, topic, Math.min(offset, partition.log.logEndOffset));
    if (!isCurrent()) return;
    const closed = await this.#closedAtSource(source, offset);
    if (!isCurrent()) return;
    const learned = await this.#post({
      type: 'learn',
      closedAtSource: closed === 'none' ? [] : closed,
      sourceClusterId: source.clusterId,
      sourceTopicId: topic.id,
      sourceEpochs: this.#epochsUpTo(Math.min(offset, partition.log.logEndOffset)),
      cut: cutAt(partition, offset),
    });
    if (!learned || !isCurrent()) return;
    await this.#cut(isCurrent, offset);
    if (closed !== 'none') {
      adoptOpen(partition, offset, closed);
      checkOpenAt(partition, offset, closed, (id) => this.#sourceIdOf(id));
    }
    await whenReplicasFollowed(this.#cutContext(isCurrent), partition);
    const tooHigh = await this.#context.lowerGroupOffsets?.(partition, offset);
    if (!isCurrent()) return;
    if (tooHigh !== undefined) throw new MirrorFailure('DESTINATION_BUSY', tooHigh);
    await this.#post({ type: 'prepared' });
  }

  /**
   * Transactions whose end the source has made up where the sides parted (G24a). A twinlog cluster
   * never does.
   */
  async #closedAtSource(
    source: SourceCluster,
    offset: number,
  ): Promise<readonly ClosedTransaction[] | 'none'> {
    const { closing } = this.#context.role;
    if (closing === undefined || offset === 0) return 'none';
    const { mirror, partition } = this.key;
    const { topic } = this.partition;
    if (await servesLastMirrored(source, topic, partition)) return 'none';
    const closed = await closing.closedAtSource(mirror, topic, partition);
    if (closed === 'none') return 'none';
    return closed.filter(({ markerOffset }) => markerOffset >= offset);
  }

  #sourceIdOf(producerId: bigint): bigint | undefined {
    return this.#context.role.closing?.sourceIdOf(this.key.mirror, producerId);
  }

  /** O3, or G12. */
  #checkTopicId(topic: SourceTopic): void {
    const { role } = this.#context;
    if (role.topicIdentity === 'same') {
      checkTopicId(topic, this.partition.topicId);
      return;
    }
    const added = role.sourceTopicIdOf(topic.name) ?? this.#row?.sourceTopicId;
    checkAddedTopicId(topic, added ?? ZERO_UUID);
  }

  /**
   * The source's epochs below X. Beyond what this row mirrored, the records are our own, which the
   * source got from here under epochs of its own since.
   */
  #epochsUpTo(offset: number): SourceEpoch[] {
    const mirrored = this.#row?.lastMirroredOffset ?? -1;
    return mirrored >= 0 && mirrored < offset ? [] : epochsBelow(this.#epochs, offset);
  }

  get #epochs(): readonly SourceEpoch[] {
    return this.#row?.sourceEpochs ?? [];
  }

  /** T3–T5; returns when there was nothing to cut. */
  async #cut(isCurrent: () => boolean, offset: number): Promise<void> {
    const context = this.#cutContext(isCurrent);
    const { partition } = this;
    // Whoever may not lead leaves the ISR first: as leader it would bring the tail back (G29).
    const isLong = offset < partition.log.logEndOffset;
    if (isLong && this.#context.role.handover) await whenReplicasFollowed(context, partition);
    await this.#lowerRows(context, offset);
    await cutTo(context, partition, offset);
  }

  async #lowerRows(context: CutContext, offset: number): Promise<void> {
    await lowerRows(context, this.partition, offset, {
      key: this.key,
      lower: (lastMirroredOffset) => this.#post({ type: 'lower', lastMirroredOffset }),
    });
  }

  /** D1, D2; G24 up to where the partition can be handed over. */
  async #stop(isCurrent: () => boolean): Promise<void> {
    const { handover } = this.#context.role;
    const type = handover ? 'settled' : 'stopped';
    const context = this.#cutContext(isCurrent);
    const { log } = this.partition;
    const row = this.#row;
    const reopened = row !== undefined && hasReopened(this.partition, row);
    if (!row?.reachedMirroring) {
      // The cut of this episode may have ended in an offset gap; writes begin behind the batches.
      const end = endOfBatches(this.partition);
      if (end < log.logEndOffset) {
        await this.#lowerRows(context, end);
        endBehindLastBatch(context, this.partition);
      }
      if (reopened) await this.#closeTransactions(context);
      await this.#post({ type, lastMirroredOffset: undefined });
      return;
    }
    if (reopened || this.#isClosing(row)) await this.#closeTransactions(context);
    else await cutToLastStable(context, this.partition);
    await whenReplicasFollowed(context, this.partition);
    if (handover) await whenLiveReplicasFollowed(context, this.partition);
    // What could not be lowered was logged: a failover does not wait for groups (D3).
    const { lowerGroupOffsets } = this.#context;
    await lowerGroupOffsets?.(this.partition, log.logEndOffset, LOWER_AT_STOP_BOUND_MS);
    if (!isCurrent()) return;
    const [firstClosed] = this.#row?.closedTransactions ?? [];
    const lastMirroredOffset = firstClosed?.markerOffset ?? log.logEndOffset;
    await this.#post({ type, lastMirroredOffset });
  }

  #isClosing({ closedTransactions }: MirrorStateRow): boolean {
    const isWanted = this.#context.role.closing?.isWanted(this.partition.topic) === true;
    return isWanted || closedTransactions.length > 0;
  }

  /** G24a: the plan is durable before a marker is appended, so that a repetition finds it. */
  async #closeTransactions(context: CutContext): Promise<void> {
    endBehindLastBatch(context, this.partition);
    if (context.debt.owed) await startNewEpoch(context, this.partition);
    for (;;) {
      const row = this.#row;
      if (row === undefined) throw new Superseded('the row was read anew');
      const transactions = planClosing(this.partition.log, row, (id) => this.#sourceIdOf(id));
      if (isSamePlan(transactions, row.closedTransactions)) break;
      // A coordinator's marker (G10) may take the planned offset meanwhile: then once more.
      const isDurable = await this.#post({ type: 'closing', transactions });
      if (!isDurable || !context.isCurrent()) throw new Superseded('another state took over');
    }
    const planned = this.#row?.closedTransactions ?? [];
    appendMarkers(context.runtime, this.partition, planned, this.leaderEpoch);
  }

  /** S5: before the state changes, the source is asked whether it answers. */
  #scheduleRetry(attempt: number): void {
    const { clock, random } = this.#context.runtime;
    const delayMs = backoffMs(FAILED_BACKOFF, attempt, random);
    this.#nextRetryMs = clock.wallMs() + delayMs;
    this.#retryTimer = clock.setTimer(delayMs, () => {
      this.#retryTimer = undefined;
      this.#nextRetryMs = -1;
      this.#act((isCurrent) => this.#retry(isCurrent, attempt));
    });
  }

  async #retry(isCurrent: () => boolean, attempt: number): Promise<void> {
    const returnsTo = stateName(this.#row?.previousState ?? -1);
    try {
      if (returnsTo !== 'STOPPING') await this.#mirror().source.topic(this.partition.topic);
    } catch (error) {
      failureOf(error, this.#context.runtime.logger);
      if (isCurrent()) this.#scheduleRetry(attempt + 1);
      return;
    }
    if (isCurrent()) await this.#post({ type: 'retry' });
  }

  // --- mirroring --------------------------------------------------------------------------------

  #startFetch(): void {
    if (this.#stay !== undefined) return;
    if (this.#debt.owed) {
      this.#act((isCurrent) => startNewEpoch(this.#cutContext(isCurrent), this.partition));
      return;
    }
    const mirror = this.#context.mirror(this.key.mirror);
    if (mirror === undefined) {
      this.#fail('DESTINATION_BUSY', `mirror ${this.key.mirror} has no settings`, false);
      return;
    }
    this.#stay = new MirroringStay(this.#context, this.#stayOwner(), mirror);
    this.#stay.start();
  }

  #stayOwner(): StayOwner {
    return {
      partition: this.partition,
      leaderEpoch: this.leaderEpoch,
      key: this.key,
      row: () => this.#row,
      post: (event) => this.#post(event),
      fail: (cause, message, progressed) => this.#fail(cause, message, progressed),
      act: (action) => this.#act(action),
      lost: () => this.#haltFetch(),
      cutBack: (commonOffset) => this.#cutBack(commonOffset),
      recreated: (reason) => this.#recreated(reason),
    };
  }

  /** F10, policy `truncate`. */
  #cutBack(commonOffset: number): void {
    this.#haltFetch();
    this.#act(async (isCurrent) => {
      const sourceEpochs = epochsBelow(this.#epochs, commonOffset);
      const cut = cutAt(this.partition, commonOffset);
      const learned = await this.#post({ type: 'learn', sourceEpochs, cut });
      if (learned) await this.#cut(isCurrent, commonOffset);
      // Nothing had to be dropped after all: no new leadership comes to fetch on.
      if (isCurrent()) this.#startFetch();
    });
  }

  /** F12, as Y5: the data stays, the partition stops and becomes writable. */
  #recreated(reason: string): void {
    void this.#post({
      type: 'stop',
      membershipOffset: this.#membership.offset,
      cause: 'SOURCE_TOPIC_RECREATED',
      reason,
    });
  }
}
