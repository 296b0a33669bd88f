/**
 * The settings of a mirror topic in an Apache Kafka cluster: at creation, under the lock, at the
 * end of failover (G12, G18, G19, G24).
 *
 * Pure; `mirror-admin.ts`, `topic-lock.ts` and `handover.ts` send what is worked out here. A topic
 * has *final* overrides (what it shall have as a native topic, kept in its row), *forced* ones
 * while it is mirrored, and the *lock*, which keeps writers out while an Apache broker could lead.
 * Invariants:
 * - Only names that this file forces or locks are ever put back, and only where they still have the
 *   value put there: what an administrator changed meanwhile stays.
 * - Every function compares with the overrides in force, so that repeating a step changes nothing.
 */
import {
  ConfigResourceType,
  type MetadataImage,
  MIRROR_NAME_CONFIG,
} from '../../metadata/image.ts';
import { DEFAULT_EXCLUDED_TOPIC_PROPERTIES } from '../../mirror/settings.ts';
import type { DescribeConfigsResponse } from '../../protocol/messages/32-describe-configs.ts';

/** A topic override as a row keeps it; null: the topic shall have none of that name. */
export interface FinalConfig {
  readonly name: string;
  readonly value: string | null;
}

/** A config of the source that the mirror topic does not get, and why. */
export interface SkippedConfig {
  readonly name: string;
  readonly reason: string;
}

/** One change of IncrementalAlterConfigs. */
export interface ConfigChange {
  readonly name: string;
  readonly configOperation: number;
  readonly value: string | null;
}

/** A config as DescribeConfigs tells it. */
export type DescribedConfig = DescribeConfigsResponse['results'][number]['configs'][number];
type Overrides = ReadonlyMap<string, string>;

/** Kafka's config source of an override set on the topic itself. */
const TOPIC_OVERRIDE = 1;
const SET = 0;
const DELETE = 1;

const REMOTE_STORAGE = 'remote.storage.enable';
const EXCLUDE_SETTING = 'mirror.topic.properties.exclude';

/**
 * G19: no ordinary record batch is that small, and what is has to be gzip. A lower limit, or one on
 * timestamps, would leave transactional ids stuck.
 */
export const LOCK_CONFIGS: Overrides = new Map([
  ['max.message.bytes', '78'],
  ['compression.type', 'gzip'],
]);

/** G12: in force while the topic is mirrored, so that the ISR may shrink to a guest alone. */
const FORCED_CONFIGS: Overrides = new Map([
  ['unclean.leader.election.enable', 'false'],
  ['min.insync.replicas', '1'],
]);

const PUT: Overrides = new Map([...LOCK_CONFIGS, ...FORCED_CONFIGS, [REMOTE_STORAGE, 'false']]);

/** The names and patterns that a mirror leaves out when it copies topic configs (Y4). */
export function excludedProperties(mirrorConfigs: Overrides): readonly string[] {
  const text = mirrorConfigs.get(EXCLUDE_SETTING);
  if (text === undefined) return DEFAULT_EXCLUDED_TOPIC_PROPERTIES;
  return text.split(',').flatMap((each) => (each.trim() === '' ? [] : [each.trim()]));
}

/** The overrides that the source's topic has and the mirror copies, and what is left out (Y4). */
export function copiedOverrides(
  described: readonly DescribedConfig[],
  excluded: readonly string[],
): { readonly overrides: Map<string, string>; readonly skipped: SkippedConfig[] } {
  const patterns = excluded.map((pattern) => new RegExp(`^(?:${pattern})$`));
  const overrides = new Map<string, string>();
  const skipped: SkippedConfig[] = [];
  for (const { name, value, configSource, readOnly, isSensitive } of described) {
    if (configSource !== TOPIC_OVERRIDE || readOnly || name === MIRROR_NAME_CONFIG) continue;
    if (patterns.some((pattern) => pattern.test(name))) continue;
    if (isSensitive || value === null) skipped.push({ name, reason: 'its value is secret' });
    else overrides.set(name, value);
  }
  return { overrides, skipped };
}

/** Whether topics of this cluster have tiered storage unless they say otherwise. */
function hasRemoteStorageDefault(image: MetadataImage): boolean {
  return image.configs(ConfigResourceType.BROKER, '').get(REMOTE_STORAGE) === 'true';
}

/** Whether a topic with these overrides keeps records in tiered storage (G33). */
export function isTiered(image: MetadataImage, overrides: Overrides): boolean {
  const own = overrides.get(REMOTE_STORAGE);
  return own === undefined ? hasRemoteStorageDefault(image) : own === 'true';
}

/** The final overrides: those copied, and none for what is forced or locked and not copied. */
export function finalConfigs(image: MetadataImage, copied: Overrides): FinalConfig[] {
  const final = new Map<string, string | null>();
  for (const name of [...LOCK_CONFIGS.keys(), ...FORCED_CONFIGS.keys()]) final.set(name, null);
  if (hasRemoteStorageDefault(image)) final.set(REMOTE_STORAGE, null);
  for (const [name, value] of copied) final.set(name, value);
  return [...final].map(([name, value]) => ({ name, value }));
}

/** The final overrides that have a value, as a topic would be created with them. */
export function overridesOf(final: readonly FinalConfig[]): Map<string, string> {
  return new Map(final.flatMap(({ name, value }) => (value === null ? [] : [[name, value]])));
}

/** The overrides that a mirror topic is created with: final, forced, locked (G12). */
export function creationConfigs(final: readonly FinalConfig[]): Map<string, string> {
  const configs = overridesOf(final);
  if (final.some(({ name }) => name === REMOTE_STORAGE)) configs.set(REMOTE_STORAGE, 'false');
  for (const [name, value] of [...FORCED_CONFIGS, ...LOCK_CONFIGS]) configs.set(name, value);
  return configs;
}

/** Whether these overrides keep writers out (G19). */
export function isLocked(overrides: Overrides): boolean {
  return [...LOCK_CONFIGS].every(([name, value]) => overrides.get(name) === value);
}

/** What sets the lock; empty: it is set. */
export function lockChanges(overrides: Overrides): ConfigChange[] {
  return changesTo(overrides, LOCK_CONFIGS);
}

function changesTo(overrides: Overrides, wanted: Overrides): ConfigChange[] {
  return [...wanted].flatMap(([name, value]) =>
    overrides.get(name) === value ? [] : [{ name, configOperation: SET, value }],
  );
}

/**
 * The final overrides once the lock has replaced what is in force now: what an administrator set
 * since the last time is kept for when the lock is lifted. The same list when nothing is new.
 */
export function finalBeforeLock(
  overrides: Overrides,
  final: readonly FinalConfig[],
): readonly FinalConfig[] {
  let changed = false;
  const kept = new Map(final.map(({ name, value }) => [name, value]));
  for (const [name, locked] of LOCK_CONFIGS) {
    const current = overrides.get(name) ?? null;
    if (current === locked || current === (kept.get(name) ?? null)) continue;
    kept.set(name, current);
    changed = true;
  }
  return changed ? [...kept].map(([name, value]) => ({ name, value })) : final;
}

/** What forces the settings of a mirrored topic (G12); empty: they are in force. */
export function forcedChanges(overrides: Overrides): ConfigChange[] {
  return changesTo(overrides, FORCED_CONFIGS);
}

/** What lifts the lock; empty: nothing of it is in force. */
export function unlockChanges(overrides: Overrides, final: readonly FinalConfig[]): ConfigChange[] {
  return putBack(overrides, final, LOCK_CONFIGS);
}

/** What makes the topic's settings those of a native topic (G24); empty: they are. */
export function restoreChanges(
  overrides: Overrides,
  final: readonly FinalConfig[],
): ConfigChange[] {
  return putBack(overrides, final, PUT);
}

function putBack(
  overrides: Overrides,
  final: readonly FinalConfig[],
  put: Overrides,
): ConfigChange[] {
  const wanted = new Map(final.map(({ name, value }) => [name, value]));
  const changes: ConfigChange[] = [];
  for (const [name, value] of put) {
    const target = wanted.get(name);
    if (target === undefined || target === value || overrides.get(name) !== value) continue;
    const configOperation = target === null ? DELETE : SET;
    changes.push({ name, configOperation, value: target });
  }
  return changes;
}
