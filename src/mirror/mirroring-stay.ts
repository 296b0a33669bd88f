/**
 * One stay of a partition in MIRRORING: from its registration with the source until it is halted.
 *
 * Made by `partition-driver.ts`, which owns states and cuts; here is what the source's answers mean
 * while nothing has to be cut: new source epochs (F10), a range that was left (F9), another topic
 * of that name (F12). Invariants:
 * - After `close` nothing of this partition is appended, and no answer has an effect any more.
 * - A source epoch is durable in the row before a batch of it is fetched again.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import type { Partition } from '../replication/partition.ts';
import { failureOf, type MirrorCause } from './causes.ts';
import type { DriverContext } from './driver-context.ts';
import {
  type FetchEvents,
  type FetchProgress,
  PartitionFetch,
  type Trouble,
} from './partition-fetch.ts';
import { findDivergence, heldEpochs, type SourceRange, sourceRange } from './prepare.ts';
import { mappingExcept } from './producer-id-mapping.ts';
import type { MirrorSettings } from './settings.ts';
import type { SourceCluster, SourceLeader } from './source-cluster.ts';
import type { MirrorStateRow, RowKey, SourceEpoch } from './state-row.ts';
import type { MirrorEvent } from './states.ts';
import { markerIds } from './transaction-closing.ts';

/** Pause before a question about the source's range is asked again. */
const RANGE_RETRY_MS = 1_000;

/** What a stay asks of the driver that made it. */
export interface StayOwner {
  readonly partition: Partition;
  readonly leaderEpoch: number;
  readonly key: RowKey;
  /** As it is durable now. */
  row(): MirrorStateRow | undefined;
  /** Resolves true when the event's row is durable. */
  post(event: MirrorEvent): Promise<boolean>;
  fail(cause: MirrorCause, message: string, progressed: boolean): void;
  /** Runs a part of the state's action; `isCurrent` says whether it may still act. */
  act(action: (isCurrent: () => boolean) => Promise<void>): void;
  /** This broker does not lead any more, or the topic is not mirrored any more. */
  lost(): void;
  /** The source lost what lies above `commonOffset`: cut there, then mirror on (F10). */
  cutBack(commonOffset: number): void;
  /** Another topic has taken the name (F12). */
  recreated(reason: string): void;
}

/** See the file header. */
export class MirroringStay {
  readonly #context: DriverContext;
  readonly #owner: StayOwner;
  readonly #source: SourceCluster;
  readonly #settings: MirrorSettings;
  readonly #fetch: PartitionFetch;
  #closed = false;

  constructor(
    context: DriverContext,
    owner: StayOwner,
    mirror: { readonly source: SourceCluster; readonly settings: MirrorSettings },
  ) {
    this.#context = context;
    this.#owner = owner;
    this.#source = mirror.source;
    this.#settings = mirror.settings;
    this.#fetch = new PartitionFetch(context.runtime.clock, owner.partition, {
      sourceTopicId: owner.row()?.sourceTopicId ?? ZERO_UUID,
      maxBytes: context.limits.fetchMaxBytes,
      knownEpoch: this.#newestHeldEpoch(),
      producerIds: mappingExcept(
        context.role.producerIds(owner.key.mirror),
        markerIds(owner.row()?.closedAtSource ?? []),
      ),
      events: this.#fetchEvents(),
    });
  }

  /** Registers with the source. */
  start(): void {
    this.#source.register(this.#fetch, {
      verify: (leader) => this.#verify(leader),
      recreated: (id) => this.#owner.recreated(`the topic has id ${id} at the source now`),
    });
  }

  close(): void {
    this.#closed = true;
    this.#source.unregister(this.#fetch);
  }

  get trouble(): Trouble | undefined {
    return this.#fetch.trouble;
  }

  progress(): FetchProgress {
    return this.#fetch.progress();
  }

  #heldEpochs(): SourceEpoch[] {
    return heldEpochs(this.#owner.partition.log, this.#owner.row()?.sourceEpochs ?? []);
  }

  #newestHeldEpoch(): number {
    return this.#heldEpochs().at(-1)?.epoch ?? -1;
  }

  /** Events of a stay that is over are void. */
  #fetchEvents(): FetchEvents {
    const guarded = (act: () => void): void => {
      if (!this.#closed) act();
    };
    return {
      learn: (epochs) => guarded(() => void this.#learn(epochs)),
      fail: (cause, message) => guarded(() => this.#fail(cause, message)),
      outOfRange: () => guarded(() => this.#owner.act((current) => this.#judgeRange(current))),
      recreated: (reason) => guarded(() => this.#owner.recreated(reason)),
      startInside: (base) => guarded(() => this.#startInside(base)),
      lost: () => guarded(() => this.#owner.lost()),
    };
  }

  #fail(cause: MirrorCause, message: string): void {
    this.#owner.fail(cause, message, this.#fetch.progressed);
  }

  #resume(): void {
    if (!this.#closed) this.#source.resume(this.#fetch);
  }

  async #learn(epochs: readonly SourceEpoch[]): Promise<void> {
    const from = epochs[0]?.startOffset ?? 0;
    const older = this.#heldEpochs().filter(({ startOffset }) => startOffset < from);
    const durable = await this.#owner.post({ type: 'learn', sourceEpochs: [...older, ...epochs] });
    if (!durable || this.#closed) return;
    this.#fetch.learned(epochs.at(-1)?.epoch ?? -1);
    this.#resume();
  }

  /** F9: the source does not have our log end. */
  async #judgeRange(isCurrent: () => boolean): Promise<void> {
    const { partition, key } = this.#owner;
    const { clock, logger } = this.#context.runtime;
    const source = this.#source;
    const resumeLater = (): void => {
      clock.setTimer(RANGE_RETRY_MS, () => this.#resume());
    };
    try {
      // The identity first: another topic of that name has its own offsets (F12).
      const topic = await source.topic(partition.topic);
      if (topic.id !== this.#fetch.sourceTopicId) return;
      const range = await sourceRange(source, partition);
      if (!isCurrent()) return;
      const end = partition.log.logEndOffset;
      if (end < range.earliest) await this.#skipGap(range);
      else if (end > range.latest) {
        const leader = await source.leader(partition.topic, key.partition);
        if (isCurrent() && (await this.#verify(leader))) resumeLater();
      } else resumeLater();
    } catch (error) {
      const { mirrorCause, message } = failureOf(error, logger);
      const failed = this.#fetch.troubled(mirrorCause, message, RANGE_RETRY_MS);
      if (!failed) resumeLater();
    }
  }

  /** F9: the source has deleted what lies between. Its epochs from there on are recorded first. */
  async #skipGap({ earliest, earliestEpoch }: SourceRange): Promise<void> {
    const { partition, leaderEpoch } = this.#owner;
    const { topicPartition, log } = partition;
    const fields = { firstOffset: log.logEndOffset, lastOffset: earliest - 1 };
    const { logger } = this.#context.runtime;
    logger.warn('mirror gap: deleted at the source', { ...topicPartition, ...fields });
    const sourceEpochs = earliestEpoch < 0 ? [] : [{ epoch: earliestEpoch, startOffset: earliest }];
    if (!(await this.#owner.post({ type: 'learn', sourceEpochs })) || this.#closed) return;
    partition.followLogStart(earliest, leaderEpoch);
    this.#fetch.learned(earliestEpoch);
    this.#resume();
  }

  #startInside(baseOffset: number): void {
    const { partition, leaderEpoch } = this.#owner;
    partition.restartForMirror(baseOffset, partition.log.logStartOffset, leaderEpoch);
    this.#context.runtime.clock.defer(() => this.#resume());
  }

  /** F10; true: fetch on. */
  async #verify(leader: SourceLeader): Promise<boolean> {
    const { partition } = this.#owner;
    const held = this.#heldEpochs();
    const newest = held.at(-1)?.epoch ?? -1;
    const found = await findDivergence(this.#source, leader, partition, held);
    if (this.#closed) return false;
    // Metadata may be late; by now the leader itself has answered under that epoch (F12).
    if (
      this.#fetch.sourceTopicId === ZERO_UUID &&
      0 <= leader.leaderEpoch &&
      leader.leaderEpoch < newest
    ) {
      const epochs = `from ${newest} to ${leader.leaderEpoch}`;
      this.#owner.recreated(`its leader epoch at the source went back ${epochs}`);
      return false;
    }
    if (found.kind === 'same') {
      // Recorded, but lost at the source before a batch of it came: it is not held against others.
      this.#fetch.learned(this.#newestHeldEpoch());
      return true;
    }
    const { logEndOffset, logStartOffset } = partition.log;
    const common = found.kind === 'diverged' ? found.commonOffset : -1;
    const isEmpty = logEndOffset === logStartOffset;
    const mustFail = this.#settings.divergencePolicy === 'fail';
    if (mustFail || common < 0 || (common <= logStartOffset && !isEmpty)) {
      const where = common < 0 ? 'no epoch in common' : `common up to ${common}`;
      const message = `the source lost records: local log end ${logEndOffset}, ${where}`;
      this.#fail('SOURCE_DIVERGED', message);
      return false;
    }
    this.#owner.cutBack(common);
    return false;
  }
}
