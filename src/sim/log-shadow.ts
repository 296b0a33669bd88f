/**
 * What the simulator remembers of a log: every batch, byte for byte, and how the log changed.
 *
 * `follow` compares the log with what was seen before and tells what was cut and what was added.
 * Looked at after every event, that costs two comparisons; the bytes of what was there before are
 * compared again when the log was opened anew. Batches below the log start stay in the memory. A
 * shadow follows a log to its end, or as far as it is committed.
 */
import { assert } from '../base/assert.ts';
import { forEachBatch, RecordBatch } from '../protocol/record-batch.ts';
import type { Log } from '../storage/log.ts';

/** Bytes read from a log at a time. */
const READ_BYTES = 1024 * 1024;

/** A batch as it stood in a log. */
export interface SeenBatch {
  readonly baseOffset: number;
  readonly nextOffset: number;
  /** A copy. */
  readonly bytes: Uint8Array;
}

/** What happened to a log since the last look. */
export interface LogChange {
  /** Batches at or above the log start that are there no more. */
  readonly cut: readonly SeenBatch[];
  readonly added: readonly SeenBatch[];
}

const NO_CHANGE: LogChange = { cut: [], added: [] };

/** Every batch of a log from the one that holds `from` on; `from` must be in the log. */
export function readLog(
  log: Log,
  from: number = log.localLogStartOffset,
  end: number = log.logEndOffset,
): SeenBatch[] {
  const seen: SeenBatch[] = [];
  for (let offset = from; offset < end; ) {
    const read = log.read(offset, READ_BYTES, 'logEnd', true);
    assert(read.error === 0, `${log.directory}: offset ${offset} reads with error ${read.error}`);
    const before = offset;
    for (const chunk of read.records) {
      const scan = forEachBatch(chunk, 0, chunk.length, (batch) => {
        const { baseOffset, nextOffset } = batch;
        if (baseOffset >= end) return;
        seen.push({ baseOffset, nextOffset, bytes: new Uint8Array(batch.slice()) });
        offset = nextOffset;
      });
      assert(scan.ok, `${log.directory}: bytes behind offset ${offset} are no batch`);
    }
    if (offset === before) break;
  }
  return seen;
}

/** Whether two pieces of bytes are equal. */
export function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/** A view of a remembered batch. */
export function batchOf({ bytes }: SeenBatch): RecordBatch {
  return new RecordBatch(bytes);
}

/** See the file header. */
export class LogShadow {
  #batches: SeenBatch[] = [];
  readonly #byBase = new Map<number, SeenBatch>();
  #log: Log | undefined;
  #start = 0;
  #end = 0;
  /** The log forgot everything when it started over beyond its end; the next batch is its first. */
  #startedOver = false;
  #firstBase = 0;

  /** The log end at the last look. */
  get end(): number {
    return this.#end;
  }

  /** The log start at the last look. */
  get start(): number {
    return this.#start;
  }

  get batches(): readonly SeenBatch[] {
    return this.#batches;
  }

  /** Those since the log last started over beyond its end. */
  get batchesOfThisStart(): readonly SeenBatch[] {
    return this.#batches.filter(({ baseOffset }) => baseOffset >= this.#firstBase);
  }

  at(baseOffset: number): SeenBatch | undefined {
    return this.#byBase.get(baseOffset);
  }

  /** Looks at the log, below `end` only; see the file header. */
  follow(log: Log, end: number = log.logEndOffset): LogChange {
    const { logStartOffset } = log;
    const reopened = this.#log !== log;
    if (!reopened && logStartOffset === this.#start && end === this.#end) return NO_CHANGE;
    this.#log = log;
    if (logStartOffset > this.#end) this.#startedOver = true;
    const change = reopened ? this.#compareAll(log, end) : this.#compareEnds(log, end);
    this.#start = logStartOffset;
    this.#end = end;
    return change;
  }

  /** The same log object: only its ends can have moved. */
  #compareEnds(log: Log, end: number): LogChange {
    const cut = this.#dropFrom(end, log.logStartOffset);
    const from = Math.max(this.#lastEnd(), log.logStartOffset);
    const added = from < end ? readLog(log, from, end) : [];
    this.#add(added);
    return { cut, added };
  }

  #compareAll(log: Log, logEnd: number): LogChange {
    const found = readLog(log, log.localLogStartOffset, logEnd);
    this.#prepend(found);
    const first = found[0]?.baseOffset ?? logEnd;
    let index = this.#batches.findIndex(({ baseOffset }) => baseOffset >= first);
    if (index < 0) index = this.#batches.length;
    let same = 0;
    for (; same < found.length; same++) {
      const before = this.#batches[index + same];
      if (before === undefined || !sameBytes(before.bytes, found[same]!.bytes)) break;
    }
    const end = same === 0 ? first : found[same - 1]!.nextOffset;
    const cut = this.#dropFrom(end, log.logStartOffset);
    const added = found.slice(same);
    this.#add(added);
    return { cut, added };
  }

  /** A crash can lower the log start again: what lay below it before the first look is no news. */
  #prepend(found: SeenBatch[]): void {
    const first = this.#batches[0]?.baseOffset ?? this.#end;
    const older = found.filter(({ baseOffset }) => baseOffset < first);
    this.#batches.unshift(...older);
    for (const batch of older) this.#byBase.set(batch.baseOffset, batch);
  }

  #lastEnd(): number {
    return this.#batches.at(-1)?.nextOffset ?? 0;
  }

  /** Forgets batches that reach beyond `end`; those that readers could still see are told. */
  #dropFrom(end: number, logStartOffset: number): SeenBatch[] {
    const start = Math.max(this.#start, logStartOffset);
    const cut: SeenBatch[] = [];
    while (this.#lastEnd() > end) {
      const batch = this.#batches.pop()!;
      this.#byBase.delete(batch.baseOffset);
      if (batch.nextOffset > start) cut.unshift(batch);
    }
    return cut;
  }

  #add(batches: readonly SeenBatch[]): void {
    const first = batches[0];
    if (first !== undefined && (this.#startedOver || first.baseOffset < this.#firstBase)) {
      this.#firstBase = this.#startedOver ? first.baseOffset : 0;
      this.#startedOver = false;
    }
    for (const batch of batches) {
      this.#batches.push(batch);
      this.#byBase.set(batch.baseOffset, batch);
    }
  }
}
