/**
 * A file of fixed-size entries: what offset, time and transaction index have in common.
 *
 * The index of the active segment is held in memory and appended to there; entries reach the file
 * at roll, flush and close. The index of any other segment is read from its file, entry by entry.
 * So a crash can lose entries, never more than recovery rebuilds: what lies below the recovery
 * point was written and synced before that point moved.
 *
 * The file is exactly as long as its entries: nothing is preallocated.
 */
import type { FileSlot, OpenFiles } from './open-files.ts';

const FIRST_CAPACITY_ENTRIES = 32;
const MAX_ENTRY_BYTES = 64;

/** The memory of an index without entries, which is what an idle partition has. */
const NO_ENTRIES = Buffer.alloc(0);
/** One entry read from a file; good until the next is located. */
const scratch = Buffer.alloc(MAX_ENTRY_BYTES);

/** Entries of `entrySize` bytes in one file. */
export class IndexFile {
  readonly entrySize: number;
  readonly #files: OpenFiles;
  readonly #slot: FileSlot;
  #maxEntries: number;
  #count: number;
  /** All entries, when in memory. */
  #memory: Buffer | undefined;
  /** Entries that are in the file as they are in memory. */
  #written: number;
  /** The file holds something that no sync of ours has covered. */
  #unsynced: boolean;
  #exists: boolean;
  /** Bytes behind the last whole entry, which do not belong there. */
  #excess: number;
  /** Counts changes of the file, so that a sync covers only what it began after. */
  #changes = 0;

  /** `isAbsent`: there is no such file, it need not be looked for. */
  constructor(
    files: OpenFiles,
    path: string,
    entrySize: number,
    maxBytes: number,
    isAbsent = false,
  ) {
    const size = isAbsent ? undefined : files.disk.fileSize(path);
    this.entrySize = entrySize;
    this.#files = files;
    this.#slot = files.slot(path);
    this.#maxEntries = Math.max(1, Math.floor(maxBytes / entrySize));
    this.#exists = size !== undefined;
    this.#excess = (size ?? 0) % entrySize;
    this.#unsynced = this.#exists;
    this.#count = Math.floor((size ?? 0) / entrySize);
    this.#written = this.#count;
  }

  get path(): string {
    return this.#slot.path;
  }

  get count(): number {
    return this.#count;
  }

  get isFull(): boolean {
    return this.#count >= this.#maxEntries;
  }

  /** Whether the file is there and holds whole entries only. */
  isWhole(): boolean {
    return this.#exists && this.#excess === 0;
  }

  setMaxBytes(maxBytes: number): void {
    this.#maxEntries = Math.max(1, Math.floor(maxBytes / this.entrySize));
  }

  /** Takes the entries into memory, so that they can be appended to. */
  load(): void {
    if (this.#memory !== undefined) return;
    const length = this.#count * this.entrySize;
    if (length === 0) {
      this.#memory = NO_ENTRIES;
      return;
    }
    const memory = Buffer.alloc(length);
    const got = this.#files.use(this.#slot).read(memory, 0);
    this.#count = Math.floor(got / this.entrySize);
    this.#written = this.#count;
    this.#memory = memory;
  }

  /** Writes what is pending, then reads from the file only. */
  unload(): void {
    this.write();
    this.#memory = undefined;
  }

  /** Makes entry `index` readable: it starts at the returned position of `bytes`. */
  locate(index: number): number {
    const start = index * this.entrySize;
    if (this.#memory !== undefined) return start;
    this.#files.use(this.#slot).read(scratch.subarray(0, this.entrySize), start);
    return 0;
  }

  /** Where `locate` points into. */
  get bytes(): Buffer {
    return this.#memory ?? scratch;
  }

  /** All entries as bytes. */
  allBytes(): Uint8Array {
    const length = this.#count * this.entrySize;
    if (this.#memory !== undefined) return this.#memory.subarray(0, length);
    const bytes = Buffer.alloc(length);
    if (length > 0) this.#files.use(this.#slot).read(bytes, 0);
    return bytes;
  }

  /** Adds an entry at the end of memory; returns where in `bytes` the caller fills it, at once. */
  append(): number {
    this.load();
    const memory = this.#memory as Buffer;
    const start = this.#count * this.entrySize;
    if (start + this.entrySize > memory.length) {
      const least = FIRST_CAPACITY_ENTRIES * this.entrySize;
      const grown = Buffer.alloc(Math.max(memory.length * 2, least));
      memory.copy(grown);
      this.#memory = grown;
    }
    this.#count++;
    return start;
  }

  /** Keeps the first `count` entries; the file is cut at once. */
  truncate(count: number): void {
    if (count >= this.#count) return;
    this.#count = count;
    if (count < this.#written) this.#cutFile(count);
  }

  #cutFile(count: number): void {
    this.#touch();
    this.#written = count;
    this.#files.use(this.#slot).truncate(count * this.entrySize);
    this.#excess = 0;
    this.#exists = true;
  }

  /** Puts pending entries into the file; whether that made a file where none was. */
  write(): boolean {
    if (this.#memory === undefined || this.#written === this.#count) return false;
    const isNew = !this.#exists;
    this.#exists = true;
    const from = this.#written * this.entrySize;
    this.#touch();
    const pending = this.#memory.subarray(from, this.#count * this.entrySize);
    this.#files.use(this.#slot).write([pending], from);
    this.#written = this.#count;
    this.#excess = 0;
    return isNew;
  }

  /** Makes sure that the file is there, with what is in memory and nothing else. */
  ensureFile(): void {
    this.write();
    if (this.#exists) {
      if (this.#excess > 0) this.#cutFile(this.#count);
      return;
    }
    // Empty: there is a name to make durable, which is the directory's business, and no more.
    this.#files.make(this.#slot);
    this.#exists = true;
  }

  /** Makes what is in the file durable, when it changed since it last was. */
  async sync(): Promise<void> {
    if (!this.#unsynced) return;
    const changes = this.#changes;
    await this.#files.sync(this.#slot);
    if (this.#changes === changes) this.#unsynced = false;
  }

  /** What is in the file is known to be durable. */
  markSynced(): void {
    this.#unsynced = false;
  }

  syncNow(): void {
    if (!this.#unsynced) return;
    this.#files.use(this.#slot).syncNow();
    this.#unsynced = false;
  }

  /** The file has a new name; it may be open. */
  renamed(path: string): void {
    this.#slot.path = path;
  }

  close(): void {
    this.#files.close(this.#slot);
  }

  #touch(): void {
    this.#unsynced = true;
    this.#changes++;
  }
}
