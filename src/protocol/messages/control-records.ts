/**
 * Values of the control records in a KRaft log and its snapshots.
 *
 * Their keys carry the type: leader change 2, snapshot header 3, snapshot footer 4, KRaft version
 * 5, voters 6 (see `control record` types in record.ts).
 */
import {
  array,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  string,
  struct,
  uint16,
  uuid,
} from '../schema.ts';

const voterFields = {
  voterId: int32('0+'),
  voterDirectoryId: uuid('1+'),
} as const;

/** Versions 0-1. */
export const LeaderChangeMessage = message({
  name: 'LeaderChangeMessage',
  type: 'data',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    version: int16('0+'),
    leaderId: int32('0+'),
    voters: array('0+', voterFields),
    grantingVoters: array('0+', voterFields),
  },
});
/** A decoded {@link LeaderChangeMessage}. */
export type LeaderChangeMessage = MessageOf<typeof LeaderChangeMessage>;

/** Versions 0. */
export const SnapshotHeaderRecord = message({
  name: 'SnapshotHeaderRecord',
  type: 'data',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    version: int16('0+'),
    lastContainedLogTimestamp: int64('0+'),
  },
});
/** A decoded {@link SnapshotHeaderRecord}. */
export type SnapshotHeaderRecord = MessageOf<typeof SnapshotHeaderRecord>;

/** Versions 0. */
export const SnapshotFooterRecord = message({
  name: 'SnapshotFooterRecord',
  type: 'data',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    version: int16('0+'),
  },
});
/** A decoded {@link SnapshotFooterRecord}. */
export type SnapshotFooterRecord = MessageOf<typeof SnapshotFooterRecord>;

/** Versions 0. */
export const KRaftVersionRecord = message({
  name: 'KRaftVersionRecord',
  type: 'data',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    version: int16('0+'),
    kRaftVersion: int16('0+'),
  },
});
/** A decoded {@link KRaftVersionRecord}. */
export type KRaftVersionRecord = MessageOf<typeof KRaftVersionRecord>;

/** Versions 0. */
export const VotersRecord = message({
  name: 'VotersRecord',
  type: 'data',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    version: int16('0+'),
    voters: array('0+', {
      voterId: int32('0+'),
      voterDirectoryId: uuid('0+'),
      endpoints: array('0+', {
        name: string('0+'),
        host: string('0+'),
        port: uint16('0+'),
      }),
      kRaftVersionFeature: struct('0+', {
        minSupportedVersion: int16('0+'),
        maxSupportedVersion: int16('0+'),
      }),
    }),
  },
});
/** A decoded {@link VotersRecord}. */
export type VotersRecord = MessageOf<typeof VotersRecord>;
