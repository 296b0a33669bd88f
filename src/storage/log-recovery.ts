/**
 * Opening a partition directory: which segments there are, where the log ends, what its producers
 * and epochs are.
 *
 * After an orderly stop nothing is scanned but the bytes behind the last index entry and what is
 * newer than the last producer snapshot (nothing, as closing takes one). After a crash, every batch
 * from the recovery point on is checked, the log is cut behind the last whole valid one (what is
 * left is then made durable), and indexes, epochs and producer state are rebuilt from there.
 *
 * - What lies below the recovery point was made durable: damage there is not cut away but thrown as
 *   {@link CorruptLog}, and the partition stays offline.
 * - A new segment begins where the one before ended (log.ts sees to it, else it syncs first). So a
 *   hole above recovery point and compacted part is a lost tail, and the segment behind it goes.
 */
import { MalformedBytes } from '../base/bytes.ts';
import type { Logger } from '../base/logger.ts';
import type { Disk } from '../io/runtime.ts';
import { RecordBatch } from '../protocol/record-batch.ts';
import type { BatchHeader } from './batch-header.ts';
import { applyToProducers, learnEpoch, type ScanEnd, scanBatches } from './batch-scan.ts';
import { CorruptCheckpoint, LEADER_EPOCH_FILE, PARTITION_METADATA_FILE } from './checkpoints.ts';
import { LeaderEpochCache } from './leader-epoch-cache.ts';
import type { LogConfig } from './log-config.ts';
import { LogSegment, MAX_OFFSET_SPAN, NO_NAMES, segmentPath } from './log-segment.ts';
import { LogSegments } from './log-segments.ts';
import type { OpenFiles } from './open-files.ts';
import { readSnapshot, snapshotOffsets, snapshotPath, writeSnapshot } from './producer-snapshot.ts';
import { ProducerState } from './producer-state.ts';
import { completeSwaps, DamagedSwap } from './swap-recovery.ts';

/** Damage that recovery must not cut away. */
export class CorruptLog extends Error {
  override readonly name = 'CorruptLog';
}

/** What is known before the directory is looked at. */
export interface LoadOptions {
  readonly config: LogConfig;
  /** Whether the broker had stopped in order. */
  readonly clean: boolean;
  /** Offset below which the log is durable. */
  readonly recoveryPoint: number;
  /** Whether the log has a checkpointed recovery point; undefined: the file is damaged. */
  readonly hasRecoveryPoint: boolean | undefined;
  /** The directory was just made: there is nothing to look for in it. */
  readonly isNewDirectory: boolean;
  /** Checkpointed log start offset, 0 if none. */
  readonly logStartOffset: number;
  /** A first segment at or below this may begin above the log start; undefined: none may. */
  readonly localLogStartOffset: number | undefined;
  /** The log below was compacted, 0 if never. */
  readonly firstDirtyOffset: number;
}

/** A loaded log. */
export interface LoadedLog {
  readonly segments: LogSegments;
  readonly logStartOffset: number;
  readonly logEndOffset: number;
  readonly recoveryPoint: number;
  readonly producers: ProducerState;
  readonly epochs: LeaderEpochCache;
  /** Everything on disk is durable: it was left by an orderly stop. */
  readonly isDurable: boolean;
  /** That the directory exists, and its topic id, are durable: it was flushed some time. */
  readonly isNamed: boolean;
  /** Recovery cut something off. */
  readonly wasCut: boolean;
  /** Offset of the newest snapshot file, if any. */
  readonly lastSnapshotOffset: number | undefined;
}

/** What loading works with. */
export interface LoadContext {
  readonly disk: Disk;
  readonly files: OpenFiles;
  readonly logger: Logger;
  readonly nowMs: number;
  /** Makes the partition directories themselves durable. */
  readonly syncLogDirectory: () => void;
}

const LEFT_OVER = /\.(deleted|cleaned|tmp)$/;
const INDEX_NAME = /^([0-9]{20})\.(index|timeindex|txnindex)$/;

/** Opens and, if needed, recovers the log in `directory`. Throws CorruptLog and DiskError. */
export function loadLog(context: LoadContext, directory: string, options: LoadOptions): LoadedLog {
  return new LogLoader(context, directory, options).load();
}

class LogLoader {
  readonly #context: LoadContext;
  readonly #directory: string;
  readonly #options: LoadOptions;
  readonly #producers = new ProducerState();
  /** File names in the directory at the start, of those that count. */
  #names: ReadonlySet<string>;
  /** Offsets of the producer snapshots, ascending. */
  #snapshots: number[];
  #epochs: LeaderEpochCache;
  #segments: LogSegments;
  #logEndOffset = 0;
  #rebuilt = false;
  #wasCut = false;
  /** Where checking begins; below the recovery point when epochs must be learned again. */
  #scanFromOffset: number;

  constructor(context: LoadContext, directory: string, options: LoadOptions) {
    this.#context = context;
    this.#directory = directory;
    this.#options = options;
    this.#scanFromOffset = options.recoveryPoint;
    this.#names = options.isNewDirectory ? NO_NAMES : new Set(this.#listNames());
    this.#snapshots = snapshotOffsets(this.#names);
    this.#epochs = this.#openEpochs();
    this.#segments = this.#openSegments();
  }

  load(): LoadedLog {
    const options = this.#options;
    const clean = options.clean && this.#scanFromOffset === options.recoveryPoint;
    let isNamed = options.hasRecoveryPoint === true;
    if (clean) this.#findEnd();
    else this.#recover();
    const { baseOffset } = this.#segments.first;
    // Of a row that segments deleted since have overtaken, the log start is out of date, too.
    const isPartial = baseOffset <= (options.localLogStartOffset ?? -1);
    const logStartOffset = isPartial
      ? options.logStartOffset
      : Math.max(options.logStartOffset, baseOffset);
    if (logStartOffset > this.#logEndOffset) this.#restartAt(logStartOffset);
    this.#epochs.truncateFromEnd(this.#logEndOffset);
    this.#epochs.truncateFromStart(logStartOffset);
    this.#removeSnapshots((offset) => offset > this.#logEndOffset);
    this.#removeStraySnapshots();
    if (clean) this.#loadProducers(this.#logEndOffset, logStartOffset);
    // Up to the recovery point it is durable already, down to the names of the files.
    const isDerivedAnew = this.#scanFromOffset < options.recoveryPoint;
    const isCut = this.#wasCut || this.#mayBeHalfCut();
    const isChanged = !clean && (this.#rebuilt || isCut || isDerivedAnew);
    if (isChanged && !this.#isUnused()) {
      this.#makeDurable();
      isNamed = true;
    }
    const isDurable = clean && !this.#rebuilt && isNamed;
    if (isDurable) for (const segment of this.#segments.all()) segment.markSynced();
    return {
      segments: this.#segments,
      isDurable,
      isNamed,
      logStartOffset,
      logEndOffset: this.#logEndOffset,
      recoveryPoint: isChanged
        ? this.#logEndOffset
        : Math.min(options.recoveryPoint, this.#logEndOffset),
      producers: this.#producers,
      epochs: this.#epochs,
      wasCut: this.#wasCut,
      lastSnapshotOffset: this.#snapshots.at(-1),
    };
  }

  #openEpochs(): LeaderEpochCache {
    const { disk, logger } = this.#context;
    try {
      const isAbsent = !this.#names.has(LEADER_EPOCH_FILE);
      return new LeaderEpochCache(disk, this.#directory, isAbsent);
    } catch (error) {
      if (!(error instanceof CorruptCheckpoint)) throw error;
      logger.warn('leader epochs are learned again from the log', { reason: error.message });
      disk.remove(`${this.#directory}/${LEADER_EPOCH_FILE}`);
      this.#scanFromOffset = 0;
      return new LeaderEpochCache(disk, this.#directory);
    }
  }

  #openSegments(): LogSegments {
    const { disk, files, nowMs } = this.#context;
    const names = this.#fileNames();
    this.#names = new Set(names);
    for (const name of names) {
      if (LEFT_OVER.test(name)) disk.remove(`${this.#directory}/${name}`);
    }
    const bases = names.filter((name) => /^[0-9]{20}\.log$/.test(name)).map((n) => parseInt(n, 10));
    const known = new Set(bases);
    for (const name of names) {
      const base = INDEX_NAME.exec(name)?.[1];
      if (base !== undefined && !known.has(Number(base))) disk.remove(`${this.#directory}/${name}`);
    }
    const { config, logStartOffset } = this.#options;
    const segments = bases
      .sort((a, b) => a - b)
      .map((base) => new LogSegment(files, this.#directory, base, config, nowMs, this.#names));
    if (segments.length > 0) return new LogSegments(segments);
    const first = new LogSegment(
      files,
      this.#directory,
      logStartOffset,
      config,
      nowMs,
      this.#names,
    );
    first.create();
    return new LogSegments([first]);
  }

  /** Of the files that count, once it is settled which of a compaction's do. */
  #fileNames(): string[] {
    const names = [...this.#names];
    try {
      const changed = completeSwaps(this.#context, this.#directory, names, this.#options.config);
      return changed ? this.#listNames() : names;
    } catch (error) {
      if (error instanceof DamagedSwap) throw new CorruptLog(error.message);
      throw error;
    }
  }

  #listNames(): string[] {
    return (this.#context.disk.list(this.#directory) ?? []).map(({ name }) => name);
  }

  /** After an orderly stop: the end is behind the last index entry of the active segment. */
  #findEnd(): void {
    const { active } = this.#segments;
    for (const segment of this.#segments.all()) {
      const whole = segment.offsetIndex.file.isWhole() && segment.timeIndex.file.isWhole();
      const sane = segment !== active || (this.#isSane(segment) && whole);
      if (!whole || !sane) this.#rebuildIndexes(segment);
    }
    const entries = active.offsetIndex.file.count;
    const from = entries === 0 ? 0 : active.offsetIndex.positionAt(entries - 1);
    const end = this.#noteTail(active, from);
    if (end.problem !== undefined) throw this.#corrupt(active, end);
  }

  #isSane(segment: LogSegment): boolean {
    return (
      segment.offsetIndex.isSane(segment.size) &&
      segment.timeIndex.isSane() &&
      segment.transactionIndex.isSane(segment.baseOffset)
    );
  }

  /** Makes a segment active, its indexes complete up to `from`, by noting what follows. */
  #noteTail(segment: LogSegment, from: number): ScanEnd {
    const { indexIntervalBytes } = this.#options.config;
    this.#logEndOffset = segment.baseOffset;
    segment.becomeActive(from, 0);
    return scanBatches(segment, from, false, (_bytes, _at, header) => {
      segment.note(header, indexIntervalBytes);
      this.#logEndOffset = header.lastOffset + 1;
      return 'continue';
    });
  }

  /** Rebuilds offset and time index; the transaction index needs producer state: see recover. */
  #rebuildIndexes(segment: LogSegment): void {
    const path = segmentPath(this.#directory, segment.baseOffset);
    this.#context.logger.warn('rebuilding indexes', { segment: path });
    this.#rebuilt = true;
    segment.offsetIndex.file.truncate(0);
    segment.timeIndex.file.truncate(0);
    const end = this.#noteTail(segment, 0);
    if (end.problem !== undefined) throw this.#corrupt(segment, end);
    if (segment !== this.#segments.active) segment.becomeInactive();
  }

  #recover(): void {
    let first = this.#segments.floorIndex(this.#scanFromOffset);
    // A transaction index can only be rebuilt with the producer state as of its segment.
    const untrusted = this.#segments.all().findIndex((segment) => {
      return !segment.transactionIndex.isSane(segment.baseOffset);
    });
    if (untrusted >= 0 && untrusted < first) {
      first = untrusted;
      this.#scanFromOffset = (this.#segments.at(first) as LogSegment).baseOffset;
    }
    for (const segment of this.#segments.all().slice(0, first)) {
      if (!this.#isSane(segment)) this.#rebuildIndexes(segment);
    }
    const { position, offset } = this.#scanStart(this.#segments.at(first) as LogSegment);
    this.#removeSnapshots((snapshot) => snapshot > offset);
    this.#loadProducers(offset, this.#options.logStartOffset);
    this.#logEndOffset = offset;
    for (let index = first; index < this.#segments.count; index++) {
      const segment = this.#segments.at(index) as LogSegment;
      if (index > first) this.#snapshotAt(segment.baseOffset);
      const end = this.#recoverSegment(segment, index === first ? position : 0);
      const next = this.#segments.at(index + 1);
      if (end.problem === undefined && next === undefined) break;
      if (end.problem === undefined && this.#follows(next as LogSegment)) {
        segment.becomeInactive();
        continue;
      }
      this.#cut(segment, index, end);
      break;
    }
    if (this.#logEndOffset < this.#options.recoveryPoint) {
      const { active } = this.#segments;
      throw this.#corrupt(active, { position: active.size, problem: 'truncated' });
    }
  }

  /**
   * Whether a crash can have interrupted a cut. One first writes a recovery point at or below the
   * segment that will be the last: then that segment is empty, or ends above the recovery point.
   */
  #mayBeHalfCut(): boolean {
    const { hasRecoveryPoint, recoveryPoint } = this.#options;
    if (hasRecoveryPoint !== true) return false;
    return this.#logEndOffset > recoveryPoint || this.#active.size === 0;
  }

  /**
   * A second crash must not bring back what this recovery, or a cut that a crash interrupted, has
   * taken away, behind what is appended meanwhile. Without such a change what was found stands as
   * if there had been no crash: not durable above the recovery point until the next flush.
   */
  #makeDurable(): void {
    for (const segment of this.#segments.from(this.#scanFromOffset)) {
      segment.writeIndexes();
      segment.syncNow();
    }
    this.#epochs.flush(this.#logEndOffset);
    makeNamed(this.#context, this.#directory);
  }

  get #active(): LogSegment {
    return this.#segments.active;
  }

  /** Never flushed or cut: a crash leaves nothing, or an empty log at 0, as if made anew. */
  #isUnused(): boolean {
    const { hasRecoveryPoint } = this.#options;
    const isEmpty = this.#logEndOffset === 0 && this.#active.size === 0;
    return hasRecoveryPoint === false && isEmpty && !this.#wasCut;
  }

  /** Whether nothing is missing between what was scanned and `next`. */
  #follows(next: LogSegment): boolean {
    if (next.baseOffset === this.#logEndOffset) return true;
    if (next.baseOffset < this.#logEndOffset) return false;
    const { recoveryPoint, firstDirtyOffset } = this.#options;
    return next.baseOffset <= Math.max(recoveryPoint, firstDirtyOffset);
  }

  /** The last indexed batch at or below the recovery point, or the start of the segment. */
  #scanStart(segment: LogSegment): { position: number; offset: number } {
    const { offsetIndex } = segment;
    if (!this.#isSane(segment)) {
      offsetIndex.file.truncate(0);
      segment.timeIndex.file.truncate(0);
    }
    const indexed = offsetIndex.countBelow(this.#scanFromOffset);
    if (indexed === 0) return { position: 0, offset: segment.baseOffset };
    const position = offsetIndex.positionAt(indexed - 1);
    let offset: number | undefined;
    scanBatches(segment, position, false, (_bytes, _at, header) => {
      if (header.lastOffset === offsetIndex.offsetAt(indexed - 1)) offset = header.baseOffset;
      return 'stop';
    });
    return offset === undefined
      ? { position: 0, offset: segment.baseOffset }
      : { position, offset };
  }

  /** Checks the batches from `from` on and rebuilds what is derived from them. */
  #recoverSegment(segment: LogSegment, from: number): ScanEnd {
    const { indexIntervalBytes } = this.#options.config;
    this.#logEndOffset = from === 0 ? segment.baseOffset : this.#logEndOffset;
    let expected = segment.baseOffset;
    segment.truncateIndexes(from, this.#indexedBelow(segment, from));
    segment.becomeActive(from, 0);
    return scanBatches(segment, from, true, (bytes, at, header) => {
      const fits = header.lastOffset - segment.baseOffset <= MAX_OFFSET_SPAN;
      if (header.baseOffset < expected || !fits) return 'refused';
      if (!new RecordBatch(bytes, at).validCrc()) return 'refused';
      try {
        applyToProducers(this.#producers, segment, header, bytes, at);
      } catch (error) {
        if (error instanceof MalformedBytes) return 'refused';
        throw error;
      }
      learnEpoch(this.#epochs, header);
      segment.note(header, indexIntervalBytes);
      expected = header.lastOffset + 1;
      this.#logEndOffset = expected;
      return 'continue';
    });
  }

  /** Offset of the batch at `position`; entries from it on are made again. */
  #indexedBelow(segment: LogSegment, position: number): number {
    let offset = segment.baseOffset;
    scanBatches(segment, position, false, (_bytes, _at, header) => {
      offset = header.baseOffset;
      return 'stop';
    });
    return offset;
  }

  /** Drops what does not count: the rest of `segment`, and the segments behind it. */
  #cut(segment: LogSegment, index: number, end: ScanEnd): void {
    if (end.problem === 'magic' || this.#logEndOffset < this.#options.recoveryPoint) {
      throw this.#corrupt(segment, end);
    }
    const dropped = this.#segments.takeFrom(index + 1);
    this.#wasCut = true;
    this.#context.logger.warn('log is cut after a crash', {
      segment: segment.path,
      position: end.position,
      droppedBytes: segment.size - end.position,
      droppedSegments: dropped.length,
      reason: end.problem ?? 'hole',
      logEndOffset: this.#logEndOffset,
    });
    for (const later of dropped) later.remove();
    segment.cutJunk(end.position);
  }

  #corrupt(segment: LogSegment, end: ScanEnd): CorruptLog {
    const { recoveryPoint } = this.#options;
    return new CorruptLog(
      `${segment.path}: ${end.problem} batch at position ${end.position}, offset ` +
        `${this.#logEndOffset}, below the recovery point ${recoveryPoint}`,
    );
  }

  /** Everything is below the log start: begin there with nothing. */
  #restartAt(offset: number): void {
    const { files, nowMs } = this.#context;
    this.#rebuilt = true;
    const { config } = this.#options;
    const segment = new LogSegment(files, this.#directory, offset, config, nowMs);
    segment.create();
    segment.becomeActive(0, 0);
    for (const old of this.#segments.takeFrom(0)) old.remove();
    this.#segments.push(segment);
    this.#producers.clear();
    this.#epochs.reset();
    this.#logEndOffset = offset;
  }

  /** Producer state as of `offset`: newest good snapshot, then what follows it in the log. */
  #loadProducers(offset: number, logStartOffset: number): void {
    loadProducerState(this.#context.disk, this.#directory, this.#producers, this.#segments, {
      from: logStartOffset,
      to: offset,
      snapshotUpTo: offset,
      snapshots: this.#snapshots,
    });
  }

  #snapshotAt(offset: number): void {
    const path = snapshotPath(this.#directory, offset);
    writeSnapshot(this.#context.disk, path, this.#producers.toSnapshot());
    this.#snapshots = [...this.#snapshots.filter((known) => known !== offset), offset];
    this.#snapshots.sort((a, b) => a - b);
  }

  #removeSnapshots(doomed: (offset: number) => boolean): void {
    const { disk } = this.#context;
    for (const offset of this.#snapshots.filter(doomed)) {
      disk.remove(snapshotPath(this.#directory, offset));
    }
    this.#snapshots = this.#snapshots.filter((offset) => !doomed(offset));
  }

  /** Snapshots belong to segment starts; of others only the newest is worth keeping. */
  #removeStraySnapshots(): void {
    if (this.#snapshots.length === 0) return;
    const newest = this.#snapshots.at(-1);
    const bases = new Set(this.#segments.all().map((segment) => segment.baseOffset));
    this.#removeSnapshots((offset) => offset !== newest && !bases.has(offset));
  }
}

/** Makes it durable that the directory is there, which topic id it has, and its file names. */
export function makeNamed(
  context: Pick<LoadContext, 'disk' | 'syncLogDirectory'>,
  directory: string,
): void {
  const { disk } = context;
  const path = `${directory}/${PARTITION_METADATA_FILE}`;
  if (disk.fileSize(path) !== undefined) {
    const file = disk.open(path, 'update');
    try {
      file.syncNow();
    } finally {
      file.close();
    }
  }
  disk.syncDirectory(directory);
  context.syncLogDirectory();
}

/** From where to where producer state is replayed. */
export interface ReplayRange {
  /** Nothing below is looked at. */
  readonly from: number;
  readonly to: number;
  /**
   * Newest snapshot to begin with. A snapshot does not hold the transactions whose markers are
   * above the high watermark, so below a live one replay begins at or below it.
   */
  readonly snapshotUpTo: number;
  /** Offsets of the snapshots there are, ascending. */
  readonly snapshots: readonly number[];
}

/** Sets `producers` to the state at `range.to`. */
export function loadProducerState(
  disk: Disk,
  directory: string,
  producers: ProducerState,
  segments: LogSegments,
  range: ReplayRange,
): void {
  producers.clear();
  let from = range.from;
  for (const offset of [...range.snapshots].reverse()) {
    if (offset > range.snapshotUpTo) continue;
    const path = snapshotPath(directory, offset);
    const entries = readSnapshot(disk, path);
    if (entries !== undefined) {
      producers.fromSnapshot(entries);
      from = offset;
      break;
    }
    disk.remove(path);
  }
  if (from >= range.to) return;
  for (const segment of segments.from(from)) {
    if (segment.baseOffset >= range.to) break;
    const start = from <= segment.baseOffset ? 0 : (segment.find(from)?.position ?? segment.size);
    scanBatches(segment, start, false, (bytes, at, header: BatchHeader) => {
      if (header.baseOffset >= range.to) return 'stop';
      applyToProducers(producers, undefined, header, bytes, at);
      return 'continue';
    });
  }
}
