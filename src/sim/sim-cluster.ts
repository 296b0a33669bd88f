/**
 * A one-broker cluster on a simulated machine, and the supervisor that starts it again.
 *
 * With `server/broker.ts` the only place that composes a broker. A process ends by `kill` (what was
 * written stays), by `losePower` (unsynced bytes go), or by itself: a start that fails, or a
 * metadata log that fails, which the supervisor answers with a new start after a pause, as an init
 * system does. `broker` is there from the end of the start on.
 */
import { Fault, present } from '../base/assert.ts';
import type { Runtime } from '../io/runtime.ts';
import type { Partition } from '../replication/partition.ts';
import { type Broker, startBroker } from '../server/broker.ts';
import { BrokerConfig } from '../server/broker-config.ts';
import type { SimDisk } from './sim-disk.ts';
import type { PowerLoss } from './sim-file.ts';
import type { SimWorld } from './sim-runtime.ts';

/** Where every simulated broker listens. */
export const BROKER_PORT = 9092;
/** Data directory of every simulated broker. */
const LOG_DIR = '/data';
/** Pause before a process that ended by itself is started again, in ms. */
const RESTART_MS = 500;

/** See the file header. */
export class SimCluster {
  /** The machine, which is also the host name. */
  readonly machine: string;
  readonly #world: SimWorld;
  readonly #config: BrokerConfig;
  #broker: Broker | undefined;
  #runtime: Runtime | undefined;
  #clusterId = '';
  /** Process starts so far; tells lives apart. */
  #lives = 0;

  constructor(world: SimWorld, machine: string, settings: ReadonlyMap<string, string>) {
    this.#world = world;
    this.machine = machine;
    this.#config = new BrokerConfig(
      new Map([
        ['log.dirs', LOG_DIR],
        ['listeners', `PLAINTEXT://${machine}:${BROKER_PORT}`],
        ...settings,
      ]),
    );
  }

  /** Undefined while no broker serves. */
  get broker(): Broker | undefined {
    return this.#broker;
  }

  /** The runtime of the process that runs now, broker or not. */
  get runtime(): Runtime | undefined {
    return this.#world.isRunning(this.machine) ? this.#runtime : undefined;
  }

  /** Known once the first start is over. */
  get clusterId(): string {
    return this.#clusterId;
  }

  get lives(): number {
    return this.#lives;
  }

  get disk(): SimDisk {
    return this.#world.disk(this.machine);
  }

  /** A partition that the running broker holds. */
  partition(topic: string, index: number): Partition | undefined {
    return this.#broker?.services.replicas.partition(topic, index);
  }

  /** Begins a process; nothing happens when one runs. */
  start(): void {
    if (this.#world.isRunning(this.machine)) return;
    const runtime = this.#world.start(this.machine);
    const life = ++this.#lives;
    this.#runtime = runtime;
    const onFatal = (error: Error): void => this.#endedByItself(life, error);
    startBroker(runtime, { config: this.#config, onFatal }).then(
      (broker) => {
        if (!this.#runs(life)) return;
        this.#broker = broker;
        this.#clusterId = broker.clusterId;
      },
      (error: unknown) => this.#endedByItself(life, error),
    );
  }

  /** kill -9; nothing happens when no process runs. */
  kill(): void {
    if (!this.#world.isRunning(this.machine)) return;
    this.#broker = undefined;
    this.#world.kill(this.machine);
  }

  /** See SimWorld.losePower. */
  losePower(loss: PowerLoss): void {
    if (!this.#world.isRunning(this.machine)) return;
    this.#broker = undefined;
    this.#world.losePower(this.machine, loss);
  }

  /** Stops in good order; the process ends with it. */
  async stop(): Promise<void> {
    const broker = present(this.#broker, `a broker on ${this.machine}`);
    const life = this.#lives;
    await broker.close();
    if (this.#runs(life)) this.kill();
  }

  #runs(life: number): boolean {
    return this.#lives === life && this.#world.isRunning(this.machine);
  }

  #endedByItself(life: number, error: unknown): void {
    if (!this.#runs(life)) return;
    // A defect is no reason to try again.
    if (error instanceof TypeError || error instanceof RangeError || error instanceof Fault) {
      throw error;
    }
    const { simulator } = this.#world;
    simulator.trace(`${this.machine} gives up: ${String(error)}`);
    simulator.schedule(0, `${this.machine} exits`, () => {
      if (this.#runs(life)) this.kill();
    });
    simulator.schedule(RESTART_MS, `${this.machine} is started again`, () => {
      if (this.#lives === life) this.start();
    });
  }
}
