/**
 * AlterPartitionReassignments for many partitions: batched (G26), answered per partition.
 *
 * Used by handover, takeover, sweeper and rescue. Sending one again changes nothing: the controller
 * compares with what it has. A pending reassignment none of whose new replicas are wanted any more
 * is cancelled first: the controller of Apache Kafka 4.4 would go on waiting for them.
 */
import type { MetadataImage } from '../../metadata/image.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  AlterPartitionReassignmentsRequest,
  AlterPartitionReassignmentsResponse,
} from '../../protocol/messages/45-alter-partition-reassignments.ts';
import { type JobController, nameOf, type PartitionName } from './job-ports.ts';

/** Partitions in one request; each is one record, and a controller writes 10,000 in one batch. */
export const REASSIGNMENT_BATCH = 5_000;
/** How long the controller may take for one request, in ms. */
const TIMEOUT_MS = 30_000;

/** Done, or there was nothing to take back. */
const HARMLESS: ReadonlySet<number> = new Set([
  errors.NONE.code,
  errors.NO_REASSIGNMENT_IN_PROGRESS.code,
]);

/** Where a partition is to go, first replica first. */
export interface Reassignment extends PartitionName {
  readonly replicas: readonly number[];
}

/** The same, or (null) that a pending one is taken back. */
interface Change extends PartitionName {
  readonly replicas: readonly number[] | null;
}

/** Partitions by topic, as requests want them. */
export function byTopic<T extends PartitionName>(partitions: readonly T[]): Map<string, T[]> {
  const topics = new Map<string, T[]>();
  for (const partition of partitions) {
    const list = topics.get(partition.topic);
    if (list === undefined) topics.set(partition.topic, [partition]);
    else list.push(partition);
  }
  return topics;
}

/** What cancelling leaves, where all that a pending reassignment adds is unwanted by now. */
function afterCancelling(
  image: MetadataImage,
  { topic, partition, replicas }: Reassignment,
): readonly number[] | undefined {
  const found = image.topicsByName.get(topic)?.partitions.get(partition);
  const { replicas: current = [], addingReplicas: adding = [] } = found ?? {};
  const isAbandoned = adding.length > 0 && !adding.some((id) => replicas.includes(id));
  return isAbandoned ? current.filter((id) => !adding.includes(id)) : undefined;
}

/** Sends them; answers why some did not start, by {@link nameOf}. */
export async function reassign(
  controller: JobController,
  wanted: readonly Reassignment[],
  image: MetadataImage,
): Promise<Map<string, string>> {
  const cancelled: Change[] = [];
  const started: Change[] = [];
  for (const each of wanted) {
    const left = afterCancelling(image, each);
    if (left !== undefined) cancelled.push({ ...each, replicas: null });
    if (String(left) !== String(each.replicas)) started.push(each);
  }
  const problems = await inBatches(controller, cancelled);
  const rest = started.filter((each) => !problems.has(nameOf(each)));
  return new Map([...problems, ...(await inBatches(controller, rest))]);
}

async function inBatches(
  controller: JobController,
  wanted: readonly Change[],
): Promise<Map<string, string>> {
  const problems = new Map<string, string>();
  for (let from = 0; from < wanted.length; from += REASSIGNMENT_BATCH) {
    const batch = wanted.slice(from, from + REASSIGNMENT_BATCH);
    for (const [name, problem] of await reassignBatch(controller, batch)) {
      problems.set(name, problem);
    }
  }
  return problems;
}

async function reassignBatch(
  controller: JobController,
  batch: readonly Change[],
): Promise<Map<string, string>> {
  const all = (why: string): Map<string, string> =>
    new Map(batch.map((partition) => [nameOf(partition), why]));
  try {
    const response = await controller.send(
      AlterPartitionReassignmentsRequest,
      AlterPartitionReassignmentsResponse,
      {
        timeoutMs: TIMEOUT_MS,
        topics: [...byTopic(batch)].map(([name, partitions]) => ({
          name,
          partitions: partitions.map(({ partition, replicas }) => ({
            partitionIndex: partition,
            replicas: replicas === null ? null : [...replicas],
          })),
        })),
      },
    );
    const { errorCode, errorMessage } = response;
    if (errorCode !== errors.NONE.code) return all(refusal(errorCode, errorMessage));
    const problems = new Map<string, string>();
    for (const { name: topic, partitions } of response.responses) {
      for (const answer of partitions) {
        if (HARMLESS.has(answer.errorCode)) continue;
        const name = nameOf({ topic, partition: answer.partitionIndex });
        problems.set(name, refusal(answer.errorCode, answer.errorMessage));
      }
    }
    return problems;
  } catch (error) {
    if (!isPassing(error)) throw error;
    return all(`the controller did not answer: ${error.message}`);
  }
}

function refusal(code: number, message: string | null): string {
  return `the controller refuses its reassignment: ${message ?? errorName(code)}`;
}
