/**
 * The OffsetCommit of copied offsets and what its answer means (Y6, G27), for both sinks.
 *
 * A topic is named by name and id; a version uses one or the other, in the answer too.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { errors } from '../../protocol/errors.ts';
import type { OffsetCommitResponse } from '../../protocol/messages/08-offset-commit.ts';
import type { CommitResult, OffsetToCommit } from './ports.ts';

/** The topics of an OffsetCommit request. */
export function byTopic(offsets: readonly OffsetToCommit[]) {
  const topics = new Map<string, OffsetToCommit[]>();
  for (const each of offsets) {
    const same = topics.get(each.topic);
    if (same === undefined) topics.set(each.topic, [each]);
    else same.push(each);
  }
  return [...topics].map(([name, same]) => ({
    name,
    topicId: same[0]?.topicId ?? ZERO_UUID,
    partitions: same.map(({ partition, offset, metadata }) => ({
      partitionIndex: partition,
      committedOffset: offset,
      // The epochs of the source mean nothing here, and a wrong one makes consumers wait (G27).
      committedLeaderEpoch: -1,
      committedMetadata: metadata,
    })),
  }));
}

/** What became of a commit: a group with members refuses who is none of them. */
export function resultOf(
  asked: readonly OffsetToCommit[],
  { topics }: OffsetCommitResponse,
): CommitResult {
  const names = new Map(asked.map(({ topic, topicId }) => [topicId, topic]));
  const failed = topics.flatMap(({ name, topicId, partitions }) =>
    partitions
      .filter(({ errorCode }) => errorCode !== errors.NONE.code)
      .map(({ partitionIndex, errorCode }) => ({
        topic: name === '' ? (names.get(topicId) ?? '') : name,
        partition: partitionIndex,
        errorCode,
      })),
  );
  const code = errors.UNKNOWN_MEMBER_ID.code;
  if (failed.some(({ errorCode }) => errorCode === code)) return { kind: 'members' };
  return { kind: 'done', failed };
}
