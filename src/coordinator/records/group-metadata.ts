/**
 * A classic group in `__consumer_offsets`; a null value is its deletion.
 *
 * An int16 precedes either: of the key the record type (`apiKey`), of the value its version.
 */
import {
  array,
  bytes,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
} from '../../protocol/schema.ts';

/** Key of coordinator record type 2. */
export const GroupMetadataKey = message({
  apiKey: 2,
  name: 'GroupMetadataKey',
  type: 'coordinator-key',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    group: string('0'),
  },
});
/** A decoded {@link GroupMetadataKey}. */
export type GroupMetadataKey = MessageOf<typeof GroupMetadataKey>;

const memberMetadataFields = {
  memberId: string('0+'),
  groupInstanceId: nullable(string('3+', { ignorable: true }), '3+', { default: null }),
  clientId: string('0+'),
  clientHost: string('0+'),
  rebalanceTimeout: int32('1+', { default: -1, ignorable: true }),
  sessionTimeout: int32('0+'),
  subscription: bytes('0+'),
  assignment: bytes('0+'),
} as const;

/** Value of coordinator record type 2. */
export const GroupMetadataValue = message({
  apiKey: 2,
  name: 'GroupMetadataValue',
  type: 'coordinator-value',
  validVersions: '0-4',
  flexibleVersions: '4+',
  fields: {
    protocolType: string('0+'),
    generation: int32('0+'),
    protocol: nullable(string('0+'), '0+'),
    leader: nullable(string('0+'), '0+'),
    currentStateTimestamp: int64('2+', { default: -1, ignorable: true }),
    members: array('0+', memberMetadataFields),
  },
});
/** A decoded {@link GroupMetadataValue}. */
export type GroupMetadataValue = MessageOf<typeof GroupMetadataValue>;
