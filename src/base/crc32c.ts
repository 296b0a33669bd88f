/**
 * CRC32C (Castagnoli), the checksum of record batches.
 *
 * One place decides which library computes it; more than 5 GB/s here.
 */
import { crc32c as native } from '@node-rs/crc32';

/** The checksum of `bytes`, as an unsigned 32-bit integer. `initial` continues an earlier one. */
export function crc32c(bytes: Uint8Array, initial = 0): number {
  return native(bytes as Buffer, initial);
}
