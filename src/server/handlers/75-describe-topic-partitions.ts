/**
 * DescribeTopicPartitions: partitions of topics, in pages (KIP-966).
 *
 * Topics come in name order; a page ends after the requested number of partitions, and the cursor
 * says where the next one begins.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { INTERNAL_TOPIC_NAMES } from '../../metadata/topic-names.ts';
import { errors } from '../../protocol/errors.ts';
import {
  DescribeTopicPartitionsRequest,
  DescribeTopicPartitionsResponse,
} from '../../protocol/messages/75-describe-topic-partitions.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import { apiHandler } from '../api-handler.ts';
import { partitionView } from '../cluster-view.ts';

/** Most partitions in one page, whatever the client asks for (Apache's default limit). */
const MAX_PAGE_PARTITIONS = 2_000;

type Answer = EncodableOf<typeof DescribeTopicPartitionsResponse>;

/** API 75. */
export const describeTopicPartitions = apiHandler({
  request: DescribeTopicPartitionsRequest,
  response: DescribeTopicPartitionsResponse,
  versions: '0',
  handle: ({ metadata }, request): Answer => {
    const { image } = metadata;
    const { cursor } = request;
    const all = request.topics.length === 0;
    const names = all ? [...image.topicsByName.keys()] : request.topics.map(({ name }) => name);
    const wanted = [...new Set(names)].sort().filter((name) => name >= (cursor?.topicName ?? ''));
    let room = Math.min(Math.max(request.responsePartitionLimit, 1), MAX_PAGE_PARTITIONS);
    const topics: Answer['topics'][number][] = [];
    for (const name of wanted) {
      const topic = image.topicsByName.get(name);
      if (topic === undefined) {
        const errorCode = errors.UNKNOWN_TOPIC_OR_PARTITION.code;
        topics.push({ errorCode, name, topicId: ZERO_UUID, partitions: [] });
        continue;
      }
      const from = cursor?.topicName === name ? cursor.partitionIndex : 0;
      const rest = [...topic.partitions.values()]
        .filter(({ partition }) => partition >= from)
        .sort((a, b) => a.partition - b.partition);
      const page = rest.slice(0, room);
      if (page.length > 0 || rest.length === 0) {
        topics.push({
          errorCode: errors.NONE.code,
          name,
          topicId: topic.id,
          isInternal: INTERNAL_TOPIC_NAMES.has(name),
          partitions: page.map((partition) => ({
            ...partitionView(image, partition),
            eligibleLeaderReplicas: partition.eligibleLeaderReplicas,
            lastKnownElr: partition.lastKnownElr,
          })),
        });
      }
      room -= page.length;
      const next = rest[page.length];
      if (next !== undefined) {
        return { topics, nextCursor: { topicName: name, partitionIndex: next.partition } };
      }
    }
    return { topics };
  },
});
