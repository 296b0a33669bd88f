/**
 * The mirror states that docs/ARCHITECTURE.md shows are those of the table in the code.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { PAGE, renderStates, shownStates } from './state-diagram.ts';

test('S1: the states in ARCHITECTURE.md are rendered from the state table', () => {
  assert.equal(shownStates(readFileSync(PAGE, 'utf8')), renderStates());
});
