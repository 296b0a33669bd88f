/**
 * `npm run bench -- NAME [options]`: runs one benchmark. `npm run bench -- NAME --help` lists its
 * options. Each benchmark is a file of its own; bench/README.md holds their last results.
 */
import { guestBenchmark } from './guest.ts';
import { logBenchmark } from './log.ts';
import { mirrorBenchmark } from './mirror.ts';

const BENCHMARKS: Readonly<Record<string, (args: string[]) => Promise<void>>> = {
  guest: guestBenchmark,
  log: logBenchmark,
  mirror: mirrorBenchmark,
};

const [name = '', ...args] = process.argv.slice(2);
const benchmark = BENCHMARKS[name];
if (benchmark === undefined) {
  process.stderr.write(`usage: npm run bench -- ${Object.keys(BENCHMARKS).join('|')} [options]\n`);
  process.exit(2);
}
await benchmark(args);
// Idle client sockets must not keep it alive; children end with it.
process.exit(0);
