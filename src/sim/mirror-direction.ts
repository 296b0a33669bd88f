/**
 * One direction of mirroring in a simulated world: who writes where, who operates, who judges.
 *
 * Made by `mirror-world.ts`, anew when a failback turns the roles of the clusters around.
 */
import { assert } from '../base/assert.ts';
import type { Runtime } from '../io/runtime.ts';
import { MirrorInvariants, type WatchedTopic } from './mirror-invariants.ts';
import { MirrorOperator } from './mirror-operator.ts';
import { isProbe, Prober } from './prober.ts';
import { SimClient } from './sim-client.ts';
import type { SimCluster } from './sim-cluster.ts';
import type { Simulator } from './simulator.ts';
import { Workload } from './workload.ts';

/** What a direction is made of. */
export interface MirrorDirectionOptions {
  readonly simulator: Simulator;
  /** Of the machine that all clients run on. */
  readonly clients: Runtime;
  readonly source: SimCluster;
  readonly destination: SimCluster;
  readonly mirror: string;
  readonly topics: readonly WatchedTopic[];
  /** Whether the source may have lost what it acknowledged. */
  readonly mayForget: () => boolean;
  readonly onMove: (from: string, to: string) => void;
}

/** See the file header. */
export class MirrorDirection {
  readonly source: SimCluster;
  readonly destination: SimCluster;
  readonly mirror: string;
  /** Of the destination, which has the mirror. */
  readonly operator: MirrorOperator;
  readonly workload: Workload;
  readonly prober: Prober;
  readonly invariants: MirrorInvariants;
  readonly #mayForget: () => boolean;

  constructor(options: MirrorDirectionOptions) {
    const { simulator, clients, source, destination, mirror, topics } = options;
    this.source = source;
    this.destination = destination;
    this.mirror = mirror;
    this.#mayForget = options.mayForget;
    const client = (cluster: SimCluster, name: string) => new SimClient(clients, cluster, name);
    this.operator = new MirrorOperator(client(destination, 'operator'), mirror);
    const probing = simulator.fork(`prober ${mirror}`);
    this.prober = new Prober(client(destination, 'prober'), probing, mirror, topics);
    this.workload = new Workload({
      client: client(source, 'producer'),
      random: simulator.fork(`workload ${mirror}`),
      topics,
      onAcknowledged: (...write) => this.#acknowledged(...write),
      mayForget: options.mayForget,
    });
    this.invariants = new MirrorInvariants({
      source,
      destination,
      mirror,
      topics,
      isLocal: (batch) => isProbe(batch, mirror),
      onMove: options.onMove,
    });
  }

  #acknowledged(topic: string, index: number, baseOffset: number, sent: Uint8Array): void {
    const seen = this.invariants.sourceBatch(topic, index, baseOffset);
    if (this.#mayForget()) return;
    const at = `${topic}-${index}: offset ${baseOffset}`;
    assert(seen !== undefined, `${at} was acknowledged, is not there`);
    const payload = Buffer.from(sent.subarray(61));
    const same = Buffer.compare(payload, Buffer.from(seen.bytes.subarray(61))) === 0;
    assert(same, `${at} was acknowledged and holds something else`);
  }
}
