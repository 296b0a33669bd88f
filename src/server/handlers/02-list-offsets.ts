/**
 * ListOffsets: earliest, latest and by-timestamp offsets of partitions that this broker leads.
 *
 * With READ_COMMITTED "latest" is the last stable offset, for a replica it is the log end (G14).
 * Versions below 7, 8, 9 and 11 do not know max timestamp, earliest local, latest tiered and
 * earliest pending upload: UNSUPPORTED_VERSION for that partition.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { errors } from '../../protocol/errors.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../protocol/messages/02-list-offsets.ts';
import { OffsetSpec } from '../../replication/list-offsets.ts';
import { apiHandler } from '../api-handler.ts';

const READ_COMMITTED = 1;
/** The first version that knows each special timestamp. */
const FIRST_VERSIONS: ReadonlyMap<bigint, number> = new Map([
  [OffsetSpec.MAX_TIMESTAMP, 7],
  [OffsetSpec.EARLIEST_LOCAL, 8],
  [OffsetSpec.LATEST_TIERED, 9],
  [OffsetSpec.EARLIEST_PENDING_UPLOAD, 11],
]);

/** API 2. */
export const listOffsets = apiHandler({
  request: ListOffsetsRequest,
  response: ListOffsetsResponse,
  versions: '1-11',
  handle: ({ replicas }, request, { apiVersion }) => {
    const params = {
      replicaId: request.replicaId,
      readCommitted: request.isolationLevel === READ_COMMITTED,
    };
    const topics = request.topics.map(({ name, partitions }) => {
      const answers = replicas.listOffsets(
        params,
        partitions.map((each) => ({
          topic: name,
          topicId: ZERO_UUID,
          partition: each.partitionIndex,
          currentLeaderEpoch: each.currentLeaderEpoch,
          timestamp: each.timestamp,
        })),
      );
      return {
        name,
        partitions: partitions.map(({ partitionIndex, timestamp }, at) => {
          const answer = answers[at];
          const tooOld = apiVersion < (FIRST_VERSIONS.get(timestamp) ?? 0);
          if (tooOld || answer === undefined) {
            return { partitionIndex, errorCode: errors.UNSUPPORTED_VERSION.code };
          }
          return {
            partitionIndex,
            errorCode: answer.error,
            timestamp: answer.timestamp,
            offset: answer.offset,
            // Versions without the field must not be given a value for it.
            ...(apiVersion >= 4 ? { leaderEpoch: answer.leaderEpoch } : {}),
          };
        }),
      };
    });
    return { topics };
  },
});
