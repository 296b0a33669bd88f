/**
 * A committed offset in `__consumer_offsets`; a null value is its deletion.
 *
 * An int16 precedes either: of the key the record type (`apiKey`), of the value its version.
 */
import {
  int32,
  int64,
  type MessageOf,
  message,
  string,
  tagged,
  uuid,
} from '../../protocol/schema.ts';

/** Key of coordinator record type 1. */
export const OffsetCommitKey = message({
  apiKey: 1,
  name: 'OffsetCommitKey',
  type: 'coordinator-key',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    group: string('0'),
    topic: string('0'),
    partition: int32('0'),
  },
});
/** A decoded {@link OffsetCommitKey}. */
export type OffsetCommitKey = MessageOf<typeof OffsetCommitKey>;

/** Value of coordinator record type 1. */
export const OffsetCommitValue = message({
  apiKey: 1,
  name: 'OffsetCommitValue',
  type: 'coordinator-value',
  validVersions: '0-4',
  flexibleVersions: '4+',
  fields: {
    offset: int64('0+'),
    leaderEpoch: int32('3+', { default: -1, ignorable: true }),
    metadata: string('0+'),
    commitTimestamp: int64('0+'),
    expireTimestamp: int64('1', { default: -1, ignorable: true }),
    topicId: tagged(uuid('4+', { ignorable: true }), 0, '4+'),
  },
});
/** A decoded {@link OffsetCommitValue}. */
export type OffsetCommitValue = MessageOf<typeof OffsetCommitValue>;
