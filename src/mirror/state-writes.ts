/**
 * WriteMirrorStates: changes rows by request (contract §11), under the rules of S1 and S4.
 *
 * A field that says "leave" keeps what the row has. LeaderEpoch and StateEpoch, where given, are
 * those of the row to be written, so a writer with old knowledge is fenced; without them the newest
 * row is taken as a base.
 */
import type { MetadataImage, TopicImage } from '../metadata/image.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import type {
  WriteMirrorStatesRequest,
  WriteMirrorStatesResponse,
} from '../protocol/messages/12797-write-mirror-states.ts';
import type { MirrorStateStore } from './mirror-coordinator.ts';
import { topicOf } from './queries.ts';
import { MirrorState } from './states.ts';

type UpdatedPartition = WriteMirrorStatesRequest['topicsUpdated'][number]['partitions'][number];

async function writeOne(
  store: MirrorStateStore,
  mirror: string,
  topic: TopicImage,
  update: UpdatedPartition,
): Promise<ErrorCode> {
  const key = { mirror, topicId: topic.id, partition: update.partitionIndex };
  const answer = await store.read(key);
  if (!('row' in answer)) return answer.error;
  const { row } = answer;
  // States come about through their events; by request only a known row is changed.
  if (row === undefined) return errors.RESOURCE_NOT_FOUND.code;
  const moved = update.state !== MirrorState.UNKNOWN && update.state !== row.state;
  const written = {
    ...row,
    state: update.state === MirrorState.UNKNOWN ? row.state : update.state,
    previousState: moved ? row.state : row.previousState,
    lastMirroredOffset:
      update.lastMirroredOffset < 0 ? row.lastMirroredOffset : update.lastMirroredOffset,
    leaderEpoch: update.leaderEpoch < 0 ? row.leaderEpoch : update.leaderEpoch,
    stateEpoch: update.stateEpoch < 0 ? row.stateEpoch + 1 : update.stateEpoch,
  };
  return store.write(key, written);
}

async function removeRows(
  store: MirrorStateStore,
  mirror: string,
  topic: TopicImage,
): Promise<void> {
  for (const partition of topic.partitions.keys()) {
    await store.write({ mirror, topicId: topic.id, partition }, null);
  }
}

/** Answers WriteMirrorStates. */
export async function writeStates(
  store: MirrorStateStore,
  image: MetadataImage,
  request: WriteMirrorStatesRequest,
): Promise<WriteMirrorStatesResponse> {
  const topics = await Promise.all(
    request.topicsUpdated.map(async (updated) => {
      const topic = topicOf(image, updated.name, updated.topicId);
      const partitions = await Promise.all(
        updated.partitions.map(async (update) => ({
          partitionIndex: update.partitionIndex,
          errorCode:
            topic === undefined
              ? errors.UNKNOWN_TOPIC_OR_PARTITION.code
              : await writeOne(store, request.mirrorName, topic, update),
        })),
      );
      return { name: updated.name, partitions };
    }),
  );
  for (const name of request.removedTopics) {
    const topic = image.topicsByName.get(name);
    if (topic !== undefined) await removeRows(store, request.mirrorName, topic);
  }
  return { throttleTimeMs: 0, errorCode: errors.NONE.code, topics };
}
