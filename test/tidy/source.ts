/**
 * A source file as the tidy rules see it: path, text, masked text, imports, functions.
 */
import fs from 'node:fs';
import path from 'node:path';
import { type Masked, mask } from './mask.ts';

/** One import or re-export. */
export interface Import {
  readonly specifier: string;
  readonly line: number;
  readonly isReexport: boolean;
}

/** A file with what the rules need; `path` is relative to the repository, with `/`. */
export interface Source extends Masked {
  readonly path: string;
  readonly text: string;
  readonly lines: readonly string[];
  readonly imports: readonly Import[];
}

/** The 1-based line of a position. */
export function lineAt(text: string, position: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at >= 0 && at < position; at = text.indexOf('\n', at + 1))
    line++;
  return line;
}

const IMPORT = /(?<![.\w$#])(?:(import|export)\b[^;'"`()=]*?\bfrom\s*|import\s*\(?\s*)(['"])/g;

function findImports(text: string, code: string): Import[] {
  return [...code.matchAll(IMPORT)].map((match) => {
    const start = match.index + match[0].length;
    return {
      specifier: text.slice(start, text.indexOf(match[2]!, start)),
      line: lineAt(text, match.index),
      isReexport: match[1] === 'export',
    };
  });
}

/** Prepares a text for the rules. */
export function sourceOf(filePath: string, text: string): Source {
  const { code, comments } = mask(text);
  const lines = text.split('\n');
  return { path: filePath, text, code, comments, lines, imports: findImports(text, code) };
}

/** All TypeScript files below the given folders of the repository. */
export function readSources(root: string, folders: readonly string[]): Source[] {
  return folders
    .filter((folder) => fs.existsSync(path.join(root, folder)))
    .flatMap((folder) =>
      fs
        .readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts') && !name.includes('node_modules'))
        .map((name) => `${folder}/${name.replaceAll(path.sep, '/')}`),
    )
    .sort()
    .map((file) => sourceOf(file, fs.readFileSync(path.join(root, file), 'utf8')));
}

/** The repository path a relative import leads to, or undefined for a package. */
export function resolveImport(from: string, specifier: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined;
  return path.posix.normalize(path.posix.join(path.posix.dirname(from), specifier));
}

/** A function's place and length. */
export interface FunctionSpan {
  readonly line: number;
  readonly lineCount: number;
}

const NOT_FUNCTIONS = /(?<![.\w$#])(?:if|for|while|switch|catch|with|await)$/;

interface OpenBracket {
  readonly bracket: string;
  readonly at: number;
  /** The last `(…)` closed directly inside, if nothing has ended the expression since. */
  lastGroup: { start: number; end: number } | undefined;
  /** For `{`: where the function that it is the body of begins. */
  functionStart: number | undefined;
}

/** Where the function begins whose body opens at `brace`, or undefined when it is no body. */
function functionStartOf(code: string, brace: number, outer: OpenBracket): number | undefined {
  const group = outer.lastGroup;
  if (/=>\s*$/.test(code.slice(Math.max(0, brace - 20), brace))) return group?.start ?? brace;
  if (group === undefined || !/^\s*(?::|$)/.test(code.slice(group.end, brace))) return undefined;
  const name = code.slice(Math.max(0, group.start - 80), group.start).trimEnd();
  return NOT_FUNCTIONS.test(name) ? undefined : group.start;
}

/** Every function, method and arrow function with a block body, outer and inner alike. */
export function findFunctions(source: Source): FunctionSpan[] {
  const { code } = source;
  const found: FunctionSpan[] = [];
  const top: OpenBracket = { bracket: '', at: 0, lastGroup: undefined, functionStart: undefined };
  const stack: OpenBracket[] = [top];
  for (let at = 0; at < code.length; at++) {
    const c = code[at]!;
    const outer = stack.at(-1)!;
    if (c === ';' || (c === ',' && outer.bracket !== '')) outer.lastGroup = undefined;
    if (c === '(' || c === '[' || c === '{') {
      const functionStart = c === '{' ? functionStartOf(code, at, outer) : undefined;
      stack.push({ bracket: c, at, lastGroup: undefined, functionStart });
    } else if ((c === ')' || c === ']' || c === '}') && stack.length > 1) {
      const closed = stack.pop()!;
      const around = stack.at(-1)!;
      if (c === ')') around.lastGroup = { start: closed.at, end: at + 1 };
      // After a body comes something new; after a type in braces the body may still follow.
      else if (c === '}' && !/^[ ]*[|&[\]>{]/.test(code.slice(at + 1, at + 20))) {
        around.lastGroup = undefined;
      }
      if (closed.functionStart === undefined) continue;
      const line = lineAt(code, closed.functionStart);
      found.push({ line, lineCount: lineAt(code, at) - line + 1 });
    }
  }
  return found;
}
