/**
 * Decides AlterPartition (ISR changes by a partition's leader) and re-elections of a leader.
 *
 * Called by the embedded controller. Errors are per partition; an accepted change is one
 * PartitionChangeRecord. Later entries of a request see the earlier ones.
 */
import type { Uuid } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import type {
  AlterPartitionRequest,
  AlterPartitionResponse,
} from '../protocol/messages/56-alter-partition.ts';
import type { ElectionResult } from './controller-port.ts';
import { type DecideContext, type Decision, isActive, type Refusal, refuse } from './decide.ts';
import { brokerEpochError } from './decide-brokers.ts';
import { type MetadataImage, NO_LEADER, type PartitionRegistration } from './image.ts';
import { changePartition } from './image-delta.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';

type PartitionWish = AlterPartitionRequest['topics'][number]['partitions'][number];
type PartitionResult = AlterPartitionResponse['topics'][number]['partitions'][number];

/** LeaderRecoveryState of a partition whose leader was elected uncleanly and has not recovered. */
const RECOVERING = 1;

/** Decides AlterPartition. */
export function decideAlterPartition(
  context: DecideContext,
  request: AlterPartitionRequest,
): Decision<AlterPartitionResponse> {
  const { image } = context;
  const errorCode = brokerEpochError(image, request.brokerId, request.brokerEpoch);
  if (errorCode !== 0) {
    return { records: [], response: { throttleTimeMs: 0, errorCode, topics: [] } };
  }
  const records: MetadataRecord[] = [];
  const changed = new Map<string, PartitionRegistration>();
  const topics = request.topics.map(({ topicId, partitions }) => ({
    topicId,
    partitions: partitions.map((wish) => {
      const key = `${topicId}:${wish.partitionIndex}`;
      const topic = image.topicsById.get(topicId);
      const current = changed.get(key) ?? topic?.partitions.get(wish.partitionIndex);
      if (topic === undefined) return failed(wish, ErrorCode.UNKNOWN_TOPIC_ID);
      if (current === undefined) return failed(wish, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION);
      const error = alterationError(image, request.brokerId, current, wish);
      if (error !== 0) return failed(wish, error);
      const record = alterationRecord(current, wish);
      if (record === undefined) return succeeded(current);
      records.push(record);
      const next = changePartition(current, record.value);
      changed.set(key, next);
      return succeeded(next);
    }),
  }));
  return { records, response: { throttleTimeMs: 0, errorCode: 0, topics } };
}

function failed(wish: PartitionWish, errorCode: number): PartitionResult {
  return {
    partitionIndex: wish.partitionIndex,
    errorCode,
    leaderId: 0,
    leaderEpoch: 0,
    isr: [],
    leaderRecoveryState: 0,
    partitionEpoch: 0,
  };
}

function succeeded(partition: PartitionRegistration): PartitionResult {
  return {
    partitionIndex: partition.partition,
    errorCode: 0,
    leaderId: partition.leader,
    leaderEpoch: partition.leaderEpoch,
    isr: [...partition.isr],
    leaderRecoveryState: partition.leaderRecoveryState,
    partitionEpoch: partition.partitionEpoch,
  };
}

/** The replicas a request wants in sync: version 3 names their epochs too. */
function wantedIsr(wish: PartitionWish): { brokerId: number; brokerEpoch: number }[] {
  if (wish.newIsrWithEpochs.length > 0) return wish.newIsrWithEpochs;
  return wish.newIsr.map((brokerId) => ({ brokerId, brokerEpoch: -1 }));
}

function alterationError(
  image: MetadataImage,
  brokerId: number,
  current: PartitionRegistration,
  wish: PartitionWish,
): number {
  // A newer epoch than ours comes from a newer controller, which does not exist here.
  if (wish.leaderEpoch > current.leaderEpoch) return ErrorCode.NOT_CONTROLLER;
  if (wish.partitionEpoch > current.partitionEpoch) return ErrorCode.NOT_CONTROLLER;
  if (wish.leaderEpoch < current.leaderEpoch) return ErrorCode.FENCED_LEADER_EPOCH;
  if (brokerId !== current.leader) return ErrorCode.INVALID_REQUEST;
  if (wish.partitionEpoch < current.partitionEpoch) return ErrorCode.INVALID_UPDATE_VERSION;
  const wanted = wantedIsr(wish);
  const isr = wanted.map((state) => state.brokerId);
  const legal =
    new Set(isr).size === isr.length &&
    isr.every((id) => current.replicas.includes(id)) &&
    isr.includes(current.leader);
  if (!legal) return ErrorCode.INVALID_REQUEST;
  const recovering = wish.leaderRecoveryState === RECOVERING;
  if (recovering && (isr.length > 1 || current.leaderRecoveryState !== RECOVERING)) {
    return ErrorCode.INVALID_REQUEST;
  }
  const eligible = wanted.every((state) => {
    const broker = image.brokers.get(state.brokerId);
    const epochMatches = state.brokerEpoch === -1 || state.brokerEpoch === broker?.epoch;
    return isActive(broker) && epochMatches;
  });
  return eligible ? 0 : ErrorCode.INELIGIBLE_REPLICA;
}

type ChangeRecord = ReturnType<typeof metadataRecord<'PartitionChangeRecord'>>;

function alterationRecord(
  current: PartitionRegistration,
  wish: PartitionWish,
): ChangeRecord | undefined {
  const wanted = wantedIsr(wish).map((state) => state.brokerId);
  const isr = current.replicas.filter((id) => wanted.includes(id));
  const sameIsr = isr.length === current.isr.length && isr.every((id) => current.isr.includes(id));
  const sameState = wish.leaderRecoveryState === current.leaderRecoveryState;
  if (sameIsr && sameState) return undefined;
  return metadataRecord('PartitionChangeRecord', {
    partitionId: current.partition,
    topicId: current.topicId,
    ...(sameIsr ? {} : { isr }),
    ...(sameState ? {} : { leaderRecoveryState: wish.leaderRecoveryState }),
  });
}

/** Decides the re-election of the same leader: nothing changes but the leader epoch (rule T5). */
export function decideElectSameLeader(
  context: DecideContext,
  topicId: Uuid,
  partition: number,
  leaderEpoch: number,
): Decision<ElectionResult> {
  const current = context.image.topicsById.get(topicId)?.partitions.get(partition);
  const refusal = electionProblem(current, leaderEpoch);
  if (refusal !== undefined || current === undefined) {
    return { records: [], response: refusal ?? unknownPartition() };
  }
  const { leader } = current;
  return {
    records: [metadataRecord('PartitionChangeRecord', { partitionId: partition, topicId, leader })],
    response: { error: 0, leaderEpoch: current.leaderEpoch + 1 },
  };
}

function unknownPartition(): Refusal {
  return refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 'There is no such partition.');
}

function electionProblem(
  current: PartitionRegistration | undefined,
  leaderEpoch: number,
): Refusal | undefined {
  if (current === undefined) return unknownPartition();
  if (current.leader === NO_LEADER) {
    return refuse(ErrorCode.LEADER_NOT_AVAILABLE, 'The partition has no leader.');
  }
  if (current.leaderEpoch === leaderEpoch) return undefined;
  const message = `The leader epoch is ${current.leaderEpoch}, not ${leaderEpoch}.`;
  return refuse(ErrorCode.FENCED_LEADER_EPOCH, message);
}
