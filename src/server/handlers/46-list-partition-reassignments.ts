/**
 * ListPartitionReassignments: partitions whose replicas are being changed.
 *
 * Reassignment itself comes with more than one broker; the answer is true all the same, since it is
 * read from the metadata image.
 */
import { errors } from '../../protocol/errors.ts';
import {
  ListPartitionReassignmentsRequest,
  ListPartitionReassignmentsResponse,
} from '../../protocol/messages/46-list-partition-reassignments.ts';
import { apiHandler } from '../api-handler.ts';

/** API 46. */
export const listPartitionReassignments = apiHandler({
  request: ListPartitionReassignmentsRequest,
  response: ListPartitionReassignmentsResponse,
  versions: '0',
  handle: ({ metadata }, request) => {
    const { topicsByName } = metadata.image;
    const names = request.topics?.map(({ name }) => name) ?? [...topicsByName.keys()];
    const topics = names.flatMap((name) => {
      const asked = request.topics?.find((topic) => topic.name === name)?.partitionIndexes;
      const partitions = [...(topicsByName.get(name)?.partitions.values() ?? [])]
        .filter(({ partition }) => asked?.includes(partition) ?? true)
        .filter((each) => each.addingReplicas.length + each.removingReplicas.length > 0)
        .map((each) => ({
          partitionIndex: each.partition,
          replicas: each.replicas,
          addingReplicas: each.addingReplicas,
          removingReplicas: each.removingReplicas,
        }));
      return partitions.length > 0 ? [{ name, partitions }] : [];
    });
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, errorMessage: null, topics };
  },
});
