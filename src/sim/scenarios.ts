/**
 * The scenarios: what operators do while faults happen, and what must be true in the end.
 *
 * Each is a script over a MirrorWorld whose invariants hold throughout; it ends healed, at rest,
 * and judged. A scenario has a fixed script and random moments; only its faults say what may be
 * lost. `runScenario` is all that tests and the command use.
 */
import { assert } from '../base/assert.ts';
import { LIVENESS_MS, MirrorWorld, type RunSummary, TOPICS } from './mirror-world.ts';
import { type FaultKind, Nemesis } from './nemesis.ts';

const NAMES = TOPICS.map(({ name }) => name);

interface Stage {
  readonly world: MirrorWorld;
  readonly nemesis: Nemesis;
}

/** A scenario. */
export interface Scenario {
  readonly name: string;
  /** One sentence for people. */
  readonly claim: string;
  readonly faults: readonly FaultKind[];
  script(stage: Stage): Promise<void>;
}

/** Everything but loss of what was written. */
const ALL_BUT_LOSS: readonly FaultKind[] = [
  'killSource',
  'killDestination',
  'killAtTransition',
  'crashInside',
  'crashInside',
  'stopDestination',
  'cut',
  'halfCut',
  'reset',
  'link',
  'clock',
];

async function mirrorEverything({ world }: Stage): Promise<void> {
  await world.play(world.operator.createMirror(world.source));
  for (const name of NAMES) {
    await world.run(world.random.below(1_500));
    await world.play(world.operator.add(name));
  }
}

/** Healed, the source quiet, all of it here: byte for byte. */
async function endMirrored({ world, nemesis }: Stage, names: readonly string[]): Promise<void> {
  nemesis.stop();
  world.heal();
  await world.quiesce();
  await world.settle('MIRRORING', names);
  for (const name of names) await checkLag(world, name);
}

/** A4: with every transaction ended, DescribeMirrors says lag 0. */
async function checkLag(world: MirrorWorld, topic: string): Promise<void> {
  const isCurrent = async (): Promise<boolean> => {
    const partitions = await world.operator.describe(topic);
    return (
      partitions?.every(({ lag, state, cause }) =>
        state === 'MIRRORING' ? lag === 0 : cause !== '',
      ) === true
    );
  };
  const deadlineMs = world.simulator.nowMs + LIVENESS_MS;
  while (!(await world.play(isCurrent()))) {
    assert(world.simulator.nowMs < deadlineMs, `A4: the lag of ${topic} does not become 0`);
    await world.run(100);
  }
}

const steady: Scenario = {
  name: 'steady',
  claim: 'without faults the destination becomes the source, byte for byte',
  faults: [],
  async script(stage) {
    await stage.world.run(stage.world.random.below(3_000));
    await mirrorEverything(stage);
    await stage.world.run(4_000);
    await endMirrored(stage, NAMES);
  },
};

const faults: Scenario = {
  name: 'faults',
  claim: 'crashes, cuts and clock jumps change nothing of what arrives in the end',
  faults: ALL_BUT_LOSS,
  async script(stage) {
    const { world, nemesis } = stage;
    await world.run(world.random.below(3_000));
    nemesis.start();
    await mirrorEverything(stage);
    await world.run(12_000);
    await endMirrored(stage, NAMES);
  },
};

/** Removes a topic at a random moment, leaves it writable for a while. */
async function failOver({ world, nemesis }: Stage, topic: string): Promise<void> {
  await world.run(world.random.below(4_000));
  await world.play(world.operator.remove(topic));
  await world.run(world.random.below(3_000));
  nemesis.stop();
  world.heal();
  await world.settle('STOPPED', [topic]);
  nemesis.start();
  await world.run(world.random.below(2_000));
}

const failover: Scenario = {
  name: 'failover',
  claim: 'a removed topic stops, stable at its LMO, and then takes and keeps writes',
  faults: ALL_BUT_LOSS,
  async script(stage) {
    const { world, nemesis } = stage;
    await world.run(world.random.below(2_000));
    nemesis.start();
    await mirrorEverything(stage);
    await failOver(stage, 'orders');
    await world.run(3_000);
    await endMirrored(stage, ['payments']);
    await world.settle('STOPPED', ['orders']);
    const { accepted } = world.prober.answers;
    await world.simulator.runUntil(
      () => world.prober.answers.accepted > accepted,
      LIVENESS_MS,
      'a write to the stopped topic',
    );
  },
};

const failoverPower: Scenario = {
  name: 'failover-power',
  claim: 'a power loss takes nothing of what a stopped topic says it has mirrored',
  faults: ['powerDestination', 'powerDestination', 'flush', 'killDestination', 'cut'],
  async script(stage) {
    const { world, nemesis } = stage;
    await mirrorEverything(stage);
    await world.run(1_000 + world.random.below(3_000));
    nemesis.start();
    await failOver(stage, 'orders');
    await world.run(3_000);
    await endMirrored(stage, ['payments']);
    await world.settle('STOPPED', ['orders']);
  },
};

const readd: Scenario = {
  name: 're-add',
  claim: 'a topic that was stopped and written to is mirrored again from its LMO on',
  faults: ALL_BUT_LOSS,
  async script(stage) {
    const { world, nemesis } = stage;
    nemesis.start();
    await mirrorEverything(stage);
    const rounds = 1 + world.random.below(3);
    for (let round = 0; round < rounds; round++) {
      const topic = NAMES[world.random.below(NAMES.length)]!;
      await failOver(stage, topic);
      await world.play(world.operator.add(topic));
    }
    await world.run(2_000);
    await endMirrored(stage, NAMES);
  },
};

const sourceDown: Scenario = {
  name: 'source-lost',
  claim: 'a failover works while the source is gone for good (D3)',
  faults: ['killDestination', 'killAtTransition', 'cut', 'reset', 'clock'],
  async script(stage) {
    const { world, nemesis } = stage;
    await mirrorEverything(stage);
    nemesis.start();
    await world.run(world.random.below(3_000));
    world.source.kill();
    await world.run(world.random.below(60_000));
    for (const name of NAMES) await world.play(world.operator.remove(name));
    nemesis.stop();
    world.world.network.healAll();
    world.destination.start();
    await world.simulator.runUntil(
      () => everyIs(world, 'STOPPED'),
      LIVENESS_MS,
      'every partition STOPPED without a source',
    );
    world.source.start();
    await world.run(2_000);
  },
};

function everyIs(world: MirrorWorld, state: 'MIRRORING' | 'STOPPED'): boolean {
  return TOPICS.every(({ name, partitions }) => {
    const indexes = Array.from({ length: partitions }, (_, index) => index);
    return indexes.every((index) => world.invariants.stateAt(`${name}-${index}`) === state);
  });
}

const diskFull: Scenario = {
  name: 'disk-full',
  claim: 'a full or failing disk at the destination stops it, and costs nothing',
  faults: ['diskFull', 'diskError', 'killAtTransition', 'cut'],
  async script(stage) {
    const { world, nemesis } = stage;
    await mirrorEverything(stage);
    await world.run(1_000);
    nemesis.start();
    await world.run(10_000);
    nemesis.stop();
    world.heal();
    world.destination.kill();
    world.destination.start();
    await endMirrored(stage, NAMES);
  },
};

const sourcePower: Scenario = {
  name: 'source-power',
  claim: 'what a power loss takes from the source is cut here, kept, and mirrored anew (F10)',
  faults: ['powerSource', 'flush', 'flush', 'killSource', 'killDestination', 'cut', 'reset'],
  async script(stage) {
    const { world, nemesis } = stage;
    await mirrorEverything(stage);
    await world.run(1_000);
    nemesis.start();
    await world.run(12_000);
    await endMirrored(stage, NAMES);
  },
};

const destinationPower: Scenario = {
  name: 'destination-power',
  claim: 'what a power loss takes from the destination is mirrored again; no state is lost',
  faults: ['powerDestination', 'flush', 'flush', 'killSource', 'killDestination', 'cut'],
  async script(stage) {
    const { world, nemesis } = stage;
    await mirrorEverything(stage);
    await world.run(1_000);
    nemesis.start();
    await world.run(12_000);
    await endMirrored(stage, NAMES);
    // Rows outlive the power (S2): none of them has forgotten what its log holds.
    assert(everyIs(world, 'MIRRORING'), 'S2: a partition waits for an operator');
  },
};

/** Every topic stopped here, then mirrored back to where it came from. */
async function turnAround(stage: Stage, mirror: string): Promise<void> {
  const { world, nemesis } = stage;
  for (const name of NAMES) await world.play(world.operator.remove(name));
  await world.run(world.random.below(2_000));
  nemesis.stop();
  world.heal();
  await world.settle('STOPPED', NAMES);
  const marks = world.invariants.lastMirroredOffsets();
  await world.turn(mirror);
  nemesis.start();
  await world.run(world.random.below(1_500));
  await mirrorEverything(stage);
  await world.run(3_000);
  nemesis.stop();
  world.heal();
  await world.settled(NAMES);
  // Only where nothing had been mirrored may a log wait for an operator (T3).
  for (const [at, lastMirroredOffset] of marks) {
    const stuck = world.invariants.stateAt(at) !== 'MIRRORING' && lastMirroredOffset > 0;
    assert(!stuck, `B1: ${at} is not mirrored back, LMO ${lastMirroredOffset}`);
  }
  nemesis.start();
}

const failback: Scenario = {
  name: 'failback',
  claim: 'after a failover the old source drops its tail and mirrors back, and then forth again',
  faults: ALL_BUT_LOSS,
  async script(stage) {
    const { world, nemesis } = stage;
    await mirrorEverything(stage);
    nemesis.start();
    await world.run(3_000 + world.random.below(4_000));
    await turnAround(stage, 'back');
    if (world.random.chance(0.5)) await turnAround(stage, 'forth');
    await endMirrored(stage, NAMES);
  },
};

/** Every scenario, by its name. */
export const SCENARIOS: readonly Scenario[] = [
  steady,
  faults,
  failover,
  readd,
  sourceDown,
  diskFull,
  sourcePower,
  destinationPower,
  failoverPower,
  failback,
];

/** Runs one scenario under one seed; rejects with a SimulationFailure. */
export async function runScenario(scenario: Scenario, seed: number): Promise<RunSummary> {
  const world = new MirrorWorld(seed);
  const nemesis = new Nemesis(world, scenario.faults);
  await world.judged(async () => {
    await world.begin();
    await scenario.script({ world, nemesis });
  });
  return { ...world.summary, faults: nemesis.faults };
}
