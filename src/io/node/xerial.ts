/**
 * The framing Java puts around snappy blocks ("xerial"), so that streams can be cut into blocks.
 *
 * | offset | bytes | what |
 * |---|---|---|
 * | 0 | 8 | 0x82 `SNAPPY` 0x00 |
 * | 8 | 4 + 4 | version 1, lowest readable version 1, big endian |
 * | 16 | 4 + n | length and bytes of a raw snappy block, repeated to the end |
 *
 * A header may occur again between blocks (concatenated streams).
 */

const HEADER = Uint8Array.of(0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0, 0, 0, 0, 1, 0, 0, 0, 1);
/** The part of the header that tells it from raw snappy; versions may differ. */
const MAGIC_BYTES = 8;
const LENGTH_BYTES = 4;

function hasMagic(bytes: Uint8Array, at: number): boolean {
  for (let i = 0; i < MAGIC_BYTES; i++) if (bytes[at + i] !== HEADER[i]) return false;
  return at + HEADER.length <= bytes.length;
}

/** The raw blocks inside, or undefined when `bytes` does not begin with the header. */
export function xerialBlocks(bytes: Uint8Array): Uint8Array[] | undefined {
  if (!hasMagic(bytes, 0)) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const blocks: Uint8Array[] = [];
  let at = HEADER.length;
  while (at < bytes.length) {
    if (hasMagic(bytes, at)) {
      at += HEADER.length;
      continue;
    }
    if (at + LENGTH_BYTES > bytes.length) throw new RangeError('xerial: cut off block length');
    const length = view.getUint32(at);
    const start = at + LENGTH_BYTES;
    if (start + length > bytes.length) throw new RangeError('xerial: cut off block');
    blocks.push(bytes.subarray(start, start + length));
    at = start + length;
  }
  return blocks;
}

/** Header and length-prefixed `blocks`. */
export function frameXerial(blocks: readonly Uint8Array[]): Uint8Array {
  const size = blocks.reduce((sum, block) => sum + LENGTH_BYTES + block.length, HEADER.length);
  const out = new Uint8Array(size);
  const view = new DataView(out.buffer);
  out.set(HEADER);
  let at = HEADER.length;
  for (const block of blocks) {
    view.setUint32(at, block.length);
    out.set(block, at + LENGTH_BYTES);
    at += LENGTH_BYTES + block.length;
  }
  return out;
}
