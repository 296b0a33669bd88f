/**
 * `npm run sim`: runs scenarios under seeds and says what happened, one line a run.
 *
 *     npm run sim -- --seed 42 [--seeds 10] [--scenario failover] [--list]
 *
 * Without `--scenario` every scenario runs. A failure prints the broken claim, the last trace rows
 * and the command that replays it; the exit code is then 1, and 2 for a wrong option.
 */
import { parseArgs } from 'node:util';
import type { RunSummary } from './mirror-world.ts';
import { runScenario, SCENARIOS, type Scenario } from './scenarios.ts';
import { SimulationFailure } from './simulator.ts';

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function wrong(text: string): never {
  process.stderr.write(`${text}\n`);
  process.exit(2);
}

function integer(text: string, option: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text);
  return wrong(`--${option} ${text}: a whole number is expected.`);
}

function chosen(name: string | undefined): readonly Scenario[] {
  if (name === undefined) return SCENARIOS;
  const found = SCENARIOS.filter((scenario) => scenario.name === name);
  if (found.length > 0) return found;
  return wrong(`--scenario ${name}: there are ${SCENARIOS.map((each) => each.name).join(', ')}.`);
}

function line(name: string, seed: number, run: RunSummary): string {
  const seconds = (run.virtualMs / 1000).toFixed(1);
  return (
    `ok  ${name.padEnd(18)} seed ${String(seed).padEnd(6)} ${seconds.padStart(7)} s, ` +
    `${run.events} events, ${run.faults} faults, ${run.lives} starts, ` +
    `${run.acknowledged} batches acknowledged, ${run.mirrored} mirrored, ` +
    `${run.local} written after a failover, ${run.refused} refused; ${run.traceHash}`
  );
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' },
      seeds: { type: 'string', default: '1' },
      scenario: { type: 'string' },
      list: { type: 'boolean', default: false },
    },
  });
  if (values.list) {
    for (const { name, claim } of SCENARIOS) say(`${name.padEnd(18)} ${claim}`);
    return;
  }
  const first = integer(values.seed, 'seed');
  const count = integer(values.seeds, 'seeds');
  const scenarios = chosen(values.scenario);
  for (let seed = first; seed < first + count; seed++) {
    for (const scenario of scenarios) {
      try {
        say(line(scenario.name, seed, await runScenario(scenario, seed)));
      } catch (error) {
        if (!(error instanceof SimulationFailure)) throw error;
        say(`FAILED  ${scenario.name}: ${scenario.claim}`);
        say(error.message);
        say(`replay: npm run sim -- --scenario ${scenario.name} --seed ${seed}`);
        process.exitCode = 1;
        return;
      }
    }
  }
}

await main();
