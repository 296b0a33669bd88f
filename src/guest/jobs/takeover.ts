/**
 * Takes native topics over from the Apache brokers, for a mirror that they were added to (G29), and
 * members of which an Apache broker came to lead a partition: followers start in sync, so that
 * happens to a guest that is away between making a topic and having the ISR to itself (G12), and in
 * maintenance (G19).
 *
 * A job of the guest that runs the mirror's jobs (see `takeover-plan.ts`); it ends where a guest
 * leads. Level-triggered: `pass` looks at metadata and rows and does what comes next, so it may be
 * cut short anywhere and repeated for ever. Invariants:
 * - Reassignments run with the cordon lifted (G7), elections only for partitions that are in sync.
 * - What was refused is kept for `explain` and tried again after a pause, never at once.
 */
import type { PartitionRegistration, TopicImage } from '../../metadata/image.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import { type MirrorStateRow, type RowKey, rowKeyText } from '../../mirror/state-row.ts';
import { type MirrorEvent, MirrorState, step } from '../../mirror/states.ts';
import { type ErrorCode, errorName, errors } from '../../protocol/errors.ts';
import {
  ElectLeadersRequest,
  ElectLeadersResponse,
} from '../../protocol/messages/43-elect-leaders.ts';
import { isGuest } from '../guest-brokers.ts';
import { alterTopicConfigs, type TopicChanges } from './config-requests.ts';
import type { JobOwnership } from './job-ownership.ts';
import { type JobContext, nameOf, type PartitionName } from './job-ports.ts';
import { byTopic, type Reassignment, reassign } from './reassignments.ts';
import { planTakeover, type TakeoverPlan } from './takeover-plan.ts';

/** Pause before something that was asked for, or refused, is asked for again, in ms. */
export const ASK_AGAIN_MS = 1_000;
/** Partitions in one ElectLeaders request. */
const ELECTION_BATCH = 5_000;
const PREFERRED = 0;
const ELECTION_TIMEOUT_MS = 10_000;

/** Answers that a later pass settles: led already, or not in sync after all. */
const HARMLESS: ReadonlySet<number> = new Set<ErrorCode>([
  errors.NONE.code,
  errors.ELECTION_NOT_NEEDED.code,
  errors.PREFERRED_LEADER_NOT_AVAILABLE.code,
]);

/** What a {@link Takeover} is made of. */
export interface TakeoverOptions {
  readonly context: JobContext;
  readonly ownership: JobOwnership;
  /** Runs what needs this guest's log directory to take replicas (G7). */
  readonly whileUncordoned: <T>(action: () => Promise<T>) => Promise<T>;
}

/** What a partition that is being taken over waits for. */
export interface TakeoverWait extends PartitionName {
  readonly mirror: string;
  readonly reason: string;
}

interface Taken {
  readonly mirror: string;
  readonly topic: TopicImage;
  readonly plan: TakeoverPlan;
}

/** See the file header. */
export class Takeover {
  readonly #options: TakeoverOptions;
  readonly #context: JobContext;
  /** When a step was asked for, and in which state of the metadata; by step and partition. */
  #asked = new Map<string, { readonly atMs: number; readonly version: number }>();
  /** Why a step failed, by partition (`topic-partition`) or topic. */
  #problems = new Map<string, string>();
  #waits: readonly TakeoverWait[] = [];

  constructor(options: TakeoverOptions) {
    this.#options = options;
    this.#context = options.context;
  }

  /** What is not done yet and why, as of the last pass. */
  explain(): readonly TakeoverWait[] {
    return this.#waits;
  }

  async pass(): Promise<void> {
    const taken = this.#plan();
    await this.#configure(taken);
    await this.#reassign(taken);
    await this.#elect(taken);
    await this.#recordStopped(taken);
    await this.#forget(taken);
    this.#waits = this.#collectWaits(taken);
  }

  #plan(): Taken[] {
    const { store, brokerId } = this.#context;
    const image = this.#context.image();
    const taken: Taken[] = [];
    for (const mirror of store.mirrors()) {
      if (!this.#options.ownership.isOwner(mirror)) continue;
      const rows = new Map(store.rows(mirror).map(({ key, row }) => [rowKeyText(key), row]));
      for (const [name, row] of store.topics(mirror)) {
        const topic = image.topicsByName.get(name);
        if (topic === undefined || row.topicId !== topic.id) continue;
        const rowOf = (partition: number): MirrorStateRow | undefined =>
          rows.get(rowKeyText({ mirror, topicId: topic.id, partition }));
        taken.push({ mirror, topic, plan: planTakeover(image, brokerId, topic, row, rowOf) });
      }
    }
    return taken;
  }

  /** False: it was asked for a moment ago, in this state of the metadata. */
  #mayAsk(key: string, version: number): boolean {
    const nowMs = this.#context.runtime.clock.monotonicMs();
    const asked = this.#asked.get(key);
    const isRecent = asked !== undefined && nowMs - asked.atMs < ASK_AGAIN_MS;
    if (isRecent && (asked.version === version || this.#problems.has(key))) return false;
    this.#asked.set(key, { atMs: nowMs, version });
    this.#problems.delete(key);
    return true;
  }

  #refused(key: string, problem: string): void {
    this.#problems.set(key, problem);
    this.#context.runtime.logger.warn('mirror takeover: a step failed', { of: key, problem });
  }

  async #configure(taken: readonly Taken[]): Promise<void> {
    const wanted: TopicChanges[] = taken.flatMap(({ topic, plan: { changes } }) => {
      const isDue = changes.length > 0 && this.#mayAsk(topic.name, changes.length);
      return isDue ? [{ topic: topic.name, changes }] : [];
    });
    if (wanted.length === 0) return;
    const problems = await alterTopicConfigs(this.#context.controller, wanted);
    for (const [topic, problem] of problems) this.#refused(topic, problem);
  }

  async #reassign(taken: readonly Taken[]): Promise<void> {
    const wanted: Reassignment[] = [];
    for (const { topic, plan } of taken) {
      for (const [partition, step] of plan.steps) {
        const name = nameOf({ topic: topic.name, partition });
        const version = topic.partitions.get(partition)?.partitionEpoch ?? -1;
        if (step.kind !== 'reassign' || !this.#mayAsk(name, version)) continue;
        wanted.push({ topic: topic.name, partition, replicas: step.replicas });
      }
    }
    if (wanted.length === 0) return;
    const { controller, image, runtime } = this.#context;
    const send = () => reassign(controller, wanted, image());
    const namesGuests = wanted.some(({ replicas }) => replicas.some((id) => isGuest(image(), id)));
    const problems = await (namesGuests ? this.#options.whileUncordoned(send) : send());
    for (const [name, problem] of problems) this.#refused(name, problem);
    const fields = { partitions: wanted.length, refused: problems.size };
    runtime.logger.info('mirror takeover: partitions reassigned', fields);
  }

  async #elect(taken: readonly Taken[]): Promise<void> {
    const wanted: PartitionName[] = [];
    for (const { topic, plan } of taken) {
      for (const partition of plan.elections) {
        const version = topic.partitions.get(partition)?.partitionEpoch ?? -1;
        if (!this.#mayAsk(nameOf({ topic: topic.name, partition }), version)) continue;
        wanted.push({ topic: topic.name, partition });
      }
    }
    for (let from = 0; from < wanted.length; from += ELECTION_BATCH) {
      await this.#electBatch(wanted.slice(from, from + ELECTION_BATCH));
    }
  }

  async #electBatch(batch: readonly PartitionName[]): Promise<void> {
    const all = (why: string): void => {
      for (const partition of batch) this.#refused(nameOf(partition), why);
    };
    try {
      const response = await this.#context.controller.send(
        ElectLeadersRequest,
        ElectLeadersResponse,
        {
          electionType: PREFERRED,
          topicPartitions: [...byTopic(batch)].map(([topic, list]) => ({
            topic,
            partitions: list.map(({ partition }) => partition),
          })),
          timeoutMs: ELECTION_TIMEOUT_MS,
        },
      );
      if (response.errorCode !== errors.NONE.code) {
        all(`no guest is made its leader: ${errorName(response.errorCode)}`);
        return;
      }
      for (const { topic, partitionResult } of response.replicaElectionResults) {
        for (const { partitionId, errorCode, errorMessage } of partitionResult) {
          if (HARMLESS.has(errorCode)) continue;
          const why = errorMessage ?? errorName(errorCode);
          const name = nameOf({ topic, partition: partitionId });
          this.#refused(name, `no guest is made its leader: ${why}`);
        }
      }
    } catch (error) {
      if (!isPassing(error)) throw error;
      all(`no guest is made its leader: ${error.message}`);
    }
  }

  /** What no guest ever led has no row, and nobody else to write one. */
  async #recordStopped(taken: readonly Taken[]): Promise<void> {
    for (const { mirror, topic, plan } of taken) {
      for (const index of plan.unrecorded) {
        const partition = topic.partitions.get(index);
        if (partition === undefined) continue;
        const key = { mirror, topicId: topic.id, partition: index };
        const problem = await this.#stop(key, partition);
        if (problem === undefined) continue;
        this.#refused(nameOf({ topic: topic.name, partition: index }), problem);
      }
    }
  }

  /** Through the states, as a driver would: nothing was mirrored, so nothing is cut. */
  async #stop(key: RowKey, partition: PartitionRegistration): Promise<string | undefined> {
    const { store, runtime } = this.#context;
    const membershipOffset = store.topic(partition.topic)?.membershipOffset ?? 0;
    let row = store.rows(key.mirror).find((each) => rowKeyText(each.key) === rowKeyText(key))?.row;
    while (row?.state !== MirrorState.STOPPED) {
      const leaderEpoch = Math.max(partition.leaderEpoch, row?.leaderEpoch ?? 0);
      const input = { topicName: partition.topic, partition: key.partition, leaderEpoch, row };
      const next = step(input, stopEvent(row, membershipOffset), runtime.clock.wallMs());
      if ('illegal' in next || next.row === undefined) return 'its row cannot be STOPPED';
      const code = await store.write(key, next.row);
      if (code !== errors.NONE.code) return `its row cannot be written: ${errorName(code)}`;
      row = next.row;
    }
    return undefined;
  }

  async #forget(taken: readonly Taken[]): Promise<void> {
    for (const { topic, plan } of taken) {
      if (!plan.isUndone) continue;
      const code = await this.#context.topicRows.change(topic.name, (row) => {
        if (!row.removed || row.topicId !== topic.id) return undefined;
        const { takeoverOffsets: _, ...rest } = row;
        return rest;
      });
      if (code !== errors.NONE.code) {
        this.#refused(topic.name, `its row cannot be written: ${errorName(code)}`);
      }
    }
  }

  #collectWaits(taken: readonly Taken[]): TakeoverWait[] {
    const waits: TakeoverWait[] = [];
    const current = new Set<string>();
    for (const { mirror, topic, plan } of taken) {
      current.add(topic.name);
      for (const [partition, step] of plan.steps) {
        const name = nameOf({ topic: topic.name, partition });
        current.add(name);
        if (step.kind === 'done') continue;
        const problem = this.#problems.get(name) ?? this.#problems.get(topic.name);
        const isElecting = plan.elections.includes(partition);
        const reason = problem ?? reasonOf(step, isElecting);
        waits.push({ mirror, topic: topic.name, partition, reason });
      }
    }
    for (const key of this.#asked.keys()) if (!current.has(key)) this.#asked.delete(key);
    for (const key of this.#problems.keys()) if (!current.has(key)) this.#problems.delete(key);
    return waits;
  }
}

/** The next event on the way to STOPPED. */
function stopEvent(row: MirrorStateRow | undefined, membershipOffset: number): MirrorEvent {
  if (row?.state !== MirrorState.STOPPING) return { type: 'stop', membershipOffset };
  return { type: row.settled ? 'stopped' : 'settled', lastMirroredOffset: undefined };
}

function reasonOf(
  step: Exclude<ReturnType<TakeoverPlan['steps']['get']>, undefined | { kind: 'done' }>,
  isElecting: boolean,
): string {
  switch (step.kind) {
    case 'wait':
      return step.reason;
    case 'reassign':
      return `its reassignment to ${step.replicas.join(', ')} has been asked for`;
    case 'elect':
      return isElecting
        ? 'a guest is being made its leader'
        : 'it waits for the other partitions of its topic';
  }
}
