/**
 * What a check of a cluster finds, in the words of whoever may have to fix it.
 *
 * Made by the `check-*.ts` files of `twinlog guest check`, shown by the command line. A warning is
 * what a guest can live with; a problem is what keeps it from joining or from doing its work.
 */

/** How bad it is. */
export type CheckStatus = 'ok' | 'warning' | 'problem';

/** One thing that was looked at. */
export interface Check {
  /** What was looked at, in a few words. */
  readonly name: string;
  readonly status: CheckStatus;
  /** What was found, as a sentence without its full stop. */
  readonly found: string;
  /** What to do about it, as sentences; absent when there is nothing to do. */
  readonly fix?: string;
  /** The same for programs. */
  readonly data?: Readonly<Record<string, unknown>>;
}

/** Something that is as it should be. */
export function ok(name: string, found: string, data?: Check['data']): Check {
  return { name, status: 'ok', found, ...(data === undefined ? {} : { data }) };
}

/** Something that a guest can live with. */
export function warning(name: string, found: string, fix: string, data?: Check['data']): Check {
  return { name, status: 'warning', found, fix, ...(data === undefined ? {} : { data }) };
}

/** Something that has to be fixed before a guest joins. */
export function problem(name: string, found: string, fix: string, data?: Check['data']): Check {
  return { name, status: 'problem', found, fix, ...(data === undefined ? {} : { data }) };
}

/** Longest list of names in a sentence. */
const MAX_LISTED = 10;

/** Names as a sentence has them, the first few of many. */
export function listed(names: readonly (string | number)[]): string {
  const more = names.length - MAX_LISTED;
  const shown = names.slice(0, MAX_LISTED).join(', ');
  return more > 0 ? `${shown} and ${more} more` : shown;
}
