/**
 * Finishing, or undoing, what compaction was at when the broker ended: which files count.
 *
 * Compaction writes `.cleaned` files, makes them durable, renames all of one segment to `.swap`,
 * gives the segments they replace the suffix `.deleted`, last one first, and takes `.swap` off, the
 * .log file first. So, as Apache Kafka understands these names, too:
 * - A `.cleaned` file: nothing was replaced yet. It goes, and so do `.swap` files of its offset and
 *   of higher ones.
 * - A `.log.swap` file: it counts. The segments with a base offset in it, and the one it is named
 *   after, are what it replaces; they go if they are still there.
 * - Other `.swap` files belong to a segment that counts already.
 * Runs before anything else of the directory is looked at, and can be interrupted at any point.
 */
import type { Disk } from '../io/runtime.ts';
import { scanBatches } from './batch-scan.ts';
import type { LogConfig } from './log-config.ts';
import { CLEANED_FILE_SUFFIX, LogSegment, SWAP_FILE_SUFFIX } from './log-segment.ts';
import type { OpenFiles } from './open-files.ts';

const SEGMENT_FILE = /^([0-9]{20})\.(log|index|timeindex|txnindex)(\.cleaned|\.swap)?$/;

/** What this works with. */
export interface SwapContext {
  readonly disk: Disk;
  readonly files: OpenFiles;
  readonly nowMs: number;
}

/** A `.log.swap` file that does not hold whole batches up to its end. */
export class DamagedSwap extends Error {
  override readonly name = 'DamagedSwap';
}

interface SegmentFile {
  readonly name: string;
  readonly base: number;
  readonly isLog: boolean;
  readonly suffix: string;
}

function parse(name: string): SegmentFile[] {
  const [, base, kind, suffix = ''] = SEGMENT_FILE.exec(name) ?? [];
  return base === undefined ? [] : [{ name, base: Number(base), isLog: kind === 'log', suffix }];
}

/**
 * Leaves a directory with these file names without `.cleaned` and `.swap` files, durably; whether
 * that took any change. Throws DiskError and DamagedSwap.
 */
export function completeSwaps(
  context: SwapContext,
  directory: string,
  names: readonly string[],
  config: LogConfig,
): boolean {
  const { disk } = context;
  const files = names.flatMap(parse);
  const cleaned = files.filter((file) => file.suffix === CLEANED_FILE_SUFFIX);
  const swaps = files.filter((file) => file.suffix === SWAP_FILE_SUFFIX);
  if (cleaned.length + swaps.length === 0) return false;
  const remove = (file: SegmentFile): void => disk.remove(`${directory}/${file.name}`);
  const lowestCleaned = Math.min(...cleaned.map((file) => file.base));
  const valid = swaps.filter((file) => file.base < lowestCleaned);
  // The .cleaned files last: as long as one is there, it says what the .swap files are worth.
  for (const file of swaps) if (file.base >= lowestCleaned) remove(file);
  for (const file of cleaned) remove(file);
  for (const swap of valid.filter((file) => file.isLog)) {
    const end = nextOffset(context, directory, swap, config);
    const replaced = files.filter(({ base, suffix }) => {
      return suffix === '' && (base === swap.base || (base > swap.base && base < end));
    });
    for (const file of replaced) remove(file);
  }
  for (const file of [...valid].sort((a, b) => Number(b.isLog) - Number(a.isLog))) {
    const path = `${directory}/${file.name}`;
    disk.rename(path, path.slice(0, -SWAP_FILE_SUFFIX.length));
  }
  disk.syncDirectory(directory);
  return true;
}

/** The offset behind the last batch of a `.log.swap` file; its base offset when it is empty. */
function nextOffset(
  { files, nowMs }: SwapContext,
  directory: string,
  swap: SegmentFile,
  config: LogConfig,
): number {
  const { base } = swap;
  const present = new Set([swap.name]);
  const segment = new LogSegment(files, directory, base, config, nowMs, present, SWAP_FILE_SUFFIX);
  let next = base;
  const end = scanBatches(segment, 0, false, (_bytes, _at, header) => {
    next = header.lastOffset + 1;
    return 'continue';
  });
  segment.close();
  if (end.problem !== undefined) {
    throw new DamagedSwap(`${directory}/${swap.name}: ${end.problem} at ${end.position}`);
  }
  return next;
}
