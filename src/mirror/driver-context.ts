/**
 * What partition drivers are given and what they show: the types between a driver and its owners.
 *
 * The mirror manager makes one context for all drivers; `queries.ts` reads statuses.
 */
import type { Runtime } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import type { MirrorStateStore } from './mirror-coordinator.ts';
import type { PartitionFetch } from './partition-fetch.ts';
import type { MirrorPartitionStates } from './partition-states.ts';
import type { MirrorBrokerSettings, MirrorSettings } from './settings.ts';
import type { SourceCluster } from './source-cluster.ts';
import type { MirrorStateRow } from './state-row.ts';
import type { MirrorStateName } from './states.ts';

/** What drivers share. */
export interface DriverContext {
  readonly runtime: Runtime;
  /** This cluster's id. */
  readonly clusterId: string;
  readonly store: MirrorStateStore;
  readonly states: MirrorPartitionStates;
  readonly controller: Pick<ControllerPort, 'electSameLeader'>;
  readonly limits: MirrorBrokerSettings;
  /** Undefined: the mirror has no settings (yet). */
  mirror(
    name: string,
  ): { readonly source: SourceCluster; readonly settings: MirrorSettings } | undefined;
  /** An event that the table does not allow: counted, never silent (S1). */
  onIllegal(message: string): void;
}

/** What DescribeMirrors says of a partition besides its log (A4). */
export interface DriverStatus {
  readonly state: MirrorStateName;
  readonly row: MirrorStateRow | undefined;
  readonly cause: string;
  readonly message: string;
  /** Wall times in ms, −1 unknown. */
  readonly sinceMs: number;
  readonly nextRetryMs: number;
  readonly progress: ReturnType<PartitionFetch['progress']> | undefined;
}
