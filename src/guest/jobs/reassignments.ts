/**
 * AlterPartitionReassignments for many partitions: batched (G26), answered per partition.
 *
 * Used by handover and sweeper. Sending one again changes nothing: the controller compares with
 * what it has.
 */
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

/** Where a partition is to go, first replica first. */
export interface Reassignment extends PartitionName {
  readonly replicas: readonly number[];
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

/** Sends them; answers why some did not start, by {@link nameOf}. */
export async function reassign(
  controller: JobController,
  wanted: readonly Reassignment[],
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
  batch: readonly Reassignment[],
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
            replicas: [...replicas],
          })),
        })),
      },
    );
    const { errorCode, errorMessage } = response;
    if (errorCode !== errors.NONE.code) return all(refusal(errorCode, errorMessage));
    const problems = new Map<string, string>();
    for (const { name: topic, partitions } of response.responses) {
      for (const answer of partitions) {
        if (answer.errorCode === errors.NONE.code) continue;
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
