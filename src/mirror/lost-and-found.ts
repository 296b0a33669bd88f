/**
 * Keeps what a cut drops (rule T4): the tail of a log, copied into a directory of its own first.
 *
 * `lost-and-found/<topic>-<topicId>-<partition>/<from>-<to>-<time>/<from>.log` in the log directory
 * holds the batches in Kafka's segment format, so Apache's tools read them. Called before every cut
 * of a mirrored log. The copy is durable when the promise resolves; one that is there already is
 * not made again if its bytes are the same (offsets are reused after a cut, so the range says
 * nothing), and one that a crash interrupted never counts.
 */
import type { Uuid } from '../base/uuid.ts';
import { DiskError, type Runtime } from '../io/runtime.ts';
import { forEachBatch } from '../protocol/record-batch.ts';
import type { Partition } from '../replication/partition.ts';
import { MirrorFailure } from './causes.ts';

/** Directory under the log directory. */
export const LOST_AND_FOUND = 'lost-and-found';
/** Bytes copied before others get their turn. */
export const COPY_CHUNK_BYTES = 1024 * 1024;
const UNFINISHED = '.unfinished';

/** The part of a partition that is copied. */
export type CopiedPartition = Pick<Partition, 'topic' | 'partition' | 'topicId'> & {
  readonly log: Pick<Partition['log'], 'directory' | 'logEndOffset' | 'read'>;
};

/** What was kept: offsets [from, to). */
export interface KeptTail {
  readonly directory: string;
  readonly from: number;
  readonly to: number;
}

function parentOf(path: string): string {
  const slash = path.lastIndexOf('/');
  return slash <= 0 ? '.' : path.slice(0, slash);
}

function directoryOf(logDirectory: string, topic: string, id: Uuid, partition: number): string {
  return `${parentOf(logDirectory)}/${LOST_AND_FOUND}/${topic}-${id}-${partition}`;
}

/** Copies [from, log end) of a partition; rejects with a {@link MirrorFailure} when it cannot. */
export async function keepTail(
  runtime: Pick<Runtime, 'disk' | 'clock'>,
  partition: CopiedPartition,
  from: number,
): Promise<KeptTail> {
  const { log, topic, topicId } = partition;
  const to = log.logEndOffset;
  const parent = directoryOf(log.directory, topic, topicId, partition.partition);
  const range = `${from}-${to}-`;
  try {
    for (const { name } of runtime.disk.list(parent) ?? []) {
      if (!name.startsWith(range) || name.endsWith(UNFINISHED)) continue;
      const directory = `${parent}/${name}`;
      if (await holdsTail(runtime, log, from, to, directory)) return { directory, from, to };
    }
    const directory = `${parent}/${range}${runtime.clock.wallMs()}`;
    await copyTail(runtime, partition, from, to, directory);
    return { directory, from, to };
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    throw new MirrorFailure('STORAGE_BUSY', `cannot keep the tail of the log: ${error.message}`);
  }
}

function segmentName(from: number): string {
  return `${String(from).padStart(20, '0')}.log`;
}

/** Reads [from, to) piece by piece, with where each goes in a file; false from `visit` ends it. */
async function forEachPiece(
  runtime: Pick<Runtime, 'clock'>,
  log: CopiedPartition['log'],
  from: number,
  to: number,
  visit: (pieces: readonly Uint8Array[], position: number) => boolean,
): Promise<number> {
  let position = 0;
  for (let offset = from; offset < to; ) {
    const read = log.read(offset, COPY_CHUNK_BYTES, 'logEnd', true);
    if (read.error !== 0) {
      throw new MirrorFailure('STORAGE_BUSY', `cannot read offset ${offset}: ${read.error}`);
    }
    if (read.bytes === 0 || !visit(read.records, position)) break;
    position += read.bytes;
    offset = nextOffset(read.records);
    await new Promise<void>((resolve) => runtime.clock.defer(resolve));
  }
  return position;
}

/** Whether a finished copy has exactly the bytes of the tail. */
async function holdsTail(
  runtime: Pick<Runtime, 'disk' | 'clock'>,
  log: CopiedPartition['log'],
  from: number,
  to: number,
  directory: string,
): Promise<boolean> {
  const path = `${directory}/${segmentName(from)}`;
  const size = runtime.disk.fileSize(path);
  if (size === undefined) return false;
  const file = runtime.disk.open(path, 'read');
  try {
    let same = true;
    const length = await forEachPiece(runtime, log, from, to, (pieces, position) => {
      const tail = Buffer.concat(pieces);
      const copy = Buffer.alloc(tail.length);
      same = file.read(copy, position) === tail.length && copy.equals(tail);
      return same;
    });
    return same && length === size;
  } finally {
    file.close();
  }
}

async function copyTail(
  runtime: Pick<Runtime, 'disk' | 'clock'>,
  { log }: CopiedPartition,
  from: number,
  to: number,
  directory: string,
): Promise<void> {
  const { disk } = runtime;
  const unfinished = `${directory}${UNFINISHED}`;
  disk.makeDirectory(unfinished);
  const file = disk.open(`${unfinished}/${segmentName(from)}`, 'create');
  try {
    const length = await forEachPiece(runtime, log, from, to, (pieces, position) => {
      file.write(pieces, position);
      return true;
    });
    file.truncate(length);
    await file.sync();
  } finally {
    file.close();
  }
  disk.syncDirectory(unfinished);
  disk.rename(unfinished, directory);
  // The directories above may be new, too.
  const parent = parentOf(directory);
  for (const path of [parent, parentOf(parent), parentOf(parentOf(parent))]) {
    disk.syncDirectory(path);
  }
}

/** The offset after the last batch of what was read. */
function nextOffset(chunks: readonly Uint8Array[]): number {
  let next = -1;
  for (const chunk of chunks) {
    forEachBatch(chunk, 0, chunk.length, (batch) => {
      next = batch.nextOffset;
    });
  }
  return next;
}
