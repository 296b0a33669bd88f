/**
 * Makes what copies (Y6) and lowers (B1) the offsets of consumer groups, for the composition roots.
 *
 * A broker with its own controller writes to its own group coordinator and runs the jobs of the
 * mirrors whose state rows it would lead (C3); a guest brings its own {@link GroupOffsetPorts}.
 */
import { GROUP_METADATA_TOPIC, type GroupCoordinator } from '../coordinator/group-coordinator.ts';
import type { Runtime } from '../io/runtime.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { LocalMirroredPartitions } from '../mirror/group-offsets/local-partitions.ts';
import { LocalGroupOffsetSink } from '../mirror/group-offsets/local-sink.ts';
import { type GroupOffsetLowering, groupOffsetLowering } from '../mirror/group-offsets/lowering.ts';
import type { GroupOffsetSink, MirroredPartitions } from '../mirror/group-offsets/ports.ts';
import { GroupOffsetSync } from '../mirror/group-offsets/sync.ts';
import type { MirrorManager } from '../mirror/mirror-manager.ts';
import { MIRROR_STATE_TOPIC, ownerPartition } from '../mirror/state-row.ts';
import type { InternalTopics } from './internal-topics.ts';

/** What differs between the kinds of clusters. */
export interface GroupOffsetPorts {
  readonly sink: GroupOffsetSink;
  /** Whether this broker runs the mirror-wide jobs of a mirror (C3, G23). */
  readonly ownsJobs: (mirror: string) => boolean;
  /** More than those that this broker leads, which are given; absent: those alone. */
  readonly partitions?: (local: MirroredPartitions) => MirroredPartitions;
}

/** What {@link groupOffsetParts} puts together; parts that are made later are asked for. */
export interface GroupOffsetSurroundings {
  readonly brokerId: number;
  readonly image: () => MetadataImage;
  readonly groups: GroupCoordinator;
  readonly internalTopics: () => InternalTopics;
  readonly manager: MirrorManager;
  /** A guest's own. */
  readonly ports?: GroupOffsetPorts | undefined;
}

/** The job is a metadata publisher after the mirror manager, and closed before it. */
export interface GroupOffsetParts {
  readonly sync: GroupOffsetSync;
  readonly lower: GroupOffsetLowering;
}

/** The ports of a broker with its own controller. */
function ownPorts(surroundings: GroupOffsetSurroundings): GroupOffsetPorts {
  const { brokerId, image, groups, internalTopics } = surroundings;
  return {
    sink: new LocalGroupOffsetSink({
      groups,
      image,
      ensureOffsetsTopic: () => internalTopics().ensure(GROUP_METADATA_TOPIC),
    }),
    ownsJobs: (mirror) => {
      const topic = image().topicsByName.get(MIRROR_STATE_TOPIC);
      if (topic === undefined) return false;
      const owner = ownerPartition(mirror, topic.partitions.size);
      return topic.partitions.get(owner)?.leader === brokerId;
    },
  };
}

/** Wires the group offset job and the lowering of offsets. */
export function groupOffsetParts(
  runtime: Runtime,
  surroundings: GroupOffsetSurroundings,
): GroupOffsetParts {
  const { image, manager, ports = ownPorts(surroundings) } = surroundings;
  const local = new LocalMirroredPartitions({ image, manager });
  const sync = new GroupOffsetSync(runtime, {
    ownsJobs: ports.ownsJobs,
    mirror: (name) => manager.mirror(name),
    partitions: ports.partitions?.(local) ?? local,
    sink: ports.sink,
  });
  return { sync, lower: groupOffsetLowering(runtime, ports.sink) };
}
