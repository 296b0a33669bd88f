/**
 * Walks an LZ4 frame without inflating it, to know where it ends and how large it becomes.
 *
 * | bytes | what |
 * |---|---|
 * | 4 | magic 0x184D2204, little endian, as are all numbers here |
 * | 1 | flags: version (bits 7-6) 01, block checksum 4, content size 3, checksum 2, dictionary 0 |
 * | 1 | bits 6-4: block maximum, 4 = 64 KiB … 7 = 4 MiB |
 * | 0 or 8 | content size (not trusted: it is only a claim) |
 * | 1 | header checksum (left to the library) |
 * | 4 + n (+ 4) | block length (top bit: stored), bytes, checksum; repeated |
 * | 4 (+ 4) | zero, content checksum |
 */

const MAGIC = 0x184d2204;
const STORED_BIT = 0x8000_0000;
/** No block of n bytes inflates to more than this many times n. */
const MAX_BLOCK_EXPANSION = 255;
const FLAG = { blockChecksum: 0x10, contentSize: 0x08, contentChecksum: 0x04, dictionary: 0x01 };

function need(condition: boolean, what: string): void {
  if (!condition) throw new RangeError(`lz4 frame: ${what}`);
}

/** Reads a length's continuation bytes; returns the position after them and the sum. */
function extendedLength(block: Uint8Array, start: number, base: number): [number, number] {
  let at = start;
  let length = base;
  if (base !== 15) return [at, length];
  for (;;) {
    const byte = block[at++];
    if (byte === undefined) throw new RangeError('lz4 frame: cut off sequence');
    length += byte;
    if (byte !== 255) return [at, length];
  }
}

/** Exactly how many bytes a compressed block inflates to: the sum of its literals and matches. */
function inflatedBlockLength(block: Uint8Array): number {
  let at = 0;
  let total = 0;
  while (at < block.length) {
    const token = block[at]!;
    const [afterLiteral, literal] = extendedLength(block, at + 1, token >> 4);
    total += literal;
    at = afterLiteral + literal;
    if (at >= block.length) break; // the last sequence has literals only
    const [afterMatch, match] = extendedLength(block, at + 2, token & 15);
    total += match + 4;
    at = afterMatch;
  }
  return total;
}

function blocksStart(view: DataView): { at: number; blockMax: number } {
  need(view.byteLength >= 7 && view.getUint32(0, true) === MAGIC, 'no magic');
  const flags = view.getUint8(4);
  need(flags >> 6 === 1 && (flags & FLAG.dictionary) === 0, 'unsupported flags');
  const sizeCode = (view.getUint8(5) >> 4) & 7;
  need(sizeCode >= 4, 'bad block size');
  return { at: (flags & FLAG.contentSize) === 0 ? 7 : 15, blockMax: 2 ** (8 + 2 * sizeCode) };
}

/** The blocks of a frame, and where the frame ends. */
function walk(bytes: Uint8Array): { stored: number; blocks: Uint8Array[]; end: number } {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = blocksStart(view);
  const flags = view.getUint8(4);
  const blockTrailer = (flags & FLAG.blockChecksum) === 0 ? 0 : 4;
  const blocks: Uint8Array[] = [];
  let at = start.at;
  let stored = 0;
  for (;;) {
    need(at + 4 <= bytes.length, 'cut off');
    const header = view.getUint32(at, true);
    at += 4;
    if (header === 0) break;
    const length = header & ~STORED_BIT;
    need(at + length + blockTrailer <= bytes.length && length <= start.blockMax, 'cut off block');
    if (header >= STORED_BIT) stored += length;
    else blocks.push(bytes.subarray(at, at + length));
    at += length + blockTrailer;
  }
  const end = at + ((flags & FLAG.contentChecksum) === 0 ? 0 : 4);
  need(end <= bytes.length, 'cut off');
  return { stored, blocks, end };
}

/**
 * The length of the frame at the start of `bytes`; what follows it is not part of it. Throws
 * RangeError when it is malformed, cut off, or inflates beyond `maxBytes`. The exact size is
 * computed only when the cheap upper bound does not already settle it.
 */
export function lz4FrameLength(bytes: Uint8Array, maxBytes: number): number {
  const { stored, blocks, end } = walk(bytes);
  const compressed = blocks.reduce((sum, block) => sum + block.length, 0);
  if (stored + compressed * MAX_BLOCK_EXPANSION <= maxBytes) return end;
  const inflated = blocks.reduce((sum, block) => sum + inflatedBlockLength(block), stored);
  need(inflated <= maxBytes, `inflates to ${inflated} bytes, above ${maxBytes}`);
  return end;
}
