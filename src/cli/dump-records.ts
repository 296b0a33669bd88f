/**
 * Understands the records of internal topics for `dump-log`: which topic has which decoder.
 *
 * The formats are their owners' (coordinator, mirror, metadata); here they only become fields to
 * show. A record of a type that its owner does not know is shown as the bytes it is.
 */
import { MalformedBytes } from '../base/bytes.ts';
import { GROUP_METADATA_TOPIC } from '../coordinator/group-coordinator.ts';
import { decodeGroupRecord } from '../coordinator/group-records.ts';
import {
  decodeCatalogKey,
  decodeJobs,
  decodeSettings,
  decodeTopic,
} from '../guest/state/catalog.ts';
import {
  decodeMetadataRecord,
  type MetadataRecord,
  type UnknownRecord,
} from '../metadata/record-framing.ts';
import { mirrorSettingDefinitions } from '../mirror/settings.ts';
import { decodeRow, decodeRowKey, MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import { stateName } from '../mirror/states.ts';
import type { RecordDecoder } from '../storage/dump-segment.ts';
import { METADATA_TOPIC } from '../storage/log-manager.ts';

const HIDDEN = '[hidden]';

/** Mirror settings that are not for everyone's eyes. */
const SECRETS: ReadonlySet<string> = new Set(
  mirrorSettingDefinitions.filter(({ type }) => type === 'password').map(({ name }) => name),
);

const DECODERS: ReadonlyMap<string, RecordDecoder> = new Map<string, RecordDecoder>([
  [GROUP_METADATA_TOPIC, decodeGroup],
  [MIRROR_STATE_TOPIC, decodeMirrorState],
  [METADATA_TOPIC, decodeMetadata],
]);

/** Topics whose records are understood. */
export const DECODED_TOPICS: readonly string[] = [...DECODERS.keys()];

/** The decoder of a topic's records; undefined for a topic of users. */
export function recordDecoder(topic: string): RecordDecoder | undefined {
  return DECODERS.get(topic);
}

function keyOf(key: Uint8Array | null): Uint8Array {
  if (key === null) throw new MalformedBytes('no key', 0);
  return key;
}

function decodeGroup(key: Uint8Array | null, value: Uint8Array | null) {
  const record = decodeGroupRecord(keyOf(key), value);
  if (record.type === 'other') return { recordType: record.recordType, key, value };
  const { type, value: decoded, ...names } = record;
  return { recordType: type, ...names, value: decoded ?? null };
}

function decodeMirrorState(key: Uint8Array | null, value: Uint8Array | null) {
  const row = decodeRowKey(keyOf(key));
  if (row === undefined) return decodeCatalog(keyOf(key), value);
  if (value === null) return { recordType: 'mirrorState', ...row, value: null };
  const decoded = decodeRow(value);
  const { state, previousState } = decoded;
  const names = { state: stateName(state), previousState: stateName(previousState) };
  return { recordType: 'mirrorState', ...row, value: { ...decoded, ...names } };
}

/** Rows that only a cluster with guests has (G22). */
function decodeCatalog(key: Uint8Array, value: Uint8Array | null) {
  const names = decodeCatalogKey(key);
  if (names === undefined) return { key, value };
  const { type, ...rest } = names;
  const recordType = `mirror${type.charAt(0).toUpperCase()}${type.slice(1)}`;
  return { recordType, ...rest, value: value === null ? null : decodeCatalogValue(type, value) };
}

function decodeCatalogValue(type: 'settings' | 'topic' | 'jobs', value: Uint8Array) {
  if (type === 'topic') return decodeTopic(value);
  if (type === 'jobs') return decodeJobs(value);
  const { configs, producerIdTag } = decodeSettings(value);
  const shown = [...configs].map(([name, text]) => [name, SECRETS.has(name) ? HIDDEN : text]);
  return { configs: Object.fromEntries(shown), producerIdTag };
}

function decodeMetadata(_key: Uint8Array | null, value: Uint8Array | null) {
  if (value === null) throw new MalformedBytes('no value', 0);
  const record = decodeMetadataRecord(value);
  if (record.type === 'UnknownRecord') {
    const { apiKey, version, bytes } = record;
    return { recordType: record.type, apiKey, version, value: bytes };
  }
  return { recordType: record.type, version: record.version, value: withoutSecrets(record) };
}

/** Passwords of mirrors, and what proves users; as Apache Kafka's own tool hides it. */
function withoutSecrets({ type, value }: Exclude<MetadataRecord, UnknownRecord>): object {
  if (type === 'UserScramCredentialRecord') {
    return { ...value, salt: HIDDEN, storedKey: HIDDEN, serverKey: HIDDEN };
  }
  const isSecret = type === 'ConfigRecord' && SECRETS.has(value.name) && value.value !== null;
  return isSecret ? { ...value, value: HIDDEN } : value;
}
