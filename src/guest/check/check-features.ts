/**
 * Whether a guest supports the levels of the cluster's features, and which upgrades wait for guests
 * (G3).
 *
 * A step of `twinlog guest check`, made from what the controllers say before the metadata is read:
 * records of a level that is too new cannot be. Pure. Every registered broker limits what features
 * can be upgraded to, a guest that does not run as well.
 */
import { METADATA_VERSION_FEATURE } from '../../metadata/features.ts';
import type { FeatureRange, MetadataImage } from '../../metadata/image.ts';
import { guests } from '../guest-brokers.ts';
import { type Check, ok, problem, warning } from './check.ts';
import {
  type ControllersFound,
  type FeatureLevels,
  TOO_OLD_METADATA_VERSION,
} from './check-controllers.ts';

/** What the controllers say of features. */
export type ClusterFeatures = Pick<ControllersFound, 'levels' | 'supported'>;

const NO_LEVELS: FeatureLevels = { min: 0, max: 0 };

function text({ min, max }: FeatureLevels): string {
  return min === max ? String(min) : `${min}–${max}`;
}

function byName(ranges: readonly FeatureRange[]): Map<string, FeatureLevels> {
  return new Map(
    ranges.map((range) => [
      range.name,
      { min: range.minSupportedVersion, max: range.maxSupportedVersion },
    ]),
  );
}

/** One check per feature: its level now, and the levels that a guest would keep it from. */
export function checkFeatures(
  { levels, supported }: ClusterFeatures,
  ranges: readonly FeatureRange[],
): Check[] {
  const own = byName(ranges);
  const names = new Set([...own.keys(), ...supported.keys(), ...levels.keys()]);
  return [...names]
    .filter((name) => (levels.get(name) ?? 0) > 0 || supported.has(name))
    .sort()
    .map((name) =>
      checkFeature(name, {
        level: levels.get(name) ?? 0,
        guest: own.get(name) ?? NO_LEVELS,
        controllers: supported.get(name),
      }),
    );
}

function checkFeature(
  feature: string,
  data: {
    readonly level: number;
    readonly guest: FeatureLevels;
    readonly controllers: FeatureLevels | undefined;
  },
): Check {
  const { level, guest, controllers } = data;
  const name = `feature ${feature}`;
  const theirs = controllers === undefined ? '' : `, the controllers ${text(controllers)}`;
  const found = `its level is ${level}; a guest supports ${text(guest)}${theirs}`;
  if (level > 0 && (level < guest.min || level > guest.max)) {
    const fix =
      'The controller would refuse the guest: use a twinlog that supports level ' +
      `${level} of ${feature}.`;
    return problem(name, found, fix, data);
  }
  const next = Math.max(guest.max, level) + 1;
  if (controllers !== undefined && controllers.max >= next) {
    const levels = text({ min: next, max: controllers.max });
    const fix =
      'While a guest is registered, running or not, the controller refuses to upgrade to ' +
      `${levels}: before such an upgrade use a twinlog that supports it, or stop the guests and ` +
      `let them leave (twinlog guest leave). Upgrades to ${guest.max} or less go on with them.`;
    return warning(name, found, fix, data);
  }
  if (feature === METADATA_VERSION_FEATURE && level <= TOO_OLD_METADATA_VERSION) {
    const fix =
      'Guests are tested with the levels of Apache Kafka 4.1 and later: upgrade it with ' +
      'kafka-features.sh when all brokers run 4.1.';
    return warning(name, found, fix, data);
  }
  return ok(name, found, data);
}

/** Registered guests of an older twinlog, which keep features lower than this one would. */
export function checkOldGuests(
  image: MetadataImage,
  { supported }: Pick<ClusterFeatures, 'supported'>,
  ranges: readonly FeatureRange[],
): Check[] {
  const checks: Check[] = [];
  for (const { id, features } of guests(image)) {
    const theirs = byName(features);
    const limits = [...byName(ranges)].flatMap(([feature, own]) => {
      const range = theirs.get(feature) ?? NO_LEVELS;
      const possible = Math.min(own.max, supported.get(feature)?.max ?? 0);
      if (range.max >= possible) return [];
      return [{ feature, guest: range, kept: { min: range.max + 1, max: possible } }];
    });
    if (limits.length === 0) continue;
    const found = limits.map(({ feature, guest }) => `${feature} ${text(guest)}`).join(', ');
    const kept = limits.map(({ feature, kept }) => `${feature} to ${text(kept)}`).join(', ');
    const fix =
      `While it is registered, running or not, the controller refuses to upgrade ${kept}: before ` +
      'such an upgrade start it again with this twinlog, or stop it and let it leave: ' +
      `twinlog guest leave --node-id ${id}.`;
    const data = { guest: id, limits };
    checks.push(warning(`features of guest ${id}`, `it supports only ${found}`, fix, data));
  }
  return checks;
}
