/**
 * Where the logs of Apache brokers end that follow partitions nobody leads (G18a).
 *
 * Used by the rescue. A broker tells its log end, as far as it was replicated and not only as far
 * as it is committed, to whoever asks ListOffsets as a debugging replica, leader or not. Its last
 * epoch is found by Fetches as a consumer that claims to have read beyond the end in some epoch:
 * for an epoch above its last one it answers OFFSET_OUT_OF_RANGE, for any other where that
 * diverges. No data is transferred.
 */
import { type ErrorCode, errorName, errors } from '../../protocol/errors.ts';
import { FetchRequest, FetchResponse } from '../../protocol/messages/01-fetch.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../protocol/messages/02-list-offsets.ts';
import { type ClusterClient, ClusterError, type ClusterTarget } from '../cluster-client.ts';
import { nameOf, type PartitionName } from '../jobs/job-ports.ts';
import { byTopic } from '../jobs/reassignments.ts';

/** Who may ask a follower. */
const DEBUGGING_REPLICA = -2;
const LATEST = -1n;
const EARLIEST = -2n;
/** The last version of Fetch that names topics. */
const LAST_NAMED_FETCH = 12;
/** Partitions in one request. */
const BATCH = 1_000;
/** How long a broker is asked again, in ms. */
const ASK_BOUND_MS = 5_000;

/** A partition to ask about. */
export interface AskedPartition extends PartitionName {
  /** Of the partition as the metadata has it: no batch has a higher one. */
  readonly leaderEpoch: number;
}

/** The log that a broker has of a partition. */
export interface ReplicaLog {
  readonly brokerId: number;
  readonly start: number;
  readonly end: number;
  /** Leader epoch of its last batch; −1: it has none. */
  readonly lastEpoch: number;
}

/** Its log, or why it is not known. */
export type ReplicaAnswer = ReplicaLog | { readonly brokerId: number; readonly why: string };

type Ends = Map<string, { readonly errorCode: ErrorCode; readonly offset: number }>;

async function listOffsets(
  client: ClusterClient,
  to: ClusterTarget,
  partitions: readonly AskedPartition[],
  timestamp: bigint,
): Promise<Ends> {
  const { topics } = await client.call(
    to,
    ListOffsetsRequest,
    ListOffsetsResponse,
    {
      replicaId: DEBUGGING_REPLICA,
      isolationLevel: 0,
      timeoutMs: ASK_BOUND_MS,
      topics: [...byTopic(partitions)].map(([name, list]) => ({
        name,
        partitions: list.map(({ partition }) => ({ partitionIndex: partition, timestamp })),
      })),
    },
    { retryBoundMs: ASK_BOUND_MS },
  );
  return new Map(
    topics.flatMap(({ name: topic, partitions: answers }) =>
      answers.map(({ partitionIndex: partition, errorCode, offset }) => [
        nameOf({ topic, partition }),
        { errorCode: errorCode as ErrorCode, offset },
      ]),
    ),
  );
}

interface Search extends AskedPartition {
  readonly end: number;
  /** The last epoch is at least this, and below `above`. */
  low: number;
  above: number;
}

/** One round of the search for last epochs: halves every range. */
async function searchEpochs(
  client: ClusterClient,
  to: ClusterTarget,
  searches: readonly Search[],
): Promise<void> {
  const middle = ({ low, above }: Search): number => Math.floor((low + above) / 2);
  const { responses } = await client.call(
    to,
    FetchRequest,
    FetchResponse,
    {
      maxWaitMs: 0,
      minBytes: 0,
      maxBytes: 1,
      isolationLevel: 0,
      topics: [...byTopic(searches)].map(([topic, list]) => ({
        topic,
        partitions: list.map((search) => ({
          partition: search.partition,
          fetchOffset: search.end + 1,
          lastFetchedEpoch: middle(search),
          partitionMaxBytes: 1,
        })),
      })),
      forgottenTopicsData: [],
    },
    { maxVersion: LAST_NAMED_FETCH, retryBoundMs: ASK_BOUND_MS },
  );
  const answers = new Map(
    responses.flatMap(({ topic, partitions }) =>
      partitions.map((answer) => [nameOf({ topic, partition: answer.partitionIndex }), answer]),
    ),
  );
  for (const search of searches) {
    const answer = answers.get(nameOf(search));
    const isBelow = answer?.errorCode === errors.OFFSET_OUT_OF_RANGE.code;
    const isKnown = answer?.errorCode === errors.NONE.code && answer.divergingEpoch.endOffset >= 0;
    if (!isBelow && !isKnown) {
      const code = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
      throw new ClusterError('refused', `${nameOf(search)}: ${errorName(code)}`, code);
    }
    if (isBelow) search.above = middle(search);
    else search.low = middle(search);
  }
}

/** The logs of one broker, by {@link nameOf}. */
export async function readReplicaLogs(
  client: ClusterClient,
  brokerId: number,
  partitions: readonly AskedPartition[],
): Promise<Map<string, ReplicaAnswer>> {
  const answers = new Map<string, ReplicaAnswer>();
  for (let from = 0; from < partitions.length; from += BATCH) {
    const batch = partitions.slice(from, from + BATCH);
    try {
      await readBatch(client, brokerId, batch, answers);
    } catch (error) {
      if (!(error instanceof ClusterError)) throw error;
      for (const each of batch) answers.set(nameOf(each), { brokerId, why: error.message });
    }
  }
  return answers;
}

async function readBatch(
  client: ClusterClient,
  brokerId: number,
  batch: readonly AskedPartition[],
  answers: Map<string, ReplicaAnswer>,
): Promise<void> {
  const to: ClusterTarget = { to: 'broker', id: brokerId };
  const ends = await listOffsets(client, to, batch, LATEST);
  const starts = await listOffsets(client, to, batch, EARLIEST);
  const searches: Search[] = [];
  for (const each of batch) {
    const [end, start] = [ends.get(nameOf(each)), starts.get(nameOf(each))];
    const errorCode = (end?.errorCode || start?.errorCode) ?? errors.UNKNOWN_SERVER_ERROR.code;
    if (end === undefined || start === undefined || errorCode !== errors.NONE.code) {
      answers.set(nameOf(each), { brokerId, why: errorName(errorCode) });
      continue;
    }
    const log = { brokerId, start: start.offset, end: end.offset, lastEpoch: -1 };
    answers.set(nameOf(each), log);
    searches.push({ ...each, end: end.offset, low: -1, above: each.leaderEpoch + 1 });
  }
  const isOpen = ({ low, above }: Search): boolean => above - low > 1;
  for (let open = searches; open.length > 0; open = open.filter(isOpen)) {
    await searchEpochs(client, to, open.filter(isOpen));
  }
  for (const search of searches) {
    const log = answers.get(nameOf(search));
    if (log !== undefined) answers.set(nameOf(search), { ...log, lastEpoch: search.low });
  }
}
