/**
 * Dumps the indexes of a segment: .index, .timeindex, .txnindex.
 *
 * Entries must be whole and in order, and lie within the segment. With `deep` they are compared
 * with the batches of the .log file beside them, in one pass over both: whoever follows an entry
 * must not miss a record. A running broker adds entries later than batches, and an index of Apache
 * Kafka's active segment is filled up with zeros; neither is a problem.
 */
import { MalformedBytes } from '../base/bytes.ts';
import type { Disk } from '../io/runtime.ts';
import type { RecordBatch } from '../protocol/record-batch.ts';
import { BatchFile, readOnlyDisk } from './batch-file.ts';
import { BatchHeader, readMarker } from './batch-header.ts';
import { type DumpRow, type DumpRows, problem, row } from './dump-row.ts';
import type { IndexFile } from './index-file.ts';
import { OffsetIndex } from './offset-index.ts';
import { OpenFiles } from './open-files.ts';
import { fromHalves, TimeIndex } from './time-index.ts';
import { type AbortedTransaction, TransactionIndex } from './transaction-index.ts';

/** An index file and the segment it belongs to. */
export interface IndexDumpOptions {
  readonly baseOffset: number;
  /** The .log file beside it; undefined: there is none, so entries are compared with nothing. */
  readonly logPath: string | undefined;
  readonly deep: boolean;
}

const NO_LIMIT = Number.MAX_SAFE_INTEGER;

function openFiles(disk: Disk): OpenFiles {
  return new OpenFiles(readOnlyDisk(disk));
}

/** Entries to look at, without the zeros that Apache Kafka preallocates. */
function usedEntries(file: IndexFile): number {
  file.load();
  const bytes = file.allBytes();
  let last = bytes.length - 1;
  while (last >= 0 && bytes[last] === 0) last--;
  const used = Math.ceil((last + 1) / file.entrySize);
  // One entry of zeros alone can be a record of offset 0 and timestamp 0.
  return used === 0 && file.count === 1 ? 1 : used;
}

function* fileRows(disk: Disk, file: IndexFile, used: number): DumpRows {
  const size = disk.fileSize(file.path) ?? 0;
  const rest = size % file.entrySize;
  if (rest > 0) {
    yield problem(`the file ends inside an entry of ${file.entrySize} bytes`, {
      position: size - rest,
    });
  }
  const preallocatedBytes = size - rest - used * file.entrySize;
  yield row('end', {
    entries: used,
    ...(preallocatedBytes > 0 ? { preallocatedBytes } : {}),
  });
}

/** Looks at batches in order, as far as asked for. */
class BatchCursor {
  readonly #file: BatchFile;
  readonly #whole: boolean;
  batch: RecordBatch | undefined;

  constructor(disk: Disk, path: string, whole = false) {
    this.#file = new BatchFile(disk, path);
    this.#whole = whole;
  }

  get position(): number {
    return this.#file.position;
  }

  advance(): boolean {
    this.batch = this.#file.next(this.#whole);
    return this.batch !== undefined;
  }

  close(): void {
    this.#file.close();
  }
}

/** Rows of a .index file. */
export function* dumpOffsetIndex(disk: Disk, path: string, options: IndexDumpOptions): DumpRows {
  const files = openFiles(disk);
  const index = new OffsetIndex(files, path, options.baseOffset, NO_LIMIT);
  const used = usedEntries(index.file);
  const logSize = options.logPath === undefined ? undefined : disk.fileSize(options.logPath);
  const log = deepCursor(disk, options);
  try {
    let previous = { offset: -1, position: -1 };
    for (let entry = 0; entry < used; entry++) {
      const found = { offset: index.offsetAt(entry), position: index.positionAt(entry) };
      yield row('entry', found);
      if (found.offset <= previous.offset || found.position <= previous.position) {
        yield problem('the entry is not above the one before', { entry, ...found });
      }
      previous = found;
      if (logSize !== undefined && found.position >= logSize) {
        yield problem(`the entry points beyond the segment of ${logSize} bytes`, {
          entry,
          ...found,
        });
      } else if (log !== undefined) yield* compareOffsetEntry(log, entry, found);
    }
    yield* fileRows(disk, index.file, used);
  } finally {
    log?.close();
    index.file.close();
  }
}

function deepCursor(disk: Disk, options: IndexDumpOptions): BatchCursor | undefined {
  const { deep, logPath } = options;
  return deep && logPath !== undefined ? new BatchCursor(disk, logPath) : undefined;
}

function* compareOffsetEntry(
  log: BatchCursor,
  entry: number,
  found: { readonly offset: number; readonly position: number },
): DumpRows {
  while (log.batch === undefined || log.position < found.position) if (!log.advance()) break;
  const { batch } = log;
  if (batch === undefined || log.position !== found.position) {
    yield problem('no batch starts at the position of the entry', { entry, ...found });
  } else if (batch.baseOffset > found.offset) {
    const there = `the batch there starts at offset ${batch.baseOffset}`;
    yield problem(`the entry is below its batch: ${there}`, { entry, ...found });
  }
}

/** Rows of a .timeindex file. */
export function* dumpTimeIndex(disk: Disk, path: string, options: IndexDumpOptions): DumpRows {
  const index = new TimeIndex(openFiles(disk), path, options.baseOffset, NO_LIMIT);
  const used = usedEntries(index.file);
  const log = deepCursor(disk, options);
  let maxTimestamp = -1n;
  try {
    let previous = { timestamp: -1n, offset: -1 };
    for (let entry = 0; entry < used; entry++) {
      const timestamp = fromHalves(index.highAt(entry), index.lowAt(entry));
      const found = { timestamp, offset: index.offsetAt(entry) };
      yield row('entry', found);
      if (timestamp <= previous.timestamp || found.offset < previous.offset) {
        yield problem('the entry is not above the one before', { entry, ...found });
      }
      previous = found;
      if (log === undefined) continue;
      while (log.batch === undefined || log.batch.lastOffset < found.offset) {
        if (!log.advance()) break;
        const seen = (log.batch as RecordBatch | undefined)?.maxTimestamp ?? -1n;
        if (seen > maxTimestamp) maxTimestamp = seen;
      }
      if (maxTimestamp !== timestamp) {
        const there = `the largest timestamp up to that offset is ${maxTimestamp}`;
        yield problem(`the entry does not fit its batch: ${there}`, { entry, ...found });
      }
    }
    yield* fileRows(disk, index.file, used);
  } finally {
    log?.close();
    index.file.close();
  }
}

/** Rows of a .txnindex file. */
export function* dumpTransactionIndex(
  disk: Disk,
  path: string,
  options: IndexDumpOptions,
): DumpRows {
  const index = new TransactionIndex(openFiles(disk), path);
  index.file.load();
  const used = index.file.count;
  const { deep, logPath, baseOffset } = options;
  const log = deep && logPath !== undefined ? new BatchCursor(disk, logPath, true) : undefined;
  try {
    let previous = -1;
    for (let entry = 0; entry < used; entry++) {
      const version = index.file.bytes.readInt16BE(index.file.locate(entry));
      const aborted = index.at(entry);
      yield row('abortedTransaction', { version, ...aborted });
      const complaint = entryComplaint(version, aborted, previous, baseOffset);
      if (complaint !== undefined) yield problem(complaint, { entry, ...aborted });
      previous = aborted.lastOffset;
      const missing = log === undefined ? undefined : findMarker(log, entry, aborted);
      if (missing !== undefined) yield missing;
    }
    yield* fileRows(disk, index.file, used);
  } finally {
    log?.close();
    index.file.close();
  }
}

function entryComplaint(
  version: number,
  aborted: AbortedTransaction,
  previousLastOffset: number,
  baseOffset: number,
): string | undefined {
  const { firstOffset, lastOffset } = aborted;
  if (version !== 0) return `entry version ${version} is not known`;
  if (lastOffset <= previousLastOffset) return 'the entry is not above the one before';
  if (firstOffset > lastOffset) return 'the transaction ends before it begins';
  if (lastOffset < baseOffset) return `the transaction ended before the segment, at ${baseOffset}`;
  return undefined;
}

const markerHeader = new BatchHeader();

/** A problem unless the batch at the entry's last offset is the ABORT marker of its producer. */
function findMarker(
  log: BatchCursor,
  entry: number,
  aborted: AbortedTransaction,
): DumpRow | undefined {
  while (log.batch === undefined || log.batch.lastOffset < aborted.lastOffset) {
    if (!log.advance()) break;
  }
  const { batch } = log;
  const isMarker =
    batch?.isControl === true &&
    batch.lastOffset === aborted.lastOffset &&
    batch.producerId === aborted.producerId &&
    isAbort(batch);
  if (isMarker) return undefined;
  return problem('the segment has no ABORT marker of that producer at the last offset', {
    entry,
    ...aborted,
  });
}

function isAbort(batch: RecordBatch): boolean {
  if (markerHeader.read(batch.bytes, batch.position) !== undefined) return false;
  try {
    return readMarker(batch.bytes, batch.position, markerHeader.size)?.aborted === true;
  } catch (error) {
    if (error instanceof MalformedBytes) return false;
    throw error;
  }
}
