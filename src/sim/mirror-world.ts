/**
 * Two clusters, clients and an operator in one simulated world: what every scenario starts from.
 *
 * Both clusters run in this process, under one seed; the settings that matter for batching and
 * rolling are drawn from it. Invariants are checked after every event from the start on. `play`
 * runs the clock until an operator's script is over; what a script or a client throws ends the run
 * with seed and trace.
 */
import type { SeededRandom } from '../base/random.ts';
import type { Runtime } from '../io/runtime.ts';
import { buildTransactionMarker } from '../protocol/control-record.ts';
import { MirrorDirection } from './mirror-direction.ts';
import type { MirrorInvariants, WatchedTopic } from './mirror-invariants.ts';
import { MirrorOperator } from './mirror-operator.ts';
import type { Prober } from './prober.ts';
import { SimClient } from './sim-client.ts';
import { SimCluster } from './sim-cluster.ts';
import { toyCompression } from './sim-compression.ts';
import type { PowerLoss } from './sim-file.ts';
import { WAN_PROFILE } from './sim-links.ts';
import { SimWorld } from './sim-runtime.ts';
import { SimulationFailure } from './simulator.ts';

/** The mirrored topics of every scenario. */
export const TOPICS: readonly WatchedTopic[] = [
  { name: 'orders', partitions: 2 },
  { name: 'payments', partitions: 1 },
];
/** The mirror's name. */
export const MIRROR = 'primary';
/** Virtual time within which everything must have settled after healing, in ms. */
export const LIVENESS_MS = 900_000;
/** Virtual time that an operator's script may take, in ms. */
const SCRIPT_MS = 1_800_000;
const START_MS = 60_000;

function settingsOf(random: SeededRandom): Map<string, string> {
  const pick = (...values: number[]): string => String(values[random.below(values.length)]);
  return new Map([
    ['auto.create.topics.enable', 'false'],
    ['mirror.topic.num.partitions', pick(1, 3)],
    ['mirror.fetch.max.bytes', pick(300, 1_500, 20_000, 8_388_608)],
    ['mirror.fetch.response.max.bytes', pick(2_000, 33_554_432)],
    ['log.segment.bytes', pick(20_000, 60_000, 1_073_741_824)],
    ['log.index.interval.bytes', pick(200, 4_096)],
  ]);
}

/** What happened in a run, for its report. */
export interface RunSummary {
  readonly virtualMs: number;
  readonly events: number;
  readonly traceHash: string;
  readonly acknowledged: number;
  readonly mirrored: number;
  readonly local: number;
  readonly refused: number;
  /** Process starts of source and destination. */
  readonly lives: string;
  readonly moves: string;
  readonly faults: number;
}

/** See the file header. */
export class MirrorWorld {
  readonly world: SimWorld;
  readonly random: SeededRandom;
  readonly #clients: Runtime;
  readonly #directions: MirrorDirection[] = [];
  readonly #moves = new Map<string, number>();
  readonly #moveListeners: ((from: string, to: string) => void)[] = [];
  #direction: MirrorDirection;
  #sourceLosses = 0;
  #failure: { error: unknown } | undefined;

  constructor(seed: number) {
    this.world = new SimWorld(seed, toyCompression);
    const { simulator, network } = this.world;
    this.random = simulator.fork('scenario');
    const settings = simulator.fork('settings');
    const source = new SimCluster(this.world, 'source', settingsOf(settings));
    const destination = new SimCluster(this.world, 'destination', settingsOf(settings));
    if (settings.chance(0.5)) network.links.set('source', 'destination', WAN_PROFILE);
    this.#clients = this.world.start('clients');
    this.#direction = this.#newDirection(source, destination, MIRROR);
    simulator.addInvariant('mirror', () => this.invariants.check());
  }

  /** Where producers write now. */
  get source(): SimCluster {
    return this.#direction.source;
  }

  /** Where the mirror is now. */
  get destination(): SimCluster {
    return this.#direction.destination;
  }

  get operator(): MirrorOperator {
    return this.#direction.operator;
  }

  get invariants(): MirrorInvariants {
    return this.#direction.invariants;
  }

  get prober(): Prober {
    return this.#direction.prober;
  }

  get simulator() {
    return this.world.simulator;
  }

  get summary(): Omit<RunSummary, 'faults'> {
    const { nowMs, eventCount, traceHash } = this.simulator;
    const moves = [...this.#moves].map(([move, count]) => `${move} ${count}`);
    const sum = (of: (direction: MirrorDirection) => number): number =>
      this.#directions.reduce((total, direction) => total + of(direction), 0);
    return {
      virtualMs: Math.round(nowMs),
      events: eventCount,
      traceHash,
      acknowledged: sum(({ workload }) => workload.acknowledged),
      mirrored: sum(({ invariants }) => invariants.seen.mirrored),
      local: sum(({ invariants }) => invariants.seen.local),
      refused: sum(({ prober }) => prober.answers.refused),
      lives: `${this.source.lives}+${this.destination.lives}`,
      moves: moves.join(', '),
    };
  }

  /** Called with each durable change of a mirror state. */
  onMove(listener: (from: string, to: string) => void): void {
    this.#moveListeners.push(listener);
  }

  /** Runs a script; whatever it throws becomes a SimulationFailure with seed and trace. */
  async judged(script: () => Promise<void>): Promise<void> {
    try {
      await script();
    } catch (error) {
      if (error instanceof SimulationFailure) throw error;
      throw this.simulator.failure(error);
    }
  }

  /** Both clusters up, topics at the source, producers and prober at work. */
  async begin(): Promise<void> {
    const { source, destination, simulator } = this;
    source.start();
    destination.start();
    const up = (): boolean => source.broker !== undefined && destination.broker !== undefined;
    await simulator.runUntil(up, START_MS, 'both clusters up');
    for (const { name, partitions } of TOPICS) {
      const admin = new MirrorOperator(new SimClient(this.#clients, source, 'admin'), '');
      await this.play(admin.createTopic(name, partitions, []));
    }
    this.#work();
  }

  /**
   * The clusters change roles: what was mirrored to is written to from now on, under the name of
   * another mirror. The topics must be STOPPED.
   */
  async turn(mirror: string): Promise<void> {
    await this.quiesce();
    this.prober.stop();
    const { source, destination } = this;
    this.#direction = this.#newDirection(destination, source, mirror);
    this.#work();
  }

  #work(): void {
    this.#direction.workload.start();
    this.#watch(this.#direction.prober.run());
  }

  #newDirection(source: SimCluster, destination: SimCluster, mirror: string): MirrorDirection {
    const direction = new MirrorDirection({
      simulator: this.simulator,
      clients: this.#clients,
      source,
      destination,
      mirror,
      topics: TOPICS,
      mayForget: () => this.#sourceLosses > 0,
      onMove: (from, to) => this.#moved(from, to),
    });
    this.#directions.push(direction);
    return direction;
  }

  /** Runs the clock until the script is over. */
  async play<T>(script: Promise<T>): Promise<T> {
    let over = false;
    const end = (): void => {
      over = true;
    };
    this.#watch(script.then(end));
    await this.simulator.runUntil(() => this.#check() && over, SCRIPT_MS, "the operator's script");
    return script;
  }

  /** Runs the clock for a while. */
  async run(durationMs: number): Promise<void> {
    await this.simulator.runFor(durationMs);
    this.#check();
  }

  /** Everything is whole again; brokers that are down start. */
  heal(): void {
    this.world.network.healAll();
    this.destination.disk.setCapacity(Number.POSITIVE_INFINITY);
    // A failure that was arranged for a call which has not come yet would come after the healing.
    this.destination.disk.clearFaults();
    this.source.start();
    this.destination.start();
  }

  /** No more writes at the source; every transaction ends. */
  async quiesce(): Promise<void> {
    this.#direction.workload.stop();
    await this.simulator.runUntil(
      () => this.#check() && this.#direction.workload.isOver,
      LIVENESS_MS,
      'the end of the workload',
    );
    this.#endForgotten();
  }

  /** A power loss can take a marker whose transaction is over: an operator aborts what hangs. */
  #endForgotten(): void {
    if (this.#sourceLosses === 0) return;
    for (const partition of this.source.broker?.services.replicas.partitions() ?? []) {
      for (const { producerId } of partition.log.openTransactions()) {
        const marker = buildTransactionMarker({
          producerId,
          producerEpoch: 0,
          commit: false,
          coordinatorEpoch: 0,
          timestamp: 0,
        });
        partition.append('marker', marker, -1);
      }
    }
  }

  /** Liveness: the topics come to rest in a state within the virtual-time bound. */
  async settle(state: 'MIRRORING' | 'STOPPED', topics: readonly string[]): Promise<void> {
    const wanted = (): boolean =>
      this.#check() &&
      topics.every((topic) => this.invariants.unsettled(topic, state) === undefined);
    try {
      await this.simulator.runUntil(wanted, LIVENESS_MS, `liveness: every partition ${state}`);
    } catch (error) {
      const reasons = topics.map((topic) => this.invariants.unsettled(topic, state) ?? 'fine');
      const now = this.invariants.describe();
      (error as Error).message = `${reasons.join('; ')}\n${now}\n${(error as Error).message}`;
      throw error;
    }
    if (state === 'MIRRORING') for (const topic of topics) this.invariants.checkIdentical(topic);
  }

  /** Liveness while producers go on: every partition in MIRRORING, or waiting for an operator. */
  async settled(topics: readonly string[]): Promise<void> {
    const done = (): boolean =>
      this.#check() && topics.every((topic) => this.invariants.isUnderWay(topic));
    await this.simulator.runUntil(done, LIVENESS_MS, 'liveness: every partition under way');
  }

  losePower(cluster: SimCluster, loss: PowerLoss): void {
    if (cluster === this.source) {
      this.#sourceLosses++;
      this.invariants.sourceLostPower();
    } else this.invariants.destinationLostPower();
    cluster.losePower(loss);
  }

  #watch(promise: Promise<unknown>): void {
    promise.catch((error: unknown) => {
      this.#failure ??= { error };
    });
  }

  #check(): true {
    if (this.#failure !== undefined) throw this.#failure.error;
    return true;
  }

  #moved(from: string, to: string): void {
    const move = `${from}→${to}`;
    this.#moves.set(move, (this.#moves.get(move) ?? 0) + 1);
    for (const listener of this.#moveListeners) listener(from, to);
  }
}
