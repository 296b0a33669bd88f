/**
 * Dumps the small files of a log directory: producer snapshots, checkpoints, partition.metadata,
 * meta.properties and the JSON files of the controller and the clean-shutdown mark.
 *
 * They are replaced as a whole, so a reader beside a running broker sees an old or a new one. What
 * does not parse is a problem that says why.
 */
import type { Disk } from '../io/runtime.ts';
import {
  CorruptCheckpoint,
  readEpochCheckpoint,
  readOffsetCheckpoint,
  readPartitionMetadata,
} from './checkpoints.ts';
import { type DumpRows, problem, row } from './dump-row.ts';
import { readMetaProperties } from './meta-properties.ts';
import { parseSnapshot } from './producer-snapshot.ts';

/** Rows of a `<offset>.snapshot`; every producer's last batch must lie below that offset. */
export function* dumpSnapshot(disk: Disk, path: string, offset: number): DumpRows {
  const parsed = parseSnapshot(disk.readFile(path) ?? new Uint8Array(0));
  if (typeof parsed === 'string') {
    yield problem(parsed);
    return;
  }
  for (const producer of parsed) {
    yield row('producer', { ...producer });
    if (producer.lastOffset >= offset || producer.currentTxnFirstOffset >= offset) {
      yield problem(`the producer is ahead of the snapshot at ${offset}`, {
        producerId: producer.producerId,
        offset: producer.lastOffset,
      });
    }
  }
  yield row('end', { producers: parsed.length });
}

/** Rows of a checkpoint with one offset per partition. */
export function* dumpOffsetCheckpoint(disk: Disk, path: string): DumpRows {
  yield* parsed(path, () =>
    readOffsetCheckpoint(disk, path).map((entry) => row('partitionOffset', { ...entry })),
  );
}

/** Rows of a leader-epoch-checkpoint. */
export function* dumpEpochCheckpoint(disk: Disk, path: string): DumpRows {
  yield* parsed(path, () =>
    readEpochCheckpoint(disk, path).map((entry) => row('leaderEpoch', { ...entry })),
  );
}

/** The row of a partition.metadata. */
export function* dumpPartitionMetadata(disk: Disk, path: string): DumpRows {
  const directory = path.slice(0, path.lastIndexOf('/'));
  yield* parsed(path, () => [row('topic', { topicId: readPartitionMetadata(disk, directory) })]);
}

/** The row of a meta.properties. */
export function* dumpMetaProperties(disk: Disk, path: string): DumpRows {
  const directory = path.slice(0, path.lastIndexOf('/'));
  yield* parsed(path, () => [row('directory', { ...readMetaProperties(disk, directory) })]);
}

/** The row of a file that holds one JSON object. */
export function* dumpJson(disk: Disk, path: string): DumpRows {
  const text = Buffer.from(disk.readFile(path) ?? []).toString('utf8');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    yield problem(`no JSON: ${error.message}`);
    return;
  }
  if (typeof value === 'object' && value !== null) yield row('content', { ...value });
  else yield problem('no JSON object');
}

function* parsed(path: string, read: () => ReturnType<typeof row>[]): DumpRows {
  try {
    yield* read();
  } catch (error) {
    if (!(error instanceof CorruptCheckpoint)) throw error;
    const prefix = `${path}: `;
    const { message } = error;
    yield problem(message.startsWith(prefix) ? message.slice(prefix.length) : message);
  }
}
