/**
 * The machine's file system behind the Disk port.
 *
 * Reads and writes are synchronous system calls into the page cache; only `sync` uses the thread
 * pool. Every errno becomes a DiskError. A write either puts all bytes down or throws: short writes
 * are continued. After a failed `sync` the kernel may have dropped the dirty pages, so a later
 * success proves nothing; owners must treat the file's unsynced tail as lost.
 */
import fs from 'node:fs';
import { type DirectoryEntry, type Disk, DiskError, type DiskFile } from '../runtime.ts';
import { takeLock } from './node-lock.ts';

/** Linux takes at most this many buffers in one writev (IOV_MAX). */
const MAX_WRITE_CHUNKS = 1024;

const OPEN_FLAGS = {
  read: fs.constants.O_RDONLY,
  update: fs.constants.O_RDWR,
  create: fs.constants.O_RDWR | fs.constants.O_CREAT,
};

function diskError(error: unknown, operation: string, path: string): DiskError {
  const code = (error as NodeJS.ErrnoException).code;
  if (typeof code !== 'string') throw error; // not from a system call: a bug, not a bad disk
  return new DiskError(code, operation, path);
}

/** Runs a system call, mapping its errno. */
function attempt<T>(operation: string, path: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw diskError(error, operation, path);
  }
}

/** The same, with undefined for a path that does not exist. */
function attemptOptional<T>(operation: string, path: string, call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw diskError(error, operation, path);
  }
}

/** `chunks` without their first `written` bytes. */
function dropWritten(chunks: readonly Uint8Array[], written: number): Uint8Array[] {
  let skip = written;
  let index = 0;
  while (index < chunks.length && skip >= chunks[index]!.length) {
    skip -= chunks[index]!.length;
    index++;
  }
  const rest = chunks.slice(index);
  if (skip > 0) rest[0] = rest[0]!.subarray(skip);
  return rest;
}

/** The system call that writes some of `chunks` and returns how many bytes; tests replace it. */
export type WriteCall = (fd: number, chunks: readonly Uint8Array[], position: number) => number;

const writeCall: WriteCall = (fd, chunks, position) =>
  chunks.length === 1
    ? fs.writeSync(fd, chunks[0]!, 0, chunks[0]!.length, position)
    : fs.writevSync(fd, chunks.slice(0, MAX_WRITE_CHUNKS), position);

class NodeDiskFile implements DiskFile {
  readonly path: string;
  readonly #fd: number;
  readonly #writeCall: WriteCall;
  #pendingSyncs = 0;
  #closed = false;

  constructor(path: string, fd: number, write: WriteCall) {
    this.path = path;
    this.#fd = fd;
    this.#writeCall = write;
  }

  size(): number {
    return this.#attempt('stat', () => fs.fstatSync(this.#fd).size);
  }

  read(target: Uint8Array, position: number): number {
    return this.#attempt('read', () => {
      let done = 0;
      while (done < target.length) {
        const n = fs.readSync(this.#fd, target, done, target.length - done, position + done);
        if (n === 0) break;
        done += n;
      }
      return done;
    });
  }

  write(chunks: readonly Uint8Array[], position: number): void {
    let rest = dropWritten(chunks, 0);
    let at = position;
    while (rest.length > 0) {
      const written = this.#attempt('write', () => this.#writeCall(this.#fd, rest, at));
      if (written === 0) throw new DiskError('EIO', 'write', this.path);
      at += written;
      rest = dropWritten(rest, written);
    }
  }

  truncate(size: number): void {
    this.#attempt('truncate', () => fs.ftruncateSync(this.#fd, size));
  }

  sync(): Promise<void> {
    if (this.#closed) return Promise.reject(new DiskError('EBADF', 'sync', this.path));
    this.#pendingSyncs++;
    return new Promise((resolve, reject) => {
      fs.fdatasync(this.#fd, (error) => {
        this.#pendingSyncs--;
        if (this.#closed && this.#pendingSyncs === 0) fs.closeSync(this.#fd);
        if (error === null) resolve();
        else reject(diskError(error, 'sync', this.path));
      });
    });
  }

  syncNow(): void {
    this.#attempt('sync', () => fs.fdatasyncSync(this.#fd));
  }

  /** A sync in flight still owns the descriptor: closing it now could sync a stranger's file. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#pendingSyncs === 0) attempt('close', this.path, () => fs.closeSync(this.#fd));
  }

  #attempt<T>(operation: string, call: () => T): T {
    if (this.#closed) throw new DiskError('EBADF', operation, this.path);
    return attempt(operation, this.path, call);
  }
}

function list(path: string): DirectoryEntry[] | undefined {
  return attemptOptional('list', path, () =>
    fs
      .readdirSync(path, { withFileTypes: true })
      .map((entry) => ({
        name: entry.name,
        isDirectory: entry.isSymbolicLink()
          ? fs.statSync(`${path}/${entry.name}`, { throwIfNoEntry: false })?.isDirectory() === true
          : entry.isDirectory(),
      }))
      .sort((a, b) => (a.name < b.name ? -1 : 1)),
  );
}

function fileSize(path: string): number | undefined {
  const stat = attemptOptional('stat', path, () => fs.statSync(path));
  return stat?.isFile() ? stat.size : undefined;
}

function syncDirectory(path: string): void {
  attempt('sync', path, () => {
    const fd = fs.openSync(path, fs.constants.O_RDONLY);
    try {
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
  });
}

/** The real file system. */
export function nodeDisk(write: WriteCall = writeCall): Disk {
  return {
    open: (path, mode) =>
      attempt(
        'open',
        path,
        () => new NodeDiskFile(path, fs.openSync(path, OPEN_FLAGS[mode]), write),
      ),
    readFile: (path) => attemptOptional('read', path, () => fs.readFileSync(path)),
    list,
    fileSize,
    makeDirectory: (path) =>
      attempt('mkdir', path, () => void fs.mkdirSync(path, { recursive: true })),
    rename: (from, to) => attempt('rename', from, () => fs.renameSync(from, to)),
    remove: (path) =>
      attempt('remove', path, () => fs.rmSync(path, { recursive: true, force: true })),
    syncDirectory,
    lock: (path) => attempt('lock', path, () => takeLock(path)),
  };
}
