/**
 * The house style as a test: layers, limits, headers, forbidden features, dead files.
 *
 * Each rule is first tried on snippets it must and must not complain about, then on the repository.
 * A complaint says file, line and what to do. A limit is never suppressed in place.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { mask } from './tidy/mask.ts';
import { cycles, deadFiles, FILE_RULES, ruleIds } from './tidy/rules.ts';
import { findFunctions, readSources, sourceOf } from './tidy/source.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SPECS = ['docs/spec/mirroring.md', 'docs/spec/guest.md'];
const SKIPPED = 'docs/skipped-features.md';
/** Where the program begins. */
const COMMANDS = ['src/cli/main.ts', 'src/sim/main.ts'];

const report = (problems: readonly string[]): void =>
  assert.equal(problems.length, 0, `\n${problems.join('\n')}\n`);

function read(file: string): string | undefined {
  return fs.existsSync(`${ROOT}${file}`) ? fs.readFileSync(`${ROOT}${file}`, 'utf8') : undefined;
}

const lines = (count: number, line: string): string => `${line}\n`.repeat(count);

/** Rule, path, text, and how many complaints it must give. */
const SNIPPETS: [rule: string, path: string, text: string, complaints: number][] = [
  ['layers', 'src/storage/a.ts', `import { x } from '../protocol/b.ts';`, 0],
  ['layers', 'src/storage/a.ts', `import type { x } from '../metadata/b.ts';`, 1],
  ['layers', 'src/storage/a.ts', `import {\n  x,\n} from '../sim/b.ts';`, 1],
  ['layers', 'src/storage/a.ts', `const x = await import('../server/b.ts');`, 1],
  ['layers', 'src/storage/a.ts', `// import { x } from '../server/b.ts';`, 0],
  ['layers', 'src/storage/a.ts', `import { x } from './b';`, 1],
  ['layers', 'src/server/a.ts', `import { x } from '../io/node/b.ts';`, 1],
  ['layers', 'src/cli/a.ts', `import { x } from '../io/node/b.ts';`, 0],
  ['layers', 'src/io/a.ts', `import { x } from './node/b.ts';`, 1],
  ['layers', 'src/sim/a.ts', `import { x } from '../server/b.ts';`, 0],
  ['layers', 'src/sim/a.ts', `import { x } from '../io/node/b.ts';`, 1],
  ['layers', 'src/sim/a.ts', `import { x } from '../cli/b.ts';`, 1],
  ['layers', 'src/sim/a.ts', `import { x } from '../../test/b.ts';`, 1],
  ['layers', 'src/extra/a.ts', `import { x } from '../base/b.ts';`, 1],
  ['packages', 'src/server/a.ts', `import fs from 'node:fs';`, 1],
  ['packages', 'src/io/node/a.ts', `import fs from 'node:fs';`, 0],
  ['packages', 'src/protocol/a.ts', `import { crc32c } from '@node-rs/crc32';`, 1],
  ['packages', 'src/cli/a.ts', `import x from 'left-pad';`, 1],
  ['packages', 'test/a.ts', `import x from 'left-pad';`, 0],
  ['reexports', 'src/base/a.ts', `export * from './b.ts';\nexport { x } from './c.ts';`, 2],
  ['reexports', 'src/base/a.ts', `import { x } from './b.ts';\nexport const y = x;`, 0],
  ['ambient', 'src/mirror/a.ts', `const t = Date.now() + new Date().getTime();`, 2],
  ['ambient', 'src/mirror/a.ts', `const a = Math.random();\nperformance.now();`, 2],
  ['ambient', 'src/mirror/a.ts', `setTimeout(f, 1);\nsetInterval(f, 1);\nsetImmediate(f);`, 3],
  ['ambient', 'src/mirror/a.ts', `queueMicrotask(f); crypto.randomUUID(); console.log(1);`, 3],
  ['ambient', 'src/mirror/a.ts', `process.exit(1); process.nextTick(f); process.on('x', f);`, 3],
  ['ambient', 'src/mirror/a.ts', `// setTimeout\nconst s = 'Date.now()'; x.setTimeout(1);`, 0],
  ['ambient', 'src/mirror/a.ts', `const s = \`at \${Date.now()}\`;`, 1],
  ['ambient', 'src/io/node/a.ts', `setTimeout(f, Date.now());`, 0],
  ['ambient', 'src/sim/simulator.ts', `setImmediate(f); process.on('x', f);`, 0],
  ['ambient', 'src/sim/simulator.ts', `setTimeout(f, 1);`, 1],
  ['ambient', 'src/sim/main.ts', `process.exit(1);`, 0],
  ['language', 'src/base/a.ts', `let a: any; const b = c as any; const d: any[] = [];`, 3],
  ['language', 'test/a.ts', `let a: Map<string, any>;`, 1],
  ['language', 'src/base/a.ts', `Promise.any(x); const any = 1; // any`, 0],
  ['language', 'src/base/a.ts', `enum A { B }\nexport const enum C { D }`, 2],
  ['language', 'src/base/a.ts', `namespace A {}\nexport default 1;`, 2],
  ['suppressions', 'src/base/a.ts', `// @ts-ignore\n/* biome-ignore lint: why */`, 2],
  ['suppressions', 'src/base/a.ts', `const s = '@ts-ignore';`, 0],
  ['columns', 'test/a.ts', `${'x'.repeat(100)}\n${'x'.repeat(101)}\n`, 1],
  ['functions', 'src/base/a.ts', `function f() {\n${lines(68, 'a();')}}`, 0],
  ['functions', 'src/base/a.ts', `function f() {\n${lines(69, 'a();')}}`, 1],
  ['functions', 'src/base/a.ts', `class A {\n  m(\n${lines(68, 'x,')}  ): void {\n  }\n}`, 1],
  ['functions', 'src/base/a.ts', `class A {\n${lines(90, '  a = 1;')}}`, 0],
  ['functions', 'src/base/a.ts', `const f = (a: X): { b: Y } => {\n${lines(70, 'a();')}};`, 1],
  ['functions', 'src/base/a.ts', `const f = {\n${lines(90, '  a: g(x),')}};`, 0],
  ['functions', 'src/io/messages/a.ts', `function f() {\n${lines(90, 'a();')}}`, 0],
  ['fileLength', 'src/base/a.ts', lines(600, 'x'), 0],
  ['fileLength', 'test/a.ts', lines(601, 'x'), 1],
  ['fileLength', 'src/protocol/messages/00-produce.ts', lines(900, 'x'), 0],
  ['header', 'src/base/a.ts', `/**\n * What.\n *\n * Who.\n */\nconst a = 1;`, 0],
  ['header', 'src/cli/a.ts', `#!/usr/bin/env node\n/**\n${lines(3, ' * x')} */\n`, 0],
  ['header', 'src/base/a.ts', `/** What. */\nconst a = 1;`, 1],
  ['header', 'src/base/a.ts', `/**\n${lines(13, ' * x')} */\nconst a = 1;`, 1],
  ['header', 'src/base/a.ts', `import x from './y.ts';`, 1],
  ['documented', 'src/base/a.ts', `/** One. */\nexport const a = 1;\nexport type a = 1;`, 0],
  ['documented', 'src/base/a.ts', `export function f() {}\n\nexport class G {}`, 2],
];

describe('every rule catches what it is for, and nothing else', () => {
  for (const [rule, path, text, complaints] of SNIPPETS) {
    const title = text.replace(/\s+/g, ' ').slice(0, 60);
    test(`${rule}: ${complaints} in ${path}: ${title}`, () => {
      const found = FILE_RULES[rule]!(sourceOf(path, text));
      assert.equal(found.length, complaints, found.join('\n'));
      for (const complaint of found) assert.match(complaint, new RegExp(`^${path}:\\d+ .{10,}`));
    });
  }

  test('every rule has snippets', () => {
    const tried = new Set(SNIPPETS.map(([rule]) => rule));
    assert.deepEqual([...tried].sort(), Object.keys(FILE_RULES).sort());
  });

  test('cycles: a chain is fine, a ring is not', () => {
    const a = sourceOf('src/base/a.ts', `import { b } from './b.ts';`);
    const b = sourceOf('src/base/b.ts', `import type { c } from './c.ts';`);
    assert.deepEqual(cycles([a, b, sourceOf('src/base/c.ts', '')]), []);
    const ring = cycles([a, b, sourceOf('src/base/c.ts', `import { a } from './a.ts';`)]);
    assert.equal(ring.length, 1);
    assert.match(ring[0]!, /base\/a\.ts > src\/base\/b\.ts > src\/base\/c\.ts > src\/base\/a\.ts/);
  });

  test('deadFiles: used by a command is alive, used by tests only is not, except in sim', () => {
    const sources = [
      sourceOf('src/cli/main.ts', `import { a } from '../base/a.ts';`),
      sourceOf('src/base/a.ts', ''),
      sourceOf('src/base/b.ts', ''),
      sourceOf('src/sim/c.ts', `import '../base/e.ts';`),
      sourceOf('src/base/e.ts', ''),
      sourceOf('src/sim/d.ts', ''),
      sourceOf('test/x.test.ts', `import '../src/sim/c.ts';\nimport '../src/base/b.ts';`),
    ];
    const dead = deadFiles(sources, ['src/cli/main.ts']).map((row) => row.split(':')[0]);
    assert.deepEqual(dead, ['src/base/b.ts', 'src/sim/d.ts']);
  });

  test('ruleIds: tested, listed as not built, forgotten, or unknown', () => {
    const spec = '- **A1** one\n- **A2 two**: x\n- **B1** three\n';
    const tests = [sourceOf('test/a.test.ts', `test('A1: it holds', () => {});\n// A2`)];
    const specs = [{ path: 'docs/spec/mirroring.md', text: spec }];
    const found = ruleIds(specs, tests, 'Not yet: B1, Z9.');
    assert.equal(found.length, 2, found.join('\n'));
    assert.match(found[0]!, /^docs\/spec\/mirroring\.md:2 rule A2 is not tested/);
    assert.match(found[1]!, /Z9 is not a rule/);
  });
});

describe('the scanner behind the rules', () => {
  test('comments, strings, templates and regular expressions are told from code', () => {
    const text = [
      'const a = "x // y"; // b',
      `const c = \`t \${d ? \`n \${e} }\` : "}"} /* u */\`; /* f`,
      '*/ const g = /["\'`/*]/.test(h) ? i / j : (k) / l;',
      "return /'/; const m = n[0] / o / p; const q = '\\'r';",
    ].join('\n');
    const { code, comments } = mask(text);
    assert.equal(code.length, text.length);
    assert.equal(
      code.replace(/ +/g, ' ').replace(/ \n/g, '\n'),
      [
        'const a = " ";',
        `const c = \` \${d ? \` \${e} \` : " "} \`;`,
        ' const g = / /.test(h) ? i / j : (k) / l;',
        "return / /; const m = n[0] / o / p; const q = ' ';",
      ].join('\n'),
    );
    assert.equal(comments.replace(/\s+/g, ' ').trim(), '// b /* f */');
  });

  test('functions are found with their lengths', () => {
    const text = [
      'export function a(x: { y: Z }): { w: V } {',
      '  if (x) {',
      '    f(() => {',
      '      g();',
      '    });',
      '  }',
      '}',
      'class B {',
      '  async *c<T>(',
      '    d: T,',
      '  ): AsyncGenerator<T> {',
      '    for await (const e of d) {',
      '    }',
      '  }',
      '}',
    ].join('\n');
    const long = findFunctions(sourceOf('src/base/a.ts', text)).filter((f) => f.lineCount > 1);
    assert.deepEqual(
      long.sort((p, q) => p.line - q.line),
      [
        { line: 1, lineCount: 7 },
        { line: 3, lineCount: 3 },
        { line: 9, lineCount: 6 },
      ],
    );
  });
});

describe('the repository', () => {
  const sources = readSources(ROOT, ['src', 'test', 'bench']);

  for (const [name, rule] of Object.entries(FILE_RULES)) {
    test(name, () => report(sources.flatMap(rule)));
  }

  test('cycles', () => report(cycles(sources)));

  test('dead files', (t) => {
    const commands = COMMANDS.filter((file) => read(file) !== undefined);
    if (commands.length === 0) return t.skip('there is no command yet');
    report(deadFiles(sources, commands));
  });

  test('rules of the contracts', () => {
    const specs = SPECS.map((path) => ({ path, text: read(path) ?? '' }));
    const tests = sources.filter(({ path }) => path.endsWith('.test.ts'));
    report(ruleIds(specs, tests, read(SKIPPED) ?? ''));
  });
});
