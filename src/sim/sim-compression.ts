/**
 * Compression in a world without native libraries: batches are left as they are.
 *
 * Enough for most scenarios; one that needs Kafka's codecs injects the real ones, which are pure
 * functions and so do no harm to a run's repeatability.
 */
import type { Compression } from '../io/runtime.ts';

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
