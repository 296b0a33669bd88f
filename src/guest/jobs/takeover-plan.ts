/**
 * What is to be done next about a topic of a mirror that Apache brokers lead, above all a native
 * one that is taken in (G29 from the recorded row on): pure decisions of `takeover.ts`.
 *
 * Everything is worked out from the metadata and the rows, never from what was done before. Order,
 * per topic: settings forced and writers locked out, every partition reassigned to guests first and
 * the brokers that have it, and when a guest is in sync everywhere, leadership. From then on the
 * partitions' drivers go on (they keep aside and cut what the source never had). A topic that
 * leaves the mirror before that goes back to where it was. Invariants:
 * - No partition is reassigned while a writer could get through, or led before it is in sync.
 * - What has a guest as its leader is left alone, unless it has stopped.
 */
import {
  ConfigResourceType,
  type MetadataImage,
  NO_LEADER,
  type PartitionRegistration,
  type TopicImage,
} from '../../metadata/image.ts';
import type { MirrorStateRow } from '../../mirror/state-row.ts';
import { MirrorState } from '../../mirror/states.ts';
import { cordonProblem, isGuest, isLive, otherLiveGuests } from '../guest-brokers.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import { isOver, isSettled } from './handover-plan.ts';
import { futureReplicas, isMoving } from './isr-rule.ts';
import { type ConfigChange, forcedChanges, isLocked, restoreChanges } from './topic-settings.ts';

/** What one partition needs next. */
export type TakeoverStep =
  | { readonly kind: 'done' }
  | { readonly kind: 'wait'; readonly reason: string }
  | { readonly kind: 'reassign'; readonly replicas: readonly number[] }
  /** A guest is in sync and may lead as soon as one is for every partition of the topic. */
  | { readonly kind: 'elect' };

/** What a topic needs next. */
export interface TakeoverPlan {
  readonly changes: readonly ConfigChange[];
  readonly steps: ReadonlyMap<number, TakeoverStep>;
  readonly elections: readonly number[];
  /** Partitions that are as they were, and whose rows do not say STOPPED yet. */
  readonly unrecorded: readonly number[];
  /** The topic left the mirror and is as it was: its row can forget that it was taken. */
  readonly isUndone: boolean;
}

const DONE: TakeoverStep = { kind: 'done' };

function wait(reason: string): TakeoverStep {
  return { kind: 'wait', reason };
}

/** Whether a row is about a native topic that is, or was, taken into a mirror. */
export function isTakeover(row: MirrorTopicRow): boolean {
  return (row.takeoverOffsets?.length ?? 0) > 0;
}

/** Decides about one topic; `brokerId` is the guest that runs the mirror's jobs. */
export function planTakeover(
  image: MetadataImage,
  brokerId: number,
  topic: TopicImage,
  row: MirrorTopicRow,
  rowOf: (partition: number) => MirrorStateRow | undefined,
): TakeoverPlan {
  // One that left before a guest led it for good is led by one once more, which stops it.
  return row.removed && isTakeover(row)
    ? planReturn(image, topic, row, rowOf)
    : planTaking(image, brokerId, topic, row, rowOf);
}

function planTaking(
  image: MetadataImage,
  brokerId: number,
  topic: TopicImage,
  row: MirrorTopicRow,
  rowOf: (partition: number) => MirrorStateRow | undefined,
): TakeoverPlan {
  const overrides = image.configs(ConfigResourceType.TOPIC, topic.name);
  // Without the lock nobody but a guest can have come to lead a topic that left: it is native.
  const isNative = row.removed && !isLocked(overrides);
  // Of a topic that left, or whose source is gone (Y5), the handover has the rest.
  const isTaken = (partition: PartitionRegistration): boolean =>
    isNative || isGuest(image, partition.leader) || isOver(rowOf(partition.partition), row);
  const nothing = { changes: [], elections: [], unrecorded: [], isUndone: false };
  const partitions = [...topic.partitions];
  if (partitions.every(([, partition]) => isTaken(partition))) {
    return { ...nothing, steps: new Map(partitions.map(([index]) => [index, DONE])) };
  }
  const changes = forcedChanges(overrides);
  const isReady = changes.length === 0 && isLocked(overrides);
  const steps = new Map(
    partitions.map(([index, partition]) => {
      if (isTaken(partition)) return [index, DONE];
      if (!isReady) return [index, wait('its topic is being locked against writers')];
      return [index, planPartition(image, brokerId, partition, row)];
    }),
  );
  const kinds = [...steps.values()].map(({ kind }) => kind);
  const isInSync = kinds.every((kind) => kind === 'done' || kind === 'elect');
  const elections = isInSync
    ? [...steps].flatMap(([index, { kind }]) => (kind === 'elect' ? [index] : []))
    : [];
  return { ...nothing, changes, steps, elections };
}

function planPartition(
  image: MetadataImage,
  brokerId: number,
  partition: PartitionRegistration,
  row: MirrorTopicRow,
): TakeoverStep {
  const { isr, leader } = partition;
  const future = futureReplicas(partition);
  if (leader === NO_LEADER)
    return wait(`it has no leader: broker(s) ${isr.join(', ')} must return`);
  const [first = -1] = future;
  if (!isGuest(image, first) || !isLive(image, first)) {
    if (!isLive(image, brokerId)) return wait(`guest ${brokerId} is fenced`);
    const others = otherLiveGuests(image, brokerId);
    const apache = future.filter((id) => !isGuest(image, id));
    const problem = cordonProblem(image, apache);
    if (problem !== undefined) return wait(problem);
    return { kind: 'reassign', replicas: [brokerId, ...others, ...apache] };
  }
  const from = row.takeoverOffsets?.[partition.partition] ?? 0;
  if (!isr.includes(first)) return wait(`guest ${first} copies it from offset ${from} on`);
  if (isMoving(partition)) {
    const missing = future.filter((id) => !isr.includes(id));
    return wait(`its reassignment is under way; not in sync yet: ${missing.join(', ')}`);
  }
  return { kind: 'elect' };
}

/** It left the mirror: what no driver has claimed since goes back to the cluster's brokers. */
function planReturn(
  image: MetadataImage,
  topic: TopicImage,
  row: MirrorTopicRow,
  rowOf: (partition: number) => MirrorStateRow | undefined,
): TakeoverPlan {
  const steps = new Map(
    [...topic.partitions].map(([index, partition]) => [
      index,
      returnStep(image, partition, rowOf(index)),
    ]),
  );
  const isBack = [...steps.values()].every(({ kind }) => kind === 'done');
  const overrides = image.configs(ConfigResourceType.TOPIC, topic.name);
  const changes = isBack ? restoreChanges(overrides, row.finalConfigs) : [];
  const elections = [...steps].flatMap(([index, { kind }]) => (kind === 'elect' ? [index] : []));
  const isNative = isBack && changes.length === 0;
  const unrecorded = [...topic.partitions.keys()].filter(
    (index) => isNative && rowOf(index)?.state !== MirrorState.STOPPED,
  );
  const isUndone = isNative && unrecorded.length === 0;
  return { changes, steps, elections, unrecorded, isUndone };
}

function returnStep(
  image: MetadataImage,
  partition: PartitionRegistration,
  row: MirrorStateRow | undefined,
): TakeoverStep {
  const isStopped = row === undefined || row.state === MirrorState.STOPPED;
  const future = futureReplicas(partition);
  if (!partition.replicas.some((id) => isGuest(image, id))) {
    return isMoving(partition) ? wait('its reassignment is under way') : DONE;
  }
  if (!isStopped) {
    // Its stop is for a guest to make, and an Apache broker leads since an outage.
    const [first = -1] = future;
    const isLost = !isSettled(row) && !isGuest(image, partition.leader);
    const mayLead = isGuest(image, first) && isLive(image, first) && partition.isr.includes(first);
    return isLost && mayLead ? { kind: 'elect' } : wait('its mirroring is being stopped');
  }
  // Its driver is about to say how it stops.
  if (row === undefined && isGuest(image, partition.leader)) return wait('a guest leads it');
  const apache = future.filter((id) => !isGuest(image, id));
  if (apache.length === future.length && isMoving(partition)) {
    return wait('its reassignment is under way');
  }
  if (apache.length === 0) return wait('no other broker has it');
  const problem = cordonProblem(image, apache);
  if (problem !== undefined) return wait(problem);
  return { kind: 'reassign', replicas: apache };
}
