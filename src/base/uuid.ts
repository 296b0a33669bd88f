/**
 * Kafka's Uuid: 128 bits, written as 22 characters of unpadded URL-safe base64.
 *
 * Kept as a branded string so that it works as a Map key; only the codec turns it into bytes.
 */

declare const uuidBrand: unique symbol;
/** 22 characters of URL-safe base64 (Kafka's text form of a topic, directory or incarnation id). */
export type Uuid = string & { readonly [uuidBrand]: true };

/** All bits zero: "no id". */
export const ZERO_UUID = 'AAAAAAAAAAAAAAAAAAAAAA' as Uuid;
/** Kafka's reserved id of the metadata topic `__cluster_metadata`. */
export const METADATA_TOPIC_ID = 'AAAAAAAAAAAAAAAAAAAAAQ' as Uuid;

/** Reads 16 bytes at `offset`. */
export function uuidFromBytes(bytes: Uint8Array, offset = 0): Uuid {
  return Buffer.from(bytes.buffer, bytes.byteOffset + offset, 16).toString('base64url') as Uuid;
}

/** The 16 bytes of an id. */
export function uuidToBytes(uuid: Uuid): Uint8Array {
  return Buffer.from(uuid, 'base64url');
}

/** Parses the text form; undefined unless it is exactly one 128-bit id. */
export function parseUuid(text: string): Uuid | undefined {
  if (!/^[A-Za-z0-9_-]{22}$/.test(text)) return undefined;
  const bytes = Buffer.from(text, 'base64url');
  return bytes.length === 16 ? uuidFromBytes(bytes) : undefined;
}

/** Makes a random id from 16 random bytes, avoiding the reserved ids and a leading dash. */
export function randomUuid(randomBytes: (length: number) => Uint8Array): Uuid {
  for (;;) {
    const uuid = uuidFromBytes(randomBytes(16));
    if (!uuid.startsWith('-') && uuid !== ZERO_UUID && uuid !== METADATA_TOPIC_ID) return uuid;
  }
}
