/**
 * Kafka's codecs behind the Compression port, in the framings Kafka uses.
 *
 * gzip and zstd are Node's own. snappy is read raw (librdkafka) or in xerial framing (Java), and
 * written in xerial framing; lz4 is an LZ4 frame of independent blocks. Every limit is checked
 * before memory is filled: zlib is told the limit, snappy announces its size, and an LZ4 frame's
 * size is computed from its blocks first. Whatever is wrong with the bytes is a RangeError.
 */
import zlib from 'node:zlib';
import lz4 from 'lz4-napi';
import snappy from 'snappy';
import type { Compression, CompressionType } from '../runtime.ts';
import { lz4FrameLength } from './lz4-frame.ts';
import { frameXerial, xerialBlocks } from './xerial.ts';

/** Uncompressed bytes a xerial block holds (Java's default). */
const XERIAL_BLOCK_BYTES = 32 * 1024;
/** Most bytes a snappy length prefix takes. */
const MAX_SNAPPY_PREFIX_BYTES = 5;

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function compressSnappy(bytes: Uint8Array): Uint8Array {
  const blocks: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += XERIAL_BLOCK_BYTES) {
    blocks.push(snappy.compressSync(bytes.subarray(at, at + XERIAL_BLOCK_BYTES)));
  }
  return frameXerial(blocks);
}

/** The uncompressed size that raw snappy data announces. */
function snappySize(block: Uint8Array): number {
  let size = 0;
  for (let i = 0; i < MAX_SNAPPY_PREFIX_BYTES; i++) {
    const byte = block[i];
    if (byte === undefined) break;
    size += (byte & 0x7f) * 2 ** (7 * i);
    if (byte < 0x80) return size;
  }
  throw new RangeError('snappy: bad length prefix');
}

function decompressSnappy(bytes: Uint8Array, maxBytes: number): Uint8Array {
  const blocks = xerialBlocks(bytes) ?? [bytes];
  const size = blocks.reduce((sum, block) => sum + snappySize(block), 0);
  refuseAbove(maxBytes, size);
  const parts = blocks.map((block) => snappy.uncompressSync(block, { asBuffer: true }) as Buffer);
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
}

function decompressLz4(bytes: Uint8Array, maxBytes: number): Uint8Array {
  const frame = lz4FrameLength(bytes, maxBytes);
  return lz4.decompressFrameSync(asBuffer(bytes.subarray(0, frame)));
}

function refuseAbove(maxBytes: number, size: number): void {
  if (size > maxBytes) throw new RangeError(`inflates to ${size} bytes, above ${maxBytes}`);
}

function compress(type: CompressionType, bytes: Uint8Array): Uint8Array {
  switch (type) {
    case 'none':
      return bytes;
    case 'gzip':
      return zlib.gzipSync(bytes);
    case 'snappy':
      return compressSnappy(bytes);
    case 'lz4':
      return lz4.compressFrameSync(asBuffer(bytes));
    case 'zstd':
      return zlib.zstdCompressSync(bytes);
  }
}

function inflate(type: CompressionType, bytes: Uint8Array, maxBytes: number): Uint8Array {
  // Node's limit must be at least 1; the check below settles a limit of 0.
  const limit = { maxOutputLength: Math.max(1, maxBytes) };
  switch (type) {
    case 'none':
      return bytes;
    case 'gzip':
      return zlib.gunzipSync(bytes, limit);
    case 'snappy':
      return decompressSnappy(bytes, maxBytes);
    case 'lz4':
      return decompressLz4(bytes, maxBytes);
    case 'zstd':
      return zlib.zstdDecompressSync(bytes, limit);
  }
}

function decompress(type: CompressionType, bytes: Uint8Array, maxBytes: number): Uint8Array {
  let out: Uint8Array;
  try {
    out = inflate(type, bytes, maxBytes);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new RangeError(`${type}: ${reason}`, { cause: error });
  }
  refuseAbove(maxBytes, out.length);
  return out;
}

/** The real codecs. */
export function nodeCompression(): Compression {
  return { compress, decompress };
}
