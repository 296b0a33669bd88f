/**
 * API 19, CreateTopics.
 *
 * Creates topics. Version 8 is ours: version 7 plus MirrorInfo (rules A1, A9).
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  struct,
  tagged,
  uuid,
} from '../schema.ts';

/** Request of API 19, versions 2-8. */
export const CreateTopicsRequest = message({
  apiKey: 19,
  name: 'CreateTopicsRequest',
  type: 'request',
  validVersions: '2-8',
  flexibleVersions: '5+',
  fields: {
    topics: array('0+', {
      name: string('0+'),
      numPartitions: int32('0+'),
      replicationFactor: int16('0+'),
      assignments: array('0+', {
        partitionIndex: int32('0+'),
        brokerIds: array('0+', int32),
      }),
      configs: array('0+', {
        name: string('0+'),
        value: nullable(string('0+'), '0+'),
      }),
      mirrorInfo: nullable(
        struct(
          '8+',
          {
            topicId: uuid('8+'),
          },
          { ignorable: true },
        ),
        '8+',
        { default: null },
      ),
    }),
    timeoutMs: int32('0+', { default: 60000 }),
    validateOnly: bool('1+', { default: false }),
  },
});
/** A decoded {@link CreateTopicsRequest}. */
export type CreateTopicsRequest = MessageOf<typeof CreateTopicsRequest>;

/** Response of API 19. */
export const CreateTopicsResponse = message({
  apiKey: 19,
  name: 'CreateTopicsResponse',
  type: 'response',
  validVersions: '2-8',
  flexibleVersions: '5+',
  fields: {
    throttleTimeMs: int32('2+', { ignorable: true }),
    topics: array('0+', {
      name: string('0+'),
      topicId: uuid('7+', { ignorable: true }),
      errorCode: int16('0+'),
      errorMessage: nullable(string('1+', { ignorable: true }), '0+'),
      topicConfigErrorCode: tagged(int16('5+', { ignorable: true }), 0, '5+'),
      numPartitions: int32('5+', { default: -1, ignorable: true }),
      replicationFactor: int16('5+', { default: -1, ignorable: true }),
      configs: nullable(
        array(
          '5+',
          {
            name: string('5+'),
            value: nullable(string('5+'), '5+'),
            readOnly: bool('5+'),
            configSource: int8('5+', { default: -1, ignorable: true }),
            isSensitive: bool('5+'),
          },
          { ignorable: true },
        ),
        '5+',
      ),
    }),
  },
});
/** A decoded {@link CreateTopicsResponse}. */
export type CreateTopicsResponse = MessageOf<typeof CreateTopicsResponse>;
