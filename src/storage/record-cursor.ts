/**
 * Walks the records of a batch payload without taking them apart: what compaction needs of them.
 *
 * One reused object: nothing is allocated per record, keys are ranges of the payload, timestamps
 * stay undecoded. `protocol/record.ts` has the layout, and decodes records whole.
 */
import { ByteReader, MalformedBytes } from '../base/bytes.ts';
import type { Compression } from '../io/runtime.ts';
import type { RecordBatch } from '../protocol/record-batch.ts';
import { MAX_DECOMPRESSED_BYTES } from './append-validation.ts';

/** Bytes of the longest varint of 64 bits. */
const MAX_VARINT_BYTES = 10;

/** The records of a batch as bytes, decompressed if need be; throws MalformedBytes. */
export function decompressedPayload(batch: RecordBatch, compression: Compression): Uint8Array {
  const type = batch.compressionType;
  if (type === undefined) throw new MalformedBytes('unknown compression codec', batch.position);
  if (type === 'none') return batch.payload();
  try {
    return compression.decompress(type, batch.payload(), MAX_DECOMPRESSED_BYTES);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new MalformedBytes(`${type} payload: ${error.message}`, batch.position);
  }
}

/** One record after the other. */
export class RecordCursor {
  readonly bytes: Uint8Array;
  /** Behind the present record: where the next begins. */
  end = 0;
  offsetDelta = 0;
  /** Where the key's bytes are; −1: the key is null. */
  keyStart = 0;
  keyEnd = 0;
  hasValue = false;
  /** From the length of the key to the end of the record: what no rewriting changes. */
  restStart = 0;
  #timestampAt = 0;
  #at = 0;

  constructor(payload: Uint8Array) {
    this.bytes = payload;
  }

  /** Goes to the next record; throws MalformedBytes when there is none that is whole. */
  next(): void {
    this.#at = this.end;
    const length = this.#varint();
    const start = this.#at;
    if (length < 0 || length > this.bytes.length - start) {
      throw new MalformedBytes(`record of ${length} bytes`, start);
    }
    this.end = start + length;
    this.#at = start + 1;
    this.#timestampAt = this.#at;
    this.#skipVarint();
    this.offsetDelta = this.#varint();
    this.restStart = this.#at;
    const keyLength = this.#varint();
    this.keyStart = keyLength < 0 ? -1 : this.#at;
    this.#at += Math.max(0, keyLength);
    this.keyEnd = this.#at;
    this.hasValue = this.#varint() >= 0;
    if (this.#at > this.end) throw new MalformedBytes('record exceeds its length', start);
  }

  /** The present record's timestamp, less the base timestamp of the batch. */
  timestampDelta(): bigint {
    return new ByteReader(this.bytes, this.#timestampAt, this.end).varlongExact();
  }

  #varint(): number {
    let raw = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.bytes[this.#at++];
      if (byte === undefined) break;
      raw |= (byte & 0x7f) << shift;
      if (byte < 0x80) return (raw >>> 1) ^ -(raw & 1);
    }
    throw new MalformedBytes('varint does not end', this.#at);
  }

  #skipVarint(): void {
    for (let count = 0; count < MAX_VARINT_BYTES; count++) {
      if ((this.bytes[this.#at++] ?? 0) < 0x80) return;
    }
    throw new MalformedBytes('varint does not end', this.#at);
  }
}
