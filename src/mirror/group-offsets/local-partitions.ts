/**
 * The mirrored partitions that this broker leads, for the group offset job (rule Y6).
 *
 * Asked anew each time, nothing is kept: a partition takes part while its row says MIRRORING
 * durably, its source is the cluster that answers now, and its topic is a member that nobody has
 * begun to remove.
 */
import type { MetadataImage } from '../../metadata/image.ts';
import type { MirrorManager } from '../mirror-manager.ts';
import type { PartitionDriver } from '../partition-driver.ts';
import type { MirroredPartition, MirroredPartitions, OffsetRange } from './ports.ts';

/** What {@link LocalMirroredPartitions} looks at. */
export interface LocalMirroredPartitionsOptions {
  readonly image: () => MetadataImage;
  readonly manager: Pick<MirrorManager, 'driver' | 'driversOf' | 'mirror'>;
}

/** See the file header. */
export class LocalMirroredPartitions implements MirroredPartitions {
  readonly #options: LocalMirroredPartitionsOptions;

  constructor(options: LocalMirroredPartitionsOptions) {
    this.#options = options;
  }

  async mirroring(mirror: string): Promise<MirroredPartition[]> {
    return this.#options.manager.driversOf(mirror).flatMap((driver) => {
      const row = this.#mirroringRow(driver, mirror);
      if (row === undefined) return [];
      const { topic, topicId, partition } = driver.partition;
      return [{ mirror, topic, topicId, sourceTopicId: row.sourceTopicId, partition }];
    });
  }

  range({ mirror, topicId, partition }: MirroredPartition): OffsetRange | undefined {
    const driver = this.#options.manager.driver(topicId, partition);
    if (driver === undefined || this.#mirroringRow(driver, mirror) === undefined) return undefined;
    const { logStartOffset, logEndOffset } = driver.partition.log;
    return { logStartOffset, logEndOffset };
  }

  #mirroringRow(driver: PartitionDriver, mirror: string) {
    const membership = this.#options.image().membership(driver.partition.topic);
    if (membership === undefined || membership.removed || membership.mirror !== mirror) {
      return undefined;
    }
    const { state, row } = driver.status();
    if (state !== 'MIRRORING' || row === undefined || driver.key.mirror !== mirror) {
      return undefined;
    }
    const answering = this.#options.manager.mirror(mirror)?.source.clusterId ?? '';
    const isSource = answering === '' || answering === row.sourceClusterId;
    return isSource || row.sourceClusterId === '' ? row : undefined;
  }
}
