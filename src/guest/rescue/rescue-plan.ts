/**
 * What a rescue has to do, and who is to lead (G18a): decisions of `rescue.ts`, all of them pure.
 *
 * Works on the metadata, the rows and what Apache brokers say of their logs, never on what was done
 * before, so that a rescue that was cut short is planned anew from where the cluster stands.
 */
import {
  type MetadataImage,
  NO_LEADER,
  type PartitionRegistration,
  type TopicImage,
} from '../../metadata/image.ts';
import type { KeyedRow } from '../../mirror/coordinator-shard.ts';
import type { MirrorStateRow } from '../../mirror/state-row.ts';
import { MirrorState, settledEnd, stateName } from '../../mirror/states.ts';
import { guests, isGuest, isLive, topicTargets } from '../guest-brokers.ts';
import { isSettled } from '../jobs/handover-plan.ts';
import type { JobStore } from '../jobs/job-ports.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import type { ReplicaAnswer, ReplicaLog } from './rescue-logs.ts';

/** A partition to be rescued. */
export interface LostPartition {
  readonly mirror: string;
  readonly topic: TopicImage;
  readonly partition: PartitionRegistration;
  readonly row: MirrorStateRow | undefined;
  /** Its replicas that are on Apache brokers. */
  readonly apache: readonly number[];
}

/** A transaction that is open in the log of the replica that is to lead. */
export interface UndecidedTransaction {
  readonly producerId: bigint;
  /** The producer's id at the source; undefined: it came by another mirror. */
  readonly sourceProducerId: bigint | undefined;
  readonly firstOffset: number;
}

/** What is known of it, and who is to lead it. */
export interface RescuePartition extends LostPartition {
  readonly logs: readonly ReplicaLog[];
  /** Apache replicas that could not be asked, and why. */
  readonly silent: readonly { readonly brokerId: number; readonly why: string }[];
  /** Undefined: nobody can. */
  readonly leader: ReplicaLog | undefined;
  /** Undefined: its leader has not told. */
  readonly undecided?: readonly UndecidedTransaction[] | undefined;
}

/** Whether a topic's row is about this topic: one that was never made has no id in it yet. */
function isOf(row: MirrorTopicRow, topic: TopicImage, image: MetadataImage): boolean {
  if (row.topicId === topic.id) return true;
  const isOnGuests = [...topic.partitions.values()].every(({ replicas }) =>
    replicas.some((id) => isGuest(image, id)),
  );
  return isOnGuests && /^A+$/.test(row.topicId);
}

/** Partitions of these mirrors (all: undefined) that are not native topics' yet. */
export function lostPartitions(
  image: MetadataImage,
  store: Pick<JobStore, 'mirrors' | 'topics' | 'rows'>,
  mirrors: readonly string[] | undefined,
): LostPartition[] {
  const lost: LostPartition[] = [];
  for (const mirror of store.mirrors()) {
    if (mirrors !== undefined && !mirrors.includes(mirror)) continue;
    const rows = new Map(store.rows(mirror).map((keyed) => [rowName(keyed), keyed.row]));
    for (const [name, topicRow] of store.topics(mirror)) {
      const topic = image.topicsByName.get(name);
      if (topic === undefined || !isOf(topicRow, topic, image)) continue;
      for (const [index, partition] of topic.partitions) {
        const row = rows.get(`${topic.id}:${index}`);
        const hasGuest = partition.replicas.some((id) => isGuest(image, id));
        if (row === undefined ? !hasGuest : row.state === MirrorState.STOPPED) continue;
        const apache = partition.replicas.filter((id) => !isGuest(image, id));
        lost.push({ mirror, topic, partition, row, apache });
      }
    }
  }
  return lost;
}

function rowName({ key }: KeyedRow): string {
  return `${key.topicId}:${key.partition}`;
}

/** Guests that a rescue must not work against: they are alive, or not yet known to be dead. */
export function liveGuests(image: MetadataImage): number[] {
  return guests(image).flatMap(({ id }) => (isLive(image, id) ? [id] : []));
}

/** Whether an Apache broker leads the partition already. */
export function isLed(image: MetadataImage, { leader }: PartitionRegistration): boolean {
  return leader !== NO_LEADER && !isGuest(image, leader);
}

/** What is known of the replicas, and the best of them. */
export function planPartition(
  image: MetadataImage,
  lost: LostPartition,
  answers: readonly ReplicaAnswer[],
): RescuePartition {
  const logs = answers.filter((answer) => 'end' in answer);
  const silent = lost.apache.flatMap((brokerId) => {
    if (logs.some((log) => log.brokerId === brokerId)) return [];
    const answer = answers.find((each) => each.brokerId === brokerId);
    const why = answer !== undefined && 'why' in answer ? answer.why : 'it does not run';
    return [{ brokerId, why }];
  });
  const { partition, topic, row } = lost;
  if (isLed(image, partition)) {
    return { ...lost, logs, silent, leader: logs.find((l) => l.brokerId === partition.leader) };
  }
  const count = topic.partitions.size;
  const order = topicTargets(image, topic.name, count, lost.apache.length)[partition.partition];
  return { ...lost, logs, silent, leader: longest(logs, order ?? [], row) };
}

/**
 * The log that has most of what was mirrored: with the highest last epoch, then the longest; of
 * equals the one whose broker is to lead by the spread of leaders (G25). Where a stop was settled,
 * what lies above its end is a tail that its broker had no chance to cut; so is what a cut of the
 * mirror left elsewhere, as long as somebody has followed that cut.
 */
export function longest(
  logs: readonly ReplicaLog[],
  order: readonly number[],
  row: MirrorStateRow | undefined,
): ReplicaLog | undefined {
  const limit = isSettled(row) && row !== undefined ? settledEnd(row) : -1;
  const followed = logs.filter((log) => !isUncut(log, row));
  const candidates = followed.length > 0 ? followed : logs;
  const within = candidates.filter(({ end }) => limit < 0 || end <= limit);
  const rankOf = ({ brokerId }: ReplicaLog): number => {
    const at = order.indexOf(brokerId);
    return at < 0 ? order.length : at;
  };
  if (within.length === 0) return [...logs].sort((a, b) => a.end - b.end)[0];
  return [...within].sort(
    (a, b) => b.lastEpoch - a.lastEpoch || b.end - a.end || rankOf(a) - rankOf(b),
  )[0];
}

/** Whether a log still ends with what a cut of the mirror took off: its broker was away (T5). */
function isUncut({ end, lastEpoch }: ReplicaLog, row: MirrorStateRow | undefined): boolean {
  if (row === undefined || row.cutOffset < 0) return false;
  return end > row.cutOffset && lastEpoch <= row.cutLeaderEpoch;
}

/** The order of replicas that makes an unclean election choose the leader. */
export function electionOrder({ partition, apache, leader }: RescuePartition): number[] {
  const first = leader?.brokerId ?? NO_LEADER;
  const others = partition.replicas.filter((id) => id !== first);
  const [natives, rest] = [apache, others].map((ids) => ids.filter((id) => id !== first));
  return [first, ...(natives ?? []), ...(rest ?? []).filter((id) => !apache.includes(id))];
}

/** What may be missing, as sentences. */
export function missing(planned: RescuePartition): string[] {
  const { logs, silent, leader, row, undecided } = planned;
  if (leader === undefined) {
    const all = silent.map(({ brokerId, why }) => `${brokerId}: ${why}`).join('; ');
    return [`nobody can lead it: none of its Apache replicas answers (${all})`];
  }
  const { end } = leader;
  const sentences: string[] = [];
  const isOver = isSettled(row) && row !== undefined && settledEnd(row) === end;
  if (!isOver) sentences.push(`what the lost guest had mirrored from ${end} on, if anything`);
  if (undecided === undefined) {
    sentences.push(`broker ${leader.brokerId} does not tell which transactions will be aborted`);
  }
  sentences.push(...(undecided ?? []).map(abortSentence));
  const behind = logs.filter((log) => log.end < end).map((log) => `${log.brokerId} at ${log.end}`);
  if (behind.length > 0) sentences.push(`broker(s) ${behind.join(', ')} catch up from the leader`);
  const longer = logs.filter((log) => log.end > end);
  for (const log of longer) {
    const why = isUncut(log, row)
      ? 'the mirror had cut them off, and it was away'
      : `it has them from epoch ${log.lastEpoch}, the leader is in ${leader.lastEpoch}`;
    sentences.push(`broker ${log.brokerId} drops ${end} to ${log.end - 1}: ${why}`);
  }
  if (isUncut(leader, row) && row !== undefined) {
    const range = `${row.cutOffset} to ${end - 1}`;
    sentences.push(`nothing of ${range}: the mirror was about to cut that off, and it stays`);
  }
  for (const { brokerId, why } of silent) {
    sentences.push(`broker ${brokerId} could not be asked (${why}); it may have more`);
  }
  return sentences;
}

function abortSentence(transaction: UndecidedTransaction): string {
  const { producerId, sourceProducerId, firstOffset } = transaction;
  const there = sourceProducerId === undefined ? '' : ` (${sourceProducerId} at the source)`;
  return (
    `the transaction of producer ${producerId}${there} from ${firstOffset} on is aborted: its ` +
    'end had not been mirrored, whatever it was'
  );
}

/** The state of a partition in words. */
export function stateOf({ row }: LostPartition): string {
  return row === undefined ? 'UNKNOWN' : stateName(row.state);
}
