/**
 * A simulated world: machines by name, each with a disk that outlives its processes.
 *
 * `start` begins a process on a machine and gives it a Runtime; the composition root of the
 * scenario builds a broker on it. `kill` ends the process as kill -9 does, `losePower` the whole
 * machine; either way the next `start` finds the same disk. A machine runs one process at a time.
 */
import { assert, present } from '../base/assert.ts';
import type { Compression, Runtime } from '../io/runtime.ts';
import { noCompression } from './sim-compression.ts';
import { noCrypto } from './sim-crypto.ts';
import { SimDisk } from './sim-disk.ts';
import type { PowerLoss } from './sim-file.ts';
import { SimNetwork } from './sim-network.ts';
import { SimProcess, simClock, simLogger, simRandom } from './sim-process.ts';
import { Simulator } from './simulator.ts';

interface Machine {
  readonly disk: SimDisk;
  process: SimProcess | undefined;
  lives: number;
  wallOffsetMs: number;
}

/** See the file header. */
export class SimWorld {
  readonly simulator: Simulator;
  readonly network: SimNetwork;
  readonly #compression: Compression;
  readonly #machines = new Map<string, Machine>();

  constructor(seed: number, compression: Compression = noCompression) {
    this.simulator = new Simulator(seed);
    this.network = new SimNetwork(this.simulator);
    this.#compression = compression;
  }

  /** The machine's disk, for faults; makes the machine when it is new. */
  disk(machine: string): SimDisk {
    return this.#machine(machine).disk;
  }

  /** Begins a process on the machine. The one before must have ended. */
  start(name: string): Runtime {
    const machine = this.#machine(name);
    assert(machine.process === undefined, `${name} already runs a process`);
    this.network.setPower(name, true);
    const process = new SimProcess(this.simulator, name, ++machine.lives);
    process.wallOffsetMs = machine.wallOffsetMs;
    machine.process = process;
    this.simulator.trace(`start ${process.label}`);
    return {
      clock: simClock(this.simulator, process),
      random: simRandom(this.simulator, process),
      disk: machine.disk.portFor(process),
      network: this.network.portFor(process),
      compression: this.#compression,
      crypto: noCrypto,
      logger: simLogger(this.simulator, process),
    };
  }

  isRunning(name: string): boolean {
    return this.#machine(name).process !== undefined;
  }

  /** kill -9: timers, connections and callbacks vanish; everything written stays. */
  kill(name: string): void {
    const process = this.#end(name);
    this.simulator.trace(`kill ${process.label}`);
    this.network.processEnded(process, 'lives');
  }

  /** The machine stops at once, its peers hear nothing; unsynced bytes go as `loss` says. */
  losePower(name: string, loss: PowerLoss): void {
    const process = this.#end(name);
    this.simulator.trace(`power loss ${process.label} ${loss.unsynced}`);
    this.network.setPower(name, false);
    this.network.processEnded(process, 'gone');
    this.#machine(name).disk.losePower(loss);
  }

  /** The wall clock of the machine jumps by `byMs`; monotonic time does not. */
  jumpWallClock(name: string, byMs: number): void {
    const machine = this.#machine(name);
    machine.wallOffsetMs += byMs;
    if (machine.process !== undefined) machine.process.wallOffsetMs = machine.wallOffsetMs;
    this.simulator.trace(`clock of ${name} jumps by ${byMs} ms`);
  }

  #end(name: string): SimProcess {
    const machine = this.#machine(name);
    const process = present(machine.process, `a process on ${name}`);
    machine.process = undefined;
    process.end();
    return process;
  }

  #machine(name: string): Machine {
    let machine = this.#machines.get(name);
    if (machine === undefined) {
      const disk = new SimDisk(this.simulator.fork(`disk ${name}`));
      machine = { disk, process: undefined, lives: 0, wallOffsetMs: 0 };
      this.#machines.set(name, machine);
      this.network.addMachine(name);
    }
    return machine;
  }
}
