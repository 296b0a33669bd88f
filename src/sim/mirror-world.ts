/**
 * Two clusters, clients and an operator in one simulated world: what every scenario starts from.
 *
 * Both clusters run in this process, under one seed; the settings that matter for batching and
 * rolling are drawn from it. Invariants are checked after every event from the start on. `play`
 * runs the clock until an operator's script is over; what a script or a client throws ends the run
 * with seed and trace.
 */
import { assert } from '../base/assert.ts';
import type { SeededRandom } from '../base/random.ts';
import { buildTransactionMarker } from '../protocol/control-record.ts';
import { MirrorInvariants, type WatchedTopic } from './mirror-invariants.ts';
import { MirrorOperator } from './mirror-operator.ts';
import { isProbe, Prober } from './prober.ts';
import { SimClient } from './sim-client.ts';
import { SimCluster } from './sim-cluster.ts';
import { toyCompression } from './sim-compression.ts';
import type { PowerLoss } from './sim-file.ts';
import { WAN_PROFILE } from './sim-links.ts';
import { SimWorld } from './sim-runtime.ts';
import { SimulationFailure } from './simulator.ts';
import { Workload } from './workload.ts';

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
  readonly source: SimCluster;
  readonly destination: SimCluster;
  readonly operator: MirrorOperator;
  readonly sourceOperator: MirrorOperator;
  readonly workload: Workload;
  readonly prober: Prober;
  readonly invariants: MirrorInvariants;
  readonly random: SeededRandom;
  readonly #moves = new Map<string, number>();
  readonly #moveListeners: ((from: string, to: string) => void)[] = [];
  #sourceLosses = 0;
  #failure: { error: unknown } | undefined;

  constructor(seed: number) {
    this.world = new SimWorld(seed, toyCompression);
    const { simulator } = this.world;
    this.random = simulator.fork('scenario');
    const settings = simulator.fork('settings');
    this.source = new SimCluster(this.world, 'source', settingsOf(settings));
    this.destination = new SimCluster(this.world, 'destination', settingsOf(settings));
    if (settings.chance(0.5)) {
      this.world.network.links.set('source', 'destination', WAN_PROFILE);
    }
    const clients = this.world.start('clients');
    const there = new SimClient(clients, this.source, 'producer');
    const here = new SimClient(clients, this.destination, 'prober');
    this.operator = new MirrorOperator(
      new SimClient(clients, this.destination, 'operator'),
      MIRROR,
    );
    this.sourceOperator = new MirrorOperator(new SimClient(clients, this.source, 'admin'), MIRROR);
    this.prober = new Prober(here, simulator.fork('prober'), TOPICS);
    this.workload = new Workload({
      client: there,
      random: simulator.fork('workload'),
      topics: TOPICS,
      onAcknowledged: (...write) => this.#acknowledged(...write),
      mayForget: () => this.#sourceLosses > 0,
    });
    this.invariants = new MirrorInvariants({
      source: this.source,
      destination: this.destination,
      mirror: MIRROR,
      topics: TOPICS,
      isLocal: isProbe,
      onMove: (from, to) => this.#moved(from, to),
    });
    simulator.addInvariant('mirror', () => this.invariants.check());
  }

  get simulator() {
    return this.world.simulator;
  }

  get summary(): Omit<RunSummary, 'faults'> {
    const { nowMs, eventCount, traceHash } = this.simulator;
    const moves = [...this.#moves].map(([move, count]) => `${move} ${count}`);
    return {
      virtualMs: Math.round(nowMs),
      events: eventCount,
      traceHash,
      acknowledged: this.workload.acknowledged,
      ...this.invariants.seen,
      refused: this.prober.answers.refused,
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
      await this.play(this.sourceOperator.createTopic(name, partitions, []));
    }
    this.workload.start();
    this.#watch(this.prober.run());
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
    this.source.start();
    this.destination.start();
  }

  /** No more writes at the source; every transaction ends. */
  async quiesce(): Promise<void> {
    this.workload.stop();
    await this.simulator.runUntil(
      () => this.#check() && this.workload.isOver,
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

  #acknowledged(topic: string, index: number, baseOffset: number, sent: Uint8Array): void {
    const seen = this.invariants.sourceBatch(topic, index, baseOffset);
    if (this.#sourceLosses > 0) return;
    assert(
      seen !== undefined,
      `${topic}-${index}: offset ${baseOffset} was acknowledged, is not there`,
    );
    const payload = Buffer.from(sent.subarray(61));
    const same = Buffer.compare(payload, Buffer.from(seen.bytes.subarray(61))) === 0;
    assert(
      same,
      `${topic}-${index}: offset ${baseOffset} was acknowledged and holds something else`,
    );
  }

  #moved(from: string, to: string): void {
    const move = `${from}→${to}`;
    this.#moves.set(move, (this.#moves.get(move) ?? 0) + 1);
    for (const listener of this.#moveListeners) listener(from, to);
  }
}
