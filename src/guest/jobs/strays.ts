/**
 * Keeps partitions that are none of ours off the guests (G8).
 *
 * A cluster places new partitions on any broker, guests included. The sweeper, a job of the guest
 * with the lowest id, reassigns every such partition to Apache brokers, replica for replica, and
 * has a guest that came to lead one give the leadership away at once. Progress is the metadata's: a
 * partition is done when no guest is among its replicas. Invariants:
 * - A partition of a mirror topic is never touched, nor one that is being handed over.
 * - Replicas are replaced, never added or dropped, unless there are fewer Apache brokers than
 *   replicas: that is reported, as is a partition that nobody else can take.
 */

import { ZERO_UUID } from '../../base/uuid.ts';
import type {
  BrokerRegistrationImage,
  MetadataImage,
  PartitionRegistration,
  TopicImage,
} from '../../metadata/image.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import { MIRROR_STATE_TOPIC_NAME } from '../../metadata/topic-names.ts';
import type { MirrorStateRow } from '../../mirror/state-row.ts';
import { MirrorState } from '../../mirror/states.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  ElectLeadersRequest,
  ElectLeadersResponse,
} from '../../protocol/messages/43-elect-leaders.ts';
import { cordonProblem, isGuest, isLive, openBrokers } from '../guest-brokers.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import { isOver } from './handover-plan.ts';
import { futureReplicas, isMoving } from './isr-rule.ts';
import type { JobOwnership } from './job-ownership.ts';
import { type JobContext, nameOf, type PartitionName } from './job-ports.ts';
import { byTopic, type Reassignment, reassign } from './reassignments.ts';
import { isTakeover } from './takeover-plan.ts';

/** Pause before a stray that was moved, or refused, is moved again, in ms. */
export const SWEEP_AGAIN_MS = 1_000;
/** Partitions in one ElectLeaders request. */
export const ELECTION_BATCH = 5_000;
const PREFERRED = 0;
const ELECTION_TIMEOUT_MS = 10_000;

/** A partition that is not moved, or not as it should be, and why. */
export interface StrayProblem extends PartitionName {
  readonly reason: string;
}

/** What the sweeper does next. */
export interface StrayPlan {
  readonly moves: readonly Reassignment[];
  /** Led by a guest though the preferred replica is in sync. */
  readonly elections: readonly PartitionName[];
  readonly problems: readonly StrayProblem[];
}

/** What the rows say of a topic, and of one of its partitions. */
export interface StrayView {
  readonly image: MetadataImage;
  readonly topicRow: (topic: string) => MirrorTopicRow | undefined;
  readonly row: (topic: TopicImage, partition: number) => MirrorStateRow | undefined;
}

/** Whether a partition with a guest among its replicas is no business of a mirror's. */
export function isStray(view: StrayView, topic: TopicImage, index: number): boolean {
  const { image } = view;
  const row = view.topicRow(topic.name);
  const isOfRow = row !== undefined && [topic.id, ZERO_UUID].includes(row.topicId);
  if (!isOfRow) return true;
  // What was taken into a mirror and left it again is given back by the takeover itself.
  if (row.removed && isTakeover(row)) return false;
  const state = view.row(topic, index);
  if (!row.removed && !isOver(state, row)) return false;
  if (state !== undefined) return state.state === MirrorState.STOPPED;
  // Added to the topic when it was native already; what a guest leads its driver stops first.
  const leader = topic.partitions.get(index)?.leader ?? -1;
  return !isGuest(image, leader);
}

/** Decides about every partition of the cluster. */
export function planSweep(view: StrayView): StrayPlan {
  const { image } = view;
  const moves: Reassignment[] = [];
  const elections: PartitionName[] = [];
  const problems: StrayProblem[] = [];
  let load: Map<number, number> | undefined;
  for (const topic of image.topicsByName.values()) {
    for (const [index, partition] of topic.partitions) {
      if (!partition.replicas.some((id) => isGuest(image, id))) continue;
      if (!isStray(view, topic, index)) continue;
      const name = { topic: topic.name, partition: index };
      load ??= replicaCounts(image);
      const { replicas, problem } = planMove(image, partition, load);
      if (problem !== undefined) problems.push({ ...name, reason: problem });
      if (replicas !== undefined) moves.push({ ...name, replicas });
      if (canElect(image, partition)) elections.push(name);
    }
  }
  return { moves, elections, problems };
}

function replicaCounts(image: MetadataImage): Map<number, number> {
  const load = new Map<number, number>();
  for (const { partitions } of image.topicsByName.values()) {
    for (const { replicas } of partitions.values()) {
      for (const id of replicas) load.set(id, (load.get(id) ?? 0) + 1);
    }
  }
  return load;
}

/** The preferred replica could lead instead of a guest: it is no guest and in sync. */
function canElect(image: MetadataImage, { leader, replicas, isr }: PartitionRegistration): boolean {
  const [preferred] = replicas;
  if (preferred === undefined || !isGuest(image, leader) || isGuest(image, preferred)) return false;
  return isr.includes(preferred) && isLive(image, preferred);
}

function planMove(
  image: MetadataImage,
  partition: PartitionRegistration,
  load: Map<number, number>,
): { readonly replicas?: readonly number[]; readonly problem?: string } {
  const future = futureReplicas(partition);
  const brokers = openBrokers(image);
  const kept = keptReplicas(image, partition, future, brokers);
  const cordoned = cordonProblem(image, kept);
  if (cordoned !== undefined) return { problem: cordoned };
  const added = newReplicas(image, brokers, kept, future.length - kept.length, load);
  const replicas = [...kept, ...added];
  if (replicas.length === 0) return { problem: 'there is no other live broker to move it to' };
  const missing = future.length - replicas.length;
  const problem =
    missing > 0 ? `${missing} replica(s) fewer: there are no more Apache brokers` : undefined;
  const isSame = future.length === replicas.length && future.every((id, i) => replicas[i] === id);
  if (isMoving(partition) && isSame) {
    const lagging = replicas.filter((id) => !partition.isr.includes(id));
    return { problem: problem ?? `it is being moved; not in sync yet: ${lagging.join(', ')}` };
  }
  for (const id of added) load.set(id, (load.get(id) ?? 0) + 1);
  return problem === undefined ? { replicas } : { replicas, problem };
}

/** Apache replicas stay, in-sync ones first; a dead one stays only where nobody can stand in. */
function keptReplicas(
  image: MetadataImage,
  { isr }: PartitionRegistration,
  future: readonly number[],
  brokers: readonly BrokerRegistrationImage[],
): number[] {
  const apache = future.filter((id) => !isGuest(image, id));
  const live = apache.filter((id) => isLive(image, id));
  const spare = brokers.filter(({ id }) => !apache.includes(id)).length;
  const dead = apache.filter((id) => !live.includes(id));
  const wanted = future.length - live.length;
  const kept = [...live, ...dead.slice(0, Math.max(wanted - spare, 0))];
  return [...kept.filter((id) => isr.includes(id)), ...kept.filter((id) => !isr.includes(id))];
}

/** Live brokers in the least used racks, then with the least replicas. */
function newReplicas(
  image: MetadataImage,
  brokers: readonly BrokerRegistrationImage[],
  kept: readonly number[],
  count: number,
  load: ReadonlyMap<number, number>,
): number[] {
  const added: number[] = [];
  while (added.length < count) {
    const racks = [...kept, ...added].map((id) => image.brokers.get(id)?.rack);
    const rankOf = ({ id, rack }: BrokerRegistrationImage): number[] => [
      racks.filter((used) => used === rack).length,
      load.get(id) ?? 0,
      id,
    ];
    const [best] = brokers
      .filter(({ id }) => !kept.includes(id) && !added.includes(id))
      .map((broker) => ({ id: broker.id, rank: rankOf(broker) }))
      .sort((a, b) => compareRanks(a.rank, b.rank));
    if (best === undefined) break;
    added.push(best.id);
  }
  return added;
}

function compareRanks(a: readonly number[], b: readonly number[]): number {
  for (const [i, value] of a.entries()) {
    const difference = value - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** What a {@link StraySweeper} is made of. */
export interface StraySweeperOptions {
  readonly context: JobContext;
  readonly ownership: JobOwnership;
}

/** See the file header. */
export class StraySweeper {
  readonly #context: JobContext;
  readonly #ownership: JobOwnership;
  /** When a partition was last acted on, and its partition epoch then. */
  #asked = new Map<string, { readonly atMs: number; readonly epoch: number }>();
  #problems: readonly StrayProblem[] = [];

  constructor({ context, ownership }: StraySweeperOptions) {
    this.#context = context;
    this.#ownership = ownership;
  }

  /** Strays that are still on a guest, or lost a replica, as of the last pass. */
  explain(): readonly StrayProblem[] {
    return this.#problems;
  }

  async pass(): Promise<void> {
    if (!this.#ownership.isFirstGuest()) {
      this.#problems = [];
      return;
    }
    const image = this.#context.image();
    const plan = await this.#plan(image);
    const problems = [...plan.problems];
    const due = new Map<string, { readonly atMs: number; readonly epoch: number }>();
    const moves = plan.moves.filter((move) => this.#isDue(image, move, 'move', due));
    const elections = plan.elections.filter((each) => this.#isDue(image, each, 'elect', due));
    const failed = await reassign(this.#context.controller, moves, image);
    for (const { topic, partition } of moves) {
      const reason = failed.get(nameOf({ topic, partition }));
      if (reason !== undefined) problems.push({ topic, partition, reason });
    }
    problems.push(...(await this.#elect(elections)));
    this.#asked = due;
    this.#problems = problems;
    if (moves.length === 0) return;
    const fields = { partitions: moves.length, refused: failed.size };
    this.#context.runtime.logger.info('strays moved off the guests', fields);
  }

  /**
   * A topic of another guest may show in the metadata before its row was read here, though it was
   * written first: what looks like a stray is looked at again when all rows are known. Without the
   * topic of the mirror state, which is older than any row, nothing is mirrored.
   */
  async #plan(image: MetadataImage): Promise<StrayPlan> {
    const first = planSweep(this.#view(image));
    const [stray] = [...first.moves, ...first.elections, ...first.problems];
    const topicId = stray && image.topicsByName.get(stray.topic)?.id;
    const hasRows = image.topicsByName.has(MIRROR_STATE_TOPIC_NAME);
    if (stray === undefined || topicId === undefined || !hasRows) return first;
    const key = { mirror: '', topicId, partition: stray.partition };
    const { error } = await this.#context.store.read(key);
    if (error === errors.NONE.code) return planSweep(this.#view(image));
    const reason = `the mirror state cannot be read: ${errorName(error)}`;
    const problems = first.moves.map(({ topic, partition }) => ({ topic, partition, reason }));
    return { moves: [], elections: [], problems: [...first.problems, ...problems] };
  }

  #view(image: MetadataImage): StrayView {
    const { store } = this.#context;
    let rows: Map<string, MirrorStateRow> | undefined;
    const read = (): Map<string, MirrorStateRow> => {
      const all = store.mirrors().flatMap((mirror) => store.rows(mirror));
      return new Map(all.map(({ key, row }) => [`${key.topicId}:${key.partition}`, row]));
    };
    return {
      image,
      topicRow: (topic) => store.topic(topic),
      row: (topic, partition) => {
        rows ??= read();
        return rows.get(`${topic.id}:${partition}`);
      },
    };
  }

  #isDue(
    image: MetadataImage,
    { topic, partition }: PartitionName,
    what: string,
    due: Map<string, { readonly atMs: number; readonly epoch: number }>,
  ): boolean {
    const key = `${what} ${nameOf({ topic, partition })}`;
    const nowMs = this.#context.runtime.clock.monotonicMs();
    const epoch = image.topicsByName.get(topic)?.partitions.get(partition)?.partitionEpoch ?? -1;
    const asked = this.#asked.get(key);
    const isDue =
      asked === undefined || asked.epoch !== epoch || nowMs - asked.atMs >= SWEEP_AGAIN_MS;
    due.set(key, isDue ? { atMs: nowMs, epoch } : (asked as { atMs: number; epoch: number }));
    return isDue;
  }

  async #elect(partitions: readonly PartitionName[]): Promise<StrayProblem[]> {
    const problems: StrayProblem[] = [];
    for (let from = 0; from < partitions.length; from += ELECTION_BATCH) {
      const batch = partitions.slice(from, from + ELECTION_BATCH);
      const all = (why: string): void => {
        for (const { topic, partition } of batch) problems.push({ topic, partition, reason: why });
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
          all(`its leader cannot be moved: ${errorName(response.errorCode)}`);
        }
      } catch (error) {
        if (!isPassing(error)) throw error;
        all(`its leader cannot be moved: ${error.message}`);
      }
    }
    return problems;
  }
}
