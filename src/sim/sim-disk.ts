/**
 * The disk of one simulated machine; it outlives the machine's processes.
 *
 * A process kill loses nothing that was written. A power loss keeps what was synced, and a seeded
 * part of the rest: of each file's bytes (see sim-file.ts) and of the directory entries, whose
 * changes form one ordered journal of which a prefix survives. `syncDirectory` makes the journal
 * durable up to the last change in that directory; syncing a file does *not* make its name durable.
 * Faults: capacity (ENOSPC after writing what fits), rules that fail chosen calls, and a crash in
 * the middle of a call: the disk is as it was then, whatever the code on the stack still does.
 */
import type { SeededRandom } from '../base/random.ts';
import { type DirectoryEntry, type Disk, DiskError, type DiskFile } from '../io/runtime.ts';
import { type PowerLoss, SimFile } from './sim-file.ts';
import { changeNames, type NameChange, type Names, parentOf, touches } from './sim-names.ts';
import type { SimProcess } from './sim-process.ts';

/** How long `sync` takes, in virtual ms: at least, and at most. */
const SYNC_MS = { min: 0.5, max: 5 };

/** A kind of disk call that can be made to fail. */
export type DiskOperation = 'open' | 'read' | 'write' | 'truncate' | 'sync' | 'rename' | 'remove';

/** Fails matching calls with an errno. */
export interface DiskFault {
  readonly operation: DiskOperation;
  readonly path: RegExp;
  readonly code: string;
  /** Calls to fail before the rule is spent. */
  times: number;
}

/** See the file header. */
export class SimDisk {
  readonly #random: SeededRandom;
  #durableNames: Names = new Map();
  #names: Names = new Map();
  readonly #locks = new Map<string, SimProcess>();
  readonly #faults: DiskFault[] = [];
  #journal: NameChange[] = [];
  #capacityBytes = Number.POSITIVE_INFINITY;
  #crash: { changesLeft: number; readonly end: () => void } | undefined;
  /** What the crash left, until the next process starts. */
  #left:
    | { readonly names: Names; readonly durable: Names; readonly journal: NameChange[] }
    | undefined;

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  /** Files may grow to this many bytes in all. */
  setCapacity(bytes: number): void {
    this.#capacityBytes = bytes;
  }

  /** Makes the next `times` matching calls fail with `code`. */
  failNext(operation: DiskOperation, path: RegExp, code: string, times = 1): void {
    this.#faults.push({ operation, path, code, times });
  }

  /** Forgets the rules of `failNext` that are not spent. */
  clearFaults(): void {
    this.#faults.length = 0;
  }

  /**
   * The process ends inside one of its next calls, after `changes` more changes: a write may then
   * be there in part. `end` must end the process. Its code runs on to the end of the event as if
   * nothing had happened, but leaves no trace.
   */
  crashAfter(changes: number, end: () => void): void {
    this.#crash = { changesLeft: changes, end };
  }

  /** No crash any more, if it has not happened. */
  cancelCrash(): void {
    this.#crash = undefined;
  }

  /** Called before each change; `part` of it may still happen to what the crash leaves. */
  beforeChange(
    part: { readonly file: SimFile; readonly bytes: Uint8Array; at: number } | undefined,
  ) {
    const crash = this.#crash;
    if (crash === undefined || crash.changesLeft-- > 0) return;
    this.#crash = undefined;
    const copies = new Map<SimFile, SimFile>();
    const copyOf = (node: SimFile | 'directory'): SimFile | 'directory' => {
      if (node === 'directory') return node;
      const copy = copies.get(node) ?? node.copy();
      copies.set(node, copy);
      return copy;
    };
    const names = (of: Names): Names => new Map([...of].map(([at, node]) => [at, copyOf(node)]));
    this.#left = {
      names: names(this.#names),
      durable: names(this.#durableNames),
      journal: this.#journal.map((change) =>
        change.kind === 'create' ? { ...change, node: copyOf(change.node) } : change,
      ),
    };
    if (part !== undefined) {
      const length = this.#random.below(part.bytes.length + 1);
      copies.get(part.file)?.write(part.bytes.subarray(0, length), part.at);
    }
    crash.end();
  }

  /** The disk becomes what a crash in the middle of a call left. */
  #settleCrash(): void {
    if (this.#left === undefined) return;
    this.#names = this.#left.names;
    this.#durableNames = this.#left.durable;
    this.#journal = this.#left.journal;
    this.#left = undefined;
  }

  /** Whether the code of an ended process still runs to the end of its event. */
  get isHaunted(): boolean {
    return this.#left !== undefined;
  }

  /** What the machine finds when the power returns. */
  losePower(loss: PowerLoss): void {
    this.#settleCrash();
    const kept = loss.unsynced === 'lose' ? 0 : this.#random.below(this.#journal.length + 1);
    for (const change of this.#journal.slice(0, kept)) changeNames(this.#durableNames, change);
    this.#journal = [];
    this.#names.clear();
    for (const [path, node] of this.#durableNames) this.#names.set(path, node);
    const files = new Set([...this.#names.values()].filter((node) => node !== 'directory'));
    for (const file of files) file.losePower(loss, this.#random);
  }

  /** The Disk port of one process. After its end every call fails with EIO. */
  portFor(process: SimProcess): Disk {
    this.#settleCrash();
    const guard = (operation: string, path: string): void => {
      if (!process.alive && !this.isHaunted) throw new DiskError('EIO', operation, path);
    };
    return {
      open: (path, mode) => {
        guard('open', path);
        return new OpenSimFile(this, process, path, this.#open(path, mode), mode !== 'read');
      },
      readFile: (path) => {
        guard('read', path);
        return this.#file(path)?.content().slice();
      },
      list: (path) => {
        guard('list', path);
        return this.#list(path === '/' ? '' : path);
      },
      fileSize: (path) => {
        guard('stat', path);
        return this.#file(path)?.size;
      },
      makeDirectory: (path) => {
        guard('mkdir', path);
        this.#makeDirectory(path);
      },
      rename: (from, to) => {
        guard('rename', from);
        this.#rename(from, to);
      },
      remove: (path) => {
        guard('remove', path);
        this.check('remove', path);
        if (this.#names.has(path)) this.#change({ kind: 'remove', path });
      },
      syncDirectory: (path) => {
        guard('sync', path);
        this.#syncDirectory(path === '/' ? '' : path);
      },
      lock: (path) => {
        guard('lock', path);
        return this.#lock(path, process);
      },
    };
  }

  /** Throws when a fault rule wants this call to fail. */
  check(operation: DiskOperation, path: string): void {
    const fault = this.#faults.find(
      (rule) => rule.times > 0 && rule.operation === operation && rule.path.test(path),
    );
    if (fault === undefined) return;
    fault.times--;
    throw new DiskError(fault.code, operation, path);
  }

  /** Bytes in all files. */
  usedBytes(): number {
    let used = 0;
    for (const node of this.#names.values()) if (node !== 'directory') used += node.size;
    return used;
  }

  /** How many more bytes fit. */
  freeBytes(): number {
    if (this.#capacityBytes === Number.POSITIVE_INFINITY) return this.#capacityBytes;
    return this.#capacityBytes - this.usedBytes();
  }

  /** A seeded duration of a sync, in ms. */
  syncDurationMs(): number {
    return SYNC_MS.min + this.#random.fraction() * (SYNC_MS.max - SYNC_MS.min);
  }

  #file(path: string): SimFile | undefined {
    const node = this.#names.get(path);
    return node === 'directory' ? undefined : node;
  }

  #open(path: string, mode: 'read' | 'update' | 'create'): SimFile {
    this.check('open', path);
    const found = this.#names.get(path);
    if (found === 'directory') throw new DiskError('EISDIR', 'open', path);
    if (found !== undefined) return found;
    if (mode !== 'create') throw new DiskError('ENOENT', 'open', path);
    this.#requireDirectory('open', parentOf(path), path);
    const file = new SimFile();
    this.#change({ kind: 'create', path, node: file });
    return file;
  }

  #requireDirectory(operation: string, directory: string, path: string): void {
    if (this.#isDirectory(directory)) return;
    const code = this.#names.has(directory) ? 'ENOTDIR' : 'ENOENT';
    throw new DiskError(code, operation, path);
  }

  #isDirectory(path: string): boolean {
    return path === '' || this.#names.get(path) === 'directory';
  }

  #list(path: string): DirectoryEntry[] | undefined {
    if (!this.#isDirectory(path)) return undefined;
    const entries: DirectoryEntry[] = [];
    for (const [at, node] of this.#names) {
      if (parentOf(at) !== path) continue;
      entries.push({ name: at.slice(path.length + 1), isDirectory: node === 'directory' });
    }
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  #makeDirectory(path: string): void {
    const found = this.#names.get(path);
    if (path === '' || found === 'directory') return;
    if (found !== undefined) throw new DiskError('EEXIST', 'mkdir', path);
    this.#makeDirectory(parentOf(path));
    this.#change({ kind: 'create', path, node: 'directory' });
  }

  #rename(from: string, to: string): void {
    this.check('rename', from);
    if (!this.#names.has(from)) throw new DiskError('ENOENT', 'rename', from);
    this.#requireDirectory('rename', parentOf(to), to);
    if ((this.#list(to)?.length ?? 0) > 0) throw new DiskError('ENOTEMPTY', 'rename', to);
    if (from !== to) this.#change({ kind: 'rename', from, path: to });
  }

  #syncDirectory(path: string): void {
    this.check('sync', path);
    if (!this.#isDirectory(path)) throw new DiskError('ENOENT', 'sync', path);
    const durable = this.#journal.findLastIndex((change) => touches(change, path)) + 1;
    for (const change of this.#journal.slice(0, durable)) changeNames(this.#durableNames, change);
    this.#journal = this.#journal.slice(durable);
  }

  #lock(path: string, process: SimProcess): { release(): void } | undefined {
    if (this.#locks.get(path)?.alive === true) return undefined;
    this.#locks.set(path, process);
    return {
      release: () => {
        if (this.#locks.get(path) === process) this.#locks.delete(path);
      },
    };
  }

  #change(change: NameChange): void {
    this.beforeChange(undefined);
    changeNames(this.#names, change);
    this.#journal.push(change);
  }
}

class OpenSimFile implements DiskFile {
  readonly path: string;
  readonly #disk: SimDisk;
  readonly #process: SimProcess;
  readonly #file: SimFile;
  readonly #writable: boolean;
  #closed = false;

  constructor(disk: SimDisk, process: SimProcess, path: string, file: SimFile, writable: boolean) {
    this.#disk = disk;
    this.#process = process;
    this.path = path;
    this.#file = file;
    this.#writable = writable;
  }

  size(): number {
    this.#guard('stat');
    return this.#file.size;
  }

  read(target: Uint8Array, position: number): number {
    this.#guard('read');
    this.#disk.check('read', this.path);
    const bytes = this.#file.content().subarray(position, position + target.length);
    target.set(bytes);
    return bytes.length;
  }

  write(chunks: readonly Uint8Array[], position: number): void {
    this.#guard('write');
    if (!this.#writable) throw new DiskError('EBADF', 'write', this.path);
    this.#disk.check('write', this.path);
    let at = position;
    for (const chunk of chunks) {
      this.#disk.beforeChange({ file: this.#file, bytes: chunk, at });
      const growth = Math.max(0, at + chunk.length - this.#file.size);
      const missing = Math.max(0, growth - this.#disk.freeBytes());
      const fits = Math.max(0, chunk.length - missing);
      this.#file.write(chunk.subarray(0, fits), at);
      if (missing > 0) throw new DiskError('ENOSPC', 'write', this.path);
      at += chunk.length;
    }
  }

  truncate(size: number): void {
    this.#guard('truncate');
    if (!this.#writable) throw new DiskError('EBADF', 'truncate', this.path);
    this.#disk.check('truncate', this.path);
    this.#disk.beforeChange(undefined);
    this.#file.truncate(size);
  }

  sync(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#guard('sync');
      const pending = this.#file.beginSync();
      this.#process.schedule(this.#disk.syncDurationMs(), `sync ${this.path}`, () => {
        try {
          this.#finishSync(pending);
          resolve();
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  syncNow(): void {
    this.#guard('sync');
    this.#finishSync(this.#file.beginSync());
  }

  close(): void {
    this.#closed = true;
  }

  #finishSync(pending: { succeed(): void; fail(): void }): void {
    try {
      this.#disk.check('sync', this.path);
    } catch (error) {
      pending.fail();
      throw error;
    }
    pending.succeed();
  }

  #guard(operation: string): void {
    const ended = !this.#process.alive && !this.#disk.isHaunted;
    if (ended) throw new DiskError('EIO', operation, this.path);
    if (this.#closed) throw new DiskError('EBADF', operation, this.path);
  }
}
