/**
 * API 34, AlterReplicaLogDirs.
 *
 * Moves replicas between log directories of a broker.
 */
import { array, int16, int32, type MessageOf, message, string } from '../schema.ts';

/** Request of API 34, versions 1-2. */
export const AlterReplicaLogDirsRequest = message({
  apiKey: 34,
  name: 'AlterReplicaLogDirsRequest',
  type: 'request',
  validVersions: '1-2',
  flexibleVersions: '2+',
  fields: {
    dirs: array('0+', {
      path: string('0+'),
      topics: array('0+', {
        name: string('0+'),
        partitions: array('0+', int32),
      }),
    }),
  },
});
/** A decoded {@link AlterReplicaLogDirsRequest}. */
export type AlterReplicaLogDirsRequest = MessageOf<typeof AlterReplicaLogDirsRequest>;

/** Response of API 34. */
export const AlterReplicaLogDirsResponse = message({
  apiKey: 34,
  name: 'AlterReplicaLogDirsResponse',
  type: 'response',
  validVersions: '1-2',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    results: array('0+', {
      topicName: string('0+'),
      partitions: array('0+', {
        partitionIndex: int32('0+'),
        errorCode: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link AlterReplicaLogDirsResponse}. */
export type AlterReplicaLogDirsResponse = MessageOf<typeof AlterReplicaLogDirsResponse>;
