/**
 * What classic consumers put into the opaque bytes of JoinGroup and SyncGroup.
 *
 * On the wire an int16 version precedes either.
 */
import { array, bytes, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Versions 0-3. */
export const ConsumerProtocolSubscription = message({
  name: 'ConsumerProtocolSubscription',
  type: 'data',
  validVersions: '0-3',
  flexibleVersions: 'none',
  fields: {
    topics: array('0+', string),
    userData: nullable(bytes('0+'), '0+', { default: null }),
    ownedPartitions: array(
      '1+',
      {
        topic: string('1+'),
        partitions: array('1+', int32),
      },
      { ignorable: true },
    ),
    generationId: int32('2+', { default: -1, ignorable: true }),
    rackId: nullable(string('3+', { ignorable: true }), '3+', { default: null }),
  },
});
/** A decoded {@link ConsumerProtocolSubscription}. */
export type ConsumerProtocolSubscription = MessageOf<typeof ConsumerProtocolSubscription>;

/** Versions 0-3. */
export const ConsumerProtocolAssignment = message({
  name: 'ConsumerProtocolAssignment',
  type: 'data',
  validVersions: '0-3',
  flexibleVersions: 'none',
  fields: {
    assignedPartitions: array('0+', {
      topic: string('0+'),
      partitions: array('0+', int32),
    }),
    userData: nullable(bytes('0+'), '0+', { default: null }),
  },
});
/** A decoded {@link ConsumerProtocolAssignment}. */
export type ConsumerProtocolAssignment = MessageOf<typeof ConsumerProtocolAssignment>;
