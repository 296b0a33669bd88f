/**
 * Reads the batches of a segment file that another process may be writing to.
 *
 * For tools: it needs no Log, never writes, and says where and why it cannot go on. The size is
 * taken once, at the beginning, so that a reader of a busy file comes to an end; a batch that the
 * file ends in may still be on its way, and {@link BatchFile.hasGrown} asks for the rest.
 */
import type { Disk, DiskFile } from '../io/runtime.ts';
import { BATCH_HEADER_BYTES, RecordBatch } from '../protocol/record-batch.ts';
import { BatchHeader, type HeaderProblem } from './batch-header.ts';

const WINDOW_BYTES = 256 * 1024;
/** No broker accepts a larger batch; a length beyond it is damage, not a reason to allocate. */
export const MAX_BATCH_FILE_BATCH_BYTES = 512 * 1024 * 1024;

/** A disk that lets nobody write: every file is opened for reading, changes are an error. */
export function readOnlyDisk(disk: Disk): Disk {
  const refuse = (path: string): never => {
    throw new Error(`${path}: opened for reading only`);
  };
  return {
    open: (path) => disk.open(path, 'read'),
    readFile: (path) => disk.readFile(path),
    list: (path) => disk.list(path),
    fileSize: (path) => disk.fileSize(path),
    makeDirectory: refuse,
    rename: refuse,
    remove: refuse,
    syncDirectory: refuse,
    lock: refuse,
  };
}

/** One file of batches. Close it. */
export class BatchFile {
  readonly #file: DiskFile;
  readonly #header = new BatchHeader();
  #size: number;
  #window = Buffer.alloc(WINDOW_BYTES);
  #windowStart = 0;
  #windowLength = 0;
  #next = 0;
  #position = 0;
  #problem: HeaderProblem | undefined;

  constructor(disk: Disk, path: string) {
    this.#file = disk.open(path, 'read');
    this.#size = this.#file.size();
  }

  /** Bytes in the file, as far as they are looked at. */
  get size(): number {
    return this.#size;
  }

  /** Where the batch last returned starts; after the last one, where the reading ended. */
  get position(): number {
    return this.#position;
  }

  /** Why there is no further batch; undefined at the end of the file. */
  get problem(): HeaderProblem | undefined {
    return this.#problem;
  }

  /**
   * The next batch, a view until the next call; undefined at the end or at a problem. Unless
   * `whole`, only the bytes of its header are there.
   */
  next(whole: boolean): RecordBatch | undefined {
    this.#position = this.#next;
    this.#problem = undefined;
    const left = this.#size - this.#next;
    if (left === 0) return undefined;
    const header = this.#header;
    const at = this.#need(Math.min(left, BATCH_HEADER_BYTES));
    this.#problem = header.read(this.#window, at, at + Math.min(left, BATCH_HEADER_BYTES));
    if (this.#problem === undefined && header.size > MAX_BATCH_FILE_BATCH_BYTES) {
      this.#problem = 'malformed';
    }
    if (this.#problem === undefined && header.size > left) this.#problem = 'truncated';
    if (this.#problem !== undefined) return undefined;
    const start = whole ? this.#need(header.size) : at;
    this.#next += header.size;
    return new RecordBatch(this.#window, start);
  }

  /** Looks at the file's size again; true when there is more to read. */
  hasGrown(): boolean {
    const before = this.#size;
    this.#size = this.#file.size();
    return this.#size > before;
  }

  close(): void {
    this.#file.close();
  }

  /** Puts the `length` bytes at the next position into the window; where they start there. */
  #need(length: number): number {
    const at = this.#next - this.#windowStart;
    if (at >= 0 && at + length <= this.#windowLength) return at;
    if (length > this.#window.length) this.#window = Buffer.alloc(length);
    this.#windowStart = this.#next;
    const limit = Math.min(this.#window.length, this.#size - this.#next);
    this.#windowLength = this.#file.read(this.#window.subarray(0, limit), this.#next);
    // A file that shrank under the reader: what is missing reads as zeros, and so as damage.
    this.#window.fill(0, this.#windowLength, limit);
    return 0;
  }
}
