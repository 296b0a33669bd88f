/**
 * A row of `__mirror_state` (rule C2): what is durably known about one mirrored partition.
 *
 * An int16 precedes either part: the key carries the record type (`apiKey`), the value its version.
 * Written by `coordinator-shard.ts` alone; a null value is the row's deletion. Everything that is
 * not in the first three fields is tagged, so that a newer row is readable by an older broker.
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64,
  int64Exact,
  type MessageOf,
  message,
  string,
  tagged,
  uuid,
} from '../../protocol/schema.ts';

/** Key of mirror record type 2. */
export const MirrorStateKey = message({
  apiKey: 2,
  name: 'MirrorStateKey',
  type: 'coordinator-key',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    mirrorName: string('0'),
    topicId: uuid('0'),
    partition: int32('0'),
  },
});
/** A decoded {@link MirrorStateKey}. */
export type MirrorStateKey = MessageOf<typeof MirrorStateKey>;

/** Transactions that a stop ended with an ABORT marker (guest rule G24a). */
const closedTransactions = array('0+', {
  /** In the log of this row's cluster. */
  producerId: int64Exact('0+'),
  /** In the log of the source of this row's mirror. */
  originalProducerId: int64Exact('0+'),
  producerEpoch: int16('0+'),
  firstOffset: int64('0+'),
  /** Recorded before the marker is appended; after a rescue (G18a) it lies there or above. */
  markerOffset: int64('0+'),
});

/** Value of mirror record type 2. */
export const MirrorStateValue = message({
  apiKey: 2,
  name: 'MirrorStateValue',
  type: 'coordinator-value',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    topicName: string('0+'),
    partition: int32('0+'),
    state: int8('0+'),
    lastMirroredOffset: tagged(int64('0+', { default: -1 }), 0, '0+'),
    stateEpoch: tagged(int32('0+', { default: 0 }), 1, '0+'),
    leaderEpoch: tagged(int32('0+', { default: -1 }), 2, '0+'),
    membershipOffset: tagged(int64('0+', { default: -1 }), 3, '0+'),
    sourceClusterId: tagged(string('0+', { default: '' }), 4, '0+'),
    sourceTopicId: tagged(uuid('0+'), 5, '0+'),
    sourceEpochs: tagged(array('0+', { epoch: int32('0+'), startOffset: int64('0+') }), 6, '0+'),
    previousState: tagged(int8('0+', { default: 16 }), 7, '0+'),
    retryAttempt: tagged(int32('0+', { default: 0 }), 8, '0+'),
    cause: tagged(string('0+', { default: '' }), 9, '0+'),
    message: tagged(string('0+', { default: '' }), 10, '0+'),
    sinceMs: tagged(int64('0+', { default: -1 }), 11, '0+'),
    /** The episode has been in MIRRORING: a stop has something to cut (rule D2). */
    reachedMirroring: tagged(bool('0+'), 12, '0+'),
    /** STOPPING with its offset decided: nothing truncates any more (guest rule G24). */
    settled: tagged(bool('0+'), 13, '0+'),
    /** Those of the last stop, whose markers begin at its last mirrored offset (G24a). */
    closedTransactions: tagged(closedTransactions, 14, '0+'),
    /**
     * As in the row of the source, which mirrored from here before: their markers get the original
     * ids here (G24a).
     */
    closedAtSource: tagged(closedTransactions, 15, '0+'),
    /**
     * Of the last cut that had something to cut, recorded before it is made: what lies from
     * `cutOffset` on in batches of leader epochs up to `cutLeaderEpoch` is no part of the log, on
     * whatever replica it is found (T5, guest rule G18a). −1: there was none.
     */
    cutOffset: tagged(int64('0+', { default: -1 }), 16, '0+'),
    cutLeaderEpoch: tagged(int32('0+', { default: -1 }), 17, '0+'),
  },
});
/** A decoded {@link MirrorStateValue}. */
export type MirrorStateValue = MessageOf<typeof MirrorStateValue>;
