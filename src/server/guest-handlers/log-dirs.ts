/**
 * Log directories of a guest: DescribeLogDirs and AlterReplicaLogDirs.
 *
 * There is one directory, so a replica can only be where it is.
 */
import { isCordoned } from '../../guest/guest-brokers.ts';
import { errors } from '../../protocol/errors.ts';
import {
  AlterReplicaLogDirsRequest,
  AlterReplicaLogDirsResponse,
} from '../../protocol/messages/34-alter-replica-log-dirs.ts';
import {
  DescribeLogDirsRequest,
  DescribeLogDirsResponse,
} from '../../protocol/messages/35-describe-log-dirs.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import type { Partition } from '../../replication/partition.ts';
import { type ApiHandler, apiHandler, type BrokerServices } from '../api-handler.ts';

type Answer = EncodableOf<typeof DescribeLogDirsResponse>;
type TopicAnswer = Answer['results'][number]['topics'][number];

/** The partitions held here, of those asked for. */
function asked({ replicas }: BrokerServices, { topics }: DescribeLogDirsRequest): Partition[] {
  if (topics === null) return [...replicas.partitions()];
  return topics.flatMap(({ topic, partitions }) =>
    partitions.flatMap((index) => replicas.partition(topic, index) ?? []),
  );
}

function describe(partitions: readonly Partition[]): TopicAnswer[] {
  const topics = Map.groupBy(partitions, ({ topic }) => topic);
  return [...topics].map(([name, held]) => ({
    name,
    partitions: held.map(({ partition, log }) => ({
      partitionIndex: partition,
      partitionSize: log.sizeBytes,
      offsetLag: Math.max(log.highWatermark - log.logEndOffset, 0),
      isFutureKey: false,
    })),
  }));
}

const describeLogDirs = apiHandler({
  request: DescribeLogDirsRequest,
  response: DescribeLogDirsResponse,
  versions: '1-5',
  handle: (services, request) => ({
    throttleTimeMs: 0,
    errorCode: errors.NONE.code,
    results: [
      {
        errorCode: errors.NONE.code,
        logDir: services.config.text('log.dirs'),
        topics: describe(asked(services, request)),
        isCordoned: isCordoned(services.metadata.image, services.brokerId),
      },
    ],
  }),
});

const alterReplicaLogDirs = apiHandler({
  request: AlterReplicaLogDirsRequest,
  response: AlterReplicaLogDirsResponse,
  versions: '1-2',
  handle: ({ config, replicas }, { dirs }) => ({
    throttleTimeMs: 0,
    results: dirs.flatMap(({ path, topics }) =>
      topics.map(({ name, partitions }) => ({
        topicName: name,
        partitions: partitions.map((partitionIndex) => {
          const isHere = replicas.partition(name, partitionIndex) !== undefined;
          const { code } =
            path !== config.text('log.dirs')
              ? errors.LOG_DIR_NOT_FOUND
              : isHere
                ? errors.NONE
                : errors.REPLICA_NOT_AVAILABLE;
          return { partitionIndex, errorCode: code };
        }),
      })),
    ),
  }),
});

/** APIs 34 and 35. */
export const logDirApis: readonly ApiHandler[] = [alterReplicaLogDirs, describeLogDirs];
