/**
 * What a dump of a file yields: rows for people and programs, and problems among them.
 *
 * Every dump is a generator, so that a file of any size is read in constant memory and only as far
 * as somebody listens. `undefined` asks for a moment's pause: the file ends in a batch that may
 * still be on its way.
 */

/** A line of a dump: what it is, then its fields in order. */
export interface DumpRow {
  readonly kind: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Rows as they are found. */
export type DumpRows = Generator<DumpRow | undefined, void>;

/** The kind of rows that say what is wrong. */
export const PROBLEM = 'problem';

/** A line of a dump. */
export function row(kind: string, fields: Readonly<Record<string, unknown>>): DumpRow {
  return { kind, fields };
}

/** What is wrong; `where` is a position in the file, an entry or an offset, as far as known. */
export function problem(what: string, where: Readonly<Record<string, unknown>> = {}): DumpRow {
  return { kind: PROBLEM, fields: { ...where, problem: what } };
}
