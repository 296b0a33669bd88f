/**
 * Metadata records as values and as the bytes in a record of the metadata log.
 *
 * In bytes: uvarint frame version 1, uvarint record type (the schema's apiKey), uvarint record
 * version, then the message in flexible encoding.
 *
 * The embedded controller writes with the versions of metadata.version 29 (Apache Kafka 4.2), so
 * that its tools read the log; whoever replays reads every version that the schemas know. A type
 * that this broker does not act on is kept as bytes; a version that is too new is an error, since
 * ignoring what it says could lose data.
 */
import { ByteReader, ByteWriter, MalformedBytes } from '../base/bytes.ts';
import { codec } from '../protocol/codec.ts';
import type { EncodableOf, Fields, Message, MessageOf } from '../protocol/schema.ts';
import { inVersions } from '../protocol/schema.ts';
import {
  BrokerRegistrationChangeRecord,
  FenceBrokerRecord,
  RegisterBrokerRecord,
  RegisterControllerRecord,
  UnfenceBrokerRecord,
  UnregisterBrokerRecord,
} from './records/broker-records.ts';
import {
  AbortTransactionRecord,
  BeginTransactionRecord,
  ConfigRecord,
  EndTransactionRecord,
  FeatureLevelRecord,
  NoOpRecord,
  ProducerIdsRecord,
} from './records/cluster-records.ts';
import {
  AccessControlEntryRecord,
  ClientQuotaRecord,
  RemoveAccessControlEntryRecord,
  RemoveUserScramCredentialRecord,
  UserScramCredentialRecord,
} from './records/security-records.ts';
import {
  ClearElrRecord,
  PartitionChangeRecord,
  PartitionRecord,
  RemoveTopicRecord,
  TopicRecord,
} from './records/topic-records.ts';

/** The metadata.version whose record versions are written: that of Apache Kafka 4.2. */
export const METADATA_VERSION = 29;
const FRAME_VERSION = 1;

const SCHEMAS = {
  AbortTransactionRecord,
  AccessControlEntryRecord,
  BeginTransactionRecord,
  BrokerRegistrationChangeRecord,
  ClearElrRecord,
  ClientQuotaRecord,
  ConfigRecord,
  EndTransactionRecord,
  FeatureLevelRecord,
  FenceBrokerRecord,
  NoOpRecord,
  PartitionChangeRecord,
  PartitionRecord,
  ProducerIdsRecord,
  RegisterBrokerRecord,
  RegisterControllerRecord,
  RemoveAccessControlEntryRecord,
  RemoveTopicRecord,
  RemoveUserScramCredentialRecord,
  TopicRecord,
  UnfenceBrokerRecord,
  UnregisterBrokerRecord,
  UserScramCredentialRecord,
} as const;

/** Record versions at {@link METADATA_VERSION} that are not 0. */
const WRITTEN_VERSIONS: Partial<Record<RecordType, number>> = {
  BrokerRegistrationChangeRecord: 2,
  PartitionChangeRecord: 2,
  PartitionRecord: 2,
  RegisterBrokerRecord: 3,
};

type Schemas = typeof SCHEMAS;

/** Names of the records that are decoded. */
export type RecordType = keyof Schemas;
/** The fields of a record type. */
export type RecordValue<T extends RecordType> = MessageOf<Schemas[T]>;

type KnownRecord = {
  [T in RecordType]: { readonly type: T; readonly version: number; readonly value: RecordValue<T> };
}[RecordType];

/** A record of a type that this broker does not act on. */
export interface UnknownRecord {
  readonly type: 'UnknownRecord';
  readonly apiKey: number;
  readonly version: number;
  readonly bytes: Uint8Array;
}

/** One record of the metadata log. */
export type MetadataRecord = KnownRecord | UnknownRecord;

const TYPES_BY_KEY: ReadonlyMap<number, RecordType> = new Map(
  Object.entries(SCHEMAS).map(([type, schema]) => [schema.apiKey as number, type as RecordType]),
);

/** Makes a record to be written; omitted fields get their defaults. */
export function metadataRecord<T extends RecordType>(
  type: T,
  fields: EncodableOf<Schemas[T]>,
): Extract<KnownRecord, { readonly type: T }> {
  const given = fields as Readonly<Record<string, unknown>>;
  const value: Record<string, unknown> = {};
  for (const [name, spec] of Object.entries(SCHEMAS[type].fields as Fields)) {
    // Null is a value here, so no `??`.
    value[name] = given[name] === undefined ? spec.defaultValue : given[name];
  }
  // Checked by the parameter's type; a mapped union cannot be built generically.
  const record: unknown = { type, version: WRITTEN_VERSIONS[type] ?? 0, value };
  return record as Extract<KnownRecord, { readonly type: T }>;
}

/** The bytes of a record's value. */
export function encodeMetadataRecord(record: MetadataRecord): Uint8Array {
  const writer = new ByteWriter();
  writer.uvarint(FRAME_VERSION);
  if (record.type === 'UnknownRecord') {
    writer.uvarint(record.apiKey);
    writer.uvarint(record.version);
    writer.raw(record.bytes);
  } else {
    const schema: Message = SCHEMAS[record.type];
    writer.uvarint(schema.apiKey as number);
    writer.uvarint(record.version);
    codec(schema, record.version).write(writer, record.value as EncodableOf<Message>);
  }
  return writer.toBytes();
}

/** Reads a record's value; {@link MalformedBytes} when it cannot be understood. */
export function decodeMetadataRecord(bytes: Uint8Array): MetadataRecord {
  const reader = new ByteReader(bytes);
  const frameVersion = reader.uvarint();
  if (frameVersion !== FRAME_VERSION) {
    throw new MalformedBytes(`metadata frame version ${frameVersion}`, 0);
  }
  const apiKey = reader.uvarint();
  const version = reader.uvarint();
  const type = TYPES_BY_KEY.get(apiKey);
  if (type === undefined) {
    return { type: 'UnknownRecord', apiKey, version, bytes: reader.view(reader.remaining).slice() };
  }
  const schema: Message = SCHEMAS[type];
  if (!inVersions(schema.versions, version)) {
    throw new MalformedBytes(`${type} of unknown version ${version}`, reader.position);
  }
  const value = codec(schema, version).read(reader);
  return { type, version, value } as unknown as MetadataRecord;
}
