/**
 * Java properties files, which Kafka's settings come in.
 *
 * Used for brokers (`--properties`) and clients (`--command-config`, `--source-config`). The whole
 * format but `\\uXXXX` in names: comments, continued lines, `=`, `:` or blanks after the name.
 */
import { readFileSync } from 'node:fs';
import { CommandError } from './output.ts';

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f' };
/** A name with its escapes, what separates it, and the value. */
const ENTRY = /^((?:\\.|[^\\\s=:])+)(?:\s*[=:]\s*|\s+|$)(.*)$/s;

/** Whether the line goes on: it ends in an odd number of backslashes. */
function goesOn(line: string): boolean {
  return (/\\*$/.exec(line)?.[0].length ?? 0) % 2 === 1;
}

function unescaped(text: string): string {
  return text.replace(/\\u([0-9a-fA-F]{4})|\\(.)/gs, (_all, code: string, character: string) =>
    code === undefined
      ? (ESCAPES[character] ?? character)
      : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

/** Entries in the order of the file; throws with the first line that is none. */
export function parseProperties(text: string): [string, string][] {
  const entries: [string, string][] = [];
  const lines = text.split(/\r?\n/);
  for (let line = lines.shift(); line !== undefined; line = lines.shift()) {
    let entry = line.trimStart();
    if (entry === '' || /^[#!]/.test(entry)) continue;
    while (goesOn(entry) && lines.length > 0) {
      entry = entry.slice(0, -1) + (lines.shift() ?? '').trimStart();
    }
    const match = ENTRY.exec(entry.trimEnd());
    if (match === null) throw new CommandError('A line without a name is no setting.', 2);
    const [, name = '', value = ''] = match;
    entries.push([unescaped(name), unescaped(value)]);
  }
  return entries;
}

/** Reads a file; a CommandError when it cannot be read. */
export function readProperties(path: string): [string, string][] {
  return parseProperties(readText(path));
}

/** The text of a file that an option names. */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new CommandError(`Cannot read ${path}: ${(error as NodeJS.ErrnoException).code}.`, 2);
  }
}
