/**
 * What a partition asks its source before it mirrors (T2, T3) and whenever histories may have
 * parted (F9, F10): questions and judgements, no effects. The driver acts on the answers.
 *
 * Each question throws a MirrorFailure whose cause says whether asking again may help; an error of
 * the source is never taken for an answer.
 */
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import { LastMirroredOffsetsRequest } from '../protocol/messages/12793-last-mirrored-offsets.ts';
import { forEachBatch, RecordBatch } from '../protocol/record-batch.ts';
import type { EndpointOffset } from '../replication/leader-endpoint.ts';
import type { Partition } from '../replication/partition.ts';
import { MirrorFailure } from './causes.ts';
import type { MirrorRole } from './driver-context.ts';
import type { MirrorStateStore } from './mirror-coordinator.ts';
import { isSameProducer, type ProducerIdHalves } from './producer-id-mapping.ts';
import type { SourceCluster, SourceLeader, SourceTopic } from './source-cluster.ts';
import type { SourceEpoch } from './state-row.ts';

/** Bytes fetched from the source to compare one batch; a larger one comes whole all the same. */
export const COMPARE_BYTES = 1024 * 1024;
/** ListOffsets: the first and the next offset. */
const EARLIEST = -2n;
const LATEST = -1n;

/** The parts of a partition that are compared. */
export type ComparedPartition = Pick<Partition, 'topic' | 'partition' | 'topicId'> & {
  readonly log: Pick<Partition['log'], 'logStartOffset' | 'logEndOffset'> & {
    read(...at: Parameters<Partition['log']['read']>):
      | Pick<Extract<ReturnType<Partition['log']['read']>, { error: 0 }>, 'error' | 'records'>
      | {
          readonly error: Exclude<ErrorCode, 0>;
        };
  };
};

/** Rule O3; a zero id at the source: ids are not compared. */
export function checkTopicId(topic: SourceTopic, topicId: Uuid): void {
  if (topic.id === ZERO_UUID || topic.id === topicId) return;
  throw new MirrorFailure(
    'INCONSISTENT_TOPIC_ID',
    `topic ${topic.name} has id ${topicId} here and ${topic.id} at the source`,
  );
}

/** Rule G12: a topic with an id of its own here is still the one that was added; zero: unknown. */
export function checkAddedTopicId(topic: SourceTopic, added: Uuid): void {
  if (topic.id === ZERO_UUID || added === ZERO_UUID || topic.id === added) return;
  throw new MirrorFailure(
    'INCONSISTENT_TOPIC_ID',
    `topic ${topic.name} had id ${added} at the source when it was added, ${topic.id} now`,
  );
}

/** Rule O4, for one partition: what its row says against who answers now. */
export function checkSourceCluster(recorded: string, actual: string): void {
  if (recorded === '' || recorded === actual) return;
  throw new MirrorFailure(
    'SOURCE_CLUSTER_CHANGED',
    `the partition was mirrored from cluster ${recorded}, but ${actual} answers now`,
  );
}

/** Whether a partition's leader at the source is a twinlog broker, which tells X itself (T2). */
export async function servesLastMirrored(
  source: SourceCluster,
  topic: string,
  partition: number,
): Promise<boolean> {
  const { address } = await source.leader(topic, partition);
  return await source.client.serves(address, LastMirroredOffsetsRequest);
}

/** The truncation offset X (T2). */
export async function truncationOffset(
  source: SourceCluster,
  store: MirrorStateStore,
  question: {
    readonly mirror: string;
    readonly topic: SourceTopic;
    readonly topicId: Uuid;
    readonly partition: number;
    readonly clusterId: string;
    readonly role: Pick<MirrorRole, 'peerLastMirroredOffset'>;
  },
): Promise<number> {
  const { mirror, topic, topicId, partition, clusterId, role } = question;
  const leader = await source.leader(topic.name, partition);
  if (await source.client.serves(leader.address, LastMirroredOffsetsRequest)) {
    const { errorCode, offset } = await source.client.lastMirroredOffset(leader.address, {
      mirror,
      topic: topic.name,
      topicId: topic.id === ZERO_UUID ? topicId : topic.id,
      partition,
      requesterClusterId: clusterId,
    });
    if (errorCode !== errors.NONE.code) {
      const message = `the source does not tell its last mirrored offset: error ${errorCode}`;
      throw new MirrorFailure('SOURCE_ERROR', message);
    }
    // "No record": it never mirrored from here, so what was mirrored from it before still stands.
    if (offset >= 0) return offset;
  } else {
    const peer = await role.peerLastMirroredOffset?.(mirror, topic.name, partition);
    if (peer !== undefined && peer !== 'none') return peer;
  }
  // Without ids nobody can tell that it is still the same topic.
  if (topic.id === ZERO_UUID) return 0;
  const answer = await store.rowsOfPartition(topicId, partition);
  if (!('rows' in answer)) {
    throw new MirrorFailure('DESTINATION_BUSY', `rows not readable: error ${answer.error}`);
  }
  const own = answer.rows
    .map(({ row }) => row)
    .filter((row) => row.sourceClusterId === source.clusterId && row.lastMirroredOffset >= 0)
    .sort((a, b) => b.membershipOffset - a.membershipOffset);
  return own[0]?.lastMirroredOffset ?? 0;
}

/** The last batch below `offset` in what was read, copied. */
function lastBatchBelow(chunks: readonly Uint8Array[], offset: number): RecordBatch | undefined {
  let found: Uint8Array | undefined;
  for (const chunk of chunks) {
    forEachBatch(chunk, 0, chunk.length, (batch) => {
      if (batch.baseOffset >= offset) return false;
      found = batch.slice();
      return true;
    });
  }
  return found === undefined ? undefined : new RecordBatch(found.slice());
}

function idOf(batch: RecordBatch): ProducerIdHalves {
  return { high: batch.producerIdHigh, low: batch.producerIdLow };
}

/** Whether a local batch is the mirror of a source batch: all but leader epoch, id and CRC. */
export function isMirrorOf(local: RecordBatch, source: RecordBatch): boolean {
  if (local.sizeInBytes !== source.sizeInBytes || local.baseOffset !== source.baseOffset) {
    return false;
  }
  // Mirrored from there to here, from here to there, or both sides hold the copy of a third.
  if (!isSameProducer(idOf(local), idOf(source))) return false;
  const [a, b] = [local.slice(), source.slice()];
  const same = (from: number, to: number): boolean =>
    Buffer.compare(a.subarray(from, to), b.subarray(from, to)) === 0;
  return same(21, 43) && same(51, local.sizeInBytes);
}

/** T3: the last local batch below X must be the source's; SOURCE_DIVERGED when it is not. */
export async function compareBelow(
  source: SourceCluster,
  partition: ComparedPartition,
  topic: SourceTopic,
  offset: number,
): Promise<void> {
  const { log } = partition;
  if (offset <= log.logStartOffset || log.logStartOffset === log.logEndOffset) return;
  const read = log.read(offset - 1, 1, 'logEnd', true);
  const local = read.error === 0 ? lastBatchBelow(read.records, offset) : undefined;
  // An offset gap (compaction) right below X: there is no batch to compare.
  if (local === undefined) return;
  const leader = await source.leader(partition.topic, partition.partition);
  const fetched = await source.client.fetchAt(leader.address, {
    topic: partition.topic,
    topicId: topic.id,
    partition: partition.partition,
    offset: local.baseOffset,
    currentLeaderEpoch: Math.max(0, leader.leaderEpoch),
    maxBytes: COMPARE_BYTES,
  });
  // Deleted at the source by now: nothing to compare with.
  if (fetched.errorCode === errors.OFFSET_OUT_OF_RANGE.code) return;
  if (fetched.errorCode !== errors.NONE.code) {
    const message = `cannot read offset ${local.baseOffset} at the source: ${fetched.errorCode}`;
    throw new MirrorFailure('SOURCE_ERROR', message);
  }
  let remote: RecordBatch | undefined;
  forEachBatch(fetched.records, 0, fetched.records.length, (batch) => {
    remote = new RecordBatch(batch.slice());
    return false;
  });
  // Compacted away at the source: later batches say nothing about this one.
  if (remote === undefined || remote.baseOffset > local.baseOffset) return;
  if (remote.sizeInBytes !== local.sizeInBytes && remote.count < local.count) return;
  if (isMirrorOf(local, remote)) return;
  throw new MirrorFailure(
    'SOURCE_DIVERGED',
    `the batch at offset ${local.baseOffset} differs from the source's; nothing was cut`,
  );
}

/**
 * The recorded source epochs that the log has batches of (F10). An epoch is recorded before its
 * first batch is appended, and power loss can take batches whose epoch was durable already; an
 * empty log that has a past keeps the epoch that it starts over with.
 */
export function heldEpochs(
  { logStartOffset, logEndOffset }: Pick<Partition['log'], 'logStartOffset' | 'logEndOffset'>,
  epochs: readonly SourceEpoch[],
): SourceEpoch[] {
  const startedOver = logStartOffset === logEndOffset && logEndOffset > 0;
  return epochsBelow(epochs, startedOver ? logEndOffset + 1 : logEndOffset);
}

/** Those that start below an offset. */
export function epochsBelow(epochs: readonly SourceEpoch[], offset: number): SourceEpoch[] {
  return epochs.filter(({ startOffset }) => startOffset < offset);
}

/** What the source's epochs say about the local log (F10). */
export type Divergence =
  | { readonly kind: 'same' }
  /** Both sides agree below this offset only. */
  | { readonly kind: 'diverged'; readonly commonOffset: number }
  /** No epoch that both sides know. */
  | { readonly kind: 'unknown' };

/** Asks for the newest known source epoch, walking back until both sides agree (F10). */
export async function findDivergence(
  source: SourceCluster,
  leader: SourceLeader,
  partition: ComparedPartition,
  epochs: readonly SourceEpoch[],
): Promise<Divergence> {
  // An empty log has a past, too: what its readers had, which the source may have lost.
  const { logEndOffset } = partition.log;
  if (epochs.length === 0) return { kind: 'same' };
  let index = epochs.length - 1;
  while (index >= 0) {
    const asked = epochs[index] as SourceEpoch;
    const localEnd = epochs[index + 1]?.startOffset ?? logEndOffset;
    const [answer] = await source.client.offsetsForLeaderEpoch(leader.address, [
      {
        topic: partition.topic,
        partition: partition.partition,
        currentLeaderEpoch: Math.max(0, leader.leaderEpoch),
        leaderEpoch: asked.epoch,
      },
    ]);
    if (answer === undefined || answer.errorCode !== errors.NONE.code) {
      const message = `OffsetForLeaderEpoch failed with error ${answer?.errorCode}`;
      throw new MirrorFailure('SOURCE_LEADER_UNKNOWN', message);
    }
    if (answer.leaderEpoch === asked.epoch && answer.endOffset >= 0) {
      const common = Math.min(answer.endOffset, localEnd);
      return common >= logEndOffset ? { kind: 'same' } : { kind: 'diverged', commonOffset: common };
    }
    // The source knows no such epoch: the newest of ours that it may know is the next to ask.
    const older = answer.leaderEpoch < 0 ? asked.epoch - 1 : answer.leaderEpoch;
    do index--;
    while (index >= 0 && (epochs[index] as SourceEpoch).epoch > older);
  }
  return { kind: 'unknown' };
}

/** A source's log: its start with the epoch of the batch there (−1 for none), and its end. */
export interface SourceRange {
  readonly earliest: number;
  readonly earliestEpoch: number;
  readonly latest: number;
}

/** Where the source's log begins and ends, for judging OFFSET_OUT_OF_RANGE (F9). */
export async function sourceRange(
  source: SourceCluster,
  partition: Pick<ComparedPartition, 'topic' | 'partition'>,
): Promise<SourceRange> {
  const leader = await source.leader(partition.topic, partition.partition);
  const question = {
    topic: partition.topic,
    partition: partition.partition,
    currentLeaderEpoch: Math.max(0, leader.leaderEpoch),
  };
  const ask = async (timestamp: bigint): Promise<EndpointOffset> => {
    const [answer] = await source.client.listOffsets(leader.address, [{ ...question, timestamp }]);
    if (answer !== undefined && answer.errorCode === errors.NONE.code) return answer;
    const message = `ListOffsets failed with error ${answer?.errorCode}`;
    throw new MirrorFailure('SOURCE_LEADER_UNKNOWN', message);
  };
  const { offset: earliest, leaderEpoch: earliestEpoch } = await ask(EARLIEST);
  return { earliest, earliestEpoch, latest: (await ask(LATEST)).offset };
}
