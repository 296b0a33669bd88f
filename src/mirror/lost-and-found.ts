/**
 * Keeps what a cut drops (rule T4): the tail of a log, copied into a directory of its own first.
 *
 * `lost-and-found/<topic>-<topicId>-<partition>/<from>-<to>-<time>/<from>.log` in the log directory
 * holds the batches in Kafka's segment format, so Apache's tools read them. Called before every cut
 * of a mirrored log. The copy is durable when the promise resolves; a copy of the same range that
 * is there already is not made again, and one that a crash interrupted never counts.
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
    const present = runtime.disk
      .list(parent)
      ?.find(({ name }) => name.startsWith(range) && !name.endsWith(UNFINISHED));
    if (present !== undefined) return { directory: `${parent}/${present.name}`, from, to };
    const directory = `${parent}/${range}${runtime.clock.wallMs()}`;
    await copyTail(runtime, partition, from, to, directory);
    return { directory, from, to };
  } catch (error) {
    if (!(error instanceof DiskError)) throw error;
    throw new MirrorFailure('STORAGE_BUSY', `cannot keep the tail of the log: ${error.message}`);
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
  const name = `${String(from).padStart(20, '0')}.log`;
  const file = disk.open(`${unfinished}/${name}`, 'create');
  try {
    let position = 0;
    for (let offset = from; offset < to; ) {
      const read = log.read(offset, COPY_CHUNK_BYTES, 'logEnd', true);
      if (read.error !== 0) {
        throw new MirrorFailure('STORAGE_BUSY', `cannot read offset ${offset}: ${read.error}`);
      }
      if (read.bytes === 0) break;
      file.write(read.records, position);
      position += read.bytes;
      offset = nextOffset(read.records);
      await new Promise<void>((resolve) => runtime.clock.defer(resolve));
    }
    file.truncate(position);
    await file.sync();
  } finally {
    file.close();
  }
  disk.rename(unfinished, directory);
  disk.syncDirectory(parentOf(directory));
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
