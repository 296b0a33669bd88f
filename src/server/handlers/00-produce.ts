/**
 * Produce: appends batches of clients; the answer waits as `acks` asks.
 *
 * Whether a partition takes the write is decided in one place, `Partition.append`; a mirrored
 * topic's refusal is POLICY_VIOLATION with a message that begins `ReadOnlyTopicException:` (rule
 * R3). Transactional batches are refused until transactions are served. With acks=0 there is no
 * answer; a failure then closes the connection, which is all such a client can notice.
 */
import { type Uuid, ZERO_UUID } from '../../base/uuid.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { ProduceRequest, ProduceResponse } from '../../protocol/messages/00-produce.ts';
import { batchProblem, NO_PRODUCER_ID, RecordBatch } from '../../protocol/record-batch.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import type { ProduceEntry, ProduceResult } from '../../replication/produce.ts';
import {
  type ApiHandler,
  apiHandler,
  type BrokerServices,
  NO_RESPONSE,
  type RequestContext,
} from '../api-handler.ts';
import { leaderEndpoints } from '../cluster-view.ts';
import { UnanswerableRequest } from '../socket-server.ts';

type Answer = EncodableOf<typeof ProduceResponse>;
type TopicAnswer = Answer['responses'][number];
type PartitionAnswer = TopicAnswer['partitionResponses'][number];

/** First version that says who leads instead (KIP-951). */
const LEADER_HINT_VERSION = 10;
/** First version that names topics by id. */
const TOPIC_ID_VERSION = 13;
/** Offsets of a refused append. */
const REFUSED = { baseOffset: -1, logAppendTimeMs: -1, logStartOffset: -1 };

interface Slot {
  readonly topic: number;
  readonly index: number;
  /** Position among the appended entries, or the answer given without appending. */
  readonly outcome: number | PartitionAnswer;
}

function answerOf(result: ProduceResult, apiVersion: number): PartitionAnswer {
  const currentLeader = apiVersion >= LEADER_HINT_VERSION ? result.currentLeader : undefined;
  return {
    index: result.partition,
    errorCode: result.error,
    baseOffset: result.baseOffset,
    logAppendTimeMs: result.logAppendTimeMs,
    logStartOffset: result.logStartOffset,
    errorMessage: result.message ?? null,
    recordErrors: (result.recordErrors ?? []).map(({ batchIndex, message }) => ({
      batchIndex,
      batchIndexErrorMessage: message,
    })),
    ...(currentLeader === undefined ? {} : { currentLeader }),
  };
}

/** What a request asks of one partition. */
export interface ProduceQuestion {
  readonly topic: string;
  readonly partition: number;
  readonly isTransactional: boolean;
}

/** An error code to answer without appending, or undefined. */
export type ProduceRefusal = (
  services: BrokerServices,
  question: ProduceQuestion,
) => number | undefined;

/** Nobody could end it: the last stable offset would stand still for ever. */
const refuseTransactions: ProduceRefusal = (_services, { isTransactional }) =>
  isTransactional ? errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code : undefined;

/** Which entries are appended, and what is answered for the others. */
function plan(
  services: BrokerServices,
  request: ProduceRequest,
  byId: boolean,
  refusal: ProduceRefusal,
): { slots: Slot[]; entries: ProduceEntry[] } {
  const slots: Slot[] = [];
  const entries: ProduceEntry[] = [];
  for (const [topic, { name, topicId, partitionData }] of request.topicData.entries()) {
    const known: { name: string; id: Uuid } | undefined = byId
      ? services.metadata.image.topicsById.get(topicId)
      : { name, id: ZERO_UUID };
    for (const { index, records } of partitionData) {
      const refuse = (isTransactional: boolean): number | undefined =>
        refusal(services, { topic: known?.name ?? name, partition: index, isTransactional });
      const errorCode = errorBeforeAppend(request, known !== undefined, records, refuse);
      if (errorCode === undefined && known !== undefined && records !== null) {
        slots.push({ topic, index, outcome: entries.length });
        entries.push({ topic: known.name, topicId: known.id, partition: index, records });
        continue;
      }
      const refused = { index, errorCode: errorCode ?? -1, ...REFUSED };
      slots.push({ topic, index, outcome: refused });
    }
  }
  return { slots, entries };
}

function errorBeforeAppend(
  request: ProduceRequest,
  known: boolean,
  records: Uint8Array | null,
  refuse: (isTransactional: boolean) => number | undefined,
): number | undefined {
  if (!known) return errors.UNKNOWN_TOPIC_ID.code;
  if (records === null || records.length === 0) return errors.INVALID_RECORD.code;
  // Bytes that are no batch are refused at the append; of batches, exactly one is accepted there.
  if (batchProblem(records) !== undefined) return refuse(request.transactionalId !== null);
  const batch = new RecordBatch(records);
  const refused = refuse(request.transactionalId !== null || batch.isTransactional);
  if (refused !== undefined) return refused;
  // Ids below −1 are those of mirrored records (P1); a client's would pass for one of them.
  if (batch.producerId < NO_PRODUCER_ID) return errors.INVALID_RECORD.code;
  return undefined;
}

async function handle(
  services: BrokerServices,
  request: ProduceRequest,
  context: RequestContext,
  refusal: ProduceRefusal,
): Promise<Answer | typeof NO_RESPONSE> {
  const { acks, timeoutMs } = request;
  const { apiVersion, listenerName } = context;
  const { slots, entries } = plan(services, request, apiVersion >= TOPIC_ID_VERSION, refusal);
  const params = { acks, timeoutMs, source: 'client' as const };
  const results = entries.length === 0 ? [] : await services.replicas.produce(params, entries);
  const answers = slots.map(({ outcome }) => {
    if (typeof outcome !== 'number') return outcome;
    const result = results[outcome];
    return result === undefined ? undefined : answerOf(result, apiVersion);
  });
  if (acks === 0) {
    const failed = answers.find((answer) => answer?.errorCode !== errors.NONE.code);
    if (failed === undefined) return NO_RESPONSE;
    throw new UnanswerableRequest(`a produce with acks=0 failed: ${errorName(failed.errorCode)}`);
  }
  const responses: TopicAnswer[] = request.topicData.map(({ name, topicId }, topic) => ({
    name,
    topicId,
    partitionResponses: answers.filter(
      (answer, at): answer is PartitionAnswer => answer !== undefined && slots[at]?.topic === topic,
    ),
  }));
  if (apiVersion < LEADER_HINT_VERSION) return { responses };
  const leaders = results.flatMap(({ currentLeader }) => currentLeader?.leaderId ?? []);
  return {
    responses,
    nodeEndpoints: leaderEndpoints(services.metadata.image, listenerName, leaders),
  };
}

/** API 0 with what is refused before it comes to an append. */
export function produceHandler(refusal: ProduceRefusal): ApiHandler {
  return apiHandler({
    request: ProduceRequest,
    response: ProduceResponse,
    versions: '3-13',
    handle: (services, request, context) => handle(services, request, context, refusal),
  });
}

/** API 0. */
export const produce = produceHandler(refuseTransactions);
