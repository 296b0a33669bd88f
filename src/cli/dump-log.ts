/**
 * `twinlog dump-log`: what is in the files of a log directory, and whether it is in order.
 *
 * Takes files, partition directories and whole data directories, also one that a broker is using:
 * nothing is ever written, and a file that goes while it is looked at is passed over. Problems are
 * rows among the others and make the command fail. The formats are dumped by `storage/dump-*`; here
 * are the walk and the words.
 */
import { basename, dirname, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { nodeRuntime } from '../io/node/node-runtime.ts';
import { type Disk, DiskError, type Runtime } from '../io/runtime.ts';
import { readOnlyDisk } from '../storage/batch-file.ts';
import { type DumpRow, PROBLEM } from '../storage/dump-row.ts';
import { isDeletedDirectory, parseDirectoryName } from '../storage/topic-partition.ts';
import { dumpFormat, isInTheLog } from './dump-format.ts';
import { recordDecoder } from './dump-records.ts';
import { CommandError } from './output.ts';

/** Options of `dump-log`. */
export interface DumpLogOptions {
  readonly records: boolean;
  readonly deep: boolean;
  /** Topic whose records these are; else the name of the directory says it. */
  readonly as?: string;
  readonly json: boolean;
}

/** Takes text to print; resolves when there may be more. */
export type Print = (text: string) => Promise<void>;

/** What was looked at. */
export interface DumpTotals {
  files: number;
  problems: number;
  filesWithProblems: number;
}

/** A data directory has two levels, lost-and-found one more; a link may make it a ring. */
const MAX_DEPTH = 8;
const PRINT_BYTES = 64 * 1024;
/** How long the rest of a batch that is being written may take. */
const PAUSE_MS = 20;

/** Dumps `paths` to `print`, in order; throws CommandError for a path that is not there. */
export async function dumpPaths(
  runtime: Pick<Runtime, 'disk' | 'compression'>,
  paths: readonly string[],
  options: DumpLogOptions,
  print: Print,
): Promise<DumpTotals> {
  const dumper = new Dumper(runtime, options, print);
  for (const path of paths) await dumper.dumpPath(resolve(path));
  await dumper.flush();
  return dumper.totals;
}

class Dumper {
  readonly totals: DumpTotals = { files: 0, problems: 0, filesWithProblems: 0 };
  readonly #disk: Disk;
  readonly #runtime: Pick<Runtime, 'compression'>;
  readonly #options: DumpLogOptions;
  readonly #print: Print;
  #text = '';

  constructor(
    runtime: Pick<Runtime, 'disk' | 'compression'>,
    options: DumpLogOptions,
    print: Print,
  ) {
    this.#disk = readOnlyDisk(runtime.disk);
    this.#runtime = runtime;
    this.#options = options;
    this.#print = print;
  }

  async dumpPath(path: string): Promise<void> {
    if (this.#disk.fileSize(path) === undefined) {
      if (this.#disk.list(path) !== undefined) return this.#dumpDirectory(path, 0);
      throw new CommandError(`${path}: no such file or directory.`);
    }
    const end = await this.#dumpFile(path, 0);
    if (end !== undefined) return;
    throw new CommandError(`${path}: the name is not one of a file in a log directory.`);
  }

  async #dumpDirectory(path: string, depth: number): Promise<void> {
    if (depth > MAX_DEPTH) throw new CommandError(`${path}: directories are too deep.`);
    let logEndOffset = 0;
    for (const { name, isDirectory } of this.#disk.list(path) ?? []) {
      const child = `${path}/${name}`;
      const isGoing = isDirectory ? isDeletedDirectory(name) : !isInTheLog(name);
      if (isGoing) continue;
      if (isDirectory) await this.#dumpDirectory(child, depth + 1);
      else logEndOffset = (await this.#dumpFile(child, logEndOffset)) ?? logEndOffset;
    }
  }

  /** The log end behind the file (unless a segment, the one before it); undefined: no format. */
  async #dumpFile(path: string, logEndOffset: number): Promise<number | undefined> {
    const { records, deep, as } = this.#options;
    const topic = as ?? parseDirectoryName(basename(dirname(path)))?.topic;
    const dump = dumpFormat(this.#disk, path, {
      compression: this.#runtime.compression,
      records,
      deep,
      decoder: topic === undefined ? undefined : recordDecoder(topic),
      logEndOffset,
    });
    if (dump === undefined) return undefined;
    const { format } = dump;
    const problemsBefore = this.totals.problems;
    let end = logEndOffset;
    try {
      const bytes = this.#disk.fileSize(path);
      if (bytes === undefined) return end;
      await this.#show(path, { kind: 'file', fields: { format, bytes } });
      for (const row of dump.rows) {
        if (row === undefined) await sleep(PAUSE_MS);
        else await this.#show(path, row);
        if (row?.kind === 'end' && format === 'segment') end = Number(row.fields.nextOffset);
      }
    } catch (error) {
      if (!(error instanceof DiskError)) throw error;
      // A broker may have deleted it since it was listed.
      if (error.code === 'ENOENT') return end;
      await this.#show(path, { kind: PROBLEM, fields: { problem: error.message } });
    }
    this.totals.files++;
    if (this.totals.problems > problemsBefore) this.totals.filesWithProblems++;
    return end;
  }

  async #show(path: string, row: DumpRow): Promise<void> {
    if (row.kind === PROBLEM) this.totals.problems++;
    this.#text += `${this.#options.json ? jsonLine(path, row) : textLine(path, row)}\n`;
    if (this.#text.length >= PRINT_BYTES) await this.flush();
  }

  async flush(): Promise<void> {
    const text = this.#text;
    this.#text = '';
    if (text !== '') await this.#print(text);
  }
}

function jsonLine(path: string, { kind, fields }: DumpRow): string {
  return JSON.stringify(showable({ file: path, kind, ...fields }));
}

function textLine(path: string, { kind, fields }: DumpRow): string {
  if (kind === 'file') return `${path}: ${fields.format}, ${fields.bytes} bytes`;
  const words = Object.entries(fields).map(([name, value]) => {
    const isName = typeof value === 'string' && kind !== 'record' && /^[^\s"]+$/.test(value);
    return `${name}: ${isName ? value : JSON.stringify(showable(value))}`;
  });
  if (kind !== PROBLEM) return `  ${kind} ${words.join(' ')}`;
  const { problem, ...where } = fields;
  const place = Object.entries(where).map(([name, value]) => `, ${name} ${value}`);
  return `  PROBLEM in ${basename(path)}${place.join('')}: ${problem}`;
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Bytes as text where they are text, else as base64; 64-bit numbers as text where they must be. */
function showable(value: unknown): unknown {
  if (typeof value === 'bigint') {
    return BigInt(Number(value)) === value && Number.isSafeInteger(Number(value))
      ? Number(value)
      : String(value);
  }
  if (value instanceof Uint8Array) return textOf(value) ?? { base64: base64Of(value) };
  if (Array.isArray(value)) return value.map(showable);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, showable(item)]));
}

function base64Of(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64');
}

function textOf(bytes: Uint8Array): string | undefined {
  try {
    const text = utf8.decode(bytes);
    return /\p{Cc}/u.test(text.replace(/[\t\n\r]/g, '')) ? undefined : text;
  } catch (error) {
    if (error instanceof TypeError) return undefined;
    throw error;
  }
}

/** The reader of our output has enough (`dump-log … | head`). */
class OutputClosed extends Error {
  override readonly name = 'OutputClosed';
}

function printToStdout(text: string): Promise<void> {
  return new Promise((done, failed) => {
    process.stdout.write(text, (error) => {
      if (!error) done();
      else failed((error as NodeJS.ErrnoException).code === 'EPIPE' ? new OutputClosed() : error);
    });
  });
}

/** Runs the command. */
export async function dumpLog(paths: string[], options: DumpLogOptions): Promise<void> {
  // The failed write tells `printToStdout`, which ends the walk.
  process.stdout.on('error', () => undefined);
  let totals: DumpTotals;
  try {
    totals = await dumpPaths(nodeRuntime({ logLevel: 'error' }), paths, options, printToStdout);
  } catch (error) {
    if (error instanceof OutputClosed) return;
    if (error instanceof DiskError) throw new CommandError(`${error.message}.`);
    throw error;
  }
  const { files, problems, filesWithProblems } = totals;
  if (problems === 0) return;
  const where = `in ${filesWithProblems} of ${files} file${files === 1 ? '' : 's'}`;
  throw new CommandError(`${problems} problem${problems === 1 ? '' : 's'} ${where}.`);
}
