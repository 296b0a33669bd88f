/**
 * A bounded set of open files, shared by all logs of a broker.
 *
 * Every log, index and transaction index file of a segment is a {@link FileSlot}; it is opened when
 * used, and at the limit the next one opened closes one that was not used lately (second chance: a
 * search costs little whatever is open). Closing loses nothing: written bytes are in the page
 * cache, and a later fsync through a new descriptor covers them. A file is never closed while its
 * `sync` runs: the number of its descriptor could be reused by another file.
 */
import type { Disk, DiskFile } from '../io/runtime.ts';

/** Files open at a time; leaves room for sockets under the usual limit of 1024 descriptors. */
export const MAX_OPEN_FILES = 512;

/** One file that may or may not be open at the moment. */
export interface FileSlot {
  path: string;
  file: DiskFile | undefined;
  /** Syncs in progress: the file stays open. */
  pins: number;
  /** Used since the search for a file to close came by. */
  isRecent: boolean;
  closeWhenUnpinned: boolean;
}

/** Opens files on demand and closes the least recently used. */
export class OpenFiles {
  readonly disk: Disk;
  readonly #limit: number;
  /** In the order in which they are looked at when one must go. */
  readonly #open = new Set<FileSlot>();

  constructor(disk: Disk, limit = MAX_OPEN_FILES) {
    this.disk = disk;
    this.#limit = limit;
  }

  /** How many are open. */
  get openCount(): number {
    return this.#open.size;
  }

  slot(path: string): FileSlot {
    return { path, file: undefined, pins: 0, isRecent: false, closeWhenUnpinned: false };
  }

  /** The open file, made if absent. */
  use(slot: FileSlot): DiskFile {
    slot.isRecent = true;
    if (slot.file !== undefined) return slot.file;
    if (this.#open.size >= this.#limit) this.#closeOne();
    const file = this.disk.open(slot.path, 'create');
    slot.file = file;
    slot.closeWhenUnpinned = false;
    this.#open.add(slot);
    return file;
  }

  /** Makes sure that the file exists, without keeping it open. */
  make(slot: FileSlot): void {
    if (slot.file === undefined) this.disk.open(slot.path, 'create').close();
  }

  /** Makes what was written to the file durable. */
  async sync(slot: FileSlot): Promise<void> {
    const file = this.use(slot);
    slot.pins++;
    try {
      await file.sync();
    } finally {
      slot.pins--;
      if (slot.pins === 0 && slot.closeWhenUnpinned) this.close(slot);
    }
  }

  /** Closes the file (after a running sync); it may be used again. */
  close(slot: FileSlot): void {
    const file = slot.file;
    if (file === undefined) return;
    if (slot.pins > 0) {
      slot.closeWhenUnpinned = true;
      return;
    }
    slot.file = undefined;
    slot.closeWhenUnpinned = false;
    this.#open.delete(slot);
    file.close();
  }

  /** Closes the first that nothing used or pins; those used since the last search move back. */
  #closeOne(): void {
    let looks = 2 * this.#open.size;
    for (const slot of this.#open) {
      if (looks-- === 0) return;
      if (slot.pins === 0 && !slot.isRecent) {
        this.close(slot);
        return;
      }
      slot.isRecent = false;
      this.#open.delete(slot);
      this.#open.add(slot);
    }
  }
}
