/**
 * Hands partitions over to the Apache brokers once their stop is settled (G24–G26, G28).
 *
 * A job of every guest, for topics that were removed and for those whose source is gone (Y5). Each
 * guest reassigns the partitions that it leads, the one that runs the mirror's jobs does the rest
 * (see `handover-plan.ts`). Level-triggered: `pass` looks at metadata and rows and does what comes
 * next, so it may be cut short anywhere and repeated for ever. Invariants:
 * - Apache replicas are let into the ISR only of partitions whose stop is settled.
 * - A row says STOPPED only after the metadata showed the partition native and the settings final.
 * - What was refused is kept for `explain` and tried again after a pause, never at once.
 */
import type { Uuid } from '../../base/uuid.ts';
import type { PartitionRegistration, TopicImage } from '../../metadata/image.ts';
import type { KeyedRow } from '../../mirror/coordinator-shard.ts';
import type { MirrorStateRow } from '../../mirror/state-row.ts';
import { step } from '../../mirror/states.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import { alterTopicConfigs, type TopicChanges } from './config-requests.ts';
import { type HandoverView, isOver, planTopic, type TopicPlan } from './handover-plan.ts';
import type { GuestIsrRule } from './isr-rule.ts';
import type { JobOwnership } from './job-ownership.ts';
import { type JobContext, nameOf, type PartitionName } from './job-ports.ts';
import { type Reassignment, reassign } from './reassignments.ts';

/** Pause before something that was asked for, or refused, is asked for again, in ms. */
export const ASK_AGAIN_MS = 1_000;

/** What a {@link Handover} is made of. */
export interface HandoverOptions {
  readonly context: JobContext;
  readonly ownership: JobOwnership;
  readonly isrRule: GuestIsrRule;
  /** Whether a follower of a partition that this guest leads has fetched lately. */
  readonly fetchedRecently: (topicId: Uuid, partition: number, brokerId: number) => boolean;
  /** Who may be in an ISR has changed. */
  readonly reviewIsr: () => void;
}

/** What a partition that leaves its mirror waits for. */
export interface HandoverWait extends PartitionName {
  readonly mirror: string;
  readonly reason: string;
}

interface Removed {
  readonly mirror: string;
  readonly topic: TopicImage;
  readonly row: MirrorTopicRow;
  readonly rows: ReadonlyMap<number, KeyedRow>;
  readonly plan: TopicPlan;
}

/** What was asked for, and in which state of the metadata. */
interface Asked {
  readonly atMs: number;
  readonly version: number;
}

/** See the file header. */
export class Handover {
  readonly #options: HandoverOptions;
  readonly #context: JobContext;
  /** When a partition was first seen ready, monotonic, by `topicId:partition:leaderEpoch`. */
  #readySince = new Map<string, number>();
  /** By partition (`topic-partition`) or topic. */
  #asked = new Map<string, Asked>();
  #problems = new Map<string, string>();
  #waits: readonly HandoverWait[] = [];

  constructor(options: HandoverOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** What is not done yet and why, as of the last pass (G28). */
  explain(): readonly HandoverWait[] {
    return this.#waits;
  }

  async pass(): Promise<void> {
    this.#admit();
    const removed = this.#plan();
    await this.#reassign(removed);
    await this.#restore(removed);
    await this.#recordStopped(removed);
    await this.#recordPaid(removed);
    this.#waits = this.#collectWaits(removed);
  }

  // --- looking ----------------------------------------------------------------------------------

  /** Lets Apache replicas in where the stop is settled, and nowhere else. */
  #admit(): void {
    const { store } = this.#context;
    const over = new Map<string, number>();
    for (const mirror of store.mirrors()) {
      for (const { key, row } of store.rows(mirror)) {
        const topicRow = store.topic(row.topicName);
        if (topicRow?.mirrorName !== mirror || topicRow.topicId !== key.topicId) continue;
        if (isOver(row, topicRow))
          over.set(`${key.topicId}:${key.partition}`, row.membershipOffset);
      }
    }
    if (this.#options.isrRule.handOver(over)) this.#options.reviewIsr();
  }

  #plan(): Removed[] {
    const { store, runtime } = this.#context;
    const image = this.#context.image();
    const nowMs = runtime.clock.monotonicMs();
    const ready = new Map<string, number>();
    const removed: Removed[] = [];
    for (const mirror of store.mirrors()) {
      const rows = rowsByTopic(store.rows(mirror));
      for (const [name, row] of store.topics(mirror)) {
        const topic = image.topicsByName.get(name);
        if (topic === undefined || row.topicId !== topic.id) continue;
        const ofTopic = rows.get(topic.id) ?? new Map<number, KeyedRow>();
        if (!row.removed && ![...ofTopic.values()].some((each) => isOver(each.row, row))) continue;
        const rowOf = (partition: number): MirrorStateRow | undefined =>
          ofTopic.get(partition)?.row;
        const view: HandoverView = {
          image,
          brokerId: this.#context.brokerId,
          isOwner: this.#options.ownership.isOwner(mirror),
          fetchedRecently: ({ topicId, partition }, brokerId) =>
            this.#options.fetchedRecently(topicId, partition, brokerId),
          readyForMs: (partition) => {
            const key = `${topic.id}:${partition.partition}:${partition.leaderEpoch}`;
            const sinceMs = this.#readySince.get(key) ?? nowMs;
            ready.set(key, sinceMs);
            return nowMs - sinceMs;
          },
        };
        removed.push({
          mirror,
          topic,
          row,
          rows: ofTopic,
          plan: planTopic(view, topic, row, rowOf),
        });
      }
    }
    this.#readySince = ready;
    return removed;
  }

  /** False: it was asked for a moment ago, in this state of the metadata. */
  #mayAsk(key: string, version: number): boolean {
    const asked = this.#asked.get(key);
    if (asked === undefined || (asked.version !== version && !this.#problems.has(key))) return true;
    return this.#context.runtime.clock.monotonicMs() - asked.atMs >= ASK_AGAIN_MS;
  }

  #asking(key: string, version: number): void {
    this.#asked.set(key, { atMs: this.#context.runtime.clock.monotonicMs(), version });
    this.#problems.delete(key);
  }

  #refused(key: string, mirror: string, problem: string): void {
    this.#problems.set(key, problem);
    this.#context.runtime.logger.warn('mirror handover: a step failed', {
      mirror,
      of: key,
      problem,
    });
  }

  // --- doing ------------------------------------------------------------------------------------

  async #reassign(removed: readonly Removed[]): Promise<void> {
    const wanted: (Reassignment & { readonly mirror: string })[] = [];
    for (const { mirror, topic, plan } of removed) {
      for (const [partition, next] of plan.steps) {
        const name = nameOf({ topic: topic.name, partition });
        const version = topic.partitions.get(partition)?.partitionEpoch ?? -1;
        if (next.kind !== 'reassign' || !this.#mayAsk(name, version)) continue;
        this.#asking(name, version);
        wanted.push({ mirror, topic: topic.name, partition, replicas: next.replicas });
      }
    }
    if (wanted.length === 0) return;
    const problems = await reassign(this.#context.controller, wanted, this.#context.image());
    for (const partition of wanted) {
      const problem = problems.get(nameOf(partition));
      if (problem !== undefined) this.#refused(nameOf(partition), partition.mirror, problem);
    }
    const fields = { partitions: wanted.length, refused: problems.size };
    this.#context.runtime.logger.info('mirror handover: partitions reassigned', fields);
  }

  async #restore(removed: readonly Removed[]): Promise<void> {
    const wanted: (TopicChanges & { readonly mirror: string })[] = [];
    for (const { mirror, topic, plan } of removed) {
      const left = plan.restore.length;
      if (left === 0 || !this.#mayAsk(topic.name, left)) continue;
      this.#asking(topic.name, left);
      wanted.push({ mirror, topic: topic.name, changes: plan.restore });
    }
    if (wanted.length === 0) return;
    const problems = await alterTopicConfigs(this.#context.controller, wanted);
    for (const { mirror, topic } of wanted) {
      const problem = problems.get(topic);
      if (problem !== undefined) this.#refused(topic, mirror, problem);
    }
  }

  async #recordStopped(removed: readonly Removed[]): Promise<void> {
    const stopping = removed.flatMap(({ mirror, topic, rows, plan }) =>
      plan.stopped.flatMap((index) => {
        const keyed = rows.get(index);
        const partition = topic.partitions.get(index);
        return keyed && partition ? [{ mirror, keyed, partition }] : [];
      }),
    );
    await Promise.all(
      stopping.map(({ mirror, keyed, partition }) => this.#recordOne(mirror, keyed, partition)),
    );
  }

  async #recordOne(
    mirror: string,
    { key, row }: KeyedRow,
    { topic, partition, leaderEpoch }: PartitionRegistration,
  ): Promise<void> {
    const name = nameOf({ topic, partition });
    if (!this.#mayAsk(`${name} row`, row.stateEpoch)) return;
    this.#asking(`${name} row`, row.stateEpoch);
    const input = {
      topicName: topic,
      partition,
      leaderEpoch: Math.max(leaderEpoch, row.leaderEpoch),
      row,
    };
    const nowMs = this.#context.runtime.clock.wallMs();
    const next = step(input, { type: 'stopped', lastMirroredOffset: undefined }, nowMs);
    if ('illegal' in next) {
      this.#refused(`${name} row`, mirror, next.illegal);
    } else if (next.row !== undefined) {
      const code = await this.#context.store.write(key, next.row);
      if (code === errors.NONE.code) {
        const fields = { mirror, topic, partition, lastMirroredOffset: row.lastMirroredOffset };
        this.#context.runtime.logger.info('mirror partition is native', fields);
      } else {
        const problem = `that it is STOPPED cannot be recorded: ${errorName(code)}`;
        this.#refused(`${name} row`, mirror, problem);
      }
    }
  }

  async #recordPaid(removed: readonly Removed[]): Promise<void> {
    for (const { mirror, topic, plan } of removed) {
      if (!plan.isPaid) continue;
      const code = await this.#context.topicRows.change(topic.name, (row) =>
        row.topicId === topic.id ? { ...row, targetReplicationFactor: 0 } : undefined,
      );
      if (code === errors.NONE.code) this.#problems.delete(topic.name);
      else this.#refused(topic.name, mirror, `its row cannot be written: ${errorName(code)}`);
    }
  }

  // --- telling ----------------------------------------------------------------------------------

  #collectWaits(removed: readonly Removed[]): HandoverWait[] {
    const waits: HandoverWait[] = [];
    const current = new Set<string>();
    for (const { mirror, topic, plan } of removed) {
      current.add(topic.name);
      for (const [partition, next] of plan.steps) {
        const name = nameOf({ topic: topic.name, partition });
        current.add(name).add(`${name} row`);
        const problem =
          this.#problems.get(name) ??
          this.#problems.get(`${name} row`) ??
          (next.kind === 'native' ? this.#problems.get(topic.name) : undefined);
        if (next.kind === 'done') continue;
        const reason = problem ?? reasonOf(next, plan);
        waits.push({ mirror, topic: topic.name, partition, reason });
      }
    }
    for (const key of this.#asked.keys()) if (!current.has(key)) this.#asked.delete(key);
    for (const key of this.#problems.keys()) if (!current.has(key)) this.#problems.delete(key);
    return waits;
  }
}

function reasonOf(
  next: Exclude<ReturnType<TopicPlan['steps']['get']>, undefined>,
  plan: TopicPlan,
): string {
  switch (next.kind) {
    case 'wait':
      return next.reason;
    case 'reassign':
      return `its reassignment to ${next.replicas.join(', ')} has been asked for`;
    default:
      if (plan.restore.length > 0) return "its topic's settings are being restored";
      return plan.stopped.length > 0
        ? 'its row is being written'
        : 'it is native and waits for the other partitions of its topic';
  }
}

function rowsByTopic(rows: readonly KeyedRow[]): Map<Uuid, Map<number, KeyedRow>> {
  const topics = new Map<Uuid, Map<number, KeyedRow>>();
  for (const keyed of rows) {
    const { topicId, partition } = keyed.key;
    const ofTopic = topics.get(topicId) ?? new Map<number, KeyedRow>();
    ofTopic.set(partition, keyed);
    topics.set(topicId, ofTopic);
  }
  return topics;
}
