/**
 * API 35, DescribeLogDirs.
 *
 * Sizes of replicas in log directories. Version 5 (Apache Kafka 4.3) says which are cordoned.
 */
import {
  array,
  bool,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
} from '../schema.ts';

/** Request of API 35, versions 1-5. */
export const DescribeLogDirsRequest = message({
  apiKey: 35,
  name: 'DescribeLogDirsRequest',
  type: 'request',
  validVersions: '1-5',
  flexibleVersions: '2+',
  fields: {
    topics: nullable(
      array('0+', {
        topic: string('0+'),
        partitions: array('0+', int32),
      }),
      '0+',
    ),
  },
});
/** A decoded {@link DescribeLogDirsRequest}. */
export type DescribeLogDirsRequest = MessageOf<typeof DescribeLogDirsRequest>;

/** Response of API 35. */
export const DescribeLogDirsResponse = message({
  apiKey: 35,
  name: 'DescribeLogDirsResponse',
  type: 'response',
  validVersions: '1-5',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('3+', { ignorable: true }),
    results: array('0+', {
      errorCode: int16('0+'),
      logDir: string('0+'),
      topics: array('0+', {
        name: string('0+'),
        partitions: array('0+', {
          partitionIndex: int32('0+'),
          partitionSize: int64('0+'),
          offsetLag: int64('0+'),
          isFutureKey: bool('0+'),
        }),
      }),
      totalBytes: int64('4+', { default: -1, ignorable: true }),
      usableBytes: int64('4+', { default: -1, ignorable: true }),
      isCordoned: bool('5+', { default: false, ignorable: true }),
    }),
  },
});
/** A decoded {@link DescribeLogDirsResponse}. */
export type DescribeLogDirsResponse = MessageOf<typeof DescribeLogDirsResponse>;
