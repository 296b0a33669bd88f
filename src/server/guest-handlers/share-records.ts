/**
 * ShareFetch and ShareAcknowledge in guest mode: NOT_LEADER_OR_FOLLOWER for every partition.
 *
 * Share groups read from leaders, and their deliveries are kept by a coordinator per partition that
 * a guest has not. They can consume a mirrored topic after its failover. A fetch is held as long as
 * the client allows, so that clients who try again do so in peace.
 */
import type { Uuid } from '../../base/uuid.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import { NO_LEADER } from '../../metadata/image.ts';
import { errors } from '../../protocol/errors.ts';
import { ShareFetchRequest, ShareFetchResponse } from '../../protocol/messages/78-share-fetch.ts';
import {
  ShareAcknowledgeRequest,
  ShareAcknowledgeResponse,
} from '../../protocol/messages/79-share-acknowledge.ts';
import { type ApiHandler, apiHandler, type BrokerServices } from '../api-handler.ts';

/** Ends a share session: nothing more is to come. */
const FINAL_EPOCH = -1;
/** Longest hold, whatever the client allows. */
const MAX_HOLD_MS = 5_000;
const NO_RECORDS = new Uint8Array(0);

function refusal(image: MetadataImage, topicId: Uuid, partitionIndex: number) {
  const topic = image.topicsById.get(topicId);
  const partition = topic?.partitions.get(partitionIndex);
  const { code } =
    topic === undefined
      ? errors.UNKNOWN_TOPIC_ID
      : partition === undefined
        ? errors.UNKNOWN_TOPIC_OR_PARTITION
        : errors.NOT_LEADER_OR_FOLLOWER;
  const leaderId = partition?.leader ?? NO_LEADER;
  const leaderEpoch = partition?.leaderEpoch ?? -1;
  return { partitionIndex, errorCode: code, currentLeader: { leaderId, leaderEpoch } };
}

function hold({ runtime }: BrokerServices, request: ShareFetchRequest): Promise<void> {
  const holdMs = Math.min(request.maxWaitMs, MAX_HOLD_MS);
  if (request.shareSessionEpoch === FINAL_EPOCH || holdMs <= 0) return Promise.resolve();
  return new Promise((resolve) => {
    runtime.clock.setTimer(holdMs, resolve);
  });
}

const shareFetch = apiHandler({
  request: ShareFetchRequest,
  response: ShareFetchResponse,
  versions: '1-2',
  handle: async (services, request) => {
    await hold(services, request);
    const { image } = services.metadata;
    return {
      throttleTimeMs: 0,
      errorCode: errors.NONE.code,
      acquisitionLockTimeoutMs: 0,
      responses: request.topics.map(({ topicId, partitions }) => ({
        topicId,
        partitions: partitions.map(({ partitionIndex, acknowledgementBatches }) => {
          const refused = refusal(image, topicId, partitionIndex);
          const acknowledged = acknowledgementBatches.length > 0;
          return {
            ...refused,
            acknowledgeErrorCode: acknowledged ? refused.errorCode : errors.NONE.code,
            records: NO_RECORDS,
            acquiredRecords: [],
          };
        }),
      })),
      nodeEndpoints: [],
    };
  },
});

const shareAcknowledge = apiHandler({
  request: ShareAcknowledgeRequest,
  response: ShareAcknowledgeResponse,
  versions: '1-2',
  handle: ({ metadata }, { topics }) => ({
    throttleTimeMs: 0,
    errorCode: errors.NONE.code,
    responses: topics.map(({ topicId, partitions }) => ({
      topicId,
      partitions: partitions.map(({ partitionIndex }) =>
        refusal(metadata.image, topicId, partitionIndex),
      ),
    })),
    nodeEndpoints: [],
  }),
});

/** APIs 78 and 79. */
export const shareRecordApis: readonly ApiHandler[] = [shareFetch, shareAcknowledge];
