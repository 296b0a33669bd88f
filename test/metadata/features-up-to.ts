/**
 * What a guest of an older twinlog supports: no released Apache Kafka has a metadata.version above
 * what guests support by now, so that tests of such an upgrade take guests that support less.
 */
import { guestSupportedFeatures, METADATA_VERSION_FEATURE } from '../../src/metadata/features.ts';
import type { FeatureRange } from '../../src/metadata/image.ts';

/** What guests support, but no metadata.version above this one. */
export function featuresUpTo(metadataVersion: number): FeatureRange[] {
  return guestSupportedFeatures.map((range) =>
    range.name === METADATA_VERSION_FEATURE
      ? { ...range, maxSupportedVersion: metadataVersion }
      : range,
  );
}
