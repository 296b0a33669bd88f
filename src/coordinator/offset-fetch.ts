/**
 * The answer to OffsetFetch for one group.
 *
 * Called by the group coordinator inside a committed read. A partition without a committed offset
 * is answered with offset −1 and no error, as Apache Kafka does, also in unknown groups.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { errors } from '../protocol/errors.ts';
import type {
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../protocol/messages/09-offset-fetch.ts';
import type { TopicResolver } from './group-config.ts';
import type { CommittedOffset } from './group-records.ts';
import { isOfOtherTopic } from './offset-operations.ts';
import type { GroupOffsets } from './offset-store.ts';

type Topics = OffsetFetchResponse['groups'][number]['topics'];
type Partition = Topics[number]['partitions'][number];

/** Offsets of the topics asked for (null: all that have one), by name or by id. */
export function fetchGroupOffsets(
  offsets: GroupOffsets,
  asked: OffsetFetchRequest['groups'][number]['topics'],
  byId: boolean,
  resolver: TopicResolver,
): Topics {
  if (asked === null) return allOffsets(offsets, byId, resolver);
  return asked.map((topic) => {
    const name = byId ? resolver.nameOf(topic.topicId) : topic.name;
    if (name === undefined) {
      const errorCode = errors.UNKNOWN_TOPIC_ID.code;
      const partitions = topic.partitionIndexes.map((index) => partitionAnswer(index, errorCode));
      return { name: '', topicId: topic.topicId, partitions };
    }
    const topicId = byId ? topic.topicId : (resolver.idOf(name) ?? ZERO_UUID);
    const committed = offsets.get(name);
    const partitions = topic.partitionIndexes.map((index) => {
      const offset = committed?.get(index);
      const isAbsent = offset === undefined || isOfOtherTopic(offset, topicId);
      return partitionAnswer(index, errors.NONE.code, isAbsent ? undefined : offset);
    });
    return { name, topicId, partitions };
  });
}

function allOffsets(offsets: GroupOffsets, byId: boolean, resolver: TopicResolver): Topics {
  const topics: Topics = [];
  for (const [name, committed] of offsets) {
    const topicId = resolver.idOf(name) ?? ZERO_UUID;
    // A topic that is gone has no id to be named by.
    if (byId && topicId === ZERO_UUID) continue;
    const partitions: Partition[] = [];
    for (const [index, offset] of committed) {
      if (isOfOtherTopic(offset, topicId)) continue;
      partitions.push(partitionAnswer(index, errors.NONE.code, offset));
    }
    if (partitions.length > 0) topics.push({ name, topicId, partitions });
  }
  return topics;
}

function partitionAnswer(
  partitionIndex: number,
  errorCode: number,
  offset?: CommittedOffset,
): Partition {
  return {
    partitionIndex,
    committedOffset: offset?.offset ?? -1,
    committedLeaderEpoch: offset?.leaderEpoch ?? -1,
    metadata: offset?.metadata ?? '',
    errorCode,
  };
}
