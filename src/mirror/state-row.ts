/**
 * Rows of the mirror state and where they live (rules C2, C3).
 *
 * A row is the value of a `__mirror_state` record; its key names mirror, topic id and partition.
 * Which partition of the internal topic holds a row is a hash of the key's text, computed the way
 * Kafka's default partitioner does, so that anyone can find the owner without asking.
 */

import { ByteReader, ByteWriter } from '../base/bytes.ts';
import type { Uuid } from '../base/uuid.ts';
import { MIRROR_STATE_TOPIC_NAME } from '../metadata/topic-names.ts';
import { codec } from '../protocol/codec.ts';
import { MirrorStateKey, MirrorStateValue } from './records/mirror-state.ts';

/** Name of the internal topic (rule C1). */
export const MIRROR_STATE_TOPIC = MIRROR_STATE_TOPIC_NAME;

/** FindCoordinator's key type for mirrors (rule C3). */
export const MIRROR_COORDINATOR_KEY_TYPE = 64;

/** Source epochs a row keeps; the oldest leave first, none of them below the log start matters. */
export const MAX_SOURCE_EPOCHS = 500;

/** A row as the rest of the mirror code sees it. */
export type MirrorStateRow = Omit<MirrorStateValue, 'unknownTags'>;

/** A transaction that a stop ended, as its row lists it (G24a). */
export type ClosedTransaction = MirrorStateRow['closedTransactions'][number];

/** Where a leader epoch of the source began. */
export interface SourceEpoch {
  readonly epoch: number;
  readonly startOffset: number;
}

/** Names a row. */
export interface RowKey {
  readonly mirror: string;
  readonly topicId: Uuid;
  readonly partition: number;
}

const keyCodec = codec(MirrorStateKey, 0);
const valueCodec = codec(MirrorStateValue, 0);

/** `mirror:topicId:partition`, the text that is hashed and looked up (rule C3). */
export function rowKeyText(key: RowKey): string {
  return `${key.mirror}:${key.topicId}:${key.partition}`;
}

/** Parses {@link rowKeyText} from the right; undefined for anything else. */
export function parseRowKeyText(text: string): RowKey | undefined {
  const match = /^(.+):([A-Za-z0-9_-]{22}):(\d{1,9})$/.exec(text);
  if (match === null) return undefined;
  const [, mirror, topicId, partition] = match;
  return { mirror: mirror ?? '', topicId: topicId as Uuid, partition: Number(partition) };
}

/** The 32-bit murmur2 hash Kafka's default partitioner uses, as a signed integer. */
export function murmur2(data: Uint8Array): number {
  const multiplier = 0x5bd1e995;
  const { length } = data;
  let hash = 0x9747b28c ^ length;
  const byteAt = (index: number): number => data[index] ?? 0;
  const whole = length - (length % 4);
  for (let i = 0; i < whole; i += 4) {
    let k = byteAt(i) | (byteAt(i + 1) << 8) | (byteAt(i + 2) << 16) | (byteAt(i + 3) << 24);
    k = Math.imul(k, multiplier);
    k ^= k >>> 24;
    k = Math.imul(k, multiplier);
    hash = Math.imul(hash, multiplier) ^ k;
  }
  const rest = length % 4;
  if (rest === 3) hash ^= byteAt(whole + 2) << 16;
  if (rest >= 2) hash ^= byteAt(whole + 1) << 8;
  if (rest >= 1) hash = Math.imul(hash ^ byteAt(whole), multiplier);
  hash ^= hash >>> 13;
  hash = Math.imul(hash, multiplier);
  return (hash ^ (hash >>> 15)) | 0;
}

/** The partition of `__mirror_state` that owns `text` (rule C3). */
export function ownerPartition(text: string, partitions: number): number {
  return (murmur2(Buffer.from(text, 'utf8')) & 0x7fffffff) % partitions;
}

function withVersion(version: number, write: (writer: ByteWriter) => void): Uint8Array {
  const writer = new ByteWriter();
  writer.int16(version);
  write(writer);
  return writer.toBytes();
}

/** The record key of a row. */
export function encodeRowKey(key: RowKey): Uint8Array {
  const { mirror, topicId, partition } = key;
  return withVersion(MirrorStateKey.apiKey ?? 0, (writer) =>
    keyCodec.write(writer, { mirrorName: mirror, topicId, partition }),
  );
}

/** The record value of a row. */
export function encodeRow(row: MirrorStateRow): Uint8Array {
  return withVersion(0, (writer) => valueCodec.write(writer, row));
}

/** Undefined for a record type that this version does not know. */
export function decodeRowKey(bytes: Uint8Array): RowKey | undefined {
  const reader = new ByteReader(bytes);
  if (reader.int16() !== MirrorStateKey.apiKey) return undefined;
  const { mirrorName, topicId, partition } = keyCodec.read(reader);
  return { mirror: mirrorName, topicId, partition };
}

/** Decodes a record value; every version so far is read as version 0, later ones add tags. */
export function decodeRow(bytes: Uint8Array): MirrorStateRow {
  const reader = new ByteReader(bytes);
  reader.int16();
  return valueCodec.read(reader);
}
