/**
 * APIs of coordinators, none of which a guest ever is: NOT_COORDINATOR, upon which clients look the
 * coordinator up again.
 *
 * A guest leads mirror partitions only (rule G11); a partition of a coordinator's topic that strays
 * here is not loaded until it has left (rule G8). The classic group APIs are answered by the shared
 * handlers over a group coordinator that leads nothing.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { errors } from '../../protocol/errors.ts';
import {
  AddPartitionsToTxnRequest,
  AddPartitionsToTxnResponse,
} from '../../protocol/messages/24-add-partitions-to-txn.ts';
import {
  AddOffsetsToTxnRequest,
  AddOffsetsToTxnResponse,
} from '../../protocol/messages/25-add-offsets-to-txn.ts';
import { EndTxnRequest, EndTxnResponse } from '../../protocol/messages/26-end-txn.ts';
import {
  TxnOffsetCommitRequest,
  TxnOffsetCommitResponse,
} from '../../protocol/messages/28-txn-offset-commit.ts';
import {
  DescribeTransactionsRequest,
  DescribeTransactionsResponse,
} from '../../protocol/messages/65-describe-transactions.ts';
import {
  ConsumerGroupHeartbeatRequest,
  ConsumerGroupHeartbeatResponse,
} from '../../protocol/messages/68-consumer-group-heartbeat.ts';
import {
  ConsumerGroupDescribeRequest,
  ConsumerGroupDescribeResponse,
} from '../../protocol/messages/69-consumer-group-describe.ts';
import {
  ShareGroupHeartbeatRequest,
  ShareGroupHeartbeatResponse,
} from '../../protocol/messages/76-share-group-heartbeat.ts';
import {
  ShareGroupDescribeRequest,
  ShareGroupDescribeResponse,
} from '../../protocol/messages/77-share-group-describe.ts';
import {
  StreamsGroupHeartbeatRequest,
  StreamsGroupHeartbeatResponse,
} from '../../protocol/messages/88-streams-group-heartbeat.ts';
import {
  StreamsGroupDescribeRequest,
  StreamsGroupDescribeResponse,
} from '../../protocol/messages/89-streams-group-describe.ts';
import {
  DescribeShareGroupOffsetsRequest,
  DescribeShareGroupOffsetsResponse,
} from '../../protocol/messages/90-describe-share-group-offsets.ts';
import {
  AlterShareGroupOffsetsRequest,
  AlterShareGroupOffsetsResponse,
} from '../../protocol/messages/91-alter-share-group-offsets.ts';
import {
  DeleteShareGroupOffsetsRequest,
  DeleteShareGroupOffsetsResponse,
} from '../../protocol/messages/92-delete-share-group-offsets.ts';
import { type ApiHandler, apiHandler } from '../api-handler.ts';

const NOT_COORDINATOR = errors.NOT_COORDINATOR.code;
/** First AddPartitionsToTxn version that carries several transactions. */
const BATCHED_ADD_VERSION = 4;
const REFUSED = { throttleTimeMs: 0, errorCode: NOT_COORDINATOR };
/** A refused heartbeat of a group whose members have epochs. */
const NO_HEARTBEAT = { ...REFUSED, memberEpoch: 0, heartbeatIntervalMs: 0 };

type TxnTopics = AddPartitionsToTxnRequest['v3AndBelowTopics'];

function topicResults(topics: TxnTopics) {
  return topics.map(({ name, partitions }) => ({
    name,
    resultsByPartition: partitions.map((partitionIndex) => ({
      partitionIndex,
      partitionErrorCode: NOT_COORDINATOR,
    })),
  }));
}

/** A group that is not described here. */
function undescribed(groupId: string) {
  const state = { groupState: '', groupEpoch: 0, assignmentEpoch: 0, members: [] };
  return { errorCode: NOT_COORDINATOR, groupId, ...state };
}

const transactionApis: readonly ApiHandler[] = [
  apiHandler({
    request: AddPartitionsToTxnRequest,
    response: AddPartitionsToTxnResponse,
    versions: '0-5',
    handle: (_services, { transactions, v3AndBelowTopics }, { apiVersion }) => {
      if (apiVersion < BATCHED_ADD_VERSION) {
        return { throttleTimeMs: 0, resultsByTopicV3AndBelow: topicResults(v3AndBelowTopics) };
      }
      const resultsByTransaction = transactions.map(({ transactionalId, topics }) => ({
        transactionalId,
        topicResults: topicResults(topics),
      }));
      return { throttleTimeMs: 0, resultsByTransaction };
    },
  }),
  apiHandler({
    request: AddOffsetsToTxnRequest,
    response: AddOffsetsToTxnResponse,
    versions: '0-4',
    handle: () => REFUSED,
  }),
  apiHandler({
    request: EndTxnRequest,
    response: EndTxnResponse,
    versions: '0-5',
    handle: () => REFUSED,
  }),
  apiHandler({
    request: TxnOffsetCommitRequest,
    response: TxnOffsetCommitResponse,
    versions: '0-5',
    handle: (_services, { topics }) => ({
      throttleTimeMs: 0,
      topics: topics.map(({ name, partitions }) => ({
        name,
        partitions: partitions.map(({ partitionIndex }) => ({
          partitionIndex,
          errorCode: NOT_COORDINATOR,
        })),
      })),
    }),
  }),
  apiHandler({
    request: DescribeTransactionsRequest,
    response: DescribeTransactionsResponse,
    versions: '0',
    handle: (_services, { transactionalIds }) => ({
      throttleTimeMs: 0,
      transactionStates: transactionalIds.map((transactionalId) => ({
        errorCode: NOT_COORDINATOR,
        transactionalId,
        transactionState: '',
        transactionTimeoutMs: 0,
        transactionStartTimeMs: 0,
        producerId: 0n,
        producerEpoch: 0,
        topics: [],
      })),
    }),
  }),
];

const groupApis: readonly ApiHandler[] = [
  apiHandler({
    request: ConsumerGroupHeartbeatRequest,
    response: ConsumerGroupHeartbeatResponse,
    versions: '0-1',
    handle: () => NO_HEARTBEAT,
  }),
  apiHandler({
    request: ConsumerGroupDescribeRequest,
    response: ConsumerGroupDescribeResponse,
    versions: '0-1',
    handle: (_services, { groupIds }) => ({
      throttleTimeMs: 0,
      groups: groupIds.map((groupId) => ({ ...undescribed(groupId), assignorName: '' })),
    }),
  }),
  apiHandler({
    request: StreamsGroupHeartbeatRequest,
    response: StreamsGroupHeartbeatResponse,
    versions: '0',
    handle: (_services, { memberId }) => ({
      ...NO_HEARTBEAT,
      memberId,
      acceptableRecoveryLag: 0,
      taskOffsetIntervalMs: 0,
      status: null,
      endpointInformationEpoch: 0,
    }),
  }),
  apiHandler({
    request: StreamsGroupDescribeRequest,
    response: StreamsGroupDescribeResponse,
    versions: '0',
    handle: (_services, { groupIds }) => ({
      throttleTimeMs: 0,
      groups: groupIds.map(undescribed),
    }),
  }),
];

const shareGroupApis: readonly ApiHandler[] = [
  apiHandler({
    request: ShareGroupHeartbeatRequest,
    response: ShareGroupHeartbeatResponse,
    versions: '1',
    handle: () => NO_HEARTBEAT,
  }),
  apiHandler({
    request: ShareGroupDescribeRequest,
    response: ShareGroupDescribeResponse,
    versions: '1',
    handle: (_services, { groupIds }) => ({
      throttleTimeMs: 0,
      groups: groupIds.map((groupId) => ({ ...undescribed(groupId), assignorName: '' })),
    }),
  }),
  apiHandler({
    request: DescribeShareGroupOffsetsRequest,
    response: DescribeShareGroupOffsetsResponse,
    versions: '0-1',
    handle: (_services, { groups }) => ({
      throttleTimeMs: 0,
      groups: groups.map(({ groupId }) => ({ groupId, topics: [], errorCode: NOT_COORDINATOR })),
    }),
  }),
  apiHandler({
    request: AlterShareGroupOffsetsRequest,
    response: AlterShareGroupOffsetsResponse,
    versions: '0',
    handle: (_services, { topics }) => ({
      ...REFUSED,
      responses: topics.map(({ topicName, partitions }) => ({
        topicName,
        topicId: ZERO_UUID,
        partitions: partitions.map(({ partitionIndex }) => ({
          partitionIndex,
          errorCode: NOT_COORDINATOR,
        })),
      })),
    }),
  }),
  apiHandler({
    request: DeleteShareGroupOffsetsRequest,
    response: DeleteShareGroupOffsetsResponse,
    versions: '0',
    handle: () => ({ ...REFUSED, responses: [] }),
  }),
];

/** APIs 24–26, 28, 65, 68, 69, 76, 77 and 88–92. */
export const coordinatorApis: readonly ApiHandler[] = [
  ...transactionApis,
  ...groupApis,
  ...shareGroupApis,
];
