/**
 * docs/operations.md tells operators about every state and every cause that they can meet.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { allCauses, isRetryable } from '../../src/mirror/causes.ts';
import { TRANSITIONS } from '../../src/mirror/states.ts';

const PAGE = join(import.meta.dirname, '../../docs/operations.md');

/** The table rows below a heading, cells trimmed. */
function rowsBelow(heading: string): string[][] {
  const section = readFileSync(PAGE, 'utf8').split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const rows = section.split('\n').filter((line) => line.startsWith('| '));
  return rows.slice(1).map((row) => row.split('|').map((cell) => cell.trim()));
}

test('S5: the page explains every cause, and whether it is tried again', () => {
  const shown = rowsBelow('Causes').map(([, cause, retries]) => [cause, retries]);
  const expected = allCauses().map((cause) => [cause, isRetryable(cause) ? 'yes' : 'no']);
  assert.deepEqual(shown.sort(), expected.sort());
});

test('S1: the page explains every state', () => {
  const shown = rowsBelow('States').map(([, state]) => state);
  assert.deepEqual(shown.sort(), Object.keys(TRANSITIONS).sort());
});

test('M4: the page warns of what a stop cuts, who may have seen it, and what to set', () => {
  const page = readFileSync(PAGE, 'utf8');
  const topics = [
    /\*\*Transactions are cut at a stop\.\*\*/,
    /`isolation\.level=read_uncommitted` may have seen/,
    /\*\*Exactly-once does not span clusters\.\*\*/,
    /`auto\.offset\.reset`: use `latest`/,
  ];
  for (const topic of topics) assert.match(page, topic);
});
