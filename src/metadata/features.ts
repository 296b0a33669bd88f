/**
 * The features that this version supports, and the levels a new cluster starts with.
 *
 * Told in BrokerRegistration and ApiVersions. A range says what is truly served: transactions and
 * the new group protocols are not in the list before they are.
 */
import type { FeatureRange } from './image.ts';
import { METADATA_VERSION, type MetadataRecord, metadataRecord } from './record-framing.ts';

/** Decides which records and fields the metadata log has. */
export const METADATA_VERSION_FEATURE = 'metadata.version';
/** Whether the mirror APIs are served: 0 or 1 (rule A8). */
export const MIRROR_FEATURE = 'mirror.version';

/** Oldest metadata.version whose records are understood: that of Apache Kafka 3.3. */
const MIN_METADATA_VERSION = 7;
const MIRROR_VERSION = 1;

/** What this broker can work with. */
export const supportedFeatures: readonly FeatureRange[] = [
  {
    name: METADATA_VERSION_FEATURE,
    minSupportedVersion: MIN_METADATA_VERSION,
    maxSupportedVersion: METADATA_VERSION,
  },
  { name: MIRROR_FEATURE, minSupportedVersion: 0, maxSupportedVersion: MIRROR_VERSION },
];

/** Of a feature that is not in a list of ranges. */
const UNSUPPORTED = { minSupportedVersion: 0, maxSupportedVersion: 0 } as const;

/** Newest metadata.version whose records are understood: that of Apache Kafka 4.4. */
const MAX_GUEST_METADATA_VERSION = 33;

/**
 * What a guest of an Apache Kafka cluster tells its controller (rule G3). Every registered broker
 * limits what the cluster may be upgraded to, so ranges are as wide as they are truly supported:
 * a guest takes part in none of the newer protocols, it only must not misread what they write.
 */
export const guestSupportedFeatures: readonly FeatureRange[] = [
  [METADATA_VERSION_FEATURE, MIN_METADATA_VERSION, MAX_GUEST_METADATA_VERSION] as const,
  ['kraft.version', 0, 1] as const,
  ['transaction.version', 0, 2] as const,
  ['group.version', 0, 1] as const,
  ['eligible.leader.replicas.version', 0, 1] as const,
  ['share.version', 0, 2] as const,
  ['streams.version', 0, 1] as const,
].map(([name, minSupportedVersion, maxSupportedVersion]) => ({
  name,
  minSupportedVersion,
  maxSupportedVersion,
}));

/** A level that a cluster has and somebody does not support, and what he does. */
export interface UnsupportedLevel {
  readonly name: string;
  readonly level: number;
  readonly min: number;
  readonly max: number;
}

/** The first of a cluster's levels that is in none of these ranges; undefined: all are in one. */
export function unsupportedLevel(
  levels: ReadonlyMap<string, number>,
  ranges: readonly FeatureRange[],
): UnsupportedLevel | undefined {
  for (const [name, level] of levels) {
    const range = ranges.find((each) => each.name === name);
    const { minSupportedVersion: min, maxSupportedVersion: max } = range ?? UNSUPPORTED;
    if (level !== 0 && (level < min || level > max)) return { name, level, min, max };
  }
  return undefined;
}

/** Why a cluster's levels keep out who has these ranges (rule G3), as a sentence for people. */
export function featureProblem(
  levels: ReadonlyMap<string, number>,
  ranges: readonly FeatureRange[],
): string | undefined {
  const found = unsupportedLevel(levels, ranges);
  if (found === undefined) return undefined;
  const { name, level, min, max } = found;
  return (
    `${name} of the cluster is ${level}, and this twinlog supports ${min} to ${max}: ` +
    'use a twinlog that supports this level (twinlog guest check looks at every feature).'
  );
}

/** The first records of a new cluster; metadata.version comes first, as Apache Kafka requires. */
export function bootstrapRecords(): MetadataRecord[] {
  return [
    metadataRecord('FeatureLevelRecord', {
      name: METADATA_VERSION_FEATURE,
      featureLevel: METADATA_VERSION,
    }),
    metadataRecord('FeatureLevelRecord', { name: MIRROR_FEATURE, featureLevel: MIRROR_VERSION }),
  ];
}
