/**
 * How property tests are run.
 *
 * The short tier uses one seed, so that it says the same of the same commit on every machine. With
 * TWINLOG_TEST=full there are many more runs, under a new seed each time: a failure prints seed and
 * path, and its shrunk counterexample belongs into the test's examples.
 */

const SEED = 20261130;
const isFull = process.env.TWINLOG_TEST === 'full';

/** Parameters of fast-check: so many runs, `times` as many in the full tier. */
export function propertyRuns(
  count: number,
  times = 10,
): { readonly numRuns: number; readonly seed?: number } {
  return isFull ? { numRuns: count * times } : { numRuns: count, seed: SEED };
}
