/**
 * Compression in a world without native libraries: batches are left as they are.
 *
 * Enough for most scenarios; one that needs Kafka's codecs injects the real ones, which are pure
 * functions and so do no harm to a run's repeatability.
 */
import type { Compression, CompressionType } from '../io/runtime.ts';

/** Knows `none` only; every other codec is a RangeError. */
export const noCompression: Compression = {
  compress: (type, bytes) => {
    if (type !== 'none') throw new RangeError(`${type} is not simulated`);
    return bytes;
  },
  decompress: (type, bytes, maxBytes) => {
    if (type !== 'none') throw new RangeError(`${type} is not simulated`);
    if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes, above ${maxBytes}`);
    return bytes;
  },
};

/** What {@link toyCompression} changes in each byte, by codec. */
const TOY_MASKS: Readonly<Record<CompressionType, number>> = {
  none: 0,
  gzip: 0x11,
  snappy: 0x22,
  lz4: 0x33,
  zstd: 0x44,
};

/** Stand-ins for Kafka's codecs: bytes that are unreadable, and of another length, until undone. */
export const toyCompression: Compression = {
  compress: (type, bytes) => {
    if (type === 'none') return bytes;
    const out = new Uint8Array(bytes.length + 1);
    out[0] = TOY_MASKS[type];
    for (let i = 0; i < bytes.length; i++) out[i + 1] = bytes[i]! ^ TOY_MASKS[type];
    return out;
  },
  decompress: (type, bytes, maxBytes) => {
    if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes, above ${maxBytes}`);
    if (type === 'none') return bytes;
    if (bytes[0] !== TOY_MASKS[type]) throw new RangeError(`these bytes are not ${type}`);
    return bytes.subarray(1).map((byte) => byte ^ TOY_MASKS[type]);
  },
};
