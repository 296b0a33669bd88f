/**
 * The mirrors and mirrored topics of a cluster with guests, and who runs a mirror's jobs.
 *
 * The state store replays rows of types 3, 4 and 5 into this; each replay answers what changed as
 * config records, the overlay on the metadata image that makes memberships and mirror settings
 * look as if the controller kept them (rules O1, O2). Nothing here writes or waits.
 */
import { ByteReader, ByteWriter } from '../../base/bytes.ts';
import type { Uuid } from '../../base/uuid.ts';
import { ConfigResourceType, MIRROR_NAME_CONFIG, REMOVED_SUFFIX } from '../../metadata/image.ts';
import { metadataRecord } from '../../metadata/record-framing.ts';
import type { PlacedRecord } from '../../metadata/transaction-buffer.ts';
import {
  MirrorJobsKey,
  MirrorJobsValue,
  MirrorSettingsKey,
  MirrorSettingsValue,
  MirrorTopicKey,
  MirrorTopicValue,
} from '../../mirror/records/mirror-catalog.ts';
import { type Codec, codec } from '../../protocol/codec.ts';
import { OpenTransactions } from '../../protocol/messages/12792-remove-topics-from-mirror.ts';
import type { EncodableOf, Message, MessageOf } from '../../protocol/schema.ts';

/** Version of every row type so far; later ones add tagged fields. */
const ROW_VERSION = 0;

/** Settings of a mirror as the rest of the guest sees them. */
export interface MirrorSettingsRow {
  readonly configs: ReadonlyMap<string, string>;
  /** Of the source cluster, 1 to 4095 (rule G20); 0: none yet. */
  readonly producerIdTag: number;
}

/** A mirrored topic as the rest of the guest sees it. */
export interface MirrorTopicRow {
  readonly mirrorName: string;
  readonly removed: boolean;
  readonly membershipOffset: number;
  readonly topicId: Uuid;
  readonly sourceTopicId: Uuid;
  /** A null value: the topic shall have no override of that name. */
  readonly finalConfigs: readonly { readonly name: string; readonly value: string | null }[];
  /** −1: the cluster's default. */
  readonly targetReplicationFactor: number;
  /**
   * Of a native topic that is taken into the mirror (G29): by partition, the offset from which its
   * guests follow it. Absent: the mirror made the topic.
   */
  readonly takeoverOffsets?: readonly number[];
  /** Of a removed topic, an `OpenTransactions` of the request (G24a); absent: they are cut. */
  readonly openTransactions?: number;
}

/** Who runs a mirror's jobs. */
export type MirrorJobsRow = Omit<MirrorJobsValue, 'unknownTags'>;

/** Names a row of the catalog. */
export type CatalogKey =
  | { readonly type: 'settings'; readonly mirror: string }
  | { readonly type: 'topic'; readonly topic: string }
  | { readonly type: 'jobs'; readonly mirror: string };

const settingsKey = codec(MirrorSettingsKey, ROW_VERSION);
const settingsValue = codec(MirrorSettingsValue, ROW_VERSION);
const topicKey = codec(MirrorTopicKey, ROW_VERSION);
const topicValue = codec(MirrorTopicValue, ROW_VERSION);
const jobsKey = codec(MirrorJobsKey, ROW_VERSION);
const jobsValue = codec(MirrorJobsValue, ROW_VERSION);

function prefixed<M extends Message>(prefix: number, of: Codec<M>, value: EncodableOf<M>) {
  const writer = new ByteWriter();
  writer.int16(prefix);
  of.write(writer, value);
  return writer.toBytes();
}

function decodeValue<M extends Message>(of: Codec<M>, bytes: Uint8Array): MessageOf<M> {
  const reader = new ByteReader(bytes);
  reader.int16();
  return of.read(reader);
}

/** The text that is hashed for the partition of a row (rule C3); no partition row has such. */
export function catalogKeyText(key: CatalogKey): string {
  return `${key.type}/${key.type === 'topic' ? key.topic : key.mirror}`;
}

/** The record key of a row. */
export function encodeCatalogKey(key: CatalogKey): Uint8Array {
  switch (key.type) {
    case 'settings':
      return prefixed(MirrorSettingsKey.apiKey ?? 0, settingsKey, { mirrorName: key.mirror });
    case 'topic':
      return prefixed(MirrorTopicKey.apiKey ?? 0, topicKey, { topicName: key.topic });
    case 'jobs':
      return prefixed(MirrorJobsKey.apiKey ?? 0, jobsKey, { mirrorName: key.mirror });
  }
}

/** Undefined for a record of any other type. */
export function decodeCatalogKey(bytes: Uint8Array): CatalogKey | undefined {
  const reader = new ByteReader(bytes);
  switch (reader.int16()) {
    case MirrorSettingsKey.apiKey:
      return { type: 'settings', mirror: settingsKey.read(reader).mirrorName };
    case MirrorTopicKey.apiKey:
      return { type: 'topic', topic: topicKey.read(reader).topicName };
    case MirrorJobsKey.apiKey:
      return { type: 'jobs', mirror: jobsKey.read(reader).mirrorName };
    default:
      return undefined;
  }
}

/** The record value of a mirror's settings. */
export function encodeSettings(row: MirrorSettingsRow): Uint8Array {
  const configs = [...row.configs].map(([name, value]) => ({ name, value }));
  configs.sort((a, b) => (a.name < b.name ? -1 : 1));
  return prefixed(ROW_VERSION, settingsValue, { configs, producerIdTag: row.producerIdTag });
}

/** Decodes a record value. */
export function decodeSettings(bytes: Uint8Array): MirrorSettingsRow {
  const { configs, producerIdTag } = decodeValue(settingsValue, bytes);
  return { configs: new Map(configs.map(({ name, value }) => [name, value])), producerIdTag };
}

/** The record value of a mirrored topic. */
export function encodeTopic(row: MirrorTopicRow): Uint8Array {
  return prefixed(ROW_VERSION, topicValue, row);
}

/** Decodes a record value. */
export function decodeTopic(bytes: Uint8Array): MirrorTopicRow {
  const { takeoverOffsets, openTransactions, ...row } = decodeValue(topicValue, bytes);
  return {
    ...row,
    ...(takeoverOffsets.length === 0 ? {} : { takeoverOffsets }),
    ...(openTransactions === OpenTransactions.CUT ? {} : { openTransactions }),
  };
}

/** The record value of a mirror's jobs. */
export function encodeJobs(row: MirrorJobsRow): Uint8Array {
  return prefixed(ROW_VERSION, jobsValue, row);
}

/** Decodes a record value. */
export function decodeJobs(bytes: Uint8Array): MirrorJobsRow {
  return decodeValue(jobsValue, bytes);
}

function config(type: number, resource: string, name: string, value: string | null, offset = 0) {
  const record = metadataRecord('ConfigRecord', {
    resourceType: type,
    resourceName: resource,
    name,
    value,
  });
  return { record, offset };
}

/** The value of `mirror.name` that means this membership (rule O2). */
function membershipValue({ mirrorName, removed }: MirrorTopicRow): string {
  return removed ? `${mirrorName}${REMOVED_SUFFIX}` : mirrorName;
}

/** See the file header. */
export class MirrorCatalog {
  readonly #settings = new Map<string, MirrorSettingsRow>();
  readonly #topics = new Map<string, MirrorTopicRow>();
  readonly #jobs = new Map<string, MirrorJobsRow>();

  /** The mirrors that there are, sorted. */
  mirrors(): string[] {
    return [...this.#settings.keys()].sort();
  }

  settings(mirror: string): MirrorSettingsRow | undefined {
    return this.#settings.get(mirror);
  }

  topic(name: string): MirrorTopicRow | undefined {
    return this.#topics.get(name);
  }

  /** Names and rows of a mirror's topics, detached ones included, sorted by name. */
  topics(mirror: string): [name: string, row: MirrorTopicRow][] {
    return [...this.#topics]
      .filter(([, row]) => row.mirrorName === mirror)
      .sort(([a], [b]) => (a < b ? -1 : 1));
  }

  jobs(mirror: string): MirrorJobsRow | undefined {
    return this.#jobs.get(mirror);
  }

  /** The value of a row as it would be written; undefined: no such row. */
  encoded(key: CatalogKey): Uint8Array | undefined {
    if (key.type === 'topic') {
      const topic = this.#topics.get(key.topic);
      return topic && encodeTopic(topic);
    }
    if (key.type === 'settings') {
      const settings = this.#settings.get(key.mirror);
      return settings && encodeSettings(settings);
    }
    const jobs = this.#jobs.get(key.mirror);
    return jobs && encodeJobs(jobs);
  }

  /** Applies one row; the records that change the metadata image accordingly. */
  replay(key: CatalogKey, value: Uint8Array | null): PlacedRecord[] {
    switch (key.type) {
      case 'settings':
        return this.#replaySettings(key.mirror, value === null ? undefined : decodeSettings(value));
      case 'topic':
        return this.#replayTopic(key.topic, value === null ? undefined : decodeTopic(value));
      case 'jobs':
        if (value === null) this.#jobs.delete(key.mirror);
        else this.#jobs.set(key.mirror, decodeJobs(value));
        return [];
    }
  }

  #replaySettings(mirror: string, row: MirrorSettingsRow | undefined): PlacedRecord[] {
    const before = this.#settings.get(mirror)?.configs ?? new Map<string, string>();
    const after = row?.configs ?? new Map<string, string>();
    if (row === undefined) this.#settings.delete(mirror);
    else this.#settings.set(mirror, row);
    const records: PlacedRecord[] = [];
    for (const name of before.keys()) {
      if (!after.has(name)) records.push(config(ConfigResourceType.MIRROR, mirror, name, null));
    }
    for (const [name, value] of after) {
      if (before.get(name) === value) continue;
      records.push(config(ConfigResourceType.MIRROR, mirror, name, value));
    }
    return records;
  }

  #replayTopic(topic: string, row: MirrorTopicRow | undefined): PlacedRecord[] {
    const before = this.#topics.get(topic);
    if (row === undefined) {
      this.#topics.delete(topic);
      if (before === undefined) return [];
      return [config(ConfigResourceType.TOPIC, topic, MIRROR_NAME_CONFIG, null)];
    }
    this.#topics.set(topic, row);
    const value = membershipValue(row);
    const isSame =
      before !== undefined &&
      membershipValue(before) === value &&
      before.membershipOffset === row.membershipOffset;
    if (isSame) return [];
    const { membershipOffset } = row;
    return [config(ConfigResourceType.TOPIC, topic, MIRROR_NAME_CONFIG, value, membershipOffset)];
  }
}
