/**
 * Faults at seeded moments, from a list that the scenario allows.
 *
 * Works through the simulator's own events, never from inside a product's call. Besides the random
 * ones there is the well-aimed one: a broker is killed right after a mirror state became durable,
 * which is where a restart must resume (S2, S3). What it does is undone by `MirrorWorld.heal`.
 */
import type { SeededRandom } from '../base/random.ts';
import type { SimEvent } from './event-queue.ts';
import type { MirrorWorld } from './mirror-world.ts';
import type { SimCluster } from './sim-cluster.ts';
import { LAN_PROFILE, WAN_PROFILE } from './sim-links.ts';

/** What can go wrong. */
export type FaultKind =
  | 'killSource'
  | 'killDestination'
  | 'killAtTransition'
  | 'crashInside'
  | 'stopDestination'
  | 'cut'
  | 'halfCut'
  | 'reset'
  | 'link'
  | 'clock'
  | 'diskFull'
  | 'diskError'
  | 'powerSource'
  | 'powerDestination'
  /** No fault: logs are made durable, so that a power loss takes a part only. */
  | 'flush';

/** Those that strike at random moments. */
type RandomFault = Exclude<FaultKind, 'killAtTransition'>;

/** Time between two faults, in ms: from 0 to this. */
const MAX_PAUSE_MS = 1_500;
/** How long a broker stays down, or a network cut, in ms: at most. */
const MAX_OUTAGE_MS = 4_000;
/** A wall clock is never further off than this, in ms: less than what topics allow. */
const MAX_CLOCK_OFFSET_MS = 1_000_000;
/** Delays of a kill after a state became durable, in ms. */
const TRANSITION_KILL_MS = [0, 0, 0.01, 1, 5, 20];
/** A crash inside an event comes after at most so many more changes of the disk. */
const MAX_CHANGES_TO_CRASH = 60;
/** Chance that a new state is answered with a kill. */
const TRANSITION_KILL_CHANCE = 0.25;

/** See the file header. */
export class Nemesis {
  readonly #world: MirrorWorld;
  readonly #random: SeededRandom;
  readonly #kinds: readonly RandomFault[];
  readonly #clockOffsets = new Map<string, number>();
  #active = false;
  #next: SimEvent | undefined;
  #faults = 0;

  constructor(world: MirrorWorld, kinds: readonly FaultKind[]) {
    this.#world = world;
    this.#random = world.simulator.fork('nemesis');
    this.#kinds = kinds.filter((kind) => kind !== 'killAtTransition');
    if (kinds.includes('killAtTransition')) world.onMove(() => this.#stateMoved());
  }

  /** Faults so far. */
  get faults(): number {
    return this.#faults;
  }

  start(): void {
    this.stop();
    this.#active = true;
    this.#schedule();
  }

  /** No new faults; what is broken stays so until it is healed. */
  stop(): void {
    this.#active = false;
    if (this.#next !== undefined) this.#next.cancelled = true;
    this.#world.source.disk.cancelCrash();
    this.#world.destination.disk.cancelCrash();
  }

  #schedule(): void {
    if (this.#kinds.length === 0) return;
    const pauseMs = this.#random.fraction() * MAX_PAUSE_MS;
    this.#next = this.#world.simulator.schedule(pauseMs, 'nemesis', () => {
      this.#faults++;
      this.#strikes()[this.#kinds[this.#random.below(this.#kinds.length)]!]();
      this.#schedule();
    });
  }

  #later(what: string, undo: () => void): void {
    this.#world.simulator.schedule(this.#random.fraction() * MAX_OUTAGE_MS, what, undo);
  }

  #stateMoved(): void {
    if (!this.#active || !this.#random.chance(TRANSITION_KILL_CHANCE)) return;
    this.#faults++;
    const delayMs = TRANSITION_KILL_MS[this.#random.below(TRANSITION_KILL_MS.length)]!;
    this.#world.simulator.schedule(delayMs, 'nemesis at a transition', () => {
      if (this.#active) this.#kill(this.#world.destination);
    });
  }

  #kill(cluster: SimCluster): void {
    cluster.kill();
    this.#later(`start ${cluster.machine}`, () => cluster.start());
  }

  #strikes(): Readonly<Record<RandomFault, () => void>> {
    const { source, destination, world } = this.#world;
    const { network } = world;
    return {
      killSource: () => this.#kill(source),
      killDestination: () => this.#kill(destination),
      crashInside: () => this.#crashInside(this.#random.chance(0.7) ? destination : source),
      stopDestination: () => this.#stopInOrder(),
      cut: () => this.#cut('both'),
      halfCut: () => this.#cut('a-to-b'),
      reset: () => network.resetConnections(source.machine, destination.machine),
      link: () => this.#changeLink(),
      clock: () => this.#jump(this.#random.chance(0.5) ? source : destination),
      diskFull: () => this.#fillDisk(),
      diskError: () => this.#failDisk(),
      powerSource: () => this.#losePower(source),
      powerDestination: () => this.#losePower(destination),
      flush: () => this.#flush(this.#random.chance(0.5) ? source : destination),
    };
  }

  #cut(directions: 'both' | 'a-to-b'): void {
    const { source, destination, world } = this.#world;
    const ends = [source.machine, destination.machine] as const;
    const [from, to] = this.#random.chance(0.5) ? ends : ([ends[1], ends[0]] as const);
    world.network.cut(from, to, directions);
    this.#later('heal', () => world.network.heal(from, to));
  }

  #changeLink(): void {
    const { source, destination, world } = this.#world;
    const profile = this.#random.chance(0.5) ? WAN_PROFILE : LAN_PROFILE;
    const resetChance = this.#random.chance(0.3) ? 0.01 : 0;
    world.network.links.set(source.machine, destination.machine, { ...profile, resetChance });
  }

  /** The process ends in the middle of an event, between two changes of its disk. */
  #crashInside(cluster: SimCluster): void {
    cluster.disk.crashAfter(this.#random.below(MAX_CHANGES_TO_CRASH), () => {
      cluster.kill();
      this.#later(`start ${cluster.machine}`, () => cluster.start());
    });
  }

  #stopInOrder(): void {
    const { destination } = this.#world;
    if (destination.broker === undefined) return;
    const { lives } = destination;
    // A kill may come in between: then it never ends, and nobody waits for it.
    void destination.stop().then(() => {
      this.#later('start destination', () => {
        if (destination.lives === lives) destination.start();
      });
    });
  }

  #jump({ machine }: SimCluster): void {
    const wantedMs = Math.floor((this.#random.fraction() * 2 - 1) * MAX_CLOCK_OFFSET_MS);
    const offsetMs = this.#clockOffsets.get(machine) ?? 0;
    this.#world.world.jumpWallClock(machine, wantedMs - offsetMs);
    this.#clockOffsets.set(machine, wantedMs);
  }

  /** The next few kilobytes at the destination are the last; space returns, and with it a start. */
  #fillDisk(): void {
    const { destination } = this.#world;
    const { disk } = destination;
    disk.setCapacity(disk.usedBytes() + this.#random.below(6_000));
    this.#later('space at destination', () => {
      disk.setCapacity(Number.POSITIVE_INFINITY);
      destination.kill();
      destination.start();
    });
  }

  /** One of the next disk calls of the destination fails; an operator starts the broker again. */
  #failDisk(): void {
    const { destination } = this.#world;
    const operation = this.#random.chance(0.5) ? 'write' : 'sync';
    const path = this.#random.chance(0.3) ? /__/ : /(orders|payments)/;
    destination.disk.failNext(operation, path, 'EIO', 1);
    this.#later('start destination', () => {
      destination.kill();
      destination.start();
    });
  }

  #flush(cluster: SimCluster): void {
    for (const { log } of cluster.broker?.services.replicas.partitions() ?? []) {
      if (!log.isOffline && this.#random.chance(0.7)) void log.flush();
    }
  }

  #losePower(cluster: SimCluster): void {
    if (cluster.runtime === undefined) return;
    const kinds = ['lose', 'prefix', 'subset'] as const;
    const unsynced = kinds[this.#random.below(kinds.length)]!;
    this.#world.losePower(cluster, { unsynced, tornTail: this.#random.chance(0.5) });
    this.#later(`start ${cluster.machine}`, () => cluster.start());
  }
}
