/**
 * OffsetForLeaderEpoch: where a leader epoch ends in this broker's log.
 *
 * Followers, consumers and mirrors (rule F10) find out with it where their log diverged.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../../protocol/messages/23-offset-for-leader-epoch.ts';
import { apiHandler } from '../api-handler.ts';

/** API 23. */
export const offsetForLeaderEpoch = apiHandler({
  request: OffsetForLeaderEpochRequest,
  response: OffsetForLeaderEpochResponse,
  versions: '2-4',
  handle: ({ replicas }, request) => ({
    topics: request.topics.map(({ topic, partitions }) => ({
      topic,
      partitions: partitions.map(({ partition, currentLeaderEpoch, leaderEpoch }) => {
        const query = { topic, topicId: ZERO_UUID, partition, currentLeaderEpoch, leaderEpoch };
        const [answer] = replicas.offsetsForLeaderEpoch([query]);
        return {
          partition,
          errorCode: answer?.error ?? -1,
          leaderEpoch: answer?.leaderEpoch ?? -1,
          endOffset: answer?.endOffset ?? -1,
        };
      }),
    })),
  }),
});
