/**
 * What is to be done next about a topic that has left its mirror (G24 from the settled stop on,
 * G25, G26, G28): pure decisions of `handover.ts`.
 *
 * Everything is worked out from the metadata, the rows and which followers are fetching, never from
 * what was done before: a pass after any crash goes on where the cluster stands. Order, per topic:
 * reassign every partition to Apache brokers, restore the settings, record STOPPED, then give the
 * topic the replicas it still lacks. Invariants:
 * - A partition whose row is not a settled STOPPING is left alone: it may still be cut.
 * - No partition is given to brokers of which none is in sync.
 */
import {
  ConfigResourceType,
  type MetadataImage,
  NO_LEADER,
  type PartitionRegistration,
  type TopicImage,
} from '../../metadata/image.ts';
import type { MirrorStateRow } from '../../mirror/state-row.ts';
import { MirrorState, stateName } from '../../mirror/states.ts';
import {
  apacheBrokers,
  cordonProblem,
  isCordoned,
  isGuest,
  isLive,
  topicTargets,
} from '../guest-brokers.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import { futureReplicas, isMoving } from './isr-rule.ts';
import { type ConfigChange, restoreChanges } from './topic-settings.ts';

/**
 * How long a target that is not fenced may take to fetch after the stop is settled, in ms: a broker
 * that was killed less than a session ago looks alive in the metadata.
 */
export const FETCH_PATIENCE_MS = 2_000;
/** How long the handover waits for a target that fetches but is not in sync, in ms. */
export const LAGGING_PATIENCE_MS = 60_000;

/** What a plan may look at. */
export interface HandoverView {
  readonly image: MetadataImage;
  /** This guest. */
  readonly brokerId: number;
  /** Whether this guest runs the jobs of the topic's mirror. */
  readonly isOwner: boolean;
  /** Whether a follower of a partition that this guest leads has fetched lately. */
  readonly fetchedRecently: (partition: PartitionRegistration, brokerId: number) => boolean;
  /** How long the partition has been ready to be handed over, in ms. */
  readonly readyForMs: (partition: PartitionRegistration) => number;
}

/** What one partition needs next. */
export type PartitionStep =
  /** Nothing: its row says STOPPED, or it never was mirrored. */
  | { readonly kind: 'done' }
  /** It is native; its row does not say so yet. */
  | { readonly kind: 'native' }
  | { readonly kind: 'wait'; readonly reason: string }
  | { readonly kind: 'reassign'; readonly replicas: readonly number[] };

function wait(reason: string): PartitionStep {
  return { kind: 'wait', reason };
}

function listed(ids: readonly number[]): string {
  return ids.join(', ');
}

/** Whether the row says that nothing is cut any more and the partition may be handed over. */
export function isSettled(row: MirrorStateRow | undefined): boolean {
  return row?.state === MirrorState.STOPPING && row.settled;
}

/**
 * Whether a partition's mirroring is over by its row: the stop is settled, or STOPPED. A topic that
 * is a member still can be (Y5: its source is gone), but not by a row of a former membership.
 */
export function isOver(row: MirrorStateRow | undefined, topicRow: MirrorTopicRow): boolean {
  if (row === undefined || !(isSettled(row) || row.state === MirrorState.STOPPED)) return false;
  return topicRow.removed || row.membershipOffset >= topicRow.membershipOffset;
}

/** Decides about one partition of a topic that leaves its mirror. */
export function planPartition(
  view: HandoverView,
  partition: PartitionRegistration,
  row: MirrorStateRow | undefined,
): PartitionStep {
  const { image, brokerId } = view;
  const hasGuests = partition.replicas.some((id) => isGuest(image, id));
  if (row?.state === MirrorState.STOPPED) return { kind: 'done' };
  // A partition that was added to the topic when it was native already.
  if (row === undefined && !hasGuests) return { kind: 'done' };
  if (!isSettled(row)) {
    const state = row === undefined ? 'not claimed by a guest yet' : stateName(row.state);
    return wait(`its stop is not settled: it is ${state}`);
  }
  const { leader } = partition;
  if (!hasGuests) return leader === NO_LEADER ? wait('it has no leader yet') : { kind: 'native' };
  if (leader === NO_LEADER) {
    return wait(`no guest leads it: ${listed(partition.isr)} must come back, or be rescued`);
  }
  const actor = isGuest(image, leader) ? leader : undefined;
  if (actor !== undefined && actor !== brokerId) return wait(`guest ${actor} hands it over`);
  if (actor === undefined && !view.isOwner) return wait("the guest with the mirror's jobs ends it");
  return planReassignment(view, partition);
}

function planReassignment(view: HandoverView, partition: PartitionRegistration): PartitionStep {
  const { image, brokerId } = view;
  const ids = futureReplicas(partition).filter((id) => !isGuest(image, id));
  const live = ids.filter((id) => isLive(image, id) && !isCordoned(image, id));
  const readyMs = view.readyForMs(partition);
  if (live.length === 0) {
    const hasCordoned = ids.some((id) => isLive(image, id));
    return planNewReplica(view, partition, hasCordoned ? [] : ids);
  }
  const isIn = (id: number): boolean => partition.isr.includes(id);
  const isLedHere = partition.leader === brokerId;
  const fetching = live.filter((id) => !isLedHere || view.fetchedRecently(partition, id));
  const silent = live.filter((id) => !fetching.includes(id));
  if (silent.length > 0 && readyMs < FETCH_PATIENCE_MS) {
    return wait(`broker(s) ${listed(silent)} have not fetched lately`);
  }
  if (fetching.length === 0) return wait(`none of broker(s) ${listed(live)} fetches`);
  const lagging = fetching.filter((id) => !isIn(id));
  if (lagging.length === fetching.length || (lagging.length > 0 && readyMs < LAGGING_PATIENCE_MS)) {
    return wait(`broker(s) ${listed(lagging)} are not in sync yet`);
  }
  return unlessUnderWay(partition, fetching.filter(isIn));
}

/**
 * None of the brokers that have the partition, or are to have it, is alive and may be named. Where
 * there are none at all, they stay away (`dead`), or a live one is cordoned, another one gets a
 * replica: the reassignment ends when it is in sync.
 */
function planNewReplica(
  view: HandoverView,
  partition: PartitionRegistration,
  dead: readonly number[],
): PartitionStep {
  const { image } = view;
  const all = apacheBrokers(image).length;
  const count = image.topicsById.get(partition.topicId)?.partitions.size ?? 0;
  const order = topicTargets(image, partition.topic, count, all)[partition.partition] ?? [];
  const live = order.filter((id) => isLive(image, id));
  const [first] = live.filter((id) => !isCordoned(image, id));
  if (first === undefined) return wait(cordonProblem(image, live) ?? 'no Apache broker is alive');
  if (dead.length > 0 && view.readyForMs(partition) < LAGGING_PATIENCE_MS) {
    return wait(`no Apache broker that has it is alive: ${listed(dead)}`);
  }
  return { kind: 'reassign', replicas: [first] };
}

function unlessUnderWay(
  partition: PartitionRegistration,
  replicas: readonly number[],
): PartitionStep {
  const future = futureReplicas(partition);
  const isSame = future.length === replicas.length && future.every((id, i) => replicas[i] === id);
  if (!isMoving(partition) || !isSame) return { kind: 'reassign', replicas };
  const missing = replicas.filter((id) => !partition.isr.includes(id));
  return wait(`its reassignment is under way; not in sync yet: ${listed(missing)}`);
}

/** What a topic needs next. */
export interface TopicPlan {
  readonly steps: ReadonlyMap<number, PartitionStep>;
  /** Set when all partitions are native or done and settings are not yet the final ones. */
  readonly restore: readonly ConfigChange[];
  /** Partitions whose rows are to say STOPPED now. */
  readonly stopped: readonly number[];
  /** Replicas are owed no longer: the row can forget them. */
  readonly isPaid: boolean;
}

/** Decides about a topic that has left its mirror. */
export function planTopic(
  view: HandoverView,
  topic: TopicImage,
  topicRow: MirrorTopicRow,
  rowOf: (partition: number) => MirrorStateRow | undefined,
): TopicPlan {
  const steps = new Map<number, PartitionStep>();
  for (const [index, partition] of topic.partitions) {
    steps.set(index, planPartition(view, partition, rowOf(index)));
  }
  const nothing = { restore: [], stopped: [], isPaid: false };
  const kinds = [...steps.values()].map(({ kind }) => kind);
  if (!view.isOwner || kinds.some((kind) => kind !== 'native' && kind !== 'done')) {
    return { steps, ...nothing };
  }
  if (kinds.includes('native')) {
    const overrides = view.image.configs(ConfigResourceType.TOPIC, topic.name);
    const restore = restoreChanges(overrides, topicRow.finalConfigs);
    const native = [...steps].flatMap(([index, { kind }]) => (kind === 'native' ? [index] : []));
    return { steps, ...nothing, restore, stopped: restore.length > 0 ? [] : native };
  }
  if (topicRow.targetReplicationFactor <= 0) return { steps, ...nothing };
  const owed = planOwed(view.image, topic, topicRow.targetReplicationFactor);
  return {
    steps: owed,
    ...nothing,
    isPaid: [...owed.values()].every(({ kind }) => kind === 'done'),
  };
}

/** Replicas that were left out: their brokers were dead or cordoned, or never were there (G24). */
export function planOwed(
  image: MetadataImage,
  topic: TopicImage,
  replicationFactor: number,
): Map<number, PartitionStep> {
  const count = Math.min(replicationFactor, apacheBrokers(image).length);
  const lists = topicTargets(image, topic.name, topic.partitions.size, count);
  const steps = new Map<number, PartitionStep>();
  for (const [index, partition] of topic.partitions) {
    steps.set(index, owedStep(image, partition, lists[index] ?? [], count));
  }
  return steps;
}

function owedStep(
  image: MetadataImage,
  partition: PartitionRegistration,
  target: readonly number[],
  count: number,
): PartitionStep {
  // A guest among the replicas is a stray by now, and not the handover's.
  const has = futureReplicas(partition).filter((id) => !isGuest(image, id));
  const missing = target
    .filter((id) => !has.includes(id))
    .slice(0, Math.max(count - has.length, 0));
  if (isMoving(partition)) return wait(`its reassignment to ${listed(has)} is under way`);
  if (missing.length === 0) return { kind: 'done' };
  const live = missing.filter((id) => isLive(image, id));
  if (live.length === 0) return wait(`broker(s) ${listed(missing)} must come back for a replica`);
  const open = live.filter((id) => !isCordoned(image, id));
  const problem = cordonProblem(image, open.length === 0 ? live : has);
  if (problem !== undefined) return wait(problem);
  const wanted = [...has, ...open];
  const isTarget = wanted.length === target.length && target.every((id) => wanted.includes(id));
  return { kind: 'reassign', replicas: isTarget ? target : wanted };
}
