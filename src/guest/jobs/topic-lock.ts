/**
 * Sets and lifts the write lock of mirror topics (G12, G18, G19).
 *
 * A job of the guest that runs the mirror's jobs. A topic is born locked; the lock is lifted when
 * every partition's ISR consists of guests, and set again before others may join (a reassignment,
 * maintenance). Invariants:
 * - The row holds what the lock replaces, durably, before the lock is set.
 * - A topic is not unlocked before its row has its id: until then the lock is what shows a
 *   half-done add that the topic is ours.
 * - A topic that is being handed over is left to the handover, also where it is a member still.
 */
import { ConfigResourceType, type MetadataImage, type TopicImage } from '../../metadata/image.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { isGuest } from '../guest-brokers.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import { alterTopicConfigs, type TopicChanges } from './config-requests.ts';
import { isOver } from './handover-plan.ts';
import { isMoving } from './isr-rule.ts';
import type { JobOwnership } from './job-ownership.ts';
import type { JobContext, JobStore } from './job-ports.ts';
import { finalBeforeLock, lockChanges, unlockChanges } from './topic-settings.ts';

/** What a {@link TopicLock} is made of. */
export interface TopicLockOptions {
  readonly context: JobContext;
  readonly ownership: JobOwnership;
  readonly inMaintenance: () => boolean;
}

/** Whether somebody who is no guest could come to lead a partition of the topic. */
export function needsLock(image: MetadataImage, topic: TopicImage): boolean {
  return [...topic.partitions.values()].some(
    (partition) => isMoving(partition) || partition.isr.some((id) => !isGuest(image, id)),
  );
}

/** What is to be done about one topic's lock; undefined: nothing. */
export function planLock(
  image: MetadataImage,
  name: string,
  row: MirrorTopicRow,
  inMaintenance: boolean,
): { readonly row: MirrorTopicRow; readonly changes: TopicChanges } | undefined {
  const topic = image.topicsByName.get(name);
  if (topic === undefined || row.removed || row.topicId !== topic.id) return undefined;
  const overrides = image.configs(ConfigResourceType.TOPIC, name);
  if (!inMaintenance && !needsLock(image, topic)) {
    const changes = unlockChanges(overrides, row.finalConfigs);
    return changes.length === 0 ? undefined : { row, changes: { topic: name, changes } };
  }
  const changes = lockChanges(overrides);
  if (changes.length === 0) return undefined;
  const final = finalBeforeLock(overrides, row.finalConfigs);
  const next = final === row.finalConfigs ? row : { ...row, finalConfigs: final };
  return { row: next, changes: { topic: name, changes } };
}

/** The topics of which a partition's mirroring is over. */
function leavingTopics(store: JobStore, mirror: string): Set<string> {
  const leaving = new Set<string>();
  for (const { key, row } of store.rows(mirror)) {
    const topicRow = store.topic(row.topicName);
    if (topicRow !== undefined && isOver(row, topicRow)) leaving.add(key.topicId);
  }
  return leaving;
}

/** See the file header. */
export class TopicLock {
  readonly #options: TopicLockOptions;
  #problems: ReadonlyMap<string, string> = new Map();

  constructor(options: TopicLockOptions) {
    this.#options = options;
  }

  /** What keeps a topic from being locked or unlocked, by topic. */
  get problems(): ReadonlyMap<string, string> {
    return this.#problems;
  }

  async pass(): Promise<void> {
    const { context, ownership, inMaintenance } = this.#options;
    const image = context.image();
    const problems = new Map<string, string>();
    const wanted: TopicChanges[] = [];
    for (const mirror of context.store.mirrors()) {
      if (!ownership.isOwner(mirror)) continue;
      const leaving = leavingTopics(context.store, mirror);
      for (const [name, row] of context.store.topics(mirror)) {
        if (leaving.has(row.topicId)) continue;
        const plan = planLock(image, name, row, inMaintenance());
        if (plan === undefined) continue;
        const problem = plan.row === row ? undefined : await this.#keep(name, plan.row);
        if (problem === undefined) wanted.push(plan.changes);
        else problems.set(name, problem);
      }
    }
    const refused = await alterTopicConfigs(context.controller, wanted);
    for (const [name, problem] of refused) {
      problems.set(name, problem);
      context.runtime.logger.warn('mirror topic lock not changed', { topic: name, problem });
    }
    this.#problems = problems;
  }

  async #keep(name: string, planned: MirrorTopicRow): Promise<string | undefined> {
    const { finalConfigs } = planned;
    const code = await this.#options.context.topicRows.change(name, (row) =>
      row.topicId === planned.topicId ? { ...row, finalConfigs } : undefined,
    );
    return code === errors.NONE.code
      ? undefined
      : `what the lock replaces cannot be recorded: ${errorName(code)}`;
  }
}
