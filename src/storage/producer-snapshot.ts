/**
 * Producer state snapshots: `<offset>.snapshot`, the producers as of that offset.
 *
 *     byte 0  version  int16   1
 *     byte 2  crc      uint32  CRC32C of all that follows
 *     byte 6  count    int32, then per producer 46 bytes: id int64, epoch int16,
 *             last sequence int32, last offset int64, offset delta int32, timestamp int64,
 *             coordinator epoch int32, first offset of the open transaction int64 (−1: none)
 *
 * Only the last batch of each producer is kept. A snapshot that does not check is not used: the
 * state is then replayed from an older one.
 */
import { crc32c } from '../base/crc32c.ts';
import type { Disk } from '../io/runtime.ts';

const VERSION = 1;
const HEADER_BYTES = 10;
const ENTRY_BYTES = 46;
const SUFFIX = '.snapshot';

/** One producer as a snapshot keeps it. */
export interface SnapshotEntry {
  readonly producerId: bigint;
  readonly producerEpoch: number;
  readonly lastSequence: number;
  readonly lastOffset: number;
  readonly offsetDelta: number;
  readonly timestamp: bigint;
  readonly coordinatorEpoch: number;
  readonly currentTxnFirstOffset: number;
}

/** The file of the snapshot at `offset`. */
export function snapshotPath(directory: string, offset: number): string {
  return `${directory}/${String(offset).padStart(20, '0')}${SUFFIX}`;
}

/** Offsets of the snapshots in a directory, ascending. */
export function listSnapshots(disk: Disk, directory: string): number[] {
  return snapshotOffsets((disk.list(directory) ?? []).map((entry) => entry.name));
}

/** Offsets of the snapshots among file names, ascending. */
export function snapshotOffsets(names: Iterable<string>): number[] {
  const offsets: number[] = [];
  for (const name of names) {
    if (/^[0-9]{20}\.snapshot$/.test(name)) offsets.push(Number(name.slice(0, -SUFFIX.length)));
  }
  return offsets.sort((a, b) => a - b);
}

/** Writes a snapshot. Not synced unless wanted: its CRC tells whether all of it arrived. */
export function writeSnapshot(
  disk: Disk,
  path: string,
  entries: readonly SnapshotEntry[],
  sync = false,
): void {
  const bytes = Buffer.alloc(HEADER_BYTES + entries.length * ENTRY_BYTES);
  bytes.writeInt16BE(VERSION, 0);
  bytes.writeInt32BE(entries.length, 6);
  let at = HEADER_BYTES;
  for (const entry of entries) {
    bytes.writeBigInt64BE(entry.producerId, at);
    bytes.writeInt16BE(entry.producerEpoch, at + 8);
    bytes.writeInt32BE(entry.lastSequence, at + 10);
    bytes.writeBigInt64BE(BigInt(entry.lastOffset), at + 14);
    bytes.writeInt32BE(entry.offsetDelta, at + 22);
    bytes.writeBigInt64BE(entry.timestamp, at + 26);
    bytes.writeInt32BE(entry.coordinatorEpoch, at + 34);
    bytes.writeBigInt64BE(BigInt(entry.currentTxnFirstOffset), at + 38);
    at += ENTRY_BYTES;
  }
  bytes.writeUInt32BE(crc32c(bytes.subarray(6)) >>> 0, 2);
  const file = disk.open(path, 'create');
  try {
    file.truncate(0);
    file.write([bytes], 0);
    if (sync) file.syncNow();
  } finally {
    file.close();
  }
}

/** Reads a snapshot; undefined when it is absent, torn or of another version. */
export function readSnapshot(disk: Disk, path: string): SnapshotEntry[] | undefined {
  const parsed = parseSnapshot(disk.readFile(path) ?? new Uint8Array(0));
  return typeof parsed === 'string' ? undefined : parsed;
}

/** The producers in a snapshot's bytes, or what is wrong with them. */
export function parseSnapshot(content: Uint8Array): SnapshotEntry[] | string {
  const bytes = Buffer.from(content);
  if (bytes.length < HEADER_BYTES) return `${bytes.length} bytes are too few for a snapshot`;
  const version = bytes.readInt16BE(0);
  if (version !== VERSION) return `snapshot version ${version} is not known`;
  const count = bytes.readInt32BE(6);
  if (bytes.length !== HEADER_BYTES + count * ENTRY_BYTES) {
    return `${bytes.length} bytes cannot be ${count} producers`;
  }
  if (crc32c(bytes.subarray(6)) >>> 0 !== bytes.readUInt32BE(2)) {
    return 'the CRC of the snapshot does not match its bytes';
  }
  return Array.from({ length: count }, (_, index) => readEntry(bytes, index));
}

function readEntry(bytes: Buffer, index: number): SnapshotEntry {
  const at = HEADER_BYTES + index * ENTRY_BYTES;
  return {
    producerId: bytes.readBigInt64BE(at),
    producerEpoch: bytes.readInt16BE(at + 8),
    lastSequence: bytes.readInt32BE(at + 10),
    lastOffset: Number(bytes.readBigInt64BE(at + 14)),
    offsetDelta: bytes.readInt32BE(at + 22),
    timestamp: bytes.readBigInt64BE(at + 26),
    coordinatorEpoch: bytes.readInt32BE(at + 34),
    currentTxnFirstOffset: Number(bytes.readBigInt64BE(at + 38)),
  };
}
