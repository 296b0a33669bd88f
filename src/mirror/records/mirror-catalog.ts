/**
 * Rows of `__mirror_state` that say which mirrors and mirrored topics a cluster has (guest mode).
 *
 * A cluster with an embedded controller keeps these facts in its metadata log; Apache Kafka's
 * controller refuses them, so a guest keeps them beside the partition rows (rules G12, G22, G23).
 * As with those, an int16 precedes either part: the key's record type, the value's version; a null
 * value is the deletion. Written and read by `guest/state/state-store.ts` alone.
 */
import {
  array,
  bool,
  int8,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  tagged,
  uuid,
} from '../../protocol/schema.ts';

/** Key of mirror record type 3. */
export const MirrorSettingsKey = message({
  apiKey: 3,
  name: 'MirrorSettingsKey',
  type: 'coordinator-key',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    mirrorName: string('0'),
  },
});
/** A decoded {@link MirrorSettingsKey}. */
export type MirrorSettingsKey = MessageOf<typeof MirrorSettingsKey>;

/** Value of mirror record type 3: the settings of a mirror. */
export const MirrorSettingsValue = message({
  apiKey: 3,
  name: 'MirrorSettingsValue',
  type: 'coordinator-value',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    configs: array('0+', { name: string('0+'), value: string('0+') }),
    /** Of the source cluster, 1 to 4095 (rule G20); 0: none yet. */
    producerIdTag: tagged(int32('0+', { default: 0 }), 0, '0+'),
  },
});
/** A decoded {@link MirrorSettingsValue}. */
export type MirrorSettingsValue = MessageOf<typeof MirrorSettingsValue>;

/** Key of mirror record type 4. */
export const MirrorTopicKey = message({
  apiKey: 4,
  name: 'MirrorTopicKey',
  type: 'coordinator-key',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    topicName: string('0'),
  },
});
/** A decoded {@link MirrorTopicKey}. */
export type MirrorTopicKey = MessageOf<typeof MirrorTopicKey>;

/** Value of mirror record type 4: a topic's membership in a mirror (rules O2, G12). */
export const MirrorTopicValue = message({
  apiKey: 4,
  name: 'MirrorTopicValue',
  type: 'coordinator-value',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    mirrorName: string('0+'),
    /** Detached or detaching. */
    removed: bool('0+'),
    /** Grows with every change of the two above: tells a new wish from an old one (rule S7). */
    membershipOffset: int64('0+'),
    /** The destination's own id; zero before the topic is made. */
    topicId: tagged(uuid('0+'), 0, '0+'),
    sourceTopicId: tagged(uuid('0+'), 1, '0+'),
    /** What the topic's overrides shall be after failover; a null value: none of that name. */
    finalConfigs: tagged(
      array('0+', { name: string('0+'), value: nullable(string('0+'), '0+') }),
      2,
      '0+',
    ),
    /** Of the native topic (rule G25); −1: the cluster's default. */
    targetReplicationFactor: tagged(int32('0+', { default: -1 }), 3, '0+'),
    /**
     * Of a native topic that was taken into the mirror (rule G29): by partition, up to where it was
     * mirrored before; empty: the mirror made the topic.
     */
    takeoverOffsets: tagged(array('0+', int64), 4, '0+'),
    /** Of a topic that was removed: 0 undecided transactions are cut off, 1 aborted (G24a). */
    openTransactions: tagged(int8('0+', { default: 0 }), 5, '0+'),
  },
});
/** A decoded {@link MirrorTopicValue}. */
export type MirrorTopicValue = MessageOf<typeof MirrorTopicValue>;

/** Key of mirror record type 5. */
export const MirrorJobsKey = message({
  apiKey: 5,
  name: 'MirrorJobsKey',
  type: 'coordinator-key',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    mirrorName: string('0'),
  },
});
/** A decoded {@link MirrorJobsKey}. */
export type MirrorJobsKey = MessageOf<typeof MirrorJobsKey>;

/** Value of mirror record type 5: which guest runs the mirror's jobs (rule G23). */
export const MirrorJobsValue = message({
  apiKey: 5,
  name: 'MirrorJobsValue',
  type: 'coordinator-value',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    guestId: int32('0+'),
    claimedAtMs: int64('0+'),
  },
});
/** A decoded {@link MirrorJobsValue}. */
export type MirrorJobsValue = MessageOf<typeof MirrorJobsValue>;
