/**
 * Which file of a log directory is dumped how: by its name alone, as the broker finds it.
 *
 * Used by `dump-log`. Files of a deleted or half-made segment have the format of what they were or
 * will be; in a directory they are left out, since they are no part of the log.
 */
import type { Compression, Disk } from '../io/runtime.ts';
import { QUORUM_STATE_FILE } from '../metadata/metadata-log.ts';
import {
  CLEAN_SHUTDOWN_FILE,
  CLEANER_OFFSET_FILE,
  HIGH_WATERMARK_FILE,
  LEADER_EPOCH_FILE,
  LOCAL_LOG_START_FILE,
  LOG_START_FILE,
  PARTITION_METADATA_FILE,
  RECOVERY_POINT_FILE,
} from '../storage/checkpoints.ts';
import {
  dumpOffsetIndex,
  dumpTimeIndex,
  dumpTransactionIndex,
  type IndexDumpOptions,
} from '../storage/dump-indexes.ts';
import type { DumpRows } from '../storage/dump-row.ts';
import { dumpSegment, type RecordDecoder } from '../storage/dump-segment.ts';
import {
  dumpEpochCheckpoint,
  dumpJson,
  dumpMetaProperties,
  dumpOffsetCheckpoint,
  dumpPartitionMetadata,
  dumpSnapshot,
} from '../storage/dump-small-files.ts';
import { META_PROPERTIES_FILE } from '../storage/meta-properties.ts';

const NOT_IN_THE_LOG = /\.(deleted|cleaned|swap)$/;

/** What to look at in a file. */
export interface DumpChoices {
  readonly compression: Compression;
  readonly records: boolean;
  readonly deep: boolean;
  readonly decoder: RecordDecoder | undefined;
  /** The end of the segment before, when the file is a segment; 0 if there is none. */
  readonly logEndOffset: number;
}

/** A known format and the rows of a file that has it. */
export interface FileDump {
  readonly format: string;
  readonly rows: DumpRows;
}

type SmallFile = readonly [format: string, dump: (disk: Disk, path: string) => DumpRows];

const SMALL_FILES: Readonly<Record<string, SmallFile>> = {
  [RECOVERY_POINT_FILE]: ['offset checkpoint', dumpOffsetCheckpoint],
  [LOG_START_FILE]: ['offset checkpoint', dumpOffsetCheckpoint],
  [LOCAL_LOG_START_FILE]: ['offset checkpoint', dumpOffsetCheckpoint],
  [HIGH_WATERMARK_FILE]: ['offset checkpoint', dumpOffsetCheckpoint],
  [CLEANER_OFFSET_FILE]: ['offset checkpoint', dumpOffsetCheckpoint],
  [LEADER_EPOCH_FILE]: ['leader epoch checkpoint', dumpEpochCheckpoint],
  [PARTITION_METADATA_FILE]: ['partition metadata', dumpPartitionMetadata],
  [META_PROPERTIES_FILE]: ['meta properties', dumpMetaProperties],
  [QUORUM_STATE_FILE]: ['quorum state', dumpJson],
  [CLEAN_SHUTDOWN_FILE]: ['clean shutdown mark', dumpJson],
};

type IndexFormat = readonly [
  format: string,
  dump: (disk: Disk, path: string, options: IndexDumpOptions) => DumpRows,
];

const INDEXES: Readonly<Record<string, IndexFormat>> = {
  index: ['offset index', dumpOffsetIndex],
  timeindex: ['time index', dumpTimeIndex],
  txnindex: ['transaction index', dumpTransactionIndex],
};

/** Whether a file of a partition directory is part of the log, as opposed to on its way. */
export function isInTheLog(name: string): boolean {
  return !NOT_IN_THE_LOG.test(name);
}

/** How the file at `path` is dumped; undefined when its name says nothing. */
export function dumpFormat(disk: Disk, path: string, choices: DumpChoices): FileDump | undefined {
  const slash = path.lastIndexOf('/');
  const name = path.slice(slash + 1).replace(NOT_IN_THE_LOG, '');
  const suffix = path.slice(slash + 1 + name.length);
  const small = SMALL_FILES[name];
  if (small !== undefined) return { format: small[0], rows: small[1](disk, path) };
  if (/^(\d{20}-\d{10}|bootstrap)\.checkpoint$/.test(name)) {
    const options = { ...choices, minOffset: 0, baseOffset: undefined };
    return { format: 'metadata snapshot', rows: dumpSegment(disk, path, options) };
  }
  const match = /^(\d{20})\.(log|index|timeindex|txnindex|snapshot)$/.exec(name);
  if (match === null) return undefined;
  const offset = Number(match[1]);
  const kind = match[2] as string;
  if (kind === 'snapshot') {
    return { format: 'producer snapshot', rows: dumpSnapshot(disk, path, offset) };
  }
  if (kind === 'log') {
    const minOffset = Math.max(offset, choices.logEndOffset);
    const options = { ...choices, minOffset, baseOffset: offset };
    return { format: 'segment', rows: dumpSegment(disk, path, options) };
  }
  const [format, dump] = INDEXES[kind] as IndexFormat;
  const log = `${path.slice(0, slash + 1)}${match[1]}.log${suffix}`;
  const logPath = disk.fileSize(log) === undefined ? undefined : log;
  return { format, rows: dump(disk, path, { baseOffset: offset, logPath, deep: choices.deep }) };
}
