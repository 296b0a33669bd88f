/**
 * How commands speak: text for people on stdout, one JSON value per line with `--json`, errors on
 * stderr.
 *
 * Exit codes: 0 done, 1 the operation failed, 2 the command line is wrong. A failure is a sentence
 * that names what is wrong and what to do, never a stack trace (that is for defects).
 */

/** A failure to show to the user as one sentence. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly exitCode: number;
  constructor(message: string, exitCode = 1) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Writes results the way the user asked for. */
export interface Output {
  readonly json: boolean;
  /** A line for people; nothing with `--json`. */
  text(line: string): void;
  /** A value for programs; nothing without `--json`. */
  value(value: unknown): void;
}

/** An output on stdout. */
export function stdoutOutput(json: boolean): Output {
  const write = (line: string): void => {
    process.stdout.write(`${line}\n`);
  };
  return {
    json,
    text: (line) => {
      if (!json) write(line);
    },
    value: (value) => {
      if (json) write(JSON.stringify(value));
    },
  };
}

/** Columns padded to their widest cell; numbers, and the dashes among them, to the right. */
export function table(
  headings: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string[] {
  const cells = rows.map((row) =>
    row.map((cell) => (typeof cell === 'number' ? cell.toLocaleString('en-US') : cell)),
  );
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...cells.map((row) => row[column]?.length ?? 0)),
  );
  const isNumber = (column: number): boolean =>
    rows.some((row) => typeof row[column] === 'number') &&
    rows.every((row) => typeof row[column] === 'number' || row[column] === '-');
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return isNumber(column) ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return [line(headings), ...cells.map(line)];
}

/** Parses `HOST:PORT` (also `[v6]:PORT`); a CommandError that names the option otherwise. */
export function parseAddress(text: string, option: string): { host: string; port: number } {
  const match = /^(\[[0-9a-fA-F:]+\]|[^:/\s,]+):(\d{1,5})$/.exec(text.trim());
  const port = Number(match?.[2]);
  if (!match?.[1] || port > 65_535) {
    throw new CommandError(`${option} ${text}: write it as HOST:PORT, such as 127.0.0.1:9092.`, 2);
  }
  return { host: match[1].replace(/^\[|\]$/g, ''), port };
}
