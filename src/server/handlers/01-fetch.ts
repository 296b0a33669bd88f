/**
 * Fetch: record batches as they are in the log, for consumers, followers and mirrors.
 *
 * Bytes go from the log to the socket by reference. READ_COMMITTED is bounded by the last stable
 * offset and lists aborted transactions; sessions, long poll, limits and what stands in for aborted
 * batches (P3) are replication's. Topics are named by id from version 13 on.
 */
import { errors } from '../../protocol/errors.ts';
import { FetchRequest, FetchResponse } from '../../protocol/messages/01-fetch.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import type { FetchParams, FetchPartition, FetchResult } from '../../replication/fetch-types.ts';
import { apiHandler, type BrokerServices, type RequestContext } from '../api-handler.ts';
import { leaderEndpoints } from '../cluster-view.ts';

type Answer = EncodableOf<typeof FetchResponse>;
type TopicAnswer = {
  -readonly [K in keyof Answer['responses'][number]]: Answer['responses'][number][K];
};
type PartitionAnswer = TopicAnswer['partitions'][number];

const READ_COMMITTED = 1;
const NO_REPLICA = -1;
/** First version that can send a consumer to another replica (KIP-392). */
const READ_REPLICA_VERSION = 11;
/** First version that names the current leader and where logs diverged. */
const LEADER_HINT_VERSION = 12;
/** First version that says where those leaders are (KIP-951). */
const LEADER_ENDPOINT_VERSION = 16;

function paramsOf(
  { config }: BrokerServices,
  request: FetchRequest,
  apiVersion: number,
): FetchParams {
  const { replicaState, mirrorFetch } = request;
  const replicaId = replicaState.replicaId >= 0 ? replicaState.replicaId : request.replicaId;
  return {
    replicaId,
    replicaEpoch: replicaState.replicaEpoch,
    maxWaitMs: request.maxWaitMs,
    minBytes: request.minBytes,
    maxBytes: Math.min(request.maxBytes, config.number('fetch.max.bytes')),
    readCommitted: request.isolationLevel === READ_COMMITTED,
    mirrorFetch,
    canChangeReplica: apiVersion >= READ_REPLICA_VERSION && replicaId < 0 && !mirrorFetch,
  };
}

function partitionsOf(request: FetchRequest): FetchPartition[] {
  return request.topics.flatMap(({ topic, topicId, partitions }) =>
    partitions.map((each) => ({
      topicId,
      topic,
      partition: each.partition,
      fetchOffset: each.fetchOffset,
      maxBytes: each.partitionMaxBytes,
      currentLeaderEpoch: each.currentLeaderEpoch,
      lastFetchedEpoch: each.lastFetchedEpoch,
      logStartOffset: each.logStartOffset,
    })),
  );
}

function answerOf(result: FetchResult, apiVersion: number): PartitionAnswer {
  const { abortedTransactions } = result;
  const { divergingEpoch, currentLeader }: Partial<FetchResult> =
    apiVersion >= LEADER_HINT_VERSION ? result : {};
  return {
    partitionIndex: result.partition,
    errorCode: result.error,
    highWatermark: result.highWatermark,
    lastStableOffset: result.lastStableOffset,
    logStartOffset: result.logStartOffset,
    abortedTransactions: abortedTransactions ?? null,
    preferredReadReplica: result.preferredReadReplica ?? NO_REPLICA,
    records: result.records,
    ...(divergingEpoch === undefined ? {} : { divergingEpoch }),
    ...(currentLeader === undefined ? {} : { currentLeader }),
  };
}

/** Consecutive results of one topic become one entry. */
function grouped(results: readonly FetchResult[], apiVersion: number): TopicAnswer[] {
  const topics: (TopicAnswer & { partitions: PartitionAnswer[] })[] = [];
  for (const result of results) {
    const last = topics.at(-1);
    const same = last?.topicId === result.topicId && last.topic === result.topic;
    if (last !== undefined && same) last.partitions.push(answerOf(result, apiVersion));
    else {
      topics.push({
        topic: result.topic,
        topicId: result.topicId,
        partitions: [answerOf(result, apiVersion)],
      });
    }
  }
  return topics;
}

async function handle(
  services: BrokerServices,
  request: FetchRequest,
  context: RequestContext,
): Promise<Answer> {
  const { apiVersion, listenerName } = context;
  const forgotten = request.forgottenTopicsData.flatMap(({ topic, topicId, partitions }) =>
    partitions.map((partition) => ({ topic, topicId, partition })),
  );
  const response = await services.fetchSessions.fetch(
    {
      sessionId: request.sessionId,
      sessionEpoch: request.sessionEpoch,
      partitions: partitionsOf(request),
      forgotten,
    },
    paramsOf(services, request, apiVersion),
  );
  if (!('results' in response)) {
    return { errorCode: response.error, sessionId: response.sessionId, responses: [] };
  }
  const answer = {
    errorCode: errors.NONE.code,
    sessionId: response.sessionId,
    responses: grouped(response.results, apiVersion),
  };
  if (apiVersion < LEADER_ENDPOINT_VERSION) return answer;
  const leaders = response.results.flatMap(({ currentLeader }) => currentLeader?.leaderId ?? []);
  const nodeEndpoints = leaderEndpoints(services.metadata.image, listenerName, leaders);
  return { ...answer, nodeEndpoints };
}

/** API 1. */
export const fetch = apiHandler({
  request: FetchRequest,
  response: FetchResponse,
  versions: '4-18',
  handle,
});
