/**
 * The rules of the house, one function each: they return what is wrong, as `path:line what to do`.
 *
 * Rules on one file take a Source; rules on the whole take all of them.
 */
import { findFunctions, lineAt, resolveImport, type Source } from './source.ts';

const MAX_COLUMNS = 100;
const MAX_FUNCTION_LINES = 70;
const MAX_FILE_LINES = 600;
const HEADER_LINES = { min: 3, max: 12 };

/** From left to right: a layer imports itself and what is left of it. */
const LAYERS = [
  'base',
  'io',
  'protocol',
  'storage',
  'metadata',
  'coordinator',
  'replication',
  'mirror',
  'guest',
  'server',
  'cli',
];

/** Packages, and the folders that may import them; nobody else may. */
const PACKAGES: Record<string, readonly string[]> = {
  '@node-rs/crc32': ['src/base/'],
  snappy: ['src/io/node/'],
  'lz4-napi': ['src/io/node/'],
  pino: ['src/io/node/'],
  'prom-client': ['src/server/', 'src/cli/'],
  commander: ['src/cli/'],
};

/** What may touch the machine: time, chance, timers, Node's modules. */
const MACHINE_FOLDERS = ['src/io/node/', 'src/cli/', 'src/sim/main.ts'];
/** The simulator's kernel drains with setImmediate and watches for unhandled rejections. */
const DRAIN_FILE = 'src/sim/simulator.ts';

const inAny = (path: string, folders: readonly string[]): boolean =>
  folders.some((folder) => path.startsWith(folder));
const isSource = (source: Source): boolean => source.path.startsWith('src/');
const isSchema = (source: Source): boolean => /^src\/.*\/(?:messages|records)\//.test(source.path);

/** A rule on one file. */
export type FileRule = (source: Source) => string[];

function at(source: Source, line: number, what: string): string {
  return `${source.path}:${line} ${what}`;
}

/** Every match of `pattern` in the code, as complaints. */
function complain(source: Source, pattern: RegExp, what: (match: string) => string): string[] {
  return [...source.code.matchAll(pattern)].map((match) =>
    at(source, lineAt(source.code, match.index), what(match[0].trim())),
  );
}

const layerOf = (path: string): string => path.split('/')[1] ?? '';

function layerComplaint(from: string, to: string): string | undefined {
  if (!to.startsWith('src/')) return 'the product may not import from outside src/';
  const [own, other] = [layerOf(from), layerOf(to)];
  if (own === other) {
    const upward =
      own === 'io' && !from.startsWith('src/io/node/') && to.startsWith('src/io/node/');
    return upward ? 'io may not know io/node' : undefined;
  }
  if (other === 'sim') return 'nothing imports sim';
  if (to.startsWith('src/io/node/')) {
    return own === 'cli' ? undefined : 'only cli (and tests) may import io/node';
  }
  if (own === 'sim') return other === 'cli' ? 'sim may not import cli' : undefined;
  if (LAYERS.includes(own) && LAYERS.includes(other)) {
    return LAYERS.indexOf(other) < LAYERS.indexOf(own) ? undefined : `${own} may not know ${other}`;
  }
  return `not a layer: ${LAYERS.includes(own) ? other : own}`;
}

/** Imports go left or stay in the folder; relative ones name the file with `.ts`. */
export const layers: FileRule = (source) =>
  source.imports.flatMap(({ specifier, line }) => {
    const target = resolveImport(source.path, specifier);
    if (target === undefined) return [];
    const problem = target.endsWith('.ts')
      ? isSource(source)
        ? layerComplaint(source.path, target)
        : undefined
      : 'a relative import names the file, with .ts';
    if (problem === undefined) return [];
    return [at(source, line, `import ${specifier}: ${problem}; move it or own a port`)];
  });

/** Node's modules and packages only where they belong. */
export const packages: FileRule = (source) => {
  if (!isSource(source)) return [];
  return source.imports.flatMap(({ specifier, line }) => {
    if (specifier.startsWith('.')) return [];
    const folders = specifier.startsWith('node:') ? MACHINE_FOLDERS : PACKAGES[specifier];
    if (folders !== undefined && inAny(source.path, folders)) return [];
    const where = folders?.join(', ') ?? 'no file; add it to PACKAGES if it is a real dependency';
    return [at(source, line, `import ${specifier}: allowed in ${where}`)];
  });
};

/** No file exists to pass on what others export. */
export const reexports: FileRule = (source) => {
  const named = source.imports.filter(({ isReexport }) => isSource(source) && isReexport);
  return named.map(({ line, specifier }) =>
    at(source, line, `re-export of ${specifier}: let users import the file itself`),
  );
};

const AMBIENT: readonly { pattern: RegExp; instead: string; drain?: boolean }[] = [
  { pattern: /(?<![.\w$#'"])(?:new\s+)?Date\b(?!\s*[:?])/g, instead: 'Clock.wallMs' },
  { pattern: /\bMath\.random\b/g, instead: 'Random' },
  { pattern: /(?<![.\w$#])performance\./g, instead: 'Clock.monotonicMs' },
  { pattern: /(?<![.\w$#])(?:setTimeout|setInterval)\b/g, instead: 'Clock.setTimer' },
  { pattern: /(?<![.\w$#])setImmediate\b/g, instead: 'Clock.defer', drain: true },
  { pattern: /(?<![.\w$#])queueMicrotask\b/g, instead: 'Clock.defer' },
  { pattern: /(?<![.\w$#])(?:globalThis\.)?crypto\./g, instead: 'Random' },
  { pattern: /(?<![.\w$#])console\./g, instead: 'Logger' },
  { pattern: /(?<![.\w$#])process\.(?:on|off)\b/g, instead: 'nothing: only cli', drain: true },
  {
    pattern: /(?<![.\w$#])process\.(?:env|argv|exit\w*|pid|cwd|kill|nextTick|hrtime|std\w+)\b/g,
    instead: 'the Runtime, or options from cli',
  },
];

/** Time, chance, timers and the process are reached through the Runtime. */
export const ambient: FileRule = (source) => {
  if (!isSource(source) || inAny(source.path, MACHINE_FOLDERS)) return [];
  return AMBIENT.filter(({ drain }) => !(drain === true && source.path === DRAIN_FILE)).flatMap(
    ({ pattern, instead }) => complain(source, pattern, (match) => `${match}: use ${instead}`),
  );
};

const FORBIDDEN: readonly { pattern: RegExp; instead: string }[] = [
  { pattern: /(?<![.\w$#])any\b(?!\s*[:(=?])/g, instead: 'unknown or the real type' },
  { pattern: /^[ \t]*(?:export\s+)?(?:declare\s+)?(?:const\s+)?enum\s+\w/gm, instead: 'a union' },
  { pattern: /^[ \t]*(?:export\s+|declare\s+)*namespace\s+\w/gm, instead: 'a module' },
  { pattern: /^[ \t]*export\s+default\b/gm, instead: 'a named export' },
];

/** Language features this house does without. */
export const language: FileRule = (source) =>
  FORBIDDEN.flatMap(({ pattern, instead }) =>
    complain(source, pattern, (match) => `${match}: use ${instead}`),
  );

/** No check is switched off in place. */
export const suppressions: FileRule = (source) => {
  const pattern = /@ts-(?:ignore|nocheck|expect-error)|biome-ignore|eslint-disable/g;
  return [...source.comments.matchAll(pattern)].map((match) =>
    at(source, lineAt(source.comments, match.index), `${match[0]}: fix the cause`),
  );
};

/** Lines fit. */
export const columns: FileRule = (source) =>
  source.lines.flatMap((line, index) =>
    line.length <= MAX_COLUMNS
      ? []
      : [at(source, index + 1, `${line.length} columns: at most ${MAX_COLUMNS}, break the line`)],
  );

/** Functions of the product fit on a screen and a half. */
export const functions: FileRule = (source) => {
  if (!isSource(source) || isSchema(source)) return [];
  return findFunctions(source)
    .filter(({ lineCount }) => lineCount > MAX_FUNCTION_LINES)
    .map(({ line, lineCount }) =>
      at(source, line, `a function of ${lineCount} lines: at most ${MAX_FUNCTION_LINES}, split it`),
    );
};

/** Files stay readable. */
export const fileLength: FileRule = (source) => {
  const count = source.text.endsWith('\n') ? source.lines.length - 1 : source.lines.length;
  if (isSchema(source) || count <= MAX_FILE_LINES) return [];
  return [at(source, MAX_FILE_LINES, `${count} lines: at most ${MAX_FILE_LINES}, split the file`)];
};

/** Every file says what it owns, who calls it and what holds. */
export const header: FileRule = (source) => {
  if (!isSource(source)) return [];
  const comment = /^(?:#!.*\n)?\/\*\*\n((?: \*.*\n)+?) \*\/\n/.exec(source.text);
  const count = comment === null ? 0 : comment[1]!.split('\n').length - 1;
  if (count >= HEADER_LINES.min && count <= HEADER_LINES.max) return [];
  const { min, max } = HEADER_LINES;
  return [at(source, 1, `a header of ${count} lines: say in ${min} to ${max} what the file owns`)];
};

const EXPORT =
  /^export (?:async |abstract |declare )*(?:function\*?|class|const|interface|type) (\w+)/;

/** Exported symbols have a doc comment; a type named like the value before it shares that one. */
export const documented: FileRule = (source) => {
  if (!isSource(source)) return [];
  const seen = new Set<string>();
  return source.lines.flatMap((line, index) => {
    const name = EXPORT.exec(line)?.[1];
    if (name === undefined || seen.has(name)) return [];
    seen.add(name);
    if (source.lines[index - 1]?.trimEnd().endsWith('*/') === true) return [];
    return [at(source, index + 1, `export ${name}: say in a doc comment what it is`)];
  });
};

/** Every rule on single files. */
export const FILE_RULES: Record<string, FileRule> = {
  layers,
  packages,
  reexports,
  ambient,
  language,
  suppressions,
  columns,
  functions,
  fileLength,
  header,
  documented,
};

function importGraph(sources: readonly Source[]): Map<string, string[]> {
  return new Map(
    sources.map((source) => [
      source.path,
      source.imports
        .map(({ specifier }) => resolveImport(source.path, specifier))
        .filter((target) => target !== undefined),
    ]),
  );
}

/** No file reaches itself by imports, type imports included. */
export function cycles(sources: readonly Source[]): string[] {
  const graph = importGraph(sources);
  const state = new Map<string, 'open' | 'done'>();
  const found: string[] = [];
  const visit = (file: string, trail: readonly string[]): void => {
    if (state.get(file) === 'done') return;
    if (state.get(file) === 'open') {
      const round = [...trail.slice(trail.indexOf(file)), file];
      found.push(`${file}:1 import cycle ${round.join(' > ')}: move the shared part out`);
      return;
    }
    state.set(file, 'open');
    for (const target of graph.get(file) ?? []) visit(target, [...trail, file]);
    state.set(file, 'done');
  };
  for (const file of graph.keys()) visit(file, []);
  return found;
}

/**
 * Every file of the product is used by a command; the simulator's by a test. Schemas are declared
 * before they are served: the protocol's tests read their folder and compare each with Kafka's.
 */
export function deadFiles(sources: readonly Source[], commands: readonly string[]): string[] {
  const graph = importGraph(sources);
  const reach = (roots: readonly string[]): Set<string> => {
    const reached = new Set<string>();
    const queue = [...roots];
    for (let file = queue.pop(); file !== undefined; file = queue.pop()) {
      if (reached.has(file)) continue;
      reached.add(file);
      queue.push(...(graph.get(file) ?? []));
    }
    return reached;
  };
  const tested = reach(sources.filter((source) => !isSource(source)).map(({ path }) => path));
  const used = reach([...commands, ...[...tested].filter((path) => path.startsWith('src/sim/'))]);
  return sources.filter(isSource).flatMap((source) => {
    const alive = source.path.startsWith('src/sim/') ? tested : used;
    if (isSchema(source) || alive.has(source.path) || commands.includes(source.path)) return [];
    return [at(source, 1, 'nothing that runs imports this file: use it or remove it')];
  });
}

/** A document that defines rules. */
export interface Spec {
  readonly path: string;
  readonly text: string;
}

/** Every rule of the contracts is proved by a test title or listed as not yet built. */
export function ruleIds(
  specs: readonly Spec[],
  tests: readonly Source[],
  skipped: string,
): string[] {
  const titles = tests.flatMap(({ text }) =>
    [...text.matchAll(/\b(?:test|describe|it)\(\s*(['"`])([\s\S]*?)\1/g)].map((match) => match[2]!),
  );
  const idsIn = (text: string): string[] => text.match(/\b[A-Z]\d{1,2}a?\b/g) ?? [];
  const proved = new Set(titles.flatMap(idsIn));
  const notBuilt = new Set(idsIn(skipped));
  const defined = specs.flatMap(({ path, text }) =>
    [...text.matchAll(/^- \*\*([A-Z]\d{1,2}a?)\b/gm)].map((match) => ({
      id: match[1]!,
      place: `${path}:${lineAt(text, match.index)}`,
    })),
  );
  const unproved = defined
    .filter(({ id }) => !proved.has(id) && !notBuilt.has(id))
    .map(({ id, place }) => {
      const cure = 'name it in a test title, or list it in docs/skipped-features.md';
      return `${place} rule ${id} is not tested: ${cure}`;
    });
  const known = new Set(defined.map(({ id }) => id));
  const paths = specs.map(({ path }) => path).join(' or ');
  const unknown = [...notBuilt]
    .filter((id) => !known.has(id))
    .map((id) => `docs/skipped-features.md:1 ${id} is not a rule of ${paths}`);
  return [...unproved, ...unknown];
}
