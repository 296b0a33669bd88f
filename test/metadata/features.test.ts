/**
 * Which levels of a cluster keep a broker out, as it is told to people.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { featureProblem, guestSupportedFeatures } from '../../src/metadata/features.ts';

const problem = (levels: Readonly<Record<string, number>>): string | undefined =>
  featureProblem(new Map(Object.entries(levels)), guestSupportedFeatures);

test('G3: levels within the ranges of a guest, and features that are off, keep nobody out', () => {
  assert.equal(problem({ 'metadata.version': 7, 'share.version': 2 }), undefined);
  assert.equal(problem({ 'metadata.version': 33, 'future.version': 0 }), undefined);
  assert.equal(problem({}), undefined);
});

test('G3: a level that is too new or too old is named, with the range and what to do', () => {
  assert.equal(
    problem({ 'share.version': 1, 'metadata.version': 34 }),
    'metadata.version of the cluster is 34, and this twinlog supports 7 to 33: use a twinlog ' +
      'that supports this level (twinlog guest check looks at every feature).',
  );
  assert.match(problem({ 'metadata.version': 6 }) ?? '', /is 6, and this twinlog supports 7 to 33/);
  assert.match(problem({ 'future.version': 1 }) ?? '', /^future\.version of the cluster is 1, and/);
});
