/**
 * DeleteRecords: raises the log start; refused on a read-only mirror topic (rule R2).
 *
 * The refusal and the wait for the replicas are replication's; answers are per partition.
 */
import {
  DeleteRecordsRequest,
  DeleteRecordsResponse,
} from '../../protocol/messages/21-delete-records.ts';
import { apiHandler } from '../api-handler.ts';

/** API 21. */
export const deleteRecords = apiHandler({
  request: DeleteRecordsRequest,
  response: DeleteRecordsResponse,
  versions: '0-2',
  handle: async ({ replicas }, request) => {
    const entries = request.topics.flatMap(({ name, partitions }) =>
      partitions.map(({ partitionIndex, offset }) => ({
        topic: name,
        partition: partitionIndex,
        offset,
      })),
    );
    const results = await replicas.deleteRecords(request.timeoutMs, entries);
    const topics = request.topics.map(({ name }) => ({
      name,
      partitions: results
        .filter(({ topic }) => topic === name)
        .map(({ partition, error, lowWatermark }) => ({
          partitionIndex: partition,
          lowWatermark,
          errorCode: error,
        })),
    }));
    return { throttleTimeMs: 0, topics };
  },
});
